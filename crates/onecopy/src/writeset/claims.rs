//! Turns a transaction's statements and captured rows into claims, by which the core finds conflicts.
//!
//! A changed row claims its values of every plain unique key, before and after. It claims the parents that it refers
//! to as shared, unless the reference stays the same. A transaction that inserts, deletes or re-keys a parent claims
//! the parent exclusively. Claims use the same digests as the texts of statements ([`sql::accesses`]). A table is
//! claimed as a whole if keys do not suffice: it has no primary key, an exclusion constraint, a unique index over
//! expressions or a part of the rows, or key values without a normal form.
//!
//! Example: `UPDATE t SET v = 1 WHERE k = 7` claims the digest of `k = 7` in `t`.
//!
//! Claims are grouped by *turns*: statements that the core let run together. Each turn is certified against all
//! commits that it may not have seen. Claims that home *holds* are kept apart: tables that are claimed as a whole
//! only because so many new rows came ([`cluster::claims::Claimed::is_held`]).
//!
//! Invariant: a claim may be wider than the change, and may belong to an earlier turn, never the reverse. A claim
//! that is too narrow is a lost update.

use std::collections::{BTreeMap, BTreeSet};

use cluster::claims::{Claimed, Claims, ROW_CLAIMS_MAX};
use cluster::ids::{Nonce, TableId};
use cluster::protocols::rows::TURNS_MAX;
use cluster::record::{Change, Image, RowChange, RowChanges, SealedBody};
use sql::accesses::{self, Accesses, ColumnSet, Columns, Told};
use sql::{Catalogue, Table};

use crate::classify::footprint::{lock_rows, meets_nothing, meets_parents_alone, own_hash};

/// This number stands for all tables of a database with foreign keys that the catalogue does not know completely.
const FOREIGN_KEYS: u32 = u32::MAX;

/// The claims of a transaction so far. Rows that are rolled back later stay claimed, which only delays others.
#[derive(Debug, Default)]
pub(crate) struct ClaimsSoFar {
    turns: Vec<TurnClaims>,
    /// The tables that home holds, each with the first turn that holds any of it.
    held: BTreeMap<TableId, u32>,
    /// Number of turns, less one.
    turn: Option<u32>,
    /// The first element of the record whose rows were not examined yet.
    next: u64,
    rows: usize,
    /// The first turn that may have claimed anything.
    everything: Option<u32>,
    /// A value that no other transaction has.
    own: u64,
    /// Tables without a primary key whose rows were updated or deleted. Other replicas have to search for each such
    /// row.
    searched: BTreeMap<TableId, String>,
    /// Tables whose further rows add nothing, or nothing if they are insertions.
    covered: BTreeMap<TableId, Coverage>,
    /// Tables that the transaction itself has created. Conflicts of their rows are its own, or claimed with the
    /// schema change.
    made: BTreeSet<TableId>,
    /// Whether the claims of its schema changes are known.
    knows_changes: bool,
    /// The columns that were updated; all columns if rows were inserted or deleted, or if they are unknown.
    changed: BTreeMap<TableId, Columns>,
}

/// The claims of statements that ran together.
#[derive(Debug, Default)]
struct TurnClaims {
    number: u32,
    /// The element of the record with which the turn begins.
    from: u64,
    rows: Vec<(TableId, u64)>,
    shared: Vec<(TableId, u64)>,
    groups: Vec<(TableId, u64)>,
    tables: BTreeSet<TableId>,
}

/// The rows of a table that add no further claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// Insertions.
    Inserts,
    /// All changes.
    All,
}

impl ClaimsSoFar {
    /// Starts with nothing, for the transaction with this nonce.
    pub(crate) fn new(nonce: Nonce) -> Self {
        Self { own: nonce.0, ..Self::default() }
    }

    /// Starts a turn. The record has `elements` so far.
    pub(crate) fn begin_turn(&mut self, elements: u64) {
        let number = self.turn.map_or(0, |turn| turn.saturating_add(1));
        self.turn = Some(number);
        let turn = TurnClaims { number, from: elements, ..TurnClaims::default() };
        // The last turn may have written nothing.
        self.turns.pop_if(|last| last.from == elements && last.is_empty());
        if self.turns.len() < TURNS_MAX {
            self.turns.push(turn);
        }
    }

    /// The number of further turns that can be told apart.
    pub(crate) fn turns_left(&self) -> usize {
        let run = self.turn.map_or(0, |turn| usize::try_from(turn).unwrap_or(TURNS_MAX));
        TURNS_MAX.saturating_sub(run + 1)
    }

