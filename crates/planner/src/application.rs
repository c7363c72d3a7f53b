//! An application as the planner sees it: tables, statements, what of them is atomic, and how often each is sent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sql::anatomy::{Anatomy, ColumnPlace, NoAnatomy, StatementKind, anatomy};
use sql::{Action, Catalogue, Reference, Table};

use crate::column::{Column, Group};

/// Updates of a column, for each time that it is read, up to which a copy of it is worth its keep.
pub(crate) const SELDOM: f64 = 0.01;

/// An application: everything that its plan depends on.
#[derive(Clone, Debug)]
pub struct Application {
    /// Its name, for titles.
    pub name: String,
    /// Its tables.
    pub catalogue: Catalogue,
    /// Its statements, by name.
    pub queries: BTreeMap<String, Query>,
    /// Its transactions and atomic sets, by name.
    pub units: BTreeMap<String, Unit>,
    /// Columns that always hold the key of a row of another table, beside the declared foreign keys.
    pub references: BTreeMap<Column, Column>,
    /// Names for services: the service that holds this column is called so.
    pub names: BTreeMap<String, Column>,
    /// Updates of a column, for each time that it is read, up to which copies of it are made.
    pub seldom: f64,
}

/// A statement.
#[derive(Clone, Debug)]
pub struct Query {
    /// Its text.
    pub text: String,
    /// What it reads and writes.
    pub anatomy: Anatomy,
    /// What of a `SELECT *` is used; `None` means everything.
    pub uses: Option<BTreeSet<Column>>,
    /// How often it is sent, in any unit that is the same for all.
    pub rate: f64,
    /// It is also sent outside of transactions and atomic sets.
    pub alone: bool,
    /// The tables, by their names in the statement, of which its own conditions leave few rows.
    pub few_rows: BTreeSet<String>,
}

/// Statements that belong together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// What must hold of them.
    pub kind: UnitKind,
    /// The names of the statements.
    pub queries: BTreeSet<String>,
}

/// What must hold of a unit's statements.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum UnitKind {
    /// All of ACID: everything that they read or write is in one service, unless nothing ever updates it.
    Transaction,
    /// Atomicity alone: what they write is in one service.
    AtomicSet,
}

/// An application cannot be planned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ApplicationError {
    /// A statement is not understood.
    Query {
        /// Its name.
        name: String,
        /// Why.
        error: NoAnatomy,
    },
    /// A unit or a fact names something that there is not.
    Unknown {
        /// Where.
        place: String,
        /// The name.
        name: String,
    },
    /// Two tables of the same name lie in different schemas.
    SameName(String),
    /// A table has code that may read and write what no statement names.
    Code {
        /// The table.
        table: String,
        /// What it has.
        what: &'static str,
    },
}

impl fmt::Display for ApplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query { name, error } => write!(f, "query {name}: {error}"),
            Self::Unknown { place, name } => write!(f, "{place} names `{name}`, which does not exist"),
            Self::Code { table, what } => {
                write!(f, "the table `{table}` has {what}, whose reads and writes the planner does not know")
            }
            Self::SameName(name) => {
                write!(f, "several schemas have a table `{name}`: the planner needs names that differ")
            }
        }
    }
}

impl std::error::Error for ApplicationError {}

/// What a statement changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Effects {
    /// The columns that get other values; of tables that get or lose rows, all.
    pub(crate) written: BTreeSet<Column>,
    /// The tables that get or lose rows.
    pub(crate) grown: BTreeSet<String>,
}

impl Effects {
    fn grow(&mut self, table: &Table) {
        self.grown.insert(table.name.clone());
        self.written.extend(table.columns.iter().map(|column| Column::new(&table.name, &column.name)));
    }

    fn reach(&self, table: &Table) -> bool {
        self.written.iter().any(|column| column.table == table.name)
    }

