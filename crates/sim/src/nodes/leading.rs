//! What a leader does: it opens its term, fences replicas, feeds the core, appends to the log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::Cluster;
use cluster::event::{Effect, Event, Found};
use cluster::ids::{CrewId, Epoch, Identity, Incarnation, NodeId, ReplicaId, Version};
use cluster::nodes::lease::Grants;
use cluster::nodes::ledger::{Question, Said};
use cluster::nodes::roster::Roster;
use cluster::nodes::term::Input;
use cluster::nodes::version_leases::VersionLeases;
use cluster::placement::Placement;
use cluster::protocols::rows;
use cluster::time::Time;

use super::chair::{Answer, Appended, Request};
use super::world::{Happening, Message, NETWORK_US, TIMING, World};

/// An append under way: the same one until it is answered.
#[derive(Clone, Debug)]
struct Append {
    first: Version,
    /// Its place in the log, which is another one only under a mutant.
    key: Version,
    identities: Vec<Identity>,
    /// When it was sent last.
    sent: Time,
}

/// A term of a node.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) epoch: Epoch,
    pub(super) revision: u64,
    cluster: Option<Cluster>,
    roster: Roster,
    pub(super) grants: Grants,
    /// Once the log is open.
    pub(super) leases: Option<VersionLeases>,
    pub(super) crews: BTreeMap<usize, CrewId>,
    /// The attempts to join of which these crews are.
    pub(super) joins: BTreeMap<usize, u64>,
    pub(super) serves: bool,
    waiting: VecDeque<(CrewId, Said)>,
    queue: VecDeque<Identity>,
    appending: Option<Append>,
    /// The last version that was put into the queue, and all that are known.
    last: Version,
    versions: BTreeMap<Identity, Version>,
    /// What the log is known to have; the core hears of it when all nodes have noted it.
    in_log: Version,
    incarnations: Vec<Incarnation>,
    fenced: BTreeSet<usize>,
    catalogue: Version,
}

/// Work of an agent, or a call of the core.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Fence { replica: usize, incarnation: Incarnation, is_read: bool },
    Apply { replica: usize, incarnation: Incarnation, from: Version, upto: Version },
    WakeUp,
}

impl World {
    /// The chair is this node's: opens the term. The log is read where the fence record is appended.
    pub(super) fn lead(&mut self, node: usize, epoch: Epoch) {
        let now = self.now(node);
        // As the answer to the claim said; a revision of 0 belongs to no claim, if it was replaced already.
        let holder = self.chair.reading.holder.filter(|holder| holder.epoch == epoch);
        let revision = holder.map_or(0, |_| self.chair.reading.revision);
        let first = Version(self.chair.log.len() as u64 + 1);
        let fence = Identity { epoch, n: 0, nonce: self.nonce(node) };
        let before =
            Incarnation::before(if self.switches.incarnations_tell_terms { epoch } else { Epoch(0) });
        self.leave(node);
        self.nodes[node].lead = Some(Lead {
            epoch,
            revision,
            cluster: None,
            roster: Roster::default(),
            grants: Grants::new(TIMING, self.switches.nodes, now),
            leases: None,
            crews: BTreeMap::new(),
            joins: BTreeMap::new(),
            serves: false,
            waiting: VecDeque::new(),
            queue: VecDeque::new(),
            appending: Some(Append { first, key: first, identities: vec![fence], sent: now }),
            last: first,
            versions: BTreeMap::new(),
            in_log: Version::ZERO,
            incarnations: vec![before; self.servers.len()],
            fenced: BTreeSet::new(),
            catalogue: Version::ZERO,
        });
        self.send_append(node);
    }

    fn send_append(&mut self, node: usize) {
        let sent = self.now(node);
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let Some(append) = &mut lead.appending else { return };
        append.sent = sent;
        let Append { key, identities, .. } = append.clone();
        let request = Request::Append { revision: lead.revision, first: key, identities };
        self.ask_chair(node, request, sent);
    }

