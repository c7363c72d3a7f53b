//! Replicas that perform transactions of other homes, and the messages between their agents: protocol `preventive`.
//!
//! A performer is a backend of its own. It runs the statement of a transaction that has only one, inserts the identity, and waits
//! for the core's word to commit. It knows no other transaction's statements, as the binary does not, so it gives up on these.
//!
//! A transaction writes the same elements wherever it runs, as if it computed them from what it reads. In some runs a performer now
//! and then draws elements of its own, as `random()` would. Then its rows differ from those of the home.
//!
//! In other runs some predictions are wrong, so certification has to find what the order does not.
//!
//! The messages of one agent to another arrive in their order, some of them later than Max. The clocks of replicas differ.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use cluster::event::{Digest, Effect, Event, Message as AgentMessage, Performance, Stamp, Whole};
use cluster::ids::{Identity, Incarnation, ReplicaId, SessionId, Version};
use cluster::parts::stamps::Mode;
use cluster::protocols::StampCounts;
use cluster::protocols::rows::{Choices, Order};
use sha2::{Digest as _, Sha256};

use super::{Happening, Message, Owner, Reply, World};
use crate::check::Anomaly;
use crate::dice::Dice;
use crate::history::{Element, Level};
use crate::program::{Frame, Program};
use crate::record;
use crate::rules::Rules;
use crate::schema::{Key, Row};
use crate::server::{Change, Connection, Op};
use crate::trace::Stage as Told;

/// Makes the random choices of this file independent of all others.
const OWN_SEED: u64 = 0x5741_4954;

/// How far the execution of a performer has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Starting,
    Running,
    Identifying,
    Done,
    Committing(Version),
    /// Only a mutant commits without being told.
    Committed,
}

/// A performer is to start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    epoch: u32,
    replica: usize,
    identity: Identity,
    attempt: u64,
}

/// A message from one agent to another is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    epoch: u32,
    from: ReplicaId,
    to: ReplicaId,
}

/// An execution at a replica that is not the home.
#[derive(Debug)]
pub(super) struct Performer {
    attempt: u64,
    incarnation: Incarnation,
    program: Rc<Program>,
    line: Option<Connection>,
    stage: Stage,
    digest: Digest,
}

/// What only protocols with stamps have.
#[derive(Debug)]
pub(super) struct Stamped {
    mode: Option<Mode>,
    late_percent: u64,
    strange_percent: u64,
    wrong_percent: u64,
    performers: BTreeMap<(usize, Identity), Performer>,
    /// The elements that a transaction writes, op by op.
    elements: BTreeMap<Identity, Vec<Element>>,
    messages: BTreeMap<(ReplicaId, ReplicaId), VecDeque<AgentMessage>>,
    stamps: BTreeMap<SessionId, Stamp>,
    last_appended: Option<Stamp>,
    /// Of all nodes so far.
    pub(super) counts: StampCounts,
}

impl Stamped {
    pub(super) fn draw(seed: u64, rules: &Rules) -> Self {
        let mut dice = Dice::new(seed ^ OWN_SEED);
        let wait_us = *dice.pick(&[300, 1_000, 3_000]);
        let skew_us = *dice.pick(&[0, 0, 40, 400]);
        let mode = match rules.protocol.order {
            Order::Stamps(mode) => Some(Mode { wait_us, skew_us, ..mode }),
            _ => None,
        };
        // Where nothing else orders, predictions have to be right.
        let wrong_percents: &[u64] = if rules.core.certifies_writes { &[0, 0, 0, 40] } else { &[0] };
        Self {
            mode,
            late_percent: *dice.pick(&[0, 3, 25]),
            strange_percent: *dice.pick(&[0, 0, 10, 60]),
            wrong_percent: *dice.pick(wrong_percents),
            performers: BTreeMap::new(),
            elements: BTreeMap::new(),
            messages: BTreeMap::new(),
            stamps: BTreeMap::new(),
            last_appended: None,
            counts: StampCounts::default(),
        }
    }

    /// The choices of the protocol in this run.
    pub(super) fn choices(&self, protocol: Choices) -> Choices {
        match self.mode {
            Some(mode) => Choices { order: Order::Stamps(mode), ..protocol },
            None => protocol,
        }
    }

