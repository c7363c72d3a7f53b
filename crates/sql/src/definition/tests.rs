//! Which changes concern which names, and which names statements use.

use super::*;
use crate::DatabaseId;
use crate::analyzer::{Analyzer, Limits};
use crate::catalogue::{Action, Contents, Draws, Parent, Reference, Table, ViewDefinition, Volatility};
use crate::script::Part;
use crate::statement::{Statement, Verb};
use std::sync::Arc;

fn statement(text: &str) -> Arc<Statement> {
    let mut analyzer = Analyzer::new(Limits { entries: 0, bytes: 0 });
    let script = analyzer.script(text.as_bytes(), true).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let Part { statement, .. } = &script.statements[0];
    Arc::clone(statement)
}

fn catalogue() -> Catalogue {
    let table = |id, name: &str, parents: &[u32]| Table {
        id: DatabaseId::FIRST.table(id),
        schema: "public".to_owned(),
        name: name.to_owned(),
        references: parents
            .iter()
            .map(|parent| Reference {
                columns: vec![0],
                parent: DatabaseId::FIRST.table(*parent),
                parent_columns: vec![0],
                on_delete: Action::NoAction,
                on_update: Action::NoAction,
                deferrable: false,
                matches_full: false,
                period: false,
            })
            .collect(),
        ..Table::default()
    };
    let view = ViewDefinition {
        schema: "public".to_owned(),
        name: "shown".to_owned(),
        definition: "SELECT * FROM child".to_owned(),
        ..ViewDefinition::default()
    };
    Catalogue::new(Contents {
        tables: vec![
            table(1, "parent", &[]),
            table(2, "child", &[1]),
            table(3, "leaf", &[]),
            table(4, "other", &[]),
            table(5, "drawing", &[]),
        ],
        drawing: vec![(DatabaseId::FIRST.table(5), Draws::FromSome)],
        user_types: vec!["mood".to_owned()],
        builtin_functions: vec![("lower".to_owned(), Volatility::Immutable)],
        parents: vec![Parent {
            schema: "public".to_owned(),
            name: "whole".to_owned(),
            leaves: vec![DatabaseId::FIRST.table(3)],
        }],
        views: vec![view],
        indexes: vec![("child_index".to_owned(), DatabaseId::FIRST.table(2))],
        user_functions: vec!["f".to_owned()],
        ..Contents::default()
    })
}

