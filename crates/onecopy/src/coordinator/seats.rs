//! The seats of all replicas that were members while this node has run.
//!
//! A replica can join while everybody works, so whoever has a seat in hand must be able to keep it: seats are only ever
//! added, each under the number of its replica, and one whose replica has left stays where it is and is passed over.
//! A number that was used is not given again before the node starts anew, when nothing remembers it.
//!
//! Non-goal: who is a member; the core knows, and the file in the data folder.

use std::ops::Index;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use cluster::ids::ReplicaId;
use cluster::placement::REPLICAS_MAX;

use super::seat::Seat;

/// A seat for each replica, by its number.
#[derive(Debug)]
pub(crate) struct Seats(Box<[OnceLock<Seat>]>);

impl Seats {
    /// Those that are there from the start.
    pub(crate) fn new(seats: Vec<Seat>) -> Self {
        let all = Self((0..REPLICAS_MAX).map(|_| OnceLock::new()).collect());
        for seat in seats {
            all.take(seat);
        }
        all
    }

    /// A replica takes its seat. Its number must be free.
    pub(super) fn take(&self, seat: Seat) {
        let number = usize::from(seat.replica.0);
        assert!(self.0[number].set(seat).is_ok(), "a number is given to one replica");
    }

    /// The members.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Seat> {
        let all = self.0.iter().filter_map(OnceLock::get);
        all.filter(|seat| !seat.has_left.load(Ordering::Acquire))
    }

    /// How many members there are.
    pub(crate) fn len(&self) -> usize {
        self.iter().count()
    }

    /// The member of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&Seat> {
        self.iter().find(|seat| seat.name == name)
    }

    /// Whether this number was given to nobody.
    pub(crate) fn is_free(&self, replica: ReplicaId) -> bool {
        self.0.get(usize::from(replica.0)).is_some_and(|seat| seat.get().is_none())
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
        self.0[number].get().expect("whoever has the number of a replica has it from its seat")
    }
}
