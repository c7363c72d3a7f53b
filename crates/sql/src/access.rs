//! What a statement may read, lock and depend on, given a catalogue.
//!
//! A statement is a bounded read only if every name in it is proven harmless; any doubt leaves it at the anchor. The
//! proof is by names alone: an unqualified name stands for every object of that name in any schema, so the session's
//! search path does not matter. What it does not cover is the session's temporary objects, which no catalogue has: a
//! session that owns some must keep every statement at their home.
//!
//! A conclusion holds for servers that have applied the catalogue's generation, and for no others.

use std::collections::BTreeSet;

use crate::builtin::{self, Builtin};
use crate::catalogue::{Catalogue, TableId, Volatility};
use crate::name::{Name, SYSTEM_SCHEMA};
use crate::statement::{Statement, Verb};

/// Where a statement may run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// It reads these tables, in order of their numbers, and nothing else, and changes nothing.
    Read(Vec<TableId>),
    /// It must run at the anchor.
    Anchor(Because),
}

/// Why a statement must run at the anchor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Because {
    /// It changes data or locks rows.
    Update,
    /// It could not be bounded: it may do anything.
    Unknown,
    /// It changes nothing, but reads what differs between replicas: system catalogues, OIDs, system columns.
    Catalogue,
}

/// What an update statement may have locked or may depend on beyond its captured rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claims {
    /// Nothing beyond the rows that capture reports.
    Rows,
    /// Locked rows, unique values or the whole of these tables, in order of their numbers.
    Tables(Vec<TableId>),
    /// Anything.
    Everything,
}

/// All conclusions about one statement under one catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routing {
    /// Where it may run.
    pub access: Access,
    /// What it claims if it runs as an update.
    pub claims: Claims,
    /// The tables it may read, in order; `None` when that cannot be bounded.
    pub reads: Option<Vec<TableId>>,
    /// The tables that it writes by name, in order; `None` when a target is not a table that the catalogue has
    /// (temporary tables and views among them), or when the statement is of a kind that does not name its targets.
    pub writes: Option<Vec<TableId>>,
    /// Values of users' types may be among its parameters and results: their binary forms can carry numbers of types,
    /// which differ between servers.
    pub user_types: bool,
}

/// Draws all conclusions. Use [`Statement::routing`], which keeps them.
pub(crate) fn routing(statement: &Statement, catalogue: &Catalogue) -> Routing {
    let bound = bound(statement, catalogue);
    let access = access_within(statement, &bound);
    let named = names_what_it_touches(statement);
    let written = if named { targets(&statement.writes, catalogue) } else { None };
    Routing {
        user_types: speaks_user_types(statement, catalogue, &bound),
        access,
        claims: claims(statement, catalogue),
        reads: bound.ok().filter(|_| named).map(|tables| tables.into_iter().collect()),
        writes: written.map(|tables| tables.into_iter().collect()),
    }
}

/// Whether a bounded statement reads tables with users' types or names such a type.
fn speaks_user_types(
    statement: &Statement,
    catalogue: &Catalogue,
    bound: &Result<BTreeSet<TableId>, Because>,
) -> bool {
    let read = |id: &TableId| catalogue.table(*id).is_none_or(|table| table.user_types);
    bound.as_ref().map_or(true, |tables| tables.iter().any(read))
        || statement.types.iter().any(|name| !name.may_be_built_in() || catalogue.is_user_type(&name.name))
}

/// Whether the statement's lists name all that it touches, by its kind: EXECUTE, FETCH or CALL run what was written
/// elsewhere.
fn names_what_it_touches(statement: &Statement) -> bool {
    if statement.opaque.is_some() {
        return false;
    }
    match &statement.verb {
        Verb::Select
        | Verb::Insert
        | Verb::Update
        | Verb::Delete
        | Verb::Merge
        | Verb::Copy { .. }
        | Verb::Truncate => true,
        Verb::Explain { .. } | Verb::DeclareCursor { .. } => {
            statement.inner.as_deref().is_some_and(names_what_it_touches)
        }
        _ => false,
    }
}

/// Where a statement may run.
pub fn access(statement: &Statement, catalogue: &Catalogue) -> Access {
    access_within(statement, &bound(statement, catalogue))
}

fn access_within(statement: &Statement, bound: &Result<BTreeSet<TableId>, Because>) -> Access {
    let shape = shape(statement);
    match (shape, bound) {
        (Err(because), _) | (Ok(()), &Err(because)) => Access::Anchor(because),
        (Ok(()), Ok(tables)) => Access::Read(tables.iter().copied().collect()),
    }
}

/// Whether the statement's kind is one that only reads.
fn shape(statement: &Statement) -> Result<(), Because> {
    if statement.opaque.is_some() {
        return Err(if modifies(statement) { Because::Update } else { Because::Unknown });
    }
    if modifies(statement) || !statement.row_locks.is_empty() {
        return Err(Because::Update);
    }
    match &statement.verb {
        Verb::Select | Verb::Copy { .. } => Ok(()),
        // DECLARE and PREPARE leave something behind on the connection: the session has to place them by `inner`.
        Verb::Explain { analyze: false } => statement.inner.as_deref().map_or(Err(Because::Unknown), shape),
        _ => Err(Because::Unknown),
    }
}

