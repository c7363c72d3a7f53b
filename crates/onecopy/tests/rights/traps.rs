//! Operators, functions and types of a role that shadow those of the server.

use tokio_postgres::Client;

use crate::cluster::{Cluster, run, value};
use crate::login;

/// A trap of [`set_traps`] takes the advisory lock of this number in a superuser's session.
const SPRUNG: u32 = 4711;

/// The class of CVE-2018-1058: a superuser logs in with a search path that has a schema of another role before
/// `pg_catalog`, and that role has made operators, functions and types there.
pub(crate) async fn statements_of_onecopy_call_nothing_of_a_users_schema(cluster: &Cluster, root: &Client) {
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
    // Functions of Onecopy that run with the rights of its superuser.
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
