//! Captures on one real server, refreshes on another, and checks the statements that both reject.

mod batches;
mod checks;
mod checksums;
mod few;
mod guard;
mod known;
mod partial;
mod planner;
mod raised;
mod sequences;
mod server;
mod spilled;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cluster::ids::{
    ClusterId, CrewId, DatabaseId, Epoch, Identity, Incarnation, Nonce, ReplicaId, ServiceId, Version,
};
use cluster::placement::Holdings;
use cluster::record::{Header, Record, RecordBuilder, Statement};
use commitlog::SpillFolder;
use tokio::sync::mpsc;
use wire::backend::{Fields, tag};
use wire::{encode, frame};

use super::{Agent, AgentEvent, Assignment, Command, DivergenceCause, HeldAt};
use crate::backend::Connection;
use crate::backend::Served;
use crate::capture;
use crate::capture::shares::Shares;
use crate::capture::vouch::Voucher;
use crate::capture::{Captured, Decoder};
use crate::coordinator::held_backends::HeldBackends;
use crate::coordinator::splits::Splits;
use crate::membership::checksum;
use server::Server;

const CLUSTER: ClusterId = ClusterId(0x1234_5678);
const DEADLINE: Duration = Duration::from_mins(2);

/// An agent that runs, with its owner's ends.
struct Running {
    commands: mpsc::Sender<Command>,
    events: mpsc::Receiver<AgentEvent>,
    incarnation: Incarnation,
    proof_sql: String,
    spared: Vec<i32>,
    applied: Vec<Identity>,
    /// Backends that other nodes were to be asked about, and those that were ended.
    asked_about: Vec<i32>,
    evicted: Vec<i32>,
}

impl Running {
    async fn start(server: &Server) -> Self {
        Self::start_within(server, Duration::from_mins(1)).await
    }

    async fn start_within(server: &Server, health_deadline: Duration) -> Self {
        Self::start_with(server, health_deadline, None).await
    }

    async fn start_with(server: &Server, health_deadline: Duration, held: Option<HeldAt>) -> Self {
        let assignment = Assignment {
            reader_patience_ms: Arc::default(),
            health_deadline,
            is_founding: Arc::new(AtomicBool::new(true)),
            evictions: Arc::default(),
            name: "replica".to_owned(),
            address: server.address(),
            served: Served::of_new_servers(),
            cluster: CLUSTER,
            after: Incarnation::default(),
            voucher: Voucher::draw().unwrap(),
            seal: Arc::new(server.seal()),
            spills: Arc::new(SpillFolder::new(server.folder(), CLUSTER)),
            held,
        };
        let (agent, commands, events) = Agent::new(assignment);
        tokio::spawn(agent.run());
        let mut running = Self {
            commands,
            events,
            incarnation: Incarnation::default(),
            proof_sql: String::new(),
            spared: Vec::new(),
            applied: Vec::new(),
            asked_about: Vec::new(),
            evicted: Vec::new(),
        };
        running.up().await;
        running
    }

    async fn event(&mut self) -> AgentEvent {
        tokio::time::timeout(DEADLINE, self.events.recv()).await.expect("an event in time").expect("an agent")
    }

    async fn up(&mut self) {
        match self.event().await {
            AgentEvent::Up { incarnation, proof_sql, spared, applied } => {
                (self.incarnation, self.proof_sql) = (incarnation, proof_sql);
                (self.spared, self.applied) = (spared, applied);
            }
            other => panic!("not up but {other:?}"),
        }
    }

    async fn apply(&mut self, records: Vec<Arc<Record>>) -> AgentEvent {
        self.apply_held(records, Holdings::everything()).await
    }

    async fn apply_held(&mut self, records: Vec<Arc<Record>>, holdings: Holdings) -> AgentEvent {
        let (incarnation, last_ddl) = (self.incarnation, Version::ZERO);
        let command = Command::Apply { incarnation, records, holdings, last_ddl };
        self.commands.send(command).await.unwrap();
        loop {
            match self.event().await {
                AgentEvent::UnknownBlocks { pid, .. } => self.asked_about.push(pid),
                AgentEvent::Evicts { pid } => self.evicted.push(pid),
                other => return other,
            }
        }
    }

    async fn must_apply(&mut self, records: Vec<Arc<Record>>) {
        match self.apply(records).await {
            AgentEvent::Applied { .. } => {}
            other => panic!("not applied but {other:?}"),
        }
    }
}

