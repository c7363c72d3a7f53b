//! Groups of rows that have values in common: those of one order, of one customer, of one warehouse.
//!
//! A statement often knows less than a key of the rows that it touches (`WHERE cart = 7` under a key of cart and item),
//! and would stand for its whole table. So a table has some *groupings*, sets of columns that statements are likely to
//! compare: what indexes begin with, and foreign keys. By the values of these columns a statement names its group; a
//! changed row tells its groups before and after ([`row_groups`]), from the same normal form as keys ([`super::image`]).
//!
//! Invariant: a row that may satisfy an access's conditions tells the group by which the access is known. A grouping says
//! nothing about which index is used: any set of columns would do, as long as all agree on it, which they do by the
//! catalogue.
//!
//! Non-goals: rows whose value is NULL there (no group that a statement can name has them); tables without a primary
//! key, whose rows are not claimed one by one.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::image::{self, Values, is_keyed};
use super::value::{Form, Value};
use super::{Match, Rows, digest};
use crate::catalogue::Table;

/// More groupings of a table are not kept: each costs every change of a row something.
const GROUPINGS_MAX: usize = 8;

/// Spaces of numbers beside those of [`super::KeyDigest`].
const ONE: u8 = 2;
const ANY: u8 = 3;

/// The groupings of a table: sets of columns, in order of the columns.
///
/// The proper beginnings of its unique keys, its other unique keys than the primary one, the beginnings of its other
/// indexes, and its foreign keys; only of columns with values that have a normal form, and none that holds the primary
/// key.
pub(crate) fn groupings(table: &Table) -> Vec<Vec<usize>> {
    if !is_keyed(table) {
        return Vec::new();
    }
    let keys = table.keys.iter().flat_map(|key| beginnings(&key.columns));
    let indexes = table.indexes.iter().flat_map(|columns| beginnings(columns));
    let references = table.references.iter().map(|reference| reference.columns.as_slice());
    let mut found: Vec<Vec<usize>> = Vec::new();
    for columns in references.chain(keys).chain(indexes) {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns.dedup();
        let has_form = |at: &usize| table.columns.get(*at).is_some_and(|one| Form::of_column(one).is_some());
        let is_row = table.primary_key.iter().all(|at| columns.contains(at));
        if found.len() < GROUPINGS_MAX && !is_row && columns.iter().all(has_form) && !found.contains(&columns)
        {
            found.push(columns);
        }
    }
    found
}

/// The whole first, since more columns make smaller groups.
fn beginnings(columns: &[usize]) -> impl Iterator<Item = &[usize]> {
    (1..=columns.len()).rev().map(|length| &columns[..length])
}

/// The groups that together hold all rows of an access, by one grouping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    /// Which grouping of the table.
    pub grouping: usize,
    /// Their numbers.
    pub numbers: Vec<u64>,
}

/// The smallest groups that rows are known by; `None` if by no grouping all of their values are known.
pub fn groups(rows: &Rows, table: &Table) -> Option<Groups> {
    let Rows::AnyOf(matches) = rows else { return None };
    let by = |(grouping, columns): (usize, &Vec<usize>)| {
        let numbers: Option<Vec<u64>> = matches.iter().map(|one| named(one, columns)).collect();
        Some(Groups { grouping, numbers: numbers? })
    };
    let known = table.groupings.iter().enumerate().filter_map(by);
    known.max_by_key(|groups| (table.groupings[groups.grouping].len(), std::cmp::Reverse(groups.grouping)))
}

/// The groups by every other grouping that a write of these rows may touch: those that are known, or that of all rows,
/// as [`any_group`] has it.
pub fn groups_beside(rows: &Rows, table: &Table, but: Option<usize>) -> Vec<u64> {
    let mut found = Vec::new();
    for (grouping, columns) in table.groupings.iter().enumerate().filter(|(at, _)| Some(*at) != but) {
        let is_null = |one: &&Match| columns.iter().any(|at| one.value(*at) == Some(&Value::Null));
        let known: Option<Vec<u64>> = match rows {
            Rows::All => None,
            Rows::AnyOf(all) => {
                all.iter().filter(|one| !is_null(one)).map(|one| named(one, columns)).collect()
            }
        };
        found.extend(known.unwrap_or_else(|| vec![any_group(table, grouping)]));
    }
    found
}

/// Stands for all groups by a grouping. A statement that claims one of them shares it; one that writes rows without
/// knowing their group takes it exclusively, so the two conflict.
pub fn any_group(table: &Table, grouping: usize) -> u64 {
    folded(ANY, table.groupings.get(grouping).map_or(&[], Vec::as_slice), 0)
}

/// The groups of a row from its values as the server sends them; `None` if some value has no normal form.
pub fn row_groups(table: &Table, row: &[Option<&[u8]>], found: &mut Vec<u64>) -> Option<()> {
    for columns in &table.groupings {
        match image::told(table, columns.iter().map(|&at| (at, at)), row, false) {
            Values::Hash(hash) => found.push(folded(ONE, columns, hash)),
            Values::HasNull => {}
            Values::Unknown => return None,
        }
    }
    Some(())
}

pub(super) fn named(one: &Match, columns: &[usize]) -> Option<u64> {
    digest::hash(one, columns).map(|hash| folded(ONE, columns, hash))
}

fn folded(space: u8, columns: &[usize], hash: u64) -> u64 {
    let mut hasher = FxHasher::default();
    (space, columns, hash).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
