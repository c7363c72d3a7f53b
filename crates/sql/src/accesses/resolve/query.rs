//! The walk through the queries of a statement.
//!
//! It makes a range of every relation, puts its rows into contexts, and looks up every name. What is read is noted at
//! the end, when everything that is known of the rows is there.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::facts::{ContextId, Facts, Known};
use super::scope::{self, Level, Origin, Outputs, Range, RangeKind, Scope, Used};
use crate::accesses::bind::{Operand, Place};
use crate::accesses::effect::{Branches, Effects};
use crate::accesses::outline::RowsId;
use crate::accesses::shape::{
    Body, ColumnRef, Given, GivenKind, Join, Locking, Output, Query, Select, Shape, Source, Uses, WithQuery,
};
use crate::accesses::{ColumnSet, Columns, Strength};
use crate::catalogue::{Catalogue, TableId};
use crate::statement::Statement;

/// Everything that is known while a statement is walked through.
pub(super) struct Resolver<'a> {
    pub(super) statement: &'a Statement,
    pub(super) catalogue: &'a Catalogue,
    pub(super) effects: Effects<'a>,
    pub(super) scope: Scope<'a>,
    pub(super) facts: Facts,
    /// WITH queries in reach, the innermost last.
    pub(super) with: Vec<(String, With)>,
    /// Names that FROM clauses of the statement name once.
    pub(super) named_once: &'a BTreeSet<String>,
    /// A join was met that puts NULLs in the place of rows.
    joins_outer: bool,
    locks: Vec<(usize, Strength)>,
    /// Views within views, at present.
    pub(super) views: usize,
    /// Views looked into so far.
    pub(super) expanded: usize,
}

/// A WITH query.
#[derive(Clone)]
pub(super) enum With {
    /// It has been walked through, and has these columns.
    Seen(Rc<Outputs>),
    /// It is named once, where it is what a query in FROM would be; how many levels and WITH queries it sees.
    Once { query: Rc<WithQuery>, levels: usize, known: usize },
}

impl<'a> Resolver<'a> {
    pub(super) fn new(statement: &'a Statement, shape: &'a Shape, catalogue: &'a Catalogue) -> Self {
        Self::of(statement, &shape.named_once, Effects::new(catalogue))
    }

    /// For one of several statements, of which `effects` are those before.
    pub(super) fn of(
        statement: &'a Statement,
        named_once: &'a BTreeSet<String>,
        effects: Effects<'a>,
    ) -> Self {
        let catalogue = effects.catalogue;
        Self {
            statement,
            catalogue,
            effects,
            scope: Scope::new(catalogue),
            facts: Facts::default(),
            with: Vec::new(),
            named_once,
            joins_outer: false,
            locks: Vec::new(),
            views: 0,
            expanded: 0,
        }
    }

    /// A query with what stands around it. Gives the columns of its result.
    pub(super) fn query(&mut self, query: &Query, around: Option<ContextId>) -> Outputs {
        let known = self.with.len();
        if query.recursive {
            for with in &query.with {
                let columns = with.columns.iter().map(|name| (name.clone(), Origin::Unknown)).collect();
                self.with.push((with.name.clone(), With::Seen(Rc::new(Outputs { columns, open: true }))));
            }
        }
        for (at, with) in query.with.iter().enumerate() {
            let only_reads = matches!(with.query.body, Body::Select(_) | Body::Combined { .. });
            if only_reads && !query.recursive && self.named_once.contains(&with.name) {
                let (levels, known) = (self.scope.levels.len(), self.with.len());
                let once = With::Once { query: Rc::new(with.clone()), levels, known };
                self.with.push((with.name.clone(), once));
                continue;
            }
            let seen = With::Seen(Rc::new(without_columns(self.query(&with.query, None), &with.columns)));
            if query.recursive {
                self.with[known + at].1 = seen;
            } else {
                self.with.push((with.name.clone(), seen));
            }
        }
        let outputs = match &query.body {
            Body::Select(select) => self.select(select, around),
            Body::Combined { left, right, uses } => {
                let left = self.query(left, around);
                let right = self.query(right, around);
                self.uses(uses, around);
                either(left, right)
            }
            Body::Insert(insert) => self.insert(insert),
            Body::Update(update) => self.update(update),
            Body::Delete(delete) => self.delete(delete),
            Body::Merge(merge) => self.merge(merge),
        };
        self.with.truncate(known);
        outputs
    }