    /// Whether some predictions are wrong in this run, so a transaction may fail of which all seemed to be known.
    pub(super) fn mispredicts(&self) -> bool {
        self.mode.is_some() && self.wrong_percent > 0
    }

    /// The session begins a transaction: the stamp of its former one counts no more.
    pub(super) fn begins(&mut self, session: SessionId) {
        self.stamps.remove(&session);
    }

    /// The node has died.
    pub(super) fn clear(&mut self) {
        self.performers.clear();
        self.messages.clear();
        self.stamps.clear();
        self.last_appended = None;
    }
}

impl World {
    /// The node is about to die, or the run is over.
    pub(super) fn count_stamps(&mut self) {
        if let Some(node) = &self.node {
            self.stamped.counts.add(node.cluster.stamps());
        }
    }

    /// In some runs predictions are wrong: a transaction does more than it said.
    pub(super) fn mispredict(&mut self, whole: &mut Whole) {
        if self.stamped.mispredicts() && self.dice.percent(self.stamped.wrong_percent) {
            let is_sure = self.dice.percent(50);
            *whole = Whole { is_sure, is_performable: true, ..Whole::default() };
        }
    }

    /// The level to which a transaction is held. By stamps, one that is known as a whole is serializable, whatever its client asks for.
    pub(super) fn promised_level(&self, program: &Program) -> Level {
        let is_known = program.is_update()
            && !self.changes_view
            && self.stamped.mode.is_some()
            && !self.stamped.mispredicts()
            && record::is_known(program, self.plan.row_claims_max);
        if is_known { Level::Serializable } else { program.level }
    }

    /// Whether all ops of the transaction are known elsewhere.
    fn is_performable(&self, program: &Program) -> bool {
        self.stamped.mode.is_some() && program.frame == Frame::Autocommit
    }

    /// The elements that the transaction writes, wherever it runs; `None` if it runs at its home alone.
    pub(super) fn shared_elements(&mut self, program: &Program, identity: Identity) -> Option<Vec<Element>> {
        if !self.is_performable(program) {
            return None;
        }
        let count = program.statements[0].ops.len() as u64;
        let next = self.elements + 1;
        let drawn = self.stamped.elements.entry(identity).or_insert_with(|| {
            self.elements += count;
            (next..next + count).collect()
        });
        Some(drawn.clone())
    }

    /// Records are appended in the order of their stamps.
    pub(super) fn judge_order(&mut self, identity: Identity) {
        let is_of = |run: &super::session::Run| run.identity == Some(identity);
        let session = self.sessions.iter().position(|one| one.run.as_ref().is_some_and(is_of));
        let stamp = session.and_then(|session| self.stamped.stamps.remove(&SessionId(session as u64)));
        let Some(stamp) = stamp.filter(|_| self.rules.core.appends_are_ordered) else { return };
        if self.stamped.last_appended > Some(stamp) {
            let text = format!("{stamp:?} is appended after {:?}", self.stamped.last_appended);
            self.find(Anomaly::Order, text);
        }
        self.stamped.last_appended = Some(stamp);
    }

    /// Carries out an effect that only protocols with stamps have.
    pub(super) fn carry_out_stamped(&mut self, effect: Effect) {
        match effect {
            Effect::Send { from, to, message } => {
                let AgentMessage::Submitted { stamp, session, .. } = message;
                self.stamped.stamps.insert(session, stamp);
                self.stamped.messages.entry((from, to)).or_default().push_back(message);
                let wait_us = self.stamped.mode.map_or(0, |mode| mode.wait_us);
                let is_late = self.dice.percent(self.stamped.late_percent);
                let late_us = if is_late { wait_us + self.dice.delay(wait_us) } else { 0 };
                let after = self.dice.delay(self.plan.pace.network_us) + late_us;
                self.agenda.enter(after, Happening::Deliver(Delivery { epoch: self.epoch, from, to }));
            }
            Effect::Perform { replica, incarnation, session, identity, attempt } => {
                let run = self.sessions[session.0 as usize].run.as_ref();
                let Some(program) = run.map(|run| Rc::clone(&run.program)) else { return };
                let (stage, digest) = (Stage::Starting, Digest(0));
                let performer = Performer { attempt, incarnation, program, line: None, stage, digest };
                let replica = usize::from(replica.0);
                self.stamped.performers.insert((replica, identity), performer);
                let after = self.dice.delay(self.plan.pace.network_us);
                let start = Start { epoch: self.epoch, replica, identity, attempt };
                self.agenda.enter(after, Happening::Perform(start));
            }
            Effect::CommitPerformed { replica, identity, version, .. } => {
                self.commit_performed(usize::from(replica.0), identity, version);
            }
            Effect::UndoPerformed { replica, identity, attempt } => {
                let key = (usize::from(replica.0), identity);
                if self.stamped.performers.get(&key).is_some_and(|one| one.attempt == attempt) {
                    self.drop_performer(key.0, identity);
                }
            }
            _ => {}
        }
    }

