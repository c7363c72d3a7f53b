//! The world of a run: one agenda for clients, schedulers, logs, replicas and faults.

use std::collections::BTreeMap;

use cluster::ids::{ReplicaId, SessionId};
use cluster::protocols::shipping::{
    Answer, Decided, FromProxy, Output, ReplicatedOutput, ReplicatedScheduler, Request, RoutedOutput,
    SchedulerId, SequenceNumber, StatementId, ToPeer, ToProxy, Transaction,
};

use super::draw::{Fault, Plan};
use super::replica::Replica;
use super::{Counts, Switches, Verdict};
use crate::agenda::Agenda;
use crate::dice::Dice;
use crate::interactions::clients::Client;
use crate::interactions::judge::{Told, judge};
use crate::interactions::programs::{Seen, Texts};
use crate::trace::{Stage, Trace};

/// A run that takes more is stuck.
const HAPPENINGS_MAX: u64 = 200_000;
/// The typical time between checkpoints of a replica.
const CHECKPOINT_US: u64 = 6_000;
/// The typical time until others find out that a scheduler or a replica has failed.
const FIND_OUT_US: u64 = 2_000;
/// A client that finds no scheduler tries again after this time.
const RETRY_US: u64 = 500;

/// One end of a link. Messages of a link keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum End {
    Client(usize),
    Scheduler(usize),
    Replica(usize),
}

#[derive(Debug)]
pub(super) enum Message {
    Request(SessionId, Request),
    Answer(SessionId, Answer),
    Peer(ToPeer),
    Proxy(ToProxy),
    Report(FromProxy, u64),
}

#[derive(Debug)]
pub(super) enum Happening {
    Fault(Fault),
    /// A message arrives, if the run is still this one.
    Arrives(u64, End, End, Message),
    /// A database has done its work; of this incarnation.
    Done(usize, u64, Transaction),
    Logged(u64, usize, SequenceNumber),
    /// A scheduler hears of a failure.
    Hears(u64, usize, End),
    Checkpoint(usize),
    /// A client begins its next interaction.
    Next(usize),
    /// A client's connection ends.
    Cut(usize, SessionId),
    /// All schedulers start again.
    Back(u64),
}

/// A scheduler with its disk.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) scheduler: Option<ReplicatedScheduler>,
    pub(super) is_up: bool,
    /// What is on its disk.
    pub(super) log: BTreeMap<SequenceNumber, Decided>,
    /// What is on its way there.
    pub(super) logging: BTreeMap<SequenceNumber, Decided>,
    /// When it hears of the next failure at the earliest.
    pub(super) hears_us: u64,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) switches: Switches,
    dice: Dice,
    pub(super) agenda: Agenda<Happening>,
    /// Grows when all schedulers fail: no message lives longer.
    pub(super) run: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) replicas: Vec<Replica>,
    pub(super) clients: Vec<Client>,
    texts: Texts,
    seen: BTreeMap<StatementId, Seen>,
    links: BTreeMap<(End, End), u64>,
    /// For each link of a scheduler that has failed, when the last of its messages arrives.
    pub(super) cuts: BTreeMap<(End, End), u64>,
    /// The scheduler of the next interaction.
    turn: usize,
    sessions: u64,
    findings: Vec<String>,
    pub(super) counts: Counts,
    trace: Trace,
}

impl World {
    pub(super) fn new(seed: u64, switches: Switches, is_traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        let all: Vec<SchedulerId> = (0..plan.schedulers).map(|index| SchedulerId(index as u8)).collect();
        let node = |id: &SchedulerId| {
            let none = SequenceNumber::default();
            let scheduler = ReplicatedScheduler::new(*id, &all, plan.choices, plan.replicas, none);
            let scheduler = Some(scheduler.with_rules(switches.replication));
            Node { scheduler, is_up: true, ..Node::default() }
        };
        let mut world = Self {
            switches,
            agenda: Agenda::default(),
            run: 0,
            nodes: all.iter().map(node).collect(),
            replicas: (0..plan.replicas).map(|_| Replica::default()).collect(),
            clients: (0..plan.clients).map(|_| Client::new(plan.interactions)).collect(),
            texts: Texts::new(),
            seen: BTreeMap::new(),
            links: BTreeMap::new(),
            cuts: BTreeMap::new(),
            turn: 0,
            sessions: 0,
            findings: Vec::new(),
            counts: Counts::default(),
            trace: Trace::new(is_traced),
            dice,
            plan,
        };
        for (at_us, fault) in world.plan.faults.clone() {
            world.agenda.enter(at_us, Happening::Fault(fault));
        }
        (0..world.clients.len()).for_each(|client| world.agenda.enter(0, Happening::Next(client)));
        for replica in 0..world.replicas.len() {
            let after_us = world.dice.between(1, CHECKPOINT_US);
            world.agenda.enter(after_us, Happening::Checkpoint(replica));
        }
        let plan = format!("{:?}", world.plan);
        world.say(Stage::Recover, || plan);
        world
    }

