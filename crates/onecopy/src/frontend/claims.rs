//! From a transaction's statements and captured rows to the claims by which the core finds overlaps.
//!
//! A row of a table that has no unique key but its primary key is claimed by that key; of any other table the whole table
//! is claimed. A row that refers to others claims their tables as a whole, too, unless its references stay as they are: so
//! it meets whoever deletes or re-keys a parent, who claims that row. Keys are compared by bytes, so only types whose
//! equality is equality of bytes count as keys.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use cluster::claims::{Claims, ROW_CLAIMS_MAX};
use cluster::ids::TableId;
use cluster::record::{Change, Image, RowChange, RowChanges, SealedBody};
use rustc_hash::FxHasher;
use sql::{Catalogue, Table};

/// All tables with foreign keys of which the catalogue does not know all are claimed under this number.
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

/// What captured rows claim, gathered as they come: the rows themselves need not be kept for it. Rows that are undone
/// later stay claimed, which only delays others.
#[derive(Debug, Default)]
pub(crate) struct RowClaims {
    rows: Vec<(TableId, u64)>,
    tables: BTreeSet<TableId>,
    everything: bool,
    /// Tables without a primary key of which rows were changed or deleted: each such row has to be searched for at the
    /// other replicas.
    searched: BTreeMap<TableId, String>,
    /// Tables about whose rows nothing more is to be learnt, but for new rows where that is said.
    settled: BTreeMap<TableId, Settled>,
}

/// What more rows of a table cannot add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Settled {
    /// Insertions; they claim nothing.
    Inserts,
    /// Anything.
    All,
}

impl RowClaims {
    /// Some more rows.
    pub(crate) fn add(&mut self, changes: RowChanges<'_>, catalogue: &Catalogue) {
        let mut last = None;
        for change in changes {
            let is_insert = matches!(change.change, Change::Insert { .. });
            let settled = match last {
                Some((table, settled)) if table == change.table => settled,
                _ => self.settled.get(&change.table).copied(),
            };
            let skips = settled == Some(Settled::All) || (settled == Some(Settled::Inserts) && is_insert);
            if !skips {
                self.add_one(change, is_insert, catalogue);
            }
            last =
                Some((change.table, self.settled.get(&change.table).copied().filter(|_| !skips).or(settled)));
        }
    }

    fn add_one(&mut self, change: RowChange<'_>, is_insert: bool, catalogue: &Catalogue) {
        let Some(table) = catalogue.table(change.table) else {
            self.everything = true;
            return;
        };
        if claims_nothing(table) && is_insert {
            self.settled.insert(table.id, Settled::Inserts);
            return;
        }
        if table.primary_key.is_empty() && !is_insert && change.change != Change::Truncate {
            self.searched.entry(table.id).or_insert_with(|| table.name.clone());
        }
        if catalogue.knows_references(table) {
            self.tables.extend(parents(table, change));
        } else {
            self.tables.extend([FOREIGN_KEYS, change.table]);
        }
        if self.rows.len() >= ROW_CLAIMS_MAX || !is_keyed(table) || !add_rows(table, change, &mut self.rows) {
            self.tables.insert(change.table);
        }
        let searches = !table.primary_key.is_empty() || self.searched.contains_key(&table.id);
        let refers = table.references.iter().all(|reference| self.tables.contains(&reference.parent));
        if self.tables.contains(&table.id) && searches && refers {
            self.settled.insert(table.id, Settled::All);
        }
    }

    /// The tables whose rows have to be searched for, with their names.
    pub(crate) fn searched(&self) -> impl Iterator<Item = (TableId, &str)> {
        self.searched.iter().map(|(id, name)| (*id, name.as_str()))
    }
}

/// The claims of a finished transaction.
pub(crate) fn complete(so_far: ClaimsSoFar, of_rows: RowClaims, body: &SealedBody) -> Claims {
    if so_far.everything || of_rows.everything || body.writes_everything() {
        return Claims::everything();
    }
    let mut tables = so_far.tables;
    tables.extend(of_rows.tables);
    let mut rows = of_rows.rows;
    rows.retain(|(table, _)| !tables.contains(table));
    Claims { rows, tables: tables.into_iter().collect(), ..Claims::default() }
}

/// New rows of such a table conflict with nothing.
fn claims_nothing(table: &Table) -> bool {
    table.primary_key.is_empty() && !table.other_unique && !table.foreign_keys && !table.user_triggers
}

fn is_keyed(table: &Table) -> bool {
    let bytewise = |at: &usize| table.columns.get(*at).is_some_and(|c| BYTEWISE_OIDS.contains(&c.type_oid));
    !table.primary_key.is_empty() && !table.other_unique && table.primary_key.iter().all(bytewise)
}

