//! The accesses of a statement, as finely as its text and the catalogue allow: tables, columns, rows.
//!
//! A cache miss makes a *shape* of the syntax tree: its queries, the relations in them, and which columns are compared
//! with which constants and parameters. Given a catalogue, and once for each of its generations, the shape becomes an
//! [`Outline`]: accesses whose values are still places in the text or parameters. Given the constants of one text and
//! the values of its parameters, the outline becomes [`Accesses`] without looking at the text again. (After Gargamel,
//! section III.C, whose classifier was a table made by hand.)
//!
//! Invariant: soundness. A statement reads nothing, writes nothing and claims nothing outside its accesses, whatever
//! the session's search path; what is not understood widens them, from rows to the whole table, from columns to all,
//! and in the end to [`Accesses::unbounded`]. "Reads" means what the outcome depends on: the rows, as they are or as
//! they would have to be, that could make a difference. A server that scans more than it needs locks nothing more.
//!
//! Non-goals: temporary tables, which no catalogue has; errors that a plan raises from rows which the answer does not
//! need (`1 / a` evaluated before `id = 5`), since whether they occur is the planner's affair even on one server; the
//! order of rows that no ORDER BY asks for.

mod bind;
mod conflict;
mod digest;
mod effect;
mod group;
mod guard;
mod image;
mod named;
mod outline;
mod resolve;
mod shape;
mod show;
mod split;
mod told;
mod value;

use std::sync::Arc;

pub(crate) use bind::{MAX_LIST, Operand};
pub(crate) use guard::{Guard, Test};
pub(crate) use resolve::outline;
pub(crate) use shape::{Expression, Shape, attach, attach_in_body, declared_form};
pub(crate) use told::{Grade, Teller};

pub use bind::{Arguments, Parameter};
pub use conflict::{Class, Conflict, Kind, Side, View, conflict, overwrites};
pub use digest::{KeyDigest, digests};
pub(crate) use group::groupings;
pub use group::{Groups, any_group, groups, groups_beside, row_groups};
pub use image::{Told, is_keyed, key_digest, parent_digest, referenced_keys, row_digests};
pub use named::{KEY_TEXT_BYTES_MAX, named};
pub use outline::Outline;
pub use split::{may_split, named_values, split_value};
pub(crate) use value::Form;
pub use value::{Decimal, Value};

use serde::{Deserialize, Serialize};

use crate::catalogue::TableId;
use crate::name::Name;
use crate::statement::Opaque;

/// Everything that one execution of a statement touches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Accesses {
    /// Rows whose contents or existence the outcome depends on.
    pub reads: Vec<Access>,
    /// Rows that may change, as they are before and as they are after.
    pub writes: Vec<Access>,
    /// Values of unique keys that are taken, freed or referenced.
    pub claims: Vec<Claim>,
    /// Rows and tables that are locked without being changed.
    pub locks: Vec<Lock>,
    /// Set when the lists are not all: the statement may touch anything.
    pub unbounded: Option<Why>,
}

impl Accesses {
    /// The accesses of what cannot be bounded.
    pub fn anything(why: Why) -> Self {
        Self { unbounded: Some(why), ..Self::default() }
    }

    /// The accesses that another execution has, too.
    pub fn add(&mut self, more: Self) {
        fn join<T: PartialEq>(all: &mut Vec<T>, more: Vec<T>) {
            for one in more {
                if !all.contains(&one) {
                    all.push(one);
                }
            }
        }
        self.unbounded = self.unbounded.take().or(more.unbounded);
        join(&mut self.reads, more.reads);
        join(&mut self.writes, more.writes);
        join(&mut self.claims, more.claims);
        join(&mut self.locks, more.locks);
    }

    /// Whether the statement touches no rows at all.
    pub fn is_empty(&self) -> bool {
        self.unbounded.is_none()
            && self.reads.is_empty()
            && self.writes.is_empty()
            && self.claims.is_empty()
            && self.locks.is_empty()
    }
}

/// Some columns of some rows of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The table.
    pub table: TableId,
    /// The columns. A read of none depends on which rows exist; a write of all makes or removes rows.
    pub columns: Columns,
    /// The rows.
    pub rows: Rows,
    /// The rows are made by this very statement: two statements never make the same row, so such accesses do not
    /// conflict with each other (the values of their unique keys may, see [`Claim`]).
    pub new: bool,
}

/// Which columns of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Columns {
    /// All, and the existence of the row: a whole row read, inserted or deleted.
    All,
    /// These.
    Some(ColumnSet),
}

impl Columns {
    /// Whether a write of `written` can change what a read of these columns sees. Every read sees which rows exist, so
    /// a write of whole rows changes what any read sees.
    pub fn depends_on(self, written: Self) -> bool {
        match (self, written) {
            (_, Self::All) => true,
            (Self::All, Self::Some(set)) | (Self::Some(set), _) if set.is_empty() => false,
            (Self::All, Self::Some(_)) => true,
            (Self::Some(read), Self::Some(written)) => read.overlaps(written),
        }
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Some(mine), Self::Some(theirs)) => Self::Some(mine.union(theirs)),
            _ => Self::All,
        }
    }
}

/// A set of positions in [`crate::Table::columns`]. Positions from 63 on are one: a set that has any of them is taken to
/// have them all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ColumnSet(u64);

/// The position that stands for itself and all after it.
const LAST_POSITION: usize = 63;

impl ColumnSet {
    /// No columns.
    pub const EMPTY: Self = Self(0);