/// A session at home. It keeps the captured changes.
struct Home {
    connection: Connection,
    decoder: Decoder,
    next: u64,
}

impl Home {
    async fn new(server: &Server) -> Self {
        let options = capture::vouch::own_option(CLUSTER);
        Self { connection: server.connect(&options).await, decoder: Decoder::default(), next: 1 }
    }

    /// Runs a query and adds the captured changes.
    async fn run(&mut self, sql: &str, builder: &mut RecordBuilder) -> Vec<Captured> {
        encode::query(&mut self.connection.output, sql.as_bytes());
        self.connection.flush().await.unwrap();
        let mut captured = Vec::new();
        loop {
            let (tag, total) = self.connection.message().await.unwrap();
            let body = &self.connection.input.data()[frame::HEADER_BYTES..total];
            match tag {
                tag::NOTICE_RESPONSE => {
                    captured.push(self.decoder.capture(Fields::new(body), &Splits::none(), builder));
                }
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
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
        self.run(sql, &mut builder).await;
        assert!(!builder.is_empty(), "{sql} leaves rows");
        self.record(builder)
    }

    /// Runs a schema change at home, and returns it as a record.
    async fn ddl(&mut self, sql: &str) -> Arc<Record> {
        let token = capture::ddl_token(CLUSTER);
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
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
            settings: [("timezone", "UTC"), ("check_function_bodies", "on")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
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
            database: DatabaseId::FIRST,
            service: ServiceId(0),
        }))
    }

    /// Checks that a statement is refused when its tables come under capture, although it passes as an ordered schema
    /// change.
    async fn install_refused(&mut self, sql: &str) {
        let token = capture::ddl_token(CLUSTER);
        self.connection
            .simple(&format!("BEGIN; SET LOCAL {} = '{token}'", capture::DDL_SETTING))
            .await
            .unwrap();
        self.connection.simple(sql).await.unwrap();
        assert_eq!(self.refused(capture::INSTALL_TABLES_SQL).await, "0A000", "{sql}");
        self.connection.simple("ROLLBACK").await.unwrap();
    }

    /// Lets schema changes pass from here on.
    async fn set_ddl(&mut self) {
        let sql = format!("SET {} = '{}'", capture::DDL_SETTING, capture::ddl_token(CLUSTER));
        self.connection.simple(&sql).await.unwrap();
    }

    async fn refused(&mut self, sql: &str) -> String {
        let error = self.connection.simple(sql).await.expect_err(sql);
        String::from_utf8(error.sqlstate().unwrap().to_vec()).unwrap()
    }
}

/// Two servers with their agents, and a session at the first.
struct Pair {
    home: Home,
    _first: Running,
    second: Running,
    servers: [Server; 2],
}

impl Pair {
    async fn start() -> Self {
        let servers = [Server::start(), Server::start()];
        let first = Running::start(&servers[0]).await;
        // The second server's object identifiers must differ.
        let mut noise = servers[1].connect("").await;
        noise.simple("CREATE TYPE noise AS ENUM ('a'); DROP TYPE noise").await.unwrap();
        let second = Running::start(&servers[1]).await;
        let home = Home::new(&servers[0]).await;
        Self { home, _first: first, second, servers }
    }

    async fn ddl(&mut self, sql: &str) {
        let record = self.home.ddl(sql).await;
        self.second.must_apply(vec![record]).await;
    }

