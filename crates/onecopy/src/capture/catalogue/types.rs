//! User-defined types, and which of them run only built-in code.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{number, text};
use crate::backend::{BackendError, Rows};

/// Smallest OID that is not built in.
pub(super) const FIRST_USER_OID: u32 = 16384;

/// Names and OIDs of user-defined types, without row types.
pub(super) const USER_TYPES: &str = "SELECT t.typname, t.oid FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid \
    WHERE t.oid >= 16384 AND (t.typrelid = 0 OR c.relkind = 'c')";

/// User-defined types that may run user code: base types, types built from such, and types with user-defined
/// operators, casts, operator classes, checks or range functions.
pub(super) const CODED_TYPES: &str = r"
WITH RECURSIVE made_of(whole, part) AS (
    SELECT oid, typelem FROM pg_type WHERE typelem <> 0
    UNION ALL SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'
    UNION ALL SELECT t.oid, a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
        WHERE t.typtype = 'c' AND t.oid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT whole, r.rngsubtype FROM pg_range r CROSS JOIN LATERAL (VALUES (r.rngtypid), (r.rngmultitypid)) v(whole)
), own(oid) AS (
    SELECT k.contypid FROM pg_constraint k JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = k.oid
    WHERE k.contypid <> 0 AND d.refobjid >= 16384 AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
    UNION ALL SELECT unnest(ARRAY[rngtypid, rngmultitypid]) FROM pg_range
    WHERE rngcanonical >= 16384 OR rngsubdiff >= 16384 OR rngsubopc >= 16384
    UNION ALL SELECT unnest(ARRAY[oprleft, oprright]) FROM pg_operator WHERE oid >= 16384
    UNION ALL SELECT unnest(ARRAY[castsource, casttarget]) FROM pg_cast WHERE oid >= 16384
    UNION ALL SELECT opcintype FROM pg_opclass WHERE oid >= 16384
), coded(oid) AS (
    SELECT oid FROM pg_type WHERE oid >= 16384 AND (typtype = 'p'
        OR (typtype = 'b' AND typinput <> 'array_in'::regproc) OR oid IN (SELECT oid FROM own))
    UNION SELECT made_of.whole FROM coded JOIN made_of ON made_of.part = coded.oid
) SELECT oid FROM coded";

/// Parses the answer to [`CODED_TYPES`].
pub(super) fn coded(rows: &Rows) -> Result<BTreeSet<u32>, BackendError> {
    rows.iter().map(|row| number(row, 0)).collect()
}

/// Names of types of which none runs user code.
pub(super) fn plain(types: &Rows, coded: &BTreeSet<u32>) -> Result<Vec<String>, BackendError> {
    let mut plain: BTreeMap<&str, bool> = BTreeMap::new();
    for row in types {
        *plain.entry(text(row, 0)?).or_insert(true) &= !coded.contains(&number(row, 1)?);
    }
    Ok(plain.into_iter().filter(|(_, is_plain)| *is_plain).map(|(name, _)| name.to_owned()).collect())
}
