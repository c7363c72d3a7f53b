//! The statements that refresh prepares, one for each table and kind.
//!
//! Names are qualified and operators, too, so that the texts mean the same with a search path of `pg_catalog` alone.

use std::fmt::Write as _;

use super::{RefreshTable, Values, Written};
use crate::ids::TableId;

/// The kind of a prepared statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Inserts a row.
    Insert,
    /// Updates these columns of a row found by its primary key, which stays.
    Update(ColumnSet),
    /// Writes a row found by its primary key as it is.
    Keep,
    /// Deletes a row found by its primary key, or without one by its image.
    Delete,
    /// Updates these columns of rows found by keys out of arrays; the keys stay.
    UpdateMany(ColumnSet),
    /// Writes rows found by keys out of arrays as they are.
    KeepMany,
    /// Deletes rows found by keys out of arrays.
    DeleteMany,
    /// Inserts so many rows by VALUES.
    InsertFew(usize),
    /// Updates these columns of so many rows found by keys out of VALUES; the keys stay.
    UpdateFew(usize, ColumnSet),
    /// Deletes so many rows found by keys out of VALUES.
    DeleteFew(usize),
    /// Inserts rows of a binary COPY.
    CopyIn,
    /// Inserts rows out of arrays, where there is no COPY.
    InsertMany,
}

impl Kind {
    /// Whether it concerns many rows by arrays.
    #[must_use]
    pub const fn is_unnesting(self) -> bool {
        matches!(self, Self::UpdateMany(_) | Self::KeepMany | Self::DeleteMany | Self::InsertMany)
    }

    /// Whether it takes the values of several rows, one row's after the other's.
    #[must_use]
    pub const fn is_few(self) -> bool {
        matches!(self, Self::InsertFew(_) | Self::UpdateFew(..) | Self::DeleteFew(_))
    }

    /// Whether it makes rows.
    pub(super) const fn is_insert(self) -> bool {
        matches!(self, Self::Insert | Self::InsertFew(_) | Self::CopyIn | Self::InsertMany)
    }

    /// The number of rows whose values it takes one by one.
    pub(super) const fn rows(self) -> usize {
        match self {
            Self::InsertFew(count) | Self::UpdateFew(count, _) | Self::DeleteFew(count) => count,
            _ => 1,
        }
    }

    /// The columns that it updates.
    pub(super) const fn updated(self) -> Option<ColumnSet> {
        match self {
            Self::Update(columns) | Self::UpdateFew(_, columns) | Self::UpdateMany(columns) => Some(columns),
            _ => None,
        }
    }

    /// Whether it writes what a row becomes.
    pub(super) const fn writes_new(self) -> bool {
        self.is_insert() || self.updated().is_some()
    }
}

/// Some columns of a table, by their places. From the 64th on they are in it together or not at all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct ColumnSet(u64);

impl ColumnSet {
    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn has(self, at: usize) -> bool {
        self.0 & Self::bit(at) != 0
    }

    const fn bit(at: usize) -> u64 {
        1 << if at < 63 { at } else { 63 }
    }
}

impl FromIterator<usize> for ColumnSet {
    fn from_iter<I: IntoIterator<Item = usize>>(places: I) -> Self {
        Self(places.into_iter().fold(0, |set, at| set | Self::bit(at)))
    }
}

/// Names a prepared statement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StatementKey {
    /// The table it works on.
    pub table: TableId,
    /// Its kind.
    pub kind: Kind,
}

/// A statement's text and the types of its parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sql {
    /// The text.
    pub text: String,
    /// OIDs at this replica.
    pub types: Vec<u32>,
}