    async fn assert_identical(&self) {
        let mut sums = Vec::new();
        for server in &self.servers {
            let mut connection = server.own("").await;
            connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.unwrap();
            sums.push(checksum::checksums(&mut connection, &Shares::everything()).await.unwrap());
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

#[tokio::test]
async fn rows_of_a_subtransaction_show_its_number() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let captured = pair
        .home
        .run(
            "BEGIN; INSERT INTO t VALUES (1); DO $$ BEGIN INSERT INTO t VALUES (2); INSERT INTO t VALUES (2); \
             EXCEPTION WHEN unique_violation THEN NULL; END $$; INSERT INTO t VALUES (3)",
            &mut builder,
        )
        .await;
    let [
        Captured::Row { xid: first, nested: false, .. },
        Captured::Row { xid: phantom, nested: true, .. },
        Captured::Row { xid: last, nested: false, .. },
    ] = captured[..]
    else {
        panic!("{captured:?}");
    };
    // Inside functions an INSERT may have been undone. Its rows show that.
    assert_eq!((first, last), (0, 0));
    let status = format!("SELECT pg_xact_status({phantom}::text::xid8), pg_current_xact_id()");
    let rows = pair.home.connection.simple(&status).await.unwrap();
    assert_eq!(rows[0][0], Some("aborted".to_owned()));
    assert_ne!(rows[0][1], Some(phantom.to_string()));
}

#[tokio::test]
async fn what_a_kept_block_wrote_falls_with_the_block_around_it() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    let block = |inner: &str, end: &str| format!("BEGIN {inner} {end} EXCEPTION WHEN OTHERS THEN NULL; END;");
    let insert = |id: u32| format!("INSERT INTO t VALUES ({id});");
    let kept = |id: u32| block(&insert(id), "");
    let undone = |inner: &str| block(inner, "RAISE EXCEPTION 'no';");
    // Odd rows stay. Each inner block has a number of its own. The outer blocks may get theirs late or early.
    let code = [
        insert(1),
        kept(3),
        undone(&[insert(2), kept(4), insert(6), undone(&insert(8)), insert(10)].concat()),
        undone(&[kept(12), insert(14)].concat()),
        block(&[kept(5), undone(&insert(16)), insert(7)].concat(), ""),
        insert(9),
    ];
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let sql = format!("BEGIN; DO $$ BEGIN {} END $$", code.concat());
    let captured = pair.home.run(&sql, &mut builder).await;
    let writer = |captured: &Captured| match captured {
        Captured::Row { xid, nested: true, .. } => xid.to_string(),
        other => panic!("{other:?}"),
    };
    let writers = captured.iter().map(writer).collect::<Vec<_>>().join(",");
    let home = &mut pair.home.connection;
    let told = home.simple(&format!("SELECT onecopy.xact_status('{{{writers}}}')")).await.unwrap();
    let told = told[0][0].clone().unwrap().replace("\"in progress\"", "+").replace("aborted", "-");
    // The order of the statements is 1, 3, 2, 4, 6, 8, 10, 12, 14, 5, 16, 7, 9.
    assert_eq!(told, "{+,+,-,-,-,-,-,-,-,+,-,+,+}", "{captured:?}");
    let left = home.simple("SELECT string_agg(id::text, ' ' ORDER BY id) FROM t").await.unwrap();
    assert_eq!(left, [[Some("1 3 5 7 9".to_owned())]]);
}

#[tokio::test]
async fn what_became_of_transactions_is_told_to_anybody() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE ROLE joe LOGIN").await;
    let home = &mut pair.home.connection;
    let id = |rows: crate::backend::Rows| rows[0][0].clone().unwrap();
    let aborted = id(home.simple("BEGIN; SELECT pg_current_xact_id(); ROLLBACK").await.unwrap());
    let committed = id(home.simple("BEGIN; SELECT pg_current_xact_id(); COMMIT").await.unwrap());
    let own = id(home.simple("BEGIN; SET ROLE joe; SELECT pg_current_xact_id()").await.unwrap());
    // The ids are one of the future, one of another epoch, a negative one, and none.
    let ids = format!("{own},{aborted},999999999,{},-1,NULL,0,{committed}", (1_u64 << 32) + 5);
    let found = home.simple(&format!("SELECT onecopy.xact_status('{{{ids}}}')")).await.unwrap();
    assert_eq!(id(found), "{\"in progress\",aborted,?,?,?,?,?,committed}");
    assert_eq!(id(home.simple("SELECT onecopy.xact_status('{}')").await.unwrap()), "{}");
    // The transaction has not suffered from the question.
    assert_eq!(id(home.simple("SELECT pg_current_xact_id(); COMMIT").await.unwrap()), own);
}

#[tokio::test]
async fn a_replica_that_differs_is_reported() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let insert = pair.home.write("INSERT INTO t SELECT g, g FROM generate_series(1, 5) g").await;
    pair.second.must_apply(vec![insert]).await;
    let token = capture::apply_token(CLUSTER);
    let options = format!("-c session_replication_role=replica -c {}={token}", capture::VIA_SETTING);
    let mut vandal = pair.servers[1].connect(&options).await;
    vandal.simple("DELETE FROM t WHERE id = 3").await.unwrap();

    let harmless = pair.home.write("UPDATE t SET v = 0 WHERE id = 1").await;
    let bad = pair.home.write("UPDATE t SET v = 0 WHERE id = 3").await;
    let after = pair.home.write("UPDATE t SET v = 0 WHERE id = 4").await;
    let version = bad.header().last;
    match pair.second.apply(vec![Arc::clone(&harmless), bad, after]).await {
        AgentEvent::Diverged { version: found, cause, reason } => {
            assert_eq!((found, cause), (version, DivergenceCause::Rows));
            assert!(reason.contains("0 rows instead of 1"), "{reason}");
        }
        other => panic!("not diverged but {other:?}"),
    }
    // No row of the batch is visible, since it may have to be seen as a whole.
    let rows = vandal.simple("SELECT id FROM t WHERE v = 0").await.unwrap();
    assert!(rows.is_empty(), "{rows:?}");
    pair.second.must_apply(vec![harmless]).await;

    let unknown = {
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
        builder.push_truncate(DatabaseId::FIRST.table(99)).unwrap();
        pair.home.record(builder)
    };
    assert!(matches!(pair.second.apply(vec![unknown]).await, AgentEvent::Diverged { .. }));
}