    pub(super) fn run(mut self) -> Verdict {
        while let Some(happening) = self.agenda.take_next() {
            self.counts.happenings += 1;
            if self.counts.happenings > HAPPENINGS_MAX {
                break;
            }
            self.happen(happening);
        }
        self.end()
    }

    fn end(mut self) -> Verdict {
        let stuck = self.clients.iter().filter(|client| !client.is_over()).count();
        if stuck > 0 {
            self.findings.push(format!("stuck: {stuck} clients are not served"));
        }
        let up = self.nodes.iter().filter(|node| node.is_up).filter_map(|node| node.scheduler.as_ref());
        let open: usize = up.map(|scheduler| scheduler.scheduler().active()).sum();
        if open > 0 {
            self.findings.push(format!("stuck: {open} transactions are not over"));
        }
        let told: Vec<Told> = self.clients.iter().flat_map(|client| client.told.clone()).collect();
        let living = self.replicas.iter().filter(|replica| !replica.is_lost);
        let tables: Vec<_> = living.map(|replica| &replica.tables).collect();
        self.findings.extend(judge(&told, &tables));
        self.counts.committed = told.iter().filter(|told| told.committed_us.is_some()).count() as u64;
        self.counts.reads = told.iter().map(|told| told.reads.len() as u64).sum();
        let mut trace = self.trace.to_string();
        for told in told.iter().filter(|_| !trace.is_empty()).collect::<Vec<_>>() {
            trace.push_str(&format!("{told:?}\n"));
        }
        Verdict { findings: self.findings, counts: self.counts, trace }
    }

    pub(super) fn say(&mut self, stage: Stage, text: impl FnOnce() -> String) {
        self.trace.say(self.agenda.now_us(), stage, text);
    }

    pub(super) fn message_us(&mut self) -> u64 {
        self.dice.delay(self.plan.message_us)
    }