impl RefreshTable {
    /// The statement of a kind for this table; the one that gives the values, where another one writes them in a sandbox.
    pub fn sql(&self, kind: Kind) -> Sql {
        if let Some(sandbox) = &self.sandbox {
            return self.staged(sandbox, kind);
        }
        match kind {
            Kind::Insert => self.insert(1),
            Kind::InsertFew(count) => self.insert(count),
            Kind::InsertMany => {
                let columns: Vec<usize> = self.inserted().collect();
                let (source, names) = (unnest(columns.len()), self.names(columns.iter().copied()));
                let text = format!(
                    "INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE SELECT * FROM {source}",
                    self.name
                );
                Sql { text, types: self.array_types(columns.into_iter()) }
            }
            Kind::UpdateFew(count, columns) => self.update_few(count, columns),
            Kind::DeleteFew(count) => {
                let types = self.types(self.primary_key.iter().copied());
                let Sql { text, types } = rows_of_values(count, &types);
                let (name, aliases) = (&self.name, aliases(self.primary_key.len()));
                let found = self.joined(0);
                let text =
                    format!("DELETE FROM ONLY {name} AS t USING ({text}) AS u({aliases}) WHERE {found}");
                Sql { text, types }
            }
            Kind::Update(columns) => self.update(columns),
            Kind::Delete => {
                let found = self.found_by(1);
                let text = format!("DELETE FROM ONLY {} AS t WHERE {found}", self.name);
                Sql { text, types: self.types(self.identified()) }
            }
            Kind::UpdateMany(columns) => self.update_many(columns),
            Kind::Keep => {
                let text =
                    format!("UPDATE ONLY {} AS t SET {} WHERE {}", self.name, self.kept(), self.found_by(1));
                Sql { text, types: self.types(self.identified()) }
            }
            Kind::KeepMany => {
                self.by_keys(&format!("UPDATE ONLY {} AS t SET {} FROM", self.name, self.kept()))
            }
            Kind::DeleteMany => self.by_keys(&format!("DELETE FROM ONLY {} AS t USING", self.name)),
            Kind::CopyIn => {
                let columns = self.names(self.inserted());
                // A column list may not be empty; a table without columns to write takes all of its none.
                let columns = if columns.is_empty() { columns } else { format!(" ({columns})") };
                let text = format!("COPY {}{columns} FROM STDIN (FORMAT binary)", self.name);
                Sql { text, types: Vec::new() }
            }
        }
    }

    /// The values of a row for a statement of this kind, in the order of its parameters.
    pub(super) fn bound<'a>(&self, kind: Kind, old: &Values<'a>, new: &Values<'a>) -> Values<'a> {
        let mut out = Values::new();
        if kind.is_insert() {
            out.extend(self.inserted().map(|at| new[at]));
            return out;
        }
        if let Some(columns) = kind.updated() {
            out.extend(self.updated_of(columns).map(|at| new[at]));
        }
        out.extend(self.identified().map(|at| old[at]));
        out
    }

    fn insert(&self, count: usize) -> Sql {
        let columns: Vec<usize> = self.inserted().collect();
        if columns.is_empty() {
            return Sql { text: format!("INSERT INTO {} DEFAULT VALUES", self.name), types: Vec::new() };
        }
        let types = self.types(columns.iter().copied());
        let Sql { text, types } = rows_of_values(count, &types);
        let names = self.names(columns.into_iter());
        Sql { text: format!("INSERT INTO {} ({names}) OVERRIDING SYSTEM VALUE {text}", self.name), types }
    }