    /// The claims of rows that the transaction has just written, and second those of them that home holds.
    pub(crate) fn of_rows(nonce: Nonce, rows: RowChanges<'_>, catalogue: &Catalogue) -> (Claims, Claims) {
        let mut alone = Self::new(nonce);
        alone.add_rows(rows, u64::MAX, catalogue);
        let mut claims = Claims { everything: alone.everything.is_some(), ..Claims::default() };
        let mut held = Claims::default();
        for Claimed { is_held, claims: some, .. } in alone.claimed() {
            if is_held { &mut held } else { &mut claims }.add(&some);
        }
        (claims, held)
    }

    /// The record was cut back to this length.
    pub(crate) fn cut(&mut self, elements: u64) {
        for turn in &mut self.turns {
            turn.from = turn.from.min(elements);
        }
    }

    /// Adds a statement of the present turn that claims more than its rows. `touched` are its accesses, if they are
    /// known.
    pub(crate) fn add(&mut self, claims: &sql::Claims, touched: Option<&Accesses>, catalogue: &Catalogue) {
        match (claims, touched) {
            (sql::Claims::Rows, _) => {}
            (sql::Claims::Everything, _) => self.add_everything(),
            // Capture reports its writes, so only its row locks are missing.
            (sql::Claims::Tables(_), Some(touched)) if touched.unbounded.is_none() => {
                let mut claims = Claims::default();
                locked(touched, catalogue, &mut claims);
                if claims.everything {
                    self.add_everything();
                }
                let present = self.present();
                present.rows.extend(claims.rows);
                present.shared.extend(claims.shared);
                present.groups.extend(claims.groups);
                present.tables.extend(claims.tables);
            }
            (sql::Claims::Tables(tables), _) => self.present().tables.extend(tables.iter().copied()),
        }
    }

    /// Adds a schema change of the present turn: its claims, and the tables that it has created.
    pub(crate) fn add_redefined(&mut self, claims: Claims, made: BTreeSet<TableId>) {
        let present = self.present();
        present.rows.extend(claims.rows);
        present.tables.extend(claims.tables);
        self.made.extend(made);
        self.knows_changes = true;
    }

    /// Adds a statement whose rows cannot be bounded.
    pub(crate) fn add_everything(&mut self) {
        self.everything_from(u64::MAX);
    }

    fn everything_from(&mut self, element: u64) {
        let number = self.turn_of(element).number;
        self.everything = Some(self.everything.map_or(number, |first| first.min(number)));
    }

    /// Adds the next rows of the record, which has `elements` when they are taken out.
    pub(crate) fn add_rows(&mut self, rows: RowChanges<'_>, elements: u64, catalogue: &Catalogue) {
        let first = self.next;
        self.next = elements;
        let mut last = None;
        // This counts rows, and not all elements are rows. So no row is taken for a later one than it is.
        for (element, change) in (first..).zip(rows) {
            let is_insert = matches!(change.change, Change::Insert { .. });
            let covered = match last {
                Some((table, covered)) if table == change.table => covered,
                _ => self.covered.get(&change.table).copied(),
            };
            let skips = covered == Some(Coverage::All) || (covered == Some(Coverage::Inserts) && is_insert);
            if !skips {
                self.add_row(element, change, is_insert, catalogue);
            }
            last =
                Some((change.table, self.covered.get(&change.table).copied().filter(|_| !skips).or(covered)));
        }
    }

