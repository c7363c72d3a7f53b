//! Promise: no role gets rights, or sees secrets, that it would not have on one PostgreSQL, whatever it leaves in the
//! database for others to stumble over.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::time::{Duration, Instant};

use cluster::{Cluster, Replica, connect, run, value};
use tokio_postgres::{Client, NoTls};

#[tokio::test]
async fn a_role_gets_no_rights_of_others() {
    let mut cluster = Cluster::start(2).await;
    let root = cluster.client().await;
    run(
        &root,
        "create role mallory login createrole; create role eve login superuser; create role app login",
    )
    .await;
    statements_of_onecopy_call_nothing_of_a_users_schema(&cluster, &root).await;
    nothing_that_a_role_can_read_opens_a_server(&cluster, &root).await;
    code_in_a_schema_change_becomes_no_superuser(&cluster, &root).await;
    explain_tells_a_role_nothing_of_tables_without_rights(&cluster, &root).await;
    code_that_rows_call_becomes_no_superuser(&cluster, &root).await;
    code_finds_nothing_in_schemas_of_strangers(&cluster, &root).await;
    rows_that_a_role_makes_up_prove_nothing(&cluster).await;
    cluster.verify().await;
    cluster.stop().await;
}

/// What a role finds on its connection through Onecopy and in the catalogues it may say at a server's own port.
async fn nothing_that_a_role_can_read_opens_a_server(cluster: &Cluster, root: &Client) {
    run(
        root,
        "create table public.secrets (k int primary key, open int, hidden text); insert into secrets values (1, 1, 'x');
         grant insert, update (open), select (k, open) on secrets to mallory; grant create on schema public to mallory;
         create table public.ours (v int); alter table ours owner to mallory",
    )
    .await;
    let mallory = login(cluster, "mallory").await;
    // Settings of her session, and every word in the functions' sources.
    let settings = "select string_agg(format('set %s = %L', name, setting), ';') from (
         select name, setting from pg_settings where source in ('client', 'session') union all
         select 'onecopy.' || word, current_setting('onecopy.' || word, true) from unnest('{via,ddl}'::text[]) as word
     ) as known(name, setting) where setting is not null";
    let settings = value(&mallory, settings).await;
    let words = "select string_agg(distinct word[1], ' ') from pg_proc,
         regexp_matches(prosrc, '([0-9a-z_]*[0-9a-f]{32})', 'g') as word where pronamespace::regnamespace::text ~ 'onecopy'";
    let words = value(&mallory, words).await;
    assert!(words.split(' ').count() >= 3, "{words}");
    for replica in cluster.caught_up().await {
        let direct = login_at(replica.port, "mallory").await;
        for set in settings.split(';').filter(|set| !set.is_empty()) {
            let _ = direct.simple_query(set).await;
        }
        run(&direct, "set default_transaction_read_only = off").await;
        for word in words.split(' ') {
            for setting in ["onecopy.via", "onecopy.ddl", "backtrace_functions"] {
                let _ = direct.simple_query(&format!("set {setting} = '{word}'")).await;
            }
            for statement in [
                "update secrets set open = 2",
                "insert into secrets values (2, 2, 'y')",
                "insert into ours values (1)",
                "truncate ours",
                "alter table ours disable trigger all",
                "create table public.theirs (v int)",
            ] {
                let error = direct.simple_query(statement).await.expect_err(statement);
                let code = error.code().unwrap().code();
                assert!(matches!(code, "25006" | "0A000" | "42501"), "{statement} with {word}: {error:?}");
            }
        }
        for attempt in [
            "select onecopy.vouch(repeat('0', 64))",
            "table onecopy_capture.voucher",
            "table onecopy_capture.vouched",
        ] {
            assert_eq!(direct.simple_query(attempt).await.unwrap_err().code().unwrap().code(), "42501");
        }
    }
    a_session_may_reset_all(&mallory).await;
    run(root, "drop table secrets, ours; revoke create on schema public from mallory").await;
}

