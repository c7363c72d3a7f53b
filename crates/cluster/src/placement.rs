//! Which replicas hold which fragments, and which records a replica must therefore apply.
//!
//! The core owns the one [`Placement`] of its cluster. Everything else (drivers, agents, comparisons, copies) asks for the
//! [`Holdings`] of a replica, a cheap handle on the same map. With three replicas and table 7 restricted to the first
//! two, the third neither applies rows of table 7 nor serves reads of it, and its checksum of table 7 is not compared.
//!
//! A transaction has its home where all is held that it [touches](Touches): an empty copy of a table must not answer. One whose
//! later statement touches more is over, and may begin again elsewhere ([`crate::event::AbortCause::NotHeld`]).
//!
//! [`Holdings::must_apply`] is the only rule for whether a record concerns a replica. A replica counts as having applied
//! every record that it need not apply.
//!
//! Invariant: every fragment has a holder, and the anchor holds everything.
//!
//! Partial replication is that of preventive replication section 3, and of C-JDBC's RAIDb-0 and RAIDb-2. Not here: how a
//! placement is chosen and kept, and how a fragment is copied to a new holder. The driver does that while the replica is down, and then
//! says so ([`crate::event::Event::Placed`]).

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::ids::{FragmentId, ReplicaId, TableId};

/// The most replicas of one cluster.
pub const REPLICAS_MAX: u16 = 64;

/// A set of replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicaSet(u64);

impl ReplicaSet {
    /// No replica.
    pub const EMPTY: Self = Self(0);

    /// The replicas numbered below `count`.
    pub fn first(count: u16) -> Self {
        assert!(count <= REPLICAS_MAX, "a set has room for REPLICAS_MAX replicas");
        Self(if count == REPLICAS_MAX { u64::MAX } else { (1 << count) - 1 })
    }

    /// This set with one more.
    #[must_use]
    pub fn with(self, replica: ReplicaId) -> Self {
        assert!(replica.0 < REPLICAS_MAX, "a set has room for REPLICAS_MAX replicas");
        Self(self.0 | 1 << replica.0)
    }

    /// This set with one less.
    #[must_use]
    pub fn without(self, replica: ReplicaId) -> Self {
        if replica.0 < REPLICAS_MAX { Self(self.0 & !(1 << replica.0)) } else { self }
    }

    /// Whether the replica is in the set.
    pub fn contains(self, replica: ReplicaId) -> bool {
        replica.0 < REPLICAS_MAX && self.0 & 1 << replica.0 != 0
    }

    /// Those in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Its replicas, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = ReplicaId> {
        (0..REPLICAS_MAX).map(ReplicaId).filter(move |replica| self.contains(*replica))
    }
}

impl FromIterator<ReplicaId> for ReplicaSet {
    fn from_iter<I: IntoIterator<Item = ReplicaId>>(replicas: I) -> Self {
        replicas.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// The fragments that only some replicas hold, each with its holders. All replicas hold what is not listed.
type Listed = BTreeMap<FragmentId, ReplicaSet>;

/// The tables of which a statement may need rows where it runs: those that it reads and writes, and those that its triggers,
/// cascades and constraint checks reach.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Touches {
    /// They cannot be bounded.
    #[default]
    Anything,
    /// These tables.
    Tables(Arc<[TableId]>),
}

/// The map from fragments to their holders.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Every replica of the cluster: holds what is not listed.
    everyone: ReplicaSet,
    listed: Arc<Listed>,
}

impl Placement {
    /// All replicas hold everything.
    pub fn full(replicas: u16) -> Self {
        Self { everyone: ReplicaSet::first(replicas), listed: Arc::default() }
    }

    /// Restricts a fragment to these replicas.
    pub fn restrict(&mut self, fragment: FragmentId, holders: ReplicaSet) {
        assert!(holders != ReplicaSet::EMPTY, "every fragment has a holder");
        Arc::make_mut(&mut self.listed).insert(fragment, holders);
    }

    /// Replicas that have yet to join will hold the fragment, too. Nothing changes unless every replica holds it: one that has
    /// joined meanwhile may not.
    pub fn lift(&mut self, fragment: FragmentId) {
        if self.listed.get(&fragment).is_some_and(|holders| self.everyone.and(*holders) == self.everyone) {
            Arc::make_mut(&mut self.listed).remove(&fragment);
        }
    }

    /// Whether some fragment is restricted.
    pub fn is_partial(&self) -> bool {
        !self.listed.is_empty()
    }

