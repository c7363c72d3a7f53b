//! State of a connection that the next session must not get from the one before.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_postgres::NoTls;

use crate::cluster::script::{ask, open, within};
use crate::cluster::{Cluster, Replica, folder, run, table, value};
use crate::{WITHIN, pair};

/// A session without a connection for this long counts as waiting.
const IN_LINE_FOR: Duration = Duration::from_secs(1);

/// A cancel request that is on its way to a connection hits nothing of the session that has it next: that one waits. To be
/// on its way for so long, the server does not look at new connections for a while.
pub(crate) async fn no_cancel(cluster: &Cluster) {
    let (former, next) = (open(cluster.port).await, open(cluster.port).await);
    let admin = cluster.try_client("onecopy").await.unwrap();
    let anchor = anchor(cluster).await;
    let beside = cluster.direct(&anchor).await;
    run(&beside, "select pg_advisory_lock(77), pg_advisory_lock(78)").await;
    run(&former, "select pg_advisory_xact_lock(76)").await;
    let locked = ask(&former, "select pg_advisory_xact_lock(77)".to_owned());
    until_waits_for(&beside, "77").await;
    let postmaster = folder::postmaster(&cluster.data().join(&anchor.name)).unwrap();
    folder::kill(postmaster, Signal::STOP);
    former.cancel_token().cancel_query(NoTls).await.unwrap();
    let deadline = Instant::now() + WITHIN;
    while !is_at_the_door(&anchor) {
        assert!(Instant::now() < deadline, "the request is not passed on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(&beside, "select pg_advisory_unlock(77)").await;
    assert_eq!(within(locked).await, "; done 1");
    let waiting = ask(&next, "select pg_advisory_xact_lock(78)".to_owned());
    while !is_in_line(&admin).await && waits_for(&beside, "78").await == 0 {
        assert!(Instant::now() < deadline, "it neither waits for the connection nor runs there");
    }
    let runs = tokio::time::timeout(IN_LINE_FOR, until_waits_for(&beside, "78")).await;
    assert!(runs.is_err(), "it runs where it may be cancelled in place of another session");
    folder::kill(postmaster, Signal::CONT);
    until_waits_for(&beside, "78").await;
    run(&beside, "select pg_advisory_unlock(78)").await;
    assert_eq!(within(waiting).await, "; done 1");
}

/// Whether a server has a connection that it has not accepted yet.
fn is_at_the_door(replica: &Replica) -> bool {
    const CONNECTING: &str = "02";
    let socket = format!("/.s.PGSQL.{}", replica.port);
    let all = std::fs::read_to_string("/proc/net/unix").unwrap();
    let is_it = |line: &str| line.ends_with(&socket) && line.split_whitespace().nth(5) == Some(CONNECTING);
    all.lines().any(is_it)
}

async fn anchor(cluster: &Cluster) -> Replica {
    cluster.replicas().await.into_iter().find(|replica| replica.role == "anchor").unwrap()
}

/// How many wait for an advisory lock at a server.
async fn waits_for(beside: &tokio_postgres::Client, lock: &str) -> usize {
    let asks = format!("select from pg_locks where locktype = 'advisory' and objid = {lock} and not granted");
    table(beside, &asks).await.len()
}

async fn until_waits_for(beside: &tokio_postgres::Client, lock: &str) {
    let deadline = Instant::now() + WITHIN;
    while waits_for(beside, lock).await == 0 {
        assert!(Instant::now() < deadline, "nobody waits for {lock}");
    }
}

/// Whether a session waits for a connection.
async fn is_in_line(admin: &tokio_postgres::Client) -> bool {
    let pools = crate::cluster::rows(admin, "show pools").await;
    pools.iter().any(|pool| pool["database"] == "postgres" && pool["cl_waiting"] != "0")
}

/// The same text means something else under other settings, also where the server would not find out by itself: values
/// are read when a statement is prepared.
pub(crate) async fn no_meaning(cluster: &Cluster) {
    let (german, other) = pair(cluster).await;
    run(&german, "set datestyle = 'SQL, DMY'").await;
    let month = "select k, extract(month from '01/02/2003'::date)::int4 from t where k = $1";
    let (of_german, of_other) = (german.prepare(month).await.unwrap(), other.prepare(month).await.unwrap());
    // More often than there are replicas, so both have been where the other one was.
    for _ in 0..4 {
        for (client, statement, said) in [(&german, &of_german, 2), (&other, &of_other, 1)] {
            let row = client.query_one(statement, &[&1]).await.unwrap();
            assert_eq!(row.get::<_, i32>(1), said);
        }
    }
    // Nor is a statement of one known to have other columns for the other one.
    run(&german, "create table a.wide (k int, v int); create table wide (k int)").await;
    run(&german, "insert into a.wide values (1, 2); insert into wide values (1)").await;
    run(&german, "set search_path = a").await;
    let (of_a, of_public) = (
        german.prepare("select * from wide").await.unwrap(),
        other.prepare("select * from wide").await.unwrap(),
    );
    for _ in 0..4 {
        assert_eq!(german.query_one(&of_a, &[]).await.unwrap().len(), 2);
        assert_eq!(other.query_one(&of_public, &[]).await.unwrap().len(), 1);
    }
    run(&german, "drop table a.wide, public.wide").await;
}

/// Code cannot pass something else for the insert that says which transactions a server has.
pub(crate) async fn no_forged_statement(cluster: &Cluster) {
    let (forger, other) = pair(cluster).await;
    let beside = cluster.direct(&anchor(cluster).await).await;
    // By these inserts the statement is prepared there when the code comes, in the same transaction or in one before it.
    for forges in
        [&format!("begin; {INSERT}; {FORGES}; commit"), &format!("begin; {FORGES}; commit; {INSERT}")]
    {
        for _ in 0..2 {
            let before = known(&beside).await;
            run(&forger, &format!("begin; {INSERT}; commit")).await;
            until_knows_more(&beside, before, &other).await;
        }
        let before = known(&beside).await;
        run(&forger, forges).await;
        run(&forger, "discard all").await;
        until_knows_more(&beside, before, &other).await;
    }
}

const INSERT: &str = "insert into s (v) values (1)";

/// It prepares something else under the names of our own statements.
const FORGES: &str = r#"
do $$ declare known text; begin
    for known in select name from pg_prepared_statements where name like 'onecopy applied%' loop
        execute format('deallocate %I', known);
    end loop;
    execute 'prepare "onecopy applied" (int4, int8, int8, int8) as select pg_current_wal_insert_lsn()';
    execute 'prepare "onecopy applied, drawn" (int4, int8, int8, int8, int4[]) as '
        || 'select pg_current_wal_insert_lsn(), onecopy.sequences($5)';
end $$"#;

/// The last transaction that a server knows that it has.
async fn known(beside: &tokio_postgres::Client) -> u64 {
    let noted = "select max(n) from onecopy.applied where epoch = (select max(epoch) from onecopy.applied)";
    value(beside, noted).await.parse().unwrap()
}

/// A transaction is told before it is committed there.
async fn until_knows_more(beside: &tokio_postgres::Client, before: u64, other: &tokio_postgres::Client) {
    let deadline = Instant::now() + WITHIN;
    while known(beside).await <= before {
        assert!(Instant::now() < deadline, "the home does not know that it has the transaction");
        run(other, "select 1").await;
    }
}

/// Code that sets a custom setting, which no server reports, in a dynamic statement.
const UNSEEN: &str = "do $$ begin execute 'se' || 't app.unseen = ''of another'''; end $$";
/// At the anchor, where that runs.
const ASKS_UNSEEN: &str =
    "select coalesce(current_setting('app.unseen', true), '') from pg_class where relname = 'pg_class'";

/// Code that Onecopy cannot see may set custom settings, which no server reports: the next session does not get them.
pub(crate) async fn nothing_unseen(cluster: &Cluster) {
    let (former, next) = pair(cluster).await;
    for sets in [UNSEEN.to_owned(), format!("begin; {UNSEEN}; commit")] {
        for _ in 0..3 {
            run(&former, &sets).await;
            assert_eq!(value(&next, ASKS_UNSEEN).await, "", "{sets}");
        }
    }
}

/// A connection whose settings are unknown is not handed on.
pub(crate) async fn a_connection_of_unknown_state_is_not_handed_on(cluster: &Cluster) {
    run(&cluster.client().await, "create role secretive login").await;
    let may = async |what: &str| {
        for replica in cluster.caught_up().await {
            let sql = format!(
                "begin; alter event trigger onecopy_ddl disable; {what} public; \
                 alter event trigger onecopy_ddl enable always; commit"
            );
            run(&cluster.direct(&replica).await, &sql).await;
        }
    };
    may("revoke execute on function pg_catalog.pg_listening_channels() from").await;
    let secretive = async || crate::connect_as(cluster.port, "secretive").await.unwrap();
    let next = secretive().await;
    for _ in 0..3 {
        let former = secretive().await;
        run(&former, UNSEEN).await;
        crate::assert_pinned(cluster, &["unknown"]).await;
        drop(former);
        assert_eq!(value(&next, ASKS_UNSEEN).await, "");
    }
    may("grant execute on function pg_catalog.pg_listening_channels() to").await;
}

/// A session whose settings cannot be had any more runs nothing with those of another one, however often it tries.
pub(crate) async fn no_others_settings(cluster: &Cluster) {
    const READS: &str = "select current_user || v from t where k = 1";
    const UPDATES: &str = "update t set v = v where k = 1";
    let (former, next) = pair(cluster).await;
    // After a schema change a connection is reset to its known settings in any case.
    let admin = cluster.client().await;
    run(&admin, "create role fleeting; grant select on t to fleeting").await;
    run(&former, "set work_mem = '1MB'").await;
    // As many as the other one has set.
    run(&next, "set role fleeting").await;
    for client in [&former, &next] {
        run(client, "set onecopy.home = 'anchor'").await;
    }
    for _ in 0..4 {
        assert_eq!(value(&next, READS).await, "fleetingrow 1");
    }
    run(&admin, "drop owned by fleeting; drop role fleeting").await;
    cluster.caught_up().await;
    for sql in [READS, UPDATES] {
        for _ in 0..4 {
            run(&former, sql).await;
            next.simple_query(sql).await.expect_err(sql);
            next.simple_query(sql).await.expect_err(sql);
        }
    }
    assert_eq!(value(&former, READS).await, "postgresrow 1");
    // The session can reset a role that it can no longer have.
    run(&next, "reset role").await;
    for _ in 0..4 {
        assert_eq!(value(&next, READS).await, "postgresrow 1");
    }
    run(&admin, "create role fleeting").await;
    run(&next, "set role fleeting").await;
    run(&admin, "drop role fleeting").await;
    run(&former, READS).await;
    run(&next, "discard all").await;
    assert_eq!(value(&next, READS).await, "postgresrow 1");
}
