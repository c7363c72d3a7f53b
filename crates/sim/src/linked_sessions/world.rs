//! The world of a run: one agenda for clients, nodes, links, the log, servers and faults.

mod clients;
mod ending;
mod faults;
mod links;
mod processes;
mod servers;
mod terms;

use std::collections::{BTreeMap, VecDeque};

use cluster::ids::CrewId;
use cluster::protocols::shipping::Request;

use self::links::Link;
use self::terms::{Chair, LogAsk, LogReply};
use super::database::Database;
use super::draw::{Fault, NODES, Plan};
use super::ids::Process;
use super::leader::Leading;
use super::log::Log;
use super::messages::{Asker, Command, Connection, Parcel, Reply};
use super::node::{Caller, Sessions};
use super::slots::Given;
use super::{Counts, Switches, Verdict};
use crate::agenda::Agenda;
use crate::dice::Dice;
use crate::interactions::clients::Client;
use crate::interactions::programs::Texts;
use crate::trace::{Stage, Trace};

/// A run that takes more is stuck.
const HAPPENINGS_MAX: u64 = 60_000;
/// The time between two looks of a node.
const TICK_US: u64 = 1_000;
/// How long a leader may take requests after a round of the log began.
pub(super) const LEASE_US: u64 = 6_000;
/// A client that finds no node tries again after this time, and a session that has to ask again.
const RETRY_US: u64 = 700;

/// What happens in a process.
#[derive(Debug)]
enum Event {
    Asks(Caller, Request),
    Parcel(CrewId, Parcel),
    /// A node wants to join.
    Hello(CrewId),
    /// This end finds out that a link has ended.
    LinkEnds(CrewId),
    Tick,
    /// Another leader leads.
    Roster(Process, u64),
    /// It is to lead.
    Elected,
    LeaseIsOut(u64),
    Log(LogReply),
    Replied(usize, Asker, u64, Reply),
}

#[derive(Debug)]
enum Happening {
    Fault(Fault),
    At(Process, Event),
    /// A message arrives on a link, at the leader or at the node.
    Arrives(CrewId, Parcel),
    Log(Process, LogAsk),
    Serves(usize, Asker, Connection, Command),
    BackendEnds(usize, u64),
    ServerReturns(usize),
    NodeReturns(usize),
    Wakes(Process),
    LogIsReached(usize),
    /// The ends of a link find out that the other one does nothing.
    TimedOut(CrewId),
    Chair,
    Next(usize),
    Told(Caller, Given),
    Cut(Caller),
}

/// A node of the cluster.
#[derive(Debug, Default)]
struct Node {
    is_up: bool,
    life: u64,
    is_asleep: bool,
    /// What waits until it wakes up.
    waiting: VecDeque<Event>,
    is_cut: bool,
    /// The last term that it has claimed.
    claimed: u64,
    roster: Option<(Process, u64)>,
    sessions: Sessions,
    leading: Option<Leading>,
}

/// Counters of names.
#[derive(Debug, Default)]
struct Names {
    session: u64,
    crew: u16,
    backend: u64,
    attempt: u64,
}

#[derive(Debug)]
pub(super) struct World {
    plan: Plan,
    switches: Switches,
    dice: Dice,
    agenda: Agenda<Happening>,
    nodes: Vec<Node>,
    links: BTreeMap<CrewId, Link>,
    log: Log,
    chair: Chair,
    databases: Vec<Database>,
    clients: Vec<Client>,
    texts: Texts,
    names: Names,
    findings: Vec<String>,
    counts: Counts,
    trace: Trace,
}

impl World {
    pub(super) fn new(seed: u64, switches: Switches, is_traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let plan = Plan::draw(&mut dice);
        let mut world = Self {
            agenda: Agenda::default(),
            nodes: (0..NODES).map(|_| Node { is_up: true, ..Node::default() }).collect(),
            links: BTreeMap::new(),
            log: Log::default(),
            chair: Chair::new(plan.faults.len()),
            databases: (0..plan.replicas).map(|_| Database::default()).collect(),
            clients: (0..plan.clients).map(|_| Client::new(plan.interactions)).collect(),
            texts: Texts::new(),
            names: Names::default(),
            findings: Vec::new(),
            counts: Counts::default(),
            trace: Trace::new(is_traced),
            switches,
            dice,
            plan,
        };
        for (at_us, fault) in world.plan.faults.clone() {
            world.agenda.enter(at_us, Happening::Fault(fault));
        }
        for node in 0..NODES {
            let process = world.process(node);
            world.agenda.enter(0, Happening::At(process, Event::Tick));
        }
        world.agenda.enter(0, Happening::Chair);
        for client in 0..world.clients.len() {
            world.clients[client].server = client % NODES;
            world.agenda.enter(0, Happening::Next(client));
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

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(fault) => self.fail(fault),
            Happening::At(process, event) => self.at(process, event),
            Happening::Arrives(crew, parcel) => self.arrives(crew, parcel),
            Happening::Log(from, ask) => self.at_log(from, ask),
            Happening::Serves(replica, asker, connection, command) => {
                self.serve(replica, asker, connection, &command);
            }
            Happening::BackendEnds(replica, backend) => self.databases[replica].end(backend),
            Happening::ServerReturns(replica) => {
                self.chair.faults_left -= 1;
                self.databases[replica].is_up = true;
            }
            Happening::NodeReturns(node) => self.node_returns(node),
            Happening::Wakes(process) => self.wakes(process),
            Happening::LogIsReached(node) => {
                self.chair.faults_left -= 1;
                self.nodes[node].is_cut = false;
            }
            Happening::TimedOut(crew) => self.time_out(crew),
            Happening::Chair => self.look_at_leader(),
            Happening::Next(client) => self.next(client),
            Happening::Told(caller, given) => self.told(caller, given),
            Happening::Cut(caller) => self.cut(caller),
        }
    }

    fn say(&mut self, stage: Stage, text: impl FnOnce() -> String) {
        self.trace.say(self.agenda.now_us(), stage, text);
    }

    fn message_us(&mut self) -> u64 {
        self.dice.delay(self.plan.message_us)
    }

    fn notice_us(&mut self) -> u64 {
        self.dice.delay(self.plan.notice_us)
    }

    /// The present process of a node.
    fn process(&self, node: usize) -> Process {
        Process { node, life: self.nodes[node].life }
    }

    fn is_alive(&self, process: Process) -> bool {
        self.nodes[process.node].is_up && self.nodes[process.node].life == process.life
    }

    fn enter_at(&mut self, after_us: u64, process: Process, event: Event) {
        self.agenda.enter(after_us, Happening::At(process, event));
    }
}
