//! The cluster as a map of services.
//!
//! A service is a set of tables, with the replicas that hold them and a protocol of its own (service-oriented data
//! denormalization, section 4). All services share one log and one order of versions. Today there is one service, which has
//! every table. A second one needs a rule here for transactions that touch both.

use std::collections::BTreeMap;

use crate::claims::Claims;
use crate::event::{Effect, Event, Reads, Rival};
use crate::ids::{DatabaseId, ReplicaId, ServiceId, SessionId, Version};
use crate::parts::conflicts::Count;
use crate::parts::replica::{Offer, Outside};
use crate::placement::{Holdings, LastHolder, Placement};
use crate::protocols::{ChainStatus, Protocol, ReplicaStatus, StampCounts, Waiting};
use crate::time::Time;

/// The service that has every table.
const WHOLE: ServiceId = ServiceId(0);

/// The state of the leader, which takes one event at a time.
#[derive(Debug)]
pub struct Cluster {
    services: BTreeMap<ServiceId, Box<dyn Protocol>>,
}

impl Cluster {
    /// A cluster with one service that has every table.
    pub fn new(protocol: Box<dyn Protocol>) -> Self {
        Self { services: BTreeMap::from([(WHOLE, protocol)]) }
    }

    /// Takes one event and appends its effects, in the order in which they are to be carried out.
    pub fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        self.whole_mut().handle(now, event, effects);
    }

    /// The members, in the order of their numbers.
    pub fn replicas(&self) -> Vec<ReplicaStatus> {
        self.services[&WHOLE].replicas()
    }

    /// What a replica holds, by the placement at this moment.
    pub fn holdings(&self, replica: ReplicaId) -> Holdings {
        self.services[&WHOLE].holdings(replica)
    }

    /// Whether every table would still have a holder without this replica.
    pub fn may_leave(&self, replica: ReplicaId) -> Result<(), LastHolder> {
        self.services[&WHOLE].may_leave(replica)
    }

    /// Whether some replica holds only a part of the data.
    pub fn is_partial(&self) -> bool {
        self.placement().is_some_and(Placement::is_partial)
    }

    /// Which replicas hold what, if some may hold only a part.
    pub fn placement(&self) -> Option<&Placement> {
        self.services[&WHOLE].placement()
    }

    /// The last durable version.
    pub fn durable(&self) -> Version {
        self.services[&WHOLE].durable()
    }

    /// The last durable version after which a catalogue may be out of date.
    pub fn last_ddl(&self) -> Version {
        self.services[&WHOLE].last_ddl()
    }

    /// The version that an answer must be of, so that a session may be given it now in place of a read. `None`: it must read.
    pub fn answer_needs(&self, reads: &Reads, catalogue: Version) -> Option<Version> {
        self.services[&WHOLE].answer_needs(reads, catalogue)
    }

    /// The last assigned version that wrote any of this, durable or not, if the protocol knows.
    pub fn last_writer(&self, reads: &Reads) -> Option<Version> {
        self.services[&WHOLE].last_writer(reads)
    }

    /// The numbers below this are those of all replicas that were ever members, if replicas make offers.
    pub fn seats(&self) -> usize {
        self.services[&WHOLE].seats()
    }

    /// What a session has to know of a replica to place any read there by itself. `None` if reads are to ask.
    pub fn offer(&self, replica: ReplicaId) -> Option<Offer> {
        self.services[&WHOLE].offer(replica)
    }

    /// The reads that sessions have placed at a replica by themselves, as of now.
    pub fn note_outside(&mut self, replica: ReplicaId, outside: Outside) {
        self.whole_mut().note_outside(replica, outside);
    }

    /// Whether a durable schema change after this version may have changed the definition of an object that is mentioned in a
    /// database.
    pub fn redefines(&self, since: Version, database: DatabaseId, mentioned: &[u64]) -> bool {
        self.services[&WHOLE].redefines(since, database, mentioned)
    }

    /// Whether a durable schema change after this version may have revoked sequence leases.
    pub fn voids_lent(&self, since: Version) -> bool {
        self.services[&WHOLE].voids_lent(since)
    }

    /// Waits and aborts by table, the worst first.
    pub fn conflicts(&self) -> Vec<Count> {
        self.services[&WHOLE].conflicts()
    }

    /// The statements that wait for transactions of other homes at this moment.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.services[&WHOLE].waiting()
    }

    /// For each open update transaction, a version that its snapshot includes.
    pub fn snapshots(&self) -> BTreeMap<SessionId, Version> {
        self.services[&WHOLE].snapshots()
    }

    /// A transaction of another home that has written some of this since the session's transaction took its snapshot.
    pub fn earlier_writer(&self, session: SessionId, claims: &Claims) -> Option<Rival> {
        self.services[&WHOLE].earlier_writer(session, claims)
    }

    /// The number of keys that are remembered apart.
    pub fn keys_remembered(&self) -> usize {
        self.services.values().map(|service| service.keys_remembered()).sum()
    }

    /// The number of transactions that failed although all that they would do was known.
    pub fn known_misjudged(&self) -> u64 {
        self.services.values().map(|service| service.known_misjudged()).sum()
    }

    /// The chains of transactions that are known as a whole.
    pub fn chains(&self) -> Vec<ChainStatus> {
        self.services.values().flat_map(|service| service.chains()).collect()
    }

    /// The number of statements whose end no session has reported: a fault of sessions.
    pub fn turns_unended(&self) -> u64 {
        self.services.values().map(|service| service.turns_unended()).sum()
    }

    /// What became of transactions, if the protocol orders them by stamps.
    pub fn stamps(&self) -> StampCounts {
        self.services[&WHOLE].stamps()
    }

    fn whole_mut(&mut self) -> &mut Box<dyn Protocol> {
        self.services.get_mut(&WHOLE).expect("the whole service is there from the start")
    }
}
