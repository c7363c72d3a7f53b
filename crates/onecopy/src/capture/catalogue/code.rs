//! Views, functions, triggers, rules, policies and sequences.
//!
//! The server's dependencies tell whether an object runs user code: dependencies on built-in objects are not stored,
//! all others are.

use std::collections::BTreeSet;

use sql::{
    Argument, ArgumentMode, Body, Function, HeadTypes, Name, Policy, Returns, Rule, Sequence, Table, Timing,
    Trigger, ViewDefinition,
};

use super::keys::ByOid;
use super::rows::{Row, SHAPE, boolean, number, optional, text, volatility};
use super::types::FIRST_USER_OID;
use crate::backend::{BackendError, Rows};

/// Types whose values name objects by OID: oid, regproc and its kin, and arrays of them.
const OBJECT_TYPES: [u32; 24] = [
    24, 26, 1008, 1028, 2202, 2203, 2204, 2205, 2206, 2207, 2208, 2209, 2210, 2211, 3734, 3735, 3769, 3770,
    4089, 4090, 4096, 4097, 4191, 4192,
];

/// Views and materialized views. A view with a longer query is left out, so it counts as unknown.
pub(super) const VIEWS: &str = r"
SELECT c.oid, n.nspname, c.relname, c.relkind = 'm',
    (SELECT CASE WHEN length(d.text) <= 65536 THEN d.text ELSE '' END FROM pg_get_viewdef(c.oid) AS d(text))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('v', 'm') AND c.relpersistence <> 't'
AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY n.nspname, c.relname
";

/// All user-defined functions, procedures and aggregates.
pub(super) const FUNCTIONS: &str = r"
SELECT n.nspname, p.proname, CASE p.provolatile WHEN 'i' THEN 0 WHEN 's' THEN 1 ELSE 2 END,
    CASE WHEN p.prokind NOT IN ('f', 'p') OR length(p.prosrc) > 65536 THEN '' ELSE l.lanname END,
    CASE WHEN l.lanname IN ('sql', 'plpgsql') AND length(p.prosrc) <= 65536 THEN p.prosrc END,
    CASE WHEN p.prosqlbody IS NOT NULL THEN pg_get_function_sqlbody(p.oid) END,
    array_to_string(p.proargmodes, ','), array_to_json(p.proargnames), p.pronargs,
    CASE WHEN p.prokind = 'p' THEN 'p' WHEN p.prorettype = 'trigger'::regtype THEN 't'
        WHEN p.prorettype = 'void'::regtype THEN 'v' ELSE 'x' END, p.proretset,
    CASE WHEN p.pronargdefaults > 0 THEN (SELECT string_agg(pg_get_function_arg_default(p.oid, g), ', ')
        FROM generate_series(1, COALESCE(cardinality(p.proallargtypes), p.pronargs)) AS g) END,
    (SELECT string_agg(split_part(setting, '=', 1), ' ') FROM unnest(p.proconfig) AS setting),
    array_to_string(p.prorettype || COALESCE(p.proallargtypes, p.proargtypes::oid[]), ' ')
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang
WHERE p.oid >= 16384 AND NOT (n.nspname = 'onecopy' AND p.proname ~ '^(pg_|current_setting$)') ORDER BY n.nspname, p.proname, p.oid
";

/// A captured table or a view, with all its ancestors.
macro_rules! family {
    ($select:literal) => {
        concat!(
            r"WITH RECURSIVE family(oid, member) AS (
                SELECT tgrelid, tgrelid FROM pg_trigger WHERE tgname = '!onecopy'
                UNION SELECT oid, oid FROM pg_class WHERE relkind = 'v' AND oid >= 16384
                UNION SELECT family.oid, i.inhparent FROM family JOIN pg_inherits i ON i.inhrelid = family.member
            ) ",
            $select
        )
    };
}

/// User-defined triggers, without those that the server made for constraints.
pub(super) const TRIGGERS: &str = family!(
    r"SELECT family.oid, g.tgname, g.tgtype, n.nspname, p.proname, g.tgenabled <> 'D', g.tgdeferrable,
    g.tgqual IS NOT NULL AND EXISTS (SELECT FROM pg_depend d
        WHERE d.classid = 'pg_trigger'::regclass AND d.objid = g.oid AND d.refobjid >= 16384
        AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass)
        AND NOT (d.refclassid = 'pg_proc'::regclass AND d.refobjid = g.tgfoid))
