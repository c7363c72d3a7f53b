//! The statements that the guards inside a server reject, and that no client slips past capture.

use cluster::record::RecordBuilder;

use super::{CLUSTER, Home, Pair};
use crate::capture;
use crate::capture::{Captured, Decoder};
use cluster::ids::DatabaseId;

#[tokio::test]
async fn what_comes_past_onecopy_is_refused() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    pair.ddl("CREATE ROLE joe LOGIN").await;
    pair.ddl("GRANT ALL ON t TO joe").await;
    pair.ddl("GRANT CREATE ON SCHEMA public TO joe").await;
    let mut stranger =
        Home { connection: pair.servers[0].connect("").await, decoder: Decoder::default(), next: 1 };
    for sql in ["INSERT INTO t VALUES (1)", "TRUNCATE t"] {
        assert_eq!(stranger.refused(sql).await, "25006", "{sql}");
    }
    for sql in [
        "CREATE TABLE u (a int)",
        "DO $$ BEGIN CREATE TABLE u (a int); END $$",
        "ALTER TABLE t DISABLE TRIGGER ALL",
        "DROP TRIGGER \"!onecopy\" ON t",
        "DROP TABLE t",
        "GRANT SELECT ON t TO PUBLIC",
    ] {
        assert_eq!(stranger.refused(sql).await, "0A000", "{sql}");
        assert_eq!(pair.home.refused(sql).await, "0A000", "{sql}");
    }
    stranger.connection.simple("CREATE TEMP TABLE own (a serial); DROP TABLE own").await.unwrap();

    // A role without privileges can neither use our functions nor look at the applied set.
    let joe = &mut pair.home;
    joe.connection.simple("SET SESSION AUTHORIZATION joe").await.unwrap();
    for sql in [
        "CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION onecopy_capture.cap('9')",
        "SELECT onecopy_capture.obstacles('{}')",
        "SELECT * FROM onecopy.applied",
        "DELETE FROM onecopy.applied",
        "SELECT * FROM onecopy.cluster",
    ] {
        assert_eq!(joe.refused(sql).await, "42501", "{sql}");
    }
    joe.connection.simple("INSERT INTO onecopy.applied VALUES (1, 2, 3, 4)").await.unwrap();

    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let forged = "DO $$ BEGIN RAISE INFO '1|I|5|\\x00000000' USING ERRCODE = 'OC001'; END $$";
    assert_eq!(joe.run(forged, &mut builder).await, [Captured::NotOurs]);
    assert!(builder.is_empty());
}

#[tokio::test]
async fn tables_that_cannot_be_replicated_are_refused() {
    let mut pair = Pair::start().await;
    for sql in [
        "CREATE UNLOGGED TABLE u (a int)",
        "CREATE TYPE pair AS (a int, b regclass[]); CREATE TABLE u (p pair)",
        "CREATE TABLE u (a regclass)",
    ] {
        pair.home.install_refused(sql).await;
    }
}

