//! Unique keys, foreign keys and defaults of captured tables.
//!
//! A foreign key from or to a partitioned table is one constraint between two roots; the server derives the
//! constraints of partitions from it. Here it becomes a reference between every two leaves, by column names.

use std::collections::{BTreeMap, BTreeSet};

use sql::{Action, ColumnDefault, Key, Name, Reference, Table};

use super::rows::{Row, SHAPE, boolean, optional, text};
use crate::backend::{BackendError, Rows};

/// A foreign key with more references between leaves is not resolved.
const REFERENCES_MAX: usize = 4_096;

/// Indexes, the primary key first, without non-unique ones over expressions. Dependencies of a unique index name the
/// columns of its expressions and predicate; 0 among them means all.
pub(super) const KEYS: &str = r"
SELECT x.indrelid, x.indisprimary, x.indisunique, x.indpred IS NOT NULL,
    x.indexprs IS NOT NULL OR EXISTS (
        SELECT FROM generate_series(0, x.indnkeyatts - 1) AS k(at)
        JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[k.at]
        JOIN pg_opclass o ON o.oid = x.indclass[k.at]
        WHERE NOT o.opcdefault OR x.indcollation[k.at] <> a.attcollation),
    x.indisexclusion, NOT x.indimmediate, COALESCE((to_jsonb(x) ->> 'indnullsnotdistinct')::bool, false),
    CASE WHEN x.indexprs IS NULL AND (x.indpred IS NULL OR NOT (x.indisunique OR x.indisexclusion))
        THEN (SELECT string_agg(x.indkey[k.at]::text, ' ' ORDER BY k.at)
            FROM generate_series(0, x.indnkeyatts - 1) AS k(at))
        ELSE (SELECT string_agg(DISTINCT d.refobjsubid::text, ' ') FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = x.indexrelid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = x.indrelid) END
FROM pg_index x JOIN pg_trigger g ON g.tgrelid = x.indrelid AND g.tgname = '!onecopy'
WHERE x.indisunique OR x.indisexclusion OR x.indexprs IS NULL
ORDER BY x.indrelid, x.indisprimary DESC, x.indexrelid
";

/// The names of all indexes, with the number of their table.
pub(super) const INDEXES: &str = r"
SELECT split_part(encode(g.tgargs, 'escape'), '\000', 1), c.relname
FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
JOIN pg_trigger g ON g.tgrelid = x.indrelid AND g.tgname = '!onecopy'
";

/// Foreign keys, a row for each pair of columns, without derived ones.
pub(super) const REFERENCES: &str = r"
SELECT k.oid, k.conrelid, k.confrelid, k.confdeltype, k.confupdtype, k.condeferrable, k.confmatchtype = 'f',
    COALESCE((to_jsonb(k) ->> 'conperiod')::bool, false), a.attname, f.attname
FROM pg_constraint k CROSS JOIN LATERAL unnest(k.conkey, k.confkey) WITH ORDINALITY AS pair(own, parent, at)
JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = pair.own
JOIN pg_attribute f ON f.attrelid = k.confrelid AND f.attnum = pair.parent
WHERE k.contype = 'f' AND k.conparentid = 0 ORDER BY k.oid, pair.at
";

/// Partitions, with their parents.
pub(super) const PARTITIONS: &str = r"
SELECT i.inhparent, i.inhrelid FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
WHERE p.relkind = 'p'
";

/// Columns with a default, and the sequence that the default may use.
pub(super) const DEFAULTS: &str = r"
SELECT a.attrelid, a.attname, pg_get_expr(d.adbin, d.adrelid), format_type(a.atttypid, NULL),
    a.attidentity <> '', n.nspname, s.relname
FROM pg_attribute a JOIN pg_trigger g ON g.tgrelid = a.attrelid AND g.tgname = '!onecopy'
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_class s ON s.relkind = 'S' AND s.oid = CASE WHEN a.attidentity = ''
    THEN (SELECT min(e.refobjid::int8) FROM pg_depend e
        WHERE e.classid = 'pg_attrdef'::regclass AND e.objid = d.oid AND e.refclassid = 'pg_class'::regclass
        AND e.refobjid <> a.attrelid)
    ELSE (SELECT min(e.objid::int8) FROM pg_depend e
        WHERE e.refclassid = 'pg_class'::regclass AND e.refobjid = a.attrelid AND e.refobjsubid = a.attnum
        AND e.deptype = 'i' AND e.classid = 'pg_class'::regclass) END
LEFT JOIN pg_namespace n ON n.oid = s.relnamespace
WHERE a.attnum > 0 AND NOT a.attisdropped AND (d.oid IS NOT NULL OR a.attidentity <> '' OR t.typdefault IS NOT NULL)
";

/// The tables by their OID.
pub(super) type ByOid = BTreeMap<String, usize>;

/// Adds keys, references and defaults to the tables. `attributes` are the column numbers of each table.
pub(super) fn add(
    tables: &mut [Table],
    by_oid: &ByOid,
    attributes: &[Vec<i32>],
    [keys, references, partitions, defaults]: [&Rows; 4],
) -> Result<(), BackendError> {
    for row in keys {
        if let Some(&at) = by_oid.get(text(row, 0)?) {
            let key = key(row, &attributes[at])?;
            if key.unique || key.exclusion {
                tables[at].keys.push(key);
            } else {
                tables[at].indexes.push(key.columns);
            }
        }
    }
    for row in defaults {
        let Some(&at) = by_oid.get(text(row, 0)?) else { continue };
        let name = text(row, 1)?;
        let column = tables[at].columns.iter_mut().find(|column| column.name == name).ok_or(SHAPE)?;
        column.default = default(row)?;
    }
    let mut leaves = Leaves { by_oid, below: BTreeMap::new() };
    for row in partitions {
        leaves.below.entry(text(row, 0)?).or_default().push(text(row, 1)?);
    }
    for rows in references.chunk_by(|a, b| a.first() == b.first()) {
        refer(tables, &leaves, rows)?;
    }
    Ok(())
}

