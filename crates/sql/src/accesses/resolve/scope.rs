//! Which column a name means.
//!
//! As PostgreSQL has it: the innermost query in which some relation has a column of that name; a name that is no column
//! anywhere can be a relation's alias and mean its whole row. Since a relation's name may stand for several tables, a
//! table may have a column or not; then the name may mean that column or one further out, all of them are used, and
//! nothing else is concluded.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range as Interval;
use std::rc::Rc;

use super::facts::ContextId;
use super::variables::Variables;
use crate::accesses::bind::{Operand, Slot};
use crate::accesses::shape::{ColumnRef, Given, GivenKind, Join};
use crate::accesses::value::Form;
use crate::catalogue::{Catalogue, TableId};

/// One item of a FROM clause, or the target of a modification.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) alias: String,
    pub(super) kind: RangeKind,
    pub(super) used: Used,
    /// Facts about its rows.
    pub(super) context: ContextId,
    /// It is read as part of a FROM clause, rather than a target.
    pub(super) is_source: bool,
}

#[derive(Debug)]
pub(super) enum RangeKind {
    /// The tables that its name may stand for.
    Tables { ids: Vec<TableId>, is_parent: bool },
    /// A query, a function, ... The ranges inside of it, by their numbers.
    Derived { outputs: Rc<Outputs>, inside: Interval<usize> },
}

/// Columns of a range that are read.
#[derive(Debug, Default)]
pub(super) struct Used {
    pub(super) names: BTreeSet<String>,
    pub(super) whole: bool,
}

/// The columns of a query's result.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) columns: Vec<(String, Origin)>,
    /// There may be others.
    pub(super) open: bool,
}

/// Where a column of a result comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Origin {
    #[default]
    Unknown,
    Column(Variable),
    /// It has this value wherever it is not NULL.
    Given(Given),
}

impl Origin {
    pub(super) fn column(self) -> Option<Variable> {
        match self {
            Self::Column(variable) => Some(variable),
            Self::Unknown | Self::Given(_) => None,
        }
    }
}

/// A column of a range that stands for tables.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Variable {
    pub(super) range: usize,
    pub(super) column: String,
}

/// The relations of one query that names can refer to.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    pub(super) ranges: Vec<usize>,
    /// Names of the SELECT list, for ORDER BY.
    pub(super) outputs: Vec<String>,
    /// Columns that USING makes one of; the left one is meant.
    pub(super) merged: Vec<String>,
}

/// All relations, and those in reach.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) ranges: Vec<Range>,
    /// The innermost last.
    pub(super) levels: Vec<Level>,
    /// Parameters where the column beside them gives them a type: number, form, whether an array.
    pub(super) placed: Vec<(u32, Form, bool)>,
    /// The variables of the body that the statement stands in.
    pub(super) variables: Option<&'a Variables>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Has {
    No,
    Maybe,
    Yes,
}

impl<'a> Scope<'a> {
    pub(super) fn new(catalogue: &'a Catalogue) -> Self {
        Self { catalogue, ranges: Vec::new(), levels: Vec::new(), placed: Vec::new(), variables: None }
    }

    /// The operand with the variables' values in place of their names; `None` if one is not known, or if the name may be
    /// that of a column in reach. What has no names in it stays as it is.
    pub(super) fn known(&self, operand: &Operand) -> Option<Operand> {
        let none = Variables::default();
        self.variables.unwrap_or(&none).known(operand, &|name| self.may_be_column(name))
    }

    /// Whether a bare name may be a column, or a relation, in reach.
    fn may_be_column(&self, name: &str) -> bool {
        self.in_reach().any(|range| self.ranges[range].alias == name || self.has(range, name) != Has::No)
    }

    /// The variable that a name which is no column is.
    fn variable(&self, name: &str) -> Origin {
        let known = self.known(&Operand::Variable(name.to_owned()));
        known.map_or(Origin::Unknown, |operand| {
            Origin::Given(Given { operand, kind: GivenKind::Other, exact: true })
        })
    }

    fn is_variable(&self, name: &str) -> bool {
        self.variables.is_some_and(|variables| variables.has(name))
    }

