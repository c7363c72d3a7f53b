//! Functions that a schema change or a row calls run with no more rights at other replicas than at home.

use tokio_postgres::Client;

use crate::cluster::{Cluster, run, value};
use crate::{login, no_role_has_gained_rights};

/// Functions that a schema change calls at the other replicas, too.
pub(crate) async fn code_in_a_schema_change_becomes_no_superuser(cluster: &Cluster, root: &Client) {
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
        no_role_has_gained_rights(cluster, statement).await;
    }
    cluster.verify().await;
    for replica in cluster.caught_up().await {
        let files = "select count(*) from pg_ls_dir('.') as file where file = 'risen'";
        assert_eq!(value(&cluster.direct(&replica).await, files).await, "0", "at {}", replica.name);
    }
    // An ordinary role can still change its own settings.
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

/// Functions of indexes, CHECKs, domains, generated columns and partitions, which are called wherever a row is applied.
pub(crate) async fn code_that_rows_call_becomes_no_superuser(cluster: &Cluster, root: &Client) {
    run(root, "create schema low authorization mallory; create schema shut").await;
    let mallory = login(cluster, "mallory").await;
    set_ways_up(&mallory).await;
    run(
        &mallory,
        "create domain low.odd as int check (low.bad(value) = value); create domain low.odder as low.odd not null;
         create type low.pair as (a low.odd, b text); create domain low.paired as low.pair; create type low.span as range (subtype = low.odd)",
    )
    .await;
    // The object that calls the function, and a table with columns k and v.
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
        no_role_has_gained_rights(cluster, what).await;
        if what.contains("domain") {
            cluster.verify().await;
        }
        run(&mallory, "drop table low.t").await;
    }
    owners_without_rights(cluster, root, &mallory).await;
    cluster.verify().await;
    run(root, "drop schema low cascade; drop schema shut cascade").await;
}

/// The owner of a table may lack rights of the writer: on the table, on its schema, or on rows that a policy hides.
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
    no_role_has_gained_rights(cluster, "what an owner may not do").await;
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

/// A function that calls another one without its schema: Onecopy does not search the schemas of other roles for it.
pub(crate) async fn code_finds_nothing_in_schemas_of_strangers(cluster: &Cluster, root: &Client) {
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
    no_role_has_gained_rights(cluster, "a function in a schema of a stranger").await;
    run(root, "drop table public.w; drop schema aaa cascade; drop schema lib cascade").await;
}
