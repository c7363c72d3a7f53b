//! CHECK REPLICAS: compares as VERIFY does, and quarantines a replica that differs from the others.
//!
//! The most common contents of a table among its holders are taken to be right ([`super::comparison`]). Of two equally
//! common contents, the anchor's are. If that left no replica that holds everything, the anchor alone is taken to be
//! right. A replica that is down or in quarantine is not checked: when it comes back it has to be checked again.
//!
//! If the quarantined replica is the home of updates, another one takes its place.
//!
//! Invariant: the quarantine outlives a restart, since the log would not show the difference again.
//!
//! Non-goal: repair. The answer and SHOW REPLICAS name the command for it.

use std::collections::BTreeSet;
use std::fmt;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use wire::sqlstate;

use super::checksum::checksums;
use super::comparison::{Checksums, differing};
use super::verify;
use crate::backend::BackendError;
use crate::coordinator::parking::ParkingState;
use crate::coordinator::{Leader, QuarantineDuration};
use crate::error::Refusal;

/// The columns of the answer.
pub(crate) const COLUMNS: &str = "replica version result detail";
/// The result of a replica that is parked.
pub(crate) const PARKED: &str = "parked";
/// So many of the differing names are listed.
const NAMED_MAX: usize = 5;
/// The class of SQLSTATEs that say that a server cannot read its own data.
const DAMAGE_CLASS: &[u8] = b"XX";

/// The contents of a replica, as far as they can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Contents {
    /// The checksums of its tables and schema.
    Sums(Checksums),
    /// Its server cannot read its own data, and reported this.
    Damaged(String),
}

/// The difference between a replica and others at a version.
#[derive(Debug)]
pub(crate) struct Difference {
    version: Version,
    what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, what } = self;
        write!(f, "it differs from the other replicas at version {version}: {what}")
    }
}

/// Returns one row for each replica.
pub(crate) async fn run(leader: &Leader) -> Result<Vec<Vec<String>>, Refusal> {
    let (checked, skipped): (Vec<_>, Vec<_>) =
        leader.replicas().into_iter().partition(|status| status.state == State::Up);
    let checked: Vec<ReplicaId> = checked.iter().map(|status| status.replica).collect();
    if checked.len() < 2 {
        return Err(Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            "there are no two replicas that could be compared",
            "SHOW REPLICAS shows the state of each replica.",
        ));
    }
    let _turn = verify::ComparisonLock::take(leader)?;
    let (version, sums) = sums(leader, &checked).await?;
    let anchor = checked.iter().position(|replica| *replica == leader.view.anchor());
    let mut rows = Vec::new();
    for (replica, difference) in checked.iter().zip(differences(&sums, anchor)) {
        let name = leader.seats[usize::from(replica.0)].name.clone();
        let Some(what) = difference else {
            rows.push(vec![name, version.to_string(), "identical".to_owned(), String::new()]);
            continue;
        };
        let reason = Difference { version, what: what.clone() }.to_string();
        leader.quarantine(*replica, &reason, QuarantineDuration::UntilRebuilt);
        let detail = format!("{what}; REBUILD REPLICA {name} repairs it");
        rows.push(vec![name, version.to_string(), "QUARANTINED".to_owned(), detail]);
    }
    for status in skipped {
        let name = leader.seats[usize::from(status.replica.0)].name.clone();
        let (result, detail) = match leader.parking.state(status.replica) {
            ParkingState::Parked { .. } => (PARKED, ""),
            _ => ("NOT CHECKED", "it is not up"),
        };
        rows.push(vec![name, String::new(), result.to_owned(), detail.to_owned()]);
    }
    rows.sort();
    Ok(rows)
}

/// Compares a replica that has just joined with the anchor, at one version.
pub(crate) async fn compare_with_anchor(
    leader: &Leader,
    replica: ReplicaId,
) -> Result<Option<Difference>, Refusal> {
    let _turn = verify::ComparisonLock::take(leader)?;
    let (version, sums) = sums(leader, &[leader.view.anchor(), replica]).await?;
    let what = differences(&sums, Some(0)).pop().flatten();
    Ok(what.map(|what| Difference { version, what }))
}

/// The checksums of these replicas, at one version.
async fn sums(leader: &Leader, replicas: &[ReplicaId]) -> Result<(Version, Vec<Contents>), Refusal> {
    let (version, mut open) = verify::snapshots(leader, replicas).await?;
    let mut all = Vec::new();
    for (connection, replica) in open.iter_mut().zip(replicas) {
        let found = match checksums(connection, &leader.shares(*replica)).await {
            Ok(sums) => Contents::Sums(sums),
            Err(error) if is_damage(&error) => Contents::Damaged(error.to_string()),
            Err(error) => {
                let name = &leader.seats[usize::from(replica.0)].name;
                return Err(Refusal::plain(
                    sqlstate::CONNECTION_FAILURE,
                    format!("{name} could not be read: {error}"),
                ));
            }
        };
        all.push(found);
    }
    Ok((version, all))
}

fn is_damage(error: &BackendError) -> bool {
    error.sqlstate().is_some_and(|state| state.starts_with(DAMAGE_CLASS))
}

