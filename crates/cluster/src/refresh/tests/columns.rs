//! An update sends and writes what it changes.

use super::super::*;
use super::{INT, column, columns, image, records};
use crate::ids::DatabaseId;
use crate::placement::Holdings;
use crate::record::{Record, RecordBuilder};

const COLUMNS: usize = 70;

/// A key and 69 numbers.
fn wide() -> RefreshTables {
    let mut tables = RefreshTables::default();
    tables.insert(RefreshTable {
        id: DatabaseId::FIRST.table(1),
        name: "w".to_owned(),
        columns: (0..COLUMNS).map(|at| column(&format!("c{at}"), INT)).collect(),
        primary_key: vec![0],
        key_is_deferrable: false,
        other_unique: Vec::new(),
        code_path: None,
        sandbox: None,
    });
    tables
}

/// The row of a key in which these places have another value than the others.
fn row(key: i32, other: &[usize]) -> Vec<u8> {
    let value = |at: usize| if at == 0 { key } else { i32::from(other.contains(&at)) };
    let values: Vec<_> = (0..COLUMNS).map(|at| value(at).to_be_bytes()).collect();
    image(&values.iter().map(|value| (INT, Some(&value[..]))).collect::<Vec<_>>())
}

/// Updates of rows, from one set of places to the next.
fn updates(rows: &[(i32, &[&[usize]])]) -> Vec<Record> {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    for (key, states) in rows {
        for pair in states.windows(2) {
            builder
                .push_update(DatabaseId::FIRST.table(1), &row(*key, pair[0]), &row(*key, pair[1]))
                .unwrap();
        }
    }
    vec![builder.finish(*records("")[0].header())]
}

fn kinds(rows: &[(i32, &[&[usize]])]) -> Vec<Kind> {
    let (tables, records) = (wide(), updates(rows));
    plan(&tables, &Holdings::everything(), records.iter().map(Record::items))
        .unwrap()
        .into_iter()
        .map(|step| match step {
            Step::Execute { statement, .. } => statement.kind,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn unchanged_columns_are_not_sent() {
    assert_eq!(kinds(&[(7, &[&[], &[5]])]), [Kind::Update(columns([5]))]);
    // What counts is what was there first and is there last.
    assert_eq!(kinds(&[(7, &[&[5], &[5, 6], &[6]])]), [Kind::Update(columns([5, 6]))]);
    assert_eq!(kinds(&[(7, &[&[], &[5], &[6]])]), [Kind::Update(columns([6]))]);
}

#[test]
fn rows_go_together_by_the_columns_that_change() {
    let (one, other): (&[&[usize]], &[&[usize]]) = (&[&[], &[5]], &[&[], &[9, 10]]);
    assert_eq!(
        kinds(&[(1, one), (2, other), (3, one), (4, one)]),
        [Kind::UpdateFew(3, columns([5])), Kind::Update(columns([9, 10]))]
    );
}

#[test]
fn columns_past_the_set_go_together() {
    assert_eq!(kinds(&[(7, &[&[], &[65]])]), [Kind::Update(columns([69]))]);
    let (tables, changed) = (wide(), columns([65]));
    let (old, new) = (row(7, &[]), row(7, &[65]));
    let images = RowImages { old: &old, new: &new };
    let own = tables.table(DatabaseId::FIRST.table(1)).unwrap();
    let sql = own.sql(Kind::Update(changed)).text;
    assert!(
        sql.starts_with("UPDATE ONLY w AS t SET \"c63\" = $1, ") && sql.contains("\"c69\" = $7 WHERE"),
        "{sql}"
    );
    let values = images.values(own, Kind::Update(changed)).unwrap();
    let ones: Vec<_> = values.iter().map(|value| value.bytes.unwrap()[3]).collect();
    assert_eq!(ones, [0, 0, 1, 0, 0, 0, 0, 7]);
}

#[test]
fn texts_and_arrays_hold_these_columns_alone() {
    let (tables, some) = (wide(), columns([2, 4]));
    let own = tables.table(DatabaseId::FIRST.table(1)).unwrap();
    for (kind, start) in [
        (Kind::Update(some), "UPDATE ONLY w AS t SET \"c2\" = $1, \"c4\" = $2 WHERE t.\"c0\" "),
        (
            Kind::UpdateFew(2, some),
            "UPDATE ONLY w AS t SET \"c2\" = u.c1, \"c4\" = u.c2 FROM (VALUES ($1, $2, $3), ($4, $5, $6)) AS u(c1, c2, c3) ",
        ),
        (
            Kind::UpdateMany(some),
            "UPDATE ONLY w AS t SET \"c2\" = u.c1, \"c4\" = u.c2 FROM unnest($1, $2, $3) AS u(c1, c2, c3) ",
        ),
    ] {
        let text = own.sql(kind).text;
        assert!(text.starts_with(start), "{text}");
    }
    let (old, new) = (row(7, &[]), row(7, &[2]));
    let rows = [RowImages { old: &old, new: &new }];
    assert_eq!(unnested(own, Kind::UpdateMany(some), &rows).unwrap().len(), 3);
}

/// Updates cannot change it, but one record may delete a row and the next insert it again.
#[test]
fn a_table_that_no_update_can_write_has_its_rows_put_in_again() {
    let mut only = RefreshTable {
        columns: vec![column("a", INT)],
        ..wide().table(DatabaseId::FIRST.table(1)).unwrap().clone()
    };
    only.columns[0].written = Written::AtInsert;
    let mut tables = RefreshTables::default();
    tables.insert(only);
    let image = image(&[(INT, Some(&[0, 0, 0, 1]))]);
    let record = |change: fn(&mut RecordBuilder, &[u8])| {
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
        change(&mut builder, &image);
        builder.finish(*records("")[0].header())
    };
    let records = [
        record(|builder, image| builder.push_delete(DatabaseId::FIRST.table(1), image).unwrap()),
        record(|builder, image| builder.push_insert(DatabaseId::FIRST.table(1), image).unwrap()),
    ];
    let steps = plan(&tables, &Holdings::everything(), records.iter().map(Record::items)).unwrap();
    let kinds: Vec<_> = steps
        .iter()
        .map(|step| match step {
            Step::Execute { statement, .. } => statement.kind,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(kinds, [Kind::Delete, Kind::Insert]);
}
