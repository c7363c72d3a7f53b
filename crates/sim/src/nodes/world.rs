//! The world of several nodes: its loop, the links, and what happens at a node. Leaders are in [`super::leading`].

use std::collections::{BTreeMap, VecDeque};

use cluster::event::Event;
use cluster::ids::{Epoch, Incarnation, NodeId, Nonce, Version};
use cluster::nodes::Timing;
use cluster::nodes::ledger::{Heard, Ledger, Said};
use cluster::nodes::term::{Holder, Input, Member, Output, Term};
use cluster::nodes::version_leases::{Granted, ReadLease};
use cluster::time::Time;

use super::Switches;
use super::chair::{Answer, Appended, Chair, Request};
use super::clients::Session;
use super::leading::Lead;
use crate::agenda::Agenda;
use crate::dice::Dice;

/// Terms are a hundredth as long as in the binary, like everything else here.
pub(super) const TIMING: Timing =
    Timing { beat_us: 1_000, leader_deadline_us: 6_000, lease_us: 5_000, drift_percent: 5 };
const TICK_US: u64 = 250;
const END_US: u64 = 600_000;
const HAPPENINGS_MAX: u64 = 200_000;
/// A request to the chair without an answer is given up after this time.
const PATIENCE_US: u64 = 2_000;
pub(super) const NETWORK_US: u64 = 60;

/// A message of a node to a node.
#[derive(Clone, Debug)]
pub(super) enum Message {
    Term(Input),
    Hello {
        epoch: Epoch,
        join: u64,
    },
    Welcome {
        epoch: Epoch,
        join: u64,
        catalogue: Version,
    },
    Catalogue {
        version: Version,
    },
    Said(Box<Said>),
    /// What a session reports beside its own exchange.
    Reported(Box<Event>),
    Heard(Box<Heard>),
    /// A node that has joined asks for a version lease.
    Lease {
        join: u64,
        sent: Time,
    },
    Granted {
        join: u64,
        sent: Time,
        granted: Granted,
    },
    Assigned {
        join: u64,
        upto: Version,
    },
    Noted {
        join: u64,
        upto: Version,
    },
}

#[derive(Debug)]
pub(super) enum Happening {
    Tick { node: usize, run: u64 },
    Deliver { from: usize, to: usize },
    Arrive { node: usize, run: u64, request: Request, sent: Time, is_lost: bool },
    Answer { node: usize, run: u64, answer: Option<Answer>, sent: Time },
    Client { node: usize, run: u64, session: usize, number: u64 },
    Server(super::servers::Call),
    Reply { node: usize, run: u64, session: usize, number: u64, reply: super::servers::Reply },
    Agent { node: usize, run: u64, epoch: Epoch, work: super::leading::Work },
    Fault,
    Hang { node: usize, until_us: u64 },
    Start { node: usize },
    Watched(Watched),
}

/// A leader that was cut off from the chair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watched {
    /// Of the chair.
    pub(super) revision: u64,
    pub(super) since_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct Path {
    pub(super) messages: VecDeque<(Message, u64)>,
    pub(super) cut_until_us: u64,
}

/// One node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) run: u64,
    pub(super) is_up: bool,
    /// Thousandths of real time.
    rate: u64,
    pub(super) paused_until_us: u64,
    pub(super) chair_cut_until_us: u64,
    /// Its clients only read until then.
    pub(super) quiet_until_us: u64,
    nonce: Nonce,
    pub(super) term: Term,
    pub(super) ledger: Ledger,
    pub(super) lead: Option<Lead>,
    pub(super) joined: Option<(usize, Epoch)>,
    /// Counts its attempts to join a leader, each of which is a crew of its own.
    pub(super) join: u64,
    pub(super) lease: ReadLease,
    /// When it has asked for a lease last.
    pub(super) asked_at: Time,
    /// What replicas have, as statements were told.
    pub(super) known: BTreeMap<usize, (Incarnation, Version)>,
    pub(super) catalogue: Version,
    pub(super) sessions: Vec<Session>,
}

/// Everything.
#[derive(Debug)]
pub(super) struct World {
    pub(super) agenda: Agenda<Happening>,
    pub(super) dice: Dice,
    pub(super) switches: Switches,
    pub(super) chair: Chair,
    pub(super) leaderless_until_us: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) servers: Vec<super::servers::Server>,
    pub(super) paths: BTreeMap<(usize, usize), Path>,
    pub(super) judge: super::judge::Judge,
    pub(super) faults_left: u64,
    /// The revision of a leader that was cut off from the chair, while no other fault hinders its replacement.
    pub(super) watched: Option<Watched>,
    pub(super) backends: u64,
    pub(super) trace: Option<Vec<String>>,
}