/// RESET ALL takes away what the server knows a session by; it is found out again.
async fn a_session_may_reset_all(mallory: &Client) {
    for reset in ["reset all", "do $$ begin execute 'reset all'; end $$", "discard all"] {
        run(mallory, reset).await;
        run(
            mallory,
            "insert into ours values (7); create table public.short (v int); drop table public.short",
        )
        .await;
        run(mallory, &format!("begin; {}; delete from ours; commit", reset.replace("discard", "reset")))
            .await;
    }
    assert_eq!(value(mallory, "select count(*) from ours").await, "0");
}

/// Functions that a schema change calls at the other replicas, too.
async fn code_in_a_schema_change_becomes_no_superuser(cluster: &Cluster, root: &Client) {
    run(root, "create schema low authorization mallory; grant create on database postgres to mallory").await;
    let mallory = login(cluster, "mallory").await;
    set_ways_up(&mallory).await;
    run(
        &mallory,
        "create table low.t (v int); insert into low.t values (1);
         create function low.sly(v int) returns int language plpgsql immutable as $$ begin perform low.ascend(); return v; end $$;
         create table low.e (v int)",
    )
    .await;
    for statement in [
        "alter table low.t add check (low.bad(v) = v)",
        "alter table low.t alter column v type bigint using low.bad(v)",
        "alter table low.t add column w int generated always as (low.bad(1)) stored",
        "create index on low.t (low.bad(1))",
        // The planner calls it, in a session that has not yet.
        "create index on low.e (low.sly(1)); create statistics low.s on (v + low.sly(1)), v from low.e",
        "alter table low.e add check (now() > '2000-01-01')",
        "insert into low.e values (1)",
    ] {
        // Some are refused at home, which is as well.
        let _ = login(cluster, "mallory").await.simple_query(statement).await;
        nobody_has_risen(cluster, statement).await;
    }
    cluster.verify().await;
    for replica in cluster.caught_up().await {
        let files = "select count(*) from pg_ls_dir('.') as file where file = 'risen'";
        assert_eq!(value(&cluster.direct(&replica).await, files).await, "0", "at {}", replica.name);
    }
    // What an ordinary role may change it still can.
    for statement in [
        "create table low.p (k int, v text) partition by range (k); create table low.p1 partition of low.p for values from (0) to (9)",
        "create index on low.p (v); alter table low.p detach partition low.p1; alter table low.p1 add primary key (k)",
        "create type low.mood as enum ('sad'); alter type low.mood add value 'ok'; create domain low.few as int check (value < 9)",
        "create view low.seen as table low.p; create materialized view low.kept as table low.t; refresh materialized view low.kept",
        "create unique index on low.kept (v); refresh materialized view concurrently low.kept",
        "create extension citext schema low; drop extension citext; create schema sub create table x (k int) create view vx as table x",
        "create role child; grant child to eve with admin option; drop role child",
        "create function low.noted() returns trigger language plpgsql as $$ begin return new; end $$;
         create trigger noted before insert on low.p1 for each row execute function low.noted()",
        "alter table low.p1 enable row level security; create policy mine on low.p1 using (v = current_user)",
        "create sequence low.s; alter table low.p1 alter k set default nextval('low.s'); comment on table low.p1 is E'a\\b''c'",
        "grant select on low.p1 to eve; alter default privileges in schema low grant select on tables to eve",
        "alter role mallory set search_path = 'low', \"$user\"; alter role mallory reset search_path; reindex table low.p1",
        "begin; create table low.q (v int); insert into low.q values (1); alter table low.q rename to r; commit",
        "create table low.made as select 1 as one; alter table low.made add column at timestamptz default now()",
        "drop table low.made; drop owned by mallory cascade",
    ] {
        run(&mallory, statement).await;
    }
    for replica in cluster.caught_up().await {
        assert_eq!(replica.state, "up");
        let direct = cluster.direct(&replica).await;
        let run = "select proowner::regrole::text || ' ' || has_function_privilege('mallory', oid, 'execute')
             from pg_proc where oid = 'onecopy.run(text)'::regprocedure";
        assert_eq!(value(&direct, run).await, "postgres false");
    }
    run(root, "drop schema if exists low cascade").await;
}