/// Tables, relations by names, functions by names; none for anything.
type Wanted = Option<(&'static [u32], &'static [&'static str], &'static [&'static str])>;

const CHANGES: &[(&str, Wanted)] = &[
    ("create table new (k int references parent)", Some((&[1], &["new", "parent"], &[]))),
    ("create table new (k int, parent int references new)", Some((&[], &["new"], &[]))),
    ("create table new (like other)", Some((&[], &["new"], &[]))),
    (
        "create table new (id serial, n int generated always as identity)",
        Some((&[], &["new", "new_id_seq", "new_n_seq"], &[])),
    ),
    ("create table new as select * from other", Some((&[], &["new"], &[]))),
    ("select * into new from other", Some((&[], &["new"], &[]))),
    ("create view new as select * from other", Some((&[], &["new"], &[]))),
    ("create sequence new", Some((&[], &["new"], &[]))),
    ("create unique index on other (k)", Some((&[4], &["other"], &[]))),
    ("create index on own (k)", Some((&[], &["own"], &[]))),
    ("alter table own add foreign key (k) references other", Some((&[4], &["other", "own"], &[]))),
    ("alter table other add column c int", Some((&[4], &["other"], &[]))),
    ("alter table other add foreign key (k) references parent", Some((&[1, 4], &["other", "parent"], &[]))),
    ("alter table parent drop constraint pkey", Some((&[1, 2], &["child", "parent"], &[]))),
    ("alter table other rename to renamed", Some((&[4], &["other", "renamed"], &[]))),
    ("alter table other rename column a to b", Some((&[4], &["other"], &[]))),
    ("drop table child", Some((&[1, 2], &["child", "parent"], &[]))),
    ("drop index child_index", Some((&[1, 2], &["child", "parent"], &[]))),
    ("drop trigger t on other", Some((&[4], &["other"], &[]))),
    ("create trigger t after insert on other execute function f()", Some((&[4], &["other"], &[]))),
    ("create function g() returns int language sql as 'select 1'", Some((&[], &[], &["g"]))),
    ("create type new as enum ('a')", Some((&[], &["new"], &[]))),
    ("create type new as (k int)", Some((&[], &["new"], &[]))),
    ("grant select on other to joe", Some((&[], &[], &[]))),
    ("comment on table other is 'x'", Some((&[], &[], &[]))),
    ("create role joe", Some((&[], &[], &[]))),
    // What has the name of something could take its place for some statement.
    ("create table other (k int)", None),
    ("create table s.other (k int)", None),
    ("create table own (k int)", None),
    ("create table f (k int)", None),
    ("create table mood (k int)", None),
    ("create table date (k int)", None),
    ("create view shown as select 1", None),
    ("create function f(int) returns int language sql as 'select 1'", None),
    ("create or replace function lower(int) returns int language sql as 'select 1'", None),
    ("create type other as enum ('a')", None),
    // Parts of others, and what goes with others.
    ("create table new partition of whole for values in (1)", None),
    ("create table new () inherits (other)", None),
    ("create table new (k int references whole)", None),
    ("create index on whole (k)", None),
    ("create index on leaf (k)", None),
    ("alter table whole attach partition other default", None),
    ("alter table other add column k int references unknown", None),
    ("alter table other drop column k cascade", None),
    ("alter table other alter column k type bigint", None),
    ("alter table other enable row level security", None),
    ("alter table other set schema s", None),
    ("alter table other owner to joe", None),
    ("create sequence new owned by other.k", None),
    ("drop table drawing", None),
    ("drop table child cascade", None),
    ("drop table unknown", None),
    ("drop index unknown", None),
    ("drop view shown", None),
    ("drop function f(int)", None),
    ("drop schema s cascade", None),
    ("drop type t cascade", None),
    ("create schema s", None),
    ("create materialized view new as select 1", None),
    ("create rule r as on insert to other do nothing", None),
    ("alter type t rename value 'a' to 'b'", None),
    ("alter type t add attribute a int", None),
    ("alter sequence s restart", None),
    ("create extension x", None),
    ("drop owned by joe", None),
    ("create domain new as int", None),
    ("create cast (int as text) with inout", None),
];

#[test]
fn changes_concern_what_they_define_anew() {
    let (catalogue, own) = (catalogue(), BTreeSet::from([of_relation("own")]));
    for (text, wanted) in CHANGES {
        let statement = statement(text);
        let Verb::Ddl(facts) = &statement.verb else { panic!("{text}: {:?}", statement.verb) };
        let found = facts.scope.redefined(&catalogue, &own);
        let wanted = wanted.map(|(tables, relations, functions)| {
            let relations = relations.iter().map(|name| of_relation(name));
            let mut names: Vec<u64> =
                relations.chain(functions.iter().map(|name| of_function(name))).collect();
            names.sort_unstable();
            (tables.iter().copied().map(|number| DatabaseId::FIRST.table(number)).collect::<Vec<_>>(), names)
        });
        assert_eq!(found.map(|found| (found.tables, found.names)), wanted, "{text}");
    }
}

#[test]
fn statements_use_what_they_reach() {
    let catalogue = catalogue();
    let uses = |text: &str| statement(text).routing(&catalogue).uses.clone();
    let relations = |names: &[&str]| {
        let mut numbers: Vec<u64> = names.iter().map(|name| of_relation(name)).collect();
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(uses("select * from other").relations, relations(&["other"]));
    assert_eq!(uses("select * from shown").relations, relations(&["child", "shown"]));
    assert_eq!(uses("insert into child values (1)").relations, relations(&["child", "parent"]));
    assert_eq!(uses("delete from parent").relations, relations(&["child", "parent"]));
    assert_eq!(uses("select * from whole").relations, relations(&["leaf", "whole"]));
    let mentioned = uses("select f(k) from other").mentioned;
    assert!(mentioned.contains(&of_function("f")) && mentioned.contains(&of_relation("other")));
    assert!(uses("select lower(k) from other").mentioned.contains(&of_function("lower")));
    assert!(uses("select o.full_name from other o").mentioned.contains(&of_function("full_name")));
}

#[test]
fn temporary_tables_touch_no_rows_of_others() {
    let catalogue = catalogue();
    let only_defines = |text: &str| statement(text).routing(&catalogue).only_defines;
    assert!(only_defines("drop table mine"));
    assert!(only_defines("create temp table mine (k int)"));
    assert!(only_defines("create temp table mine as select k from other"));
    assert!(!only_defines("create temp table mine as select f(k) from other"), "the function may write");
    assert!(!only_defines("create temp table mine as select k from other for update"));
    assert!(!only_defines(
        "create temp table mine as with w as (delete from other returning *) select * from w"
    ));
    assert!(!only_defines("create temp table mine as execute written"));
}
