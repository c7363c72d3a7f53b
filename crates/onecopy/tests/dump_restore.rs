//! Promise: psql and `pg_restore` restore a dump of a rich schema through Onecopy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::plain::Plain;
use cluster::programs::{command, finish, program, psql, text};
use cluster::{Cluster, run, table};
use tokio_postgres::Client;

/// A schema with one of each kind of object that people have.
const SCHEMA: &str = include_str!("dump_restore/schema.sql");

/// Queries to compare the dumped server and the cluster with.
const ANSWERS: [&str; 6] = [
    "select n.nspname, c.relname, c.relkind, c.relrowsecurity, pg_get_userbyid(c.relowner), c.relacl::text, c.reloptions::text
     from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname in ('public', 'shop', 'audit') and c.relkind not in ('i', 'I') order by 1, 2",
    "select indexdef from pg_indexes where schemaname in ('public', 'shop', 'audit') order by 1",
    "select conrelid::regclass::text, conname, pg_get_constraintdef(c.oid) from pg_constraint c
     join pg_namespace n on n.oid = connamespace where nspname in ('public', 'shop', 'audit') order by 1, 2",
    "select sequencename, last_value, start_value, increment_by, cycle, data_type from pg_sequences
     where schemaname in ('public', 'shop', 'audit') order by 1",
    "select oid::regprocedure::text, prosrc from pg_proc where pronamespace::regnamespace::text in ('public', 'shop', 'audit')
     order by 1",
    "select (select count(*) from shop.orders), (select md5(string_agg(o::text, ',' order by id)) from shop.orders o),
     (select md5(string_agg(c::text, ',' order by id)) from shop.customer c),
     (select md5(string_agg(t::text, ',' order by t::text)) from shop.turnover t),
     (select count(*) from audit.entry), obj_description('shop.orders'::regclass)",
];

#[tokio::test]
async fn a_dump_is_restored() {
    let (plain, mut cluster) = (Plain::start().await, Cluster::start(3).await);
    let origin = plain.client().await;
    let made = psql(plain.port, &format!("\\set ON_ERROR_STOP on\n{SCHEMA}")).await;
    assert!(made.status.success(), "{}", text(&made));
    let client = cluster.client().await;
    // Roles are not in a dump of one database.
    run(&client, "create role shop_owner; create role clerk").await;
    let port = plain.port.to_string();
    let dump = |arguments: &'static [&'static str]| {
        let mut all = vec!["-h", "127.0.0.1", "-p", &port, "-U", "postgres"];
        all.extend(arguments);
        command(program("pg_dump").to_str().unwrap(), &all)
    };

    let plain_text = finish("pg_dump", dump(&["postgres"]).output()).await;
    assert!(plain_text.status.success(), "{}", text(&plain_text));
    let script = format!("\\set ON_ERROR_STOP on\n{}", String::from_utf8(plain_text.stdout).unwrap());
    let restored = psql(cluster.port, &script).await;
    assert!(restored.status.success(), "{}", text(&restored));
    assert_restored(&cluster, &origin, &client).await;

    // Once more over the existing objects, in one transaction, with INSERT instead of COPY.
    let cleaning =
        finish("pg_dump", dump(&["--clean", "--if-exists", "--column-inserts", "postgres"]).output()).await;
    let script =
        format!("\\set ON_ERROR_STOP on\nbegin;\n{}\ncommit;", String::from_utf8(cleaning.stdout).unwrap());
    let restored = psql(cluster.port, &script).await;
    assert!(restored.status.success(), "{}", text(&restored));
    assert_restored(&cluster, &origin, &client).await;

    // And from an archive, by several workers.
    let archive = cluster.folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    run(
        &client,
        "drop schema shop, audit cascade; drop domain email; drop extension hstore, pg_trgm, citext",
    )
    .await;
    let mut archiving = dump(&["-Fc", "postgres"]);
    let dumped = finish("pg_dump", archiving.args(["-f", archive]).output()).await;
    assert!(dumped.status.success(), "{}", text(&dumped));
    let port = cluster.port.to_string();
    let arguments =
        ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-d", "postgres", "-j", "3", "-e", archive];
    let restored =
        finish("pg_restore", command(program("pg_restore").to_str().unwrap(), &arguments).output()).await;
    assert!(restored.status.success(), "{}", text(&restored));
    assert_restored(&cluster, &origin, &client).await;
    cluster.stop().await;
}

