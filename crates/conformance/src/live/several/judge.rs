//! What clients of several nodes may be told.
//!
//! A node that lives knows what became of each commit, whatever happened to the leader. So its clients get 40001 or 40P01 at worst. Only
//! two things excuse others:
//!
//! - the client's node was killed or stopped while it tried, or had not come back;
//! - the client's node was cut off from etcd, and says so by 57P03.
//!
//! For example, a connection that ends at node b while node a is killed is a finding.
//!
//! Not here: whether what was answered is right (`sim::check`).

use std::collections::BTreeMap;

use testbed::nodes::name;

use super::super::tally::{Attempt, Ending};
use super::{Strike, StrikeKind};

/// The SQLSTATE of a node that cannot say whether it is replaced.
const CANNOT_SERVE: &str = "57P03";

/// What clients of living nodes were told and must not have been, each with its number.
pub(in crate::live) fn findings(attempts: &[Attempt], strikes: &[Strike]) -> Vec<String> {
    let mut found: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for attempt in attempts {
        let (what, why) = match &attempt.ending {
            Ending::Done | Ending::Again => continue,
            Ending::Told(why) => ("an error", why),
            Ending::Lost { why, is_unknown: false } => ("a lost connection", why),
            Ending::Lost { why, is_unknown: true } => ("an unknown outcome", why),
        };
        if strikes.iter().any(|strike| excuses(strike, attempt, why)) {
            continue;
        }
        let after = strikes.iter().rfind(|strike| strike.at_us <= attempt.end_us);
        let when = after.map_or_else(|| "before any strike".to_owned(), |strike| strike.kind.to_string());
        let first =
            format!("client {} of node {} {}", attempt.client, name(attempt.node), place(attempt, after));
        found.entry(format!("{what} ({when}): {why}")).or_insert((0, first)).0 += 1;
    }
    found.into_iter().map(|(what, (times, first))| format!("{times} times {what}; first {first}")).collect()
}

/// How many unknown outcomes are excused: those of clients of killed nodes.
pub(in crate::live) fn unknown_of_killed(attempts: &[Attempt], strikes: &[Strike]) -> usize {
    let is_excused = |attempt: &&Attempt| match &attempt.ending {
        Ending::Lost { why, is_unknown: true } => strikes.iter().any(|strike| excuses(strike, attempt, why)),
        _ => false,
    };
    attempts.iter().filter(is_excused).count()
}

fn place(attempt: &Attempt, after: Option<&Strike>) -> String {
    let ms = |us: u64| us / 1_000;
    let lasted = format!("after {} ms", ms(attempt.end_us.saturating_sub(attempt.begin_us)));
    let Some(strike) = after else { return format!("at {} ms, {lasted}", ms(attempt.end_us)) };
    let node = strike.node.map_or_else(|| "etcd".to_owned(), |node| format!("node {}", name(node)));
    let since = ms(attempt.end_us - strike.at_us);
    format!("{since} ms after the strike at {node} at {} ms, {lasted}", ms(strike.at_us))
}

fn excuses(strike: &Strike, attempt: &Attempt, why: &str) -> bool {
    let meets = attempt.begin_us <= strike.back_us && strike.at_us <= attempt.end_us;
    meets
        && strike.node == Some(attempt.node)
        && match strike.kind {
            kind if kind.loses_node() => true,
            StrikeKind::CutEtcd => why.starts_with(CANNOT_SERVE),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(node: usize, begin_us: u64, ending: Ending) -> Attempt {
        Attempt { client: 7, node, begin_us, end_us: begin_us + 100, ending }
    }

    fn unknown(why: &str) -> Ending {
        Ending::Lost { why: why.to_owned(), is_unknown: true }
    }

    const fn strike(kind: StrikeKind, node: Option<usize>) -> Strike {
        Strike { kind, node, at_us: 1_000, back_us: 2_000 }
    }

    #[test]
    fn only_clients_of_a_killed_node_may_not_know() {
        let killed = [strike(StrikeKind::Leader, Some(1))];
        let lost = |node, begin| [attempt(node, begin, unknown("connection closed"))];
        assert!(findings(&lost(1, 950), &killed).is_empty());
        assert_eq!(unknown_of_killed(&lost(1, 950), &killed), 1);
        let found = findings(&lost(0, 950), &killed);
        assert!(
            found[0].starts_with("1 times an unknown outcome (leader killed): connection closed"),
            "{found:?}"
        );
        assert!(found[0].contains("client 7 of node a"), "{found:?}");
        assert_eq!(unknown_of_killed(&lost(0, 950), &killed), 0);
        assert_eq!(findings(&lost(1, 2_500), &killed).len(), 1, "it serves again by then");
        assert_eq!(findings(&lost(1, 500), &killed).len(), 1, "it was not struck yet");
        assert!(findings(&lost(1, 500), &[])[0].contains("before any strike"));
        for kind in [StrikeKind::HangLeader, StrikeKind::CutNodes, StrikeKind::CutEtcd] {
            assert_eq!(findings(&lost(1, 1_500), &[strike(kind, Some(1))]).len(), 1, "{kind}");
        }
    }

    #[test]
    fn errors_other_than_those_to_be_tried_again_are_findings() {
        let cut = [strike(StrikeKind::CutEtcd, Some(1))];
        let ends = |node, ending| findings(&[attempt(node, 1_500, ending)], &cut).len();
        assert_eq!(ends(1, Ending::Done) + ends(1, Ending::Again), 0);
        assert_eq!(ends(1, unknown("57P03 etcd does not answer")), 0);
        assert_eq!(ends(2, unknown("57P03 etcd does not answer")), 1, "another node reaches etcd");
        assert_eq!(ends(1, Ending::Told("XX000 internal".to_owned())), 1);
        let quiet = [strike(StrikeKind::EtcdLeader, None)];
        let twice = vec![attempt(0, 1_500, unknown("57P03 etcd does not answer")); 2];
        assert!(findings(&twice, &quiet)[0].starts_with("2 times"), "a majority of etcd is there");
    }
}
