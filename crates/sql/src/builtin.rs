//! Which of PostgreSQL's own functions, types and relations a bounded read may use.
//!
//! Volatility comes from the catalogue, but it is not enough: many stable functions read the system catalogues (whose
//! OIDs differ between replicas), or tables named in their arguments. Types are a list of what is allowed, since a
//! row type or a domain is a type as well; functions are a list of what is not, on top of the volatility.

use crate::name::SYSTEM_SCHEMA;

/// How a built-in object may be used in a bounded read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Builtin {
    /// It depends on its arguments, the session and the clock only.
    Harmless,
    /// It depends on the system catalogues.
    Catalogue,
    /// It may depend on something else.
    Unknown,
}

/// Columns that every table has and whose values are the server's own affair.
pub(crate) const SYSTEM_COLUMNS: [&str; 6] = ["cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"];

/// Schemas of the server's own objects.
const SYSTEM_SCHEMAS: [&str; 3] = [SYSTEM_SCHEMA, "information_schema", "pg_toast"];

/// Functions beginning with `pg_` that read no catalogue and no file.
const HARMLESS_PG: [&str; 6] = [
    "pg_backend_pid",
    "pg_client_encoding",
    "pg_column_size",
    "pg_size_bytes",
    "pg_size_pretty",
    "pg_typeof",
];

/// Stable or immutable functions that read system catalogues.
const CATALOGUE_FUNCTIONS: [&str; 11] = [
    "acldefault",
    "aclexplode",
    "col_description",
    "format_type",
    "get_current_ts_config",
    "obj_description",
    "row_security_active",
    "satisfies_hash_partition",
    "shobj_description",
    "to_regclass",
    "makeaclitem",
];

/// Stable or immutable functions whose results come from this server's own state, or that run a query given as text.
const UNKNOWN_FUNCTIONS: [&str; 8] =
    ["age", "currval", "lastval", "mxid_age", "ts_rewrite", "ts_stat", "current_query", "setval"];

/// Types whose input and output depend on nothing but the text and the session's settings; sorted.
const TYPES: [&str; 62] = [
    "bit",
    "bool",
    "box",
    "bpchar",
    "bytea",
    "char",
    "cidr",
    "circle",
    "date",
    "datemultirange",
    "daterange",
    "float4",
    "float8",
    "inet",
    "int2",
    "int2vector",
    "int4",
    "int4multirange",
    "int4range",
    "int8",
    "int8multirange",
    "int8range",
    "interval",
    "json",
    "jsonb",
    "jsonpath",
    "line",
    "lseg",
    "macaddr",
    "macaddr8",
    "money",
    "name",
    "numeric",
    "nummultirange",
    "numrange",
    "path",
    "pg_lsn",
    "point",
    "polygon",
    "record",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
    "tsmultirange",
    "tsquery",
    "tsrange",
    "tstzmultirange",
    "tstzrange",
    "tsvector",
    "unknown",
    "uuid",
    "varbit",
    "varchar",
    "void",
    "xml",
    "_bool",
    "_int4",
    "_int8",
    "_numeric",
    "_text",
];

/// Whether a schema holds the server's own relations.
pub(crate) fn is_system_schema(schema: &str) -> bool {
    SYSTEM_SCHEMAS.contains(&schema) || schema.starts_with("pg_toast_temp")
}

/// Whether an unqualified relation name means, or may mean, a system catalogue or view: PostgreSQL looks into
/// `pg_catalog` first, and reserves the prefix there.
pub(crate) fn is_system_relation(name: &str) -> bool {
    name.starts_with("pg_")
}

/// How a built-in function may be used, its volatility aside.
pub(crate) fn function(name: &str) -> Builtin {
    let reads_catalogue = name.starts_with("has_")
        || name.starts_with("to_reg")
        || name.starts_with("reg")
            && [
                "regclass",
                "regtype",
                "regproc",
                "regoper",
                "regrole",
                "regnamespace",
                "regconfig",
                "regdictionary",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        || name.starts_with("pg_") && !HARMLESS_PG.contains(&name)
        || CATALOGUE_FUNCTIONS.contains(&name);
    let reads_other = name.contains("_to_xml")
        || name.starts_with("txid_")
        || name.starts_with("lo_")
        || name.starts_with("currtid")
        || UNKNOWN_FUNCTIONS.contains(&name);
    if reads_catalogue {
        Builtin::Catalogue
    } else if reads_other {
        Builtin::Unknown
    } else {
        Builtin::Harmless
    }
}

/// How a built-in type may be cast to.
pub(crate) fn type_name(name: &str) -> Builtin {
    if TYPES.contains(&name) {
        Builtin::Harmless
    } else if name == "oid" || name.trim_start_matches('_').starts_with("reg") || name.starts_with("pg_") {
        Builtin::Catalogue
    } else {
        Builtin::Unknown
    }
}