/// `low.bad` tries all that could make its caller's session a superuser's, at once or when it commits.
async fn set_ways_up(mallory: &Client) {
    let ways = [
        "reset session authorization",
        "reset role",
        "alter role mallory superuser",
        "set search_path = low, pg_catalog",
        "declare held cursor with hold for select low.ascend()",
        "deallocate all",
        "prepare \"identities 1\" (int4, int8, int8, int8) as select low.ascend()",
        "create temp table passing (v int)",
        "create constraint trigger late after insert on pg_temp.passing deferrable initially deferred
             for each row execute function low.ascend_late()",
        "alter table pg_temp.passing enable always trigger late",
        "insert into pg_temp.passing values (1)",
    ];
    let tries: Vec<_> = ways
        .iter()
        .map(|way| format!("begin execute $w${way}$w$; exception when others then null; end;"))
        .collect();
    let sql = format!(
        "create function low.ascend() returns void language plpgsql as
             $$ begin execute format('copy (select 1) to %L', current_setting('data_directory') || '/risen');
                 alter role mallory superuser; exception when others then null; end $$;
         create function low.ascend_late() returns trigger language plpgsql as
             $$ begin perform low.ascend(); return null; end $$;
         create function low.worse() returns void language plpgsql as
             $$ begin if current_setting('session_replication_role') = 'replica' then {} perform low.ascend(); end if; end $$;
         create function low.bad(v int) returns int language plpgsql immutable as
             $$ begin perform low.worse(); return v; end $$",
        tries.join(" ")
    );
    run(mallory, &sql).await;
}

/// Whether mallory is what she was at all replicas, which have all of what she wrote.
async fn nobody_has_risen(cluster: &Cluster, what: &str) {
    for replica in cluster.caught_up().await {
        assert_eq!(replica.state, "up", "{what} at {}", replica.name);
        let direct = cluster.direct(&replica).await;
        let rights = "select rolsuper from pg_roles where rolname = 'mallory'";
        assert_eq!(value(&direct, rights).await, "f", "{what} at {}", replica.name);
    }
}

/// Functions of indexes, CHECKs, domains, generated columns and partitions, which are called wherever a row is applied.
async fn code_that_rows_call_becomes_no_superuser(cluster: &Cluster, root: &Client) {
    run(root, "create schema low authorization mallory; create schema shut").await;
    let mallory = login(cluster, "mallory").await;
    set_ways_up(&mallory).await;
    run(
        &mallory,
        "create domain low.odd as int check (low.bad(value) = value); create domain low.odder as low.odd not null;
         create type low.pair as (a low.odd, b text); create domain low.paired as low.pair; create type low.span as range (subtype = low.odd)",
    )
    .await;
    // What it is that calls the function, and a table with columns k and v.
    for (what, table) in [
        ("an index", "(k int primary key, v int); create index on low.t (low.bad(v))"),
        (
            "the predicate of an index",
            "(k int primary key, v int); create index on low.t (v) where low.bad(v) > 0",
        ),
        ("a CHECK", "(k int primary key, v int check (low.bad(v) = v))"),
        (
            "a CHECK that runs SQL",
            "(k int primary key, v int check (query_to_xml('select low.worse()', true, false, '') is not null))",
        ),
        ("a generated column", "(k int primary key, v int, g int generated always as (low.bad(v)) stored)"),
        ("a domain", "(k int primary key, v low.odder)"),
        ("a domain that is the key", "(k low.odd primary key, v int)"),
        ("an array of a domain", "(k int primary key, v int, a low.odd[] default '{1,2}')"),
        (
            "a composite with a domain",
            "(k int primary key, v int, c low.paired default row(1, 'x, \"y')::low.pair, d low.pair[] default array[row(1, null)::low.pair])",
        ),
        ("a range of a domain", "(k int primary key, v int, r low.span default '[1,5)')"),
        ("a domain without a key", "(k int, v low.odd)"),
        ("a deferrable key", "(k int primary key deferrable, v low.odd)"),
        (
            "a partition",
            "(k int, v int, primary key (k)) partition by range (k);
             create table low.part (v int, k int primary key, check (low.bad(v) = v));
             alter table low.t attach partition low.part for values from (0) to (1000)",
        ),
        (
            "a key of partitions",
            "(k int, v int) partition by range (low.bad(k));
             create table low.part partition of low.t for values from (0) to (1000)",
        ),
    ] {
        run(&mallory, &format!("create table low.t {table}")).await;
        for statement in [
            "insert into low.t (k, v) values (1, 1)",
            "insert into low.t (k, v) values (2, 2), (3, 3)",
            "insert into low.t (k, v) select g, g from generate_series(4, 40) g",
            "update low.t set v = 11 where k = 1",
            "update low.t set v = v + 1 where k between 2 and 4",
            "update low.t set v = v + 1 where k between 2 and 20",
            "update low.t set v = v where k = 3; update low.t set v = v where k < 12",
            "update low.t set k = 50 where k = 5",
            "delete from low.t where k = 1; delete from low.t where k < 4; delete from low.t where k between 8 and 20",
            "begin; truncate low.t; insert into low.t (k, v) values (1, 1); commit",
        ] {
            run(&mallory, statement).await;
        }
        nobody_has_risen(cluster, what).await;
        if what.contains("domain") {
            cluster.verify().await;
        }
        run(&mallory, "drop table low.t").await;
    }
    owners_without_rights(cluster, root, &mallory).await;
    cluster.verify().await;
    run(root, "drop schema low cascade; drop schema shut cascade").await;
}

