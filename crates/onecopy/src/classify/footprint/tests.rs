//! Checks the reads and writes that statements announce, against the claims of captured rows.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::event::Reads;
use cluster::ids::{ReplicaId, Version};
use cluster::parts::version_index::{VersionIndex, Written};
use cluster::record::RecordBuilder;
use sql::accesses::Arguments;
use sql::{Action, Analyzer, Column, ColumnDefault, Contents, Key, Limits, Name, Reference, Table};

use super::*;
use crate::classify::prediction::is_forecast_complete;
use crate::writeset::claims::ClaimsSoFar;
use cluster::ids::DatabaseId;

const INT: u32 = 23;
const PARENT: TableId = DatabaseId::FIRST.table(1);
const CHILD: TableId = DatabaseId::FIRST.table(2);
const LOG: TableId = DatabaseId::FIRST.table(3);
const SERIAL: TableId = DatabaseId::FIRST.table(4);
const LINE: TableId = DatabaseId::FIRST.table(5);
const NOTE: TableId = DatabaseId::FIRST.table(6);

/// `parent(id, mail unique)`, `child(id, p -> parent)`, `log(a, b)` without a key, `serial(id serial, v)`,
/// `line(a, b, c)` with the key (a, b) and an index on c, `note(n, p -> parent)` without a key.
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
    let mut note = table(NOTE, "note", ["n", "p"]);
    (note.primary_key, note.keys, note.foreign_keys) = (Vec::new(), Vec::new(), true);
    note.references.clone_from(&child.references);
    let mut log = table(LOG, "log", ["a", "b"]);
    (log.primary_key, log.keys) = (Vec::new(), Vec::new());
    let mut serial = table(SERIAL, "serial", ["id", "v"]);
    serial.columns[0].default = ColumnDefault::Sequence(Name::bare("serial_id_seq"));
    let mut line = table(LINE, "line", ["a", "b"]);
    line.columns.push(column("c"));
    line.primary_key.push(1);
    (line.keys[0].columns, line.indexes) = (vec![0, 1], vec![vec![2]]);
    Catalogue::new(Contents { tables: vec![parent, child, log, serial, line, note], ..Contents::default() })
}

fn touched(text: &str) -> Accesses {
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
    let part = &script.statements[0];
    let arguments = Arguments { text: text.as_bytes(), constants: &part.constants, parameters: &[] };
    let accesses = part.statement.outline(&catalogue()).bind(&arguments);
    assert_eq!(accesses.unbounded, None, "{text}");
    accesses
}

/// Each call stands for another transaction.
fn writes(text: &str) -> Claims {
    static OWN: AtomicU64 = AtomicU64::new(0);
    forecast(&touched(text), OWN.fetch_add(1, Ordering::Relaxed), &catalogue())
}

fn reads(text: &str) -> Footprint {
    footprint(&touched(text), &catalogue())
}

fn image<const N: usize>(values: [i32; N]) -> Vec<u8> {
    let mut image = i32::try_from(N).unwrap().to_be_bytes().to_vec();
    for value in values {
        image.extend([23, 4, value].map(i32::to_be_bytes).concat());
    }
    image
}

/// The claims of captured rows.
fn captured(push: impl FnOnce(&mut RecordBuilder)) -> Claims {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    push(&mut builder);
    let claimed = ClaimsSoFar::default().complete(&builder.seal(), &catalogue());
    claimed.into_iter().next().map(|one| one.claims).unwrap_or_default()
}

