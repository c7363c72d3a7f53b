//! The start of an instance of the family, and which replica can be its first anchor.

use std::fmt;

use super::{Choices, Rules};
use crate::ids::{Epoch, ReplicaId, Version};
use crate::placement::Placement;

/// The start of an instance.
#[derive(Clone, Debug)]
pub struct Options {
    /// The protocol of the family.
    pub choices: Choices,
    /// Number of replicas; they are numbered from 0.
    pub replicas: u16,
    /// The first anchor: the home of what cannot be bounded, and the server of the catalogues.
    pub anchor: ReplicaId,
    /// The tables that each replica holds.
    pub placement: Placement,
    /// The term of this leader.
    pub epoch: Epoch,
    /// The last version in the log. All versions up to it are needed.
    pub last: Version,
    /// No schema change after this version is in the log; `last` if that is not known.
    pub schema: Version,
    /// [`super::REFRESH_PAUSE_US`], except in tests and simulations.
    pub refresh_pause_us: u64,
    /// [`super::KEYS_MAX`], except in tests and simulations.
    pub keys_max: usize,
    /// [`super::REFRESH_VERSIONS_MAX`], except in tests and simulations.
    pub refresh_versions_max: u64,
    /// All on, except in tests.
    pub rules: Rules,
}

impl Options {
    /// Transactions of which nothing is known run at the anchor, so it must hold everything.
    pub(super) fn check_anchor(&self) -> Result<(), AnchorError> {
        let anchor = self.anchor;
        if anchor.0 >= self.replicas {
            return Err(AnchorError::NoReplica { anchor, replicas: self.replicas });
        }
        if !self.placement.holdings(anchor).is_everything() {
            return Err(AnchorError::IsPartial { anchor });
        }
        Ok(())
    }
}

/// A replica cannot be the first anchor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnchorError {
    /// There is no replica of this number.
    NoReplica {
        /// The anchor that was asked for.
        anchor: ReplicaId,
        /// The number of replicas.
        replicas: u16,
    },
    /// It lacks some table.
    IsPartial {
        /// The anchor that was asked for.
        anchor: ReplicaId,
    },
}

impl fmt::Display for AnchorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReplica { anchor, replicas } => {
                write!(f, "the anchor is to be replica {anchor}, and there are {replicas}, counted from 0")
            }
            Self::IsPartial { anchor } => {
                write!(f, "the anchor is to be replica {anchor}, which does not hold every table")
            }
        }
    }
}

impl std::error::Error for AnchorError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;
    use crate::placement::{Copies, ReplicaSet};
    use crate::protocols::onecopy::ONECOPY;
    use crate::protocols::rows::{KEYS_MAX, REFRESH_PAUSE_US, REFRESH_VERSIONS_MAX, Rows};

    /// Three replicas, of which only the first one holds table 1.
    fn begun_at(anchor: u16) -> Result<(), AnchorError> {
        let mut placement = Placement::full(3);
        placement.restrict(DatabaseId::FIRST.table(1), Copies::Whole(ReplicaSet::first(1)));
        let options = Options {
            choices: ONECOPY,
            replicas: 3,
            anchor: ReplicaId(anchor),
            placement,
            epoch: Epoch(1),
            last: Version::ZERO,
            schema: Version::ZERO,
            refresh_pause_us: REFRESH_PAUSE_US,
            keys_max: KEYS_MAX,
            refresh_versions_max: REFRESH_VERSIONS_MAX,
            rules: Rules::default(),
        };
        Rows::new(options).map(drop)
    }

    #[test]
    fn the_first_anchor_is_a_replica_that_holds_everything() {
        assert_eq!(begun_at(0), Ok(()));
        assert_eq!(begun_at(1), Err(AnchorError::IsPartial { anchor: ReplicaId(1) }));
        assert_eq!(begun_at(3), Err(AnchorError::NoReplica { anchor: ReplicaId(3), replicas: 3 }));
    }
}
