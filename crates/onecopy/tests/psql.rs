//! Promise: a person at psql sees what PostgreSQL would show.
//!
//! Where no difference is allowed, the same script runs on a plain PostgreSQL, and the test compares the outputs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::folder::{self, Folder};
use cluster::plain::Plain;
use cluster::programs::{assert_same, is_new_enough, psql, psql_at_terminal, psql_command, text};
use cluster::{Cluster, run, value};
use rustix::process::Signal;
use std::fmt::Write;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

const SCHEMA: &str = "
create table parent (k int primary key, name text not null);
create table child (k serial primary key, parent int references parent, amount numeric(10,2) default 0, at date);
create index child_at on child (at);
comment on table parent is 'those who have children';
insert into parent select i, 'name ' || i from generate_series(1, 20) i;
insert into child (parent, amount, at) select i, i * 1.5, date '2024-01-01' + i from generate_series(1, 20) i;
create view sums as select parent, sum(amount) from child group by parent;
";

/// Scripts whose output may differ in nothing.
const SAME: [(&str, &str); 15] = [
    ("rows", "select * from parent order by k limit 3; select count(*), sum(amount) from child;"),
    (
        "gdesc",
        "select 1 as a, 'x'::text as b, now() as c, array[1] as d \\gdesc\nselect k, name from parent \\gdesc",
    ),
    (
        "position",
        "select * from parent;\nselect nothing from parent;\nselec 1;\nselect * from nowhere where k = 1;",
    ),
    ("position later", "select 1 \\; select k, nothing from parent \\; select 2;"),
    ("position multibyte", "select 'äöü€' as \"größe\", nothing;"),
    (
        "detail and hint",
        "insert into parent values (1, 'again');\ninsert into child (parent) values (99);\nselect nam from parent;",
    ),
    ("verbose", "\\set VERBOSITY sqlstate\nselect 1/0;\ninsert into parent values (1, 'again');"),
    (
        "transaction",
        "begin;\ninsert into parent values (50, 'x');\nselect nothing;\nselect 1;\ncommit;\nselect count(*) from parent;",
    ),
    (
        "savepoint",
        "begin;\nsavepoint a;\nselect 1/0;\nrollback to a;\ninsert into parent values (51, 'y');\ncommit;\nselect * from parent where k > 49;",
    ),
    (
        "errors in a batch",
        "insert into parent values (60, 'a') \\; insert into parent values (60, 'b');\nselect count(*) from parent where k = 60;",
    ),
    (
        "settings",
        "set search_path = pg_catalog;\nshow search_path;\nreset search_path;\nset datestyle = 'German';\nselect at from child order by k limit 1;\nshow transaction isolation level;",
    ),
    (
        "notices",
        "do $$ begin raise notice 'hello'; end $$;\ndrop table if exists nowhere;\nselect '\\d' as \"a b\" \\gx",
    ),
    (
        "schema changes of all kinds of tables without notices",
        "create table split (k int, v int) partition by list (k);\ncreate table one partition of split for values in (1);\ncreate table two (k int, v int);\nalter table split attach partition two for values in (2);\ncreate table heir () inherits (two);\nalter table split detach partition one;\ndrop table split, one, heir;",
    ),
    (
        "notices of what waits for COMMIT",
        "create function late() returns trigger language plpgsql as $$ begin raise notice 'late %', new.k; return null; end $$;\ncreate table told (k int primary key);\ncreate constraint trigger late after insert on told deferrable initially deferred for each row execute function late();\nbegin;\ninsert into told values (1), (2);\ncommit;\ninsert into told values (3);\ndrop table told;\ndrop function late();",
    ),
    (
        "maintenance of temporary tables",
        "create temp table own as select 1 as k;\nanalyze own;\nvacuum (analyze) own;\nvacuum pg_temp.own;\nselect reltuples from pg_class where oid = 'own'::regclass;",
    ),
];

/// Far less than the interrupted statements would take, far more than an interruption takes.
const WITHIN: Duration = Duration::from_mins(2);

