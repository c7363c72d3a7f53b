//! Clients and their sessions: one row each, read and written by turns.

use cluster::claims::Claims;
use cluster::event::{Effect, Event, Foreseen, Home, Level, Needs, Reads};
use cluster::ids::{DatabaseId, Identity, Incarnation, ReplicaId, SessionId, TableId, Version};
use cluster::placement::Touches;
use cluster::protocols::rows::See;
use cluster::record::RecordBuilder;

use super::servers::{Call, Owner, Reply, What};
use super::world::{Happening, Message, World};

const TABLE: TableId = DatabaseId::FIRST.table(1);
/// A wait for a place is given up, and asked for again, after this time.
const PATIENCE_US: u64 = 15_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Idle,
    Placing {
        asks: u64,
    },
    Running,
    Ordering,
    /// Acknowledged, or settled at home, and not both.
    Half {
        is_acknowledged: bool,
    },
}

/// A client's session.
#[derive(Debug)]
pub(super) struct Session {
    left: u64,
    number: u64,
    asks: u64,
    phase: Phase,
    is_update: bool,
    /// The read runs where its node has placed it.
    is_own: bool,
    /// The replica where it was last.
    near: Option<usize>,
    floor: Version,
    /// What it has seen or committed.
    own: Version,
    identity: Option<Identity>,
    line: Option<(usize, u64, Incarnation)>,
}