/// Whether a read needs the writes of these rows.
fn needs(text: &str, written: &Claims) -> bool {
    let read = reads(text);
    let row =
        |(table, hash): &(TableId, u64)| read.tables.contains(table) || read.rows.contains(&(*table, *hash));
    let whole = |table: &TableId| read.all_tables().contains(table);
    written.rows.iter().chain(&written.groups).any(row) || written.tables.iter().any(whole)
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
    // An update that keeps the key of a parent does not conflict with its children.
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
    let note = writes("insert into note values (1, 2)");
    assert!(note.tables.is_empty() && !note.overlaps(&writes("insert into note values (3, 2)")), "{note:?}");
    assert!(
        note.overlaps(&writes("update note set n = 1"))
            && note.overlaps(&writes("delete from parent where id = 2"))
    );
    assert!(!note.overlaps(&writes("delete from parent where id = 3")));
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

/// Rows of small numbers, and conditions that determine some of their columns.
const DOMAIN: i32 = 2;

fn lines() -> impl Iterator<Item = [i32; 3]> {
    let all = || 0..DOMAIN;
    all().flat_map(move |a| all().flat_map(move |b| all().map(move |c| [a, b, c])))
}

/// A condition, and whether a row satisfies it.
type Condition = (String, Box<dyn Fn(&[i32; 3]) -> bool>);

fn conditions() -> Vec<Condition> {
    let mut found: Vec<Condition> = vec![
        ("true".to_owned(), Box::new(|_| true)),
        ("a in (0, 1)".to_owned(), Box::new(|_| true)),
        ("a = 0 or c = 1".to_owned(), Box::new(|row| row[0] == 0 || row[2] == 1)),
    ];
    for row in lines() {
        for mask in 1..8 {
            let columns: Vec<usize> = (0..3).filter(|at| mask >> at & 1 == 1).collect();
            let text = columns.iter().map(|at| format!("{} = {}", ["a", "b", "c"][*at], row[*at]));
            let text = text.collect::<Vec<_>>().join(" and ");
            if !found.iter().any(|(known, _)| *known == text) {
                found.push((text, Box::new(move |other| columns.iter().all(|at| row[*at] == other[*at]))));
            }
        }
    }
    found
}

#[test]
fn whoever_reads_a_group_needs_who_changed_a_row_of_it() {
    let mut met = [0, 0];
    for row in lines() {
        let other = [row[0], row[1], 1 - row[2]];
        let changes = [
            (captured(|b| b.push_insert(LINE, &image(row)).unwrap()), vec![row]),
            (captured(|b| b.push_delete(LINE, &image(row)).unwrap()), vec![row]),
            (captured(|b| b.push_update(LINE, &image(row), &image(other)).unwrap()), vec![row, other]),
        ];
        for (text, holds) in conditions() {
            for (claims, rows) in &changes {
                let must = rows.iter().any(&holds);
                let does = needs(&format!("select * from line where {text}"), claims);
                assert!(does || !must, "{text}, {rows:?}");
                met[usize::from(does && !must)] += 1;
            }
        }
    }
    assert!(met[0] > 5 * met[1], "what need not meet seldom does: {met:?}");
    let whole = captured(|b| b.push_insert(LINE, &image([1, 1, 1])).unwrap());
    assert!(
        !needs("select * from line where a = 0", &whole) && !needs("delete from line where c = 0", &whole)
    );
}

#[test]
fn statements_meet_in_their_groups() {
    let conditions = conditions();
    let verbs = ["update line set c = 7 where", "delete from line where", "select 1 from line where"];
    let text = |verb: usize, condition: &str| {
        let locks = if verb == 2 { " for update" } else { "" };
        format!("{} {condition}{locks}", verbs[verb])
    };
    for (one, holds) in &conditions {
        for (other, holds_too) in &conditions {
            let must = lines().any(|row| holds(&row) && holds_too(&row));
            for (verb, verb_too) in [(0, 0), (0, 1), (1, 2), (2, 2)] {
                let (mine, theirs) = (text(verb, one), text(verb_too, other));
                assert!(writes(&mine).overlaps(&writes(&theirs)) || !must, "{mine}; {theirs}");
            }
        }
    }
    for row in lines() {
        let insert = writes(&format!("insert into line values ({}, {}, {})", row[0], row[1], row[2]));
        for (text, _) in conditions.iter().filter(|(_, holds)| holds(&row)) {
            assert!(insert.overlaps(&writes(&format!("delete from line where {text}"))), "{text}, {row:?}");
        }
    }
}

#[test]
fn other_groups_are_not_waited_for() {
    let apart = [
        ("delete from line where a = 1", "delete from line where a = 2"),
        ("delete from line where a = 1", "insert into line values (2, 1, 1)"),
        ("delete from line where a = 1", "update line set c = 4 where a = 2 and b = 1"),
        ("select * from line where c = 1 for update", "insert into line values (2, 1, 2)"),
        ("select * from line where c = 1 for share", "select * from line where c = 1 for share"),
        ("insert into line values (2, 1, 1)", "insert into line values (2, 2, 1)"),
        ("update line set c = 4 where a = 2 and b = 1", "update line set c = 4 where a = 2 and b = 2"),
        ("delete from child where p = 1", "delete from child where p = 2"),
    ];
    for (one, other) in apart {
        let (mine, theirs) = (writes(one), writes(other));
        assert!(!mine.overlaps(&theirs) && mine.tables.is_empty(), "{one}: {mine:?}; {other}: {theirs:?}");
    }
    // Deleting a row makes new references to it wait. The keys of these rows are not known.
    assert_eq!(writes("delete from parent where mail = 1").tables, [PARENT]);
    assert_eq!(writes("update parent set id = 5 where mail = 1").tables, [PARENT]);
}

#[test]
fn locks_are_claimed_after_they_were_taken_as_before() {
    for text in [
        "select * from line where a = 1 for update",
        "select * from line where a = 1 for share",
        "select * from line where a = 1 and b = 2 for share",
        "select * from line where c = 1 for update",
    ] {
        let mut so_far = ClaimsSoFar::default();
        so_far.add(&sql::Claims::Tables(vec![LINE]), Some(&touched(text)), &catalogue());
        let taken = so_far.complete(&RecordBuilder::new(DatabaseId::FIRST).seal(), &catalogue());
        let mut taken = taken.into_iter().next().map(|one| one.claims).unwrap_or_default();
        let mut forecast = writes(text);
        for claims in [&mut taken, &mut forecast] {
            claims.groups.sort_unstable();
        }
        assert_eq!(taken, forecast, "{text}");
    }
}

#[test]
fn what_only_the_rows_tell_is_not_foreseen() {
    let is_forecast_complete = |text: &str| {
        let touched = touched(text);
        is_forecast_complete(&touched, || forecast(&touched, 0, &catalogue()), true, &catalogue())
    };
    for text in [
        "INSERT INTO parent VALUES (1, 2)",
        "INSERT INTO serial (v) VALUES (1)",
        "INSERT INTO child VALUES (1, 2)",
        "INSERT INTO log SELECT id, mail FROM parent",
        "UPDATE parent SET mail = 7 WHERE id = 1",
        "UPDATE child SET p = 2 WHERE id = 1",
        "UPDATE parent SET mail = mail + 1",
        "UPDATE line SET c = c + 1 WHERE a = 1",
        "DELETE FROM parent WHERE id = 1",
        "DELETE FROM parent WHERE mail = 1",
        "DELETE FROM child WHERE id = 1",
        "DELETE FROM line WHERE a = 1",
    ] {
        assert!(is_forecast_complete(text), "{text}");
    }
    for text in [
        "INSERT INTO parent SELECT a, b FROM log",
        "INSERT INTO child SELECT a, b FROM log",
        "INSERT INTO child SELECT 1, b FROM log",
        "INSERT INTO child SELECT a, 1 FROM log",
        "UPDATE parent SET mail = mail + 1 WHERE id = 1",
        "UPDATE parent SET mail = b FROM log WHERE id = 1 AND a = 1",
        "UPDATE child SET p = p + 1 WHERE id = 1",
    ] {
        assert!(!is_forecast_complete(text), "{text}");
    }
}

/// The index after a version that changed one row of `line` into another.
fn updated(old: [i32; 3], new: [i32; 3]) -> VersionIndex {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_update(LINE, &image(old), &image(new)).unwrap();
    let mut so_far = ClaimsSoFar::default();
    let claimed = so_far.complete(&builder.seal(), &catalogue());
    let changed = so_far.changed();
    let written = Written { tables: &[LINE], changed: &changed, everything: false };
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    index.assign(Version(1), ReplicaId(0), written, &claimed[0].claims);
    index
}

fn read_of(text: &str) -> Reads {
    Reads::Rows(reads(text).into())
}

#[test]
fn whoever_reads_columns_needs_who_changed_them() {
    // The values that a condition knows of a row.
    type Answer = fn(&[i32; 3]) -> Vec<i32>;
    let queries: [(&str, Answer); 7] = [
        ("select * from line where", |row| row.to_vec()),
        ("select a from line where", |row| vec![row[0]]),
        ("select b + c from line where", |row| vec![row[1] + row[2]]),
        ("select c from line where", |row| vec![row[2]]),
        ("select 1 from line where", |_| vec![1]),
        ("select greatest(line.c, 1) from line where", |row| vec![row[2].max(1)]),
        ("select x.a from (select * from line) x where", |row| vec![row[0]]),
    ];
    let mut met = [0, 0];
    let pairs = || lines().flat_map(|old| lines().map(move |new| (old, new))).filter(|(old, new)| old != new);
    let updates: Vec<_> = pairs().map(|(old, new)| (old, new, updated(old, new))).collect();
    for (condition, holds) in conditions() {
        for (query, answer) in &queries {
            let read = read_of(&format!("{query} {condition}"));
            for (old, new, index) in &updates {
                let told = |row: &[i32; 3]| holds(row).then(|| answer(row));
                let must = told(old) != told(new);
                let does = index.writer(&read) == Version(1);
                assert!(does || !must, "{query} {condition}: {old:?} to {new:?}");
                met[usize::from(!does)] += 1;
            }
        }
    }
    assert!(met[1] * 2 > met[0], "{met:?}");
}

#[test]
fn other_columns_are_not_waited_for() {
    let index = updated([1, 1, 1], [1, 1, 2]);
    for text in [
        "select a, b from line",
        "select 1 from line where a > 0",
        "select b from line where a = 1 and b = 1",
        "insert into line values (1, 1, 9)",
        "select child.id from child, line where child.p = line.a order by line.b",
    ] {
        assert_eq!(index.writer(&read_of(text)), Version::ZERO, "{text}");
    }
    for text in [
        "select a from line order by c",
        "select a from line group by a, c",
        "select line from line",
        "select a from line for update",
        "update line set a = 3 where b = 1",
        "delete from line where a = 1",
        "select (select c from line limit 1) from child",
        "select b from line where a = 1 and b = 1 union select c from line",
    ] {
        assert_eq!(index.writer(&read_of(text)), Version(1), "{text}");
    }
}
