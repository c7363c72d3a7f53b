//! Statements for numbers of rows: when they are chosen, and what they say.

use super::super::*;
use super::{INT, TEXT, columns, image, planned, row, table, tables};
use crate::ids::DatabaseId;
use crate::placement::Holdings;

/// `count` changes of table 1: inserts, updates or deletes.
fn script(table: u32, operation: &str, count: usize) -> String {
    let change = |key: usize| match operation {
        "U" => format!("{table} U {key}a {key}b"),
        other => format!("{table} {other} {key}a"),
    };
    (0..count).map(change).collect::<Vec<_>>().join(", ")
}

/// The statements of a plan without their rows.
fn kinds(table: u32, operation: &str, count: usize) -> Vec<String> {
    let steps = planned(&script(table, operation, count));
    steps.into_iter().map(|step| step.split(':').next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn two_to_seven_rows_have_a_statement_for_their_number() {
    for (operation, one, many) in
        [("I", "Insert", "copy 8"), ("U", "Update", "UpdateMany"), ("D", "Delete", "DeleteMany")]
    {
        assert_eq!(kinds(1, operation, 1), [format!("1 {one}")]);
        for count in 2..=7 {
            assert_eq!(kinds(1, operation, count), [format!("1 {one}Few({count})")]);
        }
        assert_eq!(kinds(1, operation, 8), [format!("1 {many}")]);
    }
}

#[test]
fn rows_are_not_joined_where_their_key_tells_nothing() {
    // Without a key, with a deferrable one, and with one whose values cannot be elements of arrays.
    for number in [3, 5, 6] {
        assert_eq!(kinds(number, "D", 2), vec![format!("{number} Delete"); 2]);
        assert_eq!(kinds(number, "I", 2), [format!("{number} InsertFew(2)")]);
    }
    assert_eq!(kinds(6, "U", 2), ["6 Update", "6 Update"]);
}

#[test]
fn a_table_without_columns_to_write_gets_its_rows_one_by_one() {
    let mut own = table(1, &[], false);
    for column in &mut own.columns {
        column.written = Written::Never;
    }
    let mut tables = RefreshTables::default();
    tables.insert(own);
    let records = super::records("1 I 1a, 1 I 2b");
    let steps =
        plan(&tables, &Holdings::everything(), records.iter().map(crate::record::Record::items)).unwrap();
    assert_eq!(steps.len(), 2);
}

/// A server takes no message of more than a gigabyte.
#[test]
fn large_rows_are_cut_into_several_statements() {
    let text = vec![b'x'; 6 << 20];
    let images: Vec<_> =
        (0..5_i32).map(|key| image(&[(INT, Some(&key.to_be_bytes()[..])), (TEXT, Some(&text))])).collect();
    let mut record = crate::record::RecordBuilder::new(DatabaseId::FIRST);
    for image in &images {
        record.push_insert(DatabaseId::FIRST.table(1), image).unwrap();
    }
    let record = record.finish(*super::records("")[0].header());
    let steps = plan(&tables(), &Holdings::everything(), [record.items()]).unwrap();
    let counts: Vec<_> = steps
        .iter()
        .map(|step| match step {
            Step::Execute { statement, rows } => (statement.kind, rows.len()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(counts, [(Kind::InsertFew(2), 2), (Kind::InsertFew(2), 2), (Kind::Insert, 1)]);
}

#[test]
fn texts_say_each_row() {
    let tables = tables();
    let text = |id: u32, kind: Kind| tables.table(DatabaseId::FIRST.table(id)).unwrap().sql(kind);
    for (id, kind, expected, types) in [
        (
            1,
            Kind::InsertFew(2),
            r#"INSERT INTO "s"."t1" ("a", "b") OVERRIDING SYSTEM VALUE VALUES ($1, $2), ($3, $4)"#,
            vec![INT, TEXT, INT, TEXT],
        ),
        (
            1,
            Kind::UpdateFew(2, columns([1])),
            r#"UPDATE ONLY "s"."t1" AS t SET "b" = u.c1 FROM (VALUES ($1, $2), ($3, $4)) AS u(c1, c2) WHERE t."a" OPERATOR(pg_catalog.=) ANY (ARRAY[u.c2])"#,
            vec![TEXT, INT, TEXT, INT],
        ),
        (
            4,
            Kind::DeleteFew(3),
            r#"DELETE FROM ONLY "s"."t4" AS t USING (VALUES ($1), ($2), ($3)) AS u(c1) WHERE t."a" OPERATOR(pg_catalog.=) ANY (ARRAY[u.c1])"#,
            vec![INT, INT, INT],
        ),
    ] {
        assert_eq!(text(id, kind), Sql { text: expected.to_owned(), types });
    }
    // Their values stand in the same order.
    let (old, new) = (row(1, 5, "a"), row(1, 5, "b"));
    let images = RowImages { old: &old, new: &new };
    let own = tables.table(DatabaseId::FIRST.table(1)).unwrap();
    let five = 5_i32.to_be_bytes();
    assert_eq!(
        images.values(own, Kind::UpdateFew(2, columns([1]))).unwrap(),
        [Value::binary(b"b"), Value::binary(&five)]
    );
    assert_eq!(images.values(own, Kind::InsertFew(2)).unwrap(), [Value::binary(&five), Value::binary(b"b")]);
    assert_eq!(images.values(own, Kind::DeleteFew(2)).unwrap(), [Value::binary(&five)]);
}