FROM family JOIN pg_trigger g ON g.tgrelid = family.member AND g.tgname NOT IN ('!onecopy', '!onecopy_insert', '!onecopy_replica', '!onecopy_truncate')
LEFT JOIN pg_constraint k ON k.oid = g.tgconstraint
JOIN pg_proc p ON p.oid = g.tgfoid JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE NOT g.tgisinternal OR k.contype IS NULL OR k.contype = 't' ORDER BY family.oid, g.tgname"
);

/// Rules, without those that define views.
pub(super) const RULES: &str = family!(
    r"SELECT family.oid, r.rulename, pg_get_ruledef(r.oid) FROM family JOIN pg_rewrite r ON r.ev_class = family.member
WHERE r.rulename <> '_RETURN' ORDER BY family.oid, r.rulename"
);

/// Policies of row-level security.
pub(super) const POLICIES: &str = family!(
    r"SELECT family.oid, p.polname, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)
FROM family JOIN pg_policy p ON p.polrelid = family.member ORDER BY family.oid, p.polname"
);

/// Sequences, with their owning columns.
pub(super) const SEQUENCES: &str = r"
SELECT n.nspname, c.relname, format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement,
    COALESCE(l.least, s.seqmin), COALESCE(l.greatest, s.seqmax), s.seqcycle, s.seqcache,
    d.refobjid, a.attname, COALESCE(d.deptype = 'i', false)
FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid AND c.relpersistence <> 't'
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN (onecopy_capture.sequences o JOIN onecopy_capture.leased l ON l.sequence = o.id) ON o.relation = s.seqrelid
LEFT JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_class'::regclass
    AND d.refobjsubid > 0 AND d.deptype IN ('a', 'i')
LEFT JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy_capture') ORDER BY 1, 2
";

/// Adds the views, and the triggers and rules of tables and views.
pub(super) fn add(
    tables: &mut [Table],
    by_oid: &ByOid,
    [views, triggers, rules, policies]: [&Rows; 4],
) -> Result<Vec<ViewDefinition>, BackendError> {
    let mut found = Vec::new();
    let mut place = ByOid::new();
    for row in views {
        place.insert(text(row, 0)?.to_owned(), found.len());
        found.push(ViewDefinition {
            schema: text(row, 1)?.to_owned(),
            name: text(row, 2)?.to_owned(),
            definition: optional(row, 4).unwrap_or_default().to_owned(),
            materialized: boolean(row, 3)?,
            ..ViewDefinition::default()
        });
    }
    for row in triggers {
        let oid = text(row, 0)?;
        if let Some(&at) = by_oid.get(oid) {
            tables[at].triggers.push(trigger(row)?);
        } else if let Some(&at) = place.get(oid) {
            found[at].triggers.push(trigger(row)?);
        }
    }
    for row in rules {
        let oid = text(row, 0)?;
        let rule = Rule { name: text(row, 1)?.to_owned(), definition: text(row, 2)?.to_owned() };
        if let Some(&at) = by_oid.get(oid) {
            tables[at].rules.push(rule);
        } else if let Some(&at) = place.get(oid) {
            found[at].rules.push(rule);
        }
    }
    for row in policies {
        if let Some(&at) = by_oid.get(text(row, 0)?) {
            let expressions = [optional(row, 2), optional(row, 3)];
            tables[at].policies.push(Policy {
                name: text(row, 1)?.to_owned(),
                expressions: expressions.into_iter().flatten().map(str::to_owned).collect(),
            });
        }
    }
    Ok(found)
}

fn trigger(row: &Row) -> Result<Trigger, BackendError> {
    let kind: i32 = number(row, 2)?;
    let has = |bit: i32| kind & bit != 0;
    Ok(Trigger {
        name: text(row, 1)?.to_owned(),
        timing: match (has(2), has(64)) {
            (_, true) => Timing::InsteadOf,
            (true, false) => Timing::Before,
            (false, false) => Timing::After,
        },
        on_insert: has(4),
        on_delete: has(8),
        on_update: has(16),
        on_truncate: has(32),
        each_row: has(1),
        function: Name::qualified(text(row, 3)?, text(row, 4)?),
        enabled: boolean(row, 5)?,
        deferrable: boolean(row, 6)?,
        condition_runs_code: boolean(row, 7)?,
    })
}

