//! Capture on one real server, refresh on another, and what both refuse.

mod server;

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ClusterId, DatabaseId, Epoch, Identity, Incarnation, Nonce, ServiceId, Version};
use cluster::record::{Header, Record, RecordBuilder, Statement};
use tokio::sync::mpsc;
use wire::backend::{Fields, tag};
use wire::{encode, frame};

use self::server::Server;
use super::{Agent, AgentEvent, Assignment, Command};
use crate::backend::Connection;
use crate::capture::{self, Captured, Decoder};
use crate::checksum;

const CLUSTER: ClusterId = ClusterId(0x1234_5678);
const DEADLINE: Duration = Duration::from_secs(30);

/// An agent that runs, with its owner's ends.
struct Running {
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<AgentEvent>,
    incarnation: Incarnation,
    proof_sql: String,
    applied: Vec<Identity>,
}

impl Running {
    async fn start(server: &Server) -> Self {
        let assignment = Assignment {
            name: "replica".to_owned(),
            address: server.address(),
            database: "postgres".to_owned(),
            cluster: CLUSTER,
        };
        let (agent, commands, events) = Agent::new(assignment);
        tokio::spawn(agent.run());
        let mut running = Self {
            commands,
            events,
            incarnation: Incarnation::default(),
            proof_sql: String::new(),
            applied: Vec::new(),
        };
        running.up().await;
        running
    }

    async fn event(&mut self) -> AgentEvent {
        tokio::time::timeout(DEADLINE, self.events.recv()).await.expect("an event in time").expect("an agent")
    }

    async fn up(&mut self) {
        match self.event().await {
            AgentEvent::Up { incarnation, proof_sql, applied } => {
                (self.incarnation, self.proof_sql, self.applied) = (incarnation, proof_sql, applied);
            }
            other => panic!("not up but {other:?}"),
        }
    }

    async fn apply(&mut self, records: Vec<Arc<Record>>) -> AgentEvent {
        let command = Command::Apply { incarnation: self.incarnation, records };
        self.commands.send(command).await.unwrap();
        self.event().await
    }

    async fn must_apply(&mut self, records: Vec<Arc<Record>>) {
        match self.apply(records).await {
            AgentEvent::Applied { .. } => {}
            other => panic!("not applied but {other:?}"),
        }
    }
}

/// A session at home that keeps what it captured.
struct Home {
    connection: Connection,
    decoder: Decoder,
    next: u64,
}

impl Home {
    async fn new(server: &Server) -> Self {
        let options = format!("-c {}={}", capture::VIA_SETTING, capture::via_token(CLUSTER));
        Self { connection: server.connect(&options).await, decoder: Decoder::default(), next: 1 }
    }

    /// Runs a query and adds what was captured.
    async fn run(&mut self, sql: &str, builder: &mut RecordBuilder) -> Vec<Captured> {
        encode::query(&mut self.connection.output, sql.as_bytes());
        self.connection.flush().await.unwrap();
        let mut captured = Vec::new();
        loop {
            let (tag, total) = self.connection.message().await.unwrap();
            let body = &self.connection.input.data()[frame::HEADER_BYTES..total];
            match tag {
                tag::NOTICE_RESPONSE => captured.push(self.decoder.capture(Fields::new(body), builder)),
                tag::ERROR_RESPONSE => panic!("{sql}: {}", Fields::new(body).message()),
                _ => {}
            }
            self.connection.input.consume(total);
            if tag == tag::READY_FOR_QUERY {
                return captured;
            }
        }
    }

    async fn write(&mut self, sql: &str) -> Arc<Record> {
        let mut builder = RecordBuilder::new();
        self.run(sql, &mut builder).await;
        assert!(!builder.is_empty(), "{sql} leaves rows");
        self.record(builder)
    }

    /// A schema change, at home and as a record.
    async fn ddl(&mut self, sql: &str) -> Arc<Record> {
        let token = capture::ddl_token(CLUSTER);
        let mut builder = RecordBuilder::new();
        let setting = capture::DDL_SETTING;
        self.run(&format!("SET {setting} = '{token}'"), &mut builder).await;
        self.run(sql, &mut builder).await;
        self.run(capture::INSTALL_TABLES_SQL, &mut builder).await;
        self.run(&format!("RESET {setting}"), &mut builder).await;
        assert!(builder.is_empty(), "a schema change leaves no rows");
        let statement = Statement {
            text: sql.to_owned(),
            role: "postgres".to_owned(),
            search_path: "public".to_owned(),
            settings: vec![("timezone".to_owned(), "UTC".to_owned())],
        };
        builder.push_statement(&statement).unwrap();
        self.record(builder)
    }

