//! Reading a server's catalogues: for the sessions ([`load`]) and for the applier ([`load_refresh_tables`]).
//!
//! All queries of a [`load`] see one snapshot. A table is known by the number in its capture trigger; a relation of the
//! kind of a table that has no such trigger is listed among the others, about which nothing is known, so that no read
//! of it is ever taken for bounded. Restrictions of a parent (policies, triggers, rules) count for everything below it,
//! since a statement may name either.
//!
//! Must run as superuser with the search path of `pg_catalog` alone.

mod code;
mod keys;
mod sandbox;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use cluster::refresh::{Form, RefreshColumn, RefreshTable, RefreshTables, Written};
use sql::{Catalogue, Column, ColumnDefault, Contents, Parent, Table, TableId, Volatility};

use crate::backend::{BackendError, Connection, Rows};

/// OIDs from here on do not come with the server.
const FIRST_USER_OID: u32 = 16384;

/// Ordinary tables under capture. `family` is a table and everything it inherits from. What is asked of tables is asked of all
/// at once: schemas have hundreds of them.
const TABLES: &str = r"
WITH RECURSIVE captured AS (
    SELECT c.oid, split_part(encode(g.tgargs, 'escape'), '\000', 1) AS id, n.nspname, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_trigger g ON g.tgrelid = c.oid AND g.tgname = '!onecopy'
    WHERE c.relkind = 'r' AND c.relpersistence = 'p'
), family(oid, member) AS (
    SELECT oid, oid FROM captured
    UNION SELECT family.oid, i.inhparent FROM family JOIN pg_inherits i ON i.inhrelid = family.member
), referring AS (
    SELECT unnest(ARRAY[conrelid, confrelid]) AS oid FROM pg_constraint WHERE contype = 'f'
), triggering AS (
    SELECT ev_class AS oid FROM pg_rewrite
    UNION ALL SELECT g.tgrelid FROM pg_trigger g LEFT JOIN pg_constraint k ON k.oid = g.tgconstraint
    WHERE g.tgname NOT IN ('!onecopy', '!onecopy_insert', '!onecopy_replica', '!onecopy_truncate')
    AND (NOT g.tgisinternal OR k.contype IS NULL OR k.contype = 't')
), coded AS (
    SELECT CASE d.classid WHEN 'pg_class'::regclass THEN COALESCE(x.indrelid, d.objid)
        WHEN 'pg_attrdef'::regclass THEN a.adrelid WHEN 'pg_constraint'::regclass THEN k.conrelid END AS oid
    FROM pg_depend d LEFT JOIN pg_index x ON d.classid = 'pg_class'::regclass AND x.indexrelid = d.objid
    LEFT JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
    LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
    WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.refobjid >= 16384
), facts AS (
    SELECT family.oid, bool_or(c.relrowsecurity) AS row_security,
        bool_or(c.oid IN (SELECT oid FROM referring)) AS foreign_keys,
        bool_or(c.oid IN (SELECT oid FROM triggering)) AS user_triggers,
        bool_or(c.oid IN (SELECT oid FROM coded WHERE oid IS NOT NULL)) AS own_code
    FROM family JOIN pg_class c ON c.oid = family.member GROUP BY family.oid
)
SELECT captured.oid, id, nspname, relname, row_security, foreign_keys, user_triggers OR own_code,
    EXISTS (SELECT FROM pg_index x
        WHERE x.indrelid = captured.oid AND (x.indisunique OR x.indisexclusion) AND NOT x.indisprimary),
    own_code
FROM captured JOIN facts USING (oid) ORDER BY id::int4
";

