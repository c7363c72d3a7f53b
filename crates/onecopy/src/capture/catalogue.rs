//! Reads a server's catalogues: for sessions ([`load`]) and for the applier ([`load_refresh_tables`]).
//!
//! All queries of a [`load`] see one snapshot. The number in its capture trigger identifies a table. A table-like
//! relation without such a trigger counts as unknown, so no read of it is ever predicted. Policies, triggers and
//! rules of a parent count for all its descendants, because a statement may name either.
//!
//! Must run as superuser, with `pg_catalog` alone in the search path.

mod code;
mod keys;
mod refresh;
mod rows;
mod sandbox;
mod tables;
mod types;

use sql::{Catalogue, Contents, DatabaseId, Parent};

use crate::backend::{BackendError, OwnConnection, Rows};
pub(crate) use refresh::load_refresh_tables;
use rows::{SHAPE, boolean, names, number, text, volatility};
use tables::{COLUMNS, TABLES, tables_of};

/// Parents: a row for each table below each of them, at any depth, and a row with NULL so that no parent is missing.
const PARENTS: &str = r"
WITH RECURSIVE parent AS (
    SELECT c.oid, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'p' OR (c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid))
), below(oid, member) AS (
    SELECT oid, oid FROM parent
    UNION SELECT below.oid, i.inhrelid FROM below JOIN pg_inherits i ON i.inhparent = below.member
)
SELECT parent.nspname, parent.relname, split_part(encode(g.tgargs, 'escape'), '\000', 1)
FROM parent JOIN below USING (oid)
LEFT JOIN pg_trigger g ON g.tgrelid = below.member AND below.member <> parent.oid AND g.tgname = '!onecopy'
WHERE parent.nspname NOT LIKE 'pg\_%' ORDER BY 1, 2
";

const OTHER_RELATIONS: &str = r"
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind NOT IN ('p', 'i', 'I', 't', 'v', 'm') AND c.relpersistence <> 't'
AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND NOT (c.relkind = 'r' AND EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname = '!onecopy'))
";

const BUILTIN_FUNCTIONS: &str = r"
SELECT proname, max(CASE provolatile WHEN 'i' THEN 0 WHEN 's' THEN 1 ELSE 2 END)
FROM pg_proc WHERE oid < 16384 AND pronamespace = 'pg_catalog'::regnamespace GROUP BY proname
";

/// Only user-defined functions can hide built-in ones. Onecopy's own functions with built-in names do not.
const USER_FUNCTIONS: &str = r"SELECT DISTINCT proname FROM pg_proc WHERE oid >= 16384
    AND NOT (pronamespace = 'onecopy'::regnamespace AND proname ~ '^(pg_|current_setting$)')";

const USER_OPERATORS: &str = "SELECT DISTINCT oprname FROM pg_operator \
    WHERE oid >= 16384 AND oprleft < 16384 AND oprright < 16384";

/// A binary-coercible cast from a user-defined type (`citext` to `text`) runs no user code.
const FLAGS: &str = "SELECT \
    EXISTS (SELECT FROM pg_cast WHERE oid >= 16384 AND casttarget < 16384 \
        AND (castsource < 16384 OR (castcontext = 'i' AND castmethod <> 'b'))), \
    EXISTS (SELECT FROM pg_constraint WHERE condeferrable) OR EXISTS (SELECT FROM pg_trigger WHERE tgdeferrable)";

/// One snapshot, in which the texts of values do not depend on the server's configuration. Reading a definition locks
/// its objects, so this can deadlock with a schema change. It gives up long before a client's `deadlock_timeout`
/// makes the client the victim.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL datestyle = 'ISO'; \
    SET LOCAL intervalstyle = 'postgres'; SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; \
    SET LOCAL quote_all_identifiers = off; SET LOCAL lock_timeout = '50ms'";

/// All queries of [`load`], in the order of [`Answers`].
const QUERIES: [&str; 21] = [
    TABLES,
    COLUMNS,
    PARENTS,
    OTHER_RELATIONS,
    BUILTIN_FUNCTIONS,
    USER_FUNCTIONS,
    USER_OPERATORS,
    types::USER_TYPES,
    types::CODED_TYPES,
    FLAGS,
    keys::KEYS,
    keys::REFERENCES,
    keys::PARTITIONS,
    keys::DEFAULTS,
    keys::INDEXES,
    code::VIEWS,
    code::TRIGGERS,
    code::RULES,
    code::POLICIES,
    code::FUNCTIONS,
    code::SEQUENCES,
];

/// Reads what sessions need. `generation` is the version of the last schema change that the server has applied.
pub(crate) async fn load(
    connection: &mut OwnConnection,
    database: DatabaseId,
    generation: u64,
) -> Result<Catalogue, BackendError> {
    let answers = ask(connection, str::to_owned).await?;
    let drawing = super::sequences::load_draws(connection, database).await?;
    connection.query("COMMIT").await?;
    Ok(Catalogue::new(Contents { drawing, ..contents(database, generation, &answers)? }))
}