impl World {
    pub(super) fn new(seed: u64, switches: Switches, is_traced: bool) -> Self {
        let mut dice = Dice::new(seed ^ 0x6e6f_6465);
        let (count, servers) = (dice.between(2, 3) as usize, dice.between(2, 3) as usize);
        let mut world = Self {
            agenda: Agenda::default(),
            switches,
            chair: Chair::default(),
            leaderless_until_us: 0,
            nodes: Vec::new(),
            servers: (0..servers).map(|_| super::servers::Server::default()).collect(),
            paths: BTreeMap::new(),
            judge: super::judge::Judge::default(),
            faults_left: dice.below(7),
            watched: None,
            backends: 0,
            trace: is_traced.then(Vec::new),
            dice,
        };
        for node in 0..count {
            let rate = world.dice.between(950, 1_050);
            let requests = world.dice.between(10, 40);
            let fresh = world.fresh(node, count, rate, requests);
            world.nodes.push(fresh);
            world.begin(node);
        }
        let after = world.dice.between(5_000, 30_000);
        world.agenda.enter(after, Happening::Fault);
        world
    }

    fn fresh(&mut self, node: usize, count: usize, rate: u64, requests: u64) -> Node {
        let others = (0..count).filter(|other| *other != node).map(|other| NodeId(other as u16)).collect();
        let nonce = Nonce(self.dice.number());
        let member = Member { node: NodeId(node as u16), others, nonce };
        let now = Time { us: self.agenda.now_us() * rate / 1_000 };
        let rules = self.switches.nodes;
        Node {
            run: self.agenda.now_us() + 1,
            is_up: true,
            rate,
            paused_until_us: 0,
            chair_cut_until_us: 0,
            quiet_until_us: 0,
            nonce,
            term: Term::new(member, TIMING, rules, now),
            ledger: Ledger::new(rules),
            lead: None,
            joined: None,
            join: self.agenda.now_us() + 1,
            lease: ReadLease::default(),
            asked_at: Time::default(),
            known: BTreeMap::new(),
            catalogue: Version::ZERO,
            sessions: (0..3).map(|_| Session::new(requests)).collect(),
        }
    }

