//! The longest time without a successful commit, by kind of fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sim::history::{History, Outcome};

use super::fault_injector::{InjectedFault, Kind};

/// For each kind, at the anchor and elsewhere, how often it struck and the longest time between two successful commits from
/// then on to the next strike.
pub(super) fn table(strikes: &[InjectedFault], history: &History) -> String {
    let commits = commits(history);
    let mut kinds: BTreeMap<(Kind, bool), (u64, u64)> = BTreeMap::new();
    for (index, strike) in strikes.iter().enumerate() {
        let until = strikes.get(index + 1).map_or(u64::MAX, |next| next.at_us);
        let at_anchor = strike.at_anchor && strike.kind.is_of_a_replica();
        let entry = kinds.entry((strike.kind, at_anchor)).or_default();
        entry.0 += 1;
        entry.1 = entry.1.max(longest(&commits, strike.at_us, until));
    }
    let mut text = format!("{:<24}{:<10}{:>8}{:>18}\n", "strike", "at", "times", "longest stall, ms");
    for ((kind, at_anchor), (times, stall_us)) in kinds {
        let place = match (kind.is_of_a_replica(), at_anchor) {
            (false, _) => "",
            (true, true) => "anchor",
            (true, false) => "replica",
        };
        let _ = writeln!(text, "{kind:<24}{place:<10}{times:>8}{:>18}", stall_us / 1_000);
    }
    let quiet = strikes.first().map_or(u64::MAX, |first| first.at_us);
    let _ = writeln!(text, "{:<42}{:>18}", "before the first strike", longest(&commits, 0, quiet) / 1_000);
    text
}

/// When transactions that wrote were acknowledged, in order.
fn commits(history: &History) -> Vec<u64> {
    let wrote = |t: &&sim::history::Transaction| {
        t.outcome == Outcome::Committed && t.statements.iter().any(|statement| !statement.writes.is_empty())
    };
    let mut commits: Vec<u64> = history.transactions.iter().filter(wrote).map(|t| t.end_us).collect();
    commits.sort_unstable();
    commits
}

/// The longest part of a span without a commit: before its beginning no client waited for it, after its end others
/// are to blame.
fn longest(commits: &[u64], from: u64, until: u64) -> u64 {
    commits
        .windows(2)
        .filter(|pair| pair[1] > from && pair[0] < until)
        .map(|pair| pair[1].min(until) - pair[0].max(from))
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_from_the_strike_to_the_next_commit() {
        let commits = [10, 20, 100, 110, 400];
        assert_eq!(longest(&commits, 30, 105), 70);
        assert_eq!(longest(&commits, 0, 55), 35, "the span ends while no client is served");
        assert_eq!(longest(&commits, 105, 1_000), 290);
        assert_eq!(longest(&commits, 500, 1_000), 0, "no client tried any more");
    }
}
