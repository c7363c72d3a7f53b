//! Transfers keep the total: every read of all accounts at one moment sees the same total.
//!
//! A transaction may see its own transfer half done, so its reads count only before its first transfer.

use super::{Anomaly, Finding};
use crate::history::History;

pub(super) fn check(history: &History) -> Vec<Finding> {
    let Some(right) = history.total else { return Vec::new() };
    let mut findings = Vec::new();
    for (number, transaction) in history.transactions.iter().enumerate() {
        let before_its_own = transaction.statements.iter().take_while(|statement| !statement.moves);
        for statement in before_its_own.filter(|statement| statement.end_us != 0) {
            if let Some(total) = statement.total.filter(|total| *total != right) {
                let text = format!("T{number} sees {total} in all accounts, not {right}");
                findings.push(Finding { anomaly: Anomaly::WrongTotal, text });
            }
        }
    }
    findings
}