/// The tables whose rows the changed row refers to, or did, where that has changed or cannot be told.
fn parents(table: &Table, change: RowChange<'_>) -> impl Iterator<Item = TableId> {
    let same = match change.change {
        Change::Update { old, new } => unchanged(table, old, new).unwrap_or_default(),
        Change::Insert { .. } | Change::Delete { .. } | Change::Truncate => BTreeSet::new(),
    };
    let changed = table
        .references
        .iter()
        .filter(move |reference| !reference.columns.iter().all(|at| same.contains(at)));
    changed.map(|reference| reference.parent)
}

/// The columns that have the same bytes in both images; `None` when an image cannot be read.
fn unchanged(table: &Table, old: &[u8], new: &[u8]) -> Option<BTreeSet<usize>> {
    if table.references.is_empty() {
        return None;
    }
    let (old, new) = (Image::parse(old).ok()?, Image::parse(new).ok()?);
    let fits = old.width() == table.columns.len() && new.width() == table.columns.len();
    let both = old.columns().zip(new.columns()).enumerate();
    fits.then(|| both.filter(|(_, (old, new))| old.value == new.value).map(|(at, _)| at).collect())
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

#[cfg(test)]
mod tests {
    use cluster::record::RecordBuilder;
    use sql::{Action, Column, Contents, Reference};

    use super::*;

    const PARENT: TableId = TableId(1);
    const CHILD: TableId = TableId(2);

    /// A parent and a child of two columns, `id` and `p`.
    fn catalogue(known: bool, type_oid: u32) -> Catalogue {
        let table = |id| Table {
            id,
            columns: vec![Column { type_oid, ..Column::default() }; 2],
            primary_key: vec![0],
            foreign_keys: true,
            ..Table::default()
        };
        let reference = Reference {
            columns: vec![1],
            parent: PARENT,
            parent_columns: vec![0],
            on_delete: Action::Cascade,
            on_update: Action::NoAction,
            deferrable: false,
            matches_full: false,
            period: false,
        };
        let references = if known { vec![reference] } else { Vec::new() };
        Catalogue::new(Contents {
            tables: vec![table(PARENT), Table { references, ..table(CHILD) }],
            ..Contents::default()
        })
    }

    fn image(values: [i32; 2]) -> Vec<u8> {
        let mut image = 2_i32.to_be_bytes().to_vec();
        for value in values {
            image.extend([23, 4, value].map(i32::to_be_bytes).concat());
        }
        image
    }

    fn claims(known: bool, push: impl FnOnce(&mut RecordBuilder)) -> Claims {
        let mut builder = RecordBuilder::new();
        push(&mut builder);
        let body = builder.seal();
        let mut of_rows = RowClaims::default();
        of_rows.add(body.row_changes(), &catalogue(known, 23));
        complete(ClaimsSoFar::default(), of_rows, &body)
    }

    #[test]
    fn references_meet_their_parents() {
        let (one, other, moved) = (image([1, 7]), image([2, 7]), image([1, 8]));
        let insert = |known| claims(known, |b| b.push_insert(CHILD, &one).unwrap());
        let unmoved = claims(true, |b| b.push_update(CHILD, &one, &one).unwrap());
        let moving = claims(true, |b| b.push_update(CHILD, &one, &moved).unwrap());
        let rekeying = claims(true, |b| b.push_update(CHILD, &one, &other).unwrap());
        let deleting = claims(true, |b| b.push_delete(CHILD, &one).unwrap());
        let parent = claims(true, |b| b.push_delete(PARENT, &image([7, 0])).unwrap());
        for claims in [&insert(true), &moving, &deleting] {
            assert!(claims.overlaps(&parent) && parent.overlaps(claims), "{claims:?}");
            assert!(claims.overlaps(&unmoved), "they are of one row");
            assert!(!claims.everything && !claims.tables.contains(&CHILD), "{claims:?}");
        }
        for claims in [&unmoved, &rekeying] {
            assert!(!claims.overlaps(&parent), "{claims:?}");
        }
        // A key of the child's that is not compared by bytes: the table is claimed as a whole from the first row on.
        let catalogue = catalogue(true, 25);
        let mut of_rows = RowClaims::default();
        let mut builder = RecordBuilder::new();
        builder.push_update(CHILD, &one, &one).unwrap();
        builder.push_insert(CHILD, &other).unwrap();
        let body = builder.seal();
        of_rows.add(body.row_changes(), &catalogue);
        let whole = complete(ClaimsSoFar::default(), of_rows, &body);
        assert_eq!(whole.tables, [PARENT, CHILD], "a later row still adds its parent");
        let elsewhere = claims(true, |b| b.push_update(CHILD, &other, &other).unwrap());
        assert!(!elsewhere.overlaps(&unmoved), "rows of different keys");
        let unknown = [insert(false), claims(false, |b| b.push_delete(PARENT, &one).unwrap())];
        assert!(unknown[0].overlaps(&unknown[1]), "all tables with unknown references are one");
    }
}
