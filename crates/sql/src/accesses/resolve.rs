//! From a statement and a catalogue to an [`Outline`].
//!
//! First the names: what cannot be bounded by its names has no outline. Then the shape, if there is one; a statement
//! without one touches whole tables.

mod call;
mod facts;
mod query;
mod relation;
mod scope;
mod variables;
mod write;

use std::collections::BTreeSet;

use super::effect::Effects;
use super::outline::Outline;
use super::shape::{Root, Shape};
use super::value::Form;
use super::{ColumnSet, Columns, Strength, Why};
use crate::access::{self, Because};
use crate::catalogue::{Catalogue, TableId};
use crate::name::Name;
use crate::statement::{CopyDirection, Statement, Verb};
use crate::table_effects::table_effects;
use query::Resolver;

/// The accesses of a statement.
pub(crate) fn outline(statement: &Statement, catalogue: &Catalogue) -> Outline {
    match &statement.verb {
        Verb::Select
        | Verb::Insert
        | Verb::Update
        | Verb::Delete
        | Verb::Merge
        | Verb::Truncate
        | Verb::Lock
        | Verb::Copy { .. } => of_query(statement, catalogue),
        Verb::Call => {
            call::outline(statement, catalogue).unwrap_or_else(|| within_tables(statement, catalogue))
        }
        Verb::Do if statement.block.is_some() => {
            call::outline(statement, catalogue).unwrap_or_else(|| within_tables(statement, catalogue))
        }
        Verb::Explain { .. } | Verb::DeclareCursor { .. } => statement
            .inner
            .as_deref()
            .map_or_else(|| Outline::anything(Why::Kind("EXPLAIN")), |inner| outline(inner, catalogue)),
        // Nothing of it is executed yet.
        Verb::Prepare { .. } | Verb::Discard(_) => Outline::default(),
        verb if access::touches_no_data(verb) => Outline::default(),
        verb => Outline::anything(Why::Kind(kind(verb))),
    }
}

/// The kinds of statements that run what is written elsewhere, or change more than rows.
fn kind(verb: &Verb) -> &'static str {
    match verb {
        Verb::Execute { .. } => "EXECUTE",
        Verb::Fetch => "FETCH",
        Verb::Do => "DO",
        Verb::Call => "CALL",
        Verb::SetConstraints => "SET CONSTRAINTS",
        Verb::Maintenance(_) => "maintenance",
        Verb::Ddl(_) => "a change of the schema",
        Verb::Refused { .. } => "refused",
        _ => "unknown",
    }
}

fn of_query(statement: &Statement, catalogue: &Catalogue) -> Outline {
    let outline = match unknown_name(statement, catalogue) {
        Some(why) => Outline::anything(why),
        None => match statement.shape.as_deref().filter(|_| !shadows_types(statement, catalogue)) {
            Some(shape) => by_shape(statement, shape, catalogue),
            None => by_names(statement, catalogue),
        },
    };
    if outline.unbounded().is_some() { by_tables(statement, catalogue).unwrap_or(outline) } else { outline }
}

/// Of a call whose body is not followed: the tables that it reaches.
fn within_tables(statement: &Statement, catalogue: &Catalogue) -> Outline {
    by_tables(statement, catalogue).unwrap_or_else(|| {
        let why = unknown_name(statement, catalogue);
        Outline::anything(why.unwrap_or_else(|| Why::Kind(kind(&statement.verb))))
    })
}

/// Whole tables: everything behind the names in the statement, if that is known.
fn by_tables(statement: &Statement, catalogue: &Catalogue) -> Option<Outline> {
    let mut effects = Effects::new(catalogue);
    add_tables(statement, &mut effects)?;
    Some(effects.finish())
}

/// Adds whole tables: everything behind the names in the statement. `None` if that is not known.
fn add_tables(statement: &Statement, effects: &mut Effects<'_>) -> Option<()> {
    let catalogue = effects.catalogue;
    let tables = table_effects(statement, catalogue);
    if tables.unbounded || tables.because.is_some() {
        return None;
    }
    let all = effects.rows(None);
    for id in tables.reads.union(&tables.writes) {
        effects.read(*id, Columns::All, all);
    }
    // The mode of LOCK TABLE is not known here.
    let strength = if statement.verb == Verb::Lock { Strength::Exclusive } else { Strength::Update };
    for id in &tables.locks {
        effects.lock(*id, all, strength);
    }
    for id in &tables.writes {
        effects.change_anything(catalogue.table(*id)?);
    }
    Some(())
}

/// Whether a cast may be to a user's type that is named like a built-in one.
fn shadows_types(statement: &Statement, catalogue: &Catalogue) -> bool {
    let is_user = |name: &Name| name.schema.is_none() && catalogue.is_user_type(&name.name);
    statement.types.iter().any(|name| is_user(name) && Form::of_name(&name.name).is_some())
}

