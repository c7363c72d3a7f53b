//! Who may be given an answer: roles, settings, row security, and what ALTER ROLE, GRANT and REVOKE change.

use crate::cached::Cached;
use crate::cluster::{run, value};

#[tokio::test]
async fn an_answer_is_for_those_whom_a_server_would_give_it() {
    let mut cached = crate::started().await;
    let owner = cached.client().await;
    run(&owner, "create role joe login; create role ann login").await;
    run(&owner, "create table t (k int primary key, v int); insert into t values (1, 10)").await;
    run(&owner, "grant select on t to joe, ann; grant create on schema public to joe").await;
    roles(&cached).await;
    row_security(&cached).await;
    settings(&cached).await;
    defaults_of_roles(&cached).await;
    unreported_defaults_of_roles(&cached).await;
    rights(&cached).await;
    temporary_tables(&cached).await;
    cached.cluster.stop().await;
}

async fn roles(cached: &Cached) {
    let (owner, joe) = (cached.client().await, cached.client_as("joe", "").await);
    let query = "select current_user, v from t";
    cached.is_kept(&owner, query, "postgres").await;
    cached.is_kept(&joe, query, "joe").await;
    run(&owner, "set role ann").await;
    cached.is_kept(&owner, query, "ann").await;
    run(&owner, "reset role").await;
    cached.is_given(&owner, query, "postgres").await;
}

async fn row_security(cached: &Cached) {
    let owner = cached.client().await;
    run(&owner, "create table tenants (tenant text, v int)").await;
    run(&owner, "insert into tenants values ('a', 1), ('b', 2)").await;
    run(&owner, "alter table tenants enable row level security; grant select on tenants to joe, ann").await;
    run(&owner, "create policy own on tenants using (tenant = current_setting('app.tenant', true))").await;
    let query = "select v from tenants";
    let (of_a, of_b) = (cached.client_as("joe", "-c app.tenant=a").await, cached.client_as("joe", "").await);
    run(&of_b, "set app.tenant = 'b'").await;
    cached.is_kept(&of_a, query, "1").await;
    cached.is_kept(&of_b, query, "2").await;
    run(&of_b, "set app.tenant = 'a'").await;
    assert_eq!(value(&of_b, query).await, "1");
    run(&of_b, "select set_config('app.tenant', 'b', false)").await;
    assert_eq!(value(&of_b, query).await, "2");
    run(&of_b, "begin; set local app.tenant = 'a'").await;
    assert_eq!(value(&of_b, query).await, "1");
    run(&of_b, "commit").await;
    assert_eq!(value(&of_b, query).await, "2");
    run(&of_b, "reset app.tenant").await;
    assert_eq!(value(&of_b, "select count(*) from tenants").await, "0");
    run(&owner, "drop policy own on tenants").await;
    assert_eq!(value(&of_a, "select count(*) from tenants").await, "0");
}

async fn settings(cached: &Cached) {
    let owner = cached.client().await;
    run(&owner, "create table days (day date, at timestamptz)").await;
    run(&owner, "insert into days values ('2026-11-27', '2026-11-27 12:00 UTC')").await;
    let (client, other) = (cached.client().await, cached.client().await);
    let query = "select day from days";
    cached.is_kept(&client, query, "2026-11-27").await;
    run(&client, "set datestyle = 'German'").await;
    cached.is_kept(&client, query, "27.11.2026").await;
    cached.is_given(&other, query, "2026-11-27").await;
    run(&other, "set datestyle = 'German'").await;
    cached.is_given(&other, query, "27.11.2026").await;
    run(&other, "reset datestyle").await;
    cached.is_given(&other, query, "2026-11-27").await;
    let away = cached.client_as("postgres", "-c TimeZone=Asia/Tokyo").await;
    cached.is_kept(&away, "select at from days", "2026-11-27 21:00:00+09").await;
    run(&away, "set search_path = pg_catalog").await;
    let error = away.simple_query(query).await.unwrap_err();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42P01"));
    // What differs between clients without a consequence parts nobody.
    run(&client, "set application_name = 'me'; set statement_timeout = '1h'; set datestyle = 'ISO, MDY'")
        .await;
    let named = cached.client_as("postgres", "-c application_name=you").await;
    run(&named, "set datestyle = 'ISO, MDY'").await;
    cached.is_read(&client, query, "2026-11-27").await;
    run(&named, "set lock_timeout = '1h'").await;
    cached.is_read(&named, query, "2026-11-27").await;
    cached.is_given(&named, query, "2026-11-27").await;
}

async fn defaults_of_roles(cached: &Cached) {
    let owner = cached.client().await;
    let before = cached.client_as("ann", "").await;
    let query = "select day from days";
    run(&owner, "grant select on days to ann").await;
    cached.is_kept(&before, query, "2026-11-27").await;
    run(&owner, "alter role ann set datestyle = 'German'").await;
    let after = cached.client_as("ann", "").await;
    assert_eq!(value(&after, query).await, "27.11.2026");
    assert_eq!(value(&before, query).await, "2026-11-27", "a session keeps the settings that it began with");
    assert_eq!(value(&after, query).await, "27.11.2026");
    assert_eq!(value(&before, query).await, "2026-11-27");
    run(&owner, "alter role ann reset datestyle").await;
    assert_eq!(value(&cached.client_as("ann", "").await, query).await, "2026-11-27");
    assert_eq!(value(&after, query).await, "27.11.2026");
}

/// Servers report DateStyle at the log-in, but not this one.
async fn unreported_defaults_of_roles(cached: &Cached) {
    let owner = cached.client().await;
    let before = cached.client_as("ann", "").await;
    let query = "select b from blobs";
    run(&owner, r"create table blobs (b bytea); insert into blobs values ('\x41')").await;
    run(&owner, "grant select on blobs to ann").await;
    cached.is_kept(&before, query, r"\x41").await;
    run(&owner, "alter role ann set bytea_output = 'escape'").await;
    let after = cached.client_as("ann", "").await;
    for _ in 0..2 {
        assert_eq!(value(&after, query).await, "A");
        assert_eq!(value(&before, query).await, r"\x41", "a session keeps the settings that it began with");
    }
}

async fn rights(cached: &Cached) {
    let (owner, joe) = (cached.client().await, cached.client_as("joe", "").await);
    let query = "select v from t where k = 1";
    cached.is_kept(&joe, query, "10").await;
    run(&owner, "revoke select on t from joe").await;
    let error = joe.simple_query(query).await.unwrap_err();
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{error:?}");
    run(&owner, "grant select on t to joe").await;
    cached.is_kept(&joe, query, "10").await;
}

async fn temporary_tables(cached: &Cached) {
    let (client, other) = (cached.client().await, cached.client().await);
    let query = "select v from t where k = 1";
    cached.is_kept(&client, query, "10").await;
    run(&client, "create temp table t (k int, v int); insert into t values (1, 77)").await;
    for _ in 0..3 {
        assert_eq!(value(&client, query).await, "77", "its own table hides the other one");
    }
    assert_eq!(value(&other, query).await, "10");
    run(&client, "drop table pg_temp.t").await;
    assert_eq!(value(&client, query).await, "10");
}
