//! Which of PostgreSQL's own functions, types and relations a bounded read may use.
//!
//! Volatility comes from the catalogue, but it is not enough: many stable functions read the system catalogues (whose
//! OIDs differ between replicas), or tables named in their arguments. Types are a list of what is allowed, since a
//! row type or a domain is a type as well; functions are a list of what is not, on top of the volatility.

use crate::access::Traces;
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

/// Types whose values are object ids that an input function looks up by a name. The ids differ between replicas.
pub(crate) const OBJECT_ID_TYPES: [&str; 11] = [
    "regclass",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
    "regtype",
];

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

/// Stable or immutable functions that read system catalogues, or compute with the OIDs that values of enums and of `aclitem` hold.
const CATALOGUE_FUNCTIONS: [&str; 29] = [
    "acldefault",
    "aclexplode",
    "btrecordimagecmp",
    "col_description",
    "format_type",
    "get_current_ts_config",
    "hash_aclitem",
    "hash_aclitem_extended",
    "hash_array",
    "hash_array_extended",
    "hash_multirange",
    "hash_multirange_extended",
    "hash_range",
    "hash_range_extended",
    "hash_record",
    "hash_record_extended",
    "hashenum",
    "hashenumextended",
    "obj_description",
    "oidvectortypes",
    "record_image_ge",
    "record_image_gt",
    "record_image_le",
    "record_image_lt",
    "row_security_active",
    "satisfies_hash_partition",
    "shobj_description",
    "makeaclitem",
    "ts_debug",
];

/// Stable or immutable functions whose results come from this server's own state, or that run a query given as text.
const UNKNOWN_FUNCTIONS: [&str; 9] = [
    "pg_input_error_info",
    "pg_input_is_valid",
    "currval",
    "lastval",
    "mxid_age",
    "ts_rewrite",
    "ts_stat",
    "current_query",
    "setval",
];

/// Volatile functions that only look at the clock, wait, or make a value up: they read no data and change none.
const HARMLESS_VOLATILE: [&str; 8] = [
    "clock_timestamp",
    "gen_random_uuid",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "timeofday",
    "uuidv4",
    "uuidv7",
];

/// Volatile functions that read this server's own state and change nothing.
const STATE_FUNCTIONS: [&str; 8] = [
    "pg_blocking_pids",
    "pg_database_size",
    "pg_indexes_size",
    "pg_is_in_recovery",
    "pg_relation_size",
    "pg_table_size",
    "pg_tablespace_size",
    "pg_total_relation_size",
];

/// Volatile functions whose results and effects belong to the connection they run on, and which touch no data. A session
/// that waits in one (for an advisory lock, say) holds up no statement about rows.
const CONNECTION_BOUND: [&str; 17] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_unlock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_cancel_backend",
    "pg_notify",
    "pg_terminate_backend",
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "random",
    "random_normal",
    "setseed",
];

/// Volatile functions that change nothing but a sequence. No rollback takes that back, and no transaction waits for it.
const SEQUENCE_FUNCTIONS: [&str; 1] = ["nextval"];

/// Functions that tell what this session has drawn from sequences last, and do nothing else.
const DRAWN_FUNCTIONS: [&str; 2] = ["currval", "lastval"];

/// Volatile functions, and others that no bounded read may call, of which nothing stays on the connection when their
/// transaction is over. What is drawn from sequences is looked after elsewhere.
const LEAVES_NOTHING: [&str; 27] = [
    "currval",
    "current_query",
    "lastval",
    "mxid_age",
    "nextval",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_cancel_backend",
    "pg_current_wal_flush_lsn",
    "pg_current_wal_insert_lsn",
    "pg_current_wal_lsn",
    "pg_current_xact_id",
    "pg_current_xact_id_if_assigned",
    "pg_export_snapshot",
    "pg_log_backend_memory_contexts",
    "pg_notify",
    "pg_promote",
    "pg_reload_conf",
    "pg_rotate_logfile",
    "pg_switch_wal",
    "pg_terminate_backend",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "pg_xact_status",
    "random",
    "random_normal",
    "setval",
];