    fn add_row(&mut self, element: u64, change: RowChange<'_>, is_insert: bool, catalogue: &Catalogue) {
        if self.made.contains(&change.table) {
            return;
        }
        let Some(table) = catalogue.table(change.table) else {
            self.everything_from(element);
            return;
        };
        let row = Row::read(table, change);
        let columns = row.as_ref().map_or(Columns::All, |row| row.changed(table));
        let changed = self.changed.entry(table.id).or_insert(Columns::Some(ColumnSet::EMPTY));
        *changed = changed.and(columns);
        let own = self.own;
        if meets_nothing(table) && is_insert {
            // The entry serves transactions that claim the whole table, and conflicts with no other.
            self.covered.insert(table.id, Coverage::Inserts);
            self.turn_of(element).rows.push((table.id, own_hash(own, table.id)));
            return;
        }
        if table.primary_key.is_empty() && !is_insert && change.change != Change::Truncate {
            self.searched.entry(table.id).or_insert_with(|| table.name.clone());
        }
        let is_full = self.rows >= ROW_CLAIMS_MAX;
        let searches = !table.primary_key.is_empty() || self.searched.contains_key(&table.id);
        let is_held = is_full && is_insert && may_be_held(table, catalogue) && row.is_some();
        let turn = self.turn_of(element);
        let before = turn.rows.len() + turn.shared.len();
        if let Some(row) = row.as_ref().filter(|_| catalogue.knows_references(table)) {
            turn.add_references(table, row, is_full, catalogue);
        } else if catalogue.knows_references(table) {
            turn.tables.extend(table.references.iter().map(|reference| reference.parent));
        } else {
            turn.tables.insert(table.id.database.table(FOREIGN_KEYS));
            turn.tables.insert(table.id);
        }
        let is_lone = is_insert && meets_parents_alone(table, catalogue);
        let keyed = row.filter(|_| !is_full && accesses::is_keyed(table));
        let is_told_apart = is_lone || keyed.is_some_and(|row| turn.add_keys(table, &row));
        let lone = (table.id, own_hash(own, table.id));
        if is_lone && turn.rows.last() != Some(&lone) {
            turn.rows.push(lone);
        }
        if !is_told_apart && !is_held {
            turn.tables.insert(table.id);
        }
        let after = turn.rows.len() + turn.shared.len();
        let refers = table.references.iter().all(|reference| turn.tables.contains(&reference.parent));
        let is_whole = is_held || is_lone || turn.tables.contains(&table.id);
        self.rows += after - before;
        if is_held {
            let number = self.turn_of(element).number;
            let first = self.held.entry(table.id).or_insert(number);
            *first = number.min(*first);
        }
        if is_whole && (searches || is_lone) && refers {
            // Neither held claims nor new rows cover deletions.
            let covered = if is_held || is_lone { Coverage::Inserts } else { Coverage::All };
            self.covered.insert(table.id, covered);
            self.changed.insert(table.id, Columns::All);
        }
    }

    /// Tables in which only these columns were updated, and no row was inserted or deleted.
    pub(crate) fn changed(&self) -> Vec<(TableId, ColumnSet)> {
        let known = |(table, columns): (&TableId, &Columns)| match columns {
            Columns::Some(set) => Some((*table, *set)),
            Columns::All => None,
        };
        self.changed.iter().filter_map(known).collect()
    }

    fn present(&mut self) -> &mut TurnClaims {
        self.turn_of(u64::MAX)
    }

    /// The last turn that begins at or before an element.
    fn turn_of(&mut self, element: u64) -> &mut TurnClaims {
        if self.turns.is_empty() {
            self.begin_turn(0);
        }
        let at = self.turns.partition_point(|turn| turn.from <= element).saturating_sub(1);
        &mut self.turns[at]
    }

    /// The tables whose rows other replicas have to search for, with their names.
    pub(crate) fn searched(&self) -> impl Iterator<Item = (TableId, &str)> {
        self.searched.iter().map(|(id, name)| (*id, name.as_str()))
    }

    /// The claims of the finished transaction, whose last rows are in the body.
    pub(crate) fn complete(&mut self, body: &SealedBody, catalogue: &Catalogue) -> Vec<Claimed> {
        self.add_rows(body.row_changes(), u64::MAX, catalogue);
        let is_unknown = body.writes_everything() && !self.knows_changes;
        let all = self.everything.or_else(|| is_unknown.then_some(0));
        let mut claimed = self.claimed();
        if let Some(turn) = all {
            // The new claim belongs to an earlier turn, which is certified against more.
            claimed.retain(|one| one.turn < turn);
            claimed.push(Claimed { turn, is_held: false, claims: Claims::everything() });
        }
        claimed
    }

    fn claimed(&mut self) -> Vec<Claimed> {
        let mut whole = BTreeSet::new();
        let mut claimed = Vec::with_capacity(self.turns.len());
        for turn in std::mem::take(&mut self.turns) {
            // A table that an earlier turn claims as a whole covers what later turns add.
            let tables: Vec<TableId> = turn.tables.iter().copied().filter(|id| whole.insert(*id)).collect();
            let kept = |mut rows: Vec<(TableId, u64)>| {
                rows.retain(|(table, _)| !whole.contains(table));
                rows.sort_unstable();
                rows.dedup();
                rows
            };
            let (rows, shared, groups) = (kept(turn.rows), kept(turn.shared), kept(turn.groups));
            let claims = Claims { rows, shared, groups, tables, everything: false };
            if !claims.is_empty() {
                claimed.push(Claimed { turn: turn.number, is_held: false, claims });
            }
        }
        // Each table by itself, because a table that was filled later has seen more commits.
        for (table, turn) in std::mem::take(&mut self.held) {
            let claims = Claims { tables: vec![table], ..Claims::default() };
            claimed.push(Claimed { turn, is_held: true, claims });
        }
        claimed
    }
}