    fn record(&mut self, builder: RecordBuilder) -> Arc<Record> {
        let version = Version(self.next);
        self.next += 1;
        Arc::new(builder.finish(Header {
            cluster: CLUSTER,
            identity: Identity { epoch: Epoch(1), n: version.0, nonce: Nonce(u64::MAX - version.0) },
            first: version,
            last: version,
            database: DatabaseId(0),
            service: ServiceId(0),
        }))
    }

    async fn refused(&mut self, sql: &str) -> String {
        let error = self.connection.simple(sql).await.expect_err(sql);
        String::from_utf8(error.sqlstate().unwrap().to_vec()).unwrap()
    }
}

/// Two servers with their agents, and a session at the first.
struct Pair {
    home: Home,
    first: Running,
    second: Running,
    servers: [Server; 2],
}

impl Pair {
    async fn start() -> Self {
        let servers = [Server::start(), Server::start()];
        let first = Running::start(&servers[0]).await;
        // The second server's object identifiers must be others.
        let mut noise = servers[1].connect("").await;
        noise.simple("CREATE TYPE noise AS ENUM ('a'); DROP TYPE noise").await.unwrap();
        let second = Running::start(&servers[1]).await;
        let home = Home::new(&servers[0]).await;
        Self { home, first, second, servers }
    }

    async fn ddl(&mut self, sql: &str) {
        let record = self.home.ddl(sql).await;
        self.second.must_apply(vec![record]).await;
    }