async fn assert_restored(cluster: &Cluster, origin: &Client, client: &Client) {
    for query in ANSWERS {
        assert_eq!(table(client, query).await, table(origin, query).await, "{query}");
    }
    cluster.verify().await;
    // It lives: triggers, references, sequences, views.
    run(
        client,
        "begin; insert into shop.orders (customer, at, state) values (1, '2026-03-01', 'new');
         update shop.customer set name = name || '!' where id = 2; rollback",
    )
    .await;
}

/// It has the commands for a dump without Onecopy's own objects.
const PAGE: &str = include_str!("../../../docs/how-to/migrate.md");

/// Their names, and the ports that a reader puts in place of.
const DUMP_BEGINS: &str = "export PGHOST=";
const DUMP_ENDS: &str = "shop.dump\n\n";

/// The commands of the page, with these ports.
fn commands_of_the_page(ours: u16, other: u16) -> String {
    let begin = PAGE.find(DUMP_BEGINS).expect("the page says how to dump");
    let end = PAGE[begin..].find(DUMP_ENDS).expect("and how to restore") + DUMP_ENDS.len();
    let said = PAGE[begin..begin + end].replace("PGPORT=6432", &format!("PGPORT={ours}"));
    format!("set -e\n{}", said.replace("PGPORT=5432", &format!("PGPORT={other}")))
}

/// The other way round: a dump of the database behind Onecopy, without Onecopy's own objects.
#[tokio::test]
async fn a_dump_of_a_cluster_is_restored() {
    let (plain, mut cluster) = (Plain::start().await, Cluster::start(2).await);
    let made = psql(cluster.port, &format!("\\set ON_ERROR_STOP on\n{SCHEMA}")).await;
    assert!(made.status.success(), "{}", text(&made));
    let (origin, client) = (cluster.client().await, plain.client().await);
    // Objects whose names only resemble those of Onecopy are in the dump.
    run(
        &origin,
        "create table onecopy_notes (id int primary key, text text);
         insert into onecopy_notes values (1, ' TRIGGER public t !onecopy postgres');
         create function noted() returns trigger language plpgsql as 'begin return new; end';
         create trigger onecopy_noted before insert on onecopy_notes for each row execute function noted()",
    )
    .await;
    let programs = program("pg_dump").parent().unwrap().display().to_string();
    let shell = async |commands: &str| {
        let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
        let mut sh = command("sh", &["-c", commands]);
        let ended = finish("sh", sh.current_dir(cluster.folder.path()).env("PATH", path).output()).await;
        assert!(ended.status.success(), "{}", text(&ended));
        text(&ended)
    };
    let said = shell(&commands_of_the_page(cluster.port, plain.port)).await;
    // The superuser is there already.
    let errors: Vec<&str> = said.lines().filter(|line| line.contains("ERROR")).collect();
    assert!(errors.iter().all(|line| line.contains("role \"postgres\" already exists")), "{errors:?}");

    for query in ANSWERS {
        assert_eq!(table(&client, query).await, table(&origin, query).await, "{query}");
    }
    let notes = "select n.text, g.tgname from onecopy_notes n, pg_trigger g where g.tgname !~ '^!' and g.tgrelid = 'onecopy_notes'::regclass";
    assert_eq!(table(&client, notes).await, table(&origin, notes).await);
    let ours = "select count(*) from (select from pg_namespace where nspname like 'onecopy%' union all
         select from pg_trigger where tgname like '!onecopy%' union all select from pg_event_trigger) it";
    assert_eq!(table(&client, ours).await, [["0"]]);
    // The same list restores it through Onecopy.
    run(
        &origin,
        "drop schema shop, audit cascade; drop domain email; drop extension hstore, pg_trgm, citext;
         drop table onecopy_notes; drop function noted()",
    )
    .await;
    shell(&format!(
        "PGHOST=127.0.0.1 PGPORT={} PGUSER=postgres pg_restore -e -L shop.list -d postgres shop.dump",
        cluster.port
    ))
    .await;
    assert_restored(&cluster, &client, &origin).await;
    // A database restored past Onecopy is not a replica.
    run(&client, "update shop.customer set name = name || '!' where id = 2").await;
    cluster.stop().await;
}