    fn select(&mut self, select: &Select, around: Option<ContextId>) -> Outputs {
        let context = self.facts.inside(around);
        self.scope.levels.push(Level { outputs: output_names(select), ..Level::default() });
        for source in &select.from {
            self.source(source, context);
        }
        let fact = self.scope.fact(&select.condition);
        self.facts.add(context, fact);
        self.uses(&select.uses, Some(context));
        let outputs = self.outputs(select);
        for locking in &select.locking {
            self.lock(locking);
        }
        self.scope.levels.pop();
        outputs
    }

    fn outputs(&mut self, select: &Select) -> Outputs {
        let mut outputs = Outputs::default();
        for output in &select.outputs {
            match output {
                Output::Star(star) => {
                    let level = self.scope.levels.last().cloned().unwrap_or_default();
                    let alias = star.qualifier.last();
                    let is_meant =
                        |range: &usize| alias.is_none_or(|alias| self.scope.ranges[*range].alias == *alias);
                    let ranges: Vec<usize> = level.ranges.iter().copied().filter(is_meant).collect();
                    let found = self.scope.star(&ranges);
                    let columns = found.columns.into_iter();
                    outputs.columns.extend(columns.map(|(name, origin)| (name, self.joined(origin))));
                    // A star of a relation further out, or one that USING or NATURAL changes.
                    outputs.open |= found.open || ranges.is_empty() || !level.merged.is_empty();
                }
                Output::Column { name, column, given } => {
                    let grouped = select
                        .grouped
                        .as_ref()
                        .is_none_or(|columns| column.as_ref().is_some_and(|column| columns.contains(column)));
                    let origin = match (given, column) {
                        (Some(given), _) => match self.scope.known(&given.operand) {
                            Some(operand) => Origin::Given(Given { operand, ..given.clone() }),
                            None => Origin::Unknown,
                        },
                        (None, Some(column)) => {
                            let origin = self.scope.refer(column);
                            if grouped { self.joined(origin) } else { Origin::Unknown }
                        }
                        (None, None) => Origin::Unknown,
                    };
                    outputs.columns.push((name.clone(), origin));
                }
            }
        }
        if select.transparent && !outputs.open { outputs } else { without_columns(outputs, &[]) }
    }

    /// What a column is after the joins: one may have put NULL in the place of a value.
    fn joined(&self, origin: Origin) -> Origin {
        match origin {
            Origin::Given(given) => Origin::Given(Given { exact: given.exact && !self.joins_outer, ..given }),
            origin => origin,
        }
    }

    /// Looks up the columns that expressions use, and walks through the queries in them.
    pub(super) fn uses(&mut self, uses: &Uses, context: Option<ContextId>) {
        for column in &uses.columns {
            self.scope.refer(column);
        }
        if uses.everything {
            self.scope.use_everything();
        }
        for query in &uses.queries {
            self.query(query, context);
        }
    }

    /// Enters an item of FROM into the innermost level.
    pub(super) fn source(&mut self, source: &Source, context: ContextId) {
        match source {
            Source::Relation { name, alias } => self.relation(name, alias.as_deref(), context, true),
            Source::Query { query, alias, columns, lateral } => {
                let begin = self.scope.ranges.len();
                let hidden = if *lateral { None } else { self.scope.levels.pop() };
                let outputs = self.query(query, Some(context));
                self.scope.levels.extend(hidden);
                let inside = begin..self.scope.ranges.len();
                let outputs = Rc::new(renamed(outputs, columns));
                self.enter(
                    alias.clone().unwrap_or_default(),
                    RangeKind::Derived { outputs, inside },
                    context,
                    true,
                );
            }
            Source::Other { uses, alias } => {
                self.uses(uses, None);
                let outputs = Rc::new(Outputs { columns: Vec::new(), open: true });
                let kind = RangeKind::Derived { outputs, inside: 0..0 };
                self.enter(alias.clone().unwrap_or_default(), kind, context, true);
            }
            Source::Unnest { arrays, alias, columns, uses } => {
                self.uses(uses, None);
                self.unnest(arrays, alias, columns, context);
            }
            Source::Join { kind, sides, condition, using, uses } => {
                self.joins_outer |= *kind != Join::Inner;
                let (left, right, on) = self.sides(*kind, context);
                let first = self.scope.levels.last().map_or(0, |level| level.ranges.len());
                self.source(&sides[0], left);
                let middle = self.scope.levels.last().map_or(0, |level| level.ranges.len());
                self.source(&sides[1], right);
                // ON sees the two sides, and what is further out.
                let whole = self.scope.levels.last().cloned().unwrap_or_default();
                let both = whole.ranges[first..].to_vec();
                self.within(both, |resolver| {
                    let fact = resolver.scope.fact(condition);
                    resolver.uses(uses, None);
                    if *kind == Join::Natural {
                        resolver.scope.use_everything();
                    }
                    resolver.facts.add(on, fact);
                });
                for name in using {
                    let column = ColumnRef { qualifier: Vec::new(), name: Some(name.clone()) };
                    let (left, right) =
                        (whole.ranges[first..middle].to_vec(), whole.ranges[middle..].to_vec());
                    let left = self.within(left, |resolver| resolver.scope.refer(&column));
                    let right = self.within(right, |resolver| resolver.scope.refer(&column));
                    let fact = self.scope.equal(left, right);
                    self.facts.add(on, fact);
                }
                if let Some(level) = self.scope.levels.last_mut().filter(|_| Scope::merges(*kind)) {
                    level.merged.extend(using.iter().cloned());
                }
            }
        }
    }

