//! Captured tables and their columns.

use std::collections::{BTreeMap, BTreeSet};

use sql::{Column, ColumnDefault, DatabaseId, Table};

use super::keys;
use super::rows::{Row, boolean, by_relation, number, text};
use super::types::FIRST_USER_OID;
use crate::backend::{BackendError, Rows};

/// Captured ordinary tables. `family` is a table with its ancestors. Each property is one query for all tables,
/// because schemas have hundreds of them.
pub(super) const TABLES: &str = r"
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

/// Their live columns, with the position in the primary key (0: none), and data for the applier. Expensive properties
/// are queried once for each type.
pub(super) const COLUMNS: &str = r"
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

pub(super) fn tables_of(
    database: DatabaseId,
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
            id: database.table(number(row, 1)?),
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

/// The primary key's columns as indexes, in the key's order.
pub(super) fn key_of(columns: &[&Row]) -> Result<Vec<usize>, BackendError> {
    let mut places = BTreeMap::new();
    for (index, row) in columns.iter().enumerate() {
        places.insert(number::<usize>(row, 6)?, index);
    }
    places.remove(&0);
    Ok(places.into_values().collect())
}

/// The indexes of columns for which the field `at` is true.
pub(super) fn marked(columns: &[&Row], at: usize) -> Result<Vec<usize>, BackendError> {
    let mut marked = Vec::new();
    for (index, row) in columns.iter().enumerate() {
        if boolean(row, at)? {
            marked.push(index);
        }
    }
    Ok(marked)
}
