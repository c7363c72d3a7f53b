//! The questions that the core of this node answers under its lock, at once.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Cluster;
use cluster::claims::Claims;
use cluster::event::{Reads, Rival};
use cluster::ids::{DatabaseId, ReplicaId, SessionId, TableId, Version};
use cluster::parts::conflicts::Count;
use cluster::parts::sequences::{Draw, Reading, Verdict};
use cluster::placement::{Copies, Holdings, LastHolder, Placement, ReplicaSet};
use cluster::protocols::{ChainStatus, ReplicaStatus, StampCounts, Waiting};
use cluster::time::Time;
use commitlog::LogRefusal;

use super::local::LocalCore;
use crate::coordinator::crews::as_seen_by;

impl LocalCore {
    /// The members, in the order of their numbers.
    pub(crate) fn replicas(&self) -> Vec<ReplicaStatus> {
        self.tell_outside();
        self.query(Cluster::replicas)
    }

    /// The holdings of a replica. In a kind of node without a core each replica holds everything.
    pub(crate) fn holdings(&self, replica: ReplicaId) -> Holdings {
        self.query(|core| core.holdings(replica))
    }

    /// The tables that only some replicas hold, each with its holders.
    pub(crate) fn restricted(&self) -> Vec<(TableId, Copies)> {
        let tables = |placement: &Placement| {
            placement.restricted().map(|(table, copies)| (table, copies.clone())).collect()
        };
        self.query(|core| core.placement().map(tables).unwrap_or_default())
    }

    /// The holders of a table.
    pub(crate) fn copies(&self, table: TableId) -> Copies {
        let found = self.query(|core| core.placement().map(|placement| placement.copies(table)));
        found.unwrap_or(Copies::Whole(ReplicaSet::EMPTY))
    }

    /// Where updates of a table begin, if that was chosen.
    pub(crate) fn masters(&self, table: TableId) -> ReplicaSet {
        self.query(|core| core.placement().map(|placement| placement.masters(table)).unwrap_or_default())
    }

    /// The tables of which that was chosen.
    pub(crate) fn mastered(&self) -> Vec<TableId> {
        let tables = |placement: &Placement| placement.mastered().map(|(table, _)| table).collect();
        self.query(|core| core.placement().map(tables).unwrap_or_default())
    }

    /// Who holds what. In a kind of node without a core each replica holds everything.
    pub(crate) fn placement(&self) -> Option<Placement> {
        self.query(|core| core.placement().cloned())
    }

    /// The table that no other replica holds, if there is one: then the replica cannot leave.
    pub(crate) fn last_held(&self, replica: ReplicaId) -> Option<LastHolder> {
        self.query(|core| core.may_leave(replica).err())
    }

    /// Whether a schema change after this version may have changed the definition of an object that is mentioned in a
    /// database.
    pub(crate) fn redefines(&self, since: Version, database: DatabaseId, mentioned: &[u64]) -> bool {
        self.query(|core| core.redefines(since, database, mentioned))
    }

    /// The version that an answer must be of, so that a session may be given it now in place of a read.
    pub(crate) fn answer_needs(&self, reads: &Reads, catalogue: Version) -> Option<Version> {
        self.query(|core| core.answer_needs(reads, catalogue))
    }

    /// The last assigned version that wrote any of this, durable or not, if the protocol knows.
    pub(crate) fn last_writer(&self, reads: &Reads) -> Option<Version> {
        self.query(|core| core.last_writer(reads))
    }

    /// Whether a schema change after this version may have revoked sequence leases.
    pub(crate) fn voids_lent(&self, since: Version) -> bool {
        self.query(|core| core.voids_lent(since))
    }

    /// The time before sequences are read.
    pub(super) fn sequence_reading(&self) -> Reading {
        self.outputs.database.sequences().reading()
    }

    /// The duty of a transaction that may have drawn from sequences, and the time for the next reading.
    pub(in crate::coordinator) fn judge_draw(&self, draw: &Draw) -> (Verdict, Reading) {
        let durable = self.outputs.view.durable();
        let mut sequences = self.outputs.database.sequences();
        (sequences.answer(draw, durable), sequences.reading())
    }

    /// Waits and aborts by table, the highest counts first.
    pub(crate) fn conflicts(&self) -> Vec<Count> {
        self.query(Cluster::conflicts)
    }

    /// The statements that wait for transactions of other homes at this moment.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let at_node = |session| self.outputs.crews.at_node(session);
        let waiting = self.query(Cluster::waiting).into_iter();
        waiting.map(|waiting| numbered(waiting, at_node)).collect()
    }

    /// The wait of a session for transactions of other homes, if it waits.
    pub(in crate::coordinator) fn wait_of(&self, session: SessionId) -> Option<Waiting> {
        let waiting = self.query(Cluster::waiting).into_iter().find(|waiting| waiting.session == session)?;
        Some(numbered(waiting, |other| as_seen_by(Some(session.crew()), other)))
    }

    /// The chains of transactions that are known as a whole.
    pub(crate) fn chains(&self) -> Vec<ChainStatus> {
        self.query(Cluster::chains)
    }

    /// What became of transactions that are ordered by stamps.
    pub(crate) fn stamps(&self) -> StampCounts {
        self.query(Cluster::stamps)
    }

    /// The number of transactions that failed although all that they would do was known.
    pub(crate) fn known_misjudged(&self) -> u64 {
        self.query(Cluster::known_misjudged)
    }

    /// The number of keys of rows whose last writer the core remembers.
    pub(crate) fn keys_remembered(&self) -> usize {
        self.query(Cluster::keys_remembered)
    }

    /// The number of statements whose end no session has reported. Anything but 0 is a fault of ours.
    pub(crate) fn turns_unended(&self) -> u64 {
        self.query(Cluster::turns_unended)
    }

    /// For each open update transaction, a version that its snapshot includes.
    pub(crate) fn snapshots(&self) -> BTreeMap<SessionId, Version> {
        let snapshots = self.query(Cluster::snapshots).into_iter();
        snapshots.map(|(session, version)| (self.outputs.crews.at_node(session), version)).collect()
    }

    /// A transaction of another home that has written some of these claims since the session's transaction began.
    pub(crate) fn earlier_writer(&self, session: SessionId, claims: &Claims) -> Option<Rival> {
        let mut rival = self.query(|core| core.earlier_writer(session, claims))?;
        rival.session = rival.session.map(|other| as_seen_by(Some(session.crew()), other));
        Some(rival)
    }

    /// Whether the log has room for another record; asked before a transaction begins to commit.
    pub(crate) fn has_room(&self) -> bool {
        self.outputs.log.has_room()
    }

    /// Why the log takes no new records at present.
    pub(crate) fn refusal(&self) -> Option<LogRefusal> {
        self.outputs.log.refusal()
    }

    /// The seconds since a time of the core.
    pub(crate) fn age_s(&self, since: Time) -> f64 {
        Duration::from_micros(self.clock.now().since_us(since)).as_secs_f64()
    }
}

/// A wait, with the sessions in it as a node numbers them.
fn numbered(waiting: Waiting, number: impl Fn(SessionId) -> SessionId) -> Waiting {
    let rivals = waiting.rivals.into_iter().map(&number).collect();
    Waiting { session: number(waiting.session), rivals, ..waiting }
}
