//! CHECK REPLICAS: as VERIFY, and a replica that is not like the others serves nothing from then on.
//!
//! What most of the checked replicas have is taken to be right, since every one of them has made it from the same
//! records by itself; where there are as many of one kind as of another, it is what the home of updates has. A replica
//! that is down or in quarantine is not looked at: when it comes back it has to be checked again.
//!
//! If that is the home of updates, another one takes its place.
//!
//! Invariant: the quarantine outlives a restart, since nothing in the log would show again what is wrong.
//!
//! Non-goal: mending. The answer and SHOW REPLICAS say which command does.

use std::collections::BTreeMap;
use std::fmt;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use wire::sqlstate;

use super::verify;
use crate::backend::BackendError;
use crate::coordinator::{Coordinator, QuarantineDuration};
use crate::error::Refusal;

/// The columns of the answer.
pub(crate) const COLUMNS: &str = "replica version result detail";
/// So many of what differs are named.
const NAMED_MAX: usize = 5;
/// The class of SQLSTATEs that say that a server cannot read its own data.
const DAMAGE_CLASS: &[u8] = b"XX";

/// What was found at a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Contents {
    /// Its checksums by name.
    Sums(BTreeMap<String, String>),
    /// Its server cannot read its own data: what the server said.
    Damaged(String),
}

/// In what a replica differs from another one at a version.
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

/// One row a replica.
pub(crate) async fn run(coordinator: &Coordinator) -> Result<Vec<Vec<String>>, Refusal> {
    let (checked, skipped): (Vec<_>, Vec<_>) =
        coordinator.replicas().into_iter().partition(|status| status.state == State::Up);
    let checked: Vec<ReplicaId> = checked.iter().map(|status| status.replica).collect();
    if checked.len() < 2 {
        return Err(Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            "there are no two replicas that could be compared",
            "SHOW REPLICAS shows the state of each replica.",
        ));
    }
    let _turn = verify::Turn::take(coordinator)?;
    let (version, sums) = sums(coordinator, &checked).await?;
    let right = &sums[most_common(coordinator.view.anchor(), &checked, &sums)];
    let mut rows = Vec::new();
    for (replica, found) in checked.iter().zip(&sums) {
        let name = coordinator.seats[usize::from(replica.0)].name.clone();
        let Some(what) = difference(found, right) else {
            rows.push(vec![name, version.to_string(), "identical".to_owned(), String::new()]);
            continue;
        };
        let reason = Difference { version, what: what.clone() }.to_string();
        coordinator.quarantine(*replica, &reason, QuarantineDuration::UntilRebuilt);
        let detail = format!("{what}; REBUILD REPLICA {name} repairs it");
        rows.push(vec![name, version.to_string(), "QUARANTINED".to_owned(), detail]);
    }
    for status in skipped {
        let name = coordinator.seats[usize::from(status.replica.0)].name.clone();
        rows.push(vec![name, String::new(), "NOT CHECKED".to_owned(), "it is not up".to_owned()]);
    }
    rows.sort();
    Ok(rows)
}

/// In what a replica that has just joined differs from the anchor, at one version; none if in nothing.
pub(crate) async fn compare_with_anchor(
    coordinator: &Coordinator,
    replica: ReplicaId,
) -> Result<Option<Difference>, Refusal> {
    let _turn = verify::Turn::take(coordinator)?;
    let (version, sums) = sums(coordinator, &[replica, coordinator.view.anchor()]).await?;
    let what = difference(&sums[0], &sums[1]);
    Ok(what.map(|what| Difference { version, what }))
}

/// The checksums of these replicas, at one version.
async fn sums(
    coordinator: &Coordinator,
    replicas: &[ReplicaId],
) -> Result<(Version, Vec<Contents>), Refusal> {
    let (version, mut open) = verify::snapshots(coordinator, replicas).await?;
    let mut all = Vec::new();
    for (connection, replica) in open.iter_mut().zip(replicas) {
        let found = match super::checksum::checksums(connection).await {
            Ok(sums) => Contents::Sums(sums),
            Err(error) if is_damage(&error) => Contents::Damaged(error.to_string()),
            Err(error) => {
                let name = &coordinator.seats[usize::from(replica.0)].name;
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

/// The place of what most replicas have; of equally many, what the anchor is among.
fn most_common(anchor: ReplicaId, replicas: &[ReplicaId], sums: &[Contents]) -> usize {
    let count = |at: &usize| {
        let alike = sums.iter().filter(|other| **other == sums[*at]).count();
        let has_anchor = replicas.iter().zip(sums).any(|(r, s)| *r == anchor && *s == sums[*at]);
        (matches!(sums[*at], Contents::Sums(_)), alike, has_anchor)
    };
    (0..sums.len()).max_by_key(count).unwrap_or_default()
}

/// What is not as it should be; `None` when all is.
fn difference(found: &Contents, right: &Contents) -> Option<String> {
    let (found, right) = match (found, right) {
        (Contents::Damaged(error), _) => return Some(format!("its data cannot be read: {error}")),
        (Contents::Sums(_), Contents::Damaged(_)) => return None,
        (Contents::Sums(found), Contents::Sums(right)) => (found, right),
    };
    let mut names: Vec<&str> = found
        .keys()
        .chain(right.keys())
        .filter(|name| found.get(*name) != right.get(*name))
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
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

    const IDS: [ReplicaId; 3] = [ReplicaId(0), ReplicaId(1), ReplicaId(2)];

    fn is(of: &str) -> Contents {
        Contents::Sums(BTreeMap::from([("table public.a".to_owned(), of.to_owned())]))
    }

    #[test]
    fn most_are_right_and_between_two_the_home_is() {
        let all = [is("x"), is("y"), is("y")];
        assert_eq!(all[most_common(IDS[0], &IDS, &all)], is("y"));
        let two = [is("x"), is("y")];
        for anchor in [0, 1] {
            assert_eq!(two[most_common(IDS[anchor], &IDS[..2], &two)], two[anchor]);
        }
        // What cannot be read is never right, however many there are.
        let broken = [Contents::Damaged("gone".to_owned()), Contents::Damaged("gone".to_owned()), is("y")];
        assert_eq!(most_common(IDS[0], &IDS, &broken), 2);
    }

    #[test]
    fn what_differs_is_named() {
        assert_eq!(difference(&is("x"), &is("x")), None);
        assert_eq!(difference(&is("x"), &is("y")).as_deref(), Some("table public.a"));
        let many = Contents::Sums((0..7).map(|i| (format!("table t{i}"), String::new())).collect());
        let text = difference(&many, &Contents::Sums(BTreeMap::new())).unwrap();
        assert!(text.ends_with("table t4 and 2 more"), "{text}");
        assert!(
            difference(&Contents::Damaged("invalid page".to_owned()), &is("x"))
                .unwrap()
                .contains("invalid page")
        );
    }
}
