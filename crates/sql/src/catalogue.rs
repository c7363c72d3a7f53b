//! The part of the servers' catalogues that routing needs.
//!
//! The binary reads a live server and hands the contents over; this crate only looks things up. A catalogue is
//! immutable and carries the version of the last schema change that it reflects. A conclusion drawn from it holds only at
//! replicas that have applied that version, and must be drawn anew when the version moves on.
//!
//! Invariant: a catalogue may say too much (a relation or function that cannot be reached through the session's search
//! path), never too little. Non-goals: resolving search paths, privileges, temporary objects; a session that owns
//! temporary objects must not trust conclusions about unqualified names.

mod code;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::accesses;
use crate::body::{self, Code};
use crate::name::Name;
use crate::statement::Statement;
pub use code::{
    Argument, ArgumentMode, Body, Function, HeadTypes, Policy, Returns, Rule, Sequence, Timing, Trigger,
    ViewDefinition,
};
pub use table::{Action, Column, ColumnDefault, Key, Reference, Table};

/// A database of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct DatabaseId(pub u32);

impl DatabaseId {
    /// The first database of a cluster, and so far the only one.
    pub const FIRST: Self = Self(0);

    /// The table with this number in this database.
    pub const fn table(self, number: u32) -> TableId {
        TableId { database: self, number }
    }

    /// The sequence with this number in this database.
    pub const fn sequence(self, number: u32) -> SequenceId {
        SequenceId { database: self, number }
    }
}

impl std::fmt::Display for DatabaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A table of the cluster. Each database numbers its own tables, so a number alone names no table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct TableId {
    /// The database that the table is in.
    pub database: DatabaseId,
    /// Our own stable number: the argument of the capture trigger. OIDs differ between replicas and are never used.
    pub number: u32,
}

/// A sequence of the cluster, numbered like a [`TableId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct SequenceId {
    /// The database that the sequence is in.
    pub database: DatabaseId,
    /// Our own stable number.
    pub number: u32,
}

/// The number, which is what the functions in a server take.
impl std::fmt::Display for SequenceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.number.fmt(f)
    }
}

/// Which sequences a row that is written to a table may draw a value from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Draws {
    /// These, in order of their numbers.
    From(Vec<SequenceId>),
    /// Some, but it is not known which.
    FromSome,
}

/// A partitioned table or an inheritance parent: reading it reads all its leaves. An inheritance parent that holds
/// rows of its own is also a [`Table`]. One with a foreign table below it belongs to the other relations instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Every table below it that holds rows, at any depth.
    pub leaves: Vec<TableId>,
}

/// How much a function's result may vary; later is worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Volatility {
    /// The same result for ever.
    Immutable,
    /// The same result within one statement; reads only.
    Stable,
    /// Anything, side effects included.
    #[default]
    Volatile,
}

/// What [`Catalogue::new`] takes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// The database that this is the catalogue of.
    pub database: DatabaseId,
    /// The version of the last schema change that this reflects. Two catalogues of different contents must differ
    /// in it: conclusions are cached by it.
    pub generation: u64,
    /// Ordinary tables outside the system schemas.
    pub tables: Vec<Table>,
    /// Partitioned tables and inheritance parents outside the system schemas.
    pub parents: Vec<Parent>,
    /// Views, materialized ones too, outside the system schemas.
    pub views: Vec<ViewDefinition>,
    /// Every other relation outside the system schemas: foreign tables, sequences, composite types, and so on, as
    /// (schema, name).
    pub other_relations: Vec<(String, String)>,
    /// Names of indexes, each with the table that it is on.
    pub indexes: Vec<(String, TableId)>,
    /// Sequences; they are among the other relations, too.
    pub sequences: Vec<Sequence>,
    /// Names of functions in `pg_catalog`, each with the worst volatility over all its overloads.
    pub builtin_functions: Vec<(String, Volatility)>,
    /// Names of functions, aggregates and procedures that did not come with the server.
    pub user_functions: Vec<String>,
    /// The known effects of each; a function that is missing here, but not above, may do anything.
    pub functions: Vec<Function>,
    /// Names of operators that did not come with the server and whose operands are all built-in or polymorphic
    /// types: those that could be chosen in place of a built-in one.
    pub user_operators: Vec<String>,
    /// Names of types that did not come with the server, domains included (a table's row type need not be listed).
    pub user_types: Vec<String>,
    /// Those names among them that stand for nothing but plain types: enums, and domains, composites, ranges and
    /// arrays over plain types, without any function, operator or cast that did not come with the server.
    pub plain_types: Vec<String>,
    /// A cast exists that did not come with the server and converts between built-in types or to one implicitly, or
    /// such a default operator class for a built-in type: code that no statement names.
    pub has_user_casts: bool,
    /// A deferrable constraint exists.
    pub has_deferrable: bool,
    /// The tables with columns or checks that draw from sequences; parents' defaults count for what is below them.
    pub drawing: Vec<(TableId, Draws)>,
}

