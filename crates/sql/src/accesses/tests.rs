//! Accesses of statements over a small schema, and their conflicts.

use super::*;
use crate::DatabaseId;
use crate::catalogue::{
    Action, Catalogue, Column, ColumnDefault, Contents, Key, Reference, Table, Volatility,
};
use crate::{Analyzer, Body, Function, Limits, ViewDefinition};

const INT: u32 = 23;
const TEXT: u32 = 25;

fn column(name: &str, type_oid: u32) -> Column {
    Column {
        name: name.to_owned(),
        type_oid,
        type_mod: -1,
        collation_deterministic: true,
        ..Column::default()
    }
}

fn table(id: u32, name: &str, columns: &[(&str, u32)]) -> Table {
    Table {
        id: DatabaseId::FIRST.table(id),
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns: columns.iter().map(|(name, oid)| column(name, *oid)).collect(),
        primary_key: vec![0],
        keys: vec![Key { columns: vec![0], primary: true, unique: true, ..Key::default() }],
        ..Table::default()
    }
}

fn references(columns: &[usize], parent: u32, on_delete: Action) -> Reference {
    Reference {
        columns: columns.to_vec(),
        parent: DatabaseId::FIRST.table(parent),
        parent_columns: vec![0],
        on_delete,
        on_update: on_delete,
        deferrable: false,
        matches_full: false,
        period: false,
    }
}

/// `t(id, a, b, c text)`, `child(id serial, t_id -> t on delete cascade, n)`, `log(note)` without a key.
pub(super) fn catalogue() -> Catalogue {
    let t = table(1, "t", &[("id", INT), ("a", INT), ("b", INT), ("c", TEXT)]);
    let mut child = table(2, "child", &[("id", INT), ("t_id", INT), ("n", INT)]);
    child.columns[0].default = ColumnDefault::Sequence(Name::bare("child_id_seq"));
    child.references = vec![references(&[1], 1, Action::Cascade)];
    let log = Table { keys: Vec::new(), primary_key: Vec::new(), ..table(3, "log", &[("note", TEXT)]) };
    Catalogue::new(Contents {
        tables: vec![t, child, log],
        builtin_functions: vec![
            ("count".to_owned(), Volatility::Immutable),
            ("sum".to_owned(), Volatility::Immutable),
        ],
        views: vec![
            view("ones", "SELECT t.id, t.a AS x FROM public.t WHERE t.b = 1"),
            view("sums", "SELECT child.t_id, sum(child.n) AS total FROM public.child GROUP BY child.t_id"),
            view(
                "pairs",
                "SELECT ones.id, sums.total FROM public.ones LEFT JOIN public.sums ON sums.t_id = ones.id",
            ),
        ],
        user_functions: vec!["worth".to_owned()],
        functions: vec![Function {
            schema: "public".to_owned(),
            name: "worth".to_owned(),
            body: Body::Sql("select sum(n) from public.child where t_id = $1".to_owned()),
            ..Function::default()
        }],
        ..Contents::default()
    })
}

fn view(name: &str, definition: &str) -> ViewDefinition {
    ViewDefinition {
        schema: "public".to_owned(),
        name: name.to_owned(),
        definition: definition.to_owned(),
        ..ViewDefinition::default()
    }
}

/// The accesses of one statement with the constants in its text.
pub(super) fn accesses(text: &str) -> Accesses {
    bound(text, &[])
}