    /// The next message from one agent to another arrives. Late ones hold up those behind them.
    pub(super) fn deliver(&mut self, Delivery { epoch, from, to }: Delivery) {
        if epoch != self.epoch {
            return;
        }
        let queue = self.stamped.messages.get_mut(&(from, to));
        if let Some(message) = queue.and_then(VecDeque::pop_front) {
            self.tell(Event::Arrived { from, to, message });
        }
    }

    pub(super) fn perform(&mut self, Start { epoch, replica, identity, attempt }: Start) {
        let performer = self.stamped.performers.get(&(replica, identity));
        let is_asked = |one: &&Performer| epoch == self.epoch && one.attempt == attempt;
        let Some(performer) = performer.filter(is_asked) else { return };
        let (program, incarnation) = (Rc::clone(&performer.program), performer.incarnation);
        let agent = self.agent(replica);
        let (is_current, generation) =
            (agent.is_serving && agent.incarnation == incarnation, agent.generation);
        let server = &self.servers[replica];
        let is_there = is_current && server.is_up() && server.generation == generation;
        if !is_there || !self.is_performable(&program) {
            self.performer_failed(replica, identity);
            return;
        }
        let Some(mut elements) = self.shared_elements(&program, identity) else { return };
        if self.dice.percent(self.stamped.strange_percent) {
            let next = self.elements + 1;
            self.elements += elements.len() as u64;
            elements = (next..=self.elements).collect();
        }
        let line = self.connect(replica, Owner::Performer { replica, identity }, program.keeps_snapshot());
        if let Some(performer) = self.stamped.performers.get_mut(&(replica, identity)) {
            (performer.line, performer.stage) = (Some(line), Stage::Running);
        }
        let ops: Vec<(Op, Element)> = program.statements[0].ops.iter().cloned().zip(elements).collect();
        self.send(line, Message::Run(ops));
    }

    pub(super) fn performer_reply(
        &mut self,
        replica: usize,
        identity: Identity,
        line: Connection,
        reply: Reply,
    ) {
        let waits = self.rules.performers_wait;
        let Some(performer) = self.stamped.performers.get_mut(&(replica, identity)) else { return };
        if performer.line != Some(line) {
            return;
        }
        match (performer.stage, reply) {
            (Stage::Committing(version), Reply::Committed) => {
                self.shows_performed(replica, identity, version);
            }
            (Stage::Committing(_), Reply::Lost | Reply::RolledBack) => {
                let incarnation = performer.incarnation;
                self.drop_performer(replica, identity);
                self.tell(Event::ReplicaLost { replica: ReplicaId(replica as u16), incarnation });
            }
            (Stage::Done, Reply::Committed) => performer.stage = Stage::Committed,
            (Stage::Running, Reply::Answer(answer))
                if answer.error.is_none() && !answer.changes.is_empty() =>
            {
                performer.stage = Stage::Identifying;
                performer.digest = digest(answer.changes.iter());
                self.send(line, Message::Identities(vec![identity]));
            }
            (Stage::Identifying, Reply::Inserted { .. }) => {
                performer.stage = Stage::Done;
                let (attempt, performance) = (performer.attempt, Performance::Done(performer.digest));
                if !waits {
                    self.send(line, Message::Commit);
                }
                let replica = ReplicaId(replica as u16);
                self.tell(Event::Performed { replica, identity, attempt, performance });
            }
            (Stage::Committed, _) => {}
            _ => self.performer_failed(replica, identity),
        }
    }