/// An owner may lack what the writer has: rights on the table or its schema, or rows that he hides from himself.
async fn owners_without_rights(cluster: &Cluster, root: &Client, mallory: &Client) {
    run(
        mallory,
        "create table low.bare (k int primary key, v low.odd); create table low.hidden (k int primary key, v low.odd);
         revoke all on low.bare from mallory; grant all on low.bare, low.hidden to app; grant usage on schema low to app;
         alter table low.hidden enable row level security, force row level security; create policy p on low.hidden to mallory using (false);
         create policy q on low.hidden to app using (true);
         create table low.away (k int primary key, v low.odd)",
    )
    .await;
    run(
        root,
        "alter table low.away set schema shut; grant all on shut.away to app; grant usage on schema shut to app",
    )
    .await;
    let app = login(cluster, "app").await;
    for table in ["low.bare", "low.hidden", "shut.away"] {
        run(
            &app,
            &format!(
                "insert into {table} values (1, 1), (2, 2); update {table} set v = 3 where k = 1; delete from {table} where k = 2"
            ),
        )
        .await;
    }
    nobody_has_risen(cluster, "what an owner may not do").await;
    for replica in cluster.caught_up().await {
        let direct = cluster.direct(&replica).await;
        let rights = "select concat_ws(' ', relforcerowsecurity, has_table_privilege('mallory', c.oid, 'insert'), nspacl)
             from pg_class c join pg_namespace n on n.oid = relnamespace where relname in ('away', 'bare', 'hidden') order by relname";
        let rights = value(&direct, &format!("select string_agg(r, ';') from ({rights}) as r(r)")).await;
        let shut = "{postgres=UC/postgres,app=U/postgres}";
        let low = "{mallory=UC/mallory,app=U/mallory}";
        assert_eq!(rights, format!("f t {shut};f f {low};t t {low}"), "{}", replica.name);
    }
}

