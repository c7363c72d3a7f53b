//! Promise: a server can join if it is empty or a copy of a member. Then it is identical to the others, and clients do not
//! notice.

use std::time::{Duration, Instant};

use super::cluster::folder;
use super::cluster::plain::Plain;
use super::cluster::served::{Setup, WITHIN};
use super::cluster::{connect, programs, rows, run, table, value};
use super::login::{PASSWORD, Servers, ask_for_passwords, log_in};
use super::{run_fails, two_servers};

#[tokio::test]
async fn a_copy_of_a_member_joins_and_a_member_leaves() {
    if !has_programs() {
        return;
    }
    let (a, b) = two_servers().await;
    let setup = Setup::new(&[&a, &b], "");
    let node = setup.serve(&[]).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let stranger = Plain::start().await;
    run(&stranger.client().await, "CREATE TABLE own (id int PRIMARY KEY)").await;
    let add = |port: u16| format!("ADD REPLICA 'postgresql://localhost:{port}'");
    for (sql, state, words) in [
        (
            add(stranger.port),
            "55000",
            "has data of its own, and nothing of the cluster: table \"public\".\"own\"",
        ),
        (add(a.port), "55000", "the server is a member already, as replica-1"),
        (add(folder::free_port()), "55000", "cannot be reached"),
        ("ADD REPLICA".to_owned(), "0A000", "`onecopy serve` makes no servers"),
        ("ADD REPLICA 'mysql://x'".to_owned(), "55000", "not the URL of a server"),
    ] {
        let error = admin.simple_query(&sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), state, "{sql}");
        assert!(error.message().contains(words) && error.hint().is_some(), "{sql}: {error}");
    }
    let c = b.copy().await;
    run(&client, "INSERT INTO item (name) VALUES ('c')").await;
    assert_eq!(rows(&admin, &add(c.port)).await[0]["replica"], "replica-3");
    let names = "SELECT string_agg(name, ',' ORDER BY id) FROM item";
    assert_eq!(value(&c.client().await, names).await, "a,b,c", "it has what came after the copy");
    assert_eq!(rows(&admin, "DROP REPLICA replica-1").await[0]["members"], "2");
    run(&client, "INSERT INTO item (name) VALUES ('d')").await;
    assert!(rows(&admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"));
    assert_eq!(value(&a.client().await, names).await, "a,b,c", "it is left as it was");
    assert!(run_fails(&a, "INSERT INTO item (name) VALUES ('behind')").await);
    node.stop();
    // The configuration still names the first two; a restart knows the members, and refuses unknown servers.
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let members: Vec<String> =
        rows(&admin, "SHOW REPLICAS").await.iter().map(|row| row["name"].clone()).collect();
    assert_eq!(members, ["replica-2", "replica-3"]);
    // A dropped member joins again and gets the missing records from the log.
    assert_eq!(rows(&admin, &add(a.port)).await[0]["replica"], "replica-1");
    assert_eq!(value(&a.client().await, names).await, "a,b,c,d");
    node.stop();
    setup.write(&[a.port, b.port, c.port, stranger.port], "");
    let said = setup.refused().await;
    assert!(said.contains("names others") && said.contains("ADD REPLICA"), "{said}");
}

/// A schema with one of each kind of object that people have.
const RICH: &str = include_str!("../dump_restore/schema.sql");

/// Properties that a dump does not contain: settings, rights on the database, memberships, a CHECK that later fails.
const MORE: &str = "
    CREATE ROLE auditor;
    CREATE ROLE teller LOGIN PASSWORD 'open' CONNECTION LIMIT 7;
    COMMENT ON ROLE teller IS 'it''s her';
    GRANT clerk TO teller WITH ADMIN OPTION;
    GRANT clerk TO auditor GRANTED BY teller;
    GRANT shop_owner TO clerk;
    ALTER ROLE teller SET search_path = shop, \"$user\", public;
    ALTER ROLE teller IN DATABASE postgres SET work_mem = '5MB';
    ALTER DATABASE postgres SET lock_timeout = '1h';
    GRANT TEMPORARY ON DATABASE postgres TO clerk WITH GRANT OPTION;
    CREATE TABLE soon (id serial PRIMARY KEY, until timestamptz CHECK (until > now()));
    INSERT INTO soon (until) VALUES (clock_timestamp() + interval '50 ms');
    CREATE TABLE nothing ();
    INSERT INTO nothing SELECT FROM generate_series(1, 3);
    CREATE TABLE noted (id bigserial PRIMARY KEY, writer int);
    CREATE TABLE \"odd \"\"Name\" (a int, b int GENERATED ALWAYS AS (a + 1) STORED, gone int, c text);
    ALTER TABLE \"odd \"\"Name\" DROP COLUMN gone;
    INSERT INTO \"odd \"\"Name\" VALUES (1, DEFAULT, E'tab\\tback\\\\slash');
    REFRESH MATERIALIZED VIEW shop.turnover;
    CREATE ROLE crafty;
    CREATE SCHEMA crafty AUTHORIZATION crafty;
    SET ROLE crafty;
    CREATE FUNCTION crafty.rise() RETURNS void LANGUAGE plpgsql AS
        $$ BEGIN ALTER ROLE crafty SUPERUSER; EXCEPTION WHEN OTHERS THEN NULL; END $$;
    CREATE FUNCTION crafty.bad(v int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM crafty.rise(); RETURN v; END $$;
    CREATE DOMAIN crafty.odd AS int CHECK (crafty.bad(VALUE) = VALUE);
    CREATE TYPE crafty.pair AS (a crafty.odd, b text);
    CREATE TABLE crafty.t (k int PRIMARY KEY, g int GENERATED ALWAYS AS (crafty.bad(k)) STORED, d crafty.odd[], p crafty.pair);
    INSERT INTO crafty.t (k, d, p) SELECT i, ARRAY[i, i], ROW(i, 'x, y')::crafty.pair FROM generate_series(1, 300) AS i;
    CREATE TABLE crafty.split (k int) PARTITION BY RANGE (crafty.bad(k));
    CREATE TABLE crafty.part PARTITION OF crafty.split FOR VALUES FROM (0) TO (10);
    INSERT INTO crafty.split VALUES (5), (6);
    RESET ROLE;";

const ROLES: &str = "SELECT rolname, rolpassword, rolconnlimit, rolcanlogin, shobj_description(oid, 'pg_authid'),
    (SELECT string_agg(g.rolname || m.admin_option || m.grantor::regrole, ',' ORDER BY g.rolname) FROM pg_auth_members m
     JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid),
    (SELECT string_agg((setdatabase = 0) || setconfig::text, ',' ORDER BY setdatabase) FROM pg_db_role_setting WHERE setrole = r.oid)
    FROM pg_authid r WHERE rolname !~ '^pg_'
    UNION ALL SELECT datname, datacl::text, 0, false, datcollate, (SELECT setconfig::text FROM pg_db_role_setting
    WHERE setdatabase = d.oid AND setrole = 0), pg_encoding_to_char(encoding) FROM pg_database d WHERE datname = 'postgres' ORDER BY 1";

/// Two members with all of that, and a node over them.
async fn rich() -> (Plain, Plain, Setup) {
    let a = Plain::start().await;
    // The casts of citext would keep everything at the anchor.
    let rich = RICH.replace("CREATE EXTENSION citext;", "").replace("AS citext", "AS text");
    let made = programs::psql(a.port, &format!("\\set ON_ERROR_STOP on\n{rich}\n{MORE}")).await;
    assert!(made.status.success(), "{}", programs::text(&made));
    let b = a.copy().await;
    let setup = Setup::new(&[&a, &b], "");
    (a, b, setup)
}

/// Servers are copied and filled by PostgreSQL's own programs.
fn has_programs() -> bool {
    ["pg_basebackup", "pg_dump"].iter().all(|name| programs::is_new_enough(name, "servers that join"))
}

fn add(server: &Plain) -> String {
    format!("ADD REPLICA 'postgresql://127.0.0.1:{}'", server.port)
}

async fn assert_identical(admin: &tokio_postgres::Client) {
    let differ: Vec<String> = rows(admin, "VERIFY")
        .await
        .into_iter()
        .filter(|row| row["result"] != "identical")
        .map(|row| format!("{row:?}"))
        .collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[tokio::test]
async fn an_empty_server_is_filled_while_clients_write() {
    if !has_programs() {
        return;
    }
    let (a, b, setup) = rich().await;
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    // A writer at the replica that will be copied, whose sequences stand in ranges of its own, and one anywhere.
    let mut writers = Vec::new();
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    for (writer, home) in ["replica-2", "auto"].into_iter().enumerate() {
        let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
        run(&client, &format!("SET onecopy.home = '{home}'")).await;
        let is_over = std::sync::Arc::clone(&is_over);
        writers.push(tokio::spawn(async move {
            let mut written = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let sql = format!("INSERT INTO noted (writer) VALUES ({writer})");
                client.batch_execute(&sql).await.expect("filling a server disturbs no writer");
                written += 1;
            }
            written
        }));
    }
    let c = Plain::start().await;
    // A node left the copy half done; its content does not count.
    run(&c.client().await, "CREATE SCHEMA onecopy_filling; CREATE TABLE half (a int)").await;
    let added = rows(&admin, &add(&c)).await;
    assert_eq!((&*added[0]["replica"], &*added[0]["donor"]), ("replica-3", "replica-2"));
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut written: i64 = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    assert!(written > 0);
    assert_identical(&admin).await;
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    assert_eq!(value(&client, "SELECT count(DISTINCT id) FROM noted").await, written.to_string());
    assert_eq!(table(&c.client().await, ROLES).await, table(&a.client().await, ROLES).await);
    serves(&setup, "replica-3").await;
    // A former member is copied anew on demand, whatever was changed in it.
    let token = "SELECT substring(pg_get_triggerdef(oid) from '''([0-9a-f]{32})''') FROM pg_trigger WHERE tgname = '!onecopy_replica' LIMIT 1";
    let direct = c.client().await;
    let via = value(&direct, token).await;
    let behind = format!(
        "SET onecopy.via = '{via}'; SET session_replication_role = replica; DELETE FROM noted WHERE id < 5; CREATE ROLE stray"
    );
    run(&direct, &behind).await;
    drop(direct);
    let rebuilt = rows(&admin, "REBUILD REPLICA replica-3").await;
    assert_eq!(&*rebuilt[0]["replica"], "replica-3");
    assert_identical(&admin).await;
    assert_eq!(table(&c.client().await, ROLES).await, table(&b.client().await, ROLES).await);
    serves(&setup, "replica-3").await;
    drop(client);
    node.stop();
    // It is a member from then on; and one without the database is filled as well.
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    assert_eq!(rows(&admin, "SHOW REPLICAS").await.len(), 3);
    let d = Plain::start().await;
    run(&connect("127.0.0.1", d.port, "template1").await.unwrap(), "DROP DATABASE postgres").await;
    run(
        &connect("127.0.0.1", setup.port, "postgres").await.unwrap(),
        "DROP SCHEMA public CASCADE; CREATE TABLE shop.last (a int)",
    )
    .await;
    rows(&admin, &add(&d)).await;
    assert_identical(&admin).await;
    node.stop();
}

/// It takes reads, updates that draw, and schema changes.
async fn serves(setup: &Setup, name: &str) {
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let count = async |what: &str| {
        let found = rows(&admin, "SHOW REPLICAS").await.into_iter().find(|row| row["name"] == name);
        found.unwrap()[what].parse::<u64>().unwrap()
    };
    run(&client, &format!("SET onecopy.home = '{name}'")).await;
    let (reads, writes) = (count("reads").await, count("writes").await);
    let deadline = Instant::now() + WITHIN;
    while count("reads").await < reads + 3 || count("writes").await < writes + 3 {
        assert!(Instant::now() < deadline, "{name} is not used: {:?}", rows(&admin, "SHOW REPLICAS").await);
        value(&client, "SELECT count(*) FROM noted").await;
        run(&client, "INSERT INTO noted (writer) VALUES (-1)").await;
    }
    run(&client, "DELETE FROM noted WHERE writer = -1").await;
    run(&client, "CREATE TABLE later (id serial PRIMARY KEY, s shop.state DEFAULT 'new'); INSERT INTO later DEFAULT VALUES").await;
    run(&client, "DROP TABLE later").await;
}

#[tokio::test]
async fn what_is_not_like_the_others_does_not_join() {
    if !has_programs() {
        return;
    }
    let (_a, b, setup) = rich().await;
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let refused = async |server: &Plain, words: &[&str]| {
        let error = admin.simple_query(&add(server)).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "55000", "{error}");
        for words in words {
            assert!(error.message().contains(words), "{words}: {error}");
        }
        assert_eq!(rows(&admin, "SHOW REPLICAS").await.len(), 2);
    };
    // A copy with another row, and one with another schema, that were made behind our back.
    let behind = "SET session_replication_role = replica; ALTER EVENT TRIGGER onecopy_ddl DISABLE; ";
    let c = b.copy().await;
    let via = "SELECT substring(pg_get_triggerdef(oid) from '''([0-9a-f]{32})''') FROM pg_trigger WHERE tgname = '!onecopy_replica' LIMIT 1";
    let direct = c.client().await;
    let token = value(&direct, via).await;
    run(
        &direct,
        &format!("SET session_replication_role = replica; SET onecopy.via = '{token}'; DELETE FROM soon"),
    )
    .await;
    drop(direct);
    refused(&c, &["differs from the other replicas at version", "\"public\".\"soon\""]).await;
    let d = b.copy().await;
    let change = "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; ALTER EVENT TRIGGER onecopy_ddl ENABLE ALWAYS";
    run(&d.client().await, &format!("{behind}{change}")).await;
    refused(&d, &["differs from the other replicas at version", "schema: functions"]).await;
    // Roles of its own.
    let e = Plain::start().await;
    run(&e.client().await, "CREATE ROLE stranger").await;
    refused(&e, &["has roles that the cluster has not: stranger"]).await;
    run(&e.client().await, "DROP ROLE stranger").await;
    rows(&admin, &add(&e)).await;
    assert_identical(&admin).await;
    node.stop();
}

#[tokio::test]
async fn servers_that_ask_for_passwords_are_filled_and_filled_anew() {
    if !has_programs() {
        return;
    }
    let servers = Servers::start().await;
    let setup = Setup::new(&[], "");
    let more = Servers::password_file(&setup);
    let hba = "hba = [\"host all all 127.0.0.0/8 scram-sha-256\"]\nadmin_users = [\"postgres\"]";
    setup.write_urls(&servers.urls(), &format!("{more}\n{hba}"));
    let node = setup.serve(&[]).await;
    let app = log_in(&setup, "app", "postgres", PASSWORD).await.unwrap();
    run(&app, "INSERT INTO item SELECT generate_series(1, 100)").await;
    let admin = log_in(&setup, "postgres", "onecopy", "master").await.unwrap();
    let c = Plain::start().await;
    let direct = c.client().await;
    // The same password, which this server keeps in its own way.
    run(&direct, "ALTER ROLE postgres PASSWORD 'master'").await;
    ask_for_passwords(&c, &direct, "host").await;
    drop(direct);
    for order in [add(&c), "REBUILD REPLICA replica-3".to_owned()] {
        assert_eq!(rows(&admin, &order).await[0]["replica"], "replica-3");
        assert_identical(&admin).await;
        // The client's proof opens it, too.
        let reads = async || rows(&admin, "SHOW REPLICAS").await[2]["reads"].parse::<u64>().unwrap();
        let (before, deadline) = (reads().await, Instant::now() + WITHIN);
        let app = log_in(&setup, "app", "postgres", PASSWORD).await.unwrap();
        while reads().await == before {
            assert!(Instant::now() < deadline, "it serves no reads");
            assert_eq!(value(&app, "SELECT count(*) FROM item").await, "100");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    node.stop();
}