    /// The core has told the performer to commit.
    fn commit_performed(&mut self, replica: usize, identity: Identity, version: Version) {
        if self.rules.sync_before_logged && version.0 as usize > self.disk.durable {
            self.find(Anomaly::Order, format!("version {version} is committed before it is durable"));
        }
        let waits = self.rules.performers_wait;
        match self.stamped.performers.get_mut(&(replica, identity)) {
            Some(Performer { stage: Stage::Committed, .. }) => {
                self.shows_performed(replica, identity, version);
            }
            Some(Performer { stage, line: Some(line), .. }) => {
                *stage = Stage::Committing(version);
                let line = *line;
                if waits {
                    self.send(line, Message::Commit);
                }
            }
            _ => {
                // It was lost, and the core had not heard of that yet.
                let incarnation = self.incarnation(replica);
                self.tell(Event::ReplicaLost { replica: ReplicaId(replica as u16), incarnation });
            }
        }
    }

    fn shows_performed(&mut self, replica: usize, identity: Identity, version: Version) {
        self.trace.say(self.agenda.now_us(), Told::Propagate, || {
            format!("replica {replica} commits what it has performed, version {version}")
        });
        self.drop_performer(replica, identity);
        let incarnation = self.incarnation(replica);
        self.tell(Event::Applied { replica: ReplicaId(replica as u16), incarnation, upto: version });
    }

    fn performer_failed(&mut self, replica: usize, identity: Identity) {
        let Some(attempt) = self.drop_performer(replica, identity) else { return };
        let (replica, performance) = (ReplicaId(replica as u16), Performance::Failed);
        self.tell(Event::Performed { replica, identity, attempt, performance });
    }

    /// Closes the connection of a performer and forgets it. Returns the number of its attempt.
    fn drop_performer(&mut self, replica: usize, identity: Identity) -> Option<u64> {
        let performer = self.stamped.performers.remove(&(replica, identity))?;
        if let Some(line) = performer.line {
            self.close(line);
        }
        Some(performer.attempt)
    }

    /// All performers of a replica that is reset.
    pub(super) fn drop_performers(&mut self, replica: usize) {
        let there = self.stamped.performers.keys().filter(|(at, _)| *at == replica);
        let there: Vec<Identity> = there.map(|(_, identity)| *identity).collect();
        for identity in there {
            self.drop_performer(replica, identity);
        }
    }

    /// A performer is in the way of a refresh or of a session. The core takes it away, unless it is to commit.
    pub(super) fn performer_gives_way(&mut self, connection: Connection) {
        let owner = self.lines.get(&connection).map(|line| line.owner);
        if let Some(Owner::Performer { replica, identity }) = owner
            && let Some(Performer { attempt, .. }) = self.stamped.performers.get(&(replica, identity))
        {
            let (replica, attempt, performance) = (ReplicaId(replica as u16), *attempt, Performance::Blocks);
            self.tell(Event::Performed { replica, identity, attempt, performance });
        }
    }

    /// Whether this is the connection of a performer that was told to commit.
    pub(super) fn is_committing_performer(&self, connection: Connection) -> bool {
        let owner = self.lines.get(&connection).map(|line| line.owner);
        let Some(Owner::Performer { replica, identity }) = owner else { return false };
        let performer = self.stamped.performers.get(&(replica, identity));
        performer.is_some_and(|one| matches!(one.stage, Stage::Committing(_)))
    }

    /// Performers that hold locks for which sessions wait give way.
    pub(super) fn clear_way_of_sessions(&mut self) {
        let mut blockers: BTreeSet<Connection> = BTreeSet::new();
        for session in &self.sessions {
            let line = session.run.as_ref().and_then(|run| run.line);
            let Some((connection, replica, _)) = line else { continue };
            blockers.extend(self.servers[replica].blockers(connection));
        }
        for blocker in blockers {
            self.performer_gives_way(blocker);
        }
    }
}

/// The digest of the net changes of rows.
pub(super) fn digest<'a>(changes: impl Iterator<Item = &'a Change>) -> Digest {
    let mut net: BTreeMap<Key, (&Row, &Row)> = BTreeMap::new();
    for Change { key, old, new } in changes {
        net.entry(*key).and_modify(|(_, last)| *last = new).or_insert((old, new));
    }
    let mut hash = Sha256::new();
    for (key, (old, new)) in net {
        for bytes in [vec![key.table], old.encode(key), new.encode(key)] {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(&bytes);
        }
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    Digest(u128::from_le_bytes(first))
}