    async fn assert_identical(&self) {
        let mut sums = Vec::new();
        for server in &self.servers {
            let mut connection = server.connect("").await;
            connection.simple("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
            sums.push(checksum::checksums(&mut connection).await.unwrap());
        }
        assert_eq!(sums[0], sums[1]);
    }
}

const SCHEMA: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')",
    "CREATE TYPE pair AS (m mood, t text)",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE TABLE accounts (aid int PRIMARY KEY, balance int, filler char(20))",
    "CREATE TABLE wide (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t text, n numeric, m mood, ms mood[], p pair, \
     d positive, j jsonb, ts timestamptz, b bytea, double int GENERATED ALWAYS AS (length(t) * 2) STORED)",
    "CREATE TABLE heap (a int, b text, c float8, s text GENERATED ALWAYS AS (b || '!') STORED)",
    "CREATE TABLE twice (id int PRIMARY KEY, k int UNIQUE)",
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE parts (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
    "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE parts_high PARTITION OF parts FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE pointing (p int REFERENCES parts) PARTITION BY LIST (p)",
    "CREATE TABLE pointing_all PARTITION OF pointing DEFAULT",
    "CREATE TABLE old_root (id int PRIMARY KEY, v text)",
    "CREATE TABLE old_leaf (extra int) INHERITS (old_root)",
    "CREATE TABLE \"odd \"\"Name\" (\"select\" int PRIMARY KEY, \"a b\" text)",
    "CREATE FUNCTION bump() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN UPDATE accounts SET filler = 'bumped' WHERE aid = NEW.aid + 1 AND filler <> 'bumped'; RETURN NULL; END $$",
    "CREATE TRIGGER bump AFTER UPDATE OF filler ON accounts FOR EACH ROW EXECUTE FUNCTION bump()",
];

const WRITES: &[&str] = &[
    "INSERT INTO accounts SELECT g, 0, '' FROM generate_series(1, 300) g",
    "UPDATE accounts SET balance = balance + 1",
    "UPDATE accounts SET balance = balance + 1 WHERE aid = 7; UPDATE accounts SET balance = -1 WHERE aid = 7",
    "UPDATE accounts SET aid = aid + 1000 WHERE aid > 290",
    "DELETE FROM accounts WHERE aid BETWEEN 20 AND 40",
    "DELETE FROM accounts WHERE aid = 50; INSERT INTO accounts VALUES (50, 5, NULL)",
    "INSERT INTO accounts VALUES (9999, 1, 'x'); DELETE FROM accounts WHERE aid = 9999",
    // The trigger changes the next row before the statement's own change of it is reported.
    "UPDATE accounts SET filler = 'set' WHERE aid BETWEEN 60 AND 70",
    "INSERT INTO wide (t, n, m, ms, p, d, j, ts, b) VALUES ('it''s', 1.50, 'ok', '{sad,NULL,happy}', '(happy,x)', 3, \
     '{\"a\": [1, null]}', '2001-02-03 04:05:06+07', '\\x00ff'), (NULL, 'NaN', NULL, '{}', NULL, NULL, NULL, 'infinity', '')",
    "INSERT INTO wide (t) SELECT repeat(md5(g::text), 20000) FROM generate_series(1, 3) g",
    "UPDATE wide SET m = 'happy', p = ROW('sad', NULL) WHERE t IS NOT NULL",
    "UPDATE wide SET id = DEFAULT WHERE id = (SELECT min(id) FROM wide)",
    "UPDATE wide SET ms = ms || 'ok'::mood, n = n + 1",
    "INSERT INTO wide (id, t) OVERRIDING SYSTEM VALUE VALUES (777, 'seven')",
    "DELETE FROM wide WHERE id = 777",
    "INSERT INTO heap SELECT g % 3, NULLIF(g % 4, 0)::text, g / 3.0 FROM generate_series(1, 12) g",
    "INSERT INTO heap SELECT 1, 'twin', 0.1 FROM generate_series(1, 3)",
    "UPDATE heap SET c = 'NaN' WHERE ctid = (SELECT ctid FROM heap WHERE b = 'twin' LIMIT 1)",
    "DELETE FROM heap WHERE ctid = (SELECT ctid FROM heap WHERE b = 'twin' AND c = 0.1 LIMIT 1)",
    "UPDATE heap SET b = NULL WHERE a = 2",
    "INSERT INTO twice VALUES (1, 5), (2, 7)",
    "UPDATE twice SET k = 6 WHERE id = 1; UPDATE twice SET k = 5 WHERE id = 2",
    "INSERT INTO parent SELECT generate_series(1, 10); INSERT INTO child SELECT g, g FROM generate_series(1, 10) g",
    "DELETE FROM parent WHERE id = 3",
    "UPDATE parent SET id = 44 WHERE id = 4",
    "WITH gone AS (DELETE FROM child WHERE id = 1 RETURNING *) INSERT INTO child SELECT id + 100, p FROM gone",
    "INSERT INTO parts SELECT g, 'v' FROM generate_series(90, 110) g; INSERT INTO pointing VALUES (90), (110)",
    "UPDATE parts SET id = id + 50 WHERE id = 95",
    "MERGE INTO accounts a USING (VALUES (1, 9), (5000, 9)) s(i, b) ON a.aid = s.i \
     WHEN MATCHED THEN UPDATE SET balance = s.b WHEN NOT MATCHED THEN INSERT VALUES (s.i, s.b, 'm')",
    "INSERT INTO accounts VALUES (1, 3, '') ON CONFLICT (aid) DO UPDATE SET balance = EXCLUDED.balance",
    "INSERT INTO old_root VALUES (1, 'r'); INSERT INTO old_leaf VALUES (2, 'l', 3); UPDATE old_root SET v = v || v",
    "INSERT INTO \"odd \"\"Name\" VALUES (1, 'a'), (2, 'b'), (3, 'c'); UPDATE \"odd \"\"Name\" SET \"a b\" = 'z'",
    "DO $$ BEGIN UPDATE accounts SET balance = 0 WHERE aid = 2; END $$",
    "TRUNCATE parent CASCADE",
    "TRUNCATE parts CASCADE",
    "TRUNCATE heap; INSERT INTO heap VALUES (1, 'after', 2)",
];

#[tokio::test]
async fn every_kind_of_write_arrives() {
    let mut pair = Pair::start().await;
    for sql in SCHEMA {
        pair.ddl(sql).await;
    }
    pair.assert_identical().await;
    for sql in WRITES {
        let record = pair.home.write(sql).await;
        pair.second.must_apply(vec![record]).await;
        pair.assert_identical().await;
    }
    // The same again, all in one batch, after everything was emptied.
    let mut records = vec![
        pair.home
            .write("TRUNCATE accounts, wide, heap, twice, parent, parts, old_root, \"odd \"\"Name\" CASCADE")
            .await,
    ];
    for sql in WRITES {
        records.push(pair.home.write(sql).await);
    }
    let last = records.last().unwrap().header().last;
    match pair.second.apply(records).await {
        AgentEvent::Applied { upto, .. } => assert_eq!(upto, last),
        other => panic!("not applied but {other:?}"),
    }
    pair.assert_identical().await;
}