pub(super) fn bound(text: &str, parameters: &[Parameter<'_>]) -> Accesses {
    let mut analyzer = Analyzer::new(Limits::default());
    let script = analyzer.script(text.as_bytes(), true).unwrap();
    let part = &script.statements[0];
    let arguments = Arguments { text: text.as_bytes(), constants: &part.constants, parameters };
    part.statement.outline(&catalogue()).bind(&arguments)
}

pub(super) fn between(left: &str, right: &str, view: View) -> Option<Conflict> {
    conflict(&accesses(left), &accesses(right), &catalogue(), view)
}

#[test]
fn tables_are_read_written_and_claimed() {
    let read = accesses("select * from t");
    assert_eq!((read.reads.len(), read.writes.len(), read.unbounded), (1, 0, None));
    let delete = accesses("delete from t");
    let written: Vec<_> = delete.writes.iter().map(|write| write.table).collect();
    assert_eq!(
        written[..2],
        [DatabaseId::FIRST.table(1), DatabaseId::FIRST.table(2)],
        "the cascade is followed"
    );
    assert!(accesses("begin").is_empty());
    assert!(accesses("do $$ begin end $$").is_empty());
    assert_eq!(accesses("do $$ begin commit; end $$").unbounded, Some(Why::Kind("DO")));
    assert_eq!(accesses("select f(1)").unbounded, Some(Why::Function(Name::bare("f"))));
}

#[test]
fn conflicts_are_found() {
    let kind = |left, right| between(left, right, View::Rows).map(|found| found.kind);
    assert_eq!(kind("select * from t", "select * from t"), None);
    assert_eq!(kind("select * from t", "delete from t"), Some(Kind::ReadWrite { reader: Side::Left }));
    assert_eq!(kind("delete from t", "delete from child"), Some(Kind::WriteWrite));
    assert_eq!(kind("call p()", "select 1"), None);
    assert_eq!(kind("call p()", "select * from t"), Some(Kind::Unbounded));
}

/// What a statement touches, one line each.
fn shown(text: &str) -> Vec<String> {
    accesses(text).describe(&catalogue())
}

fn shows(text: &str, wanted: &[&str]) {
    assert_eq!(shown(text), wanted, "{text}");
}

#[test]
fn equalities_bound_rows() {
    shows("select a from t where id = 5", &["read t [id, a] {id = 5}"]);
    shows("select a from t where id = -5 and c = 'it''s'", &["read t [id, a, c] {id = -5, c = 'it''s'}"]);
    shows("select count(*) from t where 7 = a or a = 8", &["read t [a] {a = 7} or {a = 8}"]);
    shows(
        "select count(*) from t where a in (7, 8) and b = 1",
        &["read t [a, b] {a = 7, b = 1} or {a = 8, b = 1}"],
    );
    shows("select 1 from t where (a, b) = (1, 2)", &["read t [a, b] {a = 1, b = 2}"]);
    shows(
        "select 1 from t where (a, b) in ((1, 2), (3, 4))",
        &["read t [a, b] {a = 1, b = 2} or {a = 3, b = 4}"],
    );
    shows("select 1 from t where a = any ('{1,2}')", &["read t [a] {a = 1} or {a = 2}"]);
    shows("select 1 from t where a = any (array[1, 2]::int[])", &["read t [a] {a = 1} or {a = 2}"]);
    shows("select 1 from t where a is null", &["read t [a] {a = NULL}"]);
    shows("select 1 from t where a is not distinct from 4", &["read t [a] {a = 4}"]);
    shows("select 1 from t where a = null", &["read t [a] {a = NULL}"]);
    shows("select 1 from t where false and a = 1", &["read t [a] none"]);
    shows("select * from t where c = 'x'::text", &["read t * {c = 'x'}"]);
}

#[test]
fn whatever_is_not_understood_widens() {
    for text in [
        "select a from t where id <> 5",
        "select a from t where not id = 5",
        "select a from t where id = 5.5",
        "select a from t where id = 5 or a > 3",
        "select a from t where id + 0 = 5",
        "select a from t where id::text = '5'",
        "select a from t where id between 5 and 5",
        "select a from t where case when a = 1 then true else id = 5 end",
        "select a from t where id in (5, a)",
        "select a from t where id = a",
        "select a from t where coalesce(id, 5) = 5",
        "select a from t where (id = 5) is not true",
        "select a from t where id not in (5)",
        "select a from t where id = 1 + 1",
    ] {
        assert_eq!(accesses(text).reads[0].rows, Rows::All, "{text}");
    }
}

#[test]
fn large_statements_are_bounded() {
    let many = |count: usize, separator: &str, part: fn(usize) -> String| {
        (1..=count).map(part).collect::<Vec<_>>().join(separator)
    };
    let conjuncts = many(5_000, " and ", |n| format!("(a = {n} or b = {n})"));
    assert_eq!(accesses(&format!("select 1 from t where {conjuncts}")).reads.len(), 1);
    let list = many(60_000, ", ", |n| format!("${n}"));
    assert_eq!(shown(&format!("select 1 from t where id in ({list})")), ["read t [id]"]);
    let rows = many(20_000, ", ", |n| format!("({n}, ${n})"));
    // Of the columns that are not given the values are known all the same.
    let insert = "insert t * {b = NULL, c = NULL} or {b = NULL, c = NULL}";
    assert_eq!(shown(&format!("insert into t (id, a) values {rows}")), [insert, "claim t(id)"]);
    let alternatives = many(20_000, " or ", |n| format!("id = {n}"));
    assert_eq!(shown(&format!("delete from child where {alternatives}"))[0], "read child [id]");
}

#[test]
fn values_are_carried_over_joins() {
    shows(
        "select n from t join child on t.id = t_id where t.id = 5",
        &["read t [id] {id = 5}", "read child [t_id, n] {t_id = 5}"],
    );
    shows(
        "select n from t, child where t.id = t_id and t_id in (5, 6)",
        &["read t [id] {id = 5} or {id = 6}", "read child [t_id, n] {t_id = 5} or {t_id = 6}"],
    );
}

/// Every statement of `tests/statements.txt` with what its template touches. Run with `UPDATE_GOLDEN=1` to write it
/// anew, then read the difference.
#[test]
fn templates_touch_what_is_written() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/accesses/tests/statements.txt");
    let golden = std::fs::read_to_string(path).unwrap();
    let mut fresh = String::new();
    for paragraph in golden.split_terminator("\n\n") {
        let text = paragraph.lines().next().unwrap();
        let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
        let outline = script.statements[0].statement.outline(&catalogue());
        let lines = outline.describe(&catalogue()).into_iter().map(|line| format!("    {line}\n"));
        fresh += &format!("{text}\n{}\n", lines.collect::<String>());
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &fresh).unwrap();
    } else {
        assert_eq!(golden, fresh);
    }
}