    fn has(&self, range: usize, column: &str) -> Has {
        match &self.ranges[range].kind {
            RangeKind::Tables { ids, .. } => {
                let has = |id: &&TableId| self.position(**id, column).is_some();
                match ids.iter().filter(has).count() {
                    0 if ids.is_empty() => Has::Maybe,
                    0 => Has::No,
                    count if count == ids.len() => Has::Yes,
                    _ => Has::Maybe,
                }
            }
            RangeKind::Derived { outputs, .. } => {
                match outputs.columns.iter().any(|(name, _)| name == column) {
                    true => Has::Yes,
                    false if outputs.open => Has::Maybe,
                    false => Has::No,
                }
            }
        }
    }

    /// The position of a column in a table.
    pub(super) fn position(&self, id: TableId, column: &str) -> Option<usize> {
        self.catalogue.table(id)?.columns.iter().position(|known| known.name == column)
    }

    /// Notes that a column, or what may be one, is read. If it is surely one column of tables, or a value, says which.
    pub(super) fn refer(&mut self, column: &ColumnRef) -> Origin {
        match (&column.name, column.qualifier.last()) {
            (Some(name), None) => self.refer_bare(name),
            (name, Some(alias)) => self.refer_qualified(alias, name.as_deref()),
            (None, None) => {
                let ranges = self.levels.last().map_or(Vec::new(), |level| level.ranges.clone());
                for range in ranges {
                    self.use_whole(range);
                }
                Origin::Unknown
            }
        }
    }

    fn refer_bare(&mut self, name: &str) -> Origin {
        let mut doubtful = false;
        for level in (0..self.levels.len()).rev() {
            let ranges = self.levels[level].ranges.clone();
            let found: Vec<(usize, Has)> = ranges
                .into_iter()
                .map(|range| (range, self.has(range, name)))
                .filter(|found| found.1 != Has::No)
                .collect();
            for &(range, _) in &found {
                self.use_column(range, name);
            }
            doubtful |= found.iter().any(|found| found.1 == Has::Maybe);
            let sure = found.iter().filter(|found| found.1 == Has::Yes).count();
            let merged = self.levels[level].merged.iter().any(|merged| merged == name);
            // Which one is meant, a setting says.
            doubtful |= !found.is_empty() && self.is_variable(name);
            match found.iter().find(|found| found.1 == Has::Yes) {
                Some(&(range, _)) if !doubtful && (sure == 1 || merged) => return self.origin(range, name),
                Some(_) => return Origin::Unknown,
                None => {}
            }
        }
        let is_output = self.levels.iter().any(|level| level.outputs.iter().any(|output| output == name));
        let whole: Vec<usize> = self.in_reach().filter(|&range| self.ranges[range].alias == name).collect();
        if whole.is_empty() && !doubtful && self.is_variable(name) {
            return self.variable(name);
        }
        if whole.is_empty() && !is_output && !doubtful {
            self.use_everything();
        }
        for range in whole {
            self.use_whole(range);
        }
        Origin::Unknown
    }

    fn refer_qualified(&mut self, alias: &str, name: Option<&str>) -> Origin {
        let matching = |level: &Level| -> Vec<usize> {
            level.ranges.iter().copied().filter(|&range| self.ranges[range].alias == alias).collect()
        };
        let found = self.levels.iter().rev().map(matching).find(|found| !found.is_empty());
        let Some(found) = found else {
            // A field of a record.
            if !self.is_variable(alias) {
                self.use_everything();
            }
            return Origin::Unknown;
        };
        for &range in &found {
            match name {
                Some(name) if self.has(range, name) != Has::No => self.use_column(range, name),
                // A star, or a function in the guise of a column.
                _ => self.use_whole(range),
            }
        }
        // Which one is meant, a setting says.
        let is_doubtful = self.variables.is_some_and(|known| known.has_qualified(alias, name));
        match (found.as_slice(), name) {
            (&[range], Some(name)) if !is_doubtful && self.has(range, name) == Has::Yes => {
                self.origin(range, name)
            }
            _ => Origin::Unknown,
        }
    }

    /// The column of tables, or the value, that a column of a range is.
    pub(super) fn origin(&self, range: usize, name: &str) -> Origin {
        match &self.ranges[range].kind {
            RangeKind::Tables { .. } => Origin::Column(Variable { range, column: name.to_owned() }),
            RangeKind::Derived { outputs, .. } => {
                let mut same = outputs.columns.iter().filter(|(known, _)| known == name);
                match (same.next(), same.next()) {
                    (Some((_, origin)), None) => origin.clone(),
                    _ => Origin::Unknown,
                }
            }
        }
    }

