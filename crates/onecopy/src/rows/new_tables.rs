//! Which replicas hold a new table. Every one does, unless a test wants to see what happens when they do not.
//!
//! `ONECOPY_TEST_PLACEMENT=few`: the two members with the lowest numbers hold each new table, the others none.
//! `ONECOPY_TEST_PLACEMENT=7`: each other member holds each new table or does not, as by a throw of a coin with this seed.
//!
//! Invariant: two members hold everything, so one of them can be lost.

use cluster::ids::TableId;
use cluster::placement::ReplicaSet;

use crate::coordinator::open_error::OpenError;

/// The variable for tests.
const PLACEMENT: &str = "ONECOPY_TEST_PLACEMENT";
/// The number of members that hold everything.
const FULL: usize = 2;

/// The rule for new tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum NewTables {
    #[default]
    Everywhere,
    /// Only where everything is held.
    Few,
    /// There, and at others as by the throw of a coin.
    Thrown { seed: u64 },
}

impl NewTables {
    pub(super) fn from_environment() -> Result<Self, OpenError> {
        match std::env::var(PLACEMENT).ok().as_deref() {
            None | Some("") => Ok(Self::Everywhere),
            Some("few") => Ok(Self::Few),
            Some(seed) => {
                seed.parse().map(|seed| Self::Thrown { seed }).map_err(|_| OpenError::TestVariable {
                    name: PLACEMENT,
                    value: seed.to_owned(),
                    wanted: "expected \"few\" or a seed",
                })
            }
        }
    }

    /// The holders of a new table, if these are not all members.
    pub(super) fn holders(self, table: TableId, members: ReplicaSet) -> Option<ReplicaSet> {
        let (full, others): (Vec<_>, Vec<_>) = members.iter().enumerate().partition(|(at, _)| *at < FULL);
        let full = full.into_iter().map(|(_, replica)| replica);
        let chosen: ReplicaSet = match self {
            Self::Everywhere => return None,
            Self::Few => full.collect(),
            Self::Thrown { seed } => {
                let falls = |at: usize| {
                    let mixed = (seed << 32 ^ u64::from(table.number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    mixed >> (20 + at % 40) & 1 == 1
                };
                full.chain(others.into_iter().filter(|(at, _)| falls(*at)).map(|(_, replica)| replica))
                    .collect()
            }
        };
        (chosen != members).then_some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ids::DatabaseId;

    #[test]
    fn two_members_hold_everything_and_each_other_one_about_half() {
        let members = ReplicaSet::first(4);
        let table = |number| DatabaseId::FIRST.table(number);
        assert_eq!(NewTables::Everywhere.holders(table(1), members), None);
        assert_eq!(NewTables::Few.holders(table(1), members), Some(ReplicaSet::first(2)));
        assert_eq!(NewTables::Few.holders(table(1), ReplicaSet::first(2)), None);
        for replica in [2, 3].map(cluster::ids::ReplicaId) {
            let held = (1..=200).filter(|number| {
                let holders = NewTables::Thrown { seed: 7 }.holders(table(*number), members);
                holders.is_none_or(|holders| holders.contains(replica))
            });
            assert!((60..140).contains(&held.count()), "{replica:?}");
        }
    }
}
