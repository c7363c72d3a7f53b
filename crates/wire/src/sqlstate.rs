//! The SQLSTATE codes that Onecopy itself gives. Codes of servers are relayed as they are.

#![expect(missing_docs, reason = "the names are PostgreSQL's own condition names")]

pub const WARNING: &str = "01000";
pub const CONNECTION_FAILURE: &str = "08006";
pub const TRANSACTION_RESOLUTION_UNKNOWN: &str = "08007";
pub const PROTOCOL_VIOLATION: &str = "08P01";
pub const FEATURE_NOT_SUPPORTED: &str = "0A000";
pub const SUCCESS: &str = "00000";
pub const CHARACTER_NOT_IN_REPERTOIRE: &str = "22021";
pub const SEQUENCE_GENERATOR_LIMIT_EXCEEDED: &str = "2200H";
pub const INVALID_PARAMETER_VALUE: &str = "22023";
pub const ACTIVE_SQL_TRANSACTION: &str = "25001";
pub const NO_ACTIVE_SQL_TRANSACTION: &str = "25P01";
pub const IN_FAILED_SQL_TRANSACTION: &str = "25P02";
pub const IDLE_IN_TRANSACTION_SESSION_TIMEOUT: &str = "25P03";
pub const TRANSACTION_TIMEOUT: &str = "25P04";
pub const READ_ONLY_SQL_TRANSACTION: &str = "25006";
pub const INVALID_SQL_STATEMENT_NAME: &str = "26000";
pub const INVALID_AUTHORIZATION_SPECIFICATION: &str = "28000";
pub const INVALID_PASSWORD: &str = "28P01";
pub const DEPENDENT_OBJECTS_STILL_EXIST: &str = "2BP01";
pub const INVALID_CURSOR_NAME: &str = "34000";
pub const INVALID_CATALOG_NAME: &str = "3D000";
pub const CHECK_VIOLATION: &str = "23514";
pub const SERIALIZATION_FAILURE: &str = "40001";
pub const DEADLOCK_DETECTED: &str = "40P01";
pub const DUPLICATE_PREPARED_STATEMENT: &str = "42P05";
pub const INSUFFICIENT_PRIVILEGE: &str = "42501";
pub const SYNTAX_ERROR: &str = "42601";
pub const UNDEFINED_OBJECT: &str = "42704";
/// undefined_table
pub const UNDEFINED_TABLE: &str = "42P01";
pub const DISK_FULL: &str = "53100";
pub const TOO_MANY_CONNECTIONS: &str = "53300";
pub const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
pub const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
/// Too long, or too many parts.
pub const STATEMENT_TOO_COMPLEX: &str = "54001";
pub const OBJECT_NOT_IN_PREREQUISITE_STATE: &str = "55000";
pub const OBJECT_IN_USE: &str = "55006";
pub const LOCK_NOT_AVAILABLE: &str = "55P03";
pub const QUERY_CANCELED: &str = "57014";
pub const CONFIG_FILE_ERROR: &str = "F0000";
pub const ADMIN_SHUTDOWN: &str = "57P01";
pub const CANNOT_CONNECT_NOW: &str = "57P03";
pub const IO_ERROR: &str = "58030";
pub const INTERNAL_ERROR: &str = "XX000";
pub const DATA_CORRUPTED: &str = "XX001";
pub const INDEX_CORRUPTED: &str = "XX002";
