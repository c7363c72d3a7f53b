//! Sequences on real servers: their numbers, the ones that a session has touched, their moves, and the draws from them.

use cluster::ids::{DatabaseId, ReplicaId};
use cluster::parts::sequences::State;
use cluster::record::{RecordBuilder, Sequence};
use sql::Draws;

use super::{AgentEvent, CLUSTER, Command, Connection, Pair};
use crate::capture;
use crate::capture::sequences::{load_draws, load_marks, states};

const NUMBERS: &str = "SELECT id, relation::regclass, caches FROM onecopy_capture.sequences ORDER BY id";

async fn text(connection: &mut Connection, sql: &str) -> String {
    let rows = connection.simple(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let lines = rows.into_iter().map(|row| {
        let values = row.into_iter().map(|value| value.unwrap_or_else(|| "NULL".to_owned()));
        values.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("; ")
}

async fn touched(connection: &mut Connection, ids: &str) -> Vec<State> {
    states(&text(connection, &format!("SELECT onecopy.sequences({ids})")).await, DatabaseId::FIRST).unwrap()
}

fn brief(states: &[State]) -> Vec<(u32, i64, bool)> {
    states.iter().map(|state| (state.id.number, state.value, state.called)).collect()
}

#[tokio::test]
async fn numbers_are_the_same_everywhere_and_last() {
    let mut pair = Pair::start().await;
    for sql in [
        "CREATE TABLE b (id serial PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY)",
        "CREATE SCHEMA s1; CREATE SEQUENCE s1.one; CREATE SEQUENCE gone",
        "ALTER SCHEMA s1 RENAME TO s2",
        "ALTER SEQUENCE s2.one RENAME TO \"T wo\"",
        "DROP SEQUENCE gone",
        "CREATE SEQUENCE gone CACHE 5",
    ] {
        pair.ddl(sql).await;
    }
    // The sequences of one statement are numbered in the order of schema and name. A dropped sequence takes its number
    // along.
    let expected = "1 b_id_seq f; 2 b_n_seq f; 4 s2.\"T wo\" f; 5 gone t";
    for server in &pair.servers {
        let mut connection = server.connect("-c search_path=public").await;
        assert_eq!(text(&mut connection, NUMBERS).await, expected);
    }
    let mut session = pair.servers[0].connect("").await;
    session.simple("CREATE TEMP SEQUENCE mine; SELECT nextval('mine')").await.unwrap();
    assert_eq!(touched(&mut session, "NULL").await, []);
}

#[tokio::test]
async fn a_session_is_told_what_it_has_touched() {
    let mut pair = Pair::start().await;
    for sql in [
        "CREATE SEQUENCE a; CREATE SEQUENCE b CACHE 10; CREATE SEQUENCE c INCREMENT -3; CREATE SEQUENCE d",
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, v int)",
        "CREATE ROLE joe LOGIN; GRANT INSERT ON t TO joe",
        "CREATE FUNCTION undone() RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS \
         $$ DECLARE v bigint; BEGIN v := nextval('d'); RAISE 'no'; EXCEPTION WHEN raise_exception THEN RETURN v; END $$",
    ] {
        pair.ddl(sql).await;
    }
    let options = capture::vouch::own_option(CLUSTER);
    let mut home = pair.servers[0].connect(&options).await;
    let home = &mut home;
    home.simple("BEGIN; SELECT nextval('a'); SAVEPOINT x; SELECT nextval('c'); ROLLBACK TO x").await.unwrap();
    let found = touched(home, "NULL").await;
    assert_eq!(brief(&found), [(1, 1, true), (3, -1, true)]);
    assert_eq!((found[1].increment, found[1].max, found[1].start, found[1].cycles), (-3, -1, -1, false));
    assert_eq!(brief(&touched(home, "'{3,4,99}'").await), [(3, -1, true)]);
    home.simple(
        "COMMIT; BEGIN; SELECT setval('a', 50, false); SET ROLE joe; INSERT INTO t (v) VALUES (1), (2)",
    )
    .await
    .unwrap();
    let found = brief(&touched(home, "NULL").await);
    // Sequences that were touched a moment before may still be among them.
    assert!(found.contains(&(1, 50, false)) && found.contains(&(5, 2, true)), "{found:?}");
    home.simple("RESET ROLE; TRUNCATE t RESTART IDENTITY").await.unwrap();
    assert_eq!(brief(&touched(home, "'{5}'").await), [(5, 1, false)]);
    home.simple("ROLLBACK").await.unwrap();

    // The value of a cache is not read, and the transaction that filled it was undone.
    let cached = &mut pair.servers[0].connect("").await;
    cached.simple("BEGIN; SELECT nextval('b'); ROLLBACK; SELECT pg_sleep(1.2)").await.unwrap();
    cached.simple("BEGIN; SELECT nextval('b')").await.unwrap();
    assert_eq!(brief(&touched(cached, "NULL").await), [(2, 10, true)]);
    cached.simple("COMMIT; BEGIN; SELECT undone()").await.unwrap();
    assert!(brief(&touched(cached, "NULL").await).contains(&(4, 1, true)));
    cached.simple("COMMIT; SET track_counts = off; BEGIN; SELECT nextval('a')").await.unwrap();
    assert!(brief(&touched(cached, "NULL").await).iter().any(|state| state.0 == 1));
}

#[tokio::test]
async fn marks_move_sequences_and_are_kept() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE SEQUENCE a MAXVALUE 5000; CREATE SEQUENCE b INCREMENT -1").await;
    let mark = |id: u32, generation, value, called| Sequence {
        id: DatabaseId::FIRST.sequence(id),
        holder: ReplicaId(0),
        generation,
        value,
        called,
        descends: id == 2,
    };
    let mut other = pair.servers[1].connect("").await;
    for (mark, a, b) in [
        (mark(1, 0, 1001, true), "1001 t", "-1 f"),
        (mark(1, 0, 500, true), "1001 t", "-1 f"),
        (mark(1, 1, 7, false), "7 f", "-1 f"),
        (mark(1, 0, 2000, true), "7 f", "-1 f"),
        (mark(1, 1, 7, true), "7 t", "-1 f"),
        (mark(1, 1, 9000, true), "5000 t", "-1 f"),
        (mark(2, 3, -40, true), "5000 t", "-40 t"),
        (mark(2, 3, -39, true), "5000 t", "-40 t"),
        (mark(2, 3, -41, true), "5000 t", "-41 t"),
    ] {
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
        builder.push_sequence(&mark).unwrap();
        let record = pair.home.record(builder);
        pair.second.must_apply(vec![record]).await;
        assert_eq!(text(&mut other, "SELECT last_value, is_called FROM a").await, a, "{mark:?}");
        assert_eq!(text(&mut other, "SELECT last_value, is_called FROM b").await, b, "{mark:?}");
    }
    let mut superuser = pair.servers[1].own("").await;
    assert_eq!(
        load_marks(&mut superuser, DatabaseId::FIRST).await.unwrap(),
        [mark(1, 1, 9000, true), mark(2, 3, -41, true)]
    );
    // The home is told the marks that it already knows. Its sequences do not move by that.
    let applied = cluster::ids::Version(99);
    let marks = vec![mark(1, 2, 3, true), mark(1, 1, 9999, true)];
    let maintain = Command::Maintain {
        incarnation: pair.second.incarnation,
        applied,
        stands_at: None,
        forget: Vec::new(),
        marks,
    };
    pair.second.commands.send(maintain).await.unwrap();
    assert!(matches!(pair.second.event().await, AgentEvent::Durable { .. }));
    assert_eq!(load_marks(&mut superuser, DatabaseId::FIRST).await.unwrap()[0], mark(1, 2, 3, true));
    assert_eq!(text(&mut other, "SELECT last_value, is_called FROM a").await, "5000 t");

    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_sequence(&mark(77, 0, 1, true)).unwrap();
    let unknown = pair.home.record(builder);
    assert!(matches!(pair.second.apply(vec![unknown]).await, AgentEvent::Diverged { .. }));
}

#[tokio::test]
async fn what_draws_is_known() {
    let mut pair = Pair::start().await;
    for sql in [
        "CREATE SEQUENCE a; CREATE SEQUENCE b",
        "CREATE TABLE plain (v int DEFAULT 7)",
        "CREATE TABLE two (id serial, n int GENERATED BY DEFAULT AS IDENTITY)",
        "CREATE TABLE late (v int DEFAULT nextval('a'::text::regclass))",
        "CREATE TABLE prefixed (v text DEFAULT 'x' || nextval('a'))",
        "CREATE TABLE checked (v int CHECK (v < nextval('a')))",
        "CREATE TABLE whole (id int DEFAULT nextval('b'), k int) PARTITION BY LIST (k)",
        "CREATE TABLE part (id int, k int); ALTER TABLE whole ATTACH PARTITION part DEFAULT",
        "CREATE TABLE root (id int DEFAULT nextval('a')); CREATE TABLE leaf () INHERITS (root)",
        "ALTER TABLE leaf ALTER id SET DEFAULT nextval('b')",
    ] {
        pair.ddl(sql).await;
    }
    let load = Command::LoadCatalogue { incarnation: pair.second.incarnation, generation: 1 };
    pair.second.commands.send(load).await.unwrap();
    let AgentEvent::Catalogue { catalogue } = pair.second.event().await else { panic!("no catalogue") };
    let draws = |name: &str| {
        let table = catalogue.tables().find(|table| table.name == name).unwrap_or_else(|| panic!("{name}"));
        catalogue.draws(table.id).cloned()
    };
    let from = |ids: &[u32]| {
        Some(Draws::From(ids.iter().copied().map(|number| DatabaseId::FIRST.sequence(number)).collect()))
    };
    assert_eq!(draws("plain"), None);
    assert_eq!(draws("two"), from(&[3, 4]));
    assert_eq!(draws("late"), Some(Draws::FromSome));
    assert_eq!(draws("prefixed"), Some(Draws::FromSome));
    assert_eq!(draws("checked"), Some(Draws::FromSome));
    assert_eq!(draws("part"), from(&[2]));
    assert_eq!(draws("root"), from(&[1]));
    assert_eq!(draws("leaf"), from(&[1, 2]));
    let mut superuser = pair.servers[0].own("").await;
    assert_eq!(load_draws(&mut superuser, DatabaseId::FIRST).await.unwrap().len(), 7);
}
