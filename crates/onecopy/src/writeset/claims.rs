//! From a transaction's statements and captured rows to the claims by which the core finds overlaps.
//!
//! A changed row claims its values of every plain unique key, before and after; the parents that it refers to, or did,
//! are claimed as shared, unless the reference stays as it is, and whoever makes, removes or re-keys a parent claims it
//! there exclusively. Both use the digests that statements' texts give, too ([`sql::accesses`]). What cannot be known by
//! keys claims its whole table: one without a primary key, one with an exclusion constraint or a unique index over
//! expressions or a part of the rows, one with key values that have no normal form.
//!
//! Claims are kept apart by *turns*: the statements that the core let run together, since what they claim is certified
//! against all that they may not have seen. What home *holds* for the transaction is kept apart from these: tables that are
//! claimed as a whole only because so many rows came ([`cluster::claims::Claimed::is_held`]).
//!
//! Invariant: a claim may be wider than what happened, and belong to an earlier turn, never the other way round. A claim
//! that is too small is a lost update.

use std::collections::{BTreeMap, BTreeSet};

use cluster::claims::{Claimed, Claims, ROW_CLAIMS_MAX};
use cluster::ids::{Nonce, TableId};
use cluster::protocols::rows::TURNS_MAX;
use cluster::record::{Change, Image, RowChange, RowChanges, SealedBody};
use sql::accesses::{self, Accesses, ColumnSet, Columns, Told};
use sql::{Catalogue, Table};

use crate::classify::footprint::{lock_rows, meets_nothing, meets_parents_alone, own_hash};

/// All tables of a database with foreign keys of which the catalogue does not know all are claimed under this number.
const FOREIGN_KEYS: u32 = u32::MAX;

/// What a transaction has claimed so far. Rows that are undone later stay claimed, which only delays others.
#[derive(Debug, Default)]
pub(crate) struct ClaimsSoFar {
    turns: Vec<TurnClaims>,
    /// The tables that home holds, each with the first turn of which it holds something.
    held: BTreeMap<TableId, u32>,
    /// Statements that were let run, less one.
    turn: Option<u32>,
    /// The element of the record with which the rows begin that were not looked at.
    next: u64,
    rows: usize,
    /// The first turn that may have claimed anything.
    everything: Option<u32>,
    /// Something that no other transaction has.
    own: u64,
    /// Tables without a primary key of which rows were changed or deleted: each such row has to be searched for at the
    /// other replicas.
    searched: BTreeMap<TableId, String>,
    /// Tables about whose rows nothing more is to be learnt, but for new rows where that is said.
    covered: BTreeMap<TableId, Coverage>,
    /// Tables that the transaction itself has made: what their rows may meet is its own, or claimed with the schema change.
    made: BTreeSet<TableId>,
    /// Of its schema changes it is known what they claim.
    knows_changes: bool,
    /// The columns in which rows were changed; all where rows came or went, or that is not known.
    changed: BTreeMap<TableId, Columns>,
}

/// What statements that ran together have claimed.
#[derive(Debug, Default)]
struct TurnClaims {
    number: u32,
    /// The element of the record with which it begins.
    from: u64,
    rows: Vec<(TableId, u64)>,
    shared: Vec<(TableId, u64)>,
    groups: Vec<(TableId, u64)>,
    tables: BTreeSet<TableId>,
}

/// What more rows of a table cannot add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    /// Insertions; they claim nothing.
    Inserts,
    /// Anything.
    All,
}

impl ClaimsSoFar {
    /// Of the transaction with this nonce.
    pub(crate) fn new(nonce: Nonce) -> Self {
        Self { own: nonce.0, ..Self::default() }
    }

    /// More statements are let run; `elements` are in the record so far.
    pub(crate) fn begin_turn(&mut self, elements: u64) {
        let number = self.turn.map_or(0, |turn| turn.saturating_add(1));
        self.turn = Some(number);
        let turn = TurnClaims { number, from: elements, ..TurnClaims::default() };
        // Nothing may have been written in the last one.
        self.turns.pop_if(|last| last.from == elements && last.is_empty());
        if self.turns.len() < TURNS_MAX {
            self.turns.push(turn);
        }
    }

    /// So many more statements are told apart.
    pub(crate) fn turns_left(&self) -> usize {
        let run = self.turn.map_or(0, |turn| usize::try_from(turn).unwrap_or(TURNS_MAX));
        TURNS_MAX.saturating_sub(run + 1)
    }

