//! The isolation level and read-only mode of transactions, which Onecopy keeps instead of the servers.
//!
//! Example: `SET default_transaction_isolation = 'repeatable read'` reaches no server. The next BEGIN at a home says
//! ISOLATION LEVEL REPEATABLE READ, and SHOW is answered from here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use sql::{Isolation, TransactionOptions};

use crate::client::forbidden::ValueError;

/// The settings `default_transaction_isolation` and `default_transaction_read_only` of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TransactionDefaults {
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
}

impl Default for TransactionDefaults {
    fn default() -> Self {
        Self { isolation: Isolation::ReadCommitted, read_only: false }
    }
}

impl TransactionDefaults {
    /// The settings that Onecopy answers for: these two, and the same of the open transaction.
    pub(super) const NAMES: [&str; 4] = [
        "default_transaction_isolation",
        "default_transaction_read_only",
        "transaction_isolation",
        "transaction_read_only",
    ];

    /// The value of one of [`Self::NAMES`], as SHOW prints it. `open` are the options of the open transaction.
    pub(crate) fn value(self, name: &str, open: Option<TransactionOptions>) -> Cow<'static, str> {
        let open = open.filter(|_| name.starts_with("transaction_"));
        let isolation = open.and_then(|options| options.isolation).unwrap_or(self.isolation);
        let read_only = open.and_then(|options| options.read_only).unwrap_or(self.read_only);
        match name {
            "default_transaction_isolation" | "transaction_isolation" => {
                level(isolation).to_lowercase().into()
            }
            _ => if read_only { "on" } else { "off" }.into(),
        }
    }

    /// Sets one of the two defaults.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<(), ValueError> {
        let owned = || name.to_owned();
        let lower = value.trim().to_ascii_lowercase();
        match name {
            "default_transaction_isolation" => {
                self.isolation = match lower.as_str() {
                    "read uncommitted" => Isolation::ReadUncommitted,
                    "read committed" => Isolation::ReadCommitted,
                    "repeatable read" => Isolation::RepeatableRead,
                    "serializable" => Isolation::Serializable,
                    _ => return Err(ValueError::Invalid { name: owned(), value: value.to_owned() }),
                }
            }
            "default_transaction_read_only" => {
                self.read_only = match lower.as_str() {
                    "on" | "true" | "yes" | "1" => true,
                    "off" | "false" | "no" | "0" => false,
                    _ => return Err(ValueError::NotBoolean { name: owned() }),
                }
            }
            _ => return Err(ValueError::OfTransaction { name: owned() }),
        }
        Ok(())
    }
}

/// The isolation level as BEGIN wants it.
pub(crate) fn level(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "READ UNCOMMITTED",
        Isolation::ReadCommitted => "READ COMMITTED",
        Isolation::RepeatableRead => "REPEATABLE READ",
        Isolation::Serializable => "SERIALIZABLE",
    }
}
