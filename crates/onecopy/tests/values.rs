//! Promise: every value that its home accepts reaches every replica, or Onecopy refuses the statement before it logs anything.
//! This holds for every type, alone and in arrays, domains, composites and ranges, with a key and without.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use std::fmt::Write;

use cluster::{Cluster, run, table};
use tokio_postgres::{Client, NoTls};

const BUILTIN: &str = include_str!("../../testbed/workloads/values/builtin.txt");
const CONTRIB: &str = include_str!("../../testbed/workloads/values/contrib.txt");

/// Built-in types that allow no column, or have no value.
const NEVER: &str = "'gtsvector', 'pg_node_tree', 'pg_ndistinct', 'pg_dependencies', 'pg_mcv_list', \
    'pg_brin_bloom_summary', 'pg_brin_minmax_multi_summary'";

/// A type with expressions of its values; of some it is known that no other server takes them.
struct Values {
    extension: Option<&'static str>,
    name: &'static str,
    all: Vec<(&'static str, bool)>,
}

fn parse(text: &'static str) -> Vec<Values> {
    let (mut found, mut extension) = (Vec::<Values>::new(), None);
    for line in text.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) =
            line.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).filter(|n| !n.contains(' '))
        {
            extension = Some(name);
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            found.push(Values { extension, name, all: Vec::new() });
        } else {
            let (text, may_be_refused) = line.strip_prefix("! ").map_or((line, false), |rest| (rest, true));
            found.last_mut().expect("a type stands before its values").all.push((text, may_be_refused));
        }
    }
    found
}

/// The SQLSTATE of a statement that fails.
async fn refused(client: &Client, statement: &str) -> Option<String> {
    let error = client.batch_execute(statement).await.err()?;
    let error = error.as_db_error().unwrap_or_else(|| panic!("{statement}: {error}"));
    Some(format!("{} {}", error.code().code(), error.message()))
}

/// Columns of all these types in a table with a key and in one without; the types are not mixed with others.
struct Tables {
    name: &'static str,
    kinds: Vec<Values>,
    /// The failures.
    wrong: String,
}

impl Tables {
    async fn store(&mut self, client: &Client) {
        let columns: Vec<_> =
            self.kinds.iter().enumerate().map(|(at, kind)| format!("c{at} {}", kind.name)).collect();
        let (name, columns) = (self.name, columns.join(", "));
        run(client, &format!("create table {name} (k int primary key, {columns})")).await;
        run(client, &format!("create table {name}_keyless (k int, {columns})")).await;
        let mut k = 0;
        for at in 0..self.kinds.len() {
            for value in 0..self.kinds[at].all.len() {
                k += 1;
                self.insert(client, k, at, value).await;
            }
        }
        // Written as they are, moved, deleted; many at a time and one by one.
        for statement in [
            format!(
                "update {name} set c0 = c0 where k % 2 = 0; update {name} set k = k + 1000 where k % 3 = 0"
            ),
            format!(
                "update {name}_keyless set k = k + 1000 where k % 3 = 0; delete from {name}_keyless where k % 5 = 1"
            ),
            format!(
                "insert into {name} select * from {name}_keyless on conflict do nothing; delete from {name} where k % 7 = 0"
            ),
            format!("update {name} set k = k + 5000 where k = 1; delete from {name}_keyless where k = 2"),
        ] {
            if let Some(error) = refused(client, &statement).await {
                _ = writeln!(self.wrong, "{statement}: {error}");
            }
        }
    }

    async fn insert(&mut self, client: &Client, k: usize, at: usize, value: usize) {
        let (text, may_be_refused) = self.kinds[at].all[value];
        for table in [self.name.to_owned(), format!("{}_keyless", self.name)] {
            let Some(error) =
                refused(client, &format!("insert into {table} (k, c{at}) values ({k}, {text})")).await
            else {
                continue;
            };
            if may_be_refused && error.starts_with("0A000") {
                continue;
            }
            // A server of another release may not take it at all.
            let kind = self.kinds[at].name;
            if refused(client, &format!("select ({text})::{kind}")).await.is_none() {
                _ = writeln!(self.wrong, "{kind} {text}: {error}");
            }
        }
    }
}

/// Built-in types, and those of contrib modules that are installed.
async fn kinds(client: &Client) -> Vec<Values> {
    let builtin = parse(BUILTIN);
    let all = table(
        client,
        &format!(
            "select typname from pg_type where oid < 16384 and typtype in ('b', 'r', 'm') and typcategory <> 'A' \
             and typnamespace = 'pg_catalog'::regnamespace and typname !~ '^reg' and typname not in ({NEVER})"
        ),
    )
    .await;
    let known = |name: &str| builtin.iter().any(|values| values.name.trim_matches('"') == name);
    let uncovered: Vec<_> = all.iter().filter(|row| !known(&row[0])).collect();
    assert!(uncovered.is_empty(), "no values of {uncovered:?} are in the list");
    let mut kinds = builtin;
    for kind in parse(CONTRIB) {
        let extension = kind.extension.expect("an extension stands before its types");
        match refused(client, &format!("create extension if not exists {extension} cascade")).await {
            None => kinds.push(kind),
            Some(error) => cluster::folder::say(&format!("without {}: {error}", kind.name)),
        }
    }
    kinds
}