#[tokio::test]
async fn only_backends_that_rest_with_state_outlive_a_term() {
    let server = Server::start();
    let mut connections = Vec::new();
    for _ in 0..3 {
        connections.push(server.connect("").await);
    }
    let [rests, works, unknown] = connections.as_mut_slice() else { panic!("three connections") };
    rests.simple("CREATE TEMPORARY TABLE own AS SELECT 7").await.unwrap();
    works.simple("CREATE TEMPORARY TABLE own AS SELECT 8").await.unwrap();
    works.simple("BEGIN; CREATE TABLE late (v int)").await.unwrap();
    let (here, elsewhere) = (ReplicaId(1), ReplicaId(0));
    let all = Arc::new(HeldBackends::of(1, DEADLINE));
    let told = [(here, rests.process.pid), (here, works.process.pid), (elsewhere, unknown.process.pid)];
    all.tell(CrewId(1), told);
    let held = Some(HeldAt { replica: here, all });
    let mut agent = Running::start_with(&server, Duration::from_mins(1), held).await;
    assert_eq!(agent.spared, [rests.process.pid]);
    assert_eq!(rests.simple("SELECT * FROM own").await.unwrap(), [[Some("7".to_owned())]]);
    works.simple("COMMIT").await.expect_err("it had a transaction of the former term");
    unknown.simple("SELECT 1").await.expect_err("no node has told of it");
    // What is lost within a term has no successor that may use what was left.
    let command = Command::Reset { incarnation: agent.incarnation };
    agent.commands.send(command).await.unwrap();
    while !matches!(agent.event().await, AgentEvent::Down { .. }) {}
    agent.up().await;
    assert_eq!(agent.spared, Vec::<i32>::new());
    rests.simple("SELECT 1").await.expect_err("the connections are others");
}

#[tokio::test]
async fn a_lock_in_the_way_is_cleared() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let insert = pair.home.write("INSERT INTO t VALUES (1, 1)").await;
    pair.second.must_apply(vec![insert]).await;
    let mut idle = pair.servers[1].connect("").await;
    idle.simple("BEGIN; SELECT * FROM t FOR UPDATE").await.unwrap();
    let mut busy = pair.servers[1].connect("").await;
    busy.simple("BEGIN; LOCK TABLE t IN SHARE MODE").await.unwrap();
    let sleeping = tokio::spawn(async move { busy.simple("SELECT pg_sleep(600)").await });
    let mut onlooker = pair.servers[1].connect("").await;
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    let deadline = tokio::time::Instant::now() + DEADLINE;
    while onlooker.simple(sleeps).await.unwrap()[0][0].as_deref() == Some("0") {
        assert!(tokio::time::Instant::now() < deadline, "it does not begin");
    }
    let update = pair.home.write("UPDATE t SET v = 2").await;
    pair.second.must_apply(vec![update]).await;
    let error = sleeping.await.unwrap().expect_err("it was in the way");
    assert_eq!(error.sqlstate(), Some(&b"57014"[..]));
    idle.simple("SELECT 1").await.expect_err("its backend is gone");
    // A session of another node may have been there, so its node was asked first, and told before its work was ended.
    let Running { asked_about, evicted, .. } = &pair.second;
    assert!(
        evicted.len() >= 2 && evicted.iter().all(|pid| asked_about.contains(pid)),
        "{asked_about:?} {evicted:?}"
    );
    pair.assert_identical().await;
}

#[tokio::test]
async fn what_is_there_already_does_not_keep_the_rest_of_its_batch_away() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    let mut batch = Vec::new();
    for id in 1..=3 {
        batch.push(pair.home.write(&format!("INSERT INTO t VALUES ({id})")).await);
    }
    pair.second.must_apply(vec![Arc::clone(&batch[1])]).await;
    pair.second.must_apply(batch).await;
    let mut session = pair.servers[1].connect("").await;
    assert_eq!(session.simple("SELECT count(*) FROM t").await.unwrap(), [[Some("3".to_owned())]]);
}