/// Their live columns, with the place in the primary key (0: none) and what the applier needs. What is dear is asked once for
/// each type.
const COLUMNS: &str = r"
SELECT a.attrelid, a.attname, a.atttypid, a.attnotnull, a.attgenerated <> '', a.attidentity = 'a',
    COALESCE(array_position(x.indkey::int2[], a.attnum) + 1, 0),
    CASE WHEN t.typcategory IN ('A', 'C') THEN 0 ELSE t.typarray END,
    COALESCE(CASE WHEN a.attnum = ANY (x.indkey::int2[]) THEN (SELECT quote_ident(n.nspname) || '.' || o.oprname
        FROM pg_opclass k JOIN pg_amop m ON m.amopfamily = k.opcfamily AND m.amopmethod = k.opcmethod
            AND m.amoplefttype = k.opcintype AND m.amoprighttype = k.opcintype AND m.amopstrategy = 3
        JOIN pg_operator o ON o.oid = m.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
        WHERE k.oid = x.indclass[array_position(x.indkey::int2[], a.attnum)]) END, 'pg_catalog.='),
    a.atttypmod, COALESCE((SELECT c.collisdeterministic FROM pg_collation c WHERE c.oid = a.attcollation), true), a.attnum,
    carried.typ IS NOT NULL,
    EXISTS (SELECT FROM pg_index o WHERE o.indrelid = a.attrelid AND NOT o.indisprimary
        AND (o.indisunique OR o.indisexclusion)
        AND (o.indexprs IS NOT NULL OR o.indpred IS NOT NULL OR a.attnum = ANY (o.indkey::int2[]))),
    COALESCE(NOT x.indimmediate, false), t.oid >= 16384 AND t.typtype NOT IN ('b', 'e')
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_trigger g ON g.tgrelid = a.attrelid AND g.tgname = '!onecopy'
LEFT JOIN pg_index x ON x.indrelid = a.attrelid AND x.indisprimary
LEFT JOIN onecopy_capture.carried_types(ARRAY(SELECT tgrelid FROM pg_trigger WHERE tgname = '!onecopy')) AS carried
    ON carried.typ = a.atttypid
WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum
";

/// Parents, one row for each table below them, at any depth; and one with NULL so that none is missing.
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

/// Functions of ours that have a name of the server's own hide none of those.
const USER_FUNCTIONS: &str = r"SELECT DISTINCT proname FROM pg_proc WHERE oid >= 16384
    AND NOT (pronamespace = 'onecopy'::regnamespace AND proname ~ '^(pg_|current_setting$)')";

const USER_OPERATORS: &str = "SELECT DISTINCT oprname FROM pg_operator \
    WHERE oid >= 16384 AND oprleft < 16384 AND oprright < 16384";

/// A cast from a type of users that takes the bytes as they are (as `citext` has them to `text`) runs nobody's code.
const FLAGS: &str = "SELECT \
    EXISTS (SELECT FROM pg_cast WHERE oid >= 16384 AND casttarget < 16384 \
        AND (castsource < 16384 OR (castcontext = 'i' AND castmethod <> 'b'))), \
    EXISTS (SELECT FROM pg_constraint WHERE condeferrable) OR EXISTS (SELECT FROM pg_trigger WHERE tgdeferrable)";

/// One snapshot, and texts of values that do not depend on the server's configuration. Showing a definition locks what it
/// speaks of, so this may stand in a schema change's way while it waits for that itself: it gives up long before a client's
/// `deadlock_timeout` makes the client the victim.
const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL datestyle = 'ISO'; \
    SET LOCAL intervalstyle = 'postgres'; SET LOCAL bytea_output = 'hex'; SET LOCAL extra_float_digits = 1; \
    SET LOCAL quote_all_identifiers = off; SET LOCAL lock_timeout = '50ms'";

/// Everything that [`load`] asks, in the order of [`Answers`].
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

/// Reads what the sessions need. `generation` is the version of the last schema change that the server has applied.
pub(crate) async fn load(connection: &mut Connection, generation: u64) -> Result<Catalogue, BackendError> {
    let answers = ask(connection, str::to_owned).await?;
    let drawing = super::sequences::load_draws(connection).await?;
    connection.simple("COMMIT").await?;
    Ok(Catalogue::new(Contents { drawing, ..contents(generation, &answers)? }))
}

/// The same of a server whose tables are not under capture: their numbers are those of their names in order, which is the
/// same for servers with the same schema, and another one after each schema change.
pub(crate) async fn load_plain(
    connection: &mut Connection,
    generation: u64,
) -> Result<Catalogue, BackendError> {
    let answers = ask(connection, as_if_captured).await?;
    connection.simple("COMMIT").await?;
    Ok(Catalogue::new(contents(generation, &answers)?))
}

/// What the trigger of capture would be, if every table had one.
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

/// A query that takes every table as one under capture.
fn as_if_captured(query: &str) -> String {
    let query = query.trim_start();
    match query.strip_prefix("WITH RECURSIVE ") {
        Some(rest) => format!("WITH RECURSIVE {AS_IF_CAPTURED}, {rest}"),
        None => format!("WITH {AS_IF_CAPTURED} {query}"),
    }
}