/// Functions that take an advisory lock which the session keeps.
const SESSION_LOCKS: [&str; 4] =
    ["pg_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock", "pg_try_advisory_lock_shared"];

/// Functions that change a setting by its name.
const SETS_SETTING: &str = "set_config";

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

/// Types that take words such as `now` and `today` for the time on the server's clock.
const CLOCK_TYPES: [&str; 11] = [
    "date",
    "datemultirange",
    "daterange",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
    "tsmultirange",
    "tsrange",
    "tstzmultirange",
    "tstzrange",
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

/// Whether a volatile function changes nothing, although a bounded read may not call it.
pub(crate) fn reads_server_state(name: &str) -> bool {
    STATE_FUNCTIONS.contains(&name)
}

/// Whether a volatile function may be called in a bounded read all the same.
pub(crate) fn is_harmless_volatile(name: &str) -> bool {
    HARMLESS_VOLATILE.contains(&name)
}

/// Whether a function tells what the session has drawn.
pub(crate) fn asks_draws(name: &str) -> bool {
    DRAWN_FUNCTIONS.contains(&name)
}

/// Whether a function touches no data, although a read that calls it is bound to its connection.
pub(crate) fn is_connection_bound(name: &str) -> bool {
    CONNECTION_BOUND.contains(&name)
}

/// Whether a function changes nothing but a sequence, so that it locks no row and depends on none.
pub(crate) fn advances_sequence(name: &str) -> bool {
    SEQUENCE_FUNCTIONS.contains(&name)
}

/// Whether a function changes a setting by its name.
pub(crate) fn sets_setting(name: &str) -> bool {
    name == SETS_SETTING
}

/// Session state that a call of a built-in function may leave on its connection.
pub(crate) fn traces(name: &str, is_volatile: bool) -> Traces {
    let reads = is_harmless_volatile(name)
        || reads_server_state(name)
        || LEAVES_NOTHING.contains(&name)
        || ["pg_stat_", "pg_ls_", "txid_"].iter().any(|prefix| name.starts_with(prefix));
    if reads {
        return Traces::default();
    }
    // They take a query, or the name of a type, and run it or its checks.
    let runs_code = function(name) == Builtin::Unknown;
    Traces {
        shown: is_volatile || runs_code,
        hidden: runs_code || sets_setting(name),
        locks: SESSION_LOCKS.contains(&name),
    }
}

/// How a built-in function may be used, its volatility aside.
pub(crate) fn function(name: &str) -> Builtin {
    if is_harmless_volatile(name) {
        return Builtin::Harmless;
    }
    // `regexp_..` and `regr_..` have nothing to do with names of objects; all else that begins so has.
    let names_objects = name.starts_with("reg") && !name.starts_with("regexp") && !name.starts_with("regr_");
    let reads_catalogue = names_objects
        || name.starts_with("has_")
        || name.starts_with("to_reg")
        || name.starts_with("aclitem")
        || name.starts_with("pg_") && !HARMLESS_PG.contains(&name)
        || CATALOGUE_FUNCTIONS.contains(&name);
    // Input functions take the OID of any type, a domain with its checks included; validators run what they check.
    let takes_a_type =
        ["_in", "_out", "_recv", "_send", "_validator"].iter().any(|suffix| name.ends_with(suffix));
    let reads_other = takes_a_type
        || name.contains("_to_xml")
        || name.starts_with("txid_")
        || name.starts_with("lo_")
        || name.starts_with("currtid")
        || UNKNOWN_FUNCTIONS.contains(&name);
    if reads_other {
        Builtin::Unknown
    } else if reads_catalogue {
        Builtin::Catalogue
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

/// Whether a text becomes a value of this type by a look at the clock.
pub(crate) fn reads_clock(name: &str) -> bool {
    CLOCK_TYPES.contains(&name)
}