/// Users' code in an index runs in the applier, too.
#[tokio::test]
async fn a_lock_that_the_code_of_an_index_released_is_taken_again() {
    let mut pair = Pair::start().await;
    pair.second.events.close();
    pair.second = Running::start_within(&pair.servers[1], Duration::from_secs(8)).await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    let careless = "CREATE FUNCTION careless(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS \
                    $$ BEGIN PERFORM pg_advisory_unlock_all(); RETURN $1; END $$";
    pair.ddl(careless).await;
    pair.ddl("CREATE INDEX ON t (careless(id))").await;
    let insert = pair.home.write("INSERT INTO t VALUES (1)").await;
    pair.second.must_apply(vec![insert]).await;
    let lost = pair.second.incarnation;
    match pair.second.event().await {
        AgentEvent::Down { incarnation, reason } => {
            assert!(incarnation == lost && reason.contains("lock"), "{reason}");
        }
        other => panic!("not down but {other:?}"),
    }
    pair.second.up().await;
    let mut session = pair.servers[1].connect("").await;
    assert_eq!(session.simple(&pair.second.proof_sql).await.unwrap().len(), 1);
    pair.assert_identical().await;
}

#[tokio::test]
async fn a_crash_is_survived_and_shows_in_the_proof() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id serial PRIMARY KEY, v int)").await;
    let insert = pair.home.write("INSERT INTO t (v) SELECT generate_series(1, 50)").await;
    pair.second.must_apply(vec![Arc::clone(&insert)]).await;
    let (incarnation, proof) = (pair.second.incarnation, pair.second.proof_sql.clone());
    let mut session = pair.servers[1].connect("").await;
    assert_eq!(session.simple(&proof).await.unwrap().len(), 1);

    let junk = Identity { epoch: Epoch(7), n: 7, nonce: Nonce(7) };
    session.simple("INSERT INTO onecopy.applied VALUES (7, 7, 7, 7)").await.unwrap();
    let maintain = Command::Maintain {
        incarnation,
        applied: insert.header().last,
        stands_at: None,
        forget: vec![junk],
        marks: Vec::new(),
    };
    pair.second.commands.send(maintain).await.unwrap();
    assert!(
        matches!(pair.second.event().await, AgentEvent::Durable { upto } if upto == insert.header().last)
    );

    pair.servers[1].crash();
    assert!(matches!(pair.second.event().await, AgentEvent::Down { incarnation: i, .. } if i == incarnation));
    pair.second.up().await;
    let identities: std::collections::BTreeSet<_> = pair.second.applied.iter().copied().collect();
    assert!(identities.contains(&insert.header().identity));
    assert!(!identities.contains(&junk));
    let mut session = pair.servers[1].connect("").await;
    assert_eq!(session.simple(&proof).await.unwrap().len(), 0);
    assert_eq!(session.simple(&pair.second.proof_sql).await.unwrap().len(), 1);

    // Commands for former connections are dropped. A reset ends the present ones.
    let stale = Command::Reset { incarnation };
    pair.second.commands.send(stale).await.unwrap();
    let reset = Command::Reset { incarnation: pair.second.incarnation };
    pair.second.commands.send(reset).await.unwrap();
    assert!(matches!(pair.second.event().await, AgentEvent::Down { incarnation: i, .. } if i != incarnation));
    pair.second.up().await;
    session.simple("SELECT 1").await.expect_err("the fence ended it");
    pair.assert_identical().await;
}