    /// The restricted fragments, each with its holders.
    pub fn restricted(&self) -> impl Iterator<Item = (FragmentId, ReplicaSet)> {
        self.listed.iter().map(|(fragment, holders)| (*fragment, *holders))
    }

    /// A replica that holds whatever is not listed.
    pub fn join(&mut self, replica: ReplicaId) {
        self.everyone = self.everyone.with(replica);
    }

    /// A replica holds nothing any more, unless it is the last holder of something: then nothing changes.
    pub fn leave(&mut self, replica: ReplicaId) -> Result<(), LastHolder> {
        self.may_leave(replica)?;
        self.everyone = self.everyone.without(replica);
        if !self.listed.is_empty() {
            for holders in Arc::make_mut(&mut self.listed).values_mut() {
                *holders = holders.without(replica);
            }
        }
        Ok(())
    }

    /// Whether every fragment would still have a holder without this replica.
    pub fn may_leave(&self, replica: ReplicaId) -> Result<(), LastHolder> {
        let orphaned = |holders: &ReplicaSet| holders.without(replica) == ReplicaSet::EMPTY;
        match self.listed.iter().find(|(_, holders)| orphaned(holders)) {
            Some((fragment, _)) => Err(LastHolder { replica, fragment: *fragment }),
            None => Ok(()),
        }
    }

    /// What a replica holds. One that has yet to join will hold everything that is not listed.
    pub fn holdings(&self, replica: ReplicaId) -> Holdings {
        Holdings { replica, listed: Arc::clone(&self.listed) }
    }

    /// The holders of one fragment.
    pub fn holders(&self, fragment: FragmentId) -> ReplicaSet {
        self.listed.get(&fragment).copied().unwrap_or(self.everyone)
    }

    /// The replicas that hold all of these tables.
    pub fn holders_of_all(&self, tables: &[TableId]) -> ReplicaSet {
        if self.listed.is_empty() {
            return self.everyone;
        }
        tables.iter().fold(self.everyone, |set, t| set.and(self.holders(FragmentId::whole(*t))))
    }

    /// The replicas where a statement may run that touches these tables.
    pub fn holders_of(&self, touches: &Touches) -> ReplicaSet {
        match touches {
            Touches::Anything => self.holders_of_everything(),
            Touches::Tables(tables) => self.holders_of_all(tables),
        }
    }

    /// The replicas that hold everything: where a statement may run that cannot be bounded.
    pub fn holders_of_everything(&self) -> ReplicaSet {
        self.listed.values().fold(self.everyone, |set, holders| set.and(*holders))
    }
}

/// A replica cannot leave, since no other one holds this fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastHolder {
    /// The replica.
    pub replica: ReplicaId,
    /// A fragment that only it holds.
    pub fragment: FragmentId,
}

impl fmt::Display for LastHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (replica, table) = (self.replica.0, self.fragment.table.number);
        write!(f, "replica {replica} is the only holder of table number {table}")
    }
}

impl Error for LastHolder {}

/// The writes of a record, as far as they decide which replicas must apply it.
pub trait Writes {
    /// Every replica must apply the record, whatever it holds: it may write everything, as a schema change, or moves
    /// sequences.
    fn is_for_all(&self) -> bool;

    /// The tables whose rows the record changes.
    fn changed_tables(&self) -> impl Iterator<Item = TableId>;
}

/// What one replica holds. Cheap to clone; while all replicas hold everything, each question is one branch.
#[derive(Clone, Debug, Default)]
pub struct Holdings {
    replica: ReplicaId,
    listed: Arc<Listed>,
}

impl Holdings {
    /// Those of a replica that holds everything.
    pub fn everything() -> Self {
        Self::default()
    }

    /// Whether the replica holds everything.
    pub fn is_everything(&self) -> bool {
        self.listed.values().all(|holders| holders.contains(self.replica))
    }

    /// Whether the replica holds this table.
    pub fn holds(&self, table: TableId) -> bool {
        self.listed.is_empty() || self.has(&FragmentId::whole(table))
    }

    /// Whether the replica holds all of these tables.
    pub fn hold(&self, touches: &Touches) -> bool {
        match touches {
            Touches::Anything => self.is_everything(),
            Touches::Tables(tables) => tables.iter().all(|table| self.holds(*table)),
        }
    }

    /// Whether the replica must apply a record. One that holds everything applies every record, also an empty one: so it can show
    /// that it lacks none.
    pub fn must_apply(&self, record: &impl Writes) -> bool {
        self.is_everything() || record.is_for_all() || record.changed_tables().any(|table| self.holds(table))
    }

