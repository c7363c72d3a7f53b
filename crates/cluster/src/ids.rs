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

pub use sql::{DatabaseId, SequenceId, TableId};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
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
    /// One client connection, within one node's run.
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
    /// A set of connections to a replica: grows each time they are made anew.
    Incarnation(u32)
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

impl Incarnation {
    /// The incarnation that follows.
    #[must_use]
    pub const fn next(self) -> Self {
        assert!(self.0 < u32::MAX, "incarnations are counted one by one and cannot run out");
        Self(self.0 + 1)
    }
}

/// Random at the birth of a cluster; keeps the log of another cluster out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The identity of a transaction, known from BEGIN on. The log and the replicas both store it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
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
