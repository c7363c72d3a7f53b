//! Promise: under C-JDBC a table is held where it was placed (RAIDb-0, RAIDb-2). Statements run at holders only, those that no
//! replica can run are refused by name, and a holder that returns gets what it missed and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, rows, run, table, value};
use tokio::time::sleep;
use tokio_postgres::Client;

/// Nothing takes longer.
const LONG: Duration = Duration::from_secs(30);

const SCHEMA: &str = "CREATE TABLE item (id int PRIMARY KEY, name text); \
    CREATE TABLE sale (id serial PRIMARY KEY, item int REFERENCES item, n int); \
    CREATE TABLE note (id int PRIMARY KEY)";

async fn started(level: &str, respond: &str) -> Cluster {
    let words = ["--protocol", "c-jdbc", "--transaction-level", level, "--early-response", respond];
    let cluster = Cluster::start_as(4, &[], &words).await;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    run(&client, "INSERT INTO item SELECT i, 'a' FROM generate_series(1, 9) i").await;
    run(&client, "INSERT INTO sale (item, n) VALUES (1, 1), (2, 2)").await;
    cluster.caught_up().await;
    cluster
}

async fn refused(client: &Client, sql: &str) -> String {
    let error = client.simple_query(sql).await.map(drop).expect_err(sql);
    let error = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
    assert!(error.hint().is_some(), "{sql}: {error} has no hint");
    format!("{} {}", error.code().code(), error.message())
}

async fn place(cluster: &Cluster, command: &str) {
    run(&cluster.try_client("onecopy").await.unwrap(), command).await;
}

/// What each replica's own server says.
async fn each(cluster: &Cluster, sql: &str) -> Vec<String> {
    let mut values = Vec::new();
    for replica in cluster.caught_up().await {
        values.push(value(&cluster.direct(&replica).await, sql).await);
    }
    values
}