#[tokio::test]
async fn every_value_is_everywhere_or_refused_at_home() {
    let mut cluster = Cluster::start(2).await;
    let client = cluster.client().await;
    let kinds = kinds(&client).await;
    let columns: Vec<_> = kinds.iter().enumerate().map(|(at, kind)| format!("c{at} {}", kind.name)).collect();
    run(&client, &format!("create table probe ({})", columns.join(", "))).await;
    let as_text = table(
        &client,
        "select attname from pg_attribute join onecopy_capture.carried_types(array['probe'::regclass::oid]) on typ = atttypid \
         where attrelid = 'probe'::regclass",
    )
    .await;
    let (mut binary, mut text) = (Vec::new(), Vec::new());
    for (at, kind) in kinds.into_iter().enumerate() {
        let is_text = as_text.iter().any(|row| row[0] == format!("c{at}"));
        // Common types must stay cheap.
        assert!(
            !(is_text
                && ["int8", "numeric", "jsonb", "tsvector", "text[]", "citext", "hstore"]
                    .contains(&kind.name))
        );
        if is_text { &mut text } else { &mut binary }.push(kind);
    }
    for (name, kinds) in [("in_binary", binary), ("as_text", text)] {
        let mut tables = Tables { name, kinds, wrong: String::new() };
        tables.store(&client).await;
        assert!(tables.wrong.is_empty(), "{}", tables.wrong);
    }
    cluster.verify().await;
    inside_others(&client).await;
    under_any_settings(&cluster, &client).await;
    cluster.verify().await;
    as_an_earlier_release_left_it(&mut cluster).await;
    cluster.stop().await;
}

/// A type that is refused, or replicated as text, is so inside domains, composites, arrays of these and ranges, too.
async fn inside_others(client: &Client) {
    run(
        client,
        "create type part as (n int, q tsquery, c circle, x xml, j jsonb, d date, b bytea, f float8, m money, a text[]);
         create domain query as tsquery check (numnode(value) < 9); create domain document as json; create domain page as xml;
         create type zoned as range (subtype = timetz);
         create table nested (k int primary key, p part, ps part[], q query, j document, x page, z zoned, zs zoned[]);
         create table nested_keyless (k int, p part, ps part[], q query, j document, x page, z zoned, zs zoned[])",
    )
    .await;
    let part = |query: &str, circle: &str, xml: &str| {
        format!(
            "row(1, {query}, {circle}, {xml}, '{{\"a\": [1.50]}}', '0044-03-15 BC', '\\x00ff', 1::float8 / 3, 12.34::money, \
             array['', null, 'NULL', '\\', '\"'])::part"
        )
    };
    let plain = part("''", "'<(0,0),1>'", "'<a/>'");
    let kept = [
        format!("p) values (1, {plain}"),
        "p) values (2, null::part".to_owned(),
        "p) values (3, row(null, null, null, null, null, null, null, null, null, null)::part".to_owned(),
        format!("ps) values (4, array[{plain}, null]"),
        "q) values (5, plainto_tsquery('english', 'the')".to_owned(),
        "j) values (6, '[[]]'".to_owned(),
        "x) values (7, '<?xml version=\"1.0\" encoding=\"latin1\"?><a/>'".to_owned(),
        "z) values (8, zoned('00:00+15:59:59', '00:00-01', '(]')".to_owned(),
        "zs) values (9, array[zoned('00:00-01', null), 'empty']".to_owned(),
    ];
    let negative = "circle(point(0, 0), -1)";
    let lost = [
        format!("p) values (11, {}", part("''", negative, "null")),
        format!("p) values (12, {}", part("''", "null", "xmlelement(name a, chr(1))")),
        format!("p) values (13, {}", part("''", "null", "'<?xml version=\"1.0\" encoding=\"latin1\"?><a/>'")),
        format!("ps) values (14, array[{}]", part("''", negative, "null")),
        "j) values (15, (with recursive d(n, j) as (select 1, '1'::json union all select n + 1, json_build_array(j) from d \
         where n < 20000) select j from d where n = 20000)"
            .to_owned(),
        "x) values (16, xmlcomment(chr(1))".to_owned(),
        "z) values (17, zoned(timezone(interval '100 hours', '00:00+00'::timetz), null)".to_owned(),
        "zs) values (18, array[zoned(timezone(interval '16 hours', '00:00+00'::timetz), null)]".to_owned(),
    ];
    for name in ["nested", "nested_keyless"] {
        for values in &kept {
            run(client, &format!("insert into {name} (k, {values})")).await;
        }
        for values in &lost {
            let error = refused(client, &format!("insert into {name} (k, {values})")).await;
            assert!(
                error.as_deref().is_some_and(|error| error.starts_with("0A000")),
                "{name}: {values}: {error:?}"
            );
        }
        run(client, &format!("update {name} set q = 'a & b' where k < 4; delete from {name} where k = 9"))
            .await;
    }
}