    /// A set with one more position.
    #[must_use]
    pub fn with(self, position: usize) -> Self {
        Self(self.0 | 1 << position.min(LAST_POSITION))
    }

    /// Whether a position may be in the set.
    pub fn contains(self, position: usize) -> bool {
        self.0 >> position.min(LAST_POSITION) & 1 != 0
    }

    /// Whether the sets may have a position in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// All that is in one of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as bits, that of each position from the lowest on.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The set of these bits.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether nothing is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The positions, in order; one of 63 stands for all from there on.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..=LAST_POSITION).filter(move |&position| self.contains(position))
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<T: IntoIterator<Item = usize>>(positions: T) -> Self {
        positions.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// Which rows of a table. At most [`MAX_MATCHES`] alternatives are kept; beyond, the rows are all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rows {
    /// Any.
    All,
    /// Those that one of these is true of; none of them means no rows.
    AnyOf(Arc<[Match]>),
}

/// More alternatives than this are not kept apart.
pub const MAX_MATCHES: usize = 64;

impl Rows {
    /// Rows given by alternatives. One that says nothing, or too many of them, make it all rows.
    pub fn any_of(matches: Vec<Match>) -> Self {
        let all = matches.len() > MAX_MATCHES || matches.iter().any(|one| one.equalities().is_empty());
        if all { Self::All } else { Self::AnyOf(matches.into()) }
    }

    /// Whether a row could belong to both.
    pub fn overlap(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, Self::All) => true,
            (Self::AnyOf(matches), Self::All) | (Self::All, Self::AnyOf(matches)) => !matches.is_empty(),
            (Self::AnyOf(mine), Self::AnyOf(theirs)) => {
                mine.iter().any(|one| theirs.iter().any(|other| !one.excludes(other)))
            }
        }
    }

    /// Whether these are no rows.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::AnyOf(matches) if matches.is_empty())
    }
}

/// A conjunction of equalities that is true of a row. Without any it is true of every row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match(Vec<Equality>);

impl Match {
    /// A conjunction. Of two equalities for one column the first is kept: either is true.
    pub fn new(mut equalities: Vec<Equality>) -> Self {
        equalities.sort_by_key(|equality| equality.column);
        equalities.dedup_by_key(|equality| equality.column);
        Self(equalities)
    }

    /// The equalities, sorted by column.
    pub fn equalities(&self) -> &[Equality] {
        &self.0
    }

    /// The value that a column is known to have.
    pub fn value(&self, column: usize) -> Option<&Value> {
        let at = self.0.binary_search_by_key(&column, |equality| equality.column).ok()?;
        Some(&self.0[at].value)
    }

    /// Whether no row can satisfy both: some column has different values in them.
    pub fn excludes(&self, other: &Self) -> bool {
        let (mut mine, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(left), Some(right)) = (mine.peek(), theirs.peek()) {
            match left.column.cmp(&right.column) {
                std::cmp::Ordering::Less => _ = mine.next(),
                std::cmp::Ordering::Greater => _ = theirs.next(),
                std::cmp::Ordering::Equal => {
                    if left.value.differs_from(&right.value) {
                        return true;
                    }
                    mine.next();
                    theirs.next();
                }
            }
        }
        false
    }
}

/// A column has a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Equality {
    /// Position in [`crate::Table::columns`].
    pub column: usize,
    /// The value.
    pub value: Value,
}

/// Values of a unique key that a statement takes, frees or relies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The table that has the key.
    pub table: TableId,
    /// Which one: position in [`crate::Table::keys`].
    pub key: usize,
    /// The values, as equalities over the key's columns.
    pub rows: Rows,
    /// Taking or freeing the value, rather than relying on it. Two claims conflict if one of them is exclusive.
    pub exclusive: bool,
}

/// Rows that are locked without being changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lock {
    /// The table.
    pub table: TableId,
    /// Its rows.
    pub rows: Rows,
    /// How strongly.
    pub strength: Strength,
}

/// Strengths of locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Strength {
    /// FOR KEY SHARE and FOR SHARE, and LOCK TABLE in the two weakest modes: against writes.
    Share,
    /// FOR UPDATE and FOR NO KEY UPDATE, and LOCK TABLE in most modes: against writes and other locks.
    Update,
    /// LOCK TABLE IN ACCESS EXCLUSIVE MODE: against everything.
    Exclusive,
}

/// Why a statement may touch anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// It was not understood.
    Opaque(Opaque),
    /// Statements of its kind run code that is elsewhere, or change the schema: CALL, DO, EXECUTE, FETCH, DDL, ...
    Kind(&'static str),
    /// A relation that is not a table of the catalogue, nor bounded by it.
    Relation(Name),
    /// It reads what differs between replicas or no table holds: system catalogues, system columns.
    Catalogue,
    /// A function whose effect is not known.
    Function(Name),
    /// An operator that users have defined.
    Operator(Name),
    /// A type that users have defined.
    Type(Name),
    /// A column's name that could be a call of a function.
    Column(String),
    /// Users' casts between built-in types may run unseen.
    Casts,
    /// Policies of a table may read others.
    RowSecurity(TableId),
    /// Columns of a type that may run users' code.
    CodedTypes(TableId),
    /// Triggers, rules or defaults of a table that are not bounded.
    Triggers(TableId),
    /// References from or to a table that are not known, or lead too far.
    References(TableId),
}

#[cfg(test)]
mod tests;