fn by_shape(statement: &Statement, shape: &Shape, catalogue: &Catalogue) -> Outline {
    let mut resolver = Resolver::new(statement, shape, catalogue);
    let all = resolver.effects.rows(None);
    match &shape.root {
        Root::Query(query) => {
            resolver.query(query, None);
        }
        Root::Truncate { tables, cascade } => {
            for id in resolver.named(tables) {
                if let Some(table) = catalogue.table(id) {
                    resolver.effects.truncate(table, *cascade);
                }
            }
        }
        Root::Lock { tables, strength } => {
            for id in resolver.named(tables) {
                resolver.effects.lock(id, all, *strength);
            }
        }
        Root::CopyTo { table, columns } => {
            for id in resolver.named(std::slice::from_ref(table)) {
                check_read(&mut resolver.effects, id);
                let positions: Option<ColumnSet> =
                    columns.iter().map(|name| resolver.scope.position(id, name)).collect();
                let read = positions.filter(|_| !columns.is_empty()).map_or(Columns::All, Columns::Some);
                resolver.effects.read(id, read, all);
            }
        }
        Root::CopyFrom { table, uses } => {
            let ids = resolver.named(std::slice::from_ref(table));
            resolver.uses(uses, None);
            resolver.copy_from(&ids);
        }
        Root::Call(_) => resolver.effects.give_up(Why::Kind("CALL")),
    }
    resolver.finish(shape.parameters.as_deref()).finish()
}

/// The first name that could mean anything.
fn unknown_name(statement: &Statement, catalogue: &Catalogue) -> Option<Why> {
    if let Some(opaque) = statement.opaque {
        return Some(Why::Opaque(opaque));
    }
    if catalogue.has_user_casts() {
        return Some(Why::Casts);
    }
    if statement.system_columns {
        return Some(Why::Catalogue);
    }
    let function = statement.functions.iter().find_map(|name| match access::function(catalogue, name) {
        Err(Because::Catalogue) => Some(Why::Catalogue),
        Err(_) if access::may_touch_data(catalogue, name) => Some(Why::Function(name.clone())),
        _ => None,
    });
    let type_name = || {
        statement.types.iter().find_map(|name| match access::cast(catalogue, name) {
            Err(Because::Catalogue) => Some(Why::Catalogue),
            Err(_) => Some(Why::Type(name.clone())),
            Ok(()) => None,
        })
    };
    let operator = || {
        let mut operators = statement.operators.iter();
        operators.find(|name| access::operator(catalogue, name).is_err()).cloned().map(Why::Operator)
    };
    let column = || {
        let mut columns = statement.column_names.iter();
        columns.find(|name| access::column(catalogue, name).is_err()).cloned().map(Why::Column)
    };
    function.or_else(type_name).or_else(operator).or_else(column)
}

/// Whole tables, by the names in the statement alone.
fn by_names(statement: &Statement, catalogue: &Catalogue) -> Outline {
    let mut effects = Effects::new(catalogue);
    let locking = !statement.row_locks.is_empty();
    let mut reads = BTreeSet::new();
    for name in &statement.reads {
        match access::relation(statement, catalogue, name) {
            Ok(tables) => reads.extend(tables),
            Err(Because::Catalogue) => effects.give_up(Why::Catalogue),
            Err(_) => effects.give_up(Why::Relation(name.clone())),
        }
    }
    let all = effects.rows(None);
    for id in reads {
        check_read(&mut effects, id);
        effects.read(id, Columns::All, all);
        if locking {
            effects.lock(id, all, Strength::Update);
        }
    }
    if statement.verb == Verb::Lock {
        for name in &statement.row_locks {
            match access::relation(statement, catalogue, name) {
                Ok(tables) => {
                    for id in tables {
                        effects.lock(id, all, Strength::Exclusive);
                    }
                }
                Err(_) => effects.give_up(Why::Relation(name.clone())),
            }
        }
    }
    for name in &statement.writes {
        let Some(tables) = access::targets(std::slice::from_ref(name), catalogue) else {
            effects.give_up(Why::Relation(name.clone()));
            continue;
        };
        for table in tables.into_iter().filter_map(|id| catalogue.table(id)) {
            let only_new = matches!(statement.verb, Verb::Copy { direction: CopyDirection::From, .. });
            match statement.verb {
                Verb::Truncate => effects.truncate(table, true),
                _ if only_new => effects.insert(table, all),
                _ => {
                    effects.read(table.id, Columns::All, all);
                    effects.update(table, Columns::All, all, all, true);
                    let every = (0..table.columns.len()).collect();
                    effects.update(table, Columns::Some(every), all, all, true);
                }
            }
        }
    }
    effects.finish()
}

/// Reading a table may run its policies, and the functions of its types.
fn check_read(effects: &mut Effects<'_>, id: TableId) {
    match effects.catalogue.table(id) {
        Some(table) if table.row_security => effects.give_up(Why::RowSecurity(id)),
        Some(table) if table.coded_types => effects.give_up(Why::CodedTypes(id)),
        Some(_) => {}
        None => effects.give_up(Why::Catalogue),
    }
}
