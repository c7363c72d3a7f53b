//! Promise: a client can neither add rows to the other replicas that were not written, nor hide written rows from them. An
//! attempt gets an error, is logged, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::{Cluster, run, value};
use tokio_postgres::{Client, NoTls};

#[tokio::test]
async fn capture_cannot_be_fooled() {
    let mut cluster = Cluster::start_with(3, &[("ONECOPY_LOG", "warn")]).await;
    let root = cluster.client().await;
    run(
        &root,
        "create role joe login; create role eve login superuser; grant all on schema public to joe;
         create table t (k int primary key, v int); grant all on t to joe; insert into t values (1, 1);
         create function public.cap() returns void language plpgsql as
             $$ begin raise info '1|I|1|\\x00' using errcode = 'OC001'; end $$",
    )
    .await;
    let joe = login(&cluster, "joe").await;
    forged_messages_are_the_clients_own(&joe).await;
    attempts_by_an_ordinary_role_fail(&joe).await;
    the_word_that_lets_schema_changes_pass_is_of_no_use(&joe).await;
    attempts_by_a_superuser_fail(&login(&cluster, "eve").await).await;
    writes_past_the_cluster_fail(&cluster).await;
    a_table_without_its_triggers_is_not_written(&cluster, &root).await;
    junk_identities_are_ignored(&joe).await;
    a_transaction_that_only_locks_is_ordered(&cluster, &root).await;

    assert_eq!(value(&root, "select string_agg(k || ':' || v, ' ' order by k) from t").await, "1:1");
    cluster.verify().await;
    let printed = cluster.printed();
    assert!(printed.contains("is not captured"), "the attempts are logged: {printed}");
    cluster.stop().await;
    cluster.up_again().await;
    cluster.caught_up().await;
    cluster.verify().await;
    cluster.stop().await;
}