    /// What becomes of the rows that refer to rows which are gone, or whose key has another value.
    fn follow(&mut self, parent: &Table, child: &Table, reference: &Reference, gone: bool) {
        let key =
            reference.parent_columns.iter().map(|&at| Column::new(&parent.name, &parent.columns[at].name));
        let moved =
            !self.grown.contains(&parent.name) && key.into_iter().any(|key| self.written.contains(&key));
        let action = match (gone, moved) {
            (true, _) => reference.on_delete,
            (_, true) => reference.on_update,
            _ => return,
        };
        match action {
            Action::Cascade if gone => self.grow(child),
            Action::Cascade | Action::SetNull | Action::SetDefault => {
                let columns =
                    reference.columns.iter().map(|&at| Column::new(&child.name, &child.columns[at].name));
                self.written.extend(columns);
            }
            Action::NoAction | Action::Restrict => {}
        }
    }
}

impl Query {
    /// Reads a statement's text; it is sent once, alone.
    ///
    /// # Errors
    /// If the statement is not understood.
    pub fn new(name: &str, text: &str, catalogue: &Catalogue) -> Result<Self, ApplicationError> {
        let anatomy = anatomy(text, catalogue)
            .map_err(|error| ApplicationError::Query { name: name.to_owned(), error })?;
        Ok(Self {
            text: text.to_owned(),
            anatomy,
            uses: None,
            rate: 1.0,
            alone: true,
            few_rows: BTreeSet::new(),
        })
    }

    /// Whether it writes.
    pub fn writes(&self) -> bool {
        self.anatomy.kind != StatementKind::Read
    }
}

impl Application {
    /// An application without statements.
    ///
    /// # Errors
    /// If two tables have the same name.
    pub fn new(name: impl Into<String>, catalogue: Catalogue) -> Result<Self, ApplicationError> {
        let mut names = BTreeSet::new();
        for table in catalogue.tables() {
            if !names.insert(table.name.clone()) {
                return Err(ApplicationError::SameName(table.name.clone()));
            }
        }
        Ok(Self {
            name: name.into(),
            catalogue,
            queries: BTreeMap::new(),
            units: BTreeMap::new(),
            references: BTreeMap::new(),
            names: BTreeMap::new(),
            seldom: SELDOM,
        })
    }