/// The same for a server without capture. Tables are numbered in the order of their names. Servers with the same
/// schema so agree, until the next schema change.
pub(crate) async fn load_plain(
    connection: &mut OwnConnection,
    database: DatabaseId,
    generation: u64,
) -> Result<Catalogue, BackendError> {
    let answers = ask(connection, as_if_captured).await?;
    connection.query("COMMIT").await?;
    Ok(Catalogue::new(contents(database, generation, &answers)?))
}

/// The capture triggers, as if every table had one.
const AS_IF_CAPTURED: &str = r"pg_trigger AS (
    SELECT oid, tgrelid, tgname, tgargs, tgtype, tgenabled, tgfoid, tgconstraint, tgisinternal, tgdeferrable, NULLIF(tgqual IS NOT NULL, false) AS tgqual
    FROM pg_catalog.pg_trigger
    UNION ALL SELECT 0::oid, c.oid, '!onecopy'::name,
        convert_to((row_number() OVER (ORDER BY n.nspname, c.relname))::text, 'UTF8'), 0::int2, 'D', 0::oid, 0::oid, false,
        false, NULL
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.relpersistence = 'p'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy', 'onecopy_capture')
)";

/// Rewrites a query so that every table counts as captured.
fn as_if_captured(query: &str) -> String {
    let query = query.trim_start();
    match query.strip_prefix("WITH RECURSIVE ") {
        Some(rest) => format!("WITH RECURSIVE {AS_IF_CAPTURED}, {rest}"),
        None => format!("WITH {AS_IF_CAPTURED} {query}"),
    }
}

/// Runs all queries in one snapshot, which stays open.
async fn ask(
    connection: &mut OwnConnection,
    form: impl Fn(&str) -> String,
) -> Result<[Rows; QUERIES.len()], BackendError> {
    connection.query(BEGIN).await?;
    let mut answers = [const { Rows::new() }; QUERIES.len()];
    for (query, answer) in QUERIES.iter().zip(&mut answers) {
        *answer = connection.query(&form(query)).await?;
    }
    Ok(answers)
}

fn contents(
    database: DatabaseId,
    generation: u64,
    answers: &[Rows; QUERIES.len()],
) -> Result<Contents, BackendError> {
    let [
        tables,
        columns,
        parents,
        other,
        builtin,
        user_functions,
        operators,
        type_rows,
        coded,
        flags,
        keys,
        references,
        partitions,
        defaults,
        indexes,
        views,
        triggers,
        rules,
        policies,
        functions,
        sequences,
    ] = answers;
    let flag = |at: usize| -> Result<bool, BackendError> { boolean(flags.first().ok_or(SHAPE)?, at) };
    let coded = types::coded(coded)?;
    let (mut tables, by_oid) =
        tables_of(database, tables, columns, &coded, [keys, references, partitions, defaults])?;
    let views = code::add(&mut tables, &by_oid, [views, triggers, rules, policies])?;
    Ok(Contents {
        database,
        generation,
        sequences: code::sequences(sequences, &tables, &by_oid)?,
        tables,
        parents: parents_of(database, parents)?,
        views,
        indexes: indexes
            .iter()
            .map(|row| Ok((text(row, 1)?.to_owned(), database.table(number(row, 0)?))))
            .collect::<Result<_, BackendError>>()?,
        other_relations: other
            .iter()
            .map(|row| Ok((text(row, 0)?.to_owned(), text(row, 1)?.to_owned())))
            .collect::<Result<_, BackendError>>()?,
        builtin_functions: builtin
            .iter()
            .map(|row| Ok((text(row, 0)?.to_owned(), volatility(text(row, 1)?)?)))
            .collect::<Result<_, BackendError>>()?,
        user_functions: names(user_functions)?,
        functions: code::functions(functions, &coded)?,
        user_operators: names(operators)?,
        user_types: names(type_rows)?,
        plain_types: types::plain(type_rows, &coded)?,
        has_user_casts: flag(0)?,
        has_deferrable: flag(1)?,
        drawing: Vec::new(),
    })
}

fn parents_of(database: DatabaseId, rows: &Rows) -> Result<Vec<Parent>, BackendError> {
    let mut parents: Vec<Parent> = Vec::new();
    for row in rows {
        let (schema, name) = (text(row, 0)?, text(row, 1)?);
        if parents.last().is_none_or(|last| (last.schema.as_str(), last.name.as_str()) != (schema, name)) {
            parents.push(Parent { schema: schema.to_owned(), name: name.to_owned(), leaves: Vec::new() });
        }
        if row.get(2).is_some_and(Option::is_some) {
            let leaf = database.table(number(row, 2)?);
            parents.last_mut().expect("one was pushed").leaves.push(leaf);
        }
    }
    Ok(parents)
}
