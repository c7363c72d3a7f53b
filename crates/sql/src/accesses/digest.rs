//! Short names for rows, for indexes that look up by key what accessed a row last.
//!
//! A digest says (table, key, hash of the key's values). Two accesses that have one row in common and are both known by
//! the same key share a digest; the reverse need not hold, since hashes can be equal. The hash does not change within
//! one build of the program; it is not for storage.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::{Access, Claim, Match, Rows, Value};
use crate::catalogue::{Table, TableId};

/// The name of one row, or of what can be one row at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyDigest {
    /// The table.
    pub table: TableId,
    /// Which key: position in [`Table::keys`].
    pub key: usize,
    /// Of the values of all its columns.
    pub hash: u64,
}

impl KeyDigest {
    /// Key and value in one number, for accesses that claim or read the row itself.
    pub fn row(&self) -> u64 {
        self.folded(0)
    }

    /// The same for accesses that rely on the key being there, and for those that make, remove or change it. A change
    /// of the row that keeps the key does not concern them.
    pub fn reference(&self) -> u64 {
        self.folded(1)
    }

    fn folded(&self, space: u8) -> u64 {
        let mut hasher = FxHasher::default();
        (space, self.key, self.hash).hash(&mut hasher);
        hasher.finish()
    }
}

/// The keys of a table whose values, none of them NULL, belong to one row at most, by their positions in
/// [`Table::keys`].
pub(super) fn unique_keys(table: &Table) -> impl Iterator<Item = (usize, &[usize])> {
    table
        .keys
        .iter()
        .enumerate()
        .filter(|(_, key)| key.is_plain())
        .map(|(at, key)| (at, key.columns.as_slice()))
}

/// The digests of an access's rows by each unique key whose values are all known for all of its rows. None if there is
/// no such key: then the access may concern any row of the table.
pub fn digests(access: &Access, table: &Table) -> Vec<KeyDigest> {
    let Rows::AnyOf(matches) = &access.rows else { return Vec::new() };
    let mut found = Vec::new();
    for (key, columns) in unique_keys(table) {
        let hashes: Option<Vec<u64>> = matches.iter().map(|one| hash(one, columns)).collect();
        let digest = |hash| KeyDigest { table: table.id, key, hash };
        found.extend(hashes.into_iter().flatten().map(digest));
    }
    found
}

impl Claim {
    /// The digests of the claimed values; `None` if not all are known, so that any value may be claimed.
    pub fn digests(&self, table: &Table) -> Option<Vec<KeyDigest>> {
        let key = table.keys.get(self.key).filter(|key| key.is_plain())?;
        let Rows::AnyOf(matches) = &self.rows else { return None };
        let digest = |one: &Match| {
            let hash = hash(one, &key.columns)?;
            Some(KeyDigest { table: self.table, key: self.key, hash })
        };
        matches.iter().map(digest).collect()
    }
}

/// The hash of a key's values; `None` if one is not known, or does not tell rows apart.
pub(super) fn hash(one: &Match, columns: &[usize]) -> Option<u64> {
    let value = |&column: &usize| one.value(column).filter(|v| !matches!(v, Value::Null | Value::Fresh));
    let values: Vec<&Value> = columns.iter().map(value).collect::<Option<_>>()?;
    Some(hash_of(values))
}

/// The hash of values in the order of a key's columns.
pub(super) fn hash_of<'a>(values: impl IntoIterator<Item = &'a Value>) -> u64 {
    let mut hasher = FxHasher::default();
    values.into_iter().for_each(|value| value.hash(&mut hasher));
    hasher.finish()
}