#[tokio::test]
async fn definitions_that_depend_on_object_ids_are_refused() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN tone AS mood; CREATE TYPE pair AS (a int, m mood)").await;
    pair.ddl("CREATE TYPE moods AS RANGE (subtype = mood); CREATE TABLE t (k int, m mood, v text, n int[])")
        .await;
    for sql in [
        "CREATE TABLE u (m mood) PARTITION BY HASH (m)",
        "CREATE TABLE u (k int, m tone) PARTITION BY HASH (k, m)",
        "CREATE TABLE u (m mood[]) PARTITION BY HASH (m)",
        "CREATE TABLE u (m pair) PARTITION BY HASH (m)",
        "CREATE TABLE u (m moods) PARTITION BY HASH (m)",
        "CREATE TABLE u (m aclitem) PARTITION BY HASH (m)",
        "CREATE TABLE u (m mood, k int) PARTITION BY HASH ((m::mood))",
        "CREATE TABLE u (m mood, k int) PARTITION BY HASH (k, (ARRAY[m]))",
        "CREATE TABLE u (m mood) PARTITION BY LIST ((hashenum(m)))",
        "CREATE TABLE u (m mood, h int GENERATED ALWAYS AS (hashenum(m)) STORED)",
        "CREATE TABLE u (k int, h bigint GENERATED ALWAYS AS (tableoid::bigint) STORED)",
        "CREATE TABLE u (k int, h bigint GENERATED ALWAYS AS ('t'::regclass::oid::bigint) STORED)",
        "CREATE TABLE u (k int, h boolean GENERATED ALWAYS AS (k::oid = ANY ('{t}'::regclass[])) STORED)",
        "CREATE TABLE u (k int, h bigint GENERATED ALWAYS AS ('english'::regconfig::oid::bigint) STORED)",
        "CREATE TABLE u (k int, h bytea GENERATED ALWAYS AS (regconfigsend('english')) STORED)",
        "ALTER TABLE t ADD h boolean GENERATED ALWAYS AS (record_image_lt(ROW(m, 1), ROW('ok'::mood, 1))) STORED",
        "CREATE INDEX ON t (hash_array(ARRAY[m]))",
        "CREATE UNIQUE INDEX ON t (k) WHERE hashenumextended(m, 7) > 0",
        "CREATE INDEX ON t (hash_record(t))",
    ] {
        pair.home.install_refused(sql).await;
    }
    for sql in [
        "CREATE FUNCTION own(mood, bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS \
         $$ SELECT CASE $1 WHEN 'sad' THEN 1 ELSE 2 END + $2 $$; \
         CREATE OPERATOR CLASS own FOR TYPE mood USING hash AS OPERATOR 1 = (anyenum, anyenum), FUNCTION 2 own(mood, bigint); \
         CREATE TABLE u1 (m mood) PARTITION BY HASH (m own); CREATE TABLE u2 (m mood) PARTITION BY LIST (m)",
        "CREATE TABLE u3 (k int, n int[], r int4range) PARTITION BY HASH (k, n, r, (n || 1)); CREATE INDEX ON t (m) WHERE m > 'sad'",
        "CREATE INDEX ON t USING gin (to_tsvector('english', v)); CREATE INDEX ON t (hash_array(n)); CREATE INDEX ON t (ts_lexize('simple', v))",
        "CREATE TABLE u4 (v text, d regtype[] DEFAULT NULL); ALTER TABLE u4 DROP d; \
         ALTER TABLE u4 ADD s tsvector GENERATED ALWAYS AS (to_tsvector('simple', v)) STORED",
    ] {
        pair.ddl(sql).await;
    }
    // A CHECK holds where a row is written. It is not held against rows that are there.
    pair.ddl("CREATE TABLE checked (m mood, CHECK (hashenum(m) <> 0 OR tableoid > 0))").await;
    let record = pair.home.write("INSERT INTO checked VALUES ('ok')").await;
    pair.second.must_apply(vec![record]).await;
    pair.home.set_ddl().await;
    for sql in [
        "ALTER TABLE checked ADD CHECK (hashenum(m) <> 0)",
        "ALTER TABLE checked ADD CHECK (tableoid <> 't'::regclass)",
    ] {
        assert_eq!(pair.home.refused(sql).await, "0A000", "{sql}");
        pair.home.connection.simple("ROLLBACK").await.unwrap();
    }
    // When a server is adopted all definitions count. Later only new ones do, as those of an earlier release are there.
    let home = &mut pair.home.connection;
    home.simple("CREATE TABLE old (m mood) PARTITION BY HASH (m); DELETE FROM onecopy_capture.form")
        .await
        .unwrap();
    home.simple(capture::INSTALL_TABLES_SQL).await.unwrap();
    assert_eq!(pair.home.refused(capture::UPDATE_TABLES_SQL).await, "0A000");
}

#[tokio::test]
async fn what_depends_on_a_temporary_object_is_refused() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    let home = &mut pair.home.connection;
    // Each kind of thing that a temporary table can bring along must pass for temporary itself.
    home.simple(
        "CREATE TEMP TABLE own (a serial PRIMARY KEY, b text DEFAULT 'x' CHECK (b <> ''), c int REFERENCES own); \
         CREATE TEMP VIEW seen AS SELECT * FROM own; CREATE RULE quiet AS ON DELETE TO own DO INSTEAD NOTHING; \
         CREATE INDEX ON own (b); CREATE STATISTICS pg_temp.related ON a, b FROM own; \
         CREATE POLICY few ON own USING (a > 0); CREATE TEMP TABLE heir () INHERITS (own); \
         CREATE TYPE pg_temp.mood AS ENUM ('ok'); CREATE DOMAIN pg_temp.small AS int CHECK (VALUE < 9); \
         CREATE FUNCTION pg_temp.f(own) RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TEMP SEQUENCE counting; \
         CREATE TRIGGER own BEFORE UPDATE ON own FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    )
    .await
    .unwrap_or_else(|error| panic!("{error}"));
    pair.ddl("CREATE TABLE u (id int); CREATE VIEW v AS SELECT id FROM u; DROP TABLE u CASCADE").await;
    // The body of a function is only text, and may name another table for each caller.
    pair.ddl("CREATE FUNCTION counted() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM own'").await;
    pair.home.set_ddl().await;
    for sql in [
        "CREATE FUNCTION ft(own) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE FUNCTION ft() RETURNS SETOF own LANGUAGE plpgsql AS 'BEGIN END'",
        "CREATE FUNCTION ft() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM own; END",
        "CREATE TABLE u (o own[])",
        "CREATE TABLE u (id int DEFAULT nextval('counting'))",
        "ALTER TABLE t ADD COLUMN m pg_temp.mood",
        "CREATE TYPE p AS (m pg_temp.mood)",
        "CREATE DOMAIN d AS pg_temp.small",
        "CREATE CAST (own AS int) WITH FUNCTION pg_temp.f(own)",
        "CREATE RULE r AS ON INSERT TO t DO ALSO DELETE FROM own",
        "CREATE POLICY p ON t USING (id IN (SELECT a FROM own))",
    ] {
        assert_eq!(pair.home.refused(sql).await, "0A000", "{sql}");
    }
}

