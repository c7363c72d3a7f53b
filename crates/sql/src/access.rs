//! The accesses of a statement under a catalogue: what it may read, lock and depend on.
//!
//! A statement is a bounded read only if every name in it is proven harmless, and everything behind the names
//! ([`crate::table_effects`]). Any doubt leaves it at the anchor. The proof is by names alone: an unqualified name stands
//! for every object of that name in any schema, so the session's search path does not matter. The proof does not cover
//! the session's temporary objects, which no catalogue has: a session that owns some keeps every statement at their home.
//!
//! A conclusion holds only for servers that have applied the catalogue's generation.

use std::collections::BTreeSet;

use crate::builtin::{self, Builtin};
use crate::catalogue::{Catalogue, TableId, Volatility};
use crate::definition::Uses;
use crate::fleeting::Fleeting;
use crate::name::{Name, SYSTEM_SCHEMA};
use crate::statement::{Statement, Verb};
use crate::table_effects::{TableEffects, table_effects};

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

/// Locks and dependencies of an update statement beyond its captured rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claims {
    /// Nothing beyond the rows that capture reports, and the parents of the references in them.
    Rows,
    /// Locked rows, unique values or the whole of these tables, in order of their numbers.
    Tables(Vec<TableId>),
    /// Anything.
    Everything,
}

/// Functions that change state which is no row.
const CHANGES_STATE: [&str; 2] = ["set_config", "setval"];

/// All conclusions about one statement under one catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routing {
    /// Where it may run.
    pub access: Access,
    /// Its claims if it runs as an update.
    pub claims: Claims,
    /// The tables it may read, in order, through views, triggers, references and functions, too; `None` when that cannot
    /// be bounded.
    pub reads: Option<Vec<TableId>>,
    /// The tables that it may write, in order, through triggers, cascades and functions, too: all of them if
    /// [`Routing::reads`] is there as well. `None` when a target is no relation that the catalogue has (a temporary table,
    /// for one), or when the statement is of a kind that does not name its targets.
    pub writes: Option<Vec<TableId>>,
    /// Values of users' types may be among its parameters and results: their binary forms can carry numbers of types,
    /// which differ between servers.
    pub user_types: bool,
    /// Something in it, or in a view, policy or function that it reaches, tells when the transaction began.
    pub transaction_time: bool,
    /// Why its answer does not stay true while the rows that it reads stay the same, if so. Constants and parameters of the
    /// text itself are left out: see [`crate::may_read_clock`].
    pub fleeting: Option<Fleeting>,
    /// Something in it, or in what it reaches, asks what the session has drawn from sequences last: only the server
    /// where it drew knows.
    pub asks_draws: bool,
    /// Defaults of columns may be computed where it writes: without that nothing is drawn for rows.
    pub fills_defaults: bool,
    /// Session state that may stay on its connection after its transaction.
    pub traces: Traces,
    /// It is a query that any holder of its tables may run, and it changes nothing: no row, no sequence, nothing of its session.
    pub is_plain_read: bool,
    /// The definitions that all this rests on.
    pub uses: Uses,
    /// It is a schema change, and touches no rows but those of what it makes: the code and the query in it write and lock none.
    pub only_defines: bool,
}

/// Session state that a statement may leave on its connection beyond its transaction, and on no other connection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Traces {
    /// Something that the server shows: a temporary object, a session lock, a cursor, LISTEN, a setting, a prepared
    /// statement.
    pub shown: bool,
    /// A setting with a name of the client's own, which no server shows: code ran that may have set one.
    pub hidden: bool,
    /// It takes an advisory lock of the session, by a call in the statement or in code that is understood.
    pub locks: bool,
}

impl Traces {
    /// Of code that may do anything.
    pub const ANYTHING: Self = Self { shown: true, hidden: true, locks: false };

    /// Adds those of another statement.
    pub fn add(&mut self, other: Self) {
        self.shown |= other.shown;
        self.hidden |= other.hidden;
        self.locks |= other.locks;
    }
}