    /// What rows claim that were just written by the transaction with this nonce; what home holds of that comes second.
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

    /// The record was cut back to so many elements.
    pub(crate) fn cut(&mut self, elements: u64) {
        for turn in &mut self.turns {
            turn.from = turn.from.min(elements);
        }
    }

    /// One more statement of the present turn claims something beyond its rows; its accesses, if they are known.
    pub(crate) fn add(&mut self, claims: &sql::Claims, touched: Option<&Accesses>, catalogue: &Catalogue) {
        match (claims, touched) {
            (sql::Claims::Rows, _) => {}
            (sql::Claims::Everything, _) => self.add_everything(),
            // What it writes is captured, so only what it locks is missing.
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

    /// A schema change of the present turn that concerns no more than this; tables that it has made.
    pub(crate) fn add_redefined(&mut self, claims: Claims, made: BTreeSet<TableId>) {
        let present = self.present();
        present.rows.extend(claims.rows);
        present.tables.extend(claims.tables);
        self.made.extend(made);
        self.knows_changes = true;
    }

    /// A statement that nobody can bound.
    pub(crate) fn add_everything(&mut self) {
        self.everything_from(u64::MAX);
    }

    fn everything_from(&mut self, element: u64) {
        let number = self.turn_of(element).number;
        self.everything = Some(self.everything.map_or(number, |first| first.min(number)));
    }

    /// Rows that come next in the record; `elements` are in it when they are taken out.
    pub(crate) fn add_rows(&mut self, rows: RowChanges<'_>, elements: u64, catalogue: &Catalogue) {
        let first = self.next;
        self.next = elements;
        let mut last = None;
        // Rows are counted and not all elements are rows, so none is taken for later than it is.
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
            // It is there for whoever claims the whole table, and meets nobody else.
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
            // What is held says nothing of rows that go, nor does what is new.
            let covered = if is_held || is_lone { Coverage::Inserts } else { Coverage::All };
            self.covered.insert(table.id, covered);
            self.changed.insert(table.id, Columns::All);
        }
    }

    /// Tables of which rows were changed in these columns alone, and none came or went.
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

    /// The last turn that begins before an element or with it.
    fn turn_of(&mut self, element: u64) -> &mut TurnClaims {
        if self.turns.is_empty() {
            self.begin_turn(0);
        }
        let at = self.turns.partition_point(|turn| turn.from <= element).saturating_sub(1);
        &mut self.turns[at]
    }

    /// The tables whose rows have to be searched for, with their names.
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
            // What was claimed before is certified against more.
            claimed.retain(|one| one.turn < turn);
            claimed.push(Claimed { turn, is_held: false, claims: Claims::everything() });
        }
        claimed
    }

    fn claimed(&mut self) -> Vec<Claimed> {
        let mut whole = BTreeSet::new();
        let mut claimed = Vec::with_capacity(self.turns.len());
        for turn in std::mem::take(&mut self.turns) {
            // What an earlier turn has claimed as a whole covers what later ones add.
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
        // Each table by itself: one that was filled later has met more.
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

    /// Claims the row by its keys, old and new, in its groups; `false` when something is not known.
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

    /// Claims what it refers to and what refers to it, where that changes.
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
    /// `None` when an image does not fit the table, or there is none.
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

    /// The columns in which a row that is there before and after differs. One that is computed from others may be so
    /// only when it is read, and is not in the row then.
    fn changed(&self, table: &Table) -> Columns {
        let Self(Some(old), Some(new)) = self else { return Columns::All };
        let differs = |at: &usize| old[*at] != new[*at] || table.columns[*at].generated;
        Columns::Some((0..table.columns.len()).filter(differs).collect())
    }

    /// Whether the row is there before and after, with the same bytes in these columns.
    fn keeps(&self, columns: &[usize]) -> bool {
        match self {
            Self(Some(old), Some(new)) => columns.iter().all(|at| old.get(*at) == new.get(*at)),
            _ => false,
        }
    }
}

/// Whether home holds what new rows of the table claim: see [`cluster::claims::Claimed::is_held`]. A refresh puts a row in
/// without a look at those that have its key, where the constraint is deferrable.
fn may_be_held(table: &Table, catalogue: &Catalogue) -> bool {
    let is_deferrable = table.keys.iter().any(|key| key.deferrable)
        || table.references.iter().any(|reference| reference.deferrable || reference.period);
    catalogue.knows_references(table) && !is_deferrable && !table.primary_key.is_empty()
}

/// What a statement locks without writing it.
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
