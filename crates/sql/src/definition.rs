//! The names of relations and functions that statements rely on, and those that schema changes define anew.
//!
//! A bare name stands for every object of that name in any schema, so a change concerns a statement if both have a name in
//! common. Names are told as numbers, their hashes.
//!
//! Invariant: what is not proven to concern only some names concerns everything. [`Scope::redefined`] holds a statement's text
//! against the catalogue for that: new objects must have names that nothing has yet, so no statement can have meant anything
//! else by them; objects that are there must be ordinary tables, of which the catalogue knows everything that refers to them.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::builtin::{self, Builtin};
use crate::catalogue::{Catalogue, Relation, Table, TableId};
use crate::name::Name;
use crate::table_effects::TableEffects;

/// The names that a statement relies on, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Uses {
    /// The relations that it opens, directly or by way of views, triggers, references and functions.
    pub relations: Vec<u64>,
    /// These, and every function that it calls or could call.
    pub mentioned: Vec<u64>,
}

impl Uses {
    /// The definitions that what was found of a statement rests on.
    pub(crate) fn of(effects: &TableEffects, catalogue: &Catalogue) -> Self {
        let touched = effects.reads.iter().chain(&effects.writes).chain(&effects.locks);
        let tables = touched.filter_map(|id| catalogue.table(*id));
        let mut relations = effects.relations.clone();
        relations.extend(tables.map(|table| of_relation(&table.name)));
        let mentioned = effects.mentioned.union(&relations).copied().collect();
        Self { relations: relations.into_iter().collect(), mentioned }
    }
}

/// The names that a schema change defines anew, by its text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// It may concern anything.
    Anything,
    /// It concerns no more than this.
    These(Box<Changes>),
}

/// Part of [`Scope`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Relations that it makes.
    pub made: Vec<String>,
    /// Tables that it changes or drops.
    pub tables: Vec<Name>,
    /// Tables that new foreign keys refer to.
    pub referenced: Vec<Name>,
    /// Indexes that it drops.
    pub indexes: Vec<Name>,
    /// Foreign keys of and to the changed tables may go with it.
    pub with_relatives: bool,
    /// Sequences may go with what it drops.
    pub drops_sequences: bool,
    /// Functions that it makes.
    pub functions: Vec<String>,
    /// Types that it makes.
    pub types: Vec<String>,
}

/// The names that a schema change defines anew, under a catalogue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Redefined {
    /// Tables that were there before.
    pub tables: Vec<TableId>,
    /// Names, as in [`Uses`].
    pub names: Vec<u64>,
    /// The names of relations that it makes.
    pub made: Vec<u64>,
}

impl Scope {
    pub(crate) fn these(changes: Changes) -> Self {
        Self::These(Box::new(changes))
    }

    /// Nothing that any statement relies on.
    pub(crate) fn nothing() -> Self {
        Self::these(Changes::default())
    }

    /// These new relations.
    pub(crate) fn made(relations: Vec<String>) -> Self {
        Self::these(Changes { made: relations, ..Changes::default() })
    }

