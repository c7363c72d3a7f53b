//! What statements are said to read and to write, beside what captured rows claim.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::record::RecordBuilder;
use sql::accesses::Arguments;
use sql::{Action, Analyzer, Column, ColumnDefault, Contents, Key, Limits, Name, Reference, Table};

use super::super::claims::ClaimsSoFar;
use super::*;

const INT: u32 = 23;
const PARENT: TableId = TableId(1);
const CHILD: TableId = TableId(2);
const LOG: TableId = TableId(3);
const SERIAL: TableId = TableId(4);

/// `parent(id, mail unique)`, `child(id, p -> parent)`, `log(a, b)` without a key, `serial(id serial, v)`.
fn catalogue() -> Catalogue {
    let column = |name: &str| Column {
        name: name.to_owned(),
        type_oid: INT,
        type_mod: -1,
        collation_deterministic: true,
        ..Column::default()
    };
    let key = |at, primary| Key { columns: vec![at], primary, unique: true, ..Key::default() };
    let table = |id, name: &str, columns: [&str; 2]| Table {
        id,
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns: columns.map(column).to_vec(),
        primary_key: vec![0],
        keys: vec![key(0, true)],
        ..Table::default()
    };
    let mut parent = table(PARENT, "parent", ["id", "mail"]);
    parent.keys.push(key(1, false));
    (parent.other_unique, parent.foreign_keys) = (true, true);
    let mut child = table(CHILD, "child", ["id", "p"]);
    child.foreign_keys = true;
    child.references = vec![Reference {
        columns: vec![1],
        parent: PARENT,
        parent_columns: vec![0],
        on_delete: Action::NoAction,
        on_update: Action::NoAction,
        deferrable: false,
        matches_full: false,
        period: false,
    }];
    let mut log = table(LOG, "log", ["a", "b"]);
    (log.primary_key, log.keys) = (Vec::new(), Vec::new());
    let mut serial = table(SERIAL, "serial", ["id", "v"]);
    serial.columns[0].default = ColumnDefault::Sequence(Name::bare("serial_id_seq"));
    Catalogue::new(Contents { tables: vec![parent, child, log, serial], ..Contents::default() })
}

fn touched(text: &str) -> Accesses {
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
    let part = &script.statements[0];
    let arguments = Arguments { text: text.as_bytes(), constants: &part.constants, parameters: &[] };
    let accesses = part.statement.outline(&catalogue()).bind(&arguments);
    assert_eq!(accesses.unbounded, None, "{text}");
    accesses
}

/// Each time as of another transaction.
fn writes(text: &str) -> Claims {
    static OWN: AtomicU64 = AtomicU64::new(0);
    forecast(&touched(text), OWN.fetch_add(1, Ordering::Relaxed), &catalogue())
}

fn reads(text: &str) -> Footprint {
    footprint(&touched(text), &catalogue())
}

fn image(values: [i32; 2]) -> Vec<u8> {
    let mut image = 2_i32.to_be_bytes().to_vec();
    for value in values {
        image.extend([23, 4, value].map(i32::to_be_bytes).concat());
    }
    image
}

/// What captured rows claim.
fn captured(push: impl FnOnce(&mut RecordBuilder)) -> Claims {
    let mut builder = RecordBuilder::new();
    push(&mut builder);
    let claimed = ClaimsSoFar::default().complete(&builder.seal(), &catalogue());
    claimed.into_iter().next().map(|one| one.claims).unwrap_or_default()
}

/// Whether a read needs what the rows wrote.
fn needs(text: &str, written: &Claims) -> bool {
    let read = reads(text);
    let row =
        |(table, hash): &(TableId, u64)| read.tables.contains(table) || read.rows.contains(&(*table, *hash));
    let whole = |table: &TableId| read.all_tables().contains(table);
    written.rows.iter().any(row) || written.tables.iter().any(whole)
}

#[test]
fn a_read_by_any_key_needs_whoever_wrote_the_row() {
    let changed = captured(|b| b.push_update(PARENT, &image([1, 10]), &image([1, 11])).unwrap());
    for text in [
        "select * from parent where id = 1",
        "select * from parent where mail = 10",
        "select * from parent where mail = 11",
        "select * from parent where id in (5, 1)",
        "select * from parent where mail > 3",
        "select mail from parent",
        "select * from child, parent where child.p = parent.id and child.id = 7",
        "update parent set mail = 3 where id = 1",
        "insert into parent values (9, 10)",
        "insert into parent values (1, 99)",
        "insert into child values (5, 1)",
    ] {
        assert!(needs(text, &changed), "{text}");
    }
    for text in [
        "select * from parent where id = 2",
        "select * from parent where mail = 12",
        "select * from child where id = 1",
        "insert into parent values (2, 12)",
        "insert into child values (1, 2)",
        "insert into child values (1, null)",
        "insert into serial (v) values (1)",
    ] {
        assert!(!needs(text, &changed), "{text}");
    }
    assert!(needs(
        "select * from log where a = 1",
        &captured(|b| b.push_insert(LOG, &image([1, 1])).unwrap())
    ));
}

