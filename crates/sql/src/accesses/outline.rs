//! Outlines: the accesses of a template under one catalogue, its values still open.
//!
//! Values are numbered, and so are sets of rows, since the same rows are read, written and claimed: binding evaluates
//! each once and shares it.

use std::sync::Arc;

use super::bind::{Arguments, Binder, Bound, Place, Slot};
use super::guard::Guard;
use super::{
    Access, Accesses, Claim, Columns, Equality, Lock, MAX_MATCHES, Match, Rows, Strength, Value, Why,
};
use crate::catalogue::TableId;

/// The accesses of a template, to be bound to constants and parameters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Outline {
    pub(crate) slots: Vec<Slot>,
    pub(crate) rows: Vec<RowsOutline>,
    pub(crate) reads: Vec<AccessOutline>,
    pub(crate) writes: Vec<AccessOutline>,
    pub(crate) claims: Vec<ClaimOutline>,
    pub(crate) locks: Vec<LockOutline>,
    /// Parameters that must not be read unless their types are given: their places do not tell.
    pub(crate) untrusted: Vec<u32>,
    pub(crate) unbounded: Option<Why>,
}

/// A set of rows, by its number in [`Outline::rows`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RowsId(pub(crate) usize);

/// Rows by alternatives, each a list of (column, slot).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RowsOutline {
    All,
    AnyOf(Vec<Vec<(usize, usize)>>),
    /// These, if the guards hold; otherwise none.
    When(Vec<Guard>, Box<Self>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AccessOutline {
    pub(crate) table: TableId,
    pub(crate) columns: Columns,
    pub(crate) rows: RowsId,
    pub(crate) new: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ClaimOutline {
    pub(crate) table: TableId,
    pub(crate) key: usize,
    pub(crate) rows: RowsId,
    pub(crate) exclusive: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LockOutline {
    pub(crate) table: TableId,
    pub(crate) rows: RowsId,
    pub(crate) strength: Strength,
}

impl Outline {
    /// The outline of what cannot be bounded.
    pub(crate) fn anything(why: Why) -> Self {
        Self { unbounded: Some(why), ..Self::default() }
    }

    /// Why the template may touch anything, if so.
    pub fn unbounded(&self) -> Option<&Why> {
        self.unbounded.as_ref()
    }

    /// The accesses of one execution. Parameters and constants that are missing widen them.
    pub fn bind(&self, arguments: &Arguments<'_>) -> Accesses {
        if let Some(why) = &self.unbounded {
            return Accesses::anything(why.clone());
        }
        let values: Vec<Bound> =
            self.slots.iter().map(|slot| slot.bind(arguments, &self.untrusted)).collect();
        let binder = Binder { arguments, untrusted: &self.untrusted };
        let rows: Vec<Rows> = self.rows.iter().map(|rows| rows.bind(&values, &binder)).collect();
        let of = |id: RowsId| rows[id.0].clone();
        let access = |access: &AccessOutline| Access {
            table: access.table,
            columns: access.columns,
            rows: of(access.rows),
            new: access.new,
        };
        Accesses {
            reads: self.reads.iter().map(access).collect(),
            writes: self.writes.iter().map(access).collect(),
            claims: self
                .claims
                .iter()
                .map(|claim| Claim {
                    table: claim.table,
                    key: claim.key,
                    rows: of(claim.rows),
                    exclusive: claim.exclusive,
                })
                .collect(),
            locks: self
                .locks
                .iter()
                .map(|lock| Lock { table: lock.table, rows: of(lock.rows), strength: lock.strength })
                .collect(),
            unbounded: None,
        }
    }
}

impl RowsOutline {
    /// The rows, whatever the guards say.
    pub(crate) fn unguarded(&self) -> &Self {
        match self {
            Self::When(_, rows) => rows.unguarded(),
            rows => rows,
        }
    }

    fn bind(&self, values: &[Bound], binder: &Binder<'_, '_>) -> Rows {
        let branches = match self {
            Self::All => return Rows::All,
            Self::When(guards, _) if !binder.may_hold(guards) => return Rows::AnyOf([].into()),
            Self::When(_, rows) => return rows.bind(values, binder),
            Self::AnyOf(branches) => branches,
        };
        let mut matches = Vec::with_capacity(branches.len());
        for branch in branches {
            if !expand(branch, values, &mut matches) || matches.len() > MAX_MATCHES {
                return Rows::All;
            }
        }
        Rows::AnyOf(Arc::from(matches))
    }
}

/// Adds the alternatives of one branch; `false` if it says nothing. A list that would make too many is left out.
fn expand(branch: &[(usize, usize)], values: &[Bound], matches: &mut Vec<Match>) -> bool {
    let mut common = Vec::with_capacity(branch.len());
    let mut lists = Vec::new();
    let mut places: Vec<(&Place, Vec<Elements<'_>>)> = Vec::new();
    for &(column, slot) in branch {
        match &values[slot] {
            Bound::Nothing => return true,
            Bound::One(value) => common.push(Equality { column, value: value.clone() }),
            Bound::Many(many) => lists.push((column, many)),
            Bound::At(place, elements) => match places.iter_mut().find(|(known, _)| *known == place) {
                Some((_, columns)) => columns.push((column, elements)),
                None => places.push((place, vec![(column, elements)])),
            },
            Bound::Unknown => {}
        }
    }
    if lists.is_empty() && places.is_empty() {
        let says_something = !common.is_empty();
        matches.push(Match::new(common));
        return says_something;
    }
    let mut found = vec![common];
    for (_, columns) in places {
        let together = at_places(&columns);
        if found.len() * together.len() > MAX_MATCHES {
            continue;
        }
        let with = |more: &Vec<Equality>, one: &Vec<Equality>| one.iter().chain(more).cloned().collect();
        found = together.iter().flat_map(|more| found.iter().map(move |one| with(more, one))).collect();
    }
    for (column, many) in lists {
        if found.len() * many.len() > MAX_MATCHES {
            continue;
        }
        let with = |value: &Value, one: &Vec<Equality>| {
            let mut one = one.clone();
            one.push(Equality { column, value: value.clone() });
            one
        };
        found = many.iter().flat_map(|value| found.iter().map(move |one| with(value, one))).collect();
    }
    let says_something = !found.iter().any(Vec::is_empty);
    matches.extend(found.into_iter().map(Match::new));
    says_something
}

/// The values of a column by places, as [`Bound::At`] has them.
type Elements<'a> = (usize, &'a [Option<Value>]);

/// The values that columns have together, for each place in their arrays. The last place stands for all beyond.
fn at_places(columns: &[Elements<'_>]) -> Vec<Vec<Equality>> {
    let longest = columns.iter().map(|(_, elements)| elements.len()).max().unwrap_or(0);
    let at = |place: usize| {
        let equality = |(column, elements): &Elements<'_>| {
            let value = elements.get(place).or_else(|| elements.last())?.clone();
            Some(Equality { column: *column, value: value? })
        };
        columns.iter().map(equality).collect::<Option<Vec<_>>>()
    };
    (0..longest).filter_map(at).collect()
}
