//! The statements and the plans, as texts; and the binary forms, read back.

mod columns;
mod digests;
mod few;
mod outcome;
mod sandboxed;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::ids::{ClusterId, DatabaseId, Identity, PartId, ReplicaId, ServiceId, Version};
use crate::placement::{Copies, Holdings, Placement, ReplicaSet};
use crate::record::{Header, Record, RecordBuilder, RowChange, RowParts, Sequence, Statement};

const INT: u32 = 23;
const TEXT: u32 = 25;
const MOOD: u32 = 16999;

fn column(name: &str, type_oid: u32) -> RefreshColumn {
    RefreshColumn {
        name: format!("\"{name}\""),
        type_oid,
        form: Form::Binary,
        array_oid: Some(type_oid + 1000),
        equals: "OPERATOR(pg_catalog.=)".to_owned(),
        written: Written::Always,
    }
}

fn table(id: u32, primary_key: &[usize], other_unique: bool) -> RefreshTable {
    RefreshTable {
        id: DatabaseId::FIRST.table(id),
        name: format!("\"s\".\"t{id}\""),
        columns: vec![column("a", INT), column("b", TEXT)],
        primary_key: primary_key.to_vec(),
        key_is_deferrable: false,
        other_unique: if other_unique { vec![1] } else { Vec::new() },
        code_path: None,
        sandbox: None,
    }
}

/// 1 has a key alone, 2 another unique index, 3 no key; 4 is like 1 with an identity and a generated column; the key of 5
/// is deferrable; that of 6 may have several forms; that of 7 is of two columns.
fn tables() -> RefreshTables {
    let mut tables = RefreshTables::default();
    tables.insert(table(1, &[0], false));
    tables.insert(table(2, &[0], true));
    tables.insert(table(3, &[], false));
    let mut identity = table(4, &[0], false);
    identity.columns[0].written = Written::AtInsert;
    identity.columns.push(RefreshColumn { written: Written::Never, ..column("g", INT) });
    tables.insert(identity);
    tables.insert(RefreshTable { key_is_deferrable: true, ..table(5, &[0], false) });
    let mut array = table(6, &[0], false);
    array.columns[0].array_oid = None;
    tables.insert(array);
    tables.insert(table(7, &[0, 1], false));
    tables
}

fn image(columns: &[(u32, Option<&[u8]>)]) -> Vec<u8> {
    let mut bytes = i32::try_from(columns.len()).unwrap().to_be_bytes().to_vec();
    for (oid, value) in columns {
        bytes.extend_from_slice(&oid.to_be_bytes());
        match value {
            None => bytes.extend_from_slice(&(-1i32).to_be_bytes()),
            Some(value) => {
                bytes.extend_from_slice(&i32::try_from(value.len()).unwrap().to_be_bytes());
                bytes.extend_from_slice(value);
            }
        }
    }
    bytes
}

/// A row of tables 1 to 3; for table 4 there is one more column.
fn row(table: u32, key: i32, text: &str) -> Vec<u8> {
    let key = key.to_be_bytes();
    let columns = [(INT, Some(&key[..])), (TEXT, Some(text.as_bytes())), (INT, Some(&key[..]))];
    image(if table == 4 { &columns } else { &columns[..2] })
}

/// `1 I 5a`, `1 U 5a 5b`, `1 D 5b`, `1 T`: table, operation, rows as key and text. `|` separates records.
fn records(script: &str) -> Vec<Record> {
    let one = |(at, part): (usize, &str)| {
        let mut builder = RecordBuilder::new(DatabaseId::FIRST);
        for change in part.split(',').map(str::trim).filter(|change| !change.is_empty()) {
            push(&mut builder, change);
        }
        let version = Version(at as u64 + 1);
        builder.finish(Header {
            cluster: ClusterId(1),
            identity: Identity::default(),
            first: version,
            last: version,
            database: DatabaseId::FIRST,
            service: ServiceId(0),
        })
    };
    script.split('|').enumerate().map(one).collect()
}