    fn send(&mut self, from: End, to: End, message: Message) {
        let now_us = self.agenda.now_us();
        let arrival_us = now_us + self.message_us();
        let last_us = self.links.entry((from, to)).or_default();
        *last_us = arrival_us.max(*last_us);
        let after_us = *last_us - now_us;
        self.agenda.enter(after_us, Happening::Arrives(self.run, from, to, message));
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(fault) => self.fail(fault),
            Happening::Arrives(run, from, to, message) => {
                let is_cut = self.cuts.get(&(from, to)).is_some_and(|cut_us| self.agenda.now_us() > *cut_us);
                if run == self.run && !is_cut {
                    self.arrive(from, to, message);
                }
            }
            Happening::Done(index, incarnation, transaction) => {
                let replica = &mut self.replicas[index];
                if replica.incarnation == incarnation && !replica.is_lost {
                    let (seen, out) = replica.finish(transaction, &self.texts);
                    self.seen.extend(seen);
                    self.replica_says(index, out);
                }
            }
            Happening::Logged(run, node, number) if run == self.run => self.logged(node, number),
            Happening::Hears(run, node, failed) if run == self.run => match failed {
                End::Scheduler(failed) => {
                    self.act(node, |one, out| one.scheduler_lost(SchedulerId(failed as u8), out));
                }
                End::Replica(replica) => self.replica_is_lost(node, replica),
                End::Client(_) => {}
            },
            Happening::Checkpoint(index) => self.checkpoint(index),
            Happening::Next(client) => self.next(client),
            Happening::Cut(client, session) => {
                if self.clients[client].session == session && self.clients[client].is_waiting() {
                    self.clients[client].cut();
                    self.agenda.enter(0, Happening::Next(client));
                }
            }
            Happening::Back(run) if run == self.run => self.start_again(),
            Happening::Logged(..) | Happening::Hears(..) | Happening::Back(_) => {}
        }
    }

    fn fail(&mut self, fault: Fault) {
        let now_us = self.agenda.now_us();
        match fault {
            Fault::Scheduler(index) => {
                let up = self.nodes.iter().filter(|node| node.is_up).count();
                if up < 2 || !self.nodes[index].is_up {
                    return;
                }
                self.counts.killed += 1;
                self.say(Stage::Fault, || format!("scheduler {index} fails"));
                let node = &mut self.nodes[index];
                (node.is_up, node.scheduler) = (false, None);
                node.logging.clear();
                let from = End::Scheduler(index);
                let links: Vec<_> = self.links.keys().filter(|(of, _)| *of == from).copied().collect();
                for link in links {
                    let cut_us = now_us + self.dice.below(2 * self.plan.message_us);
                    self.cuts.insert(link, cut_us);
                }
                self.tell_all(from);
                for client in 0..self.clients.len() {
                    if self.clients[client].server == index {
                        let after_us = self.dice.delay(FIND_OUT_US);
                        self.agenda.enter(after_us, Happening::Cut(client, self.clients[client].session));
                    }
                }
            }
            Fault::Replica(index) => {
                let up = self.replicas.iter().filter(|replica| !replica.is_lost).count();
                if up < 2 || self.replicas[index].is_lost {
                    return;
                }
                self.counts.lost += 1;
                self.say(Stage::Fault, || format!("replica {index} is lost"));
                self.replicas[index].is_lost = true;
                self.tell_all(End::Replica(index));
            }
            Fault::All { away_us, loses_replicas } => self.lose_all(away_us, loses_replicas),
        }
    }

    /// Each scheduler hears of failures in the same order.
    fn tell_all(&mut self, failed: End) {
        let now_us = self.agenda.now_us();
        for index in 0..self.nodes.len() {
            let hears_us = (now_us + self.dice.delay(FIND_OUT_US)).max(self.nodes[index].hears_us);
            self.nodes[index].hears_us = hears_us;
            self.agenda.enter(hears_us - now_us, Happening::Hears(self.run, index, failed));
        }
    }

    pub(super) fn replica_is_lost(&mut self, node: usize, replica: usize) {
        self.act(node, |one, out| one.replica_lost(ReplicaId(replica as u16), out));
    }

    fn arrive(&mut self, from: End, to: End, message: Message) {
        match (from, to, message) {
            (End::Client(_), End::Scheduler(node), Message::Request(session, request)) => {
                self.say(Stage::Accept, || format!("scheduler {node}, session {}: {request:?}", session.0));
                self.act(node, |one, out| one.request(session, request, out));
            }
            (End::Scheduler(other), End::Scheduler(node), Message::Peer(message)) => {
                self.say(Stage::Order, || format!("scheduler {node} hears from {other}: {message:?}"));
                self.act(node, |one, out| one.hear(SchedulerId(other as u8), message, out));
            }
            (End::Scheduler(node), End::Replica(index), Message::Proxy(message)) => {
                self.at_replica(index, SchedulerId(node as u8), message);
            }
            (End::Replica(index), End::Scheduler(node), Message::Report(report, load_us)) => {
                let id = ReplicaId(index as u16);
                self.act(node, |one, out| {
                    one.report(id, report, out);
                    one.note_load(id, load_us);
                });
            }
            (End::Scheduler(_), End::Client(client), Message::Answer(session, answer)) => {
                if self.clients[client].session == session {
                    self.answered(client, answer);
                }
            }
            (from, to, message) => unreachable!("{message:?} from {from:?} to {to:?}"),
        }
    }

    /// A proxy gets a message.
    pub(super) fn at_replica(&mut self, index: usize, from: SchedulerId, message: ToProxy) {
        if self.replicas[index].is_lost {
            return;
        }
        match message {
            ToProxy::Redo { .. } => self.counts.redone += 1,
            ToProxy::Undo { .. } => self.counts.undone += 1,
            _ => {}
        }
        self.say(Stage::Place, || format!("replica {index} from scheduler {}: {message:?}", from.0));
        let out = self.replicas[index].handle(from, message);
        self.replica_says(index, out);
    }

    fn replica_says(&mut self, index: usize, out: Vec<RoutedOutput>) {
        let incarnation = self.replicas[index].incarnation;
        for output in out {
            match output {
                RoutedOutput::Database(transaction, work) => {
                    self.say(Stage::Execute, || format!("replica {index}: {work:?} of {transaction:?}"));
                    let after_us = self.dice.delay(self.plan.work_us);
                    self.agenda.enter(after_us, Happening::Done(index, incarnation, transaction));
                }
                RoutedOutput::Report(to, report, load_us) => {
                    let to = End::Scheduler(usize::from(to.0));
                    self.send(End::Replica(index), to, Message::Report(report, load_us));
                }
            }
        }
    }

    fn act(&mut self, node: usize, act: impl FnOnce(&mut ReplicatedScheduler, &mut Vec<ReplicatedOutput>)) {
        let Some(scheduler) = &mut self.nodes[node].scheduler else { return };
        let mut out = Vec::new();
        act(scheduler, &mut out);
        for output in out {
            match output {
                ReplicatedOutput::ToPeer(to, message) => {
                    let to = End::Scheduler(usize::from(to.0));
                    self.send(End::Scheduler(node), to, Message::Peer(message));
                }
                ReplicatedOutput::Own(Output::ToProxy(replica, message)) => {
                    let to = End::Replica(usize::from(replica.0));
                    self.send(End::Scheduler(node), to, Message::Proxy(message));
                }
                ReplicatedOutput::Own(Output::Answer(session, answer)) => {
                    let client = self.clients.iter().position(|client| client.session == session);
                    if let Some(client) = client {
                        let message = Message::Answer(session, answer);
                        self.send(End::Scheduler(node), End::Client(client), message);
                    }
                }
                ReplicatedOutput::Own(Output::Log(number, _)) => self.log(node, number),
            }
        }
    }

    fn log(&mut self, node: usize, number: SequenceNumber) {
        let Some(scheduler) = &self.nodes[node].scheduler else { return };
        let Some(decided) = scheduler.scheduler().decided(number) else { return };
        self.say(Stage::Propagate, || format!("scheduler {node} logs {}: {decided:?}", number.0));
        self.nodes[node].logging.insert(number, decided);
        let after_us = self.dice.delay(self.plan.log_us);
        self.agenda.enter(after_us, Happening::Logged(self.run, node, number));
        if !self.switches.log_is_awaited {
            self.act(node, |one, out| one.logged(number, out));
        }
    }

    fn logged(&mut self, index: usize, number: SequenceNumber) {
        let node = &mut self.nodes[index];
        let Some(decided) = node.logging.remove(&number) else { return };
        node.log.insert(number, decided);
        self.act(index, |one, out| one.logged(number, out));
    }

    fn checkpoint(&mut self, index: usize) {
        if self.clients.iter().all(Client::is_over) {
            return;
        }
        if !self.replicas[index].is_lost {
            self.replicas[index].make_checkpoint();
            self.trim_logs();
        }
        let after_us = self.dice.between(1, 2 * CHECKPOINT_US);
        self.agenda.enter(after_us, Happening::Checkpoint(index));
    }

    fn next(&mut self, client: usize) {
        if self.clients[client].is_over() {
            return;
        }
        let count = self.nodes.len();
        let up = (0..count).map(|ahead| (self.turn + ahead) % count).find(|node| self.nodes[*node].is_up);
        let Some(scheduler) = up else {
            self.agenda.enter(RETRY_US, Happening::Next(client));
            return;
        };
        self.turn = (scheduler + 1) % count;
        self.sessions += 1;
        let session = SessionId(self.sessions);
        if self.clients[client].begin(session, scheduler, &mut self.dice, &mut self.texts) {
            self.ask(client);
        }
    }

    fn ask(&mut self, client: usize) {
        let now_us = self.agenda.now_us();
        let one = &mut self.clients[client];
        let (session, scheduler) = (one.session, End::Scheduler(one.server));
        let Some(request) = one.next_request(now_us) else { return };
        let is_over = request == Request::InteractionOver;
        self.send(End::Client(client), scheduler, Message::Request(session, request));
        if is_over {
            let after_us = self.dice.delay(2 * self.plan.message_us);
            self.agenda.enter(after_us, Happening::Next(client));
        }
    }

    fn answered(&mut self, client: usize, answer: Answer) {
        let now_us = self.agenda.now_us();
        let seen = &self.seen;
        let finding = self.clients[client].answered(answer, now_us, |read| seen.get(&read).cloned());
        self.findings.extend(finding);
        self.say(Stage::Acknowledge, || format!("client {client}: {answer:?}"));
        self.ask(client);
    }
}