/// The names in which each of these replicas is wrong, as a text, or `None` if it is right. `anchor` is the place of
/// the anchor.
fn differences(found: &[Contents], anchor: Option<usize>) -> Vec<Option<String>> {
    let sums = |place: &usize| match &found[*place] {
        Contents::Sums(sums) => Some((*place, sums)),
        Contents::Damaged(_) => None,
    };
    let places: Vec<usize> = (0..found.len()).collect();
    let (readable, sums): (Vec<usize>, Vec<&Checksums>) = places.iter().filter_map(sums).unzip();
    let whole = || sums.iter().position(|one| one.not_held.is_empty());
    let preferred =
        readable.iter().position(|place| Some(*place) == anchor).or_else(whole).unwrap_or_default();
    let mut wrong: Vec<Vec<&str>> = vec![Vec::new(); sums.len()];
    for (name, places) in differing(&sums, preferred) {
        for place in places {
            wrong[place].push(name);
        }
    }
    let is_whole = |place: &usize| wrong[*place].is_empty() && sums[*place].not_held.is_empty();
    if !sums.is_empty() && !(0..sums.len()).any(|place| is_whole(&place)) {
        wrong = sums.iter().map(|one| unequal(one, sums[preferred])).collect();
    }
    let mut differences: Vec<Option<String>> = (found.iter())
        .map(|one| match one {
            Contents::Damaged(error) => Some(format!("its data cannot be read: {error}")),
            Contents::Sums(_) => None,
        })
        .collect();
    for (place, names) in readable.iter().zip(wrong) {
        differences[*place] = named(names);
    }
    differences
}

/// The names in which two replicas differ, of those that both hold.
fn unequal<'a>(one: &'a Checksums, other: &'a Checksums) -> Vec<&'a str> {
    let both = [one, other];
    let differs = |name: &&String| {
        let is_held = both.iter().all(|replica| !replica.not_held.contains(*name));
        is_held && one.sums.get(*name) != other.sums.get(*name)
    };
    let names: BTreeSet<&String> = both.iter().flat_map(|replica| replica.sums.keys()).collect();
    names.into_iter().filter(differs).map(String::as_str).collect()
}

/// Some of the names, as a text, or `None` if there are none.
fn named(mut names: Vec<&str>) -> Option<String> {
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let named = names.join(", ");
    match (names.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named),
        (false, more) => Some(format!("{named} and {more} more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(of: &str) -> Contents {
        has(&[("table public.a", of)], &[])
    }

    fn has(sums: &[(&str, &str)], not_held: &[&str]) -> Contents {
        let sums = sums.iter().map(|(name, sum)| ((*name).to_owned(), (*sum).to_owned())).collect();
        let not_held = not_held.iter().map(|name| (*name).to_owned()).collect();
        Contents::Sums(Checksums { sums, not_held, ..Checksums::default() })
    }

    fn damaged() -> Contents {
        Contents::Damaged("invalid page".to_owned())
    }

    /// The places of the replicas that differ.
    fn differ(found: &[Contents], anchor: usize) -> Vec<usize> {
        let differences = differences(found, Some(anchor));
        differences.iter().enumerate().filter_map(|(place, one)| one.as_ref().map(|_| place)).collect()
    }

    #[test]
    fn most_are_right_and_between_two_the_anchor_is() {
        assert_eq!(differ(&[is("x"), is("y"), is("y")], 0), [0]);
        for (anchor, other) in [(0, 1), (1, 0)] {
            assert_eq!(differ(&[is("x"), is("y")], anchor), [other]);
        }
        // Unreadable contents are never right, however many replicas have them.
        assert_eq!(differ(&[damaged(), damaged(), is("y")], 0), [0, 1]);
        assert_eq!(differ(&[damaged(), damaged()], 0), [0, 1]);
    }

    #[test]
    fn one_replica_that_holds_everything_stays() {
        let each_wrong_somewhere = [["y", "1", "1"], ["x", "2", "1"], ["x", "1", "2"]]
            .map(|[a, b, c]| has(&[("a", a), ("b", b), ("c", c)], &[]));
        assert_eq!(differ(&each_wrong_somewhere, 1), [0, 2]);
        // The two partial replicas agree on table a, but no replica would hold table b any more.
        let a = |sum| has(&[("a", sum)], &["b"]);
        let full = has(&[("a", "y"), ("b", "1")], &[]);
        assert_eq!(differ(&[full, a("x"), a("x")], 0), [1, 2]);
    }

    #[test]
    fn a_table_that_a_replica_does_not_hold_is_no_difference() {
        let full = has(&[("a", "x"), ("b", "1")], &[]);
        let partial = has(&[("a", "x")], &["b"]);
        assert!(differ(&[full.clone(), partial.clone(), full.clone()], 0).is_empty());
        let wrong = has(&[("a", "y")], &["b"]);
        assert_eq!(differ(&[full.clone(), wrong, full], 0), [1]);
    }

    #[test]
    fn what_differs_is_named() {
        let text = |found: Contents, right: Contents| differences(&[right, found], Some(0)).pop().unwrap();
        assert_eq!(text(is("x"), is("x")), None);
        assert_eq!(text(is("x"), is("y")).as_deref(), Some("table public.a"));
        let names: Vec<String> = (0..7).map(|i| format!("table t{i}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
        let text_of_many = text(has(&many, &[]), has(&[], &[])).unwrap();
        assert!(text_of_many.ends_with("table t4 and 2 more"), "{text_of_many}");
        assert!(text(damaged(), is("x")).unwrap().contains("invalid page"));
    }
}