    fn update(&self, columns: ColumnSet) -> Sql {
        let written: Vec<usize> = self.updated_of(columns).collect();
        let mut set = String::new();
        for (number, &at) in written.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let _ = write!(set, "{comma}{} = ${}", self.columns[at].name, number + 1);
        }
        let found = self.found_by(written.len() + 1);
        let text = format!("UPDATE ONLY {} AS t SET {set} WHERE {found}", self.name);
        Sql { text, types: self.types(written.into_iter().chain(self.identified())) }
    }

    fn update_many(&self, columns: ColumnSet) -> Sql {
        let bound: Vec<usize> = self.updated_of(columns).chain(self.primary_key.iter().copied()).collect();
        let source = unnest(bound.len());
        Sql { text: self.update_from(&source, columns), types: self.array_types(bound.into_iter()) }
    }

    fn update_few(&self, count: usize, columns: ColumnSet) -> Sql {
        let bound: Vec<usize> = self.updated_of(columns).chain(self.primary_key.iter().copied()).collect();
        let types = self.types(bound.iter().copied());
        let Sql { text, types } = rows_of_values(count, &types);
        Sql { text: self.update_from(&format!("({text})"), columns), types }
    }

    /// An update by rows of what is written and the key.
    fn update_from(&self, source: &str, columns: ColumnSet) -> String {
        let written: Vec<usize> = self.updated_of(columns).collect();
        let mut set = String::new();
        for (number, &at) in written.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            let _ = write!(set, "{comma}{} = u.c{}", self.columns[at].name, number + 1);
        }
        let aliases = aliases(written.len() + self.primary_key.len());
        let found = self.joined(written.len());
        format!("UPDATE ONLY {} AS t SET {set} FROM {source} AS u({aliases}) WHERE {found}", self.name)
    }

    /// Sets a column to its present value. At a home, too, no statement can set a column of a table where none can be set.
    pub(super) fn kept(&self) -> String {
        let mut settable = self.updated().chain(self.chosen(|column| column.written == Written::Always));
        settable.next().map_or_else(String::new, |at| format!("{0} = t.{0}", self.columns[at].name))
    }

    /// A statement on the rows that have one of the keys.
    fn by_keys(&self, beginning: &str) -> Sql {
        let (count, key) = (self.primary_key.len(), self.primary_key.iter().copied());
        let (source, aliases) = (unnest(count), aliases(count));
        let text = format!("{beginning} {source} AS u({aliases}) WHERE {}", self.joined(0));
        Sql { text, types: self.array_types(key) }
    }

    /// Indexes of those columns that an update of some writes.
    pub(super) fn updated_of(&self, columns: ColumnSet) -> impl Iterator<Item = usize> + '_ {
        self.updated().filter(move |at| columns.has(*at))
    }

    /// Indexes of the columns by which a row is found: the key, or all that are stored as written.
    pub(super) fn identified(&self) -> Box<dyn Iterator<Item = usize> + '_> {
        if self.has_key() { Box::new(self.primary_key.iter().copied()) } else { Box::new(self.inserted()) }
    }

    /// The condition that finds the one row, with parameters from `first` on.
    fn found_by(&self, first: usize) -> String {
        self.found(|number, _| format!("${}", first + number))
    }

    /// The condition that finds the one row by values, each told by its number and the place of its column.
    pub(super) fn found(&self, value: impl Fn(usize, usize) -> String) -> String {
        if self.has_key() {
            return self.key_condition(|number| value(number, self.primary_key[number]));
        }
        let names = self.inserted().map(|at| format!("s.{}", self.columns[at].name));
        let row = format!("ROW({})", names.collect::<Vec<_>>().join(", "));
        let values: Vec<_> = self.inserted().enumerate().map(|(number, at)| value(number, at)).collect();
        let wanted = format!("ROW({})", values.join(", "));
        // The index of a deferrable key finds the rows that hold it.
        let mut held = String::new();
        for (number, at) in self.inserted().enumerate().filter(|(_, at)| self.primary_key.contains(at)) {
            let _ = write!(held, " AND {}", self.equality("s", at, &value(number, at)));
        }
        // A server that computed a value may store it in another form than one that was sent it: a slice of an array
        // keeps room for NULLs that it does not have. So a row of the same text is the one, if none has the same bytes.
        let by = |condition: &str| {
            format!("(SELECT s.ctid FROM ONLY {} AS s WHERE {condition}{held} LIMIT 1)", self.name)
        };
        let (bytes, text) = (
            by(&format!("pg_catalog.record_image_eq({row}, {wanted})")),
            by(&format!("{row}::pg_catalog.text OPERATOR(pg_catalog.=) {wanted}::pg_catalog.text")),
        );
        format!("t.ctid = COALESCE({bytes}, {text})")
    }

    /// The condition that joins the key with the columns of `u` after the first `skipped` ones. As an array of one, a
    /// value can only be looked up in an index: with a plain equality a plan that was made while the table was small would
    /// go through the whole of it, in the index's order, and do so still when it has grown.
    fn joined(&self, skipped: usize) -> String {
        self.key_condition(|number| format!("ANY (ARRAY[u.c{}])", skipped + number + 1))
    }

    pub(super) fn key_condition(&self, other: impl Fn(usize) -> String) -> String {
        let key = self.primary_key.iter().enumerate();
        let parts: Vec<String> = key.map(|(number, &at)| self.equality("t", at, &other(number))).collect();
        parts.join(" AND ")
    }

    fn equality(&self, alias: &str, at: usize, other: &str) -> String {
        let column = &self.columns[at];
        format!("{alias}.{} {} {other}", column.name, column.equals)
    }

    pub(super) fn names(&self, which: impl Iterator<Item = usize>) -> String {
        which.map(|at| self.columns[at].name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn types(&self, which: impl Iterator<Item = usize>) -> Vec<u32> {
        which.map(|at| self.columns[at].type_oid).collect()
    }

    fn array_types(&self, which: impl Iterator<Item = usize>) -> Vec<u32> {
        which.map(|at| self.columns[at].array_oid.unwrap_or_default()).collect()
    }
}

/// So many rows of parameters for columns of these types.
pub(super) fn rows_of_values(count: usize, types: &[u32]) -> Sql {
    let row = |number: usize| format!("({})", parameters(number * types.len() + 1, types.len()));
    let rows: Vec<String> = (0..count).map(row).collect();
    Sql { text: format!("VALUES {}", rows.join(", ")), types: types.repeat(count) }
}

/// Several arrays are the parser's affair, which it knows by the bare name only.
pub(super) fn unnest(count: usize) -> String {
    let schema = if count == 1 { "pg_catalog." } else { "" };
    format!("{schema}unnest({})", parameters(1, count))
}

/// `$1, $2, ...`
fn parameters(first: usize, count: usize) -> String {
    (first..first + count).map(|number| format!("${number}")).collect::<Vec<_>>().join(", ")
}

/// `c1, c2, ...`
fn aliases(count: usize) -> String {
    (1..=count).map(|number| format!("c{number}")).collect::<Vec<_>>().join(", ")
}
