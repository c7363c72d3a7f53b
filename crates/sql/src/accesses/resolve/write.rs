//! INSERT, UPDATE, DELETE and MERGE: rows before and after.

use std::rc::Rc;

use super::facts::ContextId;
use super::query::Resolver;
use super::scope::{Level, Origin, Outputs, Range, RangeKind, Used};
use crate::accesses::bind::{Operand, Use};
use crate::accesses::effect::Branches;
use crate::accesses::shape::{
    Assignment, Delete, Insert, Merge, MergeAction, NewRows, OnConflict, Target, Term, Update, Values,
};
use crate::accesses::value::Form;
use crate::accesses::{ColumnSet, Columns};
use crate::catalogue::{ColumnDefault, Table, TableId};
use crate::name::{Name, SYSTEM_SCHEMA};

/// Built-in functions that draw a number of 122 bits, or of 74 and the time, so that no two calls give the same. (If two
/// did, certification by the rows would find it.)
const FRESH: [&str; 3] = ["gen_random_uuid", "uuidv4", "uuidv7"];

/// The columns of RETURNING are not looked at.
const RETURNED: Outputs = Outputs { columns: Vec::new(), open: true };

impl<'a> Resolver<'a> {
    /// Opens a level with the target in it, and gives the target's range.
    fn target(&mut self, target: &Target, context: ContextId) -> usize {
        self.scope.levels.push(Level::default());
        self.relation(&target.name, target.alias.as_deref(), context, false);
        self.scope.ranges.len() - 1
    }