    /// The table of this name.
    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        self.catalogue.tables().find(|table| table.name == name)
    }

    /// Every column of every table.
    pub(crate) fn columns(&self) -> BTreeSet<Column> {
        let of = |table: &Table| -> Vec<Column> {
            table.columns.iter().map(|column| Column::new(&table.name, &column.name)).collect()
        };
        self.catalogue.tables().flat_map(of).collect()
    }

    /// The columns of a group.
    ///
    /// # Errors
    /// With the name that does not exist; `place` says where it stands.
    pub fn columns_of(&self, group: &Group, place: &str) -> Result<Vec<Column>, ApplicationError> {
        let unknown =
            |name: &str| ApplicationError::Unknown { place: place.to_owned(), name: name.to_owned() };
        let table = self.table(&group.table).ok_or_else(|| unknown(&group.table))?;
        let has = |name: &str| table.columns.iter().any(|column| column.name == name);
        let Some(columns) = &group.columns else {
            return Ok(table.columns.iter().map(|column| Column::new(&table.name, &column.name)).collect());
        };
        let column = |name: &String| {
            let known = has(name).then(|| Column::new(&table.name, name));
            known.ok_or_else(|| unknown(&format!("{}.{name}", table.name)))
        };
        columns.iter().map(column).collect()
    }

    /// The column at a place of a statement.
    pub(crate) fn column(&self, anatomy: &Anatomy, place: ColumnPlace) -> Column {
        let mention = anatomy.relations.get(place.relation);
        let table = mention.and_then(|mention| self.catalogue.table(mention.table));
        let column = table.and_then(|table| table.columns.get(place.column));
        Column::new(
            table.map_or("", |table| table.name.as_str()),
            column.map_or("", |column| column.name.as_str()),
        )
    }

    /// What a statement shows of what it could show.
    pub(crate) fn output(&self, query: &Query) -> BTreeSet<ColumnPlace> {
        let used = |place: &&ColumnPlace| {
            query.uses.as_ref().is_none_or(|uses| uses.contains(&self.column(&query.anatomy, **place)))
        };
        query.anatomy.output.iter().filter(used).copied().collect()
    }

    /// All columns that a statement reads.
    pub(crate) fn read(&self, query: &Query) -> BTreeSet<Column> {
        let output = self.output(query);
        let places = output.iter().chain(&query.anatomy.deciding);
        places.map(|place| self.column(&query.anatomy, *place)).collect()
    }

    /// The columns that an UPDATE names.
    pub(crate) fn set(&self, query: &Query) -> BTreeSet<Column> {
        if query.anatomy.kind != StatementKind::Update {
            return BTreeSet::new();
        }
        let name = |written: &sql::anatomy::Written| {
            let table = self.catalogue.table(written.table)?;
            Some(Column::new(&table.name, &table.columns.get(written.column)?.name))
        };
        query.anatomy.written.iter().filter_map(name).collect()
    }

    /// The table that gets or loses rows by a statement.
    pub(crate) fn grown(&self, query: &Query) -> Option<&Table> {
        query.anatomy.grows.and_then(|table| self.catalogue.table(table))
    }

    /// The columns that a statement changes; of a table that gets or loses rows, all.
    pub(crate) fn written(&self, query: &Query) -> BTreeSet<Column> {
        self.effects(query).written
    }

    /// What a statement changes, by itself and by foreign keys with actions.
    pub(crate) fn effects(&self, query: &Query) -> Effects {
        let mut effects = Effects { written: self.set(query), grown: BTreeSet::new() };
        if let Some(table) = self.grown(query) {
            effects.grow(table);
        }
        let deletes = query.anatomy.kind == StatementKind::Delete;
        loop {
            let before = effects.clone();
            for table in self.catalogue.tables().filter(|table| before.reach(table)) {
                for (child, reference) in self.catalogue.referenced_by(table.id) {
                    let gone = deletes && before.grown.contains(&table.name);
                    effects.follow(table, child, reference, gone);
                }
            }
            if effects == before {
                return effects;
            }
        }
    }

    /// The column whose value a column's always is, by a foreign key or by the application's word.
    pub(crate) fn reference(&self, column: &Column) -> Option<Column> {
        if let Some(target) = self.references.get(column) {
            return Some(target.clone());
        }
        let table = self.table(&column.table)?;
        let at = table.columns.iter().position(|known| known.name == column.name)?;
        let reference = table.references.iter().find(|reference| reference.columns == [at])?;
        let parent = self.catalogue.table(reference.parent)?;
        let target = parent.columns.get(*reference.parent_columns.first()?)?;
        Some(Column::new(&parent.name, &target.name))
    }

    /// Whether no two rows of its table have the same value in a column.
    pub(crate) fn is_unique(&self, column: &Column) -> bool {
        self.table(&column.table).is_some_and(|table| {
            table.keys.iter().any(|key| {
                let single = |&[at]: &[usize; 1]| table.columns[at].name == column.name;
                key.is_plain() && key.columns.as_slice().try_into().is_ok_and(|one: [usize; 1]| single(&one))
            })
        })
    }

    /// Whether a column always has a value.
    pub(crate) fn is_never_null(&self, column: &Column) -> bool {
        let table = self.table(&column.table);
        let known = table.and_then(|table| table.columns.iter().find(|known| known.name == column.name));
        known.is_some_and(|known| known.not_null) || self.primary_key(&column.table).contains(column)
    }

    /// The columns of a table's primary key.
    pub(crate) fn primary_key(&self, table: &str) -> Vec<Column> {
        let Some(table) = self.table(table) else { return Vec::new() };
        table.primary_key.iter().map(|&at| Column::new(&table.name, &table.columns[at].name)).collect()
    }
}