fn push(builder: &mut RecordBuilder, change: &str) {
    let words: Vec<&str> = change.split_whitespace().collect();
    let number: u32 = words[0].parse().unwrap();
    let image = |at: usize| {
        let (key, text) = words[at].split_at(words[at].find(|c: char| c.is_alphabetic()).unwrap());
        row(number, key.parse().unwrap(), text)
    };
    let table = DatabaseId::FIRST.table(number);
    match words[1] {
        "I" => builder.push_insert(table, &image(2)),
        "U" => builder.push_update(table, &image(2), &image(3)),
        "D" => builder.push_delete(table, &image(2)),
        "T" => builder.push_truncate(table),
        other => panic!("{other}"),
    }
    .unwrap();
}

fn shown(image: &[u8]) -> String {
    if image.is_empty() {
        return "-".to_owned();
    }
    let values: Vec<_> = Image::parse(image).unwrap().values().map(Option::unwrap).collect();
    let key = i32::from_be_bytes(values[0].try_into().unwrap());
    format!("{key}{}", std::str::from_utf8(values[1]).unwrap())
}

/// Without the columns that it updates.
fn name(kind: Kind) -> String {
    match kind {
        Kind::Update(_) => "Update".to_owned(),
        Kind::UpdateFew(count, _) => format!("UpdateFew({count})"),
        Kind::UpdateMany(_) => "UpdateMany".to_owned(),
        other => format!("{other:?}"),
    }
}

/// The kinds of the steps for so many new rows of table 1.
fn planned_over(tables: &RefreshTables, count: u32) -> Vec<String> {
    let images: Vec<_> = (0..count)
        .map(|key| {
            let key = key.to_be_bytes();
            let oid = |at: usize| {
                let column = &tables.table(DatabaseId::FIRST.table(1)).unwrap().columns[at];
                if column.form == Form::Text { TEXT } else { column.type_oid }
            };
            image(&[(oid(0), Some(&key)), (oid(1), Some(b"x"))])
        })
        .collect();
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    for image in &images {
        builder.push_insert(DatabaseId::FIRST.table(1), image).unwrap();
    }
    let record = builder.finish(*records("")[0].header());
    let steps = plan(tables, &Holdings::everything(), [record.items()]).unwrap();
    steps.iter().map(|step| format!("{step:?}").chars().take(200).collect()).collect()
}

fn columns(places: impl IntoIterator<Item = usize>) -> ColumnSet {
    places.into_iter().collect()
}

fn planned(script: &str) -> Vec<String> {
    planned_at(&Holdings::everything(), script)
}

fn planned_at(holdings: &Holdings, script: &str) -> Vec<String> {
    let records = records(script);
    shown_steps(&plan(&tables(), holdings, records.iter().map(Record::items)).unwrap())
}

