//! The client's time-outs, for waits inside Onecopy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// All time-outs of a server that apply to a transaction.
const NAMES: [&str; 4] =
    ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", TRANSACTION_TIMEOUT];
/// Limits the whole transaction.
const TRANSACTION_TIMEOUT: &str = "transaction_timeout";
/// The first version of PostgreSQL that has it.
const TRANSACTION_TIMEOUT_SINCE: u32 = 17;

/// Lifts the other three for the rest of the transaction.
const LIFTED: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; \
                      SET LOCAL idle_in_transaction_session_timeout = 0";

pub(crate) fn is_timeout(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Whether the value means no limit.
pub(crate) fn is_none(value: &str) -> bool {
    milliseconds(value) == Some(0)
}

/// Statements that lift all time-outs for the rest of the transaction, on a server of this version.
pub(crate) fn lifted(version: u32) -> String {
    if version < TRANSACTION_TIMEOUT_SINCE {
        return LIFTED.to_owned();
    }
    format!("{LIFTED}; SET LOCAL {TRANSACTION_TIMEOUT} = 0")
}

/// Statements that lift only the time-outs that end the connection.
pub(crate) fn lifted_for_readers(version: u32) -> String {
    let mut sql = "SET LOCAL idle_in_transaction_session_timeout = 0".to_owned();
    if version >= TRANSACTION_TIMEOUT_SINCE {
        sql.push_str("; SET LOCAL transaction_timeout = 0");
    }
    sql
}

/// The server accepts no longer limit.
const LIMIT_MS_MAX: u64 = i32::MAX as u64;

/// Time-outs in milliseconds; 0 means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_field_names, reason = "units come last")]
pub(crate) struct Timeouts {
    lock_ms: u64,
    statement_ms: u64,
    /// From SET LOCAL, until the transaction ends.
    local_lock_ms: Option<u64>,
    local_statement_ms: Option<u64>,
}

impl Timeouts {
    pub(crate) fn lock(&self) -> Option<Duration> {
        let limit_ms = self.local_lock_ms.unwrap_or(self.lock_ms);
        (limit_ms > 0).then(|| Duration::from_millis(limit_ms))
    }

    pub(crate) fn statement(&self) -> Option<Duration> {
        let limit_ms = self.local_statement_ms.unwrap_or(self.statement_ms);
        (limit_ms > 0).then(|| Duration::from_millis(limit_ms))
    }

    /// Notes a new value. The server judges an unreadable one, which limits nothing here.
    pub(crate) fn note(&mut self, name: &str, value: Option<&str>, is_local: bool) {
        let limit_ms = value.and_then(milliseconds).unwrap_or(0);
        match (name, is_local) {
            ("lock_timeout", false) => self.lock_ms = limit_ms,
            ("lock_timeout", true) => self.local_lock_ms = Some(limit_ms),
            ("statement_timeout", false) => self.statement_ms = limit_ms,
            ("statement_timeout", true) => self.local_statement_ms = Some(limit_ms),
            _ => {}
        }
    }

    /// Takes over the SET LOCAL values of the open transaction.
    pub(crate) fn take_local(&mut self, before: &Self) {
        (self.local_lock_ms, self.local_statement_ms) = (before.local_lock_ms, before.local_statement_ms);
    }

    /// Drops them at the end of the transaction.
    pub(crate) fn end_local(&mut self) {
        (self.local_lock_ms, self.local_statement_ms) = (None, None);
    }
}

/// Reads a time as the server does: a number, then a unit unless it means milliseconds.
fn milliseconds(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" | "ms" => 1,
        "us" => return Some(number.div_ceil(1_000)),
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    // The server accepts no more.
    number.checked_mul(factor).filter(|limit_ms| *limit_ms <= LIMIT_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_does_not_know_is_not_lifted_there() {
        assert!(!lifted(16).contains(TRANSACTION_TIMEOUT));
        for version in [17, 18] {
            assert!(NAMES.iter().all(|name| lifted(version).contains(&format!("SET LOCAL {name} = 0"))));
        }
        assert!(is_none("0") && is_none("0ms") && !is_none("1") && !is_none("soon"));
    }

    #[test]
    fn timeouts_are_read_as_the_server_reads_them() {
        for (text, limit_ms) in [("250", 250), ("5s", 5_000), (" 2 min ", 120_000), ("1500us", 2), ("0", 0)] {
            assert_eq!(milliseconds(text), Some(limit_ms), "{text}");
        }
        assert_eq!(milliseconds("soon"), None);
        assert_eq!((milliseconds("300000000000d"), milliseconds("2147483648")), (None, None));
        let mut timeouts = Timeouts::default();
        timeouts.note("lock_timeout", Some("5s"), false);
        timeouts.note("lock_timeout", Some("10ms"), true);
        assert_eq!(timeouts.lock(), Some(Duration::from_millis(10)));
        timeouts.end_local();
        assert_eq!(timeouts.lock(), Some(Duration::from_secs(5)));
        timeouts.note("lock_timeout", None, false);
        assert_eq!((timeouts.lock(), timeouts.statement()), (None, None));
    }
}
