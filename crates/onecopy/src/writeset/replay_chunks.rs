//! Checks that a large transaction's rows can be applied in chunks.
//!
//! Within one chunk the applier ignores the order of changes (`cluster::refresh::net`). Example: a trigger changes a
//! row that the outer statement changes, too, and the inner change is reported first. A large transaction is applied
//! chunk after chunk, so a row's changes must not be out of order across chunks. That can happen only if a trigger,
//! function or cascade for a table's rows changes rows of the same table. For such tables, after the first nested
//! update or delete, we remember the hash of each row's state, and compare it with the state in which a later chunk
//! finds the row. (An insert by a trigger is harmless: the outer statement has not changed that row before.)
//!
//! Invariant: rows that do not fit are rejected before the commit; nothing is guessed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};

use cluster::ids::TableId;
use cluster::record::{Change, Image, RowChange, RowChanges};
use rustc_hash::FxHashMap;
use sql::{Action, Catalogue, Table};
use wire::sqlstate;

use crate::error::Refusal;

/// Most rows whose state is remembered, at 16 bytes each.
const ROWS_MAX: usize = 1 << 20;

/// The hash of an image. Zero stands for no row.
type State = u64;

/// The remembered states of a transaction's earlier chunks.
#[derive(Debug, Default)]
pub(crate) struct ReplayOrder {
    /// Tables with nested updates or deletes: inside functions, triggers or cascades.
    nested: BTreeSet<TableId>,
    /// Whether a table's rows must be followed, once that is known.
    is_followed: BTreeMap<TableId, bool>,
    /// The last state of each row, by the hash of table and key.
    left: FxHashMap<u64, State>,
    hasher: RandomState,
}

/// The states before and after a row's changes within one chunk.
#[derive(Debug, Default)]
struct ChunkStates {
    found: Vec<State>,
    left: Vec<State>,
}

impl ReplayOrder {
    /// Notes an update or delete inside a function, trigger or cascade.
    pub(crate) fn note_nested(&mut self, table: TableId) {
        if self.nested.insert(table) {
            self.is_followed.remove(&table);
        }
    }

    /// Checks the next chunk.
    pub(crate) fn follow(&mut self, changes: RowChanges<'_>, catalogue: &Catalogue) -> Result<(), Refusal> {
        let mut chunk: BTreeMap<u64, ChunkStates> = BTreeMap::new();
        let mut last: Option<(TableId, bool)> = None;
        for change in changes {
            let is_followed = match last {
                Some((table, is_followed)) if table == change.table => is_followed,
                _ => self.is_followed(change.table, catalogue),
            };
            last = Some((change.table, is_followed));
            if is_followed {
                self.add(change, catalogue, &mut chunk)?;
            }
        }
        for (row, states) in chunk {
            let (first, last) = states.ends();
            if self.left.insert(row, last).is_some_and(|left| left != first) {
                return Err(out_of_order());
            }
        }
        if self.left.len() > ROWS_MAX { Err(too_many()) } else { Ok(()) }
    }

    fn is_followed(&mut self, id: TableId, catalogue: &Catalogue) -> bool {
        if let Some(known) = self.is_followed.get(&id) {
            return *known;
        }
        let is_followed = self.nested.contains(&id)
            && match catalogue.table(id) {
                Some(table) => comes_back(table, catalogue),
                // The transaction itself has created the table.
                None => true,
            };
        self.is_followed.insert(id, is_followed);
        is_followed
    }

    fn add(
        &self,
        change: RowChange<'_>,
        catalogue: &Catalogue,
        chunk: &mut BTreeMap<u64, ChunkStates>,
    ) -> Result<(), Refusal> {
        let (old, new) = match change.change {
            Change::Insert { new } => (None, Some(new)),
            Change::Update { old, new } => (Some(old), Some(new)),
            Change::Delete { old } => (Some(old), None),
            Change::Truncate => return Ok(()),
        };
        let Some(table) = catalogue.table(change.table) else {
            // Its key is unknown. New rows conflict with no earlier change.
            return if old.is_none() { Ok(()) } else { Err(new_table()) };
        };
        if table.primary_key.is_empty() {
            // Its rows have no key to follow. New rows conflict with no earlier change.
            return if old.is_none() { Ok(()) } else { Err(out_of_order()) };
        }
        let key = |image: Option<&[u8]>| image.map(|image| self.key(table, image)).transpose();
        let (old_key, new_key) = (key(old)?, key(new)?);
        let state = |image: Option<&[u8]>| image.map_or(0, |image| self.hasher.hash_one(image) | 1);
        let (found, left) = (state(old), state(new));
        if old_key.is_some() && new_key.is_some() && old_key != new_key {
            chunk.entry(old_key.unwrap_or_default()).or_default().add(found, 0);
            chunk.entry(new_key.unwrap_or_default()).or_default().add(0, left);
        } else if let Some(row) = old_key.or(new_key) {
            chunk.entry(row).or_default().add(found, left);
        }
        Ok(())
    }

    fn key(&self, table: &Table, image: &[u8]) -> Result<u64, Refusal> {
        let image = Image::parse(image).ok().filter(|image| image.width() == table.columns.len());
        let columns: Vec<_> = image.ok_or_else(new_table)?.values().collect();
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(table.id.number);
        for &at in &table.primary_key {
            let value = columns[at].unwrap_or_default();
            hasher.write_usize(value.len());
            hasher.write(value);
        }
        Ok(hasher.finish())
    }
}

impl ChunkStates {
    fn add(&mut self, found: State, left: State) {
        self.found.push(found);
        self.left.push(left);
    }

    /// The first and the last state: one that no change has produced, and one that no change has found. The order of
    /// the changes does not matter.
    fn ends(self) -> (State, State) {
        let (first, mut left) = (self.found[0], self.left);
        let mut firsts = Vec::new();
        for found in self.found {
            match left.iter().position(|state| *state == found) {
                Some(at) => drop(left.swap_remove(at)),
                None => firsts.push(found),
            }
        }
        match (&firsts[..], &left[..]) {
            ([first], [last]) => (*first, *last),
            // The changes return to the first state.
            _ => (first, first),
        }
    }
}

/// Whether a trigger or cascade for rows of a table may change rows of the same table.
fn comes_back(table: &Table, catalogue: &Catalogue) -> bool {
    let mut reached = BTreeSet::from([table.id]);
    let mut waiting = vec![table];
    while let Some(next) = waiting.pop() {
        if next.user_triggers {
            return true;
        }
        for (child, reference) in catalogue.referenced_by(next.id) {
            let changes = |action| matches!(action, Action::Cascade | Action::SetNull | Action::SetDefault);
            if !changes(reference.on_delete) && !changes(reference.on_update) {
                continue;
            }
            if child.id == table.id {
                return true;
            }
            if reached.insert(child.id) {
                waiting.push(child);
            }
        }
    }
    false
}

fn out_of_order() -> Refusal {
    Refusal::unsupported(
        "a transaction of this size whose triggers change rows that the same statement changes",
        "Split it into smaller transactions.",
    )
}

fn new_table() -> Refusal {
    Refusal::unsupported(
        "a transaction of this size that makes or alters a table whose rows triggers change",
        "Change the schema in a transaction of its own.",
    )
}

fn too_many() -> Refusal {
    Refusal::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        format!("triggers of one transaction change more than {ROWS_MAX} rows of tables with triggers"),
        "Split it into smaller transactions.",
    )
}