/// Asks everything in one snapshot, which stays open.
async fn ask(
    connection: &mut Connection,
    form: impl Fn(&str) -> String,
) -> Result<[Rows; QUERIES.len()], BackendError> {
    connection.simple(BEGIN).await?;
    let mut answers = [const { Rows::new() }; QUERIES.len()];
    for (query, answer) in QUERIES.iter().zip(&mut answers) {
        *answer = connection.simple(&form(query)).await?;
    }
    Ok(answers)
}

fn contents(generation: u64, answers: &[Rows; QUERIES.len()]) -> Result<Contents, BackendError> {
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
    let (mut tables, by_oid) = tables_of(tables, columns, &coded, [keys, references, partitions, defaults])?;
    let views = code::add(&mut tables, &by_oid, [views, triggers, rules, policies])?;
    Ok(Contents {
        generation,
        sequences: code::sequences(sequences, &tables, &by_oid)?,
        tables,
        parents: parents_of(parents)?,
        views,
        indexes: indexes
            .iter()
            .map(|row| Ok((text(row, 1)?.to_owned(), TableId(number(row, 0)?))))
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

/// Reads what the applier needs of every table under capture, in whatever transaction is open: nobody but the applier
/// itself changes a replica's schema.
pub(crate) async fn load_refresh_tables(connection: &mut Connection) -> Result<RefreshTables, BackendError> {
    let tables = connection.simple(TABLES).await?;
    let columns = connection.simple(COLUMNS).await?;
    let columns = by_relation(&columns)?;
    let (sandboxes, paths) = (sandbox::load(connection).await?, sandbox::load_paths(connection).await?);
    let sandboxes = by_relation(&sandboxes)?;
    let mut found = RefreshTables::default();
    for row in &tables {
        let oid = text(row, 0)?;
        let own = columns.get(oid).map_or(&[][..], Vec::as_slice);
        let runs_code = boolean(row, 8)? || !marked(own, 15)?.is_empty();
        let sandbox = sandboxes.get(oid).map(|staged| sandbox::of(own, staged)).transpose()?;
        found.insert(RefreshTable {
            id: TableId(number(row, 1)?),
            name: format!("{}.{}", quoted(text(row, 2)?), quoted(text(row, 3)?)),
            columns: own.iter().map(|column| refresh_column(column)).collect::<Result<_, _>>()?,
            primary_key: key_of(own)?,
            key_is_deferrable: !marked(own, 14)?.is_empty(),
            other_unique: marked(own, 13)?,
            code_path: if runs_code || sandbox.is_some() { paths.get(oid).cloned() } else { None },
            sandbox,
        });
    }
    Ok(found)
}

fn refresh_column(row: &Row) -> Result<RefreshColumn, BackendError> {
    let (schema, operator) = text(row, 8)?.rsplit_once('.').ok_or(SHAPE)?;
    let array_oid: u32 = number(row, 7)?;
    let form = if boolean(row, 12)? { Form::Text } else { Form::Binary };
    Ok(RefreshColumn {
        name: quoted(text(row, 1)?),
        type_oid: number(row, 2)?,
        array_oid: (array_oid != 0 && form == Form::Binary).then_some(array_oid),
        form,
        equals: format!("OPERATOR({schema}.{operator})"),
        written: match (boolean(row, 4)?, boolean(row, 5)?) {
            (true, _) => Written::Never,
            (false, true) => Written::AtInsert,
            (false, false) => Written::Always,
        },
    })
}

fn tables_of(
    tables: &Rows,
    columns: &Rows,
    coded: &BTreeSet<u32>,
    keys: [&Rows; 4],
) -> Result<(Vec<Table>, keys::ByOid), BackendError> {
    let columns = by_relation(columns)?;
    let table = |row: &Row| {
        let own = columns.get(text(row, 0)?).map_or(&[][..], Vec::as_slice);
        let columns = own.iter().map(|row| column(row)).collect::<Result<Vec<_>, _>>()?;
        Ok(Table {
            id: TableId(number(row, 1)?),
            schema: text(row, 2)?.to_owned(),
            name: text(row, 3)?.to_owned(),
            primary_key: key_of(own)?,
            other_unique: boolean(row, 7)?,
            foreign_keys: boolean(row, 5)?,
            user_triggers: boolean(row, 6)?,
            own_code: boolean(row, 8)?,
            row_security: boolean(row, 4)?,
            coded_types: columns.iter().any(|column| coded.contains(&column.type_oid)),
            user_types: columns.iter().any(|column| column.type_oid >= FIRST_USER_OID),
            columns,
            ..Table::default()
        })
    };
    let mut found: Vec<Table> = tables.iter().map(table).collect::<Result<_, BackendError>>()?;
    let (mut by_oid, mut attributes) = (keys::ByOid::new(), Vec::new());
    for (at, row) in tables.iter().enumerate() {
        let oid = text(row, 0)?;
        by_oid.insert(oid.to_owned(), at);
        let own = columns.get(oid).map_or(&[][..], Vec::as_slice);
        attributes.push(own.iter().map(|row| number(row, 11)).collect::<Result<_, _>>()?);
    }
    keys::add(&mut found, &by_oid, &attributes, keys)?;
    Ok((found, by_oid))
}

fn column(row: &Row) -> Result<Column, BackendError> {
    Ok(Column {
        name: text(row, 1)?.to_owned(),
        type_oid: number(row, 2)?,
        not_null: boolean(row, 3)?,
        generated: boolean(row, 4)?,
        identity_always: boolean(row, 5)?,
        type_mod: number(row, 9)?,
        collation_deterministic: boolean(row, 10)?,
        default: ColumnDefault::None,
    })
}

/// Indexes of the columns of the primary key, in the key's order.
fn key_of(columns: &[&Row]) -> Result<Vec<usize>, BackendError> {
    let mut places = BTreeMap::new();
    for (index, row) in columns.iter().enumerate() {
        places.insert(number::<usize>(row, 6)?, index);
    }
    places.remove(&0);
    Ok(places.into_values().collect())
}

/// Indexes of the columns for which the field `at` is true.
fn marked(columns: &[&Row], at: usize) -> Result<Vec<usize>, BackendError> {
    let mut marked = Vec::new();
    for (index, row) in columns.iter().enumerate() {
        if boolean(row, at)? {
            marked.push(index);
        }
    }
    Ok(marked)
}

fn parents_of(rows: &Rows) -> Result<Vec<Parent>, BackendError> {
    let mut parents: Vec<Parent> = Vec::new();
    for row in rows {
        let (schema, name) = (text(row, 0)?, text(row, 1)?);
        if parents.last().is_none_or(|last| (last.schema.as_str(), last.name.as_str()) != (schema, name)) {
            parents.push(Parent { schema: schema.to_owned(), name: name.to_owned(), leaves: Vec::new() });
        }
        if row.get(2).is_some_and(Option::is_some) {
            let leaf = TableId(number(row, 2)?);
            parents.last_mut().expect("one was pushed").leaves.push(leaf);
        }
    }
    Ok(parents)
}

/// A row of an answer.
type Row = Vec<Option<String>>;

const SHAPE: BackendError = BackendError::Protocol("an answer about the catalogues of an unexpected shape");

/// The rows that begin with the same relation's OID.
fn by_relation(rows: &Rows) -> Result<BTreeMap<&str, Vec<&Row>>, BackendError> {
    let mut relations: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        relations.entry(text(row, 0)?).or_default().push(row);
    }
    Ok(relations)
}

fn text(row: &Row, at: usize) -> Result<&str, BackendError> {
    row.get(at).and_then(Option::as_deref).ok_or(SHAPE)
}

fn optional(row: &Row, at: usize) -> Option<&str> {
    row.get(at).and_then(Option::as_deref)
}

fn number<T: std::str::FromStr>(row: &Row, at: usize) -> Result<T, BackendError> {
    text(row, at)?.parse().map_err(|_| SHAPE)
}

fn boolean(row: &Row, at: usize) -> Result<bool, BackendError> {
    match text(row, at)? {
        "t" => Ok(true),
        "f" => Ok(false),
        _ => Err(SHAPE),
    }
}

fn names(rows: &Rows) -> Result<Vec<String>, BackendError> {
    rows.iter().map(|row| text(row, 0).map(str::to_owned)).collect()
}

fn volatility(text: &str) -> Result<Volatility, BackendError> {
    match text {
        "0" => Ok(Volatility::Immutable),
        "1" => Ok(Volatility::Stable),
        "2" => Ok(Volatility::Volatile),
        _ => Err(SHAPE),
    }
}

/// A name as SQL, always in quotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as SQL, where backslashes are what they are.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