#[tokio::test]
async fn what_would_fire_at_refresh_is_refused() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE p (id int) PARTITION BY LIST (id)").await;
    pair.ddl(
        "CREATE TRIGGER own BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger(); \
         CREATE RULE own AS ON DELETE TO t DO ALSO NOTHING; \
         CREATE FUNCTION noop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER own AFTER TRUNCATE ON p EXECUTE FUNCTION noop(); \
         CREATE FUNCTION hear() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END'; \
         CREATE EVENT TRIGGER own ON ddl_command_end EXECUTE FUNCTION hear()",
    )
    .await;
    for object in
        ["TABLE t ENABLE % TRIGGER own", "TABLE t ENABLE % RULE own", "TABLE p ENABLE % TRIGGER own"]
    {
        for how in ["ALWAYS", "REPLICA"] {
            pair.home.install_refused(&format!("ALTER {}", object.replace('%', how))).await;
        }
    }
    for how in ["ALWAYS", "REPLICA"] {
        pair.home.install_refused(&format!("ALTER EVENT TRIGGER own ENABLE {how}")).await;
    }
    pair.ddl("ALTER TABLE t DISABLE TRIGGER own; ALTER TABLE t ENABLE TRIGGER own").await;
}

#[tokio::test]
async fn capture_cannot_be_switched_off() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    pair.ddl(
        "CREATE FUNCTION quietly(id int) RETURNS void LANGUAGE sql SET session_replication_role = replica \
         AS 'INSERT INTO public.t VALUES (id)'",
    )
    .await;
    for sql in [
        "DO $$ BEGIN SET LOCAL session_replication_role = replica; INSERT INTO t VALUES (1); END $$",
        "SELECT quietly(2)",
        "SET session_replication_role = replica; INSERT INTO t VALUES (3), (4); RESET session_replication_role",
        "DO $$ BEGIN SET LOCAL session_replication_role = replica; TRUNCATE t; INSERT INTO t VALUES (5); END $$",
        // In the middle of a statement.
        "INSERT INTO t SELECT 10 + g FROM generate_series(1, 2) g \
         WHERE set_config('session_replication_role', CASE g WHEN 2 THEN 'replica' ELSE 'origin' END, true) <> ''",
        "BEGIN; SET LOCAL session_replication_role = replica; INSERT INTO t SELECT 20 + g FROM generate_series(1, 2) g \
         WHERE set_config('session_replication_role', CASE g WHEN 2 THEN 'origin' ELSE 'replica' END, true) <> ''; COMMIT",
    ] {
        let record = pair.home.write(sql).await;
        pair.second.must_apply(vec![record]).await;
        pair.assert_identical().await;
    }
    // The applier's token does not help a role that may not set the other setting.
    pair.ddl("CREATE ROLE joe; GRANT ALL ON t TO joe; GRANT ALL ON SCHEMA public TO joe").await;
    let (via, token) = (capture::VIA_SETTING, capture::apply_token(CLUSTER));
    let mut forger = pair.servers[0].connect(&format!("-c {via}={token}")).await;
    forger.simple("SET SESSION AUTHORIZATION joe").await.unwrap();
    for (sql, state) in [
        ("INSERT INTO t VALUES (6)", &b"25006"[..]),
        ("TRUNCATE t", b"25006"),
        ("CREATE TABLE u (id int)", b"0A000"),
    ] {
        assert_eq!(forger.simple(sql).await.expect_err(sql).sqlstate(), Some(state), "{sql}");
    }
}

