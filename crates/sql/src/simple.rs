//! Tables whose changes can be captured without a trigger.
//!
//! Where nothing writes a table but the statements that name it, and these write nothing else, RETURNING shows every row
//! that changed; and a deterministic change of one row by its full key can travel as the statement itself. Both miss
//! silently whatever they are not told of (capture notes, A.3: cascades, rows written by triggers, functions with side
//! effects), so the catalogue has to prove that there is no such thing. A doubt is a reason against it.
//!
//! This only classifies. It says nothing about a single statement: whether RETURNING shows the old key, too, depends on
//! what the statement sets, and on the server's version.

use std::fmt;

use crate::catalogue::{Action, Catalogue, Function, Relation, Table, TableId};
use crate::classify::OWN_SCHEMAS;
use crate::name::Name;
use crate::reach::{Reach, reach_of_function};

/// Why a table is not simple: the first reason that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WhyNot {
    /// The catalogue does not have it.
    Unknown,
    /// Without a primary key a row cannot be named.
    NoPrimaryKey,
    /// A row of its key may stand for another until the end of the transaction.
    DeferrableKey,
    /// Something inherits from it, it inherits, or it is a partition: other names write it.
    Inheritance,
    /// A trigger of this name runs with changes of it.
    Trigger(String),
    /// There are rules: on this table, or on another relation, where they may write this one.
    Rule(Name),
    /// A default, check or index expression runs users' code, or a foreign key could not be resolved.
    OwnCode,
    /// Row security: a change may be hidden from who makes it.
    RowSecurity,
    /// A column's type runs users' code.
    CodedTypes,
    /// Changes of this parent change its rows, too.
    Cascade(TableId),
    /// A change of this view is one of the table.
    View(Name),
    /// A function of this name writes it.
    WrittenBy(String),
    /// A function of this name may write anything.
    UnknownFunction(String),
    /// Casts run code that no statement names.
    UnseenCode,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("it is not known"),
            Self::NoPrimaryKey => f.write_str("it has no primary key"),
            Self::DeferrableKey => f.write_str("its primary key is deferrable"),
            Self::Inheritance => f.write_str("it is part of a tree of tables"),
            Self::Trigger(name) => write!(f, "trigger {name} runs with its changes"),
            Self::Rule(name) => write!(f, "relation {name} has rules"),
            Self::OwnCode => f.write_str("its definition runs users' code"),
            Self::RowSecurity => f.write_str("it has row security"),
            Self::CodedTypes => f.write_str("a type of its columns runs users' code"),
            Self::Cascade(parent) => write!(f, "changes of table {} change it, too", parent.0),
            Self::View(name) => write!(f, "it can be changed through view {name}"),
            Self::WrittenBy(name) => write!(f, "function {name} writes it"),
            Self::UnknownFunction(name) => write!(f, "function {name} may write anything"),
            Self::UnseenCode => f.write_str("casts run users' code"),
        }
    }
}

/// Whether a table is simple enough for capture without a trigger. Holds for the catalogue's generation.
pub fn simple(table: TableId, catalogue: &Catalogue) -> Result<(), WhyNot> {
    let table = catalogue.table(table).ok_or(WhyNot::Unknown)?;
    own(table, catalogue)?;
    from_outside(table, catalogue)
}

/// What the table itself says.
fn own(table: &Table, catalogue: &Catalogue) -> Result<(), WhyNot> {
    let no = |is: bool, why: WhyNot| if is { Err(why) } else { Ok(()) };
    let key = table.keys.iter().find(|key| key.primary);
    no(table.primary_key.is_empty(), WhyNot::NoPrimaryKey)?;
    no(key.is_none_or(|key| key.deferrable || !key.is_plain()), WhyNot::DeferrableKey)?;
    let in_tree = catalogue.parents().any(|parent| {
        parent.leaves.contains(&table.id) || (&parent.schema, &parent.name) == (&table.schema, &table.name)
    });
    no(in_tree, WhyNot::Inheritance)?;
    if let Some(trigger) = table.triggers.first() {
        return Err(WhyNot::Trigger(trigger.name.clone()));
    }
    no(!table.rules.is_empty(), WhyNot::Rule(Name::qualified(&table.schema, &table.name)))?;
    no(table.own_code || table.user_triggers, WhyNot::OwnCode)?;
    no(!catalogue.knows_references(table), WhyNot::OwnCode)?;
    no(table.row_security, WhyNot::RowSecurity)?;
    no(table.coded_types, WhyNot::CodedTypes)?;
    let acts = |action: Action| !matches!(action, Action::NoAction | Action::Restrict);
    let cascade = table.references.iter().find(|r| acts(r.on_delete) || acts(r.on_update));
    cascade.map_or(Ok(()), |reference| Err(WhyNot::Cascade(reference.parent)))
}

/// Who else may write it.
fn from_outside(table: &Table, catalogue: &Catalogue) -> Result<(), WhyNot> {
    if catalogue.has_user_casts() {
        return Err(WhyNot::UnseenCode);
    }
    if let Some(other) = catalogue.tables().find(|other| !other.rules.is_empty()) {
        return Err(WhyNot::Rule(Name::qualified(&other.schema, &other.name)));
    }
    for view in catalogue.views().filter(|view| !view.materialized) {
        let name = Name::qualified(&view.schema, &view.name);
        if !view.rules.is_empty() {
            return Err(WhyNot::Rule(name));
        }
        let queries = catalogue.views_named(&name);
        let shows = queries.into_iter().any(|(_, query)| {
            query.is_none_or(|query| {
                query.iter().flat_map(|statement| &statement.reads).any(|read| may_be(read, table, catalogue))
            })
        });
        if shows {
            return Err(WhyNot::View(name));
        }
    }
    for name in catalogue.user_function_names() {
        let known: Vec<_> = catalogue.functions_named(name).collect();
        let ours = |function: &&Function| OWN_SCHEMAS.contains(&function.schema.as_str());
        if !known.is_empty() && known.iter().all(ours) {
            continue;
        }
        let Reach { writes, unbounded, .. } = reach_of_function(name, catalogue);
        if unbounded {
            return Err(WhyNot::UnknownFunction(name.to_owned()));
        }
        if writes.contains(&table.id) {
            return Err(WhyNot::WrittenBy(name.to_owned()));
        }
    }
    Ok(())
}

/// Whether a name may stand for the table.
fn may_be(name: &Name, table: &Table, catalogue: &Catalogue) -> bool {
    catalogue
        .named(name.schema.as_deref(), &name.name)
        .any(|relation| matches!(relation, Relation::Table(found) if found.id == table.id))
}