/// Draws all conclusions. Use [`Statement::routing`], which keeps them.
pub(crate) fn routing(statement: &Statement, catalogue: &Catalogue) -> Routing {
    let effects = table_effects(statement, catalogue);
    let named = names_what_it_touches(statement);
    let runs_code = matches!(statement.verb, Verb::Call | Verb::Do);
    let ordered = |tables: &BTreeSet<TableId>| tables.iter().copied().collect();
    let (access, traces) = (access_within(statement, &effects), traces_within(statement, &effects));
    Routing {
        is_plain_read: is_plain_read(statement, &access, traces) && !effects.asks_draws,
        access,
        claims: claims_within(statement, catalogue, &effects),
        reads: (named && effects.because.is_none()).then(|| ordered(&effects.reads)),
        writes: (named && effects.targets_known && !(runs_code && effects.unbounded))
            .then(|| ordered(&effects.writes)),
        user_types: speaks_user_types(statement, catalogue, &effects),
        transaction_time: effects.transaction_time,
        fleeting: effects.fleeting.clone(),
        asks_draws: effects.asks_draws,
        fills_defaults: effects.fills_defaults,
        traces,
        uses: Uses::of(&effects, catalogue),
        only_defines: matches!(statement.verb, Verb::Ddl(_))
            && !effects.unbounded
            && effects.writes.is_empty()
            && effects.locks.is_empty(),
    }
}

/// Whether a statement is a query that any holder of its tables may run, and that changes nothing.
fn is_plain_read(statement: &Statement, access: &Access, traces: Traces) -> bool {
    statement.verb == Verb::Select
        && matches!(access, Access::Read(_))
        && traces == Traces::default()
        && statement.row_locks.is_empty()
        && statement.settings.is_empty()
        && !statement.functions.iter().any(|function| CHANGES_STATE.contains(&function.name.as_str()))
}

fn traces_within(statement: &Statement, effects: &TableEffects) -> Traces {
    if statement.opaque.is_some() {
        return Traces::ANYTHING;
    }
    let shown = Traces { shown: true, ..effects.traces };
    match &statement.verb {
        Verb::Select
        | Verb::Insert
        | Verb::Update
        | Verb::Delete
        | Verb::Merge
        | Verb::Copy { .. }
        | Verb::Truncate
        | Verb::Explain { .. }
        | Verb::Call
        | Verb::DeclareCursor { hold: false, .. } => effects.traces,
        Verb::Do if statement.block.is_some() => effects.traces,
        Verb::DeclareCursor { hold: true, .. } => shown,
        Verb::Ddl(facts) => {
            // It runs code where it computes values: from a query, in an expression, in the check of a new type.
            let computes = !statement.reads.is_empty()
                || !statement.functions.is_empty()
                || facts.tag == "AlterTableStmt";
            Traces { hidden: effects.traces.hidden && computes, ..shown }
        }
        // They may also take away what is there.
        Verb::Listen
        | Verb::Unlisten
        | Verb::ClosePortal
        | Verb::Prepare { .. }
        | Verb::Deallocate(_)
        | Verb::Discard(_) => Traces { shown: true, ..Traces::default() },
        Verb::Do | Verb::Execute { .. } => Traces::ANYTHING,
        // FETCH runs what DECLARE, or the function that opened the cursor, was judged by.
        _ => Traces::default(),
    }
}

/// Whether a bounded statement reads tables with users' types, or names such a type or a function that has some.
fn speaks_user_types(statement: &Statement, catalogue: &Catalogue, effects: &TableEffects) -> bool {
    let read = |id: &TableId| catalogue.table(*id).is_none_or(|table| table.user_types);
    effects.because.is_some()
        || effects.user_types
        || effects.reads.iter().any(read)
        || statement.types.iter().any(|name| !name.may_be_built_in() || catalogue.is_user_type(&name.name))
}

/// Whether the statement's lists, and the code behind them, name all that it touches, by its kind: EXECUTE and FETCH
/// run what was written elsewhere.
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
        | Verb::Call
        | Verb::Truncate => true,
        Verb::Do => statement.block.is_some(),
        Verb::Explain { .. } | Verb::DeclareCursor { .. } => {
            statement.inner.as_deref().is_some_and(names_what_it_touches)
        }
        _ => false,
    }
}

/// Where a statement may run.
pub fn access(statement: &Statement, catalogue: &Catalogue) -> Access {
    access_within(statement, &table_effects(statement, catalogue))
}