#[tokio::test]
async fn the_catalogue_is_read() {
    let mut pair = Pair::start().await;
    for sql in SCHEMA {
        pair.ddl(sql).await;
    }
    pair.ddl("CREATE VIEW seen AS SELECT 1").await;
    pair.ddl("ALTER TABLE twice ADD CONSTRAINT late UNIQUE (k, id) DEFERRABLE").await;
    let load = Command::LoadCatalogue { incarnation: pair.second.incarnation, generation: 42 };
    pair.second.commands.send(load).await.unwrap();
    let AgentEvent::Catalogue { catalogue } = pair.second.event().await else { panic!("no catalogue") };
    assert_eq!(catalogue.generation(), 42);
    let table = |name: &str| {
        let mut found = catalogue.tables().filter(|table| table.name == name);
        (found.next().unwrap_or_else(|| panic!("{name}")), found.next().is_none())
    };
    let (accounts, alone) = table("accounts");
    assert!(alone);
    assert_eq!((accounts.schema.as_str(), accounts.primary_key.as_slice()), ("public", &[0][..]));
    assert!(
        accounts.user_triggers && !accounts.other_unique && !accounts.foreign_keys && !accounts.user_types
    );
    assert!(table("twice").0.other_unique);
    assert!(
        table("parent").0.foreign_keys && table("child").0.foreign_keys && !table("parent").0.user_triggers
    );
    let wide = table("wide").0;
    assert!(wide.user_types && wide.columns[0].identity_always && wide.columns[10].generated);
    assert!(table("parts_low").0.foreign_keys);
    let parents: Vec<_> =
        catalogue.parents().map(|parent| (parent.name.as_str(), parent.leaves.len())).collect();
    assert_eq!(parents, [("old_root", 1), ("parts", 2), ("pointing", 1)]);
    let relation = |name: &str| catalogue.named(Some("public"), name).collect::<Vec<_>>();
    assert!(matches!(relation("seen")[..], [sql::Relation::View(view)] if !view.materialized));
    assert_eq!(relation("wide_id_seq"), [sql::Relation::Other]);
    assert_eq!(catalogue.named(Some("onecopy"), "applied").collect::<Vec<_>>(), [sql::Relation::Other]);
    assert!(catalogue.is_user_function("bump") && !catalogue.is_user_function("now"));
    assert_eq!(catalogue.builtin_volatility("now"), Some(sql::Volatility::Stable));
    assert_eq!(catalogue.builtin_volatility("random"), Some(sql::Volatility::Volatile));
    assert!(catalogue.is_user_type("mood") && catalogue.has_deferrable() && !catalogue.has_user_casts());
}

/// A cast that runs no code (as `citext` has to `text`) makes no difference for the rest of the database.
#[tokio::test]
async fn casts_count_that_run_code() {
    let mut pair = Pair::start().await;
    let mut has_user_casts = async |sqls: &[&str]| {
        for sql in sqls {
            pair.ddl(sql).await;
        }
        let load = Command::LoadCatalogue { incarnation: pair.second.incarnation, generation: 42 };
        pair.second.commands.send(load).await.unwrap();
        let AgentEvent::Catalogue { catalogue } = pair.second.event().await else { panic!("no catalogue") };
        catalogue.has_user_casts()
    };
    let as_bytes = [
        "CREATE TYPE shade",
        "CREATE FUNCTION shade_in(cstring) RETURNS shade LANGUAGE internal IMMUTABLE STRICT AS 'textin'",
        "CREATE FUNCTION shade_out(shade) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout'",
        "CREATE TYPE shade (INPUT = shade_in, OUTPUT = shade_out, LIKE = text)",
        "CREATE CAST (shade AS text) WITHOUT FUNCTION AS IMPLICIT",
    ];
    assert!(!has_user_casts(&as_bytes).await);
    let by_code = [
        "CREATE FUNCTION shade_length(shade) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT length($1::text)'",
        "CREATE CAST (shade AS int) WITH FUNCTION shade_length(shade) AS IMPLICIT",
    ];
    assert!(has_user_casts(&by_code).await);
}

/// Reading the catalogue locks the objects that it reads, in an order of its own. A schema change must not become the
/// victim of a deadlock with that.
#[tokio::test]
async fn reading_the_catalogue_gives_way_to_schema_changes() {
    let mut pair = Pair::start().await;
    for name in ["one", "two", "three"] {
        pair.ddl(&format!("CREATE VIEW {name} AS SELECT 1")).await;
    }
    let mut changer = pair.servers[1].connect("").await;
    changer
        .simple(
            "BEGIN READ WRITE; SET LOCAL deadlock_timeout = '200ms'; LOCK TABLE two IN ACCESS EXCLUSIVE MODE",
        )
        .await
        .unwrap();
    let load = Command::LoadCatalogue { incarnation: pair.second.incarnation, generation: 1 };
    pair.second.commands.send(load).await.unwrap();
    // Long enough for the reader to have locked one of the others, and to wait.
    tokio::time::sleep(Duration::from_millis(100)).await;
    changer.simple("LOCK TABLE one, three IN ACCESS EXCLUSIVE MODE; COMMIT").await.expect("it has way");
    assert!(matches!(pair.second.event().await, AgentEvent::Catalogue { .. }));
}