    /// Enters `unnest`: in each of its rows the columns are elements at one place.
    fn unnest(&mut self, arrays: &[Operand], alias: &str, columns: &[String], context: ContextId) {
        let place = Place::Row(self.scope.ranges.len());
        let element = |array: &Operand| match self.scope.known(array)? {
            Operand::Array(array) if matches!(*array, Operand::CastArray(..)) => Some(array),
            Operand::List(all) if all.iter().all(Operand::is_scalar) => Some(Box::new(Operand::List(all))),
            _ => None,
        };
        // Elements of other types may be rows, which are columns of their own.
        let known: Option<Vec<Box<Operand>>> = arrays.iter().map(element).collect();
        let is_open = known.is_none();
        let origin = |at: usize| match known.as_ref().and_then(|known| known.get(at)) {
            Some(array) => {
                let operand = Operand::Element { array: array.clone(), place: place.clone() };
                Origin::Given(Given { operand, kind: GivenKind::Other, exact: false })
            }
            None => Origin::Unknown,
        };
        let named = columns.iter().enumerate().filter(|_| !is_open);
        let columns = named.map(|(at, name)| (name.clone(), origin(at))).collect();
        let outputs = Rc::new(Outputs { columns, open: is_open });
        self.enter(alias.to_owned(), RangeKind::Derived { outputs, inside: 0..0 }, context, true);
    }

    /// The contexts of the two sides of a join, and the one that its condition belongs to.
    fn sides(&mut self, kind: Join, context: ContextId) -> (ContextId, ContextId, ContextId) {
        match kind {
            Join::Inner => {
                let both = self.facts.inside(Some(context));
                (both, both, both)
            }
            Join::Left => {
                let right = self.facts.nullable(context);
                (context, right, right)
            }
            Join::Right => {
                let left = self.facts.nullable(context);
                (left, context, left)
            }
            // Its condition bounds neither side.
            Join::Full | Join::Natural => {
                let both = self.facts.nullable(context);
                let nowhere = self.facts.inside(None);
                (both, both, nowhere)
            }
        }
    }

    /// Does something while only some ranges of the innermost level are in reach.
    fn within<T>(&mut self, ranges: Vec<usize>, run: impl FnOnce(&mut Self) -> T) -> T {
        let merged = self.scope.levels.last().map_or(Vec::new(), |level| level.merged.clone());
        let hidden = self.scope.levels.pop();
        self.scope.levels.push(Level { ranges, outputs: Vec::new(), merged });
        let result = run(self);
        self.scope.levels.pop();
        self.scope.levels.extend(hidden);
        result
    }

    pub(super) fn enter(&mut self, alias: String, kind: RangeKind, context: ContextId, is_source: bool) {
        let range = self.scope.ranges.len();
        self.scope.ranges.push(Range { alias, kind, used: Used::default(), context, is_source });
        if let Some(level) = self.scope.levels.last_mut() {
            level.ranges.push(range);
        }
    }

    /// Locks the tables of the innermost level, those of queries in FROM included.
    fn lock(&mut self, locking: &Locking) {
        let Some(level) = self.scope.levels.last() else { return };
        for &range in &level.ranges {
            let known = &self.scope.ranges[range];
            if locking.of.is_empty() || locking.of.contains(&known.alias) {
                self.locks.push((range, locking.strength));
                if let RangeKind::Derived { inside, .. } = &known.kind {
                    self.locks.extend(inside.clone().map(|range| (range, locking.strength)));
                }
            }
        }
    }

