//! From a transaction's statements and captured rows to the claims by which the core finds overlaps.
//!
//! A row of a table that has nothing but its primary key is claimed by that key; of any other table the whole table is
//! claimed, and of tables with foreign keys all such tables together, because a reference and its parent are rows of
//! different tables. Keys are compared by bytes, so only types whose equality is equality of bytes count as keys.

use std::collections::BTreeSet;
use std::hash::Hasher;

use cluster::claims::{Claims, ROW_CLAIMS_MAX};
use cluster::ids::TableId;
use cluster::record::{Change, Image, RowChange, SealedBody};
use rustc_hash::FxHasher;
use sql::{Catalogue, Table};

/// All tables with foreign keys are claimed under this number.
const FOREIGN_KEYS: TableId = TableId(u32::MAX);

/// Types whose values are equal exactly when their binary forms are: bool, bytea, int8, int2, int4, oid, date, time,
/// timestamp, timestamptz, uuid. (Not text: a collation may be non-deterministic. Not numeric: 1.0 = 1.00.)
const BYTEWISE_OIDS: [u32; 11] = [16, 17, 20, 21, 23, 26, 1082, 1083, 1114, 1184, 2950];

/// What the statements of a transaction have claimed so far, beyond their rows.
#[derive(Debug, Default)]
pub(crate) struct ClaimsSoFar {
    tables: BTreeSet<TableId>,
    everything: bool,
}

impl ClaimsSoFar {
    /// One more statement.
    pub(crate) fn add(&mut self, claims: &sql::Claims) {
        match claims {
            sql::Claims::Rows => {}
            sql::Claims::Tables(tables) => self.tables.extend(tables.iter().copied()),
            sql::Claims::Everything => self.everything = true,
        }
    }

    /// A statement that nobody can bound.
    pub(crate) fn add_everything(&mut self) {
        self.everything = true;
    }
}

/// The claims of a finished transaction.
pub(crate) fn complete(so_far: ClaimsSoFar, body: &SealedBody, catalogue: &Catalogue) -> Claims {
    if so_far.everything || body.writes_everything() {
        return Claims::everything();
    }
    let mut tables = so_far.tables;
    let mut rows = Vec::new();
    for change in body.row_changes() {
        let Some(table) = catalogue.table(change.table) else { return Claims::everything() };
        if claims_nothing(table) && matches!(change.change, Change::Insert { .. }) {
            continue;
        }
        if table.foreign_keys {
            tables.insert(FOREIGN_KEYS);
        }
        if rows.len() >= ROW_CLAIMS_MAX || !is_keyed(table) || !add_rows(table, change, &mut rows) {
            tables.insert(change.table);
        }
    }
    rows.retain(|(table, _)| !tables.contains(table));
    Claims { rows, tables: tables.into_iter().collect(), everything: false }
}

/// Tables without a primary key of which rows were changed or deleted: each such row has to be searched for at the
/// other replicas.
pub(crate) fn searched(body: &SealedBody, catalogue: &Catalogue) -> Vec<(TableId, String)> {
    let mut found: Vec<(TableId, String)> = Vec::new();
    let mut last = None;
    for change in body.row_changes() {
        if last == Some(change.table) || matches!(change.change, Change::Insert { .. } | Change::Truncate) {
            continue;
        }
        last = Some(change.table);
        if let Some(table) = catalogue.table(change.table)
            && table.primary_key.is_empty()
            && found.iter().all(|(id, _)| *id != change.table)
        {
            found.push((change.table, table.name.clone()));
        }
    }
    found
}

/// New rows of such a table conflict with nothing.
fn claims_nothing(table: &Table) -> bool {
    table.primary_key.is_empty() && !table.other_unique && !table.foreign_keys && !table.user_triggers
}

fn is_keyed(table: &Table) -> bool {
    let bytewise = |at: &usize| table.columns.get(*at).is_some_and(|c| BYTEWISE_OIDS.contains(&c.type_oid));
    !table.primary_key.is_empty()
        && !table.other_unique
        && !table.foreign_keys
        && table.primary_key.iter().all(bytewise)
}

/// Claims the row's keys, old and new; `false` when an image cannot be read.
fn add_rows(table: &Table, change: RowChange<'_>, rows: &mut Vec<(TableId, u64)>) -> bool {
    let images: [Option<&[u8]>; 2] = match change.change {
        Change::Insert { new } => [None, Some(new)],
        Change::Update { old, new } => [Some(old), Some(new)],
        Change::Delete { old } => [Some(old), None],
        Change::Truncate => return false,
    };
    let mut last = None;
    for image in images.into_iter().flatten() {
        let Some(key) = key_hash(table, image) else { return false };
        if last != Some(key) {
            rows.push((change.table, key));
            last = Some(key);
        }
    }
    true
}

fn key_hash(table: &Table, image: &[u8]) -> Option<u64> {
    let image = Image::parse(image).ok()?;
    if image.width() != table.columns.len() {
        return None;
    }
    let mut hasher = FxHasher::default();
    for (at, column) in image.columns().enumerate() {
        if table.primary_key.contains(&at) {
            let value = column.value?;
            hasher.write_usize(value.len());
            hasher.write(value);
        }
    }
    Some(hasher.finish())
}