fn access_within(statement: &Statement, effects: &TableEffects) -> Access {
    match (shape(statement), effects.because) {
        (Err(because), _) | (Ok(()), Some(because)) => Access::Anchor(because),
        (Ok(()), None) if effects.asks_draws => Access::Anchor(Because::Unknown),
        // A function that it calls does.
        (Ok(()), None) if !effects.writes.is_empty() || !effects.locks.is_empty() => {
            Access::Anchor(Because::Update)
        }
        (Ok(()), None) => Access::Read(effects.reads.iter().copied().collect()),
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
        Verb::Select | Verb::Copy { .. } | Verb::Call => Ok(()),
        Verb::Do if statement.block.is_some() => Ok(()),
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

/// Whether a name in FROM stands for relations that the catalogue must have, and not for a WITH query only; the error
/// says why it is no such name.
pub(crate) fn stands_for_relation(
    statement: Option<&Statement>,
    catalogue: &Catalogue,
    name: &Name,
) -> Result<bool, Because> {
    let system = match &name.schema {
        Some(schema) => builtin::is_system_schema(schema),
        None => builtin::is_system_relation(&name.name),
    };
    let known = catalogue.named(name.schema.as_deref(), &name.name).next().is_some();
    if system {
        return Err(if known { Because::Unknown } else { Because::Catalogue });
    }
    let is_with_query = |statement: &Statement| statement.with_names.contains(&name.name);
    let may_be_with_query = name.schema.is_none() && statement.is_some_and(is_with_query);
    Ok(known || !may_be_with_query)
}

/// The tables behind a name in FROM.
pub(crate) fn relation(
    statement: &Statement,
    catalogue: &Catalogue,
    name: &Name,
) -> Result<BTreeSet<TableId>, Because> {
    if stands_for_relation(Some(statement), catalogue, name)? {
        catalogue.tables_named(name).ok_or(Because::Unknown)
    } else {
        Ok(BTreeSet::new())
    }
}

/// Whether calling a function is harmless, if nothing is known of users' functions.
pub(crate) fn function(catalogue: &Catalogue, name: &Name) -> Result<(), Because> {
    // Users' overloads can lie in the system schemas too.
    if catalogue.is_user_function(&name.name) { Err(Because::Unknown) } else { built_in(catalogue, name) }
}

/// Whether calling one of the server's own functions is harmless.
pub(crate) fn built_in(catalogue: &Catalogue, name: &Name) -> Result<(), Because> {
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

/// Whether calling a function could lock or change something, were it in an update, if nothing is known of users'
/// functions.
pub(crate) fn may_touch_data(catalogue: &Catalogue, name: &Name) -> bool {
    catalogue.is_user_function(&name.name) || built_in_touches_data(catalogue, name)
}

/// The same of one of the server's own functions.
pub(crate) fn built_in_touches_data(catalogue: &Catalogue, name: &Name) -> bool {
    let claims_nothing = builtin::is_connection_bound(&name.name) || builtin::advances_sequence(&name.name);
    built_in(catalogue, name) == Err(Because::Unknown) && !(claims_nothing && name.may_be_built_in())
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

/// Whether a column name could not be a call in functional notation that does harm, if nothing is known of users'
/// functions.
pub(crate) fn column(catalogue: &Catalogue, name: &str) -> Result<(), Because> {
    let harmful = catalogue.is_user_function(name) || is_harmful_column(catalogue, name);
    if harmful { Err(Because::Unknown) } else { Ok(()) }
}

/// Whether a column name could be a call in functional notation of a function of the server's own that does harm.
pub(crate) fn is_harmful_column(catalogue: &Catalogue, name: &str) -> bool {
    catalogue.builtin_volatility(name).is_some_and(|volatility| {
        volatility == Volatility::Volatile || builtin::function(name) != Builtin::Harmless
    })
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

/// Locks and dependencies of an update statement beyond its captured rows.
///
/// A further unique key makes two rows of different primary keys depend on each other, so its table is claimed as a
/// whole; whatever triggers, cascades, views and functions write or lock counts as well. Where that is not known, the
/// claim is [`Claims::Everything`]. A write of a reference depends on its parent: the caller, which sees the
/// captured rows, adds that from [`crate::Table::references`]. A table that the statement merely reads is no claim; it is
/// in [`Routing::reads`]. Nor is `nextval`: a sequence belongs to no transaction.
pub fn claims(statement: &Statement, catalogue: &Catalogue) -> Claims {
    claims_within(statement, catalogue, &table_effects(statement, catalogue))
}

fn claims_within(statement: &Statement, catalogue: &Catalogue, effects: &TableEffects) -> Claims {
    if touches_no_data(&statement.verb) {
        return Claims::Rows;
    }
    let by_name = statement.verb == Verb::Lock || names_what_it_touches(statement);
    if !by_name || effects.unbounded {
        return Claims::Everything;
    }
    let whole = |id: &TableId| {
        statement.verb == Verb::Truncate || catalogue.table(*id).is_none_or(|table| table.other_unique)
    };
    let written = effects.writes.iter().filter(|id| whole(id));
    let tables: BTreeSet<TableId> = effects.locks.iter().chain(written).copied().collect();
    if tables.is_empty() { Claims::Rows } else { Claims::Tables(tables.into_iter().collect()) }
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