/// The relation that a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relation<'a> {
    /// An ordinary table.
    Table(&'a Table),
    /// A partitioned table or inheritance parent.
    Parent(&'a Parent),
    /// A view, perhaps a materialized one.
    View(&'a ViewDefinition),
    /// Something else: a sequence, a foreign table, ...
    Other,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    Table(usize),
    Parent(usize),
    View(usize),
    Other,
}

/// Something with what it says, once that has been read; `None` when it is not understood.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Read<T, R> {
    given: T,
    meaning: OnceLock<Option<R>>,
}

impl<T, R> Read<T, R> {
    fn of(given: T) -> Self {
        Self { given, meaning: OnceLock::new() }
    }

    fn meaning(&self, read: impl FnOnce(&T) -> Option<R>) -> Option<&R> {
        self.meaning.get_or_init(|| read(&self.given)).as_ref()
    }
}

/// The catalogue: contents with the indexes to look them up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    database: DatabaseId,
    generation: u64,
    tables: Vec<Table>,
    parents: Vec<Parent>,
    views: Vec<Read<ViewDefinition, Vec<Statement>>>,
    policies: BTreeMap<TableId, Read<(), Vec<Statement>>>,
    functions: BTreeMap<String, Vec<Read<Function, Code>>>,
    indexes: BTreeMap<String, Vec<TableId>>,
    sequences: Vec<Sequence>,
    drawn: BTreeMap<Name, Vec<(TableId, usize)>>,
    by_id: BTreeMap<TableId, usize>,
    referenced_by: BTreeMap<TableId, Vec<(usize, usize)>>,
    by_name: BTreeMap<String, Vec<(String, Slot)>>,
    builtin_functions: BTreeMap<String, Volatility>,
    user_functions: BTreeSet<String>,
    user_operators: BTreeSet<String>,
    user_types: BTreeSet<String>,
    plain_types: BTreeSet<String>,
    has_user_casts: bool,
    has_deferrable: bool,
    drawing: BTreeMap<TableId, Draws>,
}

impl Catalogue {
    /// Indexes the contents.
    pub fn new(mut contents: Contents) -> Self {
        for table in &mut contents.tables {
            table.groupings = accesses::groupings(table);
        }
        let mut by_name: BTreeMap<String, Vec<(String, Slot)>> = BTreeMap::new();
        let mut by_id = BTreeMap::new();
        let mut referenced_by: BTreeMap<TableId, Vec<(usize, usize)>> = BTreeMap::new();
        let mut drawn: BTreeMap<Name, Vec<(TableId, usize)>> = BTreeMap::new();
        for (index, table) in contents.tables.iter().enumerate() {
            by_id.insert(table.id, index);
            for (at, reference) in table.references.iter().enumerate() {
                referenced_by.entry(reference.parent).or_default().push((index, at));
            }
            for (at, column) in table.columns.iter().enumerate() {
                if let ColumnDefault::Sequence(name) = &column.default {
                    drawn.entry(name.clone()).or_default().push((table.id, at));
                }
            }
            by_name.entry(table.name.clone()).or_default().push((table.schema.clone(), Slot::Table(index)));
        }
        for (index, parent) in contents.parents.iter().enumerate() {
            by_name
                .entry(parent.name.clone())
                .or_default()
                .push((parent.schema.clone(), Slot::Parent(index)));
        }
        for (index, view) in contents.views.iter().enumerate() {
            by_name.entry(view.name.clone()).or_default().push((view.schema.clone(), Slot::View(index)));
        }
        for (schema, name) in contents.other_relations {
            by_name.entry(name).or_default().push((schema, Slot::Other));
        }
        let mut builtin_functions = BTreeMap::new();
        for (name, volatility) in contents.builtin_functions {
            let worst = builtin_functions.entry(name).or_insert(volatility);
            *worst = volatility.max(*worst);
        }
        let mut functions: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for function in contents.functions {
            functions.entry(function.name.clone()).or_default().push(Read::of(function));
        }
        let mut indexes: BTreeMap<String, Vec<TableId>> = BTreeMap::new();
        for (name, table) in contents.indexes {
            indexes.entry(name).or_default().push(table);
        }
        let secured = contents.tables.iter().filter(|table| table.row_security);
        Self {
            database: contents.database,
            generation: contents.generation,
            policies: secured.map(|table| (table.id, Read::of(()))).collect(),
            tables: contents.tables,
            parents: contents.parents,
            views: contents.views.into_iter().map(Read::of).collect(),
            functions,
            indexes,
            sequences: contents.sequences,
            drawn,
            by_id,
            referenced_by,
            by_name,
            builtin_functions,
            user_functions: contents.user_functions.into_iter().collect(),
            user_operators: contents.user_operators.into_iter().collect(),
            user_types: contents.user_types.into_iter().collect(),
            plain_types: contents.plain_types.into_iter().collect(),
            has_user_casts: contents.has_user_casts,
            has_deferrable: contents.has_deferrable,
            drawing: contents.drawing.into_iter().collect(),
        }
    }