impl Session {
    pub(super) fn new(requests: u64) -> Self {
        Self {
            left: requests,
            number: 0,
            asks: 0,
            phase: Phase::Idle,
            is_update: false,
            is_own: false,
            near: None,
            floor: Version::ZERO,
            own: Version::ZERO,
            identity: None,
            line: None,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.left == 0 && self.phase == Phase::Idle
    }

    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

impl World {
    fn id(session: usize) -> SessionId {
        SessionId(session as u64 + 1)
    }

    fn session(&mut self, node: usize, session: usize) -> &mut Session {
        &mut self.nodes[node].sessions[session]
    }

    /// The request of a session for the judge.
    fn request(&self, node: usize, session: usize) -> (usize, usize, u64) {
        let run = self.nodes[node].run;
        (node, session, run * 1_000 + self.nodes[node].sessions[session].number)
    }

    fn tell(&mut self, node: usize, event: Event) {
        if let (Some(said), Some((leader, _))) = (self.nodes[node].ledger.say(event), self.nodes[node].joined)
        {
            self.post(node, leader, Message::Said(Box::new(said)));
        }
    }

    /// The client sends its next request, or has waited for too long.
    pub(super) fn client(&mut self, node: usize, session: usize, number: u64) {
        let shown = self.judge.floor;
        let is_fresh = self.switches.protocol.see == See::Fresh;
        // The first client of a node mostly reads, so it goes on when nothing can be committed.
        let is_update = self.dice.percent(if session == 0 { 5 } else { 50 });
        let is_update = is_update && self.nodes[node].quiet_until_us <= self.agenda.now_us();
        let this = self.session(node, session);
        match this.phase {
            Phase::Idle if this.left > 0 => {
                this.left -= 1;
                this.number += 1;
                (this.is_update, this.floor) = (is_update, if is_fresh { shown } else { this.own });
                if is_update || !self.read_by_itself(node, session) {
                    self.ask(node, session);
                }
            }
            Phase::Placing { asks } if asks == number => {
                let event = Event::GiveUp { session: Self::id(session) };
                self.tell(node, event);
                self.ask(node, session);
            }
            _ => {}
        }
    }

    /// Lets a read run without the leader, if the node may.
    fn read_by_itself(&mut self, node: usize, session: usize) -> bool {
        let asks = self.dice.percent(10);
        let near = self.session(node, session).near.filter(|_| !asks);
        let Some(replica) = near else { return false };
        let Some(incarnation) = self.stays(node, replica) else { return false };
        let this = self.session(node, session);
        this.asks += 1;
        this.is_own = true;
        self.execute(node, session, replica, incarnation, None);
        true
    }

    fn ask(&mut self, node: usize, session: usize) {
        let (id, run) = (Self::id(session), self.nodes[node].run);
        let (catalogue, nonce) = (self.nodes[node].catalogue, self.nonce(node));
        let this = self.session(node, session);
        this.asks += 1;
        let number = this.asks;
        this.phase = Phase::Placing { asks: number };
        (this.identity, this.is_own) = (None, false);
        let is_update = this.is_update;
        let after = if self.dice.percent(10) { self.dice.below(200) } else { PATIENCE_US };
        self.agenda.enter(after, Happening::Client { node, run, session, number });
        let (reads, touches, cost_us, near, kind) = (Reads::All, Touches::Anything, 50, None, None);
        let event = if is_update {
            let writes = Claims { rows: vec![(TABLE, row(node, session))], ..Claims::default() };
            let needs = Needs { reads, touches, writes, cost_us, near, catalogue, kind };
            let (level, home, foreseen) = (Level::ReadCommitted, Home::Any, Foreseen::default());
            Event::Begin { session: id, level, nonce, home, needs, foreseen }
        } else {
            Event::Read { session: id, reads, touches, at: None, cost_us, near, catalogue, kind }
        };
        self.tell(node, event);
    }

    /// Carries out an effect for a session of this node.
    pub(super) fn effect(&mut self, node: usize, effect: &Effect) {
        self.say(|| format!("node {node} hears {effect:?}"));
        let Some(session) = effect.session().map(|id| id.counter() as usize - 1) else { return };
        let phase = self.session(node, session).phase;
        match *effect {
            Effect::Execute { replica, incarnation, identity, applied, .. } => {
                self.learn(node, usize::from(replica.0), incarnation, applied);
                if let Phase::Placing { .. } = phase {
                    self.execute(node, session, usize::from(replica.0), incarnation, identity);
                }
            }
            Effect::Reclassify { .. } => self.ask(node, session),
            Effect::Acknowledge { version, .. } => self.acknowledged(node, session, version),
            Effect::Commit { version, .. } => {
                if let Some((replica, backend, _)) = self.session(node, session).line {
                    self.call_of(node, session, replica, What::Commit { backend, version });
                }
            }
            Effect::HomeLost { .. } => {
                self.close(node, session);
                self.settled(node, session);
            }
            Effect::Abort { .. } => self.rerun(node, session),
            _ => {}
        }
    }

    fn execute(
        &mut self,
        node: usize,
        session: usize,
        replica: usize,
        incarnation: Incarnation,
        identity: Option<Identity>,
    ) {
        self.backends += 1;
        let backend = self.backends;
        let this = self.session(node, session);
        this.phase = Phase::Running;
        this.line = Some((replica, backend, incarnation));
        this.near = Some(replica);
        this.identity = identity;
        let is_update = this.is_update;
        if let Some(identity) = identity {
            let request = self.request(node, session);
            self.judge.begun(request, identity);
        }
        self.call_of(node, session, replica, What::Run { incarnation, backend, is_update });
    }

    fn call_of(&mut self, node: usize, session: usize, replica: usize, what: What) {
        let run = self.nodes[node].run;
        let number = self.session(node, session).asks;
        self.call(Call { replica, owner: Owner { node, run, session, number }, what });
    }

    fn close(&mut self, node: usize, session: usize) {
        if let Some((replica, backend, _)) = self.session(node, session).line.take() {
            self.call_of(node, session, replica, What::Close { backend });
        }
    }

    /// Its transaction, or its read, has not happened, so it runs again.
    fn rerun(&mut self, node: usize, session: usize) {
        self.close(node, session);
        let id = Self::id(session);
        let Session { is_update, is_own, .. } = *self.session(node, session);
        if !is_own {
            let ended = if is_update { Event::End { session: id } } else { Event::Executed { session: id } };
            self.tell(node, ended);
        }
        self.ask(node, session);
    }

    pub(super) fn reply(&mut self, node: usize, session: usize, number: u64, reply: Reply) {
        let id = Self::id(session);
        let this = self.session(node, session);
        if this.asks != number || this.line.is_none() {
            return;
        }
        let Session { phase, is_update, is_own, floor, .. } = *this;
        match (reply, phase) {
            (Reply::Done { seen }, Phase::Running) if !is_update => {
                self.judge.read(floor, seen);
                let this = self.session(node, session);
                this.own = this.own.max(seen);
                if !is_own {
                    self.tell(node, Event::Executed { session: id });
                }
                self.close(node, session);
                self.next(node, session);
            }
            (Reply::Done { .. }, Phase::Running) => {
                self.session(node, session).phase = Phase::Ordering;
                self.tell(node, Event::Executed { session: id });
                let mut body = RecordBuilder::new(DatabaseId::FIRST);
                if body.push_delete(TABLE, &[0, 0, 0, 0]).is_err() {
                    return;
                }
                let rows = vec![(TABLE, row(node, session))];
                let claims = Claims { rows, ..Claims::default() };
                let claims = vec![cluster::claims::Claimed { turn: 0, is_held: false, claims }];
                let (body, changed, reads) = (Box::new(body.seal()), Vec::new(), Reads::Tables([].into()));
                self.tell(node, Event::Finish { session: id, body, claims, changed, reads });
            }
            (Reply::Committed, _) => {
                self.session(node, session).line = None;
                self.tell(node, Event::Committed { session: id });
                self.settled(node, session);
            }
            (Reply::Lost, Phase::Running) => self.rerun(node, session),
            (Reply::Lost, Phase::Ordering | Phase::Half { .. }) => {
                let Some((replica, _, incarnation)) = self.session(node, session).line.take() else { return };
                let replica = ReplicaId(replica as u16);
                if let Some((leader, _)) = self.nodes[node].joined {
                    let lost = Event::ReplicaLost { replica, incarnation };
                    self.post(node, leader, Message::Reported(Box::new(lost)));
                }
            }
            _ => {}
        }
    }

    fn acknowledged(&mut self, node: usize, session: usize, version: Version) {
        let request = self.request(node, session);
        let this = self.session(node, session);
        let Some(identity) = this.identity else { return };
        let is_settled = this.phase == Phase::Half { is_acknowledged: false };
        this.phase = Phase::Half { is_acknowledged: true };
        this.own = this.own.max(version);
        let log = &self.chair.log;
        self.judge.committed(request, identity, version, log);
        if is_settled {
            self.next(node, session);
        }
    }

    /// Nothing more comes from its home.
    fn settled(&mut self, node: usize, session: usize) {
        let this = self.session(node, session);
        match this.phase {
            Phase::Half { is_acknowledged: true } => self.next(node, session),
            Phase::Ordering => this.phase = Phase::Half { is_acknowledged: false },
            _ => {}
        }
    }

    fn next(&mut self, node: usize, session: usize) {
        let run = self.nodes[node].run;
        self.session(node, session).phase = Phase::Idle;
        let after = self.dice.delay(800);
        self.agenda.enter(after, Happening::Client { node, run, session, number: 0 });
    }
}

/// The row of a session.
fn row(node: usize, session: usize) -> u64 {
    (node * 100 + session) as u64
}