    fn begin(&mut self, node: usize) {
        let run = self.nodes[node].run;
        self.agenda.enter(0, Happening::Tick { node, run });
        for session in 0..self.nodes[node].sessions.len() {
            let after = self.dice.delay(2_000);
            self.agenda.enter(after, Happening::Client { node, run, session, number: 0 });
        }
    }

    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        let now_us = self.agenda.now_us();
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now_us:>8} {}", text()));
        }
    }

    pub(super) fn now(&self, node: usize) -> Time {
        Time { us: self.agenda.now_us() * self.nodes[node].rate / 1_000 }
    }

    pub(super) fn run(mut self) -> (Vec<String>, Vec<String>) {
        let mut happenings = 0;
        while !self.is_over() && self.judge.findings.is_empty() {
            let Some(next) = self.agenda.take_next() else { break };
            happenings += 1;
            if self.agenda.now_us() > END_US || happenings > HAPPENINGS_MAX {
                let left: Vec<String> =
                    self.nodes.iter().map(|node| format!("{:?}", node.sessions)).collect();
                self.judge.find(format!("waits for ever: {left:?}"));
                break;
            }
            self.happen(next);
        }
        self.judge.end(&self.chair.log);
        (self.judge.findings, self.trace.unwrap_or_default())
    }

    fn is_over(&self) -> bool {
        self.faults_left == 0
            && self.nodes.iter().all(|node| node.is_up && node.sessions.iter().all(Session::is_done))
    }

    /// The node of a happening, with its run.
    fn whose(what: &Happening) -> Option<(usize, u64)> {
        match *what {
            Happening::Tick { node, run }
            | Happening::Answer { node, run, .. }
            | Happening::Client { node, run, .. }
            | Happening::Reply { node, run, .. }
            | Happening::Agent { node, run, .. } => Some((node, run)),
            _ => None,
        }
    }

    fn happen(&mut self, what: Happening) {
        if let Some((node, run)) = Self::whose(&what) {
            if self.nodes[node].run != run || !self.nodes[node].is_up {
                return;
            }
            if self.waits(node) {
                let after = self.nodes[node].paused_until_us - self.agenda.now_us();
                self.agenda.enter(after, what);
                return;
            }
        }
        match what {
            Happening::Tick { node, run } => {
                self.tick(node);
                self.agenda.enter(TICK_US, Happening::Tick { node, run });
            }
            Happening::Deliver { from, to } => self.deliver(from, to),
            Happening::Arrive { node, run, request, sent, is_lost } => {
                self.arrive(node, run, request, sent, is_lost);
            }
            Happening::Answer { node, answer, sent, .. } => self.answered(node, answer.as_ref(), sent),
            Happening::Client { node, session, number, .. } => self.client(node, session, number),
            Happening::Server(call) => self.serve(call),
            Happening::Reply { node, session, number, reply, .. } => self.reply(node, session, number, reply),
            Happening::Agent { node, epoch, work, .. } => self.work(node, epoch, work),
            Happening::Fault => self.fault(),
            Happening::Hang { node, until_us } => self.nodes[node].paused_until_us = until_us,
            Happening::Start { node } => self.start(node),
            Happening::Watched(watched) => self.watched(watched),
        }
    }

    fn waits(&self, node: usize) -> bool {
        self.nodes[node].paused_until_us > self.agenda.now_us()
    }

    fn tick(&mut self, node: usize) {
        self.hear(node, Input::Tick);
        let join = self.nodes[node].join;
        // A node that follows says so until it is welcome.
        if let Some((leader, epoch)) = self.nodes[node].term.follows()
            && self.nodes[node].joined.is_none()
        {
            self.post(node, usize::from(leader.0), Message::Hello { epoch, join });
        } else if let Some(epoch) = self.nodes[node].term.leads()
            && self.nodes[node].joined.is_none()
        {
            self.post(node, node, Message::Hello { epoch, join });
        }
        self.keep_lease(node);
        self.release(node);
    }

    /// Gives the machine of take-over an input.
    pub(super) fn hear(&mut self, node: usize, input: Input) {
        let now = self.now(node);
        let outputs = self.nodes[node].term.handle(now, input);
        for output in outputs {
            if !matches!(output, Output::Beat { .. } | Output::Confirm { .. }) {
                self.say(|| format!("node {node}: {output:?}"));
            }
            self.carry_out(node, output);
        }
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        let own = NodeId(node as u16);
        match output {
            Output::ReadChair { sent } => self.ask_chair(node, Request::Read, sent),
            Output::Claim { sent, expected, epoch } => {
                let nonce = self.nonce(node);
                let holder = Holder { node: own, epoch, nonce };
                self.ask_chair(node, Request::Claim { expected, holder }, sent);
            }
            Output::Confirm { sent } => {
                if let Some(lead) = &self.nodes[node].lead {
                    let request = Request::Confirm { revision: lead.revision };
                    self.ask_chair(node, request, sent);
                }
            }
            Output::Beat { epoch, unconfirmed_us } => {
                self.tell_others(node, Input::Beat { from: own, epoch, unconfirmed_us });
            }
            Output::Ask { epoch, round } => self.tell_others(node, Input::Asked { from: own, epoch, round }),
            Output::Vote { to, round, hears } => {
                let input = Input::Voted { from: own, round, hears };
                self.post(node, usize::from(to.0), Message::Term(input));
            }
            Output::Yield { to, epoch } => {
                self.post(node, usize::from(to.0), Message::Term(Input::Yielded { from: own, epoch }));
            }
            Output::Lead { epoch } => self.lead(node, epoch),
            Output::Serve { renewed } => self.begin_to_serve(node, renewed),
            Output::Follow { .. } => {}
            Output::Leave | Output::StepDown(_) => {
                self.nodes[node].lead = None;
                self.leave(node);
            }
        }
    }

    pub(super) fn nonce(&self, node: usize) -> Nonce {
        self.nodes[node].nonce
    }

    /// The term is over for the sessions of this node.
    pub(super) fn leave(&mut self, node: usize) {
        // An attempt is over, too, whose answer has not come yet: the leader takes no notice of it a second time.
        self.nodes[node].join += 1;
        self.nodes[node].lease.end();
        if self.nodes[node].joined.take().is_some() {
            for effect in self.nodes[node].ledger.lost() {
                self.effect(node, &effect);
            }
        }
    }

    fn tell_others(&mut self, node: usize, input: Input) {
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.post(node, other, Message::Term(input));
        }
    }

    pub(super) fn post(&mut self, from: usize, to: usize, message: Message) {
        let after = if from == to { 1 } else { self.dice.delay(NETWORK_US) };
        let path = self.paths.entry((from, to)).or_default();
        let due_us = path.messages.back().map_or(0, |(_, due_us)| *due_us).max(self.agenda.now_us() + after);
        path.messages.push_back((message, due_us));
        let after = due_us - self.agenda.now_us();
        self.agenda.enter(after, Happening::Deliver { from, to });
    }

    /// Takes every message that is due, in order: one event for each would leave a path late for ever if a pause, or a cut, ends early.
    fn deliver(&mut self, from: usize, to: usize) {
        while let Some(message) = self.next_due(from, to) {
            // A node that is down hears nothing.
            if self.nodes[to].is_up {
                self.receive(from, to, message);
            }
        }
    }

    fn next_due(&mut self, from: usize, to: usize) -> Option<Message> {
        let now_us = self.agenda.now_us();
        let Node { is_up, paused_until_us, .. } = self.nodes[to];
        let path = self.paths.get_mut(&(from, to))?;
        let (_, due_us) = path.messages.front()?;
        let at_us = path.cut_until_us.max(*due_us).max(if is_up { paused_until_us } else { 0 });
        if at_us > now_us {
            self.agenda.enter(at_us - now_us, Happening::Deliver { from, to });
            return None;
        }
        path.messages.pop_front().map(|(message, _)| message)
    }

    fn receive(&mut self, from: usize, to: usize, message: Message) {
        match message {
            Message::Term(input) => self.hear(to, input),
            Message::Hello { epoch, join } => self.hello(to, (from, join), epoch),
            Message::Welcome { epoch, join, catalogue } => {
                let node = &mut self.nodes[to];
                let follows = node.term.follows().map(|(leader, epoch)| (usize::from(leader.0), epoch));
                let leads = node.term.leads().map(|epoch| (to, epoch));
                if node.joined.is_some() || node.join != join || follows.or(leads) != Some((from, epoch)) {
                    return;
                }
                node.joined = Some((from, epoch));
                node.catalogue = catalogue;
                for said in self.nodes[to].ledger.joined() {
                    self.post(to, from, Message::Said(Box::new(said)));
                }
            }
            Message::Lease { join, sent } => self.grant(to, from, join, sent),
            Message::Granted { join, sent, granted } => self.granted(to, (from, join), sent, granted),
            Message::Assigned { join, upto } => self.note(to, from, join, upto),
            Message::Noted { join, upto } => self.noted(to, from, join, upto),
            Message::Catalogue { version } => self.nodes[to].catalogue = version,
            Message::Said(said) => self.said(to, from, *said),
            Message::Reported(event) => self.reported(to, *event),
            Message::Heard(heard) => {
                if self.nodes[to].joined.is_some_and(|(leader, _)| leader == from)
                    && let Some(effect) = self.nodes[to].ledger.hear(*heard)
                {
                    self.effect(to, &effect);
                }
            }
        }
    }

    /// A link is reset: what was under way is lost, and both ends notice.
    pub(super) fn reset_link(&mut self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            if let Some(path) = self.paths.get_mut(&(from, to)) {
                path.messages.clear();
            }
            if self.nodes[to].joined.is_some_and(|(leader, _)| leader == from) {
                self.leave(to);
            }
            self.crew_lost(to, from);
            self.hear(to, Input::Unlinked(NodeId(from as u16)));
        }
    }

    pub(super) fn ask_chair(&mut self, node: usize, request: Request, sent: Time) {
        let run = self.nodes[node].run;
        let is_lost = self.nodes[node].chair_cut_until_us > self.agenda.now_us() || self.dice.percent(2);
        let after = self.dice.delay(150);
        self.agenda.enter(after, Happening::Arrive { node, run, request, sent, is_lost });
    }

    fn arrive(&mut self, node: usize, run: u64, request: Request, sent: Time, is_lost: bool) {
        let now_us = self.agenda.now_us();
        if self.leaderless_until_us > now_us && !is_lost {
            let after = self.leaderless_until_us - now_us + self.dice.delay(100);
            self.agenda.enter(after, Happening::Arrive { node, run, request, sent, is_lost });
            return;
        }
        let is_cut = self.nodes[node].chair_cut_until_us > now_us;
        // Of requests that get lost, half are carried out all the same.
        let is_done = !is_lost || !is_cut && self.dice.percent(50);
        let answer = is_done.then(|| self.chair.handle(request.clone(), self.switches.appends_compare));
        let answer = answer.filter(|_| !is_lost && !is_cut && !self.dice.percent(2));
        if answer.is_none() && !is_cut {
            self.watched = None;
        }
        let after = if answer.is_some() { self.dice.delay(150) } else { PATIENCE_US };
        let is_append = matches!(request, Request::Append { .. });
        let answer = answer.or_else(|| is_append.then_some(Answer::Appended(Appended::Unknown)));
        self.agenda.enter(after, Happening::Answer { node, run, answer, sent });
    }

    fn start(&mut self, node: usize) {
        let (rate, count) = (self.nodes[node].rate, self.nodes.len());
        let left = self.nodes[node].sessions.iter().map(Session::left).max().unwrap_or(0);
        let fresh = self.fresh(node, count, rate, left);
        self.nodes[node] = fresh;
        self.begin(node);
    }
}