fn text(type_oid: u32, value: &str) -> Parameter<'_> {
    Parameter { type_oid, value: Some(value.as_bytes()), binary: false }
}

fn rows(text: &str, parameters: &[Parameter<'_>]) -> Vec<String> {
    bound(text, parameters).describe(&catalogue())
}

#[test]
fn parameters_are_values_if_their_types_are_known() {
    let by_a = "select 1 from t where a = $1";
    let binary = |type_oid, value| Parameter { type_oid, value: Some(value), binary: true };
    for five in [text(0, "5"), text(INT, " 5 "), text(20, "5"), binary(0, &[0, 0, 0, 5]), binary(21, &[0, 5])]
    {
        assert_eq!(rows(by_a, &[five]), ["read t [a] {a = 5}"], "{five:?}");
    }
    let null = Parameter { type_oid: 0, value: None, binary: false };
    assert_eq!(rows(by_a, &[null]), ["read t [a] none"]);
    for other in [text(1700, "5"), text(701, "5"), text(TEXT, "5"), text(0, "5.0"), binary(0, &[5])] {
        assert_eq!(rows(by_a, &[other]), ["read t [a]"], "{other:?}");
    }
    assert_eq!(rows(by_a, &[]), ["read t [a]"], "not given");
    let twice = "select 1 from t where a = $1 and b > $1 / 2.5";
    assert_eq!(rows(twice, &[text(0, "5")]), ["read t [a, b]"], "the server may take it for a numeric");
    assert_eq!(rows(twice, &[text(INT, "5")]), ["read t [a, b] {a = 5}"]);
}

#[test]
fn arrays_are_lists() {
    let any = "select 1 from t where a = any ($1)";
    let two = ["read t [a] {a = 1} or {a = 2}"];
    assert_eq!(rows(any, &[text(0, "{1,NULL,2}")]), two);
    assert_eq!(rows(any, &[text(1016, "{ 1 , 2 }")]), two);
    let words = |numbers: &[i32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let binary = words(&[1, 1, 23, 3, 1, 4, 1, -1, 4, 2]);
    assert_eq!(rows(any, &[Parameter { type_oid: 1007, value: Some(&binary), binary: true }]), two);
    assert_eq!(rows(any, &[text(0, "{}")]), ["read t [a] none"]);
    assert_eq!(rows(any, &[text(0, "{{1,2},{3,4}}")]), ["read t [a]"]);
    let many = format!("{{{}}}", (0..=MAX_MATCHES).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    assert_eq!(rows(any, &[text(0, &many)]), ["read t [a]"]);
}

#[test]
fn conflicts_are_as_fine_as_what_is_known() {
    let found = |left, right, view| between(left, right, view).map(|found| (found.kind, found.class));
    let rows = |left, right| found(left, right, View::Rows);
    let columns = |left, right| found(left, right, View::Columns);
    let key = Class::Key { table: DatabaseId::FIRST.table(1), key: 0 };
    let (one, other) = ("update t set a = 1 where id = 5", "update t set b = 2 where id = 5");
    assert_eq!(rows(one, other), Some((Kind::WriteWrite, key)));
    assert_eq!(columns(one, other), None);
    assert_eq!(rows(one, "update t set b = 2 where id = 6"), None);
    assert_eq!(rows(one, "select a from t where id = 6"), None);
    assert_eq!(rows(one, "select b from t where id = 5"), None, "another column");
    let a = Class::Columns { table: DatabaseId::FIRST.table(1), columns: ColumnSet::EMPTY.with(1) };
    assert_eq!(rows("select a from t", one), Some((Kind::ReadWrite { reader: Side::Left }, a)));
    assert_eq!(rows("select b from t where a = 1", one), Some((Kind::ReadWrite { reader: Side::Left }, a)));
    assert_eq!(rows("select b from t where a = 2", "update t set a = 1 where a = 3"), None);
    let insert = "insert into t (id) values (5)";
    assert_eq!(rows(insert, insert), Some((Kind::Integrity, key)));
    assert_eq!(rows(insert, "insert into t (id) values (6)"), None);
    assert_eq!(rows(insert, "select count(*) from t where a = 3"), None, "a is NULL in the new row");
    assert_eq!(rows(insert, "insert into child (t_id) values (5)"), Some((Kind::Integrity, key)));
    assert_eq!(rows("insert into child (t_id) values (5)", "insert into child (t_id) values (5)"), None);
    let child = Class::Key { table: DatabaseId::FIRST.table(2), key: 0 };
    let frees = rows("delete from t where id = 5", "insert into child (t_id) values (6)");
    assert_eq!(frees, Some((Kind::Integrity, child)), "the cascade may free any id");
    assert_eq!(rows("insert into log values ('x')", "insert into log values ('x')"), None);
    assert_eq!(rows("select 1 from t where id = 5 for update", other), Some((Kind::WriteWrite, key)));
    assert!(rows("lock table t", "select 1 from t where id = 3").is_some());
    assert!(rows("lock table ones", "select 1 from t where id = 3").is_some(), "below the view");
    assert_eq!(rows("lock table t in share mode", "select 1 from t where id = 3"), None);
}

/// PostgreSQL compares char(n) with varchar without the blanks of either, with text without its own only.
#[test]
fn trailing_blanks_beside_another_type_are_not_taken_for_known() {
    let shown = |text: &str| shown_under("create table s (c char(3), v varchar(3))", text);
    assert_eq!(shown("select c from s where c = 'a '::varchar"), "read s [c]");
    assert_eq!(shown("select v from s where v = 'a'::char(3)"), "read s [v]");
    assert_eq!(shown("select c from s where c = 'a'::varchar"), "read s [c] {c = 'a'}");
    assert_eq!(shown("select c from s where c = 'a '"), "read s [c] {c = 'a'}");
}

fn shown_under(schema: &str, text: &str) -> String {
    let catalogue = crate::Schema::from_ddl(schema).unwrap().catalogue();
    let mut analyzer = Analyzer::new(Limits::default());
    let script = analyzer.script(text.as_bytes(), true).unwrap();
    let part = &script.statements[0];
    let arguments = Arguments { text: text.as_bytes(), constants: &part.constants, parameters: &[] };
    part.statement.outline(&catalogue).bind(&arguments).describe(&catalogue).join("; ")
}

/// What is drawn at random is nobody else's, wherever it comes from; not so what users' functions of that name give.
#[test]
fn drawn_keys_are_fresh() {
    let schema = |default: &str| format!("create table u (id {default} primary key, n int)");
    for default in [
        "uuid default gen_random_uuid()",
        "uuid default pg_catalog.gen_random_uuid()",
        "uuid default uuidv7()",
        "text default gen_random_uuid()::text",
        "varchar(36) default gen_random_uuid()::varchar",
    ] {
        for text in ["insert into u (n) values (1)", "insert into u values (default, 1), (default, 2)"] {
            let shown = shown_under(&schema(default), text);
            assert!(shown.contains("claim u(id) {id = fresh}"), "{default}, {text}: {shown}");
        }
    }
    let plain = schema("uuid");
    for text in [
        "insert into u values (gen_random_uuid(), 1)",
        "insert into u (n, id) values (1, pg_catalog.gen_random_uuid())",
    ] {
        assert!(shown_under(&plain, text).contains("claim u(id) {id = fresh}"), "{text}");
    }
    let other = "create function gen_random_uuid() returns uuid language sql as 'select null::uuid';";
    for (schema, text) in [
        (schema("uuid default public.gen_random_uuid()"), "insert into u (n) values (1)"),
        (format!("{other} {}", schema("uuid default gen_random_uuid()")), "insert into u (n) values (1)"),
        (format!("{other} {plain}"), "insert into u values (gen_random_uuid(), 1)"),
        (schema("uuid default md5('x')::uuid"), "insert into u (n) values (1)"),
        (schema("uuid default uuidv7(interval '1 day')"), "insert into u (n) values (1)"),
        (schema("varchar(4) default gen_random_uuid()::varchar(4)"), "insert into u (n) values (1)"),
        (plain.clone(), "insert into u select gen_random_uuid(), 1"),
        (plain.clone(), "update u set id = gen_random_uuid()"),
        (plain, "insert into u values (random(), 1)"),
    ] {
        let shown = shown_under(&schema, text);
        assert!(!shown.contains("fresh"), "{schema}; {text}: {shown}");
    }
}
