//! Whatever a batch of records did at home, in whatever order it was reported inside each, its plan does on a replica;
//! and no statement of it violates a unique index or concerns another number of rows than it says.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::*;
use super::{records, tables};
use crate::ids::DatabaseId;
use crate::placement::Holdings;
use crate::record::Record;

/// The row that a change leaves. Keys and texts are drawn from the free ones; `None` is a deletion.
#[derive(Clone, Debug)]
struct Move {
    row: Index,
    key: Index,
    text: Index,
    kind: u8,
    /// The row passes through this state on the way.
    between: Option<(i32, u8)>,
    place: Index,
}

fn moves() -> impl Strategy<Value = Vec<Vec<Move>>> {
    let between = proptest::option::of((0..6_i32, 0..8_u8));
    let one = (any::<Index>(), any::<Index>(), any::<Index>(), 0..4_u8, between, any::<Index>())
        .prop_map(|(row, key, text, kind, between, place)| Move { row, key, text, kind, between, place });
    vec(vec(one, 0..7), 1..4)
}

type Row = (i32, String);

fn text(number: u8) -> String {
    char::from(b'a' + number).to_string()
}

/// The rows after a record, and its changes in some order.
fn record(table: u32, rows: &mut Vec<Row>, moves: &[Move]) -> String {
    let before = rows.clone();
    let mut taken: Vec<(usize, &Move)> = Vec::new();
    for one in moves {
        if rows.is_empty() || one.kind == 0 {
            continue;
        }
        let at = one.row.index(rows.len());
        if taken.iter().all(|(other, _)| *other != at) {
            taken.push((at, one));
        }
    }
    let mut keys: Vec<i32> = (0..6).collect();
    let mut texts: Vec<String> = (0..8).map(text).collect();
    for (_, row) in before.iter().enumerate().filter(|(at, _)| taken.iter().all(|(other, _)| other != at)) {
        keys.retain(|key| *key != row.0);
        texts.retain(|text| *text != row.1);
    }
    let mut draw = |one: &Move| {
        let key = keys.remove(one.key.index(keys.len()));
        (key, texts.remove(one.text.index(texts.len())))
    };
    let mut changes = Vec::new();
    let mut after: Vec<Option<Row>> = before.iter().cloned().map(Some).collect();
    let mut say = |change: String, place: &Index| changes.insert(place.index(changes.len() + 1), change);
    let shown = |row: &Row| format!("{}{}", row.0, row.1);
    for (at, one) in taken {
        let mut old = before[at].clone();
        if let Some((key, other)) = one.between {
            let between = (key, text(other));
            say(format!("{table} U {} {}", shown(&old), shown(&between)), &one.row);
            old = between;
        }
        after[at] = (one.kind != 1).then(|| draw(one));
        match &after[at] {
            Some(new) => say(format!("{table} U {} {}", shown(&old), shown(new)), &one.place),
            None => say(format!("{table} D {}", shown(&old)), &one.place),
        }
    }
    rows.clear();
    rows.extend(after.into_iter().flatten());
    for one in moves.iter().filter(|one| one.kind == 0) {
        if rows.len() < 6 {
            let new = draw(one);
            say(format!("{table} I {}", shown(&new)), &one.place);
            rows.push(new);
        }
    }
    changes.join(", ")
}

fn read(image: &[u8]) -> Row {
    let values: Vec<_> = Image::parse(image).unwrap().values().map(Option::unwrap).collect();
    (i32::from_be_bytes(values[0].try_into().unwrap()), String::from_utf8(values[1].to_vec()).unwrap())
}

/// Does a statement's work on the rows of a replica.
fn apply(table: &RefreshTable, replica: &mut Vec<Row>, kind: Kind, rows: &[RowImages<'_>]) {
    let mut added = Vec::new();
    for row in rows {
        if !kind.is_insert() {
            let old = read(row.old);
            let same = |other: &Row| if table.has_key() { other.0 == old.0 } else { *other == old };
            let places: Vec<_> = (0..replica.len()).filter(|at| same(&replica[*at])).collect();
            assert!(
                places.len() == 1 || (!table.has_key() && !places.is_empty()),
                "{kind:?} of {old:?}: {replica:?}"
            );
            let old = replica.remove(places[0]);
            if matches!(kind, Kind::Keep | Kind::KeepMany) {
                added.push(old);
            }
        }
        if !row.new.is_empty() {
            added.push(read(row.new));
        }
        if !kind.is_unnesting() && !kind.is_few() {
            replica.append(&mut added);
        }
    }
    replica.append(&mut added);
    let distinct = |count: usize| assert_eq!(count, replica.len(), "a unique index objects: {replica:?}");
    if table.has_key() {
        distinct(replica.iter().map(|row| row.0).collect::<BTreeSet<_>>().len());
    }
    if !table.other_unique.is_empty() {
        distinct(replica.iter().map(|row| &row.1).collect::<BTreeSet<_>>().len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_replica_ends_as_home_did(batch in moves(), pieces in any::<bool>()) {
        for number in [1, 2, 3, 5] {
            let start: Vec<Row> = (0..4).zip(0..4).map(|(key, number)| (key, text(number))).collect();
            let (mut home, mut replica) = (start.clone(), start);
            let script: Vec<_> = batch.iter().map(|moves| record(number, &mut home, moves)).collect();
            let records = records(&script.join("|"));
            let tables = tables();
            let table = tables.table(DatabaseId::FIRST.table(number)).unwrap();
            let batches = if pieces { records.chunks(1) } else { records.chunks(records.len()) };
            for batch in batches {
                for step in plan(&tables, &Holdings::everything(), batch.iter().map(Record::items)).unwrap() {
                    match step {
                        Step::Execute { statement, rows } => apply(table, &mut replica, statement.kind, &rows),
                        Step::CopyIn { rows, .. } => {
                            let rows: Vec<_> = rows.iter().map(|new| RowImages { old: &[], new }).collect();
                            apply(table, &mut replica, Kind::Insert, &rows);
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
            }
            home.sort();
            replica.sort();
            prop_assert_eq!(replica, home, "table {}: {}", number, script.join(" | "));
        }
    }
}
