//! The node: it feeds the cluster core with events, executes the core's effects, and writes the log.
//!
//! A crash loses the node's memory. The log keeps its durable part and any beginning of the rest.

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::{ClusterId, Epoch, Identity, Incarnation, Nonce, ReplicaId, ServiceId, Version};
use cluster::parts::replica::State;
use cluster::protocols::rows::{self, Choices};
use cluster::record::{Envelope, Header, Record, SealedBody};
use cluster::time::Time;

use super::agent::{Agent, RETRY_US, ResetStage};
use super::cache::Cache;
use super::{Happening, World};
use crate::check::Anomaly;
use crate::dice::Dice;
use crate::schema::{self, Row, Rows};
use crate::trace::Stage;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// The log.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) records: Vec<Record>,
    /// The bytes of every record that was ever appended; a crash takes nothing from these.
    pub(super) appended: Vec<u8>,
    pub(super) durable: usize,
    pub(super) slow_us: u64,
    /// The next fsync fails; the node starts again after this time.
    pub(super) fails_for_us: Option<u64>,
    /// Where the records begin that a failed fsync dropped. Only a mutant goes on after that.
    hole: Option<usize>,
}

impl Disk {
    /// The version of the last schema change.
    fn last_schema_change(&self) -> Version {
        let last = self.records.iter().rev().find(|record| record.may_change_schema());
        last.map_or(Version::ZERO, |record| record.header().last)
    }

    /// The rows after all records.
    pub(super) fn replay(&self) -> Rows {
        self.replay_until(self.last())
    }

    /// The rows after the record of this version.
    pub(super) fn replay_until(&self, version: Version) -> Rows {
        let mut rows = schema::first_rows();
        for record in &self.records[..version.0 as usize] {
            for change in record.row_changes() {
                let (key, row) = newest(change);
                rows.insert(key, row);
            }
        }
        rows
    }

    /// A crash: keeps the durable records and a random beginning of the other bytes, perhaps with a sector missing.
    /// Like the binary it then reads records up to the first bad checksum. False if a record reads that was never written.
    fn tear(&mut self, dice: &mut Dice) -> bool {
        let durable = self.durable.min(self.hole.unwrap_or(usize::MAX));
        let loose = self.records.split_off(durable);
        let mut bytes: Vec<u8> = loose.iter().flat_map(|record| record.bytes().iter().copied()).collect();
        bytes.truncate(if self.hole.take().is_some() { 0 } else { dice.index(bytes.len() + 1) });
        if !bytes.is_empty() && dice.percent(30) {
            let from = dice.index(bytes.len());
            let upto = bytes.len().min(from + SECTOR_BYTES);
            bytes[from..upto].fill(0);
        }
        let found = scan(&bytes);
        let is_beginning = found.iter().zip(&loose).all(|(one, other)| one.bytes() == other.bytes());
        self.records.extend(found);
        is_beginning
    }

    /// The last version in it.
    pub(super) fn last(&self) -> Version {
        Version(self.records.len() as u64)
    }
}

/// An event as a line of the trace, without the bytes of a record.
fn told(event: &Event) -> String {
    match event {
        Event::Finish { session, claims, .. } => {
            format!("Finish {{ session: {session:?}, claims: {claims:?} }}")
        }
        other => format!("{other:?}"),
    }
}

/// The records at the beginning of these bytes, up to the first bad checksum.
fn scan(bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Ok(envelope) = Envelope::decode(rest)
        && let Some(whole) = rest.get(..envelope.record_bytes())
        && let Ok(record) = Record::decode(whole.to_vec())
    {
        rest = &rest[whole.len()..];
        records.push(record);
    }
    records
}

/// The row that a change leaves.
pub(super) fn newest(change: cluster::record::RowChange<'_>) -> (schema::Key, Row) {
    use cluster::record::Change;
    match change.change {
        Change::Update { new, .. } | Change::Insert { new } => Row::decode(change.table, new),
        other => unreachable!("the simulator only logs images of what is new, not {other:?}"),
    }
}

/// A running node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) cluster: Cluster,
    pub(super) agents: Vec<Agent>,
    /// The replica that was last said to be the anchor.
    pub(super) anchor: usize,
    pub(super) catalogue: Version,
    /// How often the view had changed when the catalogue was loaded.
    pub(super) view_changes: usize,
    pub(super) cache: Cache,
    is_syncing: bool,
}

impl Node {
    /// Whether every replica is up and has everything.
    pub(super) fn is_level(&self, records: usize) -> bool {
        let last = Version(records as u64);
        let is_level = |r: &cluster::protocols::ReplicaStatus| {
            r.state == State::Quarantined || (r.state == State::Up && r.applied == last)
        };
        let is_connected = |agent: &Agent| agent.is_quarantined || (agent.is_serving && agent.line.is_some());
        self.cluster.durable() == last
            && self.cluster.replicas().iter().all(is_level)
            && self.agents.iter().all(is_connected)
    }
}

