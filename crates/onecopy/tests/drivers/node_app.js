// node-postgres: what an application does with it. What is printed must be the same through onecopy and directly.
const fs = require("fs");
const { Client, Pool } = require("pg");

const ssl = { ca: fs.readFileSync(process.env.PGSSLROOTCERT).toString(), servername: "localhost" };
delete process.env.PGSSLMODE;
delete process.env.PGSSLROOTCERT;
const state = (promise) => promise.then(() => "no error", (error) => error.code);

async function main() {
  const db = new Client({ ssl });
  await db.connect();
  console.log("user", (await db.query("SELECT current_user AS u")).rows);
  await db.query("DROP TABLE IF EXISTS njs; CREATE TABLE njs (id int PRIMARY KEY, name text, amount numeric, more jsonb)");
  const insert = { name: "insert", text: "INSERT INTO njs VALUES ($1, $2, $3, $4)" };
  await db.query("BEGIN");
  for (let n = 0; n < 10; n++) await db.query({ ...insert, values: [n, `n${n}`, n * 1.5, { n }] });
  await db.query("COMMIT");
  console.log("row", JSON.stringify((await db.query("SELECT * FROM njs WHERE id = $1", [4])).rows));
  await db.query("BEGIN");
  console.log("unique", await state(db.query({ ...insert, values: [4, "x", 0, null] })), await state(db.query("SELECT 1")));
  await db.query("ROLLBACK");
  console.log("returning", (await db.query("UPDATE njs SET amount = amount + 1 WHERE id < 3 RETURNING id")).rowCount);
  const sleeping = state(db.query("SELECT pg_sleep(30)"));
  await new Promise((done) => setTimeout(done, 300));
  // Its cancel requests are never encrypted.
  new Client({ ssl: false }).cancel(db, db.activeQuery || db._activeQuery);
  console.log("cancelled", await sleeping);
  const pool = new Pool({ ssl, max: 3 });
  await Promise.all([...Array(20).keys()].map((n) => pool.query("UPDATE njs SET amount = amount + 1 WHERE id = $1", [n % 10])));
  console.log("pool", (await pool.query("SELECT sum(amount) FROM njs")).rows);
  await pool.end();
  console.log("after", (await db.query("SELECT count(*) FROM njs")).rows);
  await db.end();
}

main().catch((error) => {
  console.log("failed", error.code, error.message);
  process.exit(1);
});