    /// The same server with these relations and its built-in objects alone: for a text in which every name that is not
    /// built in has its schema.
    #[must_use]
    pub fn of_relations(&self, relations: Vec<Table>) -> Self {
        let builtin_functions =
            self.builtin_functions.iter().map(|(name, volatility)| (name.clone(), *volatility)).collect();
        Self::new(Contents {
            database: self.database,
            generation: self.generation,
            tables: relations,
            builtin_functions,
            ..Contents::default()
        })
    }

    /// The database that this is the catalogue of.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// The version of the last schema change that this catalogue reflects.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A table by our number.
    pub fn table(&self, id: TableId) -> Option<&Table> {
        self.by_id.get(&id).map(|&index| &self.tables[index])
    }

    /// All ordinary tables, in the order they were given.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter()
    }

    /// The foreign keys that point to a table, each with its own table.
    pub fn referenced_by(&self, parent: TableId) -> impl Iterator<Item = (&Table, &Reference)> {
        let found = self.referenced_by.get(&parent).map_or(&[][..], Vec::as_slice);
        found.iter().map(|&(table, at)| (&self.tables[table], &self.tables[table].references[at]))
    }

    /// All partitioned tables and inheritance parents.
    pub fn parents(&self) -> impl Iterator<Item = &Parent> {
        self.parents.iter()
    }

    /// Everything that a name may stand for: with a schema what lies there, without one what any schema has.
    pub fn named(&self, schema: Option<&str>, name: &str) -> impl Iterator<Item = Relation<'_>> {
        let found = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        let wanted = schema.map(str::to_owned);
        found.iter().filter(move |(schema, _)| wanted.as_ref().is_none_or(|wanted| wanted == schema)).map(
            |(_, slot)| match *slot {
                Slot::Table(index) => Relation::Table(&self.tables[index]),
                Slot::Parent(index) => Relation::Parent(&self.parents[index]),
                Slot::View(index) => Relation::View(&self.views[index].given),
                Slot::Other => Relation::Other,
            },
        )
    }

    /// The tables that a name may stand for, leaves of parents included; `None` when it may stand for anything else,
    /// or for nothing that is known.
    pub fn tables_named(&self, name: &Name) -> Option<BTreeSet<TableId>> {
        let mut tables = BTreeSet::new();
        let mut found = false;
        for relation in self.named(name.schema.as_deref(), &name.name) {
            found = true;
            match relation {
                Relation::Table(table) => {
                    tables.insert(table.id);
                }
                Relation::Parent(parent) => tables.extend(parent.leaves.iter().copied()),
                Relation::View(_) | Relation::Other => return None,
            }
        }
        found.then_some(tables)
    }

    /// The tables that have an index of this name.
    pub fn indexed_by(&self, name: &str) -> impl Iterator<Item = TableId> + '_ {
        self.indexes.get(name).map_or(&[][..], Vec::as_slice).iter().copied()
    }

    /// The worst volatility of the built-in functions of a name.
    pub fn builtin_volatility(&self, name: &str) -> Option<Volatility> {
        self.builtin_functions.get(name).copied()
    }

    /// Whether a user's function has this name.
    pub fn is_user_function(&self, name: &str) -> bool {
        self.user_functions.contains(name)
    }

    /// The names of all users' functions.
    pub fn user_function_names(&self) -> impl Iterator<Item = &str> {
        self.user_functions.iter().map(String::as_str)
    }

    /// The known effects of the users' functions of a name.
    pub fn functions_named(&self, name: &str) -> impl Iterator<Item = &Function> {
        self.functions.get(name).map_or(&[][..], Vec::as_slice).iter().map(|read| &read.given)
    }

    /// All users' functions of which something is known.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values().flatten().map(|read| &read.given)
    }

    /// The code of all users' functions of a name; `None` when one of them is not understood.
    pub(crate) fn code(&self, name: &str) -> Option<Vec<(&Function, &Code)>> {
        let known = self.functions.get(name)?;
        known.iter().map(|read| Some((&read.given, read.meaning(body::function)?))).collect()
    }

    /// All views, materialized ones too.
    pub fn views(&self) -> impl Iterator<Item = &ViewDefinition> {
        self.views.iter().map(|read| &read.given)
    }

    /// The queries of the views of a name, each with its view; `None` for one that is not understood.
    pub(crate) fn views_named(&self, name: &Name) -> Vec<(&ViewDefinition, Option<&[Statement]>)> {
        let slots = self.by_name.get(&name.name).map_or(&[][..], Vec::as_slice);
        let named =
            slots.iter().filter(|(schema, _)| name.schema.as_ref().is_none_or(|wanted| wanted == schema));
        let views = named.filter_map(|(_, slot)| match slot {
            Slot::View(at) => Some(&self.views[*at]),
            _ => None,
        });
        let query = |view: &ViewDefinition| body::queries(&view.definition).filter(|_| !view.materialized);
        views.map(|read| (&read.given, read.meaning(query).map(Vec::as_slice))).collect()
    }

    /// The policies of a table with row security; `None` if one is not understood.
    pub(crate) fn policies(&self, table: &Table) -> Option<&[Statement]> {
        let read = self.policies.get(&table.id)?;
        read.meaning(|()| {
            let expressions = table.policies.iter().flat_map(|policy| &policy.expressions);
            let queries = expressions.map(|text| body::queries(&format!("SELECT {text}")));
            let queries: Option<Vec<_>> = queries.collect();
            Some(queries?.concat()).filter(|_| !table.policies.is_empty())
        })
        .map(Vec::as_slice)
    }

    /// All sequences.
    pub fn sequences(&self) -> impl Iterator<Item = &Sequence> {
        self.sequences.iter()
    }

    /// The columns that take the next value of a sequence when none is given: tables and places in them.
    pub fn drawn_from(&self, schema: &str, sequence: &str) -> &[(TableId, usize)] {
        self.drawn.get(&Name::qualified(schema, sequence)).map_or(&[][..], Vec::as_slice)
    }

    /// Whether a user's type other than a relation's row type has this name.
    pub(crate) fn is_declared_type(&self, name: &str) -> bool {
        self.user_types.contains(name)
    }

    /// Whether all foreign keys of and to a table are known, and not only that there are some.
    pub fn knows_references(&self, table: &Table) -> bool {
        !table.foreign_keys || !table.references.is_empty() || self.referenced_by.contains_key(&table.id)
    }

    /// Whether a user's operator of this name could be chosen for built-in operands.
    pub fn is_user_operator(&self, name: &str) -> bool {
        self.user_operators.contains(name)
    }

    /// Whether a user's type, or any relation's row type, has this name.
    pub fn is_user_type(&self, name: &str) -> bool {
        self.user_types.contains(name) || self.by_name.contains_key(name)
    }

    /// Whether a name stands for users' types that run no code of their own, and for no row type.
    pub fn is_plain_type(&self, name: &str) -> bool {
        self.plain_types.contains(name) && !self.by_name.contains_key(name)
    }

    /// Whether casts exist that could run unseen between built-in types.
    pub fn has_user_casts(&self) -> bool {
        self.has_user_casts
    }

    /// Which sequences a row that is written to this table may draw from; `None` when from none.
    pub fn draws(&self, table: TableId) -> Option<&Draws> {
        self.drawing.get(&table)
    }

    /// Whether a deferrable constraint exists, so that a commit must be preceded by SET CONSTRAINTS ALL IMMEDIATE.
    pub fn has_deferrable(&self) -> bool {
        self.has_deferrable
    }
}
