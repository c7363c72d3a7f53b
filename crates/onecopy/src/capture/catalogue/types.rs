//! Users' types, and which of them are plain: that run no code but the server's own.

use std::collections::{BTreeMap, BTreeSet};

use super::{number, text};
use crate::backend::{BackendError, Rows};

/// Names and ids of types that did not come with the server, row types left out.
pub(super) const USER_TYPES: &str = "SELECT t.typname, t.oid FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid \
    WHERE t.oid >= 16384 AND (t.typrelid = 0 OR c.relkind = 'c')";

/// Users' types that may run code of users: base types, what is made of such, and what has operators, casts, operator
/// classes, checks or range functions that did not come with the server.
pub(super) const CODED_TYPES: &str = r"
WITH RECURSIVE made_of(whole, part) AS (
    SELECT oid, typelem FROM pg_type WHERE typelem <> 0
    UNION ALL SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'
    UNION ALL SELECT t.oid, a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
        WHERE t.typtype = 'c' AND t.oid >= 16384 AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT whole, r.rngsubtype FROM pg_range r CROSS JOIN LATERAL (VALUES (r.rngtypid), (r.rngmultitypid)) v(whole)
), coded(oid) AS (
    SELECT t.oid FROM pg_type t WHERE t.oid >= 16384 AND (
        t.typtype = 'p'
        OR (t.typtype = 'b' AND t.typinput <> 'array_in'::regproc)
        OR EXISTS (SELECT FROM pg_constraint k JOIN pg_depend d
            ON d.classid = 'pg_constraint'::regclass AND d.objid = k.oid AND d.refobjid >= 16384
            AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) WHERE k.contypid = t.oid)
        OR EXISTS (SELECT FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
            AND (r.rngcanonical >= 16384 OR r.rngsubdiff >= 16384 OR r.rngsubopc >= 16384))
        OR EXISTS (SELECT FROM pg_operator o WHERE o.oid >= 16384 AND t.oid IN (o.oprleft, o.oprright))
        OR EXISTS (SELECT FROM pg_cast c WHERE c.oid >= 16384 AND t.oid IN (c.castsource, c.casttarget))
        OR EXISTS (SELECT FROM pg_opclass k WHERE k.oid >= 16384 AND k.opcintype = t.oid))
    UNION SELECT made_of.whole FROM coded JOIN made_of ON made_of.part = coded.oid
) SELECT oid FROM coded";

/// The answer to [`CODED_TYPES`].
pub(super) fn coded(rows: &Rows) -> Result<BTreeSet<u32>, BackendError> {
    rows.iter().map(|row| number(row, 0)).collect()
}

/// Names of types none of which runs code of users.
pub(super) fn plain(types: &Rows, coded: &BTreeSet<u32>) -> Result<Vec<String>, BackendError> {
    let mut plain: BTreeMap<&str, bool> = BTreeMap::new();
    for row in types {
        *plain.entry(text(row, 0)?).or_insert(true) &= !coded.contains(&number(row, 1)?);
    }
    Ok(plain.into_iter().filter(|(_, is_plain)| *is_plain).map(|(name, _)| name.to_owned()).collect())
}