    /// What it comes to under a catalogue that knows all but what the transaction itself has made, which are relations of
    /// these names; `None` for anything.
    pub fn redefined(&self, catalogue: &Catalogue, own: &BTreeSet<u64>) -> Option<Redefined> {
        let Self::These(changes) = self else { return None };
        let mut found = Redefined::default();
        for name in changes.made.iter().chain(&changes.types) {
            let number = of_relation(name);
            if own.contains(&number) || !is_unheard_of(name, catalogue) {
                return None;
            }
            found.names.push(number);
        }
        found.made.extend(changes.made.iter().map(|name| of_relation(name)));
        for name in &changes.functions {
            if !is_unheard_of(name, catalogue) {
                return None;
            }
            found.names.push(of_function(name));
        }
        let mut tables = Vec::new();
        for name in changes.tables.iter().filter(|name| !is_own(name, catalogue, own, &mut found.names)) {
            tables.extend(ordinary_tables(name, catalogue)?);
        }
        for name in &changes.indexes {
            let indexed: Vec<TableId> = catalogue.indexed_by(&name.name).collect();
            if indexed.is_empty() {
                return None;
            }
            for id in indexed {
                tables.push(ordinary(catalogue.table(id)?, catalogue)?);
            }
        }
        if changes.drops_sequences && tables.iter().any(|table| catalogue.draws(table.id).is_some()) {
            return None;
        }
        if changes.with_relatives {
            for relative in tables.iter().flat_map(|table| relatives(table, catalogue)).collect::<Vec<_>>() {
                tables.push(ordinary(catalogue.table(relative)?, catalogue)?);
            }
        }
        for name in changes.referenced.iter().filter(|name| {
            !changes.made.contains(&name.name) && !is_own(name, catalogue, own, &mut found.names)
        }) {
            tables.extend(ordinary_tables(name, catalogue)?);
        }
        found.tables.extend(tables.iter().map(|table| table.id));
        found.names.extend(tables.iter().map(|table| of_relation(&table.name)));
        for list in [&mut found.names, &mut found.made] {
            list.sort_unstable();
            list.dedup();
        }
        found.tables.sort_unstable();
        found.tables.dedup();
        Some(found)
    }
}

/// Whether a name is of a relation that the transaction has made; then the change concerns that alone.
fn is_own(name: &Name, catalogue: &Catalogue, own: &BTreeSet<u64>, names: &mut Vec<u64>) -> bool {
    let number = of_relation(&name.name);
    let is_own = own.contains(&number) && catalogue.named(None, &name.name).next().is_none();
    if is_own {
        names.push(number);
    }
    is_own
}

/// Whether no relation, function or type has this name, in whatever schema. A statement that mentions it all the same may do
/// anything, by that catalogue.
fn is_unheard_of(name: &str, catalogue: &Catalogue) -> bool {
    let is_systems = builtin::is_system_relation(name)
        || catalogue.builtin_volatility(name).is_some()
        || !matches!(builtin::type_name(name), Builtin::Unknown);
    let is_users = catalogue.is_user_type(name)
        || catalogue.is_user_type(&format!("_{name}"))
        || catalogue.is_user_function(name);
    !is_systems && !is_users
}

/// The objects that a name may stand for, if these are ordinary tables.
fn ordinary_tables<'a>(name: &Name, catalogue: &'a Catalogue) -> Option<Vec<&'a Table>> {
    let tables: Option<Vec<&Table>> = catalogue
        .named(name.schema.as_deref(), &name.name)
        .map(|relation| match relation {
            Relation::Table(table) => ordinary(table, catalogue),
            Relation::Parent(_) | Relation::View(_) | Relation::Other => None,
        })
        .collect();
    tables.filter(|tables| !tables.is_empty())
}

/// A table that stands for itself: it is part of no other one, and its foreign keys are known.
fn ordinary<'a>(table: &'a Table, catalogue: &Catalogue) -> Option<&'a Table> {
    let is_part = catalogue.parents().any(|parent| {
        parent.leaves.contains(&table.id) || (&parent.schema, &parent.name) == (&table.schema, &table.name)
    });
    (!is_part && catalogue.knows_references(table)).then_some(table)
}

fn relatives(table: &Table, catalogue: &Catalogue) -> Vec<TableId> {
    let parents = table.references.iter().map(|reference| reference.parent);
    parents.chain(catalogue.referenced_by(table.id).map(|(child, _)| child.id)).collect()
}

/// The number of a relation's name.
pub fn of_relation(name: &str) -> u64 {
    number("relation", name)
}

/// The number of a function's name.
pub fn of_function(name: &str) -> u64 {
    number("function", name)
}

fn number(kind: &str, name: &str) -> u64 {
    let mut hasher = FxHasher::default();
    (kind, name).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
