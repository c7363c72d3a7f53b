//! The protocols: one file each, composed of [`crate::parts`].
//!
//! [`onecopy`], [`gargamel`] and its rivals are constants of the family [`rows`], which implements [`Protocol`]. The five of the first paper are constants of
//! the family [`shipping`], which has a vocabulary of its own, and so has [`c_jdbc`].
//!
//! | file | paper | orders by | places by | propagates | acknowledges |
//! |---|---|---|---|---|---|
//! | `eager` | conflict-aware scheduling, section 6.1 | sequence numbers, lock queues | load, each read | statements | all |
//! | `fr-l` | section 6.2 | the same | load, at the beginning | statements | chosen |
//! | `fr-c` | section 6.3 | the same | first reply to the lock request | statements | chosen |
//! | `vr-l` | section 6.4 | the same | load, each read | statements | first |
//! | `conflict-aware` | section 3 | the same | conflict, then load, each read | statements | first |
//! | `onecopy` | DESIGN sections 3 and 5 | the log, certified; a lock table between homes, PostgreSQL's locks at each | conflict (the end of the chain), then load | row images | logged |
//! | `gargamel` | Gargamel, II and III | chains of whole transactions; certified | the end of the chain, then load | row images | logged |
//! | `round-robin` | IV-B | certification alone | in turn | row images | logged |
//! | `tashkent+` | IV-B | certification alone | the group of its kind, then load | row images | logged |
//! | `centralised-writes` | IV-B | one chain | the anchor | row images | logged |
//! | `preventive` | preventive replication, 4 and 5 | time stamps; certified | in turn, among those that hold all | performed where all is held, else row images | logged |
//! | `middle-r` | "Middle-R, C-JDBC and MySQL Cluster", 2.1 | certification alone | the replica of its session | row images | logged |
//! | `c-jdbc` | the same, 2.2 | numbers of operations; table locks at the scheduler | its balancer, each read | statements | first, majority or all |

pub mod c_jdbc;
pub mod centralised_writes;
pub mod conflict_aware;
pub mod eager;
pub mod fr_c;
pub mod fr_l;
pub mod gargamel;
pub mod middle_r;
pub mod onecopy;
pub mod preventive;
pub mod round_robin;
pub mod rows;
pub mod shipping;
pub mod tashkent_plus;
pub mod vr_l;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::claims::{Claims, Meeting};
use crate::event::{Effect, Event, Reads, Rival};
use crate::ids::{DatabaseId, Incarnation, ReplicaId, SessionId, Version};
use crate::parts::conflicts::Count;
use crate::parts::replica::{Offer, Outside, State};
use crate::placement::{Holdings, LastHolder, Placement};
use crate::time::Time;

/// The state of a replica, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Its number.
    pub replica: ReplicaId,
    /// Whether it serves.
    pub state: State,
    /// It does not answer as it should.
    pub is_suspect: bool,
    /// It takes no new transactions and reads.
    pub is_drained: bool,
    /// A statement waits there for a durable version, and nothing is under way there. Never so at the end of an event.
    pub is_forgotten: bool,
    /// Its present set of connections.
    pub incarnation: Incarnation,
    /// It has every version up to this one.
    pub applied: Version,
    /// The number of durable versions that it lacks.
    pub lag: u64,
    /// Reads placed there.
    pub reads: u64,
    /// Update transactions with their home there.
    pub writes: u64,
    /// Expected wait of a statement that needs no more versions there: statements that run, and sessions that wait for a
    /// connection.
    pub expected_wait_us: u64,
    /// Statements that wait for it to have more versions.
    pub waiting: usize,
    /// Statements that run there, and update transactions that are open there.
    pub open: usize,
}

