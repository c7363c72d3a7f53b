//! The names of things: small copyable numbers that cannot be mixed up.
//!
//! Every number that travels between modules has a type of its own, so that a version is never taken for a session
//! or a replica for a table. All are ordered and hashable, so they serve as keys of ordered maps.
//!
//! A [`Version`] is dense: the record after version `v` has version `v + 1`. An [`Identity`] is known before the
//! version is (at BEGIN): it is what a replica stores inside the transaction it makes visible, and what the log stores
//! in the record, so that a replay can tell what is already there.
//!
//! Not here: object identifiers of PostgreSQL, which differ between replicas.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use sql::{DatabaseId, SequenceId, TableId};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// One PostgreSQL server with its agent, within one cluster.
    ReplicaId(u16)
}
number! {
    /// One Onecopy process of a cluster of several, for good.
    NodeId(u16)
}
number! {
    /// The sessions of one run of one node, as the leader of a term knows them. The leader gives the number. A node that was lost
    /// comes back as a new crew. With a single node there is the crew 0.
    CrewId(u16)
}
number! {
    /// One client connection: the crew in the upper 16 bits, then a counter of the node ([`SessionId::of`]).
    SessionId(u64)
}
number! {
    /// The place of a record in the log: dense, counted from 1.
    Version(u64)
}
number! {
    /// One term of a leader: grows by one each time the log is fenced.
    Epoch(u32)
}
number! {
    /// A random number that keeps two incarnations that share an epoch apart.
    Nonce(u64)
}
number! {
    /// A set of connections to a replica: grows each time they are made anew. The upper half is the leader's term, the lower one
    /// counts within it ([`Incarnation::before`]).
    Incarnation(u64)
}
number! {
    /// A data service: tables, replicas and a protocol.
    ServiceId(u32)
}
number! {
    /// A part of the rows of tables that are split by a value: see [`crate::placement::part_of`].
    PartId(u8)
}
number! {
    /// A kind of transactions: those that do the same with other values.
    KindId(u64)
}

impl Version {
    /// Before the first record.
    pub const ZERO: Self = Self(0);

    /// The version of the record that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        assert!(self.0 < u64::MAX, "versions are counted one by one and cannot run out");
        Self(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        assert!(self.0 < u32::MAX, "epochs are counted one by one and cannot run out");
        Self(self.0 + 1)
    }
}

/// The lower bits of a session's number, which its node counts.
const COUNTER_BITS: u32 = 48;

impl SessionId {
    /// The session with this number among those of its crew.
    ///
    /// ```
    /// use cluster::ids::{CrewId, SessionId};
    ///
    /// let session = SessionId::of(CrewId(3), 7);
    /// assert_eq!((session.crew(), session.counter()), (CrewId(3), 7));
    /// assert_eq!(SessionId::of(CrewId(0), 7), SessionId(7), "a single node counts as it always did");
    /// ```
    pub const fn of(crew: CrewId, counter: u64) -> Self {
        assert!(counter >> COUNTER_BITS == 0, "sessions are counted one by one and cannot run out");
        Self((crew.0 as u64) << COUNTER_BITS | counter)
    }

    /// The crew that it belongs to.
    pub const fn crew(self) -> CrewId {
        CrewId((self.0 >> COUNTER_BITS) as u16)
    }

    /// Its number among the sessions of its crew.
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << COUNTER_BITS) - 1)
    }
}

impl Incarnation {
    /// Precedes the first incarnation of a term, and follows all of earlier terms. So a grant of a former leader never fits the
    /// connections of its successor, even where both have counted to the same number.
    pub const fn before(term: Epoch) -> Self {
        Self((term.0 as u64) << u32::BITS)
    }

    /// The incarnation that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        assert!(self.0 as u32 != u32::MAX, "incarnations are counted one by one and cannot run out");
        Self(self.0 + 1)
    }
}

/// Random at the birth of a cluster; keeps the log of another cluster out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The identity of a transaction, known from BEGIN on. The log and the replicas both store it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Identity {
    /// The leader's term in which the transaction began.
    pub epoch: Epoch,
    /// The number of the transaction within the term.
    pub n: u64,
    /// Drawn by the node at its start.
    pub nonce: Nonce,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:016x}", self.epoch, self.n, self.nonce.0)
    }
}

/// A table, or a part of one: the unit of placement.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FragmentId {
    /// The table.
    pub table: TableId,
    /// The part of it. A table that is not split has the one part 0.
    pub part: u16,
}

impl FragmentId {
    /// The fragment that is the whole of a table.
    pub const fn whole(table: TableId) -> Self {
        Self { table, part: 0 }
    }
}

impl fmt::Display for FragmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}/{}", self.table.database, self.table.number, self.part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_different_crews_never_meet() {
        let last = (1 << COUNTER_BITS) - 1;
        let ids =
            [SessionId::of(CrewId(1), last), SessionId::of(CrewId(2), 0), SessionId::of(CrewId(2), last)];
        assert!(ids.is_sorted_by(|one, other| one < other));
        assert!(ids.iter().all(|id| SessionId::of(id.crew(), id.counter()) == *id));
    }

    #[test]
    fn incarnations_of_different_terms_never_meet() {
        let counted = |term| Incarnation::before(Epoch(term)).next().next();
        assert!(counted(4) < Incarnation::before(Epoch(5)));
        assert_ne!(counted(4), counted(5));
        assert_eq!(Incarnation::before(Epoch(0)), Incarnation::default());
    }
}
