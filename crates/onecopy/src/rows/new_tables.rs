//! Which replicas hold a new table: those that the table `placement` of the configuration names, or every one.
//!
//! A test may have its own rule, in place of the configuration:
//!
//! `ONECOPY_TEST_PLACEMENT=few`: the two members with the lowest numbers hold each new table, the others none.
//! `ONECOPY_TEST_PLACEMENT=7`: each other member holds each new table or does not, as by a throw of a coin with this seed.
//!
//! Invariant: under a test's rule two members hold everything, so one of them can be lost. Of the configuration's rules this is
//! checked when it is read ([`crate::config::placement`]), and for each new table ([`crate::propagate`]).

use cluster::ids::ReplicaId;
use cluster::placement::ReplicaSet;

use crate::config::placement::PlacementRules;
use crate::coordinator::node_kind::NewTable;
use crate::coordinator::open_error::OpenError;

/// The variable for tests.
const PLACEMENT: &str = "ONECOPY_TEST_PLACEMENT";
/// The number of members that hold everything.
const FULL: usize = 2;

/// The rule for new tables.
#[derive(Clone, Debug)]
pub(super) enum NewTables {
    /// As the configuration says. Without rules, every replica holds each table.
    Configured(PlacementRules),
    /// Only where everything is held.
    Few,
    /// There, and at others as by the throw of a coin.
    Thrown { seed: u64 },
}

impl NewTables {
    /// These rules, unless the environment has a rule for tests.
    pub(super) fn of(rules: PlacementRules) -> Result<Self, OpenError> {
        match std::env::var(PLACEMENT).ok().as_deref() {
            None | Some("") => Ok(Self::Configured(rules)),
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

    /// Whether every replica holds each new table.
    pub(super) fn is_everywhere(&self) -> bool {
        matches!(self, Self::Configured(rules) if rules.is_empty())
    }

    /// The holders of a new table, if these are not all members. `named` knows the members by their names. A replica that has left
    /// holds nothing.
    pub(super) fn holders(
        &self,
        table: NewTable<'_>,
        members: ReplicaSet,
        named: impl Fn(&str) -> Option<ReplicaId>,
    ) -> Option<ReplicaSet> {
        let (full, others): (Vec<_>, Vec<_>) = members.iter().enumerate().partition(|(at, _)| *at < FULL);
        let full = full.into_iter().map(|(_, replica)| replica);
        let chosen: ReplicaSet = match self {
            Self::Configured(rules) => {
                rules.of(table.names)?.holders.iter().filter_map(|name| named(name)).collect()
            }
            Self::Few => full.collect(),
            Self::Thrown { seed } => {
                let falls = |at: usize| {
                    let mixed =
                        (*seed << 32 ^ u64::from(table.id.number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
        let table = |number| NewTable { id: DatabaseId::FIRST.table(number), names: &[] };
        let named = |_: &str| None;
        let everywhere = NewTables::Configured(PlacementRules::default());
        assert!(everywhere.is_everywhere() && !NewTables::Few.is_everywhere());
        assert_eq!(everywhere.holders(table(1), members, named), None);
        assert_eq!(NewTables::Few.holders(table(1), members, named), Some(ReplicaSet::first(2)));
        assert_eq!(NewTables::Few.holders(table(1), ReplicaSet::first(2), named), None);
        for replica in [2, 3].map(ReplicaId) {
            let held = (1..=200).filter(|number| {
                let holders = NewTables::Thrown { seed: 7 }.holders(table(*number), members, named);
                holders.is_none_or(|holders| holders.contains(replica))
            });
            assert!((60..140).contains(&held.count()), "{replica:?}");
        }
    }
}
