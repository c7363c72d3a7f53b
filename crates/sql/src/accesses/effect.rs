//! Consequences of writing rows: claims of keys, claims of parents, and the writes that foreign keys make.
//!
//! Every kind of write says which rows there are before and after it, and which columns it sets. From that: the keys
//! that may be taken or freed, the keys of other tables that are relied on, and the referencing rows that ON DELETE and
//! ON UPDATE change in turn.

use std::collections::{BTreeMap, BTreeSet};

use super::bind::{Operand, Slot, Use};
use super::guard::Guard;
use super::outline::{AccessOutline, ClaimOutline, LockOutline, Outline, RowsId, RowsOutline};
use super::value::Form;
use super::{ColumnSet, Columns, MAX_MATCHES, Strength, Why};
use crate::catalogue::{Action, Catalogue, Key, Reference, Table, TableId};

/// More sets of rows, or values, are not told apart: those of a body are of all tables that it reaches.
const MAX_ROWS: usize = 1_000;

/// Cascades longer than this are not followed.
const MAX_CASCADE: usize = 16;

/// An outline in the making.
pub(crate) struct Effects<'a> {
    pub(crate) catalogue: &'a Catalogue,
    outline: Outline,
    slot_ids: BTreeMap<Slot, usize>,
    /// What has to hold for the statement at hand to run.
    guards: Vec<Guard>,
    all: RowsId,
    /// Cascades under way or done: the table, the columns set (none for a removal) and the rows.
    followed: BTreeSet<(TableId, Option<ColumnSet>, RowsId, RowsId)>,
}

/// Rows by alternatives while they are put together: (column, slot) each.
pub(crate) type Branches = Option<Vec<Vec<(usize, usize)>>>;

impl<'a> Effects<'a> {
    pub(crate) fn new(catalogue: &'a Catalogue) -> Self {
        let outline = Outline { rows: vec![RowsOutline::All], ..Outline::default() };
        Self {
            catalogue,
            outline,
            slot_ids: BTreeMap::new(),
            guards: Vec::new(),
            all: RowsId(0),
            followed: BTreeSet::new(),
        }
    }

    /// From now on all rows are those of a statement that runs only if these guards hold.
    pub(crate) fn guard(&mut self, guards: Vec<Guard>) {
        self.guards = guards;
        self.all = self.number(RowsOutline::All);
    }

    /// Whether so much was gathered that the rest is not worth telling apart.
    pub(crate) fn is_full(&self) -> bool {
        self.outline.rows.len() > MAX_ROWS || self.outline.slots.len() > MAX_ROWS
    }

    pub(crate) fn finish(self) -> Outline {
        match self.outline.unbounded {
            Some(why) => Outline::anything(why),
            None => self.outline,
        }
    }