    /// The form of a column, if it is the same in all tables that it may belong to.
    pub(super) fn form(&self, variable: &Variable) -> Option<Form> {
        let RangeKind::Tables { ids, .. } = &self.ranges[variable.range].kind else { return None };
        let mut forms = ids.iter().map(|id| {
            let position = self.position(*id, &variable.column)?;
            Form::of_column(&self.catalogue.table(*id)?.columns[position])
        });
        let first = forms.next()??;
        forms.all(|form| form == Some(first)).then_some(first)
    }

    /// A parameter, or several, that a column gives a type to.
    pub(super) fn place(&mut self, operand: &Operand, form: Form) {
        operand.parameters(form, false, &mut self.placed);
    }

    fn in_reach(&self) -> impl Iterator<Item = usize> {
        self.levels.iter().flat_map(|level| level.ranges.iter().copied())
    }

    fn use_column(&mut self, range: usize, name: &str) {
        let used = &mut self.ranges[range].used;
        if !used.names.contains(name) {
            used.names.insert(name.to_owned());
        }
    }

    fn use_whole(&mut self, range: usize) {
        self.ranges[range].used.whole = true;
    }

    /// A name that means nothing known: every relation in reach may be meant.
    pub(super) fn use_everything(&mut self) {
        let all: Vec<usize> = self.in_reach().collect();
        for range in all {
            self.use_whole(range);
        }
    }

    /// The columns that a star stands for.
    pub(super) fn star(&self, ranges: &[usize]) -> Outputs {
        let mut outputs = Outputs::default();
        for &range in ranges {
            match &self.ranges[range].kind {
                RangeKind::Derived { outputs: inner, .. } => {
                    outputs.columns.extend(inner.columns.iter().cloned());
                    outputs.open |= inner.open;
                }
                RangeKind::Tables { ids, .. } => {
                    let tables: Vec<_> = ids.iter().filter_map(|id| self.catalogue.table(*id)).collect();
                    // Of several tables it is not known which one is meant, or in which order.
                    outputs.open |= tables.len() != 1;
                    for column in tables.first().map_or(&[][..], |table| table.columns.as_slice()) {
                        let sure = self.has(range, &column.name) == Has::Yes;
                        let variable = Variable { range, column: column.name.clone() };
                        let origin = if sure { Origin::Column(variable) } else { Origin::Unknown };
                        outputs.columns.push((column.name.clone(), origin));
                    }
                }
            }
        }
        outputs
    }

    /// Whether USING may speak of the left column: the right one equals it wherever both are.
    pub(super) fn merges(kind: Join) -> bool {
        matches!(kind, Join::Inner | Join::Left)
    }
}

/// The parameters whose types cannot be told from their places: each that occurs anywhere else, or beside columns
/// of different types.
pub(super) fn untrusted(
    placed_at: &[(u32, Form, bool)],
    occurrences: Option<&[u32]>,
    slots: &[Slot],
) -> Vec<u32> {
    let mut used = Vec::new();
    for slot in slots {
        slot.operand.parameters(slot.form, false, &mut used);
    }
    let mut total: BTreeMap<u32, usize> = BTreeMap::new();
    for number in occurrences.unwrap_or_default() {
        *total.entry(*number).or_default() += 1;
    }
    let mut placed: BTreeMap<u32, (usize, BTreeSet<(Form, bool)>)> = BTreeMap::new();
    for (number, form, array) in placed_at {
        let (count, forms) = placed.entry(*number).or_default();
        *count += 1;
        forms.insert((*form, *array));
    }
    let is_trusted = |&(number, form, array): &(u32, Form, bool)| {
        let place = placed.get(&number);
        place.is_some_and(|(count, forms)| {
            total.get(&number) == Some(count) && forms.len() == 1 && forms.contains(&(form, array))
        })
    };
    let untrusted: BTreeSet<u32> =
        used.iter().filter(|place| !is_trusted(place)).map(|place| place.0).collect();
    untrusted.into_iter().collect()
}