    /// The chair has answered, or not.
    pub(super) fn answered(&mut self, node: usize, answer: Option<&Answer>, sent: Time) {
        match answer.cloned() {
            Some(Answer::Reading(reading)) => self.hear(node, Input::Read { sent, reading: Some(reading) }),
            Some(Answer::Claimed(revision)) => {
                let holder = self.chair.reading.holder;
                let own = holder.filter(|holder| holder.node == NodeId(node as u16));
                let epoch = revision.and(own).map(|holder| holder.epoch);
                self.hear(node, Input::Claimed { sent, epoch });
            }
            Some(Answer::Confirmed(is_ours)) => self.confirmed(node, sent, is_ours),
            Some(Answer::Appended(answer)) => {
                let lead = self.nodes[node].lead.as_ref();
                let append = lead.and_then(|lead| lead.appending.as_ref());
                if append.is_none_or(|append| append.sent != sent) {
                    return;
                }
                match answer {
                    Appended::Done => {
                        self.confirmed(node, sent, true);
                        self.appended(node);
                    }
                    Appended::Replaced => self.confirmed(node, sent, false),
                    Appended::Taken => self.taken(node, sent),
                    Appended::Unknown => self.append_again(node),
                }
            }
            None => {
                self.hear(node, Input::Read { sent, reading: None });
                self.hear(node, Input::Claimed { sent, epoch: None });
                self.hear(node, Input::Confirmed { sent, is_ours: None });
            }
        }
    }

    fn confirmed(&mut self, node: usize, sent: Time, is_ours: bool) {
        self.hear(node, Input::Confirmed { sent, is_ours: Some(is_ours) });
        let now = self.now(node);
        if let Some(lead) = self.nodes[node].lead.as_mut().filter(|_| is_ours) {
            let let_go = lead.grants.renewed(sent, now);
            self.address(node, let_go);
        }
    }

    /// There was no answer, so the append may be in the log: the same one again. The mutant takes a new place.
    fn append_again(&mut self, node: usize) {
        let next = Version(self.chair.log.len() as u64 + 1);
        if let Some(lead) = &mut self.nodes[node].lead
            && let Some(append) = &mut lead.appending
            && !self.switches.retries_keep_the_key
        {
            append.key = next;
        }
        self.send_append(node);
    }

    /// The place in the log is another's. Only mutants come here while they have the chair.
    fn taken(&mut self, node: usize, sent: Time) {
        let next = Version(self.chair.log.len() as u64 + 1);
        let Some(lead) = &mut self.nodes[node].lead else { return };
        if lead.cluster.is_none() || !self.switches.appends_compare {
            if let Some(append) = &mut lead.appending {
                (append.first, append.key, lead.last) = (next, next, next);
            }
            self.send_append(node);
        } else {
            self.confirmed(node, sent, false);
        }
    }