    /// The same, for a catalogue that is held for another time.
    pub(crate) fn under(self, catalogue: &Catalogue) -> Effects<'_> {
        let Self { outline, slot_ids, guards, all, followed, .. } = self;
        Effects { catalogue, outline, slot_ids, guards, all, followed }
    }

    /// Gives up on bounding; the first reason stays.
    pub(crate) fn give_up(&mut self, why: Why) {
        self.outline.unbounded.get_or_insert(why);
    }

    pub(crate) fn distrust(&mut self, parameters: Vec<u32>) {
        self.outline.untrusted = parameters;
    }

    /// The number of a value.
    pub(crate) fn slot(&mut self, operand: &Operand, form: Form, usage: Use) -> usize {
        let slot = Slot { operand: operand.clone(), form, usage };
        let next = self.outline.slots.len();
        let id = *self.slot_ids.entry(slot.clone()).or_insert(next);
        if id == next {
            self.outline.slots.push(slot);
        }
        id
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.outline.slots
    }

    /// Every parameter that a guard tests.
    pub(crate) fn tested(&self, found: &mut Vec<(u32, Form, bool)>) {
        for rows in &self.outline.rows {
            if let RowsOutline::When(guards, _) = rows {
                for guard in guards {
                    guard.test.parameters(found);
                }
            }
        }
    }

    /// The number of a set of rows. `None`, or an alternative that says nothing, is all rows.
    pub(crate) fn rows(&mut self, branches: Branches) -> RowsId {
        let Some(mut branches) = branches else { return self.all };
        for branch in &mut branches {
            branch.sort_unstable();
        }
        branches.sort_unstable();
        branches.dedup();
        if branches.len() > MAX_MATCHES || branches.iter().any(Vec::is_empty) {
            return self.all;
        }
        self.number(RowsOutline::AnyOf(branches))
    }

    fn number(&mut self, rows: RowsOutline) -> RowsId {
        let rows = match self.guards.as_slice() {
            [] => rows,
            guards => RowsOutline::When(guards.to_vec(), Box::new(rows)),
        };
        let known = self.outline.rows.iter().position(|known| *known == rows);
        RowsId(known.unwrap_or_else(|| {
            self.outline.rows.push(rows);
            self.outline.rows.len() - 1
        }))
    }

    fn branches(&self, rows: RowsId) -> Branches {
        match self.outline.rows[rows.0].unguarded() {
            RowsOutline::All | RowsOutline::When(..) => None,
            RowsOutline::AnyOf(branches) => Some(branches.clone()),
        }
    }

    fn union(&mut self, one: RowsId, other: RowsId) -> RowsId {
        if one == other {
            return one;
        }
        let both = self.branches(one).zip(self.branches(other));
        self.rows(both.map(|(mut one, other)| {
            // An alternative that says more than another one adds no rows.
            let adds =
                |branch: &Vec<_>| !one.iter().any(|known| known.iter().all(|pair| branch.contains(pair)));
            let added: Vec<_> = other.into_iter().filter(adds).collect();
            one.extend(added);
            one
        }))
    }

    /// The same rows as far as some columns tell, under other names of the columns.
    fn renamed(&mut self, rows: RowsId, names: &[(usize, usize)], keep_fresh: bool) -> RowsId {
        let Some(branches) = self.branches(rows) else { return self.all };
        let rename = |branch: Vec<(usize, usize)>| -> Vec<(usize, usize)> {
            let columns = names.iter().filter_map(|&(from, to)| {
                let (_, slot) = branch.iter().find(|(column, _)| *column == from)?;
                let fresh = self.outline.slots[*slot].operand == Operand::Fresh;
                (keep_fresh || !fresh).then_some((to, *slot))
            });
            columns.collect()
        };
        let branches = branches.into_iter().map(rename).collect();
        self.rows(Some(branches))
    }

    pub(crate) fn read(&mut self, table: TableId, columns: Columns, rows: RowsId) {
        let access = AccessOutline { table, columns, rows, new: false };
        if !self.outline.reads.contains(&access) {
            self.outline.reads.push(access);
        }
    }

    pub(crate) fn lock(&mut self, table: TableId, rows: RowsId, strength: Strength) {
        let lock = LockOutline { table, rows, strength };
        if !self.outline.locks.contains(&lock) {
            self.outline.locks.push(lock);
        }
    }

    fn write(&mut self, table: TableId, columns: Columns, rows: RowsId, new: bool) {
        let access = AccessOutline { table, columns, rows, new };
        if !self.outline.writes.contains(&access) {
            self.outline.writes.push(access);
        }
    }

    /// Whether writing a table runs nothing that is not known.
    fn is_bounded(&mut self, table: &Table) -> bool {
        let runs_code = table.user_triggers || table.own_code;
        if runs_code || !table.triggers.is_empty() || !table.rules.is_empty() {
            self.give_up(Why::Triggers(table.id));
        } else if !self.catalogue.knows_references(table) {
            self.give_up(Why::References(table.id));
        } else if table.row_security {
            self.give_up(Why::RowSecurity(table.id));
        } else if table.coded_types {
            self.give_up(Why::CodedTypes(table.id));
        }
        self.outline.unbounded.is_none()
    }

    /// Rows are made, known as far as `after` says.
    pub(crate) fn insert(&mut self, table: &Table, after: RowsId) {
        if !self.is_bounded(table) {
            return;
        }
        self.write(table.id, Columns::All, after, true);
        self.take_keys(table, None, after);
        for reference in &table.references {
            self.rely_on(table, reference, after);
        }
    }

    /// Any rows are made, removed and changed; what follows from that is known already.
    pub(crate) fn change_anything(&mut self, table: &Table) {
        let all = self.all;
        self.write(table.id, Columns::All, all, false);
        self.take_keys(table, None, all);
        for reference in &table.references {
            self.rely_on(table, reference, all);
        }
    }

    /// Rows are removed.
    pub(crate) fn delete(&mut self, table: &Table, before: RowsId) {
        self.remove(table, before, false, 0);
    }

    /// All rows are removed, and with `cascade` those of all referencing tables.
    pub(crate) fn truncate(&mut self, table: &Table, cascade: bool) {
        self.remove(table, self.all, cascade, 0);
    }

    /// Columns of rows are set; what is known of the rows before and after. `moves` says that a row may leave its
    /// table for another partition.
    pub(crate) fn update(&mut self, table: &Table, set: Columns, before: RowsId, after: RowsId, moves: bool) {
        let Columns::Some(mut columns) = set else {
            self.delete(table, before);
            self.insert(table, after);
            return;
        };
        let generated = table.columns.iter().enumerate().filter(|(_, column)| column.generated);
        columns = generated.map(|(at, _)| at).fold(columns, ColumnSet::with);
        self.change(table, columns, before, after, 0);
        if moves {
            let rows = self.union(before, after);
            self.write(table.id, Columns::All, rows, false);
        }
    }

    fn remove(&mut self, table: &Table, before: RowsId, truncate: bool, depth: usize) {
        if !self.is_bounded(table) || !self.followed.insert((table.id, None, before, before)) {
            return;
        }
        if depth > MAX_CASCADE {
            self.give_up(Why::References(table.id));
            return;
        }
        self.write(table.id, Columns::All, before, false);
        self.take_keys(table, None, before);
        for reference in &table.references {
            self.rely_on(table, reference, before);
        }
        let children: Vec<_> = self.catalogue.referenced_by(table.id).collect();
        for (child, reference) in children {
            let action = if truncate { Action::Cascade } else { reference.on_delete };
            match action {
                Action::NoAction | Action::Restrict => {}
                Action::Cascade => {
                    let rows =
                        if truncate { self.all } else { self.referencing(child, table, reference, before) };
                    self.remove(child, rows, truncate, depth + 1);
                }
                Action::SetNull | Action::SetDefault => {
                    let rows = self.referencing(child, table, reference, before);
                    self.change(
                        child,
                        reference.columns.iter().copied().collect(),
                        rows,
                        self.all,
                        depth + 1,
                    );
                }
            }
        }
    }

    fn change(&mut self, table: &Table, set: ColumnSet, before: RowsId, after: RowsId, depth: usize) {
        if !self.is_bounded(table) || !self.followed.insert((table.id, Some(set), before, after)) {
            return;
        }
        if depth > MAX_CASCADE {
            self.give_up(Why::References(table.id));
            return;
        }
        let both = self.union(before, after);
        self.write(table.id, Columns::Some(set), both, false);
        self.take_keys(table, Some(set), before);
        self.take_keys(table, Some(set), after);
        for reference in table.references.iter().filter(|reference| touches(&reference.columns, set)) {
            self.rely_on(table, reference, before);
            self.rely_on(table, reference, after);
        }
        let children: Vec<_> = self.catalogue.referenced_by(table.id).collect();
        for (child, reference) in children {
            let follows = !matches!(reference.on_update, Action::NoAction | Action::Restrict);
            if follows && touches(&reference.parent_columns, set) {
                let old = self.referencing(child, table, reference, before);
                let new = match reference.on_update {
                    Action::Cascade => self.referencing(child, table, reference, after),
                    _ => self.all,
                };
                self.change(child, reference.columns.iter().copied().collect(), old, new, depth + 1);
            }
        }
    }

    /// Claims the keys of some rows: all keys, or those that setting some columns can change.
    fn take_keys(&mut self, table: &Table, set: Option<ColumnSet>, rows: RowsId) {
        for (key, known) in table.keys.iter().enumerate() {
            if set.is_some_and(|set| !touches(&known.columns, set)) {
                continue;
            }
            let rows = self.values_of(known, rows);
            self.claim(ClaimOutline { table: table.id, key, rows, exclusive: true });
        }
    }

    /// The values of a key in some rows; only of a plain one do the columns tell.
    fn values_of(&mut self, key: &Key, rows: RowsId) -> RowsId {
        if !key.is_plain() {
            return self.all;
        }
        let names: Vec<_> = key.columns.iter().map(|&at| (at, at)).collect();
        self.renamed(rows, &names, true)
    }

    /// Claims the keys that some rows of a table point to.
    fn rely_on(&mut self, table: &Table, reference: &Reference, rows: RowsId) {
        let Some(parent) = self.catalogue.table(reference.parent) else {
            self.give_up(Why::References(table.id));
            return;
        };
        let mut wanted = reference.parent_columns.clone();
        wanted.sort_unstable();
        let is_wanted = |key: &Key| {
            let mut columns = key.columns.clone();
            columns.sort_unstable();
            columns == wanted && !key.partial && !key.expression
        };
        let Some(key) = parent.keys.iter().position(is_wanted) else {
            self.give_up(Why::References(table.id));
            return;
        };
        let rows = if reference.period || !parent.keys[key].is_plain() {
            self.all
        } else {
            let names = same_forms(table, &reference.columns, parent, &reference.parent_columns);
            self.renamed(rows, &names, false)
        };
        self.claim(ClaimOutline { table: parent.id, key, rows, exclusive: false });
    }

    /// The rows of a child that point to some rows of its parent.
    fn referencing(&mut self, child: &Table, parent: &Table, reference: &Reference, rows: RowsId) -> RowsId {
        if reference.period {
            return self.all;
        }
        let names = same_forms(parent, &reference.parent_columns, child, &reference.columns);
        self.renamed(rows, &names, false)
    }

    fn claim(&mut self, claim: ClaimOutline) {
        if !self.outline.claims.contains(&claim) {
            self.outline.claims.push(claim);
        }
    }
}

fn touches(columns: &[usize], set: ColumnSet) -> bool {
    columns.iter().any(|&at| set.contains(at))
}

/// Pairs of columns whose values can be carried over.
fn same_forms(from: &Table, columns: &[usize], to: &Table, targets: &[usize]) -> Vec<(usize, usize)> {
    let form = |table: &Table, at: usize| table.columns.get(at).and_then(Form::of_column);
    let pairs = columns.iter().copied().zip(targets.iter().copied());
    pairs.filter(|&(one, other)| form(from, one).is_some() && form(from, one) == form(to, other)).collect()
}
