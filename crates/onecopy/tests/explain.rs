//! Promise: EXPLAIN (ROUTING) and `onecopy explain`, with a cluster or with a schema, say the same of a statement.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::path::Path;
use std::process::Output;

use cluster::{Cluster, folder::Folder, programs, run, table, value};

const SCHEMA: &str = "
create table author (a_id int primary key, a_name varchar(40) not null);
create table item (i_id int primary key, i_title text unique, i_stock int default 0, i_a_id int references author);
create table visits (id bigserial primary key, at timestamptz default now(), who text, cost numeric(10,2));
create table readings (sensor int, at date, value float8, primary key (sensor, at)) partition by range (at);
create table readings_old partition of readings for values from (minvalue) to ('2025-01-01');
create table readings_new partition of readings default;
create view titles as select i_id, i_title from item;
create function twice(int) returns int language sql immutable as 'select $1 * 2';
";

const STATEMENTS: [&str; 12] = [
    "SELECT i_title FROM item WHERE i_id = 5",
    "SELECT i_title, a_name FROM item JOIN author ON a_id = i_a_id WHERE i_id = $1",
    "SELECT * FROM titles WHERE i_id IN (1, 2)",
    "SELECT value FROM readings WHERE sensor = 1 AND at = '2025-06-01'",
    "UPDATE item SET i_stock = i_stock - 1 WHERE i_id = 5",
    "UPDATE item SET i_title = now()::text WHERE i_a_id = $2",
    "INSERT INTO visits (who) VALUES ('x'), ('y')",
    "INSERT INTO visits (who, cost) SELECT a_name, sum(value) FROM author, readings GROUP BY a_name",
    "DELETE FROM author WHERE a_id = 3",
    "SELECT twice(i_stock) FROM item",
    "SELECT relname FROM pg_class",
    "MERGE INTO item USING visits ON i_id = id WHEN MATCHED THEN DELETE",
];