#[test]
fn many_rows_are_read_as_their_table() {
    let mut found = Footprint::default();
    found.rows.extend((0..=ROWS_READ_MAX as u64).map(|key| (PARENT, key)));
    settle(&mut found);
    assert_eq!((found.tables, found.rows), (vec![PARENT], Vec::new()));
}

#[test]
fn statements_that_write_one_row_meet_whatever_they_know_it_by() {
    let by_key = writes("update parent set mail = mail + 1 where id = 1");
    let both = writes("update parent set mail = 7 where id = 1 and mail = 3");
    let by_other = writes("update parent set mail = mail + 1 where mail = 3");
    assert!(by_key.overlaps(&both) && by_key.overlaps(&by_other) && by_other.tables == [PARENT]);
    assert!(!by_key.overlaps(&writes("update parent set mail = mail + 1 where id = 2")));
    let lock = writes("select * from parent where id = 1 for update");
    let share = writes("select * from parent where id = 1 for share");
    assert!(by_key.overlaps(&lock) && by_key.overlaps(&share) && lock.overlaps(&share));
    assert!(!share.overlaps(&share.clone()));
    assert_eq!(writes("select * from parent where mail = 3 for update").tables, [PARENT]);
    assert_eq!(writes("lock table parent in share mode").tables, [PARENT]);
    assert!(writes("select * from parent where id = 1").is_empty());
}

#[test]
fn unique_values_and_parents_meet() {
    let taken = writes("insert into parent values (1, 10)");
    assert!(taken.overlaps(&writes("insert into parent values (2, 10)")));
    assert!(taken.overlaps(&writes("update parent set mail = 10 where id = 7")));
    assert!(!taken.overlaps(&writes("insert into parent values (2, 11)")));
    let child = writes("insert into child values (5, 1)");
    assert!(child.overlaps(&writes("delete from parent where id = 1")));
    assert!(child.overlaps(&writes("select * from parent where id = 1 for update")));
    assert!(!child.overlaps(&writes("delete from parent where id = 2")));
    assert!(!child.overlaps(&writes("insert into child values (6, 1)")));
    // What keeps the key of a parent does not touch who relies on it.
    let beside = writes("update parent set mail = 12 where id = 1");
    assert!(!child.overlaps(&beside) && beside.tables.is_empty());
    assert!(child.overlaps(&writes("update parent set id = 9 where id = 1")));
}

#[test]
fn new_rows_meet_whoever_claims_their_table() {
    for text in ["insert into serial (v) values (1)", "insert into log values (1, 2)"] {
        let one = writes(text);
        assert!(one.tables.is_empty() && one.rows.len() == 1, "{text}: {one:?}");
        assert!(!one.overlaps(&writes(text)), "{text}");
        let table = one.rows[0].0;
        assert!(one.overlaps(&Claims { tables: vec![table], ..Claims::default() }), "{text}");
    }
    assert_eq!(writes("update log set b = 1 where a = 2").tables, [LOG]);
}

#[test]
fn a_forecast_meets_what_is_captured() {
    type Push = fn(&mut RecordBuilder);
    let pairs: [(&str, Push); 5] = [
        ("update parent set mail = 1 where id = 1", |b| {
            b.push_update(PARENT, &image([1, 10]), &image([1, 11])).unwrap();
        }),
        ("insert into parent values (2, 11)", |b| {
            b.push_update(PARENT, &image([1, 10]), &image([1, 11])).unwrap();
        }),
        ("insert into child values (5, 1)", |b| b.push_delete(PARENT, &image([1, 10])).unwrap()),
        ("delete from parent where id = 1", |b| b.push_insert(CHILD, &image([5, 1])).unwrap()),
        ("select * from parent where id = 1 for update", |b| b.push_insert(CHILD, &image([5, 1])).unwrap()),
    ];
    for (text, push) in pairs {
        assert!(writes(text).overlaps(&captured(push)), "{text}");
    }
}
