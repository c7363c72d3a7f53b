//! The digests of a captured row, from its values in the server's binary form.
//!
//! A changed row has a digest for each plain unique key, before and after the change. A statement that names one of these
//! values in its text has the same digest ([`super::digests`]), since both go through the same normal form. A reference
//! has the digest of the parent's key.
//!
//! Invariant: two rows that PostgreSQL holds for equal in a key's columns have the same digest by that key, or one of
//! them has no known digest, and its whole table stands for it. Sound only where [`is_keyed`] says so.

use super::digest::{KeyDigest, hash_of};
use super::value::{Form, Value};
use crate::catalogue::{Catalogue, Column, Key, Reference, Table};

/// Types without a form here whose values are equal exactly if their bytes are: oid and time. No statement's text tells
/// their values, so such a digest meets those of other rows only.
const BYTEWISE_OIDS: [u32; 2] = [26, 1083];

/// The value of one key of a row, as far as known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The row's value.
    Key(KeyDigest),
    /// No other row can have the same value, because a part of it is NULL.
    Nothing,
    /// Some value has no normal form.
    Unknown,
}

/// Whether rows of the table meet in their unique keys alone: there is a primary key, and neither an exclusion
/// constraint nor a unique index over expressions or a part of the rows.
pub fn is_keyed(table: &Table) -> bool {
    let others = table.keys.iter().filter(|key| !key.primary).count();
    !table.primary_key.is_empty()
        && table.keys.iter().any(|key| key.primary)
        && table.keys.iter().all(Key::is_plain)
        && (!table.other_unique || others > 0)
}

/// The digests of a row by every key of its table, which must be keyed; `None` if one is not known.
pub fn row_digests(table: &Table, row: &[Option<&[u8]>]) -> Option<Vec<KeyDigest>> {
    let mut found = Vec::with_capacity(table.keys.len());
    for key in 0..table.keys.len() {
        match key_digest(table, key, row) {
            Told::Key(digest) => found.push(digest),
            Told::Nothing => {}
            Told::Unknown => return None,
        }
    }
    Some(found)
}

/// The value of one key of a row; `key` is its position in [`Table::keys`].
pub fn key_digest(table: &Table, key: usize, row: &[Option<&[u8]>]) -> Told {
    let Some(known) = table.keys.get(key).filter(|key| key.is_plain()) else { return Told::Unknown };
    let pairs = known.columns.iter().map(|&at| (at, at));
    told(table, pairs, row, known.nulls_not_distinct).digest(table, key)
}

/// The keys of a table that others refer to, by position; `None` if such a key is not plain, or not known.
pub fn referenced_keys(table: &Table, catalogue: &Catalogue) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for (_, reference) in catalogue.referenced_by(table.id) {
        let key = parent_key(reference, table)?;
        if !found.contains(&key) {
            found.push(key);
        }
    }
    Some(found)
}

/// The key of the parent that a row refers to.
pub fn parent_digest(child: &Table, reference: &Reference, parent: &Table, row: &[Option<&[u8]>]) -> Told {
    let Some(key) = parent_key(reference, parent) else { return Told::Unknown };
    let columns = &parent.keys[key].columns;
    let own = |wanted: &usize| reference.parent_columns.iter().position(|at| at == wanted);
    let Some(places) = columns.iter().map(own).collect::<Option<Vec<_>>>() else { return Told::Unknown };
    let own = |place: usize| reference.columns.get(place).copied();
    let Some(own) = places.into_iter().map(own).collect::<Option<Vec<_>>>() else { return Told::Unknown };
    // Values are carried over where both columns compare alike.
    let alike = own.iter().zip(columns).all(|(&own, &theirs)| {
        let form = |table: &Table, at: usize| table.columns.get(at).and_then(normal);
        form(child, own).is_some() && form(child, own) == form(parent, theirs)
    });
    if !alike {
        // A row without a value there refers to nothing all the same.
        let has_null = own.iter().any(|&at| row.get(at) == Some(&None));
        return if has_null { Told::Nothing } else { Told::Unknown };
    }
    told(child, own.into_iter().zip(columns.iter().copied()), row, false).digest(parent, key)
}

fn parent_key(reference: &Reference, parent: &Table) -> Option<usize> {
    let mut wanted = reference.parent_columns.clone();
    wanted.sort_unstable();
    let is_wanted = |key: &Key| {
        let mut columns = key.columns.clone();
        columns.sort_unstable();
        columns == wanted && key.is_plain()
    };
    parent.keys.iter().position(is_wanted).filter(|_| !reference.period)
}

/// How values of a column are brought into a normal form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Normal {
    Form(Form),
    Bytes,
}

fn normal(column: &Column) -> Option<Normal> {
    let bytewise = || BYTEWISE_OIDS.contains(&column.type_oid).then_some(Normal::Bytes);
    Form::of_column(column).map(Normal::Form).or_else(bytewise)
}

pub(super) enum Values {
    Hash(u64),
    HasNull,
    Unknown,
}

impl Values {
    fn digest(self, table: &Table, key: usize) -> Told {
        match self {
            Self::Hash(hash) => Told::Key(KeyDigest { table: table.id, key, hash }),
            Self::HasNull => Told::Nothing,
            Self::Unknown => Told::Unknown,
        }
    }
}

/// The hash of a row's values in the first column of each pair.
pub(super) fn told(
    table: &Table,
    pairs: impl Iterator<Item = (usize, usize)>,
    row: &[Option<&[u8]>],
    nulls_count: bool,
) -> Values {
    let mut values = Vec::new();
    let (mut has_null, mut is_unknown) = (false, false);
    for (at, _) in pairs {
        let (Some(column), Some(value)) = (table.columns.get(at), row.get(at)) else {
            return Values::Unknown;
        };
        match (value, normal(column)) {
            (None, _) if nulls_count => values.push(Value::Null),
            (None, _) => has_null = true,
            (Some(bytes), Some(Normal::Bytes)) => values.push(Value::Bytes((*bytes).into())),
            (Some(bytes), Some(Normal::Form(form))) => match form.decode(bytes) {
                Some(value) => values.push(value),
                None => is_unknown = true,
            },
            (Some(_), None) => is_unknown = true,
        }
    }
    match (has_null, is_unknown) {
        (true, _) => Values::HasNull,
        (false, true) => Values::Unknown,
        (false, false) => Values::Hash(hash_of(&values)),
    }
}

#[cfg(test)]
mod tests;
