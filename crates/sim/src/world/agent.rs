//! The agent of a replica: it ends old backends, reads the applied set, and applies refreshes.

use cluster::event::Event;
use cluster::ids::{Epoch, Identity, Incarnation, ReplicaId, Version};
use cluster::protocols::rows::COMMITS_TOGETHER_MAX;
use cluster::record::Record;

use super::node::newest;
use super::{Happening, Message, Owner, Reply, World};
use crate::check::Anomaly;
use crate::history::Element;
use crate::schema::{Key, Row};
use crate::server::{Connection, Op};
use crate::trace::Stage;

/// The pause before a server is tried again.
pub(super) const RETRY_US: u64 = 500;

/// The steps of making a new connection set.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResetStage {
    EndBackends,
    ReadApplied,
    Connect { generation: u32, applied: u64 },
}

/// A refresh under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    from: Version,
    upto: Version,
}

/// One replica's agent.
#[derive(Debug, Default)]
pub(super) struct Agent {
    /// The present connection set.
    pub(super) incarnation: Incarnation,
    /// The server's generation when the set was made.
    pub(super) generation: u32,
    pub(super) is_serving: bool,
    pub(super) line: Option<Connection>,
    pub(super) work: Option<Work>,
    /// The agent has reported that its replica diverged.
    pub(super) is_quarantined: bool,
    /// The versions it remembers as applied. Only a mutant relies on them.
    remembered: u64,
    /// The version that a rebuild assumed, without reading the copy. Only a mutant relies on it.
    pub(super) believed: Option<u64>,
}

impl Agent {
    /// An agent of a leader of this term.
    pub(super) fn of_term(epoch: Epoch) -> Self {
        Self { incarnation: Incarnation::before(epoch), ..Self::default() }
    }
}

impl World {
    pub(super) fn reset(&mut self, replica: usize, incarnation: Incarnation, stage: ResetStage) {
        if self.agent(replica).incarnation != incarnation {
            return;
        }
        let server = &self.servers[replica];
        let (next, after) = match stage {
            _ if !server.is_up() || self.is_cut(replica) => (ResetStage::EndBackends, RETRY_US),
            ResetStage::EndBackends => {
                if self.rules.reset_ends_backends {
                    server.connections().into_iter().for_each(|connection| self.terminate(connection));
                }
                (ResetStage::ReadApplied, self.dice.delay(self.plan.pace.network_us))
            }
            ResetStage::ReadApplied => {
                let all_gone = server.is_quiet() && server.connections().is_empty();
                if self.rules.reset_ends_backends && !all_gone {
                    (ResetStage::EndBackends, RETRY_US)
                } else {
                    self.apply_missing(replica);
                    let applied = self.applied_prefix(replica);
                    let generation = self.servers[replica].generation;
                    let stage = ResetStage::Connect { generation, applied };
                    (stage, self.dice.delay(self.plan.pace.network_us))
                }
            }
            ResetStage::Connect { generation, .. } if generation != server.generation => {
                (ResetStage::EndBackends, RETRY_US)
            }
            ResetStage::Connect { generation, applied } => {
                self.serve(replica, generation, applied);
                return;
            }
        };
        let epoch = self.epoch;
        self.agenda.enter(after, Happening::Reset { epoch, replica, incarnation, stage: next });
    }

    /// The longest prefix of the log that the replica has applied. Records that it need not apply count as applied,
    /// and so do empty ones.
    fn applied_prefix(&mut self, replica: usize) -> u64 {
        let remembered = self.agent(replica).remembered;
        if !self.rules.applied_is_read_again && remembered > 0 {
            return remembered;
        }
        if let Some(believed) = self.agent(replica).believed.take() {
            return believed;
        }
        self.disk.records.iter().take_while(|record| self.has(replica, record)).count() as u64
    }

    pub(super) fn has(&self, replica: usize, record: &Record) -> bool {
        self.servers[replica].applied().contains(&record.header().identity)
            || record.rows() == 0
            || !self.placement.holdings(ReplicaId(replica as u16)).must_apply(record)
    }

    /// The versions that the replica lacks although it has a later one, because it was lost in the middle of a commit
    /// group. No connection may be open there.
    fn apply_missing(&mut self, replica: usize) {
        if !self.rules.missing_are_applied {
            return;
        }
        let is_there = |record: &Record| self.servers[replica].applied().contains(&record.header().identity);
        let Some(last) = self.disk.records.iter().rposition(is_there) else { return };
        let lacks = |at: &usize| !self.has(replica, &self.disk.records[*at]);
        let missing: Vec<usize> = (0..last).filter(lacks).collect();
        let Some(first) = missing.first() else { return };
        let is_together = last - first < COMMITS_TOGETHER_MAX as usize;
        if !is_together {
            let (first, last) = (first + 1, last + 1);
            self.find(
                Anomaly::Order,
                format!("replica {replica} has version {last} and not version {first}"),
            );
        }
        for at in missing {
            let record = &self.disk.records[at];
            let changes = record.row_changes().filter(|change| self.holds(replica, *change));
            let writes = changes.map(newest).collect();
            let identity = record.header().identity;
            if let Some(wrong) = self.servers[replica].write_at_once(writes, vec![identity]) {
                self.find(Anomaly::Diverged, format!("replica {replica}, version {}: {wrong}", at + 1));
            }
        }
    }

    /// Whether the replica holds the row, as the record tells its part. Definitions are at every replica.
    fn holds(&self, replica: usize, change: cluster::record::RowChange<'_>) -> bool {
        if change.table == Key::VIEW.table_id() {
            return true;
        }
        let holdings = self.placement.holdings(ReplicaId(replica as u16));
        let part = change.parts.new.filter(|_| self.rules.unheld_parts_left_out);
        holdings.holds_row(change.table, part)
    }