#[tokio::test]
async fn raidb_2_holders_get_the_writes_and_a_lost_one_returns() {
    let mut cluster = started("optimistic", "all").await;
    place(&cluster, "PLACE TABLE item, sale ON replica-1, replica-2").await;
    place(&cluster, "PLACE TABLE note ON replica-2, replica-3, replica-4").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    let shown = table(&admin, "SHOW PLACEMENT").await;
    assert!(shown.contains(&vec!["(every table)".to_owned(), "replica-2".to_owned()]), "{shown:?}");
    assert!(
        shown.contains(&vec!["\"public\".\"item\"".to_owned(), "replica-1, replica-2".to_owned()]),
        "{shown:?}"
    );
    assert_eq!(each(&cluster, "SELECT count(*) FROM item").await, ["9", "9", "0", "0"]);
    let client = cluster.client().await;
    run(&client, "INSERT INTO sale (item, n) VALUES (3, 3)").await;
    run(&client, "BEGIN; UPDATE item SET name = 'b'; INSERT INTO note VALUES (1); COMMIT").await;
    assert_eq!(value(&client, "SELECT max(id) FROM sale").await, "3");
    assert_eq!(value(&client, "SELECT count(*) FROM sale, note").await, "3", "replica-2 has both");
    assert_eq!(value(&client, "SELECT nextval('sale_id_seq')").await, "4");
    assert_eq!(each(&cluster, "SELECT count(*) FROM sale").await, ["3", "3", "0", "0"]);
    assert_eq!(each(&cluster, "SELECT count(*) FROM note").await, ["0", "1", "1", "1"]);
    for (sql, names) in [
        ("INSERT INTO note SELECT id FROM item", "note"),
        ("ALTER TABLE item ADD COLUMN more int", "item"),
        ("ANALYZE", "item"),
    ] {
        let said = refused(&client, sql).await;
        assert!(said.starts_with("55000") && said.contains(names), "{sql}: {said}");
    }
    assert!(refused(&admin, "REBUILD REPLICA replica-3").await.starts_with("55000"));
    assert!(refused(&admin, "PLACE TABLE item BY id").await.starts_with("0A000"));
    cluster.verify().await;
    // Holders of one or the other are lost under writes.
    let replicas = cluster.replicas().await;
    for (round, lost) in [0, 2, 1].into_iter().enumerate() {
        cluster.kill_server(&replicas[lost], true);
        for n in 0..20 {
            let id = 100 + 20 * round + n;
            run(&client, &format!("INSERT INTO item VALUES ({id}, 'c')")).await;
            run(&client, &format!("BEGIN; INSERT INTO sale (item, n) VALUES ({id}, 1); INSERT INTO note VALUES ({id}); COMMIT")).await;
        }
        cluster.caught_up().await;
    }
    assert_eq!(each(&cluster, "SELECT count(*) FROM item").await, ["69", "69", "0", "0"]);
    assert_eq!(each(&cluster, "SELECT count(*) FROM note").await, ["0", "61", "61", "61"]);
    cluster.verify().await;
    // A crash between a change and the deletion leaves rows. They go when the replica returns.
    let left = cluster.direct(&replicas[3]).await;
    run(&left, "SET synchronous_commit = on; INSERT INTO item VALUES (1000, 'left')").await;
    drop((client, admin, left));
    cluster.kill_everything().await;
    cluster.up_again().await;
    assert_eq!(each(&cluster, "SELECT count(*) FROM item").await, ["69", "69", "0", "0"]);
    cluster.verify().await;
    // The way back brings the rows and the state of the sequence.
    place(&cluster, "PLACE TABLE item, sale, note EVERYWHERE").await;
    let client = cluster.client().await;
    run(&client, "ALTER TABLE item ADD COLUMN more int").await;
    run(&client, "INSERT INTO sale (item, n) VALUES (4, 4)").await;
    assert_eq!(each(&cluster, "SELECT count(*) FROM item").await, ["69"; 4]);
    assert_eq!(each(&cluster, "SELECT max(id) FROM sale").await, ["65"; 4]);
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn raidb_0_each_table_has_one_holder() {
    let mut cluster = started("pessimistic", "first").await;
    place(&cluster, "PLACE TABLE item, sale ON replica-1").await;
    place(&cluster, "PLACE TABLE note ON replica-2").await;
    let client = cluster.client().await;
    run(&client, "INSERT INTO note VALUES (1); INSERT INTO sale (item, n) VALUES (1, 3)").await;
    for sql in [
        "SELECT * FROM item, note",
        "INSERT INTO note SELECT id FROM item",
        "SELECT * FROM note JOIN sale ON note.id = sale.id FOR UPDATE",
    ] {
        let said = refused(&client, sql).await;
        assert!(said.starts_with("55000") && said.contains("\"note\""), "{sql}: {said}");
    }
    run(&client, "BEGIN; SELECT * FROM item; INSERT INTO note VALUES (2); COMMIT").await;
    // The only holder is lost: nothing is answered wrongly, and what it holds is there again when it returns.
    let replicas = cluster.caught_up().await;
    cluster.kill_server(&replicas[1], true);
    let deadline = Instant::now() + LONG;
    let rows = loop {
        match client.query_one("SELECT count(*) FROM note", &[]).await {
            Ok(row) => break row.get::<_, i64>(0),
            Err(error) => {
                assert_eq!(error.code().unwrap().code(), "40001", "{error}");
                assert!(Instant::now() < deadline, "it does not return: {}", cluster.printed());
            }
        }
        sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(rows, 2);
    assert_eq!(each(&cluster, "SELECT count(*) FROM sale").await, ["3", "0", "0", "0"]);
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn tables_that_need_each_other_are_placed_together() {
    let mut cluster = started("optimistic", "all").await;
    let client = cluster.client().await;
    run(&client, "CREATE SEQUENCE shared; CREATE TABLE one (id bigint PRIMARY KEY DEFAULT nextval('shared'), n int); CREATE TABLE other (id bigint PRIMARY KEY DEFAULT nextval('shared'), n int)").await;
    run(&client, "CREATE TABLE split (id int, n int) PARTITION BY RANGE (id); CREATE TABLE low PARTITION OF split FOR VALUES FROM (0) TO (10); CREATE TABLE high PARTITION OF split FOR VALUES FROM (10) TO (20)").await;
    run(&client, "INSERT INTO low VALUES (1, 1); INSERT INTO high VALUES (11, 1)").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    for (sql, names) in [
        ("PLACE TABLE item ON replica-1", "\"sale\""),
        ("PLACE TABLE sale ON replica-1", "\"item\""),
        ("PLACE TABLE one ON replica-1", "\"shared\""),
    ] {
        let said = refused(&admin, sql).await;
        assert!(said.starts_with("0A000") && said.contains(names), "{sql}: {said}");
    }
    for (sql, state) in [
        ("PLACE TABLE none ON replica-1", "42P01"),
        ("PLACE TABLE item, sale ON replica-9", "42704"),
        ("PLACE PARTS 8 COPIES 1", "0A000"),
    ] {
        assert!(refused(&admin, sql).await.starts_with(state), "{sql}");
    }
    assert_eq!(table(&admin, "SHOW PLACEMENT").await.len(), 2, "nothing has changed");
    place(&cluster, "PLACE TABLE one, other ON replica-1").await;
    place(&cluster, "PLACE TABLE split ON replica-3").await;
    run(&client, "INSERT INTO one (n) VALUES (1); INSERT INTO other (n) VALUES (1)").await;
    run(&client, "INSERT INTO low VALUES (2, 2); INSERT INTO high VALUES (12, 2)").await;
    assert_eq!(value(&client, "SELECT sum(n) FROM split").await, "6");
    assert_eq!(each(&cluster, "SELECT count(*) FROM split").await, ["0", "0", "4", "0"]);
    assert_eq!(
        each(&cluster, "SELECT sum(id) FROM (SELECT id FROM one UNION ALL SELECT id FROM other) x").await[0],
        "3"
    );
    cluster.verify().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_replica_for_which_the_log_had_nothing_returns_after_it_was_trimmed() {
    let mut cluster = started("optimistic", "all").await;
    place(&cluster, "PLACE TABLE item, sale ON replica-1, replica-2").await;
    let (client, admin) = (cluster.client().await, cluster.try_client("onecopy").await.unwrap());
    let replicas = cluster.caught_up().await;
    let (deadline, text) = (Instant::now() + 4 * LONG, "x".repeat(2_000_000));
    while first_in_log(&admin).await <= replicas[3].applied + 1 {
        assert!(Instant::now() < deadline, "the log is never trimmed");
        client.execute("UPDATE item SET name = $1 WHERE id = 1", &[&text]).await.unwrap();
    }
    cluster.crash_server(&replicas[3]).await;
    run(&client, "UPDATE item SET name = 'b'; INSERT INTO note VALUES (7)").await;
    cluster.caught_up().await;
    assert_eq!(each(&cluster, "SELECT count(*) FROM note").await, ["1"; 4]);
    cluster.verify().await;
    cluster.stop().await;
}

/// A replica deletes, when it returns, what it does not hold yet. So a placement that it was lost in does not count on its rows.
#[tokio::test]
async fn a_new_holder_is_lost_after_it_got_the_rows() {
    let mut cluster = started("optimistic", "all").await;
    place(&cluster, "PLACE TABLE note ON replica-1").await;
    let client = cluster.client().await;
    run(&client, "INSERT INTO note SELECT i FROM generate_series(1, 600000) i").await;
    let replicas = cluster.caught_up().await;
    let (admin, second) = (cluster.try_client("onecopy").await.unwrap(), cluster.direct(&replicas[1]).await);
    let lost = async {
        while value(&second, "SELECT count(*) FROM note").await == "0" {
            sleep(Duration::from_millis(5)).await;
        }
        cluster.crash_server(&replicas[1]).await;
    };
    let (placed, ()) = tokio::join!(admin.simple_query("PLACE TABLE note EVERYWHERE"), lost);
    let rows = each(&cluster, "SELECT count(*) FROM note").await;
    match placed {
        // It was lost too late to matter.
        Ok(_) => assert_eq!(rows, ["600000"; 4]),
        Err(error) => {
            let error = error.as_db_error().unwrap();
            assert_eq!(error.code().code(), "55000", "{error}");
            assert_eq!(rows, ["600000", "0", "0", "0"], "{error}");
        }
    }
    cluster.verify().await;
    place(&cluster, "PLACE TABLE note EVERYWHERE").await;
    assert_eq!(each(&cluster, "SELECT count(*) FROM note").await, ["600000"; 4]);
    cluster.stop().await;
}

/// A placement that cannot be written down does not count: a start would not know it.
#[tokio::test]
async fn a_placement_that_cannot_be_written_is_none() {
    let mut cluster = started("optimistic", "all").await;
    let client = cluster.client().await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    run(&client, "INSERT INTO note VALUES (1)").await;
    // The file is made under this name.
    let unfinished = cluster.data().join("log/placement.new");
    std::fs::create_dir(&unfinished).unwrap();
    let said = refused(&admin, "PLACE TABLE note ON replica-1").await;
    assert!(said.starts_with("55000") && said.contains("cannot be written"), "{said}");
    run(&client, "INSERT INTO note VALUES (2)").await;
    assert_eq!(each(&cluster, "SELECT count(*) FROM note").await, ["2"; 4]);
    std::fs::remove_dir(&unfinished).unwrap();
    place(&cluster, "PLACE TABLE note ON replica-1").await;
    assert_eq!(each(&cluster, "SELECT count(*) FROM note").await, ["2", "0", "0", "0"]);
    cluster.verify().await;
    cluster.stop().await;
}

/// The first version that the log has.
async fn first_in_log(admin: &Client) -> u64 {
    rows(admin, "SHOW LOG").await[0]["first_version"].parse().unwrap()
}

#[tokio::test]
async fn pass_through_does_not_place() {
    let words = ["--protocol", "c-jdbc", "--transaction-level", "pass-through"];
    let mut cluster = Cluster::start_as(2, &[], &words).await;
    run(&cluster.client().await, "CREATE TABLE note (id int PRIMARY KEY)").await;
    let admin = cluster.try_client("onecopy").await.unwrap();
    assert!(refused(&admin, "PLACE TABLE note ON replica-1").await.starts_with("0A000"));
    cluster.stop().await;
}