#[tokio::test]
async fn psql_sees_what_postgresql_would_show() {
    let (mut cluster, plain) = (Cluster::start(3).await, Plain::start().await);
    for port in [cluster.port, plain.port] {
        let made = psql(port, SCHEMA).await;
        assert!(made.status.success() && !text(&made).contains("ERROR"), "{}", text(&made));
    }
    assert_same(cluster.port, plain.port, &SAME).await;

    describe(&cluster).await;
    copy(&cluster).await;
    interrupt(&cluster).await;
    interrupt_and_go_on(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// `\d` and its kin. Repeated, so that any replica would have had its turn: OIDs differ between them.
async fn describe(cluster: &Cluster) {
    // An older psql asks for a column that newer servers call otherwise.
    let list = if is_new_enough("psql", "\\l") { "\\l\n" } else { "" };
    let script = format!("\\d parent\n\\d child\n\\dt+\n\\di\n\\dv\n\\ds\n\\df\n\\dn\n\\du\n{list}\\d+ sums");
    for _ in 0..6 {
        let output = text(&psql(cluster.port, &script).await);
        for word in [
            "Table \"public.parent\"",
            "\"parent_pkey\" PRIMARY KEY, btree (k)",
            "nextval('child_k_seq'::regclass)",
            "FOREIGN KEY (parent) REFERENCES parent(k)",
            "those who have children",
            "child_at",
            "child_k_seq",
            "View definition",
        ] {
            assert!(output.contains(word), "no `{word}` in\n{output}");
        }
        assert!(!output.contains("ERROR") && !output.contains("Did not find"), "{output}");
    }
}

async fn copy(cluster: &Cluster) {
    let folder = Folder::new("copy");
    let (from, to) = (folder.path().join("from.csv"), folder.path().join("to.csv"));
    let mut lines = String::new();
    for k in 1000..3000 {
        writeln!(lines, "{k},\"a, \"\"quoted\"\" {k}\"").unwrap();
    }
    std::fs::write(&from, &lines).unwrap();
    let script = format!(
        "\\copy parent from '{}' csv\n\\copy (select * from parent where k >= 1000 order by k) to '{}' csv\n\
         copy parent from stdin;\n4000\tinline\n\\.\ncopy parent to stdout;\n",
        from.display(),
        to.display()
    );
    let output = text(&psql(cluster.port, &script).await);
    assert!(
        output.contains("COPY 2000") && output.contains("COPY 1\n") && output.contains("4000\tinline"),
        "{output}"
    );
    let bare = |text: &str| text.replace('"', "");
    assert_eq!(bare(&std::fs::read_to_string(&to).unwrap()), bare(&lines));
    assert_eq!(
        cluster.everywhere("select count(*) from parent where k between 1000 and 4000").await,
        [["2001"]]
    );

    // A bad line: nothing of that COPY stays, the session goes on.
    let output =
        text(&psql(cluster.port, "copy parent from stdin;\n5000\tgood\nbad\n\\.\nselect 'went on';\n").await);
    assert!(output.contains("ERROR") && output.contains("line 2") && output.contains("went on"), "{output}");
    assert_eq!(cluster.everywhere("select count(*) from parent where k = 5000").await, [["0"]]);
}

/// Ctrl-C during a statement that reads, and during one that writes: it ends soon and leaves no change.
async fn interrupt(cluster: &Cluster) {
    for statement in [
        "select count(*), pg_sleep(600) from parent",
        "insert into parent select 9999, 'never' from pg_sleep(600)",
    ] {
        let child = psql_command(cluster.port).args(["-c", statement]).spawn().unwrap();
        wait_active(cluster, statement).await;
        folder::kill(i32::try_from(child.id().unwrap()).unwrap(), Signal::INT);
        let output = tokio::time::timeout(WITHIN, child.wait_with_output()).await;
        let output = text(&output.unwrap_or_else(|_| panic!("not cancelled: {statement}")).unwrap());
        assert!(output.contains("canceling statement due to user request"), "{output}");
    }
    assert_eq!(cluster.everywhere("select count(*) from parent where k = 9999").await, [["0"]]);
}

/// Ctrl-C at a terminal: the transaction is aborted, the session lives.
async fn interrupt_and_go_on(cluster: &Cluster) {
    const CTRL_C: &[u8] = b"\x03";
    let mut child = psql_at_terminal(cluster.port).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let script = "begin;\ninsert into parent values (7777, 'x');\nselect pg_sleep(601);\n";
    input.write_all(script.as_bytes()).await.unwrap();
    wait_active(cluster, "select pg_sleep(601)").await;
    input.write_all(CTRL_C).await.unwrap();
    wait_idle(cluster, "select pg_sleep(601)").await;
    input.write_all(b"select 1;\nrollback;\nselect 'still here';\n\\q\n").await.unwrap();
    drop(input);
    let output = tokio::time::timeout(WITHIN, child.wait_with_output()).await;
    let output = text(&output.expect("psql goes on and ends").unwrap());
    for word in ["canceling statement due to user request", "current transaction is aborted", "still here"] {
        assert!(output.contains(word), "no `{word}` in {output}");
    }
    let client = cluster.client().await;
    assert_eq!(value(&client, "select count(*) from parent where k = 7777").await, "0");
    run(&client, "insert into parent values (7777, 'y')").await;
}

/// Waits until some server runs the statement.
async fn wait_active(cluster: &Cluster, statement: &str) {
    wait_for_servers(cluster, statement, true).await;
}

/// Waits until no server runs the statement.
async fn wait_idle(cluster: &Cluster, statement: &str) {
    wait_for_servers(cluster, statement, false).await;
}

async fn wait_for_servers(cluster: &Cluster, statement: &str, active: bool) {
    let text = statement.replace('\'', "''");
    let query = format!(
        "select count(*) from pg_stat_activity where state = 'active' and query like '%{text}%' and pid <> pg_backend_pid()"
    );
    let mut servers = Vec::new();
    for replica in cluster.replicas().await {
        servers.push(cluster.direct(&replica).await);
    }
    let deadline = Instant::now() + WITHIN;
    while Instant::now() < deadline {
        let mut found = false;
        for server in &servers {
            found |= value(server, &query).await != "0";
        }
        if found == active {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("`{statement}` should be running: {active}");
}