impl TurnClaims {
    fn is_empty(&self) -> bool {
        let lists = [&self.rows, &self.shared, &self.groups];
        self.tables.is_empty() && lists.iter().all(|list| list.is_empty())
    }

    /// Claims the row by its keys, old and new, in its groups; `false` if some key is unknown.
    fn add_keys(&mut self, table: &Table, row: &Row<'_>) -> bool {
        let (mut last, mut groups) = (None, Vec::new());
        for image in row.images() {
            if accesses::row_groups(table, image, &mut groups).is_none() {
                return false;
            }
            let Some(digests) = accesses::row_digests(table, image) else { return false };
            if last.as_ref() != Some(&digests) {
                self.rows.extend(digests.iter().map(|digest| (table.id, digest.row())));
            }
            last = Some(digests);
        }
        self.groups.extend(groups.into_iter().map(|group| (table.id, group)));
        true
    }

    /// Claims the rows that it refers to or that refer to it, where the reference changes.
    fn add_references(&mut self, table: &Table, row: &Row<'_>, is_full: bool, catalogue: &Catalogue) {
        for reference in &table.references {
            if row.keeps(&reference.columns) {
                continue;
            }
            let parent = catalogue.table(reference.parent).filter(|_| !is_full);
            for image in row.images() {
                let told = parent
                    .map_or(Told::Unknown, |parent| accesses::parent_digest(table, reference, parent, image));
                match told {
                    Told::Key(digest) => self.shared.push((digest.table, digest.reference())),
                    Told::Nothing => {}
                    Told::Unknown => _ = self.tables.insert(reference.parent),
                }
            }
        }
        let Some(referenced) = accesses::referenced_keys(table, catalogue) else {
            self.tables.insert(table.id);
            return;
        };
        for key in referenced.into_iter().filter(|key| !row.keeps(&table.keys[*key].columns)) {
            for image in row.images() {
                match accesses::key_digest(table, key, image) {
                    Told::Key(digest) => self.rows.push((digest.table, digest.reference())),
                    Told::Nothing => {}
                    Told::Unknown => _ = self.tables.insert(table.id),
                }
            }
        }
    }
}

/// The values of a changed row, before and after.
struct Row<'a>(Option<Vec<Option<&'a [u8]>>>, Option<Vec<Option<&'a [u8]>>>);

impl<'a> Row<'a> {
    /// `None` if an image is missing or does not fit the table.
    fn read(table: &Table, change: RowChange<'a>) -> Option<Self> {
        let values = |image: &'a [u8]| {
            let image = Image::parse(image).ok()?;
            (image.width() == table.columns.len()).then(|| image.values().collect::<Vec<_>>())
        };
        match change.change {
            Change::Insert { new } => Some(Self(None, Some(values(new)?))),
            Change::Update { old, new } => Some(Self(Some(values(old)?), Some(values(new)?))),
            Change::Delete { old } => Some(Self(Some(values(old)?), None)),
            Change::Truncate => None,
        }
    }

    fn images(&self) -> impl Iterator<Item = &[Option<&'a [u8]>]> {
        [&self.0, &self.1].into_iter().flatten().map(Vec::as_slice)
    }

    /// The columns that differ between the images, and all generated ones: a virtual column has no value in an image.
    fn changed(&self, table: &Table) -> Columns {
        let Self(Some(old), Some(new)) = self else { return Columns::All };
        let differs = |at: &usize| old[*at] != new[*at] || table.columns[*at].generated;
        Columns::Some((0..table.columns.len()).filter(differs).collect())
    }

    /// Whether both images exist and agree in these columns.
    fn keeps(&self, columns: &[usize]) -> bool {
        match self {
            Self(Some(old), Some(new)) => columns.iter().all(|at| old.get(*at) == new.get(*at)),
            _ => false,
        }
    }
}

/// Whether home may hold the claims of the table's new rows: see [`cluster::claims::Claimed::is_held`]. Not with a
/// deferrable constraint: a refresh would insert a row without checking for others with its key.
fn may_be_held(table: &Table, catalogue: &Catalogue) -> bool {
    let is_deferrable = table.keys.iter().any(|key| key.deferrable)
        || table.references.iter().any(|reference| reference.deferrable || reference.period);
    catalogue.knows_references(table) && !is_deferrable && !table.primary_key.is_empty()
}

/// Claims the rows that a statement locks without writing them.
fn locked(touched: &Accesses, catalogue: &Catalogue, claims: &mut Claims) {
    for lock in &touched.locks {
        let Some(table) = catalogue.table(lock.table) else {
            claims.everything = true;
            return;
        };
        lock_rows(&lock.rows, lock.strength, table, catalogue, claims);
    }
}

#[cfg(test)]
mod tests;