    fn serve(&mut self, replica: usize, generation: u32, applied: u64) {
        let line = self.connect(replica, Owner::Agent(replica), false);
        let agent = self.agent(replica);
        agent.generation = generation;
        agent.is_serving = true;
        agent.line = Some(line);
        let incarnation = agent.incarnation;
        self.trace.say(self.agenda.now_us(), Stage::Recover, || {
            format!("replica {replica} serves as incarnation {incarnation} with {applied}")
        });
        let (replica, applied) = (ReplicaId(replica as u16), Version(applied));
        self.tell(Event::ReplicaUp { replica, incarnation, applied });
    }

    pub(super) fn begin_apply(
        &mut self,
        replica: usize,
        incarnation: Incarnation,
        from: Version,
        upto: Version,
    ) {
        if self.incarnation(replica) != incarnation {
            return;
        }
        if self.rules.sync_before_logged
            && upto.0 as usize > self.disk.durable
            && self.rules.core.durable_first
        {
            self.find(Anomaly::Order, format!("version {upto} is applied before it is durable"));
        }
        self.agent(replica).work = Some(Work { from, upto });
        let slow = self.refresh_slow_until_us[replica].saturating_sub(self.agenda.now_us());
        let after = self.dice.delay(self.plan.pace.refresh_us) + slow;
        let epoch = self.epoch;
        self.agenda.enter(after, Happening::Apply { epoch, replica, incarnation });
    }

    /// Reads the records and sends the rows that the replica holds.
    pub(super) fn apply(&mut self, replica: usize, incarnation: Incarnation) {
        let agent = self.agent(replica);
        let (Some(work), Some(line)) = (agent.work, agent.line) else { return };
        if agent.incarnation != incarnation {
            return;
        }
        let mut ops: Vec<(Op, Element)> = Vec::new();
        for record in self.records(work) {
            for change in record.row_changes() {
                if self.holds(replica, change) {
                    let (key, new) = newest(change);
                    ops.push((Op::Put(key, old_image(change), new), 0));
                }
            }
        }
        self.send(line, Message::Run(ops));
    }

    fn records(&self, work: Work) -> &[Record] {
        &self.disk.records[work.from.0 as usize - 1..work.upto.0 as usize]
    }

    pub(super) fn agent_reply(&mut self, replica: usize, line: Connection, reply: Reply) {
        if self.agent(replica).line != Some(line) {
            return;
        }
        let incarnation = self.incarnation(replica);
        let id = ReplicaId(replica as u16);
        let Some(work) = self.agent(replica).work.filter(|_| !matches!(reply, Reply::Lost)) else {
            self.agent(replica).line = None;
            self.tell(Event::ReplicaLost { replica: id, incarnation });
            return;
        };
        match reply {
            Reply::Answer(answer) if answer.error.is_some() && self.servers[replica].refuses => {
                self.quarantine(replica, work.upto);
            }
            Reply::Answer(answer) if answer.error.is_some() => {
                self.find(Anomaly::Diverged, format!("replica {replica} cannot apply {work:?}: {answer:?}"));
            }
            Reply::Answer(_) => {
                let identities: Vec<Identity> = if self.rules.refresh_inserts_identities {
                    self.records(work).iter().map(|record| record.header().identity).collect()
                } else {
                    Vec::new()
                };
                self.send(line, Message::Identities(identities));
            }
            Reply::Inserted { .. } => {
                self.send(line, Message::Commit);
                if !self.rules.apply_is_awaited {
                    let agent = self.agent(replica);
                    agent.work = None;
                    // On a second connection, since its COMMIT would queue behind the first.
                    self.lines.remove(&line);
                    let line = self.connect(replica, Owner::Agent(replica), false);
                    self.agent(replica).line = Some(line);
                    self.tell(Event::Applied { replica: id, incarnation, upto: work.upto });
                }
            }
            Reply::Committed => {
                let agent = self.agent(replica);
                agent.work = None;
                agent.remembered = work.upto.0;
                self.trace.say(self.agenda.now_us(), Stage::Propagate, || {
                    format!("replica {replica} applied up to {}", work.upto)
                });
                self.tell(Event::Applied { replica: id, incarnation, upto: work.upto });
            }
            Reply::RolledBack | Reply::Failed | Reply::Lost => {}
        }
    }

    /// The replica cannot apply a record and is quarantined; a mutant goes on as if it had applied it.
    fn quarantine(&mut self, replica: usize, upto: Version) {
        let incarnation = self.incarnation(replica);
        let id = ReplicaId(replica as u16);
        let agent = self.agent(replica);
        agent.work = None;
        if !self.rules.refused_is_diverged {
            let line = self.agent(replica).line;
            if let Some(line) = line {
                self.send(line, Message::Rollback);
            }
            self.tell(Event::Applied { replica: id, incarnation, upto });
            return;
        }
        let agent = self.agent(replica);
        agent.is_quarantined = true;
        agent.is_serving = false;
        if let Some(line) = agent.line.take() {
            self.close(line);
        }
        self.drop_performers(replica);
        self.trace.say(self.agenda.now_us(), Stage::Recover, || format!("replica {replica} has diverged"));
        self.tell(Event::Diverged { replica: id });
        // It does not return by itself, so statements must not wait for it.
        self.tell(Event::TakeOver { from: id });
    }
}

fn old_image(change: cluster::record::RowChange<'_>) -> Row {
    match change.change {
        cluster::record::Change::Update { old, .. } => Row::decode(change.table, old).1,
        _ => unreachable!("the simulator logs every change as an update"),
    }
}