#[tokio::test]
async fn inserts_are_told_at_once_where_nothing_changes_them_first() {
    let mut pair = Pair::start().await;
    pair.ddl(
        "CREATE TABLE t (id int PRIMARY KEY, v text, gone int, d int GENERATED ALWAYS AS (id * 2) STORED)",
    )
    .await;
    pair.ddl("ALTER TABLE t DROP COLUMN gone, ADD COLUMN \"!new\" int DEFAULT 7").await;
    let messages = async |pair: &mut Pair, sql: &str| {
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
        let captured = pair.home.run(sql, &mut builder).await;
        let record = pair.home.record(builder);
        pair.second.must_apply(vec![record]).await;
        pair.assert_identical().await;
        captured.len()
    };
    let rows =
        |from: u32| format!("INSERT INTO t SELECT g, 'x' FROM generate_series({from}, {}) g", from + 9);
    assert_eq!(messages(&mut pair, &rows(0)).await, 1);
    // A message has bounded length, and as many rows as fit.
    let wide = "INSERT INTO t SELECT g, repeat('x', 3000) FROM generate_series(100, 108) g";
    assert_eq!(messages(&mut pair, wide).await, 3);
    let both = "INSERT INTO t VALUES (1, 'y'), (50, 'z') ON CONFLICT (id) DO UPDATE SET v = 'again'";
    assert_eq!(messages(&mut pair, both).await, 2);
    assert_eq!(
        messages(&mut pair, "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING; UPDATE t SET v = 'u'").await,
        20
    );

    pair.ddl(
        "CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN UPDATE t SET v = v || '!' WHERE id = NEW.id; RETURN NULL; END $$; \
         CREATE TRIGGER again AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION again()",
    )
    .await;
    assert_eq!(messages(&mut pair, &rows(200)).await, 20);
    pair.ddl("DROP TRIGGER again ON t").await;
    assert_eq!(messages(&mut pair, &rows(300)).await, 1);
    pair.ddl("CREATE TABLE p (LIKE t INCLUDING GENERATED) PARTITION BY RANGE (id)").await;
    pair.ddl("ALTER TABLE p ATTACH PARTITION t DEFAULT").await;
    assert_eq!(messages(&mut pair, &rows(400).replace("INTO t", "INTO p")).await, 10);
}

#[tokio::test]
async fn our_triggers_stay_as_they_are() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE ROLE joe; CREATE TABLE t (id int PRIMARY KEY)").await;
    pair.ddl("ALTER TABLE t OWNER TO joe; GRANT ALL ON SCHEMA public TO joe").await;
    pair.ddl("CREATE ROLE jim; GRANT SELECT ON t TO jim").await;
    let tampering = [
        "ALTER TABLE t DISABLE TRIGGER ALL",
        "ALTER TABLE t DISABLE TRIGGER \"!onecopy\"",
        "ALTER TABLE t ENABLE REPLICA TRIGGER \"!onecopy_truncate\"",
        "DROP TRIGGER \"!onecopy\" ON t",
        "DROP TRIGGER \"!onecopy_insert\" ON t",
        "ALTER TABLE t ENABLE TRIGGER \"!onecopy_insert\"",
        "ALTER TRIGGER \"!onecopy\" ON t RENAME TO other",
        "ALTER TABLE t RENAME TO u",
        "DROP OWNED BY joe",
        "REVOKE SELECT ON t FROM jim",
    ];
    for role in ["joe", "postgres"] {
        pair.home.connection.simple(&format!("SET SESSION AUTHORIZATION {role}")).await.unwrap();
        for sql in tampering {
            for way in ["", "SET LOCAL session_replication_role = replica; "] {
                if role == "joe" && !way.is_empty() {
                    continue;
                }
                let inside = format!("DO $$ BEGIN {way}{sql}; END $$");
                assert_eq!(pair.home.refused(&inside).await, "0A000", "{role}: {inside}");
            }
        }
    }
    // Such a statement does no harm as a schema change of its own: our triggers are put right.
    for sql in &tampering[..6] {
        pair.ddl(sql).await;
        let record = pair.home.write("TRUNCATE t; INSERT INTO t VALUES (1)").await;
        pair.second.must_apply(vec![record]).await;
        pair.assert_identical().await;
    }
    // This only takes privileges away, and names no object for it.
    assert_eq!(pair.home.refused("DO $$ BEGIN DROP OWNED BY jim; END $$").await, "0A000");
    for sql in [
        "ALTER TRIGGER \"!onecopy\" ON t RENAME TO other",
        "CREATE TRIGGER again AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION onecopy_capture.cap('9')",
        "DROP TRIGGER \"!onecopy\" ON t; CREATE TRIGGER \"!onecopy\" AFTER INSERT ON t FOR EACH ROW \
         EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ] {
        pair.home.install_refused(sql).await;
    }
}
