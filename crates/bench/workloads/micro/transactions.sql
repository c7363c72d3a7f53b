-- Micro loads: what each sends. README.md beside this folder tells how to read this file.

-- interaction: point-read
-- query: readPoint
SELECT v, filler FROM point WHERE id = $1;

-- interaction: hot-counter
-- query: increment
UPDATE counter SET n = n + 1 WHERE id = $1;

-- interaction: read-modify-write
-- begin: readModifyWrite (at REPEATABLE READ at least)
-- query: readCounter
SELECT n FROM counter WHERE id = $1;
-- query: writeCounter
UPDATE counter SET n = $2 WHERE id = $1;
-- commit

-- interaction: tpc-b
-- begin: tpcB
-- query: addToAccount
UPDATE account SET balance = balance + $2 WHERE id = $1;
-- query: getBalance
SELECT balance FROM account WHERE id = $1;
-- query: addToTeller
UPDATE teller SET balance = balance + $2 WHERE id = $1;
-- query: addToBranch
UPDATE branch SET balance = balance + $2 WHERE id = $1;
-- query: addHistory
INSERT INTO history (teller_id, branch_id, account_id, delta, at) VALUES ($1, $2, $3, $4, localtimestamp);
-- commit

-- interaction: large-rows
-- query: replaceBody (one of two, by chance)
UPDATE large SET revision = revision + 1, body = $2 WHERE id = $1;
-- query: readBody
SELECT revision, body FROM large WHERE id = $1;

-- interaction: bulk-load
-- begin: bulkLoad
-- query: loadLines (some lines in one statement)
INSERT INTO bulk (client, batch, line, body)
SELECT $1, $2, line, 'line ' || line || ' of many' FROM generate_series(1, $3::int) AS line;
-- commit