    fn targets(&self, range: usize) -> Vec<&'a Table> {
        let catalogue = self.catalogue;
        self.tables(range).into_iter().filter_map(|id| catalogue.table(id)).collect()
    }

    fn is_parent_range(&self, range: usize) -> bool {
        matches!(self.scope.ranges[range].kind, RangeKind::Tables { is_parent: true, .. })
    }

    pub(super) fn update(&mut self, update: &Update) -> Outputs {
        let context = self.facts.inside(None);
        let range = self.target(&update.target, context);
        for source in &update.from {
            self.source(source, context);
        }
        let fact = self.scope.fact(&update.condition);
        self.facts.add(context, fact);
        self.uses(&update.uses, Some(context));
        self.uses(&update.returning, None);
        self.place_assignments(range, &update.set);
        for table in self.targets(range) {
            self.read(range, table.id);
            let before = self.branches(range, table.id);
            self.set(range, table, &update.set, before, None);
        }
        self.scope.levels.pop();
        RETURNED
    }

    pub(super) fn delete(&mut self, delete: &Delete) -> Outputs {
        let context = self.facts.inside(None);
        let range = self.target(&delete.target, context);
        for source in &delete.from {
            self.source(source, context);
        }
        let fact = self.scope.fact(&delete.condition);
        self.facts.add(context, fact);
        self.uses(&delete.uses, Some(context));
        for table in self.targets(range) {
            self.read(range, table.id);
            let rows = self.rows(range, table.id);
            self.effects.delete(table, rows);
        }
        self.scope.levels.pop();
        RETURNED
    }

    /// Columns of rows are set. `proposed` has, for each alternative, the row that ON CONFLICT calls `excluded`.
    fn set(
        &mut self,
        range: usize,
        table: &Table,
        set: &[Assignment],
        before: Branches,
        proposed: Option<&Image>,
    ) {
        let mut columns = Some(ColumnSet::EMPTY);
        for assignment in set {
            let position = self.scope.position(table.id, &assignment.column);
            columns = columns.zip(position).map(|(columns, position)| columns.with(position));
        }
        let moves = self.is_parent_range(range);
        let after = columns.map(|columns| {
            let branches = before.clone().unwrap_or_else(|| vec![Vec::new()]);
            let mut after = Vec::with_capacity(branches.len());
            for (at, mut branch) in branches.into_iter().enumerate() {
                let is_kept = |column: usize| !columns.contains(column) && !table.columns[column].generated;
                branch.retain(|(column, _)| is_kept(*column));
                for assignment in set {
                    let proposed = proposed.and_then(|rows| rows.get(at));
                    branch.extend(self.assigned(table, assignment, proposed));
                }
                after.push(branch);
            }
            after
        });
        let (before, after) = (self.effects.rows(before), self.effects.rows(after));
        let columns = columns.map_or(Columns::All, Columns::Some);
        self.effects.update(table, columns, before, after, moves);
    }

    /// The value that a column is set to, if it is known.
    fn assigned(
        &mut self,
        table: &Table,
        assignment: &Assignment,
        proposed: Option<&Vec<(usize, usize)>>,
    ) -> Option<(usize, usize)> {
        let position = self.scope.position(table.id, &assignment.column)?;
        let slot = match &assignment.value {
            Term::Operand(operand) => self.stored(table, position, operand),
            Term::Default => self.default(table, position),
            Term::Column(column) => {
                let of_proposed = column.qualifier.last().is_some_and(|alias| alias == EXCLUDED)
                    && column.name.as_ref() == Some(&assignment.column);
                let (_, slot) = proposed.filter(|_| of_proposed)?.iter().find(|(at, _)| *at == position)?;
                Some(*slot)
            }
            // One call for each row.
            Term::Called(_) | Term::Other => None,
        };
        slot.map(|slot| (position, slot))
    }

    /// A value stored in a column.
    fn stored(&mut self, table: &Table, position: usize, operand: &Operand) -> Option<usize> {
        let column = table.columns.get(position).filter(|column| !column.generated)?;
        let form = Form::of_column(column)?;
        let operand = self.scope.known(operand)?;
        Some(self.effects.slot(&operand, form, Use::Stored(column.type_mod)))
    }

    /// What a column holds when no value is given for it.
    fn default(&mut self, table: &Table, position: usize) -> Option<usize> {
        let operand = match &table.columns.get(position)?.default {
            ColumnDefault::None => Operand::Null,
            ColumnDefault::Constant(text) => Operand::Text(text.clone()),
            ColumnDefault::Sequence(name)
                if self.catalogue.sequences().any(|one| one.cycle && one.name == name.name) =>
            {
                return None;
            }
            ColumnDefault::Sequence(_) => Operand::Fresh,
            ColumnDefault::Expression(text)
                if called_in(text).is_some_and(|function| self.is_fresh(&function)) =>
            {
                Operand::Fresh
            }
            ColumnDefault::Expression(_) => return None,
        };
        self.stored(table, position, &operand)
    }

    /// Whether each call of this function gives a new value: it is built in, and no user's function can stand in for it.
    fn is_fresh(&self, function: &Name) -> bool {
        let is_built_in = match function.schema.as_deref() {
            Some(schema) => schema == SYSTEM_SCHEMA,
            None => !self.catalogue.is_user_function(&function.name),
        };
        is_built_in && FRESH.contains(&function.name.as_str())
    }

    /// Notes which parameters get their types from the columns that they are assigned to.
    fn place_assignments(&mut self, range: usize, set: &[Assignment]) {
        for assignment in set {
            if let Term::Operand(operand) = &assignment.value {
                self.place_in(range, &assignment.column, operand);
            }
        }
    }

    fn place_in(&mut self, range: usize, column: &str, operand: &Operand) {
        let form = self.scope.origin(range, column).column().and_then(|variable| self.scope.form(&variable));
        if let Some(form) = form {
            self.scope.place(operand, form);
        }
    }

    pub(super) fn insert(&mut self, insert: &Insert) -> Outputs {
        // The values cannot see the target.
        let new = match &insert.new.values {
            Values::Query(query) => {
                let outputs = self.query(query, None);
                NewRows { values: given_by(outputs), ..insert.new.clone() }
            }
            _ => insert.new.clone(),
        };
        let context = self.facts.inside(None);
        let range = self.target(&insert.target, context);
        self.uses(&insert.uses, None);
        self.place_rows(range, &new);
        if let Some(conflict) = &insert.conflict {
            self.enter_excluded(context);
            self.uses(&conflict.uses, None);
            if let Some(assignments) = &conflict.update {
                self.place_assignments(range, assignments);
            }
        }
        for table in self.targets(range) {
            let image = self.image(range, table, &new);
            let rows = self.effects.rows(image.clone());
            self.effects.insert(table, rows);
            if let Some(conflict) = &insert.conflict {
                self.on_conflict(range, table, conflict, image.as_ref());
            } else if self.columns(range, table.id) != Columns::Some(ColumnSet::EMPTY) {
                // RETURNING gives back what was just made.
                super::check_read(&mut self.effects, table.id);
            }
        }
        self.scope.levels.pop();
        RETURNED
    }

    fn enter_excluded(&mut self, context: ContextId) {
        let outputs = Rc::new(Outputs { columns: Vec::new(), open: true });
        let kind = RangeKind::Derived { outputs, inside: 0..0 };
        let range = self.scope.ranges.len();
        self.scope.ranges.push(Range {
            alias: EXCLUDED.to_owned(),
            kind,
            used: Used::default(),
            context,
            is_source: false,
        });
        if let Some(level) = self.scope.levels.last_mut() {
            level.ranges.push(range);
        }
    }

    fn place_rows(&mut self, range: usize, new: &NewRows) {
        let Values::Rows(rows) = &new.values else { return };
        let tables = self.targets(range);
        for row in rows {
            for (at, term) in row.iter().enumerate() {
                let name = match new.columns.get(at) {
                    Some(name) => Some(name.clone()),
                    None => tables.first().and_then(|table| Some(table.columns.get(at)?.name.clone())),
                };
                if let (Some(name), Term::Operand(operand)) = (name, term) {
                    self.place_in(range, &name, operand);
                }
            }
        }
    }

    /// The new rows, as far as they are known.
    fn image(&mut self, range: usize, table: &Table, new: &NewRows) -> Branches {
        let Values::Rows(rows) = &new.values else { return None };
        // The order of a parent's columns need not be that of its leaves.
        if new.columns.is_empty() && rows.iter().any(|row| !row.is_empty()) && self.is_parent_range(range) {
            return None;
        }
        let given: Option<Vec<Option<usize>>> = if new.columns.is_empty() {
            Some((0..table.columns.len()).map(Some).collect())
        } else {
            let position = |name: &String| match name.as_str() {
                "" => Some(None),
                name => self.scope.position(table.id, name).map(Some),
            };
            new.columns.iter().map(position).collect()
        };
        let given = given?;
        // Parts of columns are given: they have neither the default nor a known value.
        if given.contains(&None) {
            return None;
        }
        Some(rows.iter().map(|row| self.new_row(table, &given, row, new.ignores_identity)).collect())
    }

    fn new_row(
        &mut self,
        table: &Table,
        given: &[Option<usize>],
        row: &[Term],
        ignores_identity: bool,
    ) -> Vec<(usize, usize)> {
        let mut branch = Vec::with_capacity(table.columns.len());
        for (position, column) in table.columns.iter().enumerate() {
            let at = given.iter().position(|given| *given == Some(position));
            let slot = match at.and_then(|at| row.get(at)) {
                Some(_) if ignores_identity && matches!(column.default, ColumnDefault::Sequence(_)) => None,
                Some(Term::Operand(operand)) => self.stored(table, position, operand),
                Some(Term::Default) | None => self.default(table, position),
                Some(Term::Called(function)) if self.is_fresh(function) => {
                    self.stored(table, position, &Operand::Fresh)
                }
                Some(Term::Column(_) | Term::Called(_) | Term::Other) => None,
            };
            branch.extend(slot.map(|slot| (position, slot)));
        }
        branch
    }

    /// The row that is in the way is read, and with DO UPDATE written.
    fn on_conflict(&mut self, range: usize, table: &Table, conflict: &OnConflict, image: Option<&Image>) {
        super::check_read(&mut self.effects, table.id);
        let arbiter: Option<Vec<usize>> = conflict
            .columns
            .as_ref()
            .and_then(|columns| columns.iter().map(|name| self.scope.position(table.id, name)).collect());
        let arbiters: Vec<Vec<usize>> = match arbiter {
            Some(columns) => vec![columns],
            None => table
                .keys
                .iter()
                .map(|key| if key.is_plain() { key.columns.clone() } else { Vec::new() })
                .collect(),
        };
        let own = self.columns(range, table.id);
        for columns in arbiters {
            let before: Branches =
                image.map(|rows| rows.iter().map(|row| restricted(row, &columns)).collect());
            let rows = self.effects.rows(before.clone());
            self.effects.read(table.id, own.and(Columns::Some(columns.into_iter().collect())), rows);
            if let Some(set) = &conflict.update {
                self.set(range, table, set, before, image);
            }
        }
    }

    pub(super) fn merge(&mut self, merge: &Merge) -> Outputs {
        let around = self.facts.inside(None);
        // Rows that match are those of an inner join; a side of which other rows count as well is preserved.
        let on = self.facts.nullable(around);
        let range = self.target(&merge.target, if merge.beyond_source { around } else { on });
        self.source(&merge.source, if merge.beyond_target { around } else { on });
        let fact = self.scope.fact(&merge.condition);
        self.facts.add(on, fact);
        self.uses(&merge.uses, None);
        for action in &merge.actions {
            match action {
                MergeAction::Insert(new) => self.place_rows(range, new),
                MergeAction::Update(set) => self.place_assignments(range, set),
                MergeAction::Delete => {}
            }
        }
        for table in self.targets(range) {
            self.read(range, table.id);
            for action in &merge.actions {
                self.merge_action(range, table, action);
            }
        }
        self.scope.levels.pop();
        RETURNED
    }

    fn merge_action(&mut self, range: usize, table: &Table, action: &MergeAction) {
        match action {
            MergeAction::Insert(new) => {
                let image = self.image(range, table, new);
                let rows = self.effects.rows(image);
                self.effects.insert(table, rows);
            }
            MergeAction::Update(set) => {
                let before = self.branches(range, table.id);
                self.set(range, table, set, before, None);
            }
            MergeAction::Delete => {
                let rows = self.rows(range, table.id);
                self.effects.delete(table, rows);
            }
        }
    }

    /// COPY .. FROM.
    pub(super) fn copy_from(&mut self, ids: &[TableId]) {
        for table in ids.iter().filter_map(|id| self.catalogue.table(*id)) {
            let all = self.effects.rows(None);
            self.effects.insert(table, all);
        }
    }
}