/// A protocol instance: the scheduler half of one service, with the agent halves of its replicas.
pub trait Protocol: fmt::Debug + Send {
    /// Takes one event and appends its effects, in the order in which they are to be carried out.
    fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>);

    /// The members, in the order of their numbers.
    fn replicas(&self) -> Vec<ReplicaStatus>;

    /// What a replica holds, by the placement at this moment.
    fn holdings(&self, replica: ReplicaId) -> Holdings;

    /// Whether every table would still have a holder without this replica. A driver asks before it says that the replica
    /// has left.
    fn may_leave(&self, replica: ReplicaId) -> Result<(), LastHolder>;

    /// Which replicas hold what, if some may hold only a part.
    fn placement(&self) -> Option<&Placement> {
        None
    }

    /// The last durable version.
    fn durable(&self) -> Version;

    /// The last durable version after which a catalogue may be out of date. A session that can see the effect of a schema change
    /// finds its version here.
    fn last_ddl(&self) -> Version;

    /// The version that an answer must be of, so that a session may be given it now in place of a read: the one that a replica
    /// would need. `None` if a schema change after this catalogue may have changed what the statement reads, or if reads need
    /// not be fresh.
    fn answer_needs(&self, _reads: &Reads, _catalogue: Version) -> Option<Version> {
        None
    }

    /// The last assigned version that wrote any of this, durable or not. A read that began when its replica had at least this
    /// version answered as of it. `None` if the protocol does not know.
    fn last_writer(&self, _reads: &Reads) -> Option<Version> {
        None
    }

    /// The numbers below this are those of all replicas that were ever members, if replicas make offers.
    fn seats(&self) -> usize {
        0
    }

    /// What a session has to know of a replica to place any read there by itself. `None` if reads are to ask.
    fn offer(&self, _replica: ReplicaId) -> Option<Offer> {
        None
    }

    /// The reads that sessions have placed at a replica by themselves, as of now.
    fn note_outside(&mut self, _replica: ReplicaId, _outside: Outside) {}

    /// Whether a durable schema change after this version may have changed the definition of an object that is mentioned in a
    /// database, by the hashes of names ([`crate::parts::schema_changes`]).
    fn redefines(&self, since: Version, _database: DatabaseId, _mentioned: &[u64]) -> bool {
        self.last_ddl() > since
    }

    /// Whether a durable schema change after this version may have revoked sequence leases.
    fn voids_lent(&self, since: Version) -> bool {
        self.last_ddl() > since
    }

    /// Waits and aborts by table, the worst first.
    fn conflicts(&self) -> Vec<Count>;

    /// The statements that wait for transactions of other homes at this moment.
    fn waiting(&self) -> Vec<Waiting>;

    /// For each open update transaction, a version that its snapshot includes.
    fn snapshots(&self) -> BTreeMap<SessionId, Version> {
        BTreeMap::new()
    }

    /// A transaction of another home that has written some of this since the session's transaction took its snapshot.
    fn earlier_writer(&self, _session: SessionId, _claims: &Claims) -> Option<Rival> {
        None
    }

    /// The number of keys that are remembered apart, as a measure of memory.
    fn keys_remembered(&self) -> usize {
        0
    }

    /// The number of transactions that failed although all that they would do was known, so that they had waited for all that
    /// they conflict with. Each is a wrong prediction, or a fault of the protocol.
    fn known_misjudged(&self) -> u64 {
        0
    }

    /// The chains of transactions that are known as a whole.
    fn chains(&self) -> Vec<ChainStatus> {
        Vec::new()
    }

    /// The number of statements whose end was not reported before their session ran the next one. Each was counted as load
    /// for too long.
    fn turns_unended(&self) -> u64 {
        0
    }

    /// What became of transactions, if the protocol orders them by stamps.
    fn stamps(&self) -> StampCounts {
        StampCounts::default()
    }
}

/// What became of transactions that are ordered by stamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StampCounts {
    /// Messages that were sent to other replicas.
    pub sent: u64,
    /// Messages that came after one of a younger transaction.
    pub unordered: u64,
    /// Messages that took longer than Max.
    pub late: u64,
    /// Executions that were undone for an older transaction.
    pub undone: u64,
    /// Executions of performers that were committed in place of the record.
    pub performed: u64,
    /// Executions of performers that had changed other rows than the record.
    pub differed: u64,
    /// Executions of performers that took too long, so that the record was applied.
    pub outrun: u64,
    /// Executions of performers that failed, or gave way to what waited for their locks.
    pub failed: u64,
}

impl StampCounts {
    /// Adds the counts of another instance.
    pub fn add(&mut self, other: Self) {
        self.sent += other.sent;
        self.unordered += other.unordered;
        self.late += other.late;
        self.undone += other.undone;
        self.performed += other.performed;
        self.differed += other.differed;
        self.outrun += other.outrun;
        self.failed += other.failed;
    }
}

impl fmt::Display for StampCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, unordered, late, undone, performed, differed, outrun, failed } = self;
        write!(
            f,
            "{performed} performed, {differed} differed, {outrun} outrun, {failed} failed, {undone} undone, "
        )?;
        write!(f, "{sent} messages, {unordered} unordered, {late} late")
    }
}

/// A chain of transactions that conflict, for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainStatus {
    /// Its number.
    pub chain: u64,
    /// The replica where its transactions run.
    pub worker: ReplicaId,
    /// The sessions of its transactions, in the order in which they run.
    pub sessions: Vec<SessionId>,
}

/// A statement that waits for other transactions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// Its session.
    pub session: SessionId,
    /// The replica where it will run.
    pub home: ReplicaId,
    /// The sessions whose transactions it waits for.
    pub rivals: Vec<SessionId>,
    /// The claims in which they meet, as far as it is known.
    pub meeting: Option<Meeting>,
    /// The time at which it began to wait.
    pub since: Time,
}