/// A function of another role that names a third one without its schema: everybody's schemas are not searched for it.
async fn code_finds_nothing_in_schemas_of_strangers(cluster: &Cluster, root: &Client) {
    run(root, "create schema aaa authorization mallory; create schema lib").await;
    let mallory = login(cluster, "mallory").await;
    run(
        &mallory,
        "create function aaa.inner_of(v int) returns int language plpgsql as $$ begin
             begin alter role mallory superuser; exception when others then null; end; return v; end $$",
    )
    .await;
    run(
        root,
        "create function lib.inner_of(v bigint) returns int language sql as 'select v::int';
         create function lib.outer_of(v int) returns int language plpgsql immutable as $$ begin return inner_of(v); end $$;
         set search_path = lib, public; create table public.w (k int primary key, v int check (lib.outer_of(v) = v));
         insert into public.w values (1, 1); reset search_path",
    )
    .await;
    nobody_has_risen(cluster, "a function in a schema of a stranger").await;
    run(root, "drop table public.w; drop schema aaa cascade; drop schema lib cascade").await;
}

/// EXPLAIN (ROUTING) asks for the rights that EXPLAIN asks for: those of the role that counts in the session.
async fn explain_tells_a_role_nothing_of_tables_without_rights(cluster: &Cluster, root: &Client) {
    run(
        root,
        "create table public.seen (k int primary key, v int); create table public.hidden (k int primary key, v int);
         grant select on seen to mallory; grant select (k) on hidden to mallory;
         create schema closed; create table closed.t (v int); grant select on closed.t to mallory;
         create view public.some as select v from hidden; grant select on public.some to mallory;
         alter role mallory noinherit; create role reader; grant reader to mallory;
         grant select, update on hidden to reader",
    )
    .await;
    let mallory = login(cluster, "mallory").await;
    for allowed in [
        "select * from seen where k = $1",
        "select k from hidden",
        "select v from public.some where v = $2",
        "select $65535::int",
    ] {
        run(&mallory, &format!("explain (routing) {allowed}")).await;
    }
    for (statement, denied) in [
        ("select v from hidden where k = 1", "table hidden"),
        ("select seen.v from seen join hidden using (k) where hidden.v = $1", "table hidden"),
        ("insert into hidden values ($1, $2)", "table hidden"),
        ("update seen set v = 1 where k = 1", "table seen"),
        ("delete from seen where k in (select k from hidden)", "table seen"),
        ("select * from closed.t", "schema closed"),
    ] {
        let text = format!("explain (routing, costs off) {statement}");
        let message = Some(format!("permission denied for {denied}"));
        assert_eq!(refused(&mallory, &text).await, ("42501".to_owned(), message.clone()), "{statement}");
        let error = mallory.query(&text, &[]).await.expect_err(statement);
        assert_eq!(error.as_db_error().map(|error| error.message().to_owned()), message, "{statement}");
    }
    // Inside transactions, which fail as they do with any other error.
    for before in ["select 1", "set local statement_timeout = 0", "create temp table mine (v int)"] {
        for begin in ["begin", "begin read only", "begin isolation level serializable"] {
            if before.starts_with("create") && begin.ends_with("only") {
                continue;
            }
            run(&mallory, &format!("{begin}; {before}; explain (routing) table seen")).await;
            assert_eq!(
                refused(&mallory, "explain (routing) table hidden").await.0,
                "42501",
                "{begin}; {before}"
            );
            assert_eq!(refused(&mallory, "select 1").await.0, "25P02", "{begin}; {before}");
            run(&mallory, "rollback").await;
        }
    }
    run(
        &mallory,
        "begin; create temp table mine (v int); explain (routing) table mine; set local role reader",
    )
    .await;
    run(&mallory, "explain (routing) update hidden set v = 1; commit").await;
    assert_eq!(refused(&mallory, "explain (routing) update hidden set v = 1").await.0, "42501");
    run(root, "set role mallory").await;
    assert_eq!(refused(root, "explain (routing) table hidden").await.0, "42501");
    run(root, "reset role; explain (routing) table hidden").await;
    // What PostgreSQL says of a mistake has its place in the client's text.
    let error =
        root.simple_query("  select 1; explain (routing) /* \u{e9} */ select nothing").await.unwrap_err();
    let place = tokio_postgres::error::ErrorPosition::Original(46);
    assert_eq!(error.as_db_error().unwrap().position(), Some(&place));
    assert_eq!(refused(root, "explain (routing) select $65536::int").await.0, "54000");
    run(
        root,
        "drop view public.some; drop table seen, hidden, closed.t; drop schema closed; drop role reader",
    )
    .await;
}