    /// What is known of the rows of a range, as (column, slot) of one of its tables.
    pub(super) fn branches(&mut self, range: usize, id: TableId) -> Branches {
        let known = self.facts.about(range, self.scope.ranges[range].context)?;
        let slots = |resolver: &mut Self, known: Vec<Known>| -> Vec<(usize, usize)> {
            let mut branch = Vec::with_capacity(known.len());
            for Known { column, form, operand, usage } in known {
                if let Some(position) = resolver.scope.position(id, &column) {
                    branch.push((position, resolver.effects.slot(&operand, form, usage)));
                }
            }
            branch
        };
        Some(known.into_iter().map(|known| slots(self, known)).collect())
    }

    pub(super) fn rows(&mut self, range: usize, id: TableId) -> RowsId {
        let branches = self.branches(range, id);
        self.effects.rows(branches)
    }

    /// The columns of a range that are read, in one of its tables.
    pub(super) fn columns(&self, range: usize, id: TableId) -> Columns {
        let used = &self.scope.ranges[range].used;
        if used.whole {
            return Columns::All;
        }
        let positions = used.names.iter().filter_map(|name| self.scope.position(id, name));
        Columns::Some(positions.collect::<ColumnSet>())
    }

    pub(super) fn tables(&self, range: usize) -> Vec<TableId> {
        match &self.scope.ranges[range].kind {
            RangeKind::Tables { ids, .. } => ids.clone(),
            RangeKind::Derived { .. } => Vec::new(),
        }
    }

    /// Notes what was read and locked.
    pub(super) fn finish(self, parameters: Option<&[u32]>) -> Effects<'a> {
        let placed = self.scope.placed.clone();
        let mut effects = self.finish_within();
        let untrusted = scope::untrusted(&placed, parameters, effects.slots());
        effects.distrust(untrusted);
        effects
    }

    /// Notes what was read and locked by a statement of a body, whose parameters are none of the client's.
    pub(super) fn finish_within(mut self) -> Effects<'a> {
        for range in 0..self.scope.ranges.len() {
            if self.scope.ranges[range].is_source {
                for id in self.tables(range) {
                    self.read(range, id);
                }
            }
        }
        for (range, strength) in std::mem::take(&mut self.locks) {
            for id in self.tables(range) {
                let rows = self.rows(range, id);
                self.effects.lock(id, rows, strength);
            }
        }
        self.effects
    }

    /// Notes that the rows of a range are read.
    pub(super) fn read(&mut self, range: usize, id: TableId) {
        super::check_read(&mut self.effects, id);
        let (columns, rows) = (self.columns(range, id), self.rows(range, id));
        self.effects.read(id, columns, rows);
    }
}

fn output_names(select: &Select) -> Vec<String> {
    let name = |output: &Output| match output {
        Output::Column { name, .. } => Some(name.clone()),
        Output::Star(_) => None,
    };
    select.outputs.iter().filter_map(name).collect()
}

/// The same result, of whose columns it is not known which ones of tables they are; the first ones under new names.
fn without_columns(mut outputs: Outputs, names: &[String]) -> Outputs {
    for (_, origin) in &mut outputs.columns {
        if matches!(origin, Origin::Column(_)) {
            *origin = Origin::Unknown;
        }
    }
    renamed(outputs, names)
}

/// The columns of a set operation: each has what it has on one side or on the other.
fn either(mut left: Outputs, right: Outputs) -> Outputs {
    let sure = !left.open && !right.open && left.columns.len() == right.columns.len();
    let mut others = right.columns.into_iter();
    for (_, origin) in &mut left.columns {
        *origin = match (std::mem::take(origin), others.next()) {
            (Origin::Given(one), Some((_, Origin::Given(other)))) if sure => {
                one.or(other).map_or(Origin::Unknown, Origin::Given)
            }
            _ => Origin::Unknown,
        };
    }
    left
}

pub(super) fn renamed(mut outputs: Outputs, names: &[String]) -> Outputs {
    if outputs.open && !names.is_empty() {
        // It is not known which column each name is for.
        let columns = names.iter().map(|name| (name.clone(), Origin::Unknown)).collect();
        return Outputs { columns, open: true };
    }
    for (column, name) in outputs.columns.iter_mut().zip(names) {
        column.0.clone_from(name);
    }
    outputs
}