    fn appended(&mut self, node: usize) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let Some(Append { first, identities, .. }) = lead.appending.take() else { return };
        let upto = Version(first.0 + identities.len() as u64 - 1);
        if lead.cluster.is_none() {
            self.opened(node, upto);
            return;
        }
        lead.in_log = upto;
        if let Some(leases) = &mut lead.leases {
            leases.durable(upto);
        }
        self.release(node);
        self.pump(node);
    }

    fn opened(&mut self, node: usize, last: Version) {
        let replicas = self.servers.len() as u16;
        let versions: BTreeMap<_, _> = self.chair.log.iter().copied().zip((1..).map(Version)).collect();
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let protocol = rows::Rows::new(rows::Options {
            choices: self.switches.protocol,
            replicas,
            anchor: ReplicaId(0),
            placement: Placement::full(replicas),
            epoch: lead.epoch,
            last,
            schema: last,
            refresh_pause_us: 0,
            keys_max: rows::KEYS_MAX,
            refresh_versions_max: rows::REFRESH_VERSIONS_MAX,
            rules: self.switches.rows,
        });
        let Ok(protocol) = protocol else { return };
        lead.cluster = Some(Cluster::new(Box::new(protocol)));
        (lead.versions, lead.last, lead.in_log) = (versions, last, last);
        lead.leases = Some(VersionLeases::new(TIMING, self.switches.nodes, last));
        if !self.switches.fenced_before_applied {
            // The mutant brings servers up to date at once.
            for server in &mut self.servers {
                server.shown.extend(1..=last.0);
            }
        }
        for replica in 0..self.servers.len() {
            self.fence(node, replica);
        }
        self.hear(node, Input::Opened);
    }

    fn fence(&mut self, node: usize, replica: usize) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        lead.incarnations[replica] = lead.incarnations[replica].next();
        let incarnation = lead.incarnations[replica];
        self.later(node, Work::Fence { replica, incarnation, is_read: false }, NETWORK_US);
    }

    fn later(&mut self, node: usize, work: Work, typical_us: u64) {
        let Some(lead) = &self.nodes[node].lead else { return };
        let (run, epoch) = (self.nodes[node].run, lead.epoch);
        let after = self.dice.delay(typical_us);
        self.agenda.enter(after, Happening::Agent { node, run, epoch, work });
    }

    pub(super) fn work(&mut self, node: usize, epoch: Epoch, work: Work) {
        let Some(lead) = self.nodes[node].lead.as_ref().filter(|lead| lead.epoch == epoch) else { return };
        let (replica, incarnation) = match work {
            Work::WakeUp => {
                self.feed(node, Event::WakeUp);
                return;
            }
            Work::Fence { replica, incarnation, .. } | Work::Apply { replica, incarnation, .. } => {
                (replica, incarnation)
            }
        };
        if lead.incarnations[replica] != incarnation {
            return;
        }
        let cut_us = self.servers[replica].cut.get(&node).copied().unwrap_or(0);
        if cut_us > self.agenda.now_us() {
            let after = cut_us - self.agenda.now_us();
            let run = self.nodes[node].run;
            self.agenda.enter(after, Happening::Agent { node, run, epoch, work });
            return;
        }
        match work {
            Work::Fence { is_read: false, .. } => {
                // A server belongs to the last one that has fenced it; an older term is refused by the epoch of its fence.
                if self.servers[replica].fenced_by <= epoch {
                    self.servers[replica].fenced_by = epoch;
                    self.servers[replica].incarnation = incarnation;
                    self.end_backends(replica, |_| true);
                    self.later(node, Work::Fence { replica, incarnation, is_read: true }, NETWORK_US);
                }
            }
            Work::Fence { is_read: true, .. } => self.replica_up(node, replica, incarnation),
            Work::Apply { from, upto, .. } => {
                if self.servers[replica].incarnation != incarnation
                    || self.servers[replica].fenced_by != epoch
                {
                    return;
                }
                for version in from.0..=upto.0 {
                    if !self.servers[replica].shown.insert(version) {
                        self.judge.find(format!("twice: version {version} is applied again at {replica}"));
                    }
                }
                self.feed(node, Event::Applied { replica: ReplicaId(replica as u16), incarnation, upto });
            }
            Work::WakeUp => {}
        }
    }

    /// A server that was fenced is brought up to date from the log.
    fn replica_up(&mut self, node: usize, replica: usize, incarnation: Incarnation) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        lead.fenced.insert(replica);
        let all_fenced = lead.fenced.len() == self.servers.len();
        let told = lead.cluster.as_ref().map_or(Version::ZERO, Cluster::durable);
        let upto = if self.switches.replay_ends_at_what_is_noted { told } else { lead.in_log };
        let server = &mut self.servers[replica];
        if let Some(last) = server.shown.last().copied() {
            // What a commit group left out.
            server.shown.extend(1..=last);
        }
        server.shown.extend(1..=upto.0);
        let applied = Version(server.prefix());
        self.feed(node, Event::ReplicaUp { replica: ReplicaId(replica as u16), incarnation, applied });
        if all_fenced {
            self.hear(node, Input::Fenced);
        }
    }

    /// Statements may run from now on.
    pub(super) fn begin_to_serve(&mut self, node: usize, renewed: Time) {
        let now = self.now(node);
        let Some(lead) = &mut self.nodes[node].lead else { return };
        lead.serves = true;
        lead.grants.renewed(renewed, now);
        while let Some((crew, said)) =
            self.nodes[node].lead.as_mut().and_then(|lead| lead.waiting.pop_front())
        {
            self.take(node, crew, said);
        }
    }

    /// A node wants to join.
    pub(super) fn hello(&mut self, node: usize, (from, join): (usize, u64), epoch: Epoch) {
        let Some(lead) = &self.nodes[node].lead else { return };
        if lead.epoch != epoch || lead.cluster.is_none() || lead.joins.get(&from) == Some(&join) {
            return;
        }
        self.crew_lost(node, from);
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let Ok(crew) = lead.roster.join() else { return };
        lead.crews.insert(from, crew);
        lead.joins.insert(from, join);
        let catalogue = lead.catalogue;
        self.post(node, from, Message::Welcome { epoch, join, catalogue });
        if from != node {
            self.hear(node, Input::Joined(NodeId(from as u16)));
        }
    }

    /// A crew of this leader is lost: its backends are ended, since it cannot end them itself.
    pub(super) fn crew_lost(&mut self, node: usize, of: usize) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let Some(crew) = lead.crews.remove(&of) else { return };
        lead.joins.remove(&of);
        let Some(event) = lead.roster.leave(crew) else { return };
        lead.waiting.retain(|(waiting, _)| *waiting != crew);
        if self.switches.backends_of_the_lost_end {
            for replica in 0..self.servers.len() {
                self.end_backends(replica, |owner| owner.node == of);
            }
        }
        self.feed(node, event);
    }

    pub(super) fn said(&mut self, node: usize, from: usize, said: Said) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let Some(crew) = lead.crews.get(&from).copied() else { return };
        if lead.serves {
            self.take(node, crew, said);
        } else {
            lead.waiting.push_back((crew, said));
        }
    }

    fn take(&mut self, node: usize, crew: CrewId, said: Said) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let event = match lead.roster.hear(crew, said) {
            Some(Question::Event(event)) => *event,
            Some(Question::Outcome { session, identity, after }) => {
                // A log that was trimmed up to what the session asks from says the same.
                let version = lead.versions.get(&identity).copied().filter(|version| *version > after);
                Event::Outcome { session, found: Found::of(version, after, after.next()) }
            }
            None => return,
        };
        if let Some(session) = event.session() {
            lead.grants.drop_of(session);
        }
        self.feed(node, event);
    }

    pub(super) fn reported(&mut self, node: usize, event: Event) {
        self.feed(node, event);
    }

    pub(super) fn feed(&mut self, node: usize, event: Event) {
        let now = self.now(node);
        let mut effects = Vec::new();
        let Some(cluster) = self.nodes[node].lead.as_mut().and_then(|lead| lead.cluster.as_mut()) else {
            return;
        };
        cluster.handle(now, event, &mut effects);
        for effect in effects {
            let Some(lead) = &mut self.nodes[node].lead else { return };
            if effect.session().is_some() {
                let passed = lead.grants.pass(effect, now);
                self.address(node, passed.into_iter().collect());
                continue;
            }
            match effect {
                Effect::Append { version, identity, .. } => {
                    lead.last = version;
                    lead.versions.insert(identity, version);
                    lead.queue.push_back(identity);
                    self.tell_assigned(node, version);
                    self.pump(node);
                }
                Effect::Apply { replica, incarnation, from, upto } => {
                    let replica = usize::from(replica.0);
                    self.later(node, Work::Apply { replica, incarnation, from, upto }, 200);
                }
                Effect::Reset { replica } => self.fence(node, usize::from(replica.0)),
                Effect::LoadCatalogue { version, .. } => {
                    lead.catalogue = version;
                    let crews: Vec<usize> = lead.crews.keys().copied().collect();
                    for of in crews {
                        self.post(node, of, Message::Catalogue { version });
                    }
                    self.feed(node, Event::CatalogueLoaded { version });
                }
                Effect::WakeAt { at } => {
                    let after = at.since_us(now) + 1;
                    self.later(node, Work::WakeUp, after);
                }
                _ => {}
            }
        }
    }

    fn address(&mut self, node: usize, effects: Vec<Effect>) {
        for effect in effects {
            let Some(lead) = &self.nodes[node].lead else { return };
            if let Some((crew, heard)) = lead.roster.address(effect)
                && let Some(of) = lead.crews.iter().find(|(_, one)| **one == crew).map(|(of, _)| *of)
            {
                self.post(node, of, Message::Heard(Box::new(heard)));
            }
        }
    }

    /// Appends what waits, one append at a time.
    fn pump(&mut self, node: usize) {
        let Some(lead) = &mut self.nodes[node].lead else { return };
        if lead.appending.is_none() && !lead.queue.is_empty() {
            let identities: Vec<Identity> = lead.queue.drain(..).collect();
            let first = Version(lead.last.0 + 1 - identities.len() as u64);
            let next = Version(self.chair.log.len() as u64 + 1);
            let key = if self.switches.retries_keep_the_key { first } else { next };
            lead.appending = Some(Append { first, key, identities, sent: Time::default() });
            self.send_append(node);
        }
    }
}