/// A client that logs in as another role.
async fn login(cluster: &Cluster, role: &str) -> Client {
    let settings = format!("host=127.0.0.1 port={} user={role} dbname=postgres", cluster.port);
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// The SQLSTATE that a statement fails with; `none` when it does not.
async fn refused(client: &Client, statement: &str) -> String {
    let Err(error) = client.simple_query(statement).await else { return "none".to_owned() };
    let code = error.code().unwrap_or_else(|| panic!("{statement}: {error:?}")).code().to_owned();
    let _ = client.simple_query("rollback").await;
    code
}

async fn forged_messages_are_the_clients_own(joe: &Client) {
    for forged in [
        "do $$ begin raise info '1|I|1|\\x0000000100000017000000040000002a' using errcode = 'OC001'; end $$",
        "set search_path = onecopy_capture, public; select cap()",
        "create function public.\"onecopy_capture.cap\"() returns void language plpgsql as \
         $f$ begin raise info '1|D|1|\\x00' using errcode = 'OC001'; end $f$; \
         select \"onecopy_capture.cap\"()",
    ] {
        run(joe, forged).await;
    }
    run(joe, "reset search_path").await;
    assert_eq!(
        refused(
            joe,
            "create trigger mine after insert on t for each row execute function onecopy_capture.cap()"
        )
        .await,
        "0A000"
    );
}

async fn attempts_by_an_ordinary_role_fail(joe: &Client) {
    run(joe, "create table own (k int primary key); insert into own values (1)").await;
    for (statement, code) in [
        // Capture itself.
        ("alter table own disable trigger all", "0A000"),
        ("drop trigger \"!onecopy\" on own", "0A000"),
        ("do $$ begin alter table own disable trigger all; insert into own values (2); end $$", "0A000"),
        ("do $$ begin drop trigger \"!onecopy\" on own; insert into own values (2); end $$", "0A000"),
        ("do $$ begin drop table own; end $$", "0A000"),
        ("do $$ begin set backtrace_functions = ''; insert into own values (2); end $$", "42501"),
        ("set onecopy.via = 'x'", "0A000"),
        ("set backtrace_functions = ''", "0A000"),
        ("set onecopy.ddl = 'x'", "0A000"),
        ("set session_replication_role = replica", "0A000"),
        ("do $$ begin set session_replication_role = replica; insert into own values (2); end $$", "42501"),
        // Another role.
        ("do $$ begin execute 'set role postgres'; end $$", "42501"),
        ("do $$ begin execute 'set session authorization postgres'; end $$", "42501"),
        // Code that Onecopy does not analyse.
        ("do $$ begin perform lo_create(0); end $$", "0A000"),
        ("select onecopy_capture.cap()", "42501"),
        ("delete from onecopy.applied", "0A000"),
        ("do $$ begin delete from onecopy.applied; end $$", "42501"),
    ] {
        assert_eq!(refused(joe, statement).await, code, "{statement}");
    }
    assert_eq!(value(joe, "select count(*) from own").await, "1");
}

/// Everybody can read the guard's own code, and a function that a schema change calls can read the setting.
async fn the_word_that_lets_schema_changes_pass_is_of_no_use(joe: &Client) {
    let word = "(select substring(prosrc from '''([0-9a-f]{32})''') from pg_proc where proname = 'guard')";
    assert_eq!(value(joe, &format!("select length({word})")).await, "32");
    run(
        joe,
        "create function sly() returns int language plpgsql as $$ begin
             execute 'alter table own disable trigger \"!onecopy\"'; insert into own values (3); return 1; end $$;
         create function sly_sql() returns int language sql as
             $$ alter table own disable trigger \"!onecopy\"; select 1 $$;
         create function \"x\nPL/pgSQL function onecopy.install() line 1 at EXECUTE\"() returns int
             language plpgsql as $$ begin execute 'drop trigger \"!onecopy\" on own'; return 1; end $$;
         create table other (k int); insert into other values (1)",
    )
    .await;
    for statement in [
        &format!(
            "do $$ begin perform set_config('onecopy.ddl', {word}, false);
             alter table own disable trigger \"!onecopy\"; insert into own values (2); end $$"
        ),
        "alter table other add column w int default sly()",
        "alter table other add column w int default sly_sql()",
        "create table made as select sly()",
        "alter table other add column w int default \"x\nPL/pgSQL function onecopy.install() line 1 at EXECUTE\"()",
        "do $$ begin alter table own disable trigger \"!onecopy\"; perform onecopy.install(); end $$",
    ] {
        assert_eq!(refused(joe, statement).await, "0A000", "{statement}");
    }
    run(joe, "insert into own values (4); delete from own where k = 4").await;
    assert_eq!(value(joe, "select count(*) from own").await, "1");
}

async fn attempts_by_a_superuser_fail(eve: &Client) {
    for (statement, code) in [
        ("do $$ begin create role mallory; end $$", "0A000"),
        ("begin; create table beside (v int); do $$ begin create role mallory; end $$; commit", "0A000"),
        ("do $$ begin alter role joe superuser; end $$", "0A000"),
        ("do $$ begin alter role joe set work_mem = '1MB'; end $$", "0A000"),
        ("do $$ begin comment on role joe is 'x'; end $$", "0A000"),
        ("begin; insert into t values (9, 9); do $$ begin grant eve to joe; end $$; commit", "0A000"),
        // Beside role changes that are statements of their own: before, between and after them.
        ("begin; do $$ begin create role mallory; end $$; create role fred; commit", "0A000"),
        ("begin; create role fred; do $$ begin create role mallory; end $$; commit", "0A000"),
        (
            "begin; create role fred; do $$ begin alter role joe superuser; end $$; comment on role fred is 'x'; commit",
            "0A000",
        ),
        ("begin; grant select on t to joe; do $$ begin comment on role joe is 'x'; end $$; commit", "0A000"),
    ] {
        assert_eq!(refused(eve, statement).await, code, "{statement}");
    }
    assert_eq!(
        value(
            eve,
            "select count(*) from pg_roles where rolname = 'mallory' or (rolname = 'joe' and rolsuper)"
        )
        .await,
        "0"
    );
    run(
        eve,
        "begin; create role fred; do $$ begin perform 1; end $$; comment on role fred is 'x'; savepoint s;
         alter role fred createdb; rollback to s; do $$ begin perform 2; end $$; drop role fred; commit",
    )
    .await;
    // The triggers fire whatever this is set to, so the row travels.
    run(eve, "create table seen (v int)").await;
    run(eve, "do $$ begin set local session_replication_role = replica; insert into seen values (1); end $$")
        .await;
}

async fn writes_past_the_cluster_fail(cluster: &Cluster) {
    for replica in cluster.replicas().await {
        let direct = cluster.direct(&replica).await;
        assert_eq!(refused(&direct, "insert into t values (7, 7)").await, "25006");
        run(&direct, "set default_transaction_read_only = off").await;
        for statement in ["insert into t values (7, 7)", "update t set v = 7", "delete from t", "truncate t"]
        {
            assert_eq!(refused(&direct, statement).await, "25006", "{statement}");
        }
        run(&direct, "set session_replication_role = replica").await;
        assert_eq!(refused(&direct, "insert into t values (7, 7)").await, "25006");
        run(&direct, "reset session_replication_role").await;
        assert_eq!(refused(&direct, "alter table t add column w int").await, "0A000");
        assert_eq!(refused(&direct, "create table past (k int)").await, "0A000");
    }
}

/// A superuser at the server itself can do anything; later writes through the cluster are still not lost silently.
async fn a_table_without_its_triggers_is_not_written(cluster: &Cluster, root: &Client) {
    run(root, "create table bare (k int primary key); insert into bare values (1)").await;
    // Elsewhere the table has its triggers.
    run(root, "set onecopy.home = 'anchor'").await;
    let anchor = cluster.caught_up().await.swap_remove(0);
    let direct = cluster.direct(&anchor).await;
    run(
        &direct,
        "set default_transaction_read_only = off; alter event trigger onecopy_ddl disable;
         alter event trigger onecopy_drop disable; alter table bare disable trigger \"!onecopy\", disable trigger \"!onecopy_insert\";
         alter event trigger onecopy_ddl enable always; alter event trigger onecopy_drop enable always",
    )
    .await;
    for statement in [
        "insert into bare values (2)",
        "begin; insert into t values (5, 5); insert into bare values (2); commit",
        "do $$ begin insert into bare values (2); end $$",
        "with w as (insert into bare values (2) returning k) select count(*) from w",
        "explain analyze update bare set k = 2",
    ] {
        assert_eq!(refused(root, statement).await, "0A000", "{statement}");
    }
    assert_eq!(value(root, "select count(*) from bare where k = 1").await, "1");
    run(root, "create table again (k int)").await;
    run(root, "insert into bare values (3)").await;
}

async fn junk_identities_are_ignored(joe: &Client) {
    run(joe, "do $$ begin insert into onecopy.applied values (1, 1, 1, 1), (99, 5, 7, 0); end $$").await;
    run(joe, "begin; do $$ begin insert into onecopy.applied values (1, 2, 1, 2); end $$; insert into own values (5); commit")
        .await;
    run(joe, "delete from own where k = 5").await;
}

async fn a_transaction_that_only_locks_is_ordered(cluster: &Cluster, root: &Client) {
    let version = async || cluster.caught_up().await[0].applied;
    let mut before = version().await;
    for (statements, records) in [
        ("begin; select v from t where k = 1 for update; commit", 1),
        ("select v from t where k = 1 for share", 1),
        ("begin; select v from t where k = 1 for update; rollback", 0),
        ("begin; select v from t where k = 1; commit", 0),
        ("begin; update t set v = 1 where k = 77; commit", 0),
        ("select v from t where k = 77 for update", 0),
    ] {
        run(root, statements).await;
        let after = version().await;
        assert_eq!(after - before, records, "{statements}");
        before = after;
    }
}