    /// Whether this replica holds all that the other one holds.
    pub fn cover(&self, other: &Self) -> bool {
        let mut listed = self.listed.keys().chain(other.listed.keys());
        listed.all(|fragment| self.has(fragment) || !other.has(fragment))
    }

    fn has(&self, fragment: &FragmentId) -> bool {
        self.listed.get(fragment).is_none_or(|holders| holders.contains(self.replica))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    const A: ReplicaId = ReplicaId(0);
    const B: ReplicaId = ReplicaId(1);
    const C: ReplicaId = ReplicaId(2);
    const D: ReplicaId = ReplicaId(3);

    fn table(number: u32) -> TableId {
        DatabaseId::FIRST.table(number)
    }

    /// Three replicas. Table 1 is at A and C, table 2 at A and B, table 3 at A only; the others are everywhere.
    fn partial() -> Placement {
        let mut placement = Placement::full(3);
        let only_a = ReplicaSet::EMPTY.with(A);
        for (number, holders) in [(1, only_a.with(C)), (2, only_a.with(B)), (3, only_a)] {
            placement.restrict(FragmentId::whole(table(number)), holders);
        }
        placement
    }

    struct Wrote {
        is_for_all: bool,
        tables: &'static [u32],
    }

    impl Writes for Wrote {
        fn is_for_all(&self) -> bool {
            self.is_for_all
        }

        fn changed_tables(&self) -> impl Iterator<Item = TableId> {
            self.tables.iter().map(|number| table(*number))
        }
    }

    fn rows(tables: &'static [u32]) -> Wrote {
        Wrote { is_for_all: false, tables }
    }

    #[test]
    fn unlisted_fragments_are_everywhere() {
        let placement = partial();
        assert!(placement.holders_of_all(&[table(9)]).contains(B));
        assert!(!placement.holders_of_all(&[table(9), table(1)]).contains(B));
        assert!(!placement.holders_of_everything().contains(B));
        assert!(!Placement::full(3).holders_of_everything().contains(D));
        assert!(placement.holdings(B).holds(table(9)) && !placement.holdings(B).holds(table(1)));
        assert!(placement.holdings(A).is_everything() && !placement.holdings(B).is_everything());
        // A replica that has yet to join holds nothing that is listed.
        assert!(placement.holdings(D).holds(table(9)) && !placement.holdings(D).holds(table(3)));
    }

    #[test]
    fn a_record_is_applied_where_one_of_its_tables_is() {
        let placement = partial();
        let at_b = placement.holdings(B);
        assert!(!at_b.must_apply(&rows(&[1])) && !at_b.must_apply(&rows(&[1, 3])));
        assert!(at_b.must_apply(&rows(&[1, 2])) && at_b.must_apply(&rows(&[1, 9])));
        assert!(!at_b.must_apply(&rows(&[])), "an empty record concerns no partial replica");
        assert!(at_b.must_apply(&Wrote { is_for_all: true, tables: &[1] }));
        assert!(Placement::full(3).holdings(B).must_apply(&rows(&[])));
        assert!(placement.holdings(A).must_apply(&rows(&[])), "it holds everything, while others do not");
        assert!(Holdings::everything().must_apply(&rows(&[1])));
    }

    #[test]
    fn a_donor_holds_all_that_is_wanted() {
        let placement = partial();
        let covers = |donor, target| placement.holdings(donor).cover(&placement.holdings(target));
        assert!(covers(A, B) && covers(A, A) && covers(B, D) && covers(C, D));
        assert!(!covers(B, A) && !covers(B, C) && !covers(C, B));
        assert!(!placement.holdings(B).cover(&Holdings::everything()));
        assert!(Holdings::everything().cover(&placement.holdings(B)));
        let full = Placement::full(3);
        assert!(full.holdings(B).cover(&full.holdings(A)));
    }

    #[test]
    fn the_last_holder_of_a_fragment_does_not_leave() {
        let mut placement = partial();
        let refused = LastHolder { replica: A, fragment: FragmentId::whole(table(3)) };
        assert_eq!(placement.leave(A), Err(refused));
        assert!(placement.holdings(A).is_everything(), "a refusal changes nothing");
        assert!(placement.holders_of_everything().contains(A));
        assert_eq!(placement.leave(C), Ok(()));
        assert!(!placement.holders(FragmentId::whole(table(1))).contains(C));
        assert!(!placement.holders(FragmentId::whole(table(9))).contains(C));
        let refused = LastHolder { replica: A, fragment: FragmentId::whole(table(1)) };
        assert_eq!(placement.may_leave(A), Err(refused));
        assert_eq!(Placement::full(1).leave(A), Ok(()));
    }
}