fn key(row: &Row, attributes: &[i32]) -> Result<Key, BackendError> {
    let mut columns = Vec::new();
    for attribute in optional(row, 8).unwrap_or_default().split(' ').filter(|number| !number.is_empty()) {
        let attribute: i32 = attribute.parse().map_err(|_| SHAPE)?;
        match attributes.iter().position(|own| *own == attribute) {
            Some(at) => columns.push(at),
            // A whole row, or a system column.
            None => columns.extend(0..attributes.len()),
        }
    }
    let (partial, expression) = (boolean(row, 3)?, boolean(row, 4)?);
    if partial || expression {
        columns.sort_unstable();
        columns.dedup();
    }
    Ok(Key {
        columns,
        primary: boolean(row, 1)?,
        unique: boolean(row, 2)?,
        partial,
        expression,
        exclusion: boolean(row, 5)?,
        deferrable: boolean(row, 6)?,
        nulls_not_distinct: boolean(row, 7)?,
    })
}

fn default(row: &Row) -> Result<ColumnDefault, BackendError> {
    let sequence = optional(row, 5).zip(optional(row, 6)).map(|(schema, name)| Name::qualified(schema, name));
    let expression = optional(row, 2);
    let is_identity = boolean(row, 4)?;
    Ok(match (sequence, expression) {
        (Some(sequence), None) if is_identity => ColumnDefault::Sequence(sequence),
        (Some(sequence), Some(expression)) if is_nextval(expression) => ColumnDefault::Sequence(sequence),
        (_, Some(expression)) => ColumnDefault::of(expression, text(row, 3)?),
        // The default belongs to a domain, or is not understood.
        (_, None) => ColumnDefault::Expression(String::new()),
    })
}

/// Whether a default is exactly `nextval` of the one sequence that it depends on.
fn is_nextval(expression: &str) -> bool {
    expression
        .strip_prefix("nextval('")
        .and_then(|rest| rest.strip_suffix("'::regclass)"))
        .is_some_and(|name| !name.contains('\''))
}

/// The leaf tables that hold the rows of a relation.
struct Leaves<'a> {
    by_oid: &'a ByOid,
    below: BTreeMap<&'a str, Vec<&'a str>>,
}

impl Leaves<'_> {
    /// Indexes of the tables, and whether the list is complete.
    fn of(&self, root: &str) -> (BTreeSet<usize>, bool) {
        let (mut found, mut whole, mut todo) = (BTreeSet::new(), true, vec![root]);
        while let Some(oid) = todo.pop() {
            match (self.below.get(oid), self.by_oid.get(oid)) {
                (Some(below), _) => todo.extend(below),
                (None, Some(&at)) => {
                    found.insert(at);
                }
                // A partitioned table without partitions, or a relation without capture.
                (None, None) => whole = false,
            }
        }
        (found, whole)
    }
}

/// Adds the references of one constraint. If they cannot be resolved, the tables concerned may do anything.
fn refer(tables: &mut [Table], leaves: &Leaves<'_>, rows: &[Row]) -> Result<(), BackendError> {
    let Some(first) = rows.first() else { return Ok(()) };
    let (children, all_children) = leaves.of(text(first, 1)?);
    let (parents, all_parents) = leaves.of(text(first, 2)?);
    let resolved = all_children && all_parents && children.len() * parents.len() <= REFERENCES_MAX;
    if !resolved {
        for at in children.union(&parents) {
            tables[*at].user_triggers = true;
            tables[*at].own_code = true;
        }
        return Ok(());
    }
    for &child in &children {
        for &parent in &parents {
            let reference = reference(&tables[child], &tables[parent], rows)?;
            tables[child].references.push(reference);
        }
    }
    Ok(())
}

fn reference(child: &Table, parent: &Table, rows: &[Row]) -> Result<Reference, BackendError> {
    let place =
        |table: &Table, name: &str| table.columns.iter().position(|column| column.name == name).ok_or(SHAPE);
    let first = rows.first().ok_or(SHAPE)?;
    let (mut columns, mut parent_columns) = (Vec::new(), Vec::new());
    for row in rows {
        columns.push(place(child, text(row, 8)?)?);
        parent_columns.push(place(parent, text(row, 9)?)?);
    }
    Ok(Reference {
        columns,
        parent: parent.id,
        parent_columns,
        on_delete: action(text(first, 3)?)?,
        on_update: action(text(first, 4)?)?,
        deferrable: boolean(first, 5)?,
        matches_full: boolean(first, 6)?,
        period: boolean(first, 7)?,
    })
}

fn action(text: &str) -> Result<Action, BackendError> {
    match text {
        "a" => Ok(Action::NoAction),
        "r" => Ok(Action::Restrict),
        "c" => Ok(Action::Cascade),
        "n" => Ok(Action::SetNull),
        "d" => Ok(Action::SetDefault),
        _ => Err(SHAPE),
    }
}