fn shown_steps(steps: &[Step<'_>]) -> Vec<String> {
    let shown_rows = |rows: &[RowImages<'_>]| {
        let rows: Vec<_> = rows.iter().map(|row| format!("{} {}", shown(row.old), shown(row.new))).collect();
        rows.join(", ")
    };
    steps
        .iter()
        .map(|step| match step {
            Step::Execute { statement, rows } => {
                format!("{} {}: {}", statement.table.number, name(statement.kind), shown_rows(rows))
            }
            Step::CopyIn { table, rows } => format!("{} copy {}", table.number, rows.len()),
            Step::Truncate { tables } => {
                format!("truncate {:?}", tables.iter().map(|table| table.number).collect::<Vec<_>>())
            }
            Step::Sequence(sequence) => format!("sequence {}", sequence.id),
        })
        .collect()
}

#[test]
fn texts_of_statements() {
    let tables = tables();
    let text = |id: u32, kind: Kind| tables.table(DatabaseId::FIRST.table(id)).unwrap().sql(kind);
    for (id, kind, expected, types) in [
        (
            1,
            Kind::Insert,
            r#"INSERT INTO "s"."t1" ("a", "b") OVERRIDING SYSTEM VALUE VALUES ($1, $2)"#,
            vec![INT, TEXT],
        ),
        (
            1,
            Kind::Update(columns([1])),
            r#"UPDATE ONLY "s"."t1" AS t SET "b" = $1 WHERE t."a" OPERATOR(pg_catalog.=) $2"#,
            vec![TEXT, INT],
        ),
        (
            1,
            Kind::Delete,
            r#"DELETE FROM ONLY "s"."t1" AS t WHERE t."a" OPERATOR(pg_catalog.=) $1"#,
            vec![INT],
        ),
        (
            1,
            Kind::UpdateMany(columns([1])),
            r#"UPDATE ONLY "s"."t1" AS t SET "b" = u.c1 FROM unnest($1, $2) AS u(c1, c2) WHERE t."a" OPERATOR(pg_catalog.=) ANY (ARRAY[u.c2])"#,
            vec![TEXT + 1000, INT + 1000],
        ),
        (
            7,
            Kind::DeleteMany,
            r#"DELETE FROM ONLY "s"."t7" AS t USING unnest($1, $2) AS u(c1, c2) WHERE t."a" OPERATOR(pg_catalog.=) ANY (ARRAY[u.c1]) AND t."b" OPERATOR(pg_catalog.=) ANY (ARRAY[u.c2])"#,
            vec![INT + 1000, TEXT + 1000],
        ),
        (
            3,
            Kind::Delete,
            r#"DELETE FROM ONLY "s"."t3" AS t WHERE t.ctid = COALESCE((SELECT s.ctid FROM ONLY "s"."t3" AS s WHERE pg_catalog.record_image_eq(ROW(s."a", s."b"), ROW($1, $2)) LIMIT 1), (SELECT s.ctid FROM ONLY "s"."t3" AS s WHERE ROW(s."a", s."b")::pg_catalog.text OPERATOR(pg_catalog.=) ROW($1, $2)::pg_catalog.text LIMIT 1))"#,
            vec![INT, TEXT],
        ),
        (
            5,
            Kind::Delete,
            r#"DELETE FROM ONLY "s"."t5" AS t WHERE t.ctid = COALESCE((SELECT s.ctid FROM ONLY "s"."t5" AS s WHERE pg_catalog.record_image_eq(ROW(s."a", s."b"), ROW($1, $2)) AND s."a" OPERATOR(pg_catalog.=) $1 LIMIT 1), (SELECT s.ctid FROM ONLY "s"."t5" AS s WHERE ROW(s."a", s."b")::pg_catalog.text OPERATOR(pg_catalog.=) ROW($1, $2)::pg_catalog.text AND s."a" OPERATOR(pg_catalog.=) $1 LIMIT 1))"#,
            vec![INT, TEXT],
        ),
        (
            4,
            Kind::Insert,
            r#"INSERT INTO "s"."t4" ("a", "b") OVERRIDING SYSTEM VALUE VALUES ($1, $2)"#,
            vec![INT, TEXT],
        ),
        (
            1,
            Kind::KeepMany,
            r#"UPDATE ONLY "s"."t1" AS t SET "b" = t."b" FROM pg_catalog.unnest($1) AS u(c1) WHERE t."a" OPERATOR(pg_catalog.=) ANY (ARRAY[u.c1])"#,
            vec![INT + 1000],
        ),
        (
            4,
            Kind::Keep,
            r#"UPDATE ONLY "s"."t4" AS t SET "b" = t."b" WHERE t."a" OPERATOR(pg_catalog.=) $1"#,
            vec![INT],
        ),
        (4, Kind::CopyIn, r#"COPY "s"."t4" ("a", "b") FROM STDIN (FORMAT binary)"#, vec![]),
    ] {
        assert_eq!(text(id, kind), Sql { text: expected.to_owned(), types });
    }
}

#[test]
fn changes_of_a_key_are_folded() {
    for (script, expected) in [
        ("1 I 5a", vec!["1 Insert: - 5a"]),
        ("1 U 5a 5b | 1 U 5b 5c", vec!["1 Update: 5a 5c"]),
        ("6 U 5a 5b, 6 U 5b 5c | 6 U 5c 5d", vec!["6 Update: 5a 5c", "6 Update: 5c 5d"]),
        ("1 I 5a | 1 U 5a 5b", vec!["1 Insert: - 5b"]),
        ("1 I 5a | 1 D 5a", vec![]),
        ("1 D 5a | 1 I 5b", vec!["1 Update: 5a 5b"]),
        ("1 I 5a, 1 D 5a | 1 I 5c", vec!["1 Insert: - 5c"]),
        ("1 U 5a 6a | 1 U 6a 6b", vec!["1 Delete: 5a -", "1 Insert: - 6b"]),
        (
            "1 U 1a 1b, 1 U 2a 2b, 1 U 3a 3b, 1 D 4a, 1 D 5a, 1 D 6a",
            vec!["1 DeleteFew(3): 4a -, 5a -, 6a -", "1 UpdateFew(3): 1a 1b, 2a 2b, 3a 3b"],
        ),
        // An identity column that only an insert can write.
        ("4 U 5a 6a", vec!["4 Delete: 5a -", "4 Insert: - 6a"]),
        ("4 U 5a 5b", vec!["4 Update: 5a 5b"]),
    ] {
        assert_eq!(planned(script), expected, "{script}");
    }
}

#[test]
fn no_unique_index_is_in_the_way() {
    for (script, expected) in [
        ("2 U 5a 5b", vec!["2 Update: 5a 5b"]),
        // The text is unique: 7b comes after 5b is gone.
        ("2 U 5b 5c, 2 U 7a 7b", vec!["2 DeleteFew(2): 5b -, 7a -", "2 InsertFew(2): - 5c, - 7b"]),
        ("2 U 5a 6a, 2 D 6a", vec!["2 Delete: 5a -"]),
        (
            "2 I 1a, 2 I 2b, 2 I 3c, 2 I 4d, 2 I 5e, 2 I 6f, 2 I 7g, 2 I 8h, 2 D 9i",
            vec!["2 Delete: 9i -", "2 copy 8"],
        ),
    ] {
        assert_eq!(planned(script), expected, "{script}");
    }
}

#[test]
fn records_and_truncates_stay_apart_where_it_matters() {
    for (script, expected) in [
        ("3 U 5a 5b, 3 D 5b, 3 I 5b", vec!["3 Delete: 5a -", "3 Insert: - 5b"]),
        ("3 I 5a | 3 I 6a | 3 D 5a", vec!["3 InsertFew(2): - 5a, - 6a", "3 Delete: 5a -"]),
        ("1 I 1a, 1 T, 1 T, 2 T | 2 T, 1 I 1a", vec!["1 Insert: - 1a", "truncate [1, 2]", "1 Insert: - 1a"]),
    ] {
        assert_eq!(planned(script), expected, "{script}");
    }
}

#[test]
fn inside_a_record_the_order_of_capture_counts_for_nothing() {
    for (script, expected) in [
        ("1 U 5b 5c, 1 U 5a 5b", vec!["1 Update: 5a 5c"]),
        ("1 U 5b 5c, 1 I 5b", vec!["1 Insert: - 5c"]),
        ("1 D 5b, 1 U 5a 5b", vec!["1 Delete: 5a -"]),
        ("1 U 5a 5b, 1 U 5c 5d, 1 U 5b 5c", vec!["1 Update: 5a 5d"]),
        // The inner statement takes the row on to another key.
        ("1 U 6b 7b, 1 U 5b 6b", vec!["1 Delete: 5b -", "1 Insert: - 7b"]),
        ("3 U 5b 5c, 3 U 5a 5b", vec!["3 Delete: 5a -", "3 Insert: - 5c"]),
        // A deferrable key that is held twice: shifted, and swapped.
        ("5 U 1a 2a, 5 U 2b 3b", vec!["5 Delete: 1a -", "5 Delete: 2b -", "5 InsertFew(2): - 2a, - 3b"]),
        ("5 I 2b, 5 D 2a", vec!["5 Delete: 2a -", "5 Insert: - 2b"]),
        ("5 I 2b | 5 D 2b", vec!["5 Insert: - 2b", "5 Delete: 2b -"]),
    ] {
        assert_eq!(planned(script), expected, "{script}");
    }
}

/// The promotion of a lock: a transaction with an older snapshot may not overwrite the row.
#[test]
fn rows_written_as_they_were_are_written() {
    for (script, expected) in [
        ("1 U 5a 5a", vec!["1 Keep: 5a -"]),
        ("1 U 5a 5b, 1 U 5b 5a", vec!["1 Keep: 5a -"]),
        ("1 U 5a 5a | 1 U 5a 5b", vec!["1 Update: 5a 5b"]),
        ("1 U 5a 5b | 1 U 5b 5b", vec!["1 Update: 5a 5b"]),
        ("1 U 5a 5b | 1 U 5b 5a", vec!["1 Keep: 5a -"]),
        ("1 U 5a 5a, 1 D 5a", vec!["1 Delete: 5a -"]),
        ("1 U 5b 5b, 1 U 5a 5b", vec!["1 Update: 5a 5b"]),
        ("1 I 5a, 1 U 5a 5a, 1 D 5a", vec![]),
        ("1 I 5a | 1 U 5a 5a", vec!["1 Insert: - 5a"]),
        ("1 U 5a 5a, 1 U 6a 6a, 1 U 7a 7a", vec!["1 KeepMany: 5a -, 6a -, 7a -"]),
        ("3 U 5a 5a, 3 U 5a 5a", vec!["3 Delete: 5a -", "3 Insert: - 5a"]),
        ("3 U 5b 5b, 3 U 5a 5b", vec!["3 Delete: 5a -", "3 Insert: - 5b"]),
        (
            "3 U 5b 5b, 3 U 5b 5c | 3 U 5c 5d",
            vec!["3 Delete: 5b -", "3 Insert: - 5c", "3 Delete: 5c -", "3 Insert: - 5d"],
        ),
    ] {
        assert_eq!(planned(script), expected, "{script}");
    }
}

#[test]
fn images_that_do_not_fit_are_rejected() {
    let error = |script: &str| {
        let records = records(script);
        plan(&tables(), &Holdings::everything(), records.iter().map(Record::items)).unwrap_err()
    };
    assert_eq!(error("9 T"), RefreshError::UnknownTable { table: DatabaseId::FIRST.table(9) });
    assert!(matches!(error("1 I 5a | 1 I 5b, 1 D 7a"), RefreshError::Inconsistent { .. }));
    assert!(matches!(error("1 D 5a | 1 U 5a 5b"), RefreshError::Inconsistent { .. }));

    let table = table(1, &[0], false);
    let wrong_width = image(&[(INT, None)]);
    assert!(matches!(table.values(&wrong_width), Err(RefreshError::OtherColumns { .. })));
    let wrong_type = image(&[(INT, None), (INT, None)]);
    assert!(matches!(table.values(&wrong_type), Err(RefreshError::OtherColumns { .. })));
    assert!(matches!(table.values(b"x"), Err(RefreshError::BadImage { .. })));

    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_statement(&Statement::default()).unwrap();
    let record = builder.finish(*records("")[0].header());
    assert_eq!(plan(&tables(), &Holdings::everything(), [record.items()]), Err(RefreshError::Statement));
}

#[test]
fn user_types_have_other_numbers_elsewhere() {
    let mut table = table(1, &[0], false);
    table.columns[1].type_oid = MOOD;
    assert!(table.values(&image(&[(INT, None), (MOOD + 5, None)])).is_ok());
    assert!(table.values(&image(&[(INT, None), (TEXT, None)])).is_err());
}

#[test]
fn rows_of_tables_that_the_replica_does_not_hold_are_left_out() {
    let mut placement = Placement::full(2);
    placement.restrict(DatabaseId::FIRST.table(2), Copies::Whole(ReplicaSet::first(1)));
    let script = "1 I 1a, 2 I 1a, 3 I 1a | 2 T, 2 I 2a | 2 U 2a 2b, 1 U 1a 1b";
    assert_eq!(planned_at(&placement.holdings(ReplicaId(0)), script), planned(script));
    let held = planned("1 I 1a, 3 I 1a | 1 U 1a 1b");
    assert_eq!(planned_at(&placement.holdings(ReplicaId(1)), script), held);
    assert!(planned_at(&placement.holdings(ReplicaId(1)), "2 T").is_empty());
    // A table that no server knows any more is of no concern where it is not held.
    placement.restrict(DatabaseId::FIRST.table(99), Copies::Whole(ReplicaSet::first(1)));
    assert!(planned_at(&placement.holdings(ReplicaId(1)), "99 I 1a").is_empty());
}

#[test]
fn a_row_that_moves_between_parts_comes_and_goes() {
    let mut placement = Placement::full(3);
    let only = |replica| ReplicaSet::EMPTY.with(ReplicaId(0)).with(ReplicaId(replica));
    placement.restrict(
        DatabaseId::FIRST.table(1),
        Copies::Parts { column: "k".into(), holders: [only(1), only(2)].into() },
    );
    let plain = records("1 U 1a 2a, 1 I 3b, 1 D 4c, 1 T");
    let parts = |old: Option<u8>, new: Option<u8>| RowParts { old: old.map(PartId), new: new.map(PartId) };
    let parts = [parts(Some(0), Some(1)), parts(None, Some(0)), parts(Some(1), None), RowParts::default()];
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    for (row, parts) in plain[0].row_changes().zip(parts) {
        builder.push_change(RowChange { parts, ..row }).unwrap();
    }
    let record = builder.finish(*plain[0].header());
    let planned_at = |replica| {
        let holdings = placement.holdings(ReplicaId(replica));
        assert!(holdings.must_apply(&record));
        shown_steps(&plan(&tables(), &holdings, [record.items()]).unwrap())
    };
    assert_eq!(planned_at(0), planned("1 U 1a 2a, 1 I 3b, 1 D 4c, 1 T"));
    assert_eq!(planned_at(1), planned("1 D 1a, 1 I 3b, 1 T"));
    assert_eq!(planned_at(2), planned("1 I 2a, 1 D 4c, 1 T"));
}

#[test]
fn sequences_pass_through() {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let sequence = Sequence { value: 7, called: true, ..Sequence::default() };
    builder.push_sequence(&sequence).unwrap();
    let record = builder.finish(*records("")[0].header());
    assert_eq!(
        plan(&tables(), &Holdings::everything(), [record.items()]),
        Ok(vec![Step::Sequence(sequence)])
    );
}

/// Takes a length and that many bytes off the front.
fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>().unwrap();
    *bytes = rest;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    let (value, rest) = bytes.split_at(length);
    *bytes = rest;
    Some(value)
}

proptest! {
    #[test]
    fn an_image_becomes_a_row_of_a_copy(values in vec((any::<bool>(), option::of(vec(any::<u8>(), 0..9))), 0..7)) {
        let mut table = table(1, &[], false);
        table.columns = values
            .iter()
            .map(|(generated, _)| RefreshColumn {
                written: if *generated { Written::Never } else { Written::Always },
                ..column("c", TEXT)
            })
            .collect();
        let columns: Vec<_> = values.iter().map(|(_, value)| (TEXT, value.as_deref())).collect();
        let mut out = Vec::new();
        copy_row(&table, &image(&columns), &mut out).unwrap();
        let expected: Vec<_> = values.iter().filter(|(generated, _)| !generated).map(|(_, v)| v.as_deref()).collect();
        let mut rest = &out[2..];
        prop_assert_eq!(&out[..2], i16::try_from(expected.len()).unwrap().to_be_bytes());
        for value in expected {
            prop_assert_eq!(take(&mut rest), value);
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn rows_become_arrays(texts in vec(option::of(vec(any::<u8>(), 0..9)), 1..20)) {
        let table = table(1, &[0], false);
        let images: Vec<_> = texts
            .iter()
            .zip(0_i32..)
            .map(|(text, at)| image(&[(INT, Some(&at.to_be_bytes()[..])), (TEXT, text.as_deref())]))
            .collect();
        let rows: Vec<_> = images.iter().map(|image| RowImages { old: image, new: image }).collect();
        let arrays = unnested(&table, Kind::UpdateMany(columns([0, 1])), &rows).unwrap();
        prop_assert_eq!(arrays.len(), 2);
        let has_null = i32::from(texts.iter().any(Option::is_none));
        for (array, oid, null) in [(&arrays[0], TEXT, has_null), (&arrays[1], INT, 0)] {
            let head: Vec<_> = array[..20].as_chunks::<4>().0.iter().map(|word| i32::from_be_bytes(*word)).collect();
            prop_assert_eq!(head, [1, null, oid.cast_signed(), i32::try_from(texts.len()).unwrap(), 1]);
        }
        let (mut values, mut keys) = (&arrays[0][20..], &arrays[1][20..]);
        for (text, at) in texts.iter().zip(0_i32..) {
            prop_assert_eq!(take(&mut values), text.as_deref());
            prop_assert_eq!(take(&mut keys), Some(&at.to_be_bytes()[..]));
        }
        prop_assert!(values.is_empty() && keys.is_empty());
    }
}

/// Values that travel as text are bound as such, a few rows at a time; those of an older record are bound as they are.
#[test]
fn values_that_travel_as_text_are_bound_as_text() {
    let mut own = table(9, &[1], false);
    own.columns[1] = RefreshColumn { form: Form::Text, array_oid: None, ..column("b", MOOD) };
    assert_eq!(own.sql(Kind::Insert).types, [INT, MOOD]);
    let bound = |oid, bytes: Option<&'static [u8]>| {
        let image = image(&[(INT, None), (oid, bytes)]);
        own.values(&image).map(|values| (values[1].bytes.map(<[u8]>::to_vec), values[1].format)).ok()
    };
    assert_eq!(bound(TEXT, Some(b"x")), Some((Some(b"x".to_vec()), Format::Text)));
    assert_eq!(bound(TEXT, None), Some((None, Format::Text)), "a type may have no binary form at all");
    assert_eq!(bound(MOOD + 7, Some(b"y")), Some((Some(b"y".to_vec()), Format::Binary)));
    assert_eq!(bound(INT, Some(&[0; 4])), None);
    let mut tables = RefreshTables::default();
    tables.insert(own);
    let images: Vec<Vec<u8>> = (0..20_u8)
        .map(|n| image(&[(INT, Some(&[0, 0, 0, n])), (TEXT, Some(n.to_string().as_bytes()))]))
        .collect();
    let mut record = RecordBuilder::new(DatabaseId::FIRST);
    for image in &images {
        record.push_insert(DatabaseId::FIRST.table(9), image).unwrap();
    }
    let record = record.finish(*records("")[0].header());
    let steps = plan(&tables, &Holdings::everything(), [record.items()]).unwrap();
    let inserted = |step: &Step<'_>| match step {
        Step::Execute { statement, rows } if statement.kind.is_insert() => rows.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(steps.iter().map(inserted).sum::<usize>(), 20);
}