/// Neither a client's settings nor its functions and casts decide how a value travels.
async fn under_any_settings(cluster: &Cluster, client: &Client) {
    run(
        client,
        "create role joe login; create schema joe authorization joe;
         create table told (k serial primary key, p part, c circle, x xml); grant all on told, told_k_seq to joe",
    )
    .await;
    let joe = log_in(cluster.port, "joe").await;
    run(
        &joe,
        "create type joe.pair as (c circle, n int);
         create function joe.to_text(joe.pair) returns text language sql as $$ select '(\"<(0,0),1>\",1)' $$;
         create function joe.of_text(text) returns joe.pair language sql as $$ select row(circle(point(0, 0), -1), 1)::joe.pair $$;
         create cast (joe.pair as text) with function joe.to_text(joe.pair) as implicit;
         create cast (text as joe.pair) with function joe.of_text(text) as implicit;
         create function joe.format(text, anyelement) returns text language sql as $$ select 'x' $$;
         create function joe.carried(anyelement, text) returns text language sql as $$ select 'x' $$;
         create table joe.pairs (k int primary key, p joe.pair)",
    )
    .await;
    run(&joe, "set search_path = joe, public, pg_catalog").await;
    let error = refused(&joe, "insert into pairs values (1, row(circle(point(0, 0), -1), 1))").await;
    assert!(error.as_deref().is_some_and(|error| error.starts_with("0A000")), "{error:?}");
    for setting in [
        "extra_float_digits = -15",
        "datestyle = 'German'",
        "intervalstyle = 'sql_standard'",
        "bytea_output = escape",
        "array_nulls = off",
        "xmloption = document",
        "timezone = '<+99>-99'",
        "default_text_search_config = 'simple'",
        "standard_conforming_strings = off",
        "xmlbinary = hex",
    ] {
        run(&joe, &format!("set {setting}")).await;
    }
    run(
        &joe,
        "insert into pairs values (2, row(circle(point(1.0 / 3, 0), 1e-300), 7));
         insert into told (p, c, x) values (row(1, '', circle(point(1.0 / 3, 2.0 / 3), 1), xmlparse(content 'a<b/>'), '{}',
             to_date('0044', 'YYYY BC'), decode('00ff', 'hex'), 1::float8 / 3, 12.34::numeric::money, array[null, 'NULL'])::part,
             circle(point(1.0 / 3, 2.0 / 3), 1), xmlparse(content 'a<b/>'));
         update told set c = c where k = 1",
    )
    .await;
}

/// The triggers are those of an earlier release, which knew of no text in old rows; they are replaced at the next start.
async fn as_an_earlier_release_left_it(cluster: &mut Cluster) {
    for replica in cluster.caught_up().await {
        let server = cluster.direct(&replica).await;
        run(
            &server,
            "alter event trigger onecopy_ddl disable;
             do $$
             declare
                 number text := (select split_part(encode(tgargs, 'escape'), '\\000', 1) from pg_trigger
                     where tgrelid = 'told'::regclass and tgname = '!onecopy');
             begin
                 execute format('create or replace trigger \"!onecopy\" after update or delete on told for each row '
                     'execute function onecopy_capture.cap(%L)', number);
                 execute format('create trigger \"!onecopy_insert\" after insert on told referencing new table as \"!new\" '
                     'for each statement execute function onecopy_capture.cap_inserted(%L)', number);
             end $$;
             alter table told enable always trigger \"!onecopy_insert\";
             alter event trigger onecopy_ddl enable always;
             delete from onecopy_capture.form",
        )
        .await;
    }
    cluster.stop().await;
    cluster.up_again().await;
    let client = cluster.client().await;
    run(
        &client,
        "insert into told (p) values (row(1, '', null, null, null, null, null, null, null, null)::part)",
    )
    .await;
    run(&client, "update told set c = '<(1,1),1>'; delete from told where k = 1").await;
    cluster.verify().await;
}

async fn log_in(port: u16, role: &str) -> Client {
    let settings = format!("host=127.0.0.1 port={port} user={role} dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}