/// The functions. Types in `coded` may run user code.
pub(super) fn functions(rows: &Rows, coded: &BTreeSet<u32>) -> Result<Vec<Function>, BackendError> {
    rows.iter().map(|row| function(row, coded)).collect()
}

fn function(row: &Row, coded: &BTreeSet<u32>) -> Result<Function, BackendError> {
    let source = || optional(row, 4).map(str::to_owned);
    let body = match (text(row, 3)?, optional(row, 5)) {
        ("sql", Some(standard)) => Body::SqlStandard(standard.to_owned()),
        ("sql", None) => source().map_or(Body::Unknown, Body::Sql),
        ("plpgsql", None) => source().map_or(Body::Unknown, Body::PlPgSql),
        _ => Body::Unknown,
    };
    Ok(Function {
        schema: text(row, 0)?.to_owned(),
        name: text(row, 1)?.to_owned(),
        volatility: volatility(text(row, 2)?)?,
        body,
        arguments: arguments(optional(row, 6), optional(row, 7), number(row, 8)?, text(row, 13)?)?,
        returns: match text(row, 9)? {
            "p" => Returns::Procedure,
            "t" => Returns::Trigger,
            "v" => Returns::Void,
            _ => Returns::Value,
        },
        returns_set: boolean(row, 10)?,
        defaults: optional(row, 11).unwrap_or_default().to_owned(),
        settings: optional(row, 12)
            .unwrap_or_default()
            .split(' ')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        types: types(text(row, 13)?, coded)?,
    })
}

/// The most dangerous of the types in a function's head.
fn types(oids: &str, coded: &BTreeSet<u32>) -> Result<HeadTypes, BackendError> {
    let mut worst = HeadTypes::BuiltIn;
    for oid in oids.split(' ') {
        let oid: u32 = oid.parse().map_err(|_| SHAPE)?;
        worst = worst.max(match oid {
            oid if coded.contains(&oid) => HeadTypes::Coded,
            FIRST_USER_OID.. => HeadTypes::Plain,
            oid if OBJECT_TYPES.contains(&oid) => HeadTypes::Objects,
            _ => HeadTypes::BuiltIn,
        });
    }
    Ok(worst)
}

/// Without modes all arguments are inputs. Without names no argument has one. The first of the types is the result's.
fn arguments(
    modes: Option<&str>,
    names: Option<&str>,
    count: usize,
    types: &str,
) -> Result<Vec<Argument>, BackendError> {
    let names: Vec<String> = match names {
        Some(names) => serde_json::from_str(names).map_err(|_| SHAPE)?,
        None => Vec::new(),
    };
    let modes: Vec<&str> = modes.map_or_else(|| vec!["i"; count], |modes| modes.split(',').collect());
    let types: Vec<&str> = types.split(' ').skip(1).collect();
    let argument = |(at, mode): (usize, &str)| {
        let mode = match mode {
            "i" => ArgumentMode::In,
            "v" => ArgumentMode::Variadic,
            "o" => ArgumentMode::Out,
            "b" => ArgumentMode::InOut,
            "t" => ArgumentMode::Table,
            _ => return Err(SHAPE),
        };
        let type_oid = types.get(at).and_then(|oid| oid.parse().ok()).unwrap_or(0);
        Ok(Argument { name: names.get(at).cloned().unwrap_or_default(), mode, type_oid })
    };
    modes.into_iter().enumerate().map(argument).collect()
}

pub(super) fn sequences(
    rows: &Rows,
    tables: &[Table],
    by_oid: &ByOid,
) -> Result<Vec<Sequence>, BackendError> {
    let sequence = |row: &Row| {
        let owner = optional(row, 9).and_then(|oid| by_oid.get(oid)).map(|at| &tables[*at]);
        let column = |table: &Table| {
            let name = optional(row, 10)?;
            Some((table.id, table.columns.iter().position(|column| column.name == name)?))
        };
        Ok(Sequence {
            schema: text(row, 0)?.to_owned(),
            name: text(row, 1)?.to_owned(),
            type_name: text(row, 2)?.to_owned(),
            start: number(row, 3)?,
            increment: number(row, 4)?,
            min: number(row, 5)?,
            max: number(row, 6)?,
            cycle: boolean(row, 7)?,
            cache: number(row, 8)?,
            owner: owner.and_then(column),
            identity: boolean(row, 11)?,
        })
    };
    rows.iter().map(sequence).collect()
}