impl World {
    /// Starts the node: a new epoch over the log as found; every replica is fenced and asked for its applied set.
    pub(super) fn start_node(&mut self) {
        self.epoch += 1;
        self.clock_ahead_us = self.plan.clock_us;
        self.wake_requests += 1;
        self.disk.durable = self.disk.records.len();
        let last = self.disk.last();
        let protocol = rows::Rows::new(rows::Options {
            choices: Choices {
                patience_us: self.plan.patience_us,
                ..self.stamped.choices(self.rules.protocol)
            },
            replicas: self.plan.replicas,
            anchor: ReplicaId(0),
            placement: self.placement.clone(),
            epoch: Epoch(self.epoch),
            last,
            schema: self.disk.last_schema_change(),
            refresh_pause_us: self.plan.pace.batching_us,
            keys_max: self.plan.keys_max,
            refresh_versions_max: self.plan.refresh_versions_max,
            rules: self.rules.core,
        });
        let protocol = protocol.expect("replica 0 holds everything");
        self.trace.say(self.agenda.now_us(), Stage::Recover, || format!("node starts, last version {last}"));
        self.node = Some(Node {
            cluster: Cluster::new(Box::new(protocol)),
            agents: (0..self.servers.len()).map(|_| Agent::of_term(Epoch(self.epoch))).collect(),
            anchor: 0,
            catalogue: Version::ZERO,
            view_changes: 0,
            cache: Cache::default(),
            is_syncing: false,
        });
        for replica in 0..self.servers.len() {
            if self.membership.has(replica) {
                self.begin_reset(replica);
            } else {
                self.agent(replica).is_quarantined = true;
                self.tell(Event::Left { replica: ReplicaId(replica as u16) });
            }
        }
        self.wait_for(0);
    }

    /// Kills the node, with its memory, its connections and part of the records that were not durable.
    pub(super) fn crash_node(&mut self, down_us: u64) {
        self.count_stamps();
        if self.node.take().is_none() {
            return;
        }
        self.epoch += 1;
        if !self.disk.tear(&mut self.dice) {
            self.find(Anomaly::Order, "the end of the log reads otherwise than it was written".to_owned());
        }
        self.lines.clear();
        self.stamped.clear();
        for session in 0..self.sessions.len() {
            self.lose_session(session);
        }
        self.agenda.enter(down_us, Happening::NodeStart);
    }

    /// Feeds the core and executes its effects in order.
    pub(super) fn tell(&mut self, event: Event) {
        let now = Time { us: self.agenda.now_us().saturating_add(self.clock_ahead_us) };
        let Some(node) = self.node.as_mut() else { return };
        self.trace.say(self.agenda.now_us(), Stage::Order, || told(&event));
        let lost = match event {
            Event::ReplicaLost { replica, .. } | Event::Diverged { replica } => Some(usize::from(replica.0)),
            _ => None,
        };
        let mut effects = Vec::new();
        if let Event::Begin { session, .. } = event {
            self.stamped.begins(session);
        }
        node.cluster.handle(now, event, &mut effects);
        let misjudged = node.cluster.known_misjudged();
        let forgotten = node.cluster.replicas().into_iter().find(|status| status.is_forgotten);
        for effect in effects {
            self.carry_out(effect);
        }
        if misjudged > 0 && self.rules.protocol.order.chains_all() && !self.stamped.mispredicts() {
            self.find(Anomaly::Order, "a transaction failed of which all was known beforehand".to_owned());
        }
        if let Some(status) = forgotten {
            self.find(Anomaly::Stuck, format!("a statement is forgotten at a replica: {status:?}"));
        }
        if let Some(replica) = lost {
            self.wait_for(replica);
        }
    }

