//! The protocols: one file each, composed of [`crate::parts`].
//!
//! [`onecopy`] is a constant of the family [`rows`], which implements [`Protocol`]. The five of the first paper are constants of
//! the family [`shipping`], which has a vocabulary of its own.
//!
//! | file | paper | orders by | places by | propagates | acknowledges |
//! |---|---|---|---|---|---|
//! | `eager` | conflict-aware scheduling, section 6.1 | sequence numbers, lock queues | load, each read | statements | all |
//! | `fr-l` | section 6.2 | the same | load, at the beginning | statements | chosen |
//! | `fr-c` | section 6.3 | the same | first reply to the lock request | statements | chosen |
//! | `vr-l` | section 6.4 | the same | load, each read | statements | first |
//! | `conflict-aware` | section 3 | the same | conflict, then load, each read | statements | first |
//! | `onecopy` | DESIGN sections 3 and 5 | the log, certified; a lock table between homes, PostgreSQL's locks at each | conflict (the end of the chain), then load | row images | logged |

pub mod conflict_aware;
pub mod eager;
pub mod fr_c;
pub mod fr_l;
pub mod onecopy;
pub mod rows;
pub mod shipping;
pub mod vr_l;

use std::collections::BTreeMap;

use crate::claims::{Claims, Meeting};
use crate::event::{Effect, Event, Rival};
use crate::ids::{Incarnation, ReplicaId, SessionId, Version};
use crate::parts::conflicts::Count;
use crate::parts::replica::State;
use crate::time::Time;

/// A replica as an operator sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaStatus {
    /// Which.
    pub replica: ReplicaId,
    /// What it is good for.
    pub state: State,
    /// It does not answer as it should.
    pub is_suspect: bool,
    /// It serves nobody new.
    pub is_drained: bool,
    /// Somebody waits there for what is durable, and nothing is under way there: never at the end of an event.
    pub is_forgotten: bool,
    /// Its present set of connections.
    pub incarnation: Incarnation,
    /// It has every version up to this one.
    pub applied: Version,
    /// How many versions that reads may need it does not have.
    pub lag: u64,
    /// Reads placed there.
    pub reads: u64,
    /// Update transactions that had their home there.
    pub writes: u64,
    /// Expected wait of a statement that lacks nothing there: what runs, and who waits for a connection.
    pub expected_wait_us: u64,
    /// Statements that wait for it to have more.
    pub waiting: usize,
    /// Statements that run there, and update transactions that are open there.
    pub open: usize,
}

/// A protocol instance: the scheduler half of one service, with the agent halves of its replicas.
pub trait Protocol: std::fmt::Debug + Send {
    /// Takes one event and appends its effects, in the order in which they are to be carried out.
    fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>);

    /// The members, in the order of their numbers.
    fn replicas(&self) -> Vec<ReplicaStatus>;

    /// The last durable version.
    fn durable(&self) -> Version;

    /// The last durable version after which a catalogue may be out of date. Whoever can see what it did finds it here.
    fn last_ddl(&self) -> Version;

    /// Whether a durable schema change after this version may have defined anew what is mentioned, by the hashes of names
    /// ([`crate::parts::schema_changes`]).
    fn redefines(&self, since: Version, _mentioned: &[u64]) -> bool {
        self.last_ddl() > since
    }

    /// Whether a durable schema change after this version may have taken back what replicas were lent of sequences.
    fn voids_lent(&self, since: Version) -> bool {
        self.last_ddl() > since
    }

    /// What transactions waited for and were aborted for, the worst first.
    fn conflicts(&self) -> Vec<Count>;

    /// Who waits for transactions of other homes at this moment.
    fn waiting(&self) -> Vec<Waiting>;

    /// Of each open update transaction the version that its snapshot has at least.
    fn snapshots(&self) -> BTreeMap<SessionId, Version> {
        BTreeMap::new()
    }

    /// Who has written some of this since the session's transaction took its place, at another home.
    fn who_was_first(&self, _session: SessionId, _claims: &Claims) -> Option<Rival> {
        None
    }

    /// How many keys are remembered apart, for whoever watches the memory.
    fn keys_remembered(&self) -> usize {
        0
    }

    /// How many statements had their turn at a replica of which the session never said that they had ended, before the next
    /// one had its own. Each was counted as load for too long.
    fn turns_unended(&self) -> u64 {
        0
    }
}

/// A statement that waits for other transactions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Whose.
    pub session: SessionId,
    /// Where it is to run.
    pub home: ReplicaId,
    /// Whose transactions it waits for.
    pub rivals: Vec<SessionId>,
    /// Where they meet, as far as one can tell.
    pub meeting: Option<Meeting>,
    /// Since when.
    pub since: Time,
}
