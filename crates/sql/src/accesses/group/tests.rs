//! Which groupings tables have, and what accesses and rows say of them.

use super::super::{Equality, key_digest};
use super::*;
use crate::catalogue::{Action, Catalogue, Column, Contents, DatabaseId, Key, Reference};

const INT: u32 = 23;
const FLOAT: u32 = 701;

/// `line(a, b, c, d, e)` with the primary key (a, b, c), an index on (d, e), a reference by (b, d), a unique (e).
fn line(change: impl FnOnce(&mut Table)) -> Table {
    let column = Column { type_oid: INT, type_mod: -1, collation_deterministic: true, ..Column::default() };
    let key = |columns: &[usize], primary| Key {
        columns: columns.to_vec(),
        primary,
        unique: true,
        ..Key::default()
    };
    let mut table = Table {
        id: DatabaseId::FIRST.table(7),
        columns: vec![column; 5],
        primary_key: vec![0, 1, 2],
        keys: vec![key(&[0, 1, 2], true), key(&[4], false)],
        indexes: vec![vec![3, 4], vec![2, 1, 0]],
        references: vec![Reference {
            columns: vec![3, 1],
            parent: DatabaseId::FIRST.table(8),
            parent_columns: vec![0, 1],
            on_delete: Action::NoAction,
            on_update: Action::NoAction,
            deferrable: false,
            matches_full: false,
            period: false,
        }],
        other_unique: true,
        ..Table::default()
    };
    change(&mut table);
    let catalogue = Catalogue::new(Contents { tables: vec![table], ..Contents::default() });
    catalogue.table(DatabaseId::FIRST.table(7)).cloned().unwrap()
}

fn rows(alternatives: &[&[(usize, Value)]]) -> Rows {
    let equality = |(column, value): &(usize, Value)| Equality { column: *column, value: value.clone() };
    let matches = alternatives.iter().map(|one| Match::new(one.iter().map(equality).collect()));
    Rows::any_of(matches.collect())
}

fn row_of(table: &Table, values: [Option<i32>; 5]) -> Option<Vec<u64>> {
    let bytes = values.map(|value| value.map(i32::to_be_bytes));
    let row: Vec<Option<&[u8]>> = bytes.iter().map(|value| value.as_ref().map(<[u8; 4]>::as_slice)).collect();
    let mut found = Vec::new();
    row_groups(table, &row, &mut found).map(|()| found)
}

#[test]
fn groupings_are_what_statements_compare() {
    let found = line(|_| ()).groupings;
    assert_eq!(found, [vec![1, 3], vec![0, 1], vec![0], vec![4], vec![3, 4], vec![3], vec![1, 2], vec![2]]);
    assert_eq!(
        line(|t| t.columns[3].type_oid = FLOAT).groupings,
        [vec![0, 1], vec![0], vec![4], vec![1, 2], vec![2]]
    );
    assert!(line(|t| (t.primary_key, t.keys) = (Vec::new(), Vec::new())).groupings.is_empty());
    assert!(line(|t| t.keys[1].partial = true).groupings.is_empty());
    let many = line(|t| t.indexes = (0..5).flat_map(|a| (0..5).map(move |b| vec![a, b])).collect());
    assert_eq!(many.groupings.len(), GROUPINGS_MAX);
}

#[test]
fn a_row_tells_the_groups_by_which_accesses_know_it() {
    let table = line(|_| ());
    let int = |value: i32| Value::Int(value.into());
    let told = row_of(&table, [1, 2, 3, 4, 5].map(Some)).unwrap();
    assert_eq!(told.len(), table.groupings.len());
    for (known, by) in [
        (vec![(0, int(1))], 2),
        (vec![(0, int(1)), (1, int(2))], 1),
        (vec![(0, int(1)), (2, int(3))], 2),
        (vec![(3, int(4)), (1, int(2)), (0, int(1))], 0),
        (vec![(3, int(4))], 5),
        (vec![(4, int(5))], 3),
    ] {
        let found = groups(&rows(&[&known]), &table).unwrap();
        assert_eq!((found.grouping, found.numbers), (by, vec![told[by]]), "{known:?}");
    }
    assert_eq!(groups(&rows(&[&[(1, int(2))]]), &table), None, "nothing begins with it");
    assert_eq!(groups(&rows(&[&[(0, int(1))], &[(3, int(4))]]), &table), None, "each by another grouping");
    assert_eq!(groups(&rows(&[&[(0, Value::Null)]]), &table), None);
    assert_eq!(groups(&Rows::All, &table), None);
    let other = row_of(&table, [1, 7, 3, 4, 5].map(Some)).unwrap();
    assert!(told[2] == other[2] && told[1] != other[1]);
    assert_eq!(row_of(&table, [Some(1), Some(2), Some(3), None, Some(5)]).unwrap().len(), 5);
}

#[test]
fn what_is_not_known_of_a_row_touches_all_groups() {
    let table = line(|_| ());
    let int = |value: i32| Value::Int(value.into());
    let told = row_of(&table, [1, 2, 3, 4, 5].map(Some)).unwrap();
    let key = rows(&[&[(0, int(1)), (1, int(2)), (2, int(3))]]);
    let beside = groups_beside(&key, &table, None);
    let any = |at| any_group(&table, at);
    assert_eq!(beside, [any(0), told[1], told[2], any(3), any(4), any(5), told[6], told[7]]);
    assert_eq!(groups_beside(&key, &table, Some(0)).len(), beside.len() - 1);
    let without = rows(&[&[(0, int(1)), (1, int(2)), (3, Value::Null)]]);
    let beside = groups_beside(&without, &table, None);
    assert_eq!(beside, [told[1], told[2], any(3), any(6), any(7)], "NULL is in no group");
    let all: Vec<u64> = (0..table.groupings.len()).map(any).collect();
    assert_eq!(groups_beside(&Rows::All, &table, None), all);
}

#[test]
fn groups_are_no_keys() {
    let table = line(|_| ());
    let five = 5_i32.to_be_bytes();
    let row = [Some(five.as_slice()); 5];
    let super::super::Told::Key(key) = key_digest(&table, 1, &row) else { panic!("it has a value") };
    let told = row_of(&table, [Some(5); 5]).unwrap();
    assert!(!told.contains(&key.row()) && !told.contains(&key.reference()));
}