    /// Schedules the takeover: if the lost replica is the anchor and has not returned by then, another one replaces it.
    fn wait_for(&mut self, replica: usize) {
        if let Some(pace_us) = self.plan.pace.takeover_us {
            let (after, epoch) = (self.dice.delay(pace_us), self.epoch);
            self.agenda.enter(after, Happening::TakeOver { epoch, replica });
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        if let Effect::Held { session, version } = effect {
            self.held(session, version);
            return;
        }
        if let Some(session) = effect.session() {
            self.post(session.0 as usize, effect);
            return;
        }
        match effect {
            Effect::Append { version, identity, body } => self.append(version, identity, *body),
            Effect::Apply { replica, incarnation, from, upto } => {
                self.begin_apply(usize::from(replica.0), incarnation, from, upto);
            }
            Effect::Anchor { replica } => {
                if let Some(node) = &mut self.node {
                    node.anchor = usize::from(replica.0);
                }
            }
            Effect::Reset { replica } => self.begin_reset(usize::from(replica.0)),
            Effect::LoadCatalogue { replica, version } => {
                let after = self.dice.delay(self.plan.pace.network_us * 20);
                let replica = usize::from(replica.0);
                let (epoch, incarnation) = (self.epoch, self.agent(replica).incarnation);
                let version = version.0;
                self.agenda.enter(after, Happening::Catalogue { epoch, replica, version, incarnation });
            }
            Effect::WakeAt { at } => {
                let now_us = self.agenda.now_us().saturating_add(self.clock_ahead_us);
                let after = (at.us.saturating_sub(now_us)).saturating_add(self.dice.delay(100));
                self.wake_requests += 1;
                self.agenda.enter(after, Happening::WakeUp { request: self.wake_requests });
            }
            other => self.carry_out_stamped(other),
        }
    }

    pub(super) fn agent(&mut self, replica: usize) -> &mut Agent {
        let node = self.node.as_mut().expect("only a running node uses its agents");
        &mut node.agents[replica]
    }

    fn append(&mut self, version: Version, identity: Identity, body: SealedBody) {
        assert_eq!(version, self.disk.last().next(), "records are appended in order");
        self.judge_order(identity);
        let header = Header {
            cluster: ClusterId(1),
            identity,
            first: version,
            last: version,
            database: body.database(),
            service: ServiceId(0),
        };
        let record = body.finish(header);
        self.disk.appended.extend_from_slice(record.bytes());
        self.disk.records.push(record);
        self.trace.say(self.agenda.now_us(), Stage::Propagate, || format!("append {version} of {identity}"));
        if let Some(after_us) = self.kill_next_append.take() {
            self.kill_home_of(identity, after_us);
        }
        if !self.rules.sync_before_logged {
            self.tell(Event::Logged { upto: version });
        }
        self.sync();
    }

    fn sync(&mut self) {
        let (epoch, upto) = (self.epoch, self.disk.records.len());
        let node = self.node.as_mut().expect("only a node that runs appends");
        if !node.is_syncing && upto > self.disk.durable {
            node.is_syncing = true;
            let after = self.dice.delay(self.plan.pace.fsync_us) + std::mem::take(&mut self.disk.slow_us);
            self.agenda.enter(after, Happening::Synced { epoch, upto });
        }
    }

    pub(super) fn synced(&mut self, upto: usize) {
        if let Some(down_us) = self.disk.fails_for_us.take() {
            self.trace
                .say(self.agenda.now_us(), Stage::Propagate, || "the log cannot be synchronised".to_owned());
            if self.rules.failed_sync_stops {
                self.crash_node(down_us);
                return;
            }
            self.disk.hole.get_or_insert(self.disk.durable);
        }
        self.disk.durable = upto;
        if let Some(node) = self.node.as_mut() {
            node.is_syncing = false;
        }
        self.trace.say(self.agenda.now_us(), Stage::Propagate, || format!("durable up to {upto}"));
        self.tell(Event::Logged { upto: Version(upto as u64) });
        self.sync();
    }

    pub(super) fn catalogue_loaded(&mut self, replica: usize, version: u64, incarnation: Incarnation) {
        let server = &self.servers[replica];
        let changes = server.newest(schema::Key::VIEW).list.len();
        // The agent's connection reads it, so a server that was restarted in the meantime does not answer.
        let (is_up, generation) = (server.is_up(), server.generation);
        if self.is_cut(replica) {
            let epoch = self.epoch;
            self.agenda.enter(RETRY_US, Happening::Catalogue { epoch, replica, version, incarnation });
            return;
        }
        let agent = self.agent(replica);
        if !is_up || agent.incarnation != incarnation || agent.generation != generation {
            return;
        }
        let version = Version(version);
        // An earlier request may end later; what it read is newer than its version says.
        if let Some(node) = self.node.as_mut().filter(|node| node.catalogue <= version) {
            node.catalogue = version;
            node.view_changes = changes;
        }
        self.tell(Event::CatalogueLoaded { version });
    }

    /// Begins to end all backends at a replica and to make a new connection set.
    pub(super) fn begin_reset(&mut self, replica: usize) {
        let agent = self.agent(replica);
        agent.incarnation = agent.incarnation.next();
        agent.is_serving = false;
        agent.work = None;
        let (incarnation, line) = (agent.incarnation, agent.line.take());
        if let Some(line) = line {
            self.close(line);
        }
        self.drop_performers(replica);
        let after = self.dice.delay(self.plan.pace.network_us);
        let epoch = self.epoch;
        let stage = ResetStage::EndBackends;
        self.agenda.enter(after, Happening::Reset { epoch, replica, incarnation, stage });
    }

    /// The nonce of this node; the simulator needs no secrets.
    pub(super) fn nonce(&self) -> Nonce {
        Nonce(u64::from(self.epoch))
    }

    pub(super) fn incarnation(&mut self, replica: usize) -> Incarnation {
        self.agent(replica).incarnation
    }
}
