//! What a history is held to.
//!
//! | promise | snapshots | order of commits |
//! |---|---|---|
//! | `as-asked` | of the present | one for all |
//! | `old-snapshots` | of any earlier moment of that order | one for all |
//! | `parallel` | with each commit, all that it saw | only between commits of which one saw the other |
//!
//! A history that keeps `old-snapshots` keeps `parallel`, if sessions are held to the same. What keeps `as-asked` keeps both, with one
//! exception: only the weaker two ask that a transaction above READ COMMITTED overwrites no row version that its snapshot
//! lacks, even if it did not read that row. `parallel` asks no more of SERIALIZABLE than of REPEATABLE READ.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::graph::{Age, Edge, Graph};

/// What the judges hold a history to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promise {
    /// Each transaction has the level that it asked for, and no snapshot is stale.
    AsAsked,
    /// The same levels, but a snapshot may be of any earlier moment (generalised snapshot isolation).
    OldSnapshots(Sessions),
    /// Parallel Snapshot Isolation for everything at REPEATABLE READ and above.
    Parallel(Sessions),
}

/// Whether a session sees what it saw and committed before, where snapshots may be old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sessions {
    /// A session may see less than it did before.
    Apart,
    /// A session sees all that it saw and committed before.
    InOrder,
}

impl Promise {
    /// All promises.
    pub const ALL: [Self; 5] = [
        Self::AsAsked,
        Self::OldSnapshots(Sessions::Apart),
        Self::OldSnapshots(Sessions::InOrder),
        Self::Parallel(Sessions::Apart),
        Self::Parallel(Sessions::InOrder),
    ];

    /// How old a snapshot may be.
    pub(super) fn age(self) -> Age {
        if self == Self::AsAsked { Age::Present } else { Age::Any }
    }

    /// Real time orders the transactions of a session anyway where no snapshot is stale.
    pub(super) fn sessions(self) -> Sessions {
        match self {
            Self::AsAsked => Sessions::Apart,
            Self::OldSnapshots(sessions) | Self::Parallel(sessions) => sessions,
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AsAsked => "as-asked",
            Self::OldSnapshots(Sessions::Apart) => "old-snapshots",
            Self::OldSnapshots(Sessions::InOrder) => "old-snapshots+sessions",
            Self::Parallel(Sessions::Apart) => "parallel",
            Self::Parallel(Sessions::InOrder) => "parallel+sessions",
        })
    }
}

/// A name that is no promise.
#[derive(Debug)]
pub struct UnknownPromise(String);

impl fmt::Display for UnknownPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Promise::ALL.map(|promise| promise.to_string()).join(", ");
        write!(f, "unknown promise \"{}\"; known are {names}", self.0)
    }
}

impl std::error::Error for UnknownPromise {}

impl FromStr for Promise {
    type Err = UnknownPromise;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.to_string() == name);
        known.ok_or_else(|| UnknownPromise(name.to_owned()))
    }
}

/// The order within each session, as edges from each of its points to the next one.
///
/// Transactions with an unknown outcome have no place in it: their commit may come after the session has gone on.
#[derive(Debug)]
pub(super) struct SessionOrder {
    sessions: Sessions,
    last: BTreeMap<u32, usize>,
}

impl SessionOrder {
    /// An order without points yet.
    pub(super) fn new(sessions: Sessions) -> Self {
        Self { sessions, last: BTreeMap::new() }
    }

    /// The session goes on with this point.
    pub(super) fn follow(&mut self, session: u32, point: usize, graph: &mut Graph) {
        if self.sessions == Sessions::Apart {
            return;
        }
        if let Some(before) = self.last.insert(session, point) {
            graph.edge(before, point, Edge::Session);
        }
    }
}
