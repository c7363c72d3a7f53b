//! Accesses of statements over a small schema, and their conflicts.

use super::*;
use crate::catalogue::{
    Action, Catalogue, Column, ColumnDefault, Contents, Key, Reference, Table, Volatility,
};
use crate::{Analyzer, Limits};

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
        id: TableId(id),
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
        parent: TableId(parent),
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
        builtin_functions: vec![("count".to_owned(), Volatility::Immutable)],
        ..Contents::default()
    })
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
    assert_eq!(written[..2], [TableId(1), TableId(2)], "the cascade is followed");
    assert!(accesses("begin").is_empty());
    assert_eq!(accesses("do $$ begin end $$").unbounded, Some(Why::Kind("DO")));
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