fn modifies(statement: &Statement) -> bool {
    let by_verb = matches!(
        statement.verb,
        Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge | Verb::Truncate | Verb::Lock
    );
    by_verb || statement.modifies_inside || !statement.writes.is_empty()
}

/// Every table that the statement may read by name or through what it calls; the error says why that is not bounded.
fn bound(statement: &Statement, catalogue: &Catalogue) -> Result<BTreeSet<TableId>, Because> {
    // All reasons are gathered, since only a statement without any other one is proven to be a catalogue read.
    let mut because = statement.system_columns.then_some(Because::Catalogue);
    let mut note = |reason: Because| {
        if because != Some(Because::Unknown) {
            because = Some(reason);
        }
    };
    if statement.opaque.is_some() || catalogue.has_user_casts() {
        note(Because::Unknown);
    }
    let mut tables = BTreeSet::new();
    for name in &statement.reads {
        match relation(statement, catalogue, name) {
            Ok(found) => tables.extend(found),
            Err(reason) => note(reason),
        }
    }
    for id in &tables {
        if catalogue.table(*id).is_none_or(|table| table.row_security || table.coded_types) {
            note(Because::Unknown);
        }
    }
    let checks = statement.functions.iter().map(|name| function(catalogue, name));
    let checks = checks.chain(statement.types.iter().map(|name| cast(catalogue, name)));
    let checks = checks.chain(statement.operators.iter().map(|name| operator(catalogue, name)));
    let checks = checks.chain(statement.column_names.iter().map(|name| column(catalogue, name)));
    for reason in checks.filter_map(Result::err) {
        note(reason);
    }
    because.map_or(Ok(tables), Err)
}

/// The tables behind a name in FROM.
pub(crate) fn relation(
    statement: &Statement,
    catalogue: &Catalogue,
    name: &Name,
) -> Result<BTreeSet<TableId>, Because> {
    let system = match &name.schema {
        Some(schema) => builtin::is_system_schema(schema),
        None => builtin::is_system_relation(&name.name),
    };
    let known = catalogue.named(name.schema.as_deref(), &name.name).next().is_some();
    if system {
        return Err(if known { Because::Unknown } else { Because::Catalogue });
    }
    let may_be_with_query = name.schema.is_none() && statement.with_names.contains(&name.name);
    if may_be_with_query && !known {
        return Ok(BTreeSet::new());
    }
    catalogue.tables_named(name).ok_or(Because::Unknown)
}

/// Whether calling a function is harmless.
pub(crate) fn function(catalogue: &Catalogue, name: &Name) -> Result<(), Because> {
    // Users' overloads can lie in the system schemas too.
    if catalogue.is_user_function(&name.name) {
        return Err(Because::Unknown);
    }
    if !name.may_be_built_in() {
        return Err(schema_reason(name));
    }
    let changes_nothing = match catalogue.builtin_volatility(&name.name) {
        Some(Volatility::Immutable | Volatility::Stable) => true,
        Some(Volatility::Volatile) => {
            builtin::is_harmless_volatile(&name.name) || builtin::reads_server_state(&name.name)
        }
        None => false,
    };
    match builtin::function(&name.name) {
        Builtin::Harmless if changes_nothing => Ok(()),
        Builtin::Catalogue if changes_nothing => Err(Because::Catalogue),
        Builtin::Harmless | Builtin::Catalogue | Builtin::Unknown => Err(Because::Unknown),
    }
}

/// Whether calling a function could lock or change something, were it in an update.
pub(crate) fn may_touch_data(catalogue: &Catalogue, name: &Name) -> bool {
    let claims_nothing = builtin::is_connection_bound(&name.name) || builtin::advances_sequence(&name.name);
    let built_in = name.may_be_built_in() && !catalogue.is_user_function(&name.name);
    function(catalogue, name) == Err(Because::Unknown) && !(claims_nothing && built_in)
}

/// Whether a cast to a type runs nothing but the server's own code on its argument alone.
pub(crate) fn cast(catalogue: &Catalogue, name: &Name) -> Result<(), Because> {
    let is_users = match &name.schema {
        Some(schema) => !builtin::is_system_schema(schema),
        None => catalogue.is_user_type(&name.name),
    };
    if is_users && catalogue.is_plain_type(&name.name) {
        return Ok(());
    }
    if !name.may_be_built_in() {
        return Err(schema_reason(name));
    }
    if is_users {
        return Err(Because::Unknown);
    }
    match builtin::type_name(&name.name) {
        Builtin::Harmless => Ok(()),
        Builtin::Catalogue => Err(Because::Catalogue),
        Builtin::Unknown => Err(Because::Unknown),
    }
}

/// Whether an operator must be one of the server's own.
pub(crate) fn operator(catalogue: &Catalogue, name: &Name) -> Result<(), Because> {
    if !name.may_be_built_in() {
        return Err(schema_reason(name));
    }
    if catalogue.is_user_operator(&name.name) { Err(Because::Unknown) } else { Ok(()) }
}