async fn onecopy(arguments: &[&str]) -> Output {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_onecopy"));
    command.arg("explain").args(arguments).kill_on_drop(true).output().await.unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", err(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn written(folder: &Folder, name: &str, text: &str) -> String {
    let file = folder.path().join(name);
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_schema_is_enough() {
    let folder = Folder::new("explain");
    let schema = written(&folder, "schema.sql", SCHEMA);
    let told = out(&onecopy(&["--schema", &schema, STATEMENTS[4]]).await);
    for line in [
        "template    UPDATE item SET i_stock = i_stock - ? WHERE i_id = ?",
        "class       key: it conflicts with what touches the same rows",
        "runs        at any replica: where what it conflicts with runs, or ran last, else by load",
        "as text     the same on every replica",
    ] {
        assert!(told.lines().any(|found| found == line), "{line}\n{told}");
    }

    let wrong = onecopy(&["--schema", &schema, "SELECT i_id\nFORM item WHERE"]).await;
    assert!(!wrong.status.success());
    assert!(err(&wrong).contains("syntax error at or near"), "{}", err(&wrong));
    assert!(err(&wrong).contains("\nLINE 2: FORM item WHERE\n"), "{}", err(&wrong));

    let odd = written(&folder, "odd.sql", &format!("{SCHEMA}\nDROP TABLE visits;\n"));
    let told = onecopy(&["--schema", &odd, "SELECT 1"]).await;
    let line = SCHEMA.lines().count() + 2;
    assert!(
        err(&told)
            .contains(&format!("odd.sql:{line}: not understood, this kind of statement: DROP TABLE visits"))
    );
    assert!(out(&told).contains("at any replica"));

    let broken = written(&folder, "broken.sql", "CREATE TABLE (");
    let told = onecopy(&["--schema", &broken, "SELECT 1"]).await;
    assert!(!told.status.success() && err(&told).contains("broken.sql: syntax error"), "{}", err(&told));
    let told = onecopy(&["--schema", "/nowhere.sql", "SELECT 1"]).await;
    assert!(!told.status.success() && err(&told).contains("cannot read /nowhere.sql"), "{}", err(&told));
}

#[tokio::test]
async fn a_cluster_tells_the_same() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    run(&client, SCHEMA).await;
    through_both_protocols(&cluster).await;
    the_command_line_asks_the_cluster(&cluster).await;
    a_dump_says_what_the_server_says(&cluster).await;
    no_aggregate_of_the_server_is_taken_for_harmless(&cluster).await;
    types_have_the_numbers_of_the_server(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

async fn explained(cluster: &Cluster, statement: &str) -> Vec<String> {
    let client = cluster.client().await;
    let rows = table(&client, &format!("EXPLAIN (ROUTING) {statement}")).await;
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

async fn through_both_protocols(cluster: &Cluster) {
    let client = cluster.client().await;
    let simple = explained(cluster, STATEMENTS[1]).await;
    let extended = client.query(&format!("EXPLAIN (ROUTING) {}", STATEMENTS[1]), &[]).await.unwrap();
    assert_eq!(extended[0].columns()[0].name(), "ROUTING");
    let extended: Vec<String> = extended.iter().map(|row| row.get(0)).collect();
    assert_eq!(simple, extended);
    assert!(simple.iter().any(|line| line.contains("i_id = $1")), "{simple:?}");

    // Nothing is executed, and a transaction is not disturbed.
    run(&client, "begin").await;
    let lines =
        client.simple_query("EXPLAIN (ROUTING, COSTS off) INSERT INTO author VALUES (1, 'x')").await.unwrap();
    assert!(lines.len() > 3);
    run(&client, "commit").await;
    assert_eq!(table(&client, "select count(*) from author").await, [["0"]]);
    // A table that was made just now is known, although statements are still analysed by the catalogue of before.
    for number in 0..5 {
        run(&client, &format!("create table made_{number} (k int primary key)")).await;
        let lines = table(&client, &format!("EXPLAIN (ROUTING) SELECT * FROM made_{number} WHERE k = 1"))
            .await
            .concat();
        assert!(lines.iter().any(|l| l.starts_with(&format!("reads       made_{number} "))), "{lines:?}");
        run(&client, &format!("drop table made_{number}")).await;
    }
    let error = client.simple_query("EXPLAIN (ROUTING) SELECT FROM WHERE").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.position().is_some()), ("42601", true), "the server's own words");
}

async fn the_command_line_asks_the_cluster(cluster: &Cluster) {
    let port = cluster.port.to_string();
    let told = out(&onecopy(&["--port", &port, STATEMENTS[4]]).await);
    assert_eq!(told.lines().collect::<Vec<_>>(), explained(cluster, STATEMENTS[4]).await);
    let wrong = onecopy(&["--port", &port, "SELECT * FORM item"]).await;
    assert!(!wrong.status.success());
    assert!(err(&wrong).contains("LINE 1: SELECT * FORM item\n                 ^"), "{}", err(&wrong));
    let nobody = onecopy(&["--port", &cluster::folder::free_port().to_string(), "SELECT 1"]).await;
    assert!(!nobody.status.success() && err(&nobody).contains("--schema"), "{}", err(&nobody));
}

/// The reader of DDL, by the catalogue of a real server.
async fn a_dump_says_what_the_server_says(cluster: &Cluster) {
    let dump = dump(cluster).await;
    let folder = Folder::new("dump");
    let schema = written(&folder, "dump.sql", &dump);
    let has_merge = value(&cluster.client().await, "show server_version_num").await.as_str() >= "150000";
    for statement in STATEMENTS.into_iter().filter(|text| has_merge || !text.starts_with("MERGE")) {
        let by_schema = onecopy(&["--schema", &schema, statement]).await;
        assert_eq!(err(&by_schema), "", "{statement}");
        let mut by_schema: Vec<String> = out(&by_schema).lines().map(str::to_owned).collect();
        let mut by_cluster = explained(cluster, statement).await;
        // Only the cluster has statistics of its clients.
        by_cluster.retain(|line| !line.starts_with("profile ") && !line.starts_with("expected "));
        // Tables are told in the order in which they were made known.
        by_schema.sort();
        by_cluster.sort();
        let words = |lines: &[String]| -> Vec<String> {
            let sorted = |line: &String| {
                let mut words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
                words.sort_unstable();
                words.join(" ")
            };
            lines.iter().map(sorted).collect()
        };
        assert_eq!(words(&by_schema), words(&by_cluster), "{statement}");
    }
}

async fn dump(cluster: &Cluster) -> String {
    let port = cluster.port.to_string();
    let mut command = tokio::process::Command::new(programs::program("pg_dump"));
    let arguments = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-s", "-n", "public", "postgres"];
    let output = command.args(arguments).kill_on_drop(true).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Our own triggers are no part of the user's schema.
    text.lines().filter(|line| !line.contains("!onecopy")).collect::<Vec<_>>().join("\n")
}

/// The lists of aggregates and window functions are of one version of PostgreSQL; a server may have more.
async fn no_aggregate_of_the_server_is_taken_for_harmless(cluster: &Cluster) {
    const UNORDERED: [&str; 13] = [
        "bit_and",
        "bit_or",
        "bit_xor",
        "bool_and",
        "bool_or",
        "count",
        "cume_dist",
        "dense_rank",
        "every",
        "percent_rank",
        "rank",
        "regr_count",
        "range_intersect_agg",
    ];
    let client = cluster.client().await;
    let names = table(
        &client,
        "select distinct proname from pg_proc where prokind in ('a', 'w') and pronamespace = 'pg_catalog'::regnamespace",
    )
    .await;
    assert!(names.len() > 50);
    let catalogue = sql::Schema::from_ddl(SCHEMA).unwrap().catalogue();
    for name in names.iter().map(|row| row[0].as_str()).filter(|name| !UNORDERED.contains(name)) {
        for call in [format!("{name}(value)"), format!("{name}(value) over (order by value)")] {
            // The server would refuse most of these calls for the types of their arguments.
            let text = format!("INSERT INTO visits (id, at, who) SELECT 1, null, {call} FROM readings");
            let lines = sql::explain(&text, true, &catalogue, true).unwrap();
            assert!(!lines.iter().any(|line| line.starts_with("as text")), "{call}: {lines:?}");
        }
    }
}

async fn types_have_the_numbers_of_the_server(cluster: &Cluster) {
    let client = cluster.client().await;
    let types = table(
        &client,
        "select typname, oid, typarray from pg_type where typtype in ('b', 'r') and typcategory <> 'A' and
         typnamespace = 'pg_catalog'::regnamespace and typname !~ '^(pg_|reg|_)' and typarray <> 0",
    )
    .await;
    let mut known = 0;
    for row in types {
        let ddl = format!("CREATE TABLE x (a pg_catalog.\"{0}\", b pg_catalog.\"{0}\"[])", row[0]);
        let schema = sql::Schema::from_ddl(&ddl).unwrap();
        let columns = &schema.contents.tables[0].columns;
        if columns[0].type_oid < 16_384 {
            known += 1;
            assert_eq!(
                [columns[0].type_oid.to_string(), columns[1].type_oid.to_string()],
                [&row[1][..], &row[2]]
            );
        }
    }
    assert!(known >= 40, "{known}");
}

#[test]
fn schemas_of_the_workloads_are_understood() {
    let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testbed/workloads");
    for name in ["tpcc", "tpcw", "rubis", "rubbos"] {
        let text = std::fs::read_to_string(workloads.join(name).join("schema.sql")).unwrap();
        assert_eq!(sql::Schema::from_ddl(&text).unwrap().left_out, [], "{name}");
    }
}
