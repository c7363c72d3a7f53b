//! The seats of all replicas that were members while this node has run.
//!
//! A replica can join while sessions hold references to the seats of others. So seats are only ever added, each under
//! the number of its replica. The seat of a replica that has left stays in place, and [`Seats::iter`] skips it. A used
//! number is free again only after the node restarts, when nothing remembers it.
//!
//! Non-goal: the list of members. The core has it, and so has the file in the data folder.

use std::ops::Index;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cluster::ids::ReplicaId;
use cluster::placement::REPLICAS_MAX;

use super::evictions::EvictionsByReplica;
use super::seat::{MemberState, Seat};
use crate::database::Database;

/// A seat for each replica, by its number.
#[derive(Debug)]
pub(crate) struct Seats {
    all: Box<[OnceLock<Seat>]>,
    /// How long a read may hold up a refresh at a replica that is not the anchor.
    reader_patience: Duration,
    /// Of the process, for seats to come.
    pub(super) evictions: Arc<EvictionsByReplica>,
}

impl Seats {
    /// The seats of the members at the start.
    pub(crate) fn new(
        seats: Vec<Seat>,
        reader_patience: Duration,
        evictions: Arc<EvictionsByReplica>,
    ) -> Self {
        let all = (0..REPLICAS_MAX).map(|_| OnceLock::new()).collect();
        let all = Self { all, reader_patience, evictions };
        for seat in seats {
            all.take(seat);
        }
        all
    }

    /// A replica takes its seat. Its number must be free.
    pub(super) fn take(&self, seat: Seat) {
        let number = usize::from(seat.replica.0);
        assert!(self.all[number].set(seat).is_ok(), "a number is given to one replica");
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat> {
        let all = self.all.iter().filter_map(OnceLock::get);
        all.filter(|seat| seat.member_state() != MemberState::Left)
    }

    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Seat> {
        self.iter().find(|seat| seat.name == name)
    }

    /// Whether no replica has had this number while the node ran.
    pub(crate) fn is_free(&self, replica: ReplicaId) -> bool {
        self.all.get(usize::from(replica.0)).is_some_and(|seat| seat.get().is_none())
    }

    /// A read that blocks a refresh at the anchor ends at once: its transaction is lost already.
    pub(super) fn set_reader_patience(&self, anchor: ReplicaId) {
        let patience_ms = u64::try_from(self.reader_patience.as_millis()).unwrap_or(u64::MAX);
        for seat in self.iter() {
            let is_anchor = seat.replica == anchor;
            seat.reader_patience_ms.store(if is_anchor { 0 } else { patience_ms }, Ordering::Relaxed);
        }
    }

    /// Forgets the object ids of all replicas: a server came up anew, or another replica is the anchor.
    pub(super) fn forget_oids(&self, anchor: ReplicaId, database: &Database) {
        let others = self.iter().filter(|seat| seat.replica != anchor);
        database.forget_oids(&self[anchor].address, others.map(|seat| (seat.replica, &seat.address)));
    }
}

impl Index<ReplicaId> for Seats {
    type Output = Seat;

    fn index(&self, replica: ReplicaId) -> &Seat {
        &self[usize::from(replica.0)]
    }
}

impl Index<usize> for Seats {
    type Output = Seat;

    fn index(&self, number: usize) -> &Seat {
        self.all[number].get().expect("numbers of replicas come from their seats")
    }
}