/// Whether a column name could not be a call in functional notation that does harm.
pub(crate) fn column(catalogue: &Catalogue, name: &str) -> Result<(), Because> {
    let harmful_builtin = || {
        catalogue.builtin_volatility(name).is_some_and(|volatility| {
            volatility == Volatility::Volatile || builtin::function(name) != Builtin::Harmless
        })
    };
    if catalogue.is_user_function(name) || harmful_builtin() { Err(Because::Unknown) } else { Ok(()) }
}

fn schema_reason(name: &Name) -> Because {
    let system = name.schema.as_deref().is_some_and(builtin::is_system_schema);
    if system { Because::Catalogue } else { Because::Unknown }
}

/// The tables behind the targets of modifications; `None` when a target is no known table.
pub(crate) fn targets(names: &[Name], catalogue: &Catalogue) -> Option<BTreeSet<TableId>> {
    let mut tables = BTreeSet::new();
    for name in names {
        let system = name.schema.as_deref() == Some(SYSTEM_SCHEMA);
        tables.extend(catalogue.tables_named(name).filter(|_| !system)?);
    }
    Some(tables)
}

/// What an update statement may have locked or may depend on beyond its captured rows.
///
/// Foreign keys lock rows of tables that this catalogue does not name, and user triggers, policies and functions do
/// what they like: all of these give [`Claims::Everything`]. A further unique key makes two rows of different primary
/// keys depend on each other, so its table is claimed as a whole. What the statement merely reads is no claim; it is
/// in [`Routing::reads`]. Nor is `nextval`: a sequence belongs to no transaction.
pub fn claims(statement: &Statement, catalogue: &Catalogue) -> Claims {
    if touches_no_data(&statement.verb) {
        return Claims::Rows;
    }
    let by_name = statement.verb == Verb::Lock || names_what_it_touches(statement);
    if !by_name || runs_code(statement, catalogue) {
        return Claims::Everything;
    }
    claimed_by_name(statement, catalogue).map_or(Claims::Everything, |tables| {
        if tables.is_empty() { Claims::Rows } else { Claims::Tables(tables) }
    })
}

/// Kinds that concern the session or the transaction only. SET CONSTRAINTS is none: it runs deferred triggers.
pub(crate) fn touches_no_data(verb: &Verb) -> bool {
    let transaction = matches!(
        verb,
        Verb::Begin(_)
            | Verb::Commit { .. }
            | Verb::Rollback { .. }
            | Verb::Savepoint(_)
            | Verb::Release(_)
            | Verb::RollbackTo(_)
            | Verb::SetTransaction(_)
            | Verb::SetSessionCharacteristics(_)
    );
    let settings = matches!(verb, Verb::Set { .. } | Verb::Reset(_) | Verb::Show(_) | Verb::Empty);
    let names = matches!(verb, Verb::Prepare { .. } | Verb::Deallocate(_) | Verb::ClosePortal);
    transaction || settings || names || matches!(verb, Verb::Listen | Verb::Unlisten | Verb::Notify)
}

/// Whether a statement may run code that is not the server's own, or a function with effects.
fn runs_code(statement: &Statement, catalogue: &Catalogue) -> bool {
    statement.opaque.is_some()
        || statement.functions.iter().any(|name| may_touch_data(catalogue, name))
        || statement.types.iter().any(|name| cast(catalogue, name) == Err(Because::Unknown))
        || statement.operators.iter().any(|name| operator(catalogue, name) == Err(Because::Unknown))
        || statement.column_names.iter().any(|name| column(catalogue, name).is_err())
        || (catalogue.has_user_casts() && modifies(statement))
}

/// The tables that a statement claims beyond its rows, in order; `None` when that cannot be bounded.
fn claimed_by_name(statement: &Statement, catalogue: &Catalogue) -> Option<Vec<TableId>> {
    let mut tables = locked(statement, catalogue)?;
    for id in targets(&statement.writes, catalogue)? {
        let table = catalogue.table(id)?;
        if table.user_triggers || table.foreign_keys || table.row_security || table.coded_types {
            return None;
        }
        if table.other_unique || statement.verb == Verb::Truncate {
            tables.insert(id);
        }
    }
    for name in &statement.reads {
        // A view's query is not known here, nor is a policy's.
        match relation(statement, catalogue, name) {
            Ok(read) if has_policies(catalogue, &read) => return None,
            Ok(_) | Err(Because::Catalogue | Because::Update) => {}
            Err(Because::Unknown) => return None,
        }
    }
    Some(tables.into_iter().collect())
}

/// The tables named in locks; `None` when one of them may be something else than a table or a WITH query.
fn locked(statement: &Statement, catalogue: &Catalogue) -> Option<BTreeSet<TableId>> {
    let mut tables = BTreeSet::new();
    for name in &statement.row_locks {
        tables.extend(relation(statement, catalogue, name).ok()?);
    }
    Some(tables)
}

fn has_policies(catalogue: &Catalogue, tables: &BTreeSet<TableId>) -> bool {
    tables.iter().any(|id| catalogue.table(*id).is_none_or(|table| table.row_security))
}