/// The error that a statement gets: its code and message.
async fn refused(client: &Client, statement: &str) -> (String, Option<String>) {
    let error = client.simple_query(statement).await.expect_err(statement);
    let message = error.as_db_error().map(|error| error.message().to_owned());
    (error.code().unwrap().code().to_owned(), message)
}

/// By its rows in `onecopy.applied` a server tells, when it comes back, which transactions it has. They would look like those
/// of a log that was lost.
async fn rows_that_a_role_makes_up_prove_nothing(cluster: &Cluster) {
    const ROWS: i64 = 30_000;
    let mallory = login(cluster, "mallory").await;
    run(
        &mallory,
        &format!("do $$ begin insert into onecopy.applied select 99, g, 7, g from generate_series(1, {ROWS}) g; end $$"),
    )
    .await;
    // It stays where it was written, as it is no transaction's.
    let count = async |replica: &Replica| {
        let direct = connect(&replica.host, replica.port, "postgres").await.ok()?;
        let count = "select count(*) from onecopy.applied where epoch = 99";
        direct.query_one(count, &[]).await.ok().map(|row| row.get::<_, i64>(0))
    };
    let mut hit = None;
    for replica in cluster.caught_up().await {
        if count(&replica).await == Some(ROWS) {
            hit = Some(replica);
        }
    }
    let hit = hit.expect("the rows are somewhere");
    // So that they outlast the server.
    run(&cluster.direct(&hit).await, "checkpoint").await;
    cluster.kill_server(&hit, true);
    let deadline = Instant::now() + Duration::from_mins(2);
    loop {
        let states: Vec<String> = cluster.replicas().await.into_iter().map(|replica| replica.state).collect();
        assert!(Instant::now() < deadline && !states.contains(&"quarantined".to_owned()), "{states:?}");
        if states.iter().all(|state| state == "up") && count(&hit).await == Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client that logs in as another role.
async fn login(cluster: &Cluster, role: &str) -> Client {
    login_at(cluster.port, role).await
}

async fn login_at(port: u16, role: &str) -> Client {
    let settings = format!("host=127.0.0.1 port={port} user={role} dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

/// What the traps of [`set_traps`] leave behind in a superuser's session: an advisory lock of this number.
const SPRUNG: u32 = 4711;

/// The class of CVE-2018-1058: a superuser logs in with a search path that has a schema of another role before
/// `pg_catalog`, and that role has made operators, functions and types there.
async fn statements_of_onecopy_call_nothing_of_a_users_schema(cluster: &Cluster, root: &Client) {
    run(
        root,
        "create schema trap authorization mallory; create table public.w (k int primary key, v int, s serial);
         create function public.swallow(int) returns void language plpgsql as $$ begin
             begin insert into public.w values ($1, 1); exception when unique_violation then null; end;
         end $$;
         grant all on public.w to mallory; grant all on sequence public.w_s_seq to mallory;
         alter role eve set search_path = trap, pg_catalog",
    )
    .await;
    set_traps(&login(cluster, "mallory").await).await;
    let locks = format!("select count(*) from pg_locks where locktype = 'advisory' and objid = {SPRUNG}");
    let check = async |statement: &str| {
        for replica in cluster.replicas().await {
            let direct = cluster.direct(&replica).await;
            assert_eq!(value(&direct, &locks).await, "0", "{statement} at {}", replica.name);
        }
    };
    // Functions of Onecopy that run as its superuser, whoever calls them.
    let mallory = login(cluster, "mallory").await;
    run(
        &mallory,
        "set search_path = trap, pg_catalog; insert into public.w values (7, 7); delete from public.w",
    )
    .await;
    run(&mallory, "begin; select public.swallow(1); select public.swallow(1); delete from public.w; commit")
        .await;
    check("what mallory wrote").await;
    for home in ["anchor", "any"] {
        let eve = login(cluster, "eve").await;
        for statement in [
            format!("set onecopy.home = '{home}'"),
            "table public.w".to_owned(),
            "insert into public.w values (1, 1); delete from public.w".to_owned(),
            "begin; select public.swallow(1); select public.swallow(1); delete from public.w; commit"
                .to_owned(),
            "select pg_catalog.nextval('public.w_s_seq')".to_owned(),
            "begin isolation level serializable; insert into public.w values (3, 3); commit".to_owned(),
            "create temp table tmp (v int); drop table pg_temp.tmp; select 1".to_owned(),
            "create table public.made as select 1 as one; drop table public.made".to_owned(),
            "alter table public.w add column at timestamptz default pg_catalog.now()".to_owned(),
            "alter table public.w drop column at; delete from public.w".to_owned(),
            "create materialized view public.seen as table public.w; drop materialized view public.seen"
                .to_owned(),
            "create role fred; comment on role fred is 'x'; drop role fred".to_owned(),
            "begin; create role fred; drop role fred; commit".to_owned(),
            "begin; lock public.w; commit; vacuum public.w; discard all".to_owned(),
        ] {
            run(&eve, &statement).await;
            check(&statement).await;
        }
    }
    run(root, "alter role eve reset search_path; drop schema trap cascade; drop table public.w").await;
}

/// Makes operators, functions and types with names of the server's own.
async fn set_traps(mallory: &Client) {
    let mut sql = format!(
        "create function trap.spring() returns void language plpgsql as $$ begin
             if (select rolsuper from pg_catalog.pg_roles where rolname operator(pg_catalog.=) current_user) then
                 perform pg_catalog.pg_advisory_lock({SPRUNG});
             end if;
         end $$;"
    );
    let same = ["oid", "int4", "int8", "name", "text", "\"char\""].map(|kind| (kind, kind));
    let mixed = [("oid", "int4"), ("oid", "int8"), ("name", "text"), ("int8", "int4"), ("int2", "int4")];
    for (left, right) in same.into_iter().chain(mixed) {
        let (left, right) = (format!("pg_catalog.{left}"), format!("pg_catalog.{right}"));
        sql.push_str(&format!(
            "create function trap.answer({left}, {right}) returns bool language plpgsql as
                 $$ begin perform trap.spring(); return true; end $$;"
        ));
        for operator in ["=", "<>", ">=", "!~", "~"] {
            sql.push_str(&format!(
                "create operator trap.{operator} (procedure = trap.answer, leftarg = {left}, rightarg = {right});"
            ));
        }
    }
    for operator in ["+", "-", "%"] {
        sql.push_str(&format!(
            "create function trap.\"{operator}\"(int8, int8) returns int8 language plpgsql as
                 $$ begin perform trap.spring(); return 1; end $$;
             create operator trap.{operator} (procedure = trap.\"{operator}\", leftarg = int8, rightarg = int8);"
        ));
    }
    for (function, result) in [
        ("current_database()", "name"),
        ("concat(text, text)", "text"),
        ("format(text, name, text)", "text"),
        ("format(text, text, text)", "text"),
        ("string_agg(text, text)", "text"),
        ("current_setting(text, bool)", "text"),
        ("pg_backend_pid()", "int4"),
        ("array_append(text[], text)", "text[]"),
    ] {
        sql.push_str(&format!(
            "create function trap.{function} returns {result} language plpgsql as
                 $$ begin perform trap.spring(); return null; end $$;"
        ));
    }
    for of in ["text", "int8", "int4", "xid8", "oid", "regclass"] {
        sql.push_str(&format!(
            "create function trap.holds(pg_catalog.{of}) returns bool language plpgsql as
                 $$ begin perform trap.spring(); return true; end $$;
             create domain trap.{of} as pg_catalog.{of} check (trap.holds(value));"
        ));
    }
    // In one transaction: a schema change by itself costs a record.
    run(mallory, &format!("begin; {sql} commit")).await;
}