/// What is known of the rows that a query gives: as one row, of which a value can be one of several.
fn given_by(outputs: Outputs) -> Values {
    if outputs.open {
        return Values::Many;
    }
    let term = |origin: Origin| match origin {
        Origin::Given(given) if given.exact => Term::Operand(given.operand),
        _ => Term::Other,
    };
    Values::Rows(vec![outputs.columns.into_iter().map(|(_, origin)| term(origin)).collect()])
}

/// What ON CONFLICT calls the row that was to be inserted.
const EXCLUDED: &str = "excluded";

/// Rows by alternatives that are known one by one.
type Image = Vec<Vec<(usize, usize)>>;

fn restricted(row: &[(usize, usize)], columns: &[usize]) -> Vec<(usize, usize)> {
    row.iter().copied().filter(|(column, _)| columns.contains(column)).collect()
}

/// The function that a default is a call of, without arguments, whatever text its value is then made.
fn called_in(expression: &str) -> Option<Name> {
    const TEXTS: [&str; 3] = ["text", "varchar", "character varying"];
    let (call, to) = expression.rsplit_once("::").unwrap_or((expression, TEXTS[0]));
    let path = call
        .trim_start_matches('(')
        .trim_end_matches(')')
        .strip_suffix('(')
        .filter(|_| TEXTS.contains(&to))?;
    Some(match path.rsplit_once('.') {
        Some((schema, function)) => Name::qualified(schema, function),
        None => Name::bare(path),
    })
}
