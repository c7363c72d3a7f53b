//! The simulated world: one agenda of future events, one random generator, and all that they drive.
//!
//! ```text
//! clients --Accept--> sessions --Event--> cluster core --Effect--> sessions, log, agents
//!                        |                                            |
//!                        +------------- Message / Reply -------- servers
//! ```
//!
//! The core is the code that the binary runs. Sessions and agents are written for the simulator; they keep the contract
//! that the binary's sessions and agents keep: the order that the effects state. Each arrow takes a time drawn from the
//! seed, so two steps without a stated order happen in either order in some seed.

mod agent;
mod cache;
mod client;
mod ending;
mod failing;
mod fault;
mod hold;
mod late_reservation;
mod link;
mod members;
mod node;
mod performing;
mod placing;
mod servers;
mod session;
mod staying;
mod waits;

use std::collections::BTreeMap;

use cluster::event::Event;
use cluster::ids::{Identity, Incarnation, ReplicaId};
use cluster::placement::Placement;
use cluster::protocols::StampCounts;

use crate::agenda::Agenda;
use crate::check::{Anomaly, Finding};
use crate::dice::Dice;
use crate::history::{ClientError, Element, History, Outcome, Seen};
use crate::program::{Fault, Plan, Program};
use crate::rules::Rules;
use crate::schema::{self, Key};
use crate::server::{Answer, Connection, Op, Server};
use crate::trace::{Stage, Trace};
use node::Node;
use session::Session;

/// A run that has not ended by then is stuck.
const END_US: u64 = 60_000_000;
/// More happenings than any run needs; a run that reaches them is in a loop.
const HAPPENINGS_MAX: u64 = 400_000;

/// The owner of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Session(usize),
    Agent(usize),
    Performer { replica: usize, identity: Identity },
}

/// The node's end of a connection to a server.
#[derive(Clone, Copy, Debug)]
struct Line {
    owner: Owner,
}

/// A message from the node to a server.
#[derive(Debug)]
enum Message {
    Run(Vec<(Op, Element)>),
    Identities(Vec<Identity>),
    Commit,
    Rollback,
    Terminate,
}

/// A cancel request. It travels on a connection of its own, so it can arrive late.
#[derive(Clone, Copy, Debug)]
struct Cancel {
    replica: usize,
    generation: u32,
    connection: Connection,
}

/// A message from a server to the node.
#[derive(Debug)]
enum Reply {
    Answer(Answer),
    Inserted {
        lsn: u64,
    },
    /// To the insert of identities: the transaction has failed.
    Failed,
    Committed,
    RolledBack,
    Lost,
}

/// An entry of the agenda. One that belongs to a node carries the node's epoch and is ignored after that node has died.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Client { session: usize, run: u64 },
    Accept { session: usize, run: u64 },
    Vanish { session: usize, run: u64 },
    Mail { session: usize, epoch: u32 },
    UserCancel { session: usize, run: u64 },
    ToServer { connection: Connection },
    Cancel(Cancel),
    Step { replica: usize, generation: u32, connection: Connection },
    Show { replica: usize, generation: u32, connection: Connection },
    Deadlock { replica: usize, generation: u32, connection: Connection },
    Blocked { replica: usize, generation: u32, connection: Connection },
    ServerWaits,
    WaitsHeard { epoch: u32 },
    FromServer { connection: Connection },
    Lost { connection: Connection },
    Snap { connection: Connection },
    Inspect { holder: usize },
    Release { holder: usize },
    Synced { epoch: u32, upto: usize },
    Reset { epoch: u32, replica: usize, incarnation: Incarnation, stage: agent::ResetStage },
    Apply { epoch: u32, replica: usize, incarnation: Incarnation },
    Catalogue { epoch: u32, replica: usize, version: u64, incarnation: Incarnation },
    TakeOver { epoch: u32, replica: usize },
    WakeUp { request: u64 },
    Join { replica: usize, for_us: u64 },
    Copied { epoch: u32, replica: usize },
    Placed { epoch: u32, replica: usize, table: u8 },
    Undrain { epoch: u32, replica: usize },
    ServerStart { replica: usize },
    Flush { replica: usize },
    NodeStart,
    Fault(usize),
    Kill { connection: Connection },
    Deliver(performing::Delivery),
    Perform(performing::Start),
}

/// The result of a run.
#[derive(Debug)]
pub struct Report {
    /// The operations of clients and their results.
    pub history: History,
    /// The errors that clients were sent, in order of time.
    pub errors: Vec<ClientError>,
    /// The bytes of every record that was appended to the log, in order.
    pub appended: Vec<u8>,
    /// Violations that only the inside shows.
    pub findings: Vec<Finding>,
    /// The number of agenda entries that were processed.
    pub happenings: u64,
    /// The simulated time at the end.
    pub end_us: u64,
    /// What became of transactions that were ordered by stamps.
    pub stamps: StampCounts,
    /// How often a kept answer was given.
    pub answers_given_again: u64,
    /// The trace; empty unless it was requested.
    pub trace: Trace,
}

/// The state of everything that is simulated.
#[derive(Debug)]
pub struct World {
    agenda: Agenda<Happening>,
    dice: Dice,
    plan: Plan,
    rules: Rules,
    /// Some replica holds only part of the tables.
    is_partial: bool,
    /// The tables of each replica at this moment.
    placement: Placement,
    /// The number of records when a table was split last.
    split_at: BTreeMap<u8, usize>,
    /// Some program changes the definition of the view.
    changes_view: bool,
    servers: Vec<Server>,
    membership: members::Membership,
    refresh_slow_until_us: Vec<u64>,
    disk: node::Disk,
    node: Option<Node>,
    epoch: u32,
    sessions: Vec<Session>,
    lines: BTreeMap<Connection, Line>,
    network: link::Network,
    holders: Vec<hold::Holder>,
    /// Reports of lock waits on their way from the servers to the node.
    waits_seen: Vec<waits::Seen>,
    /// How far the node's clock is ahead of simulated time.
    clock_ahead_us: u64,
    /// How often the core has asked to be woken. Only the last request counts.
    wake_requests: u64,
    connections: u64,
    elements: Element,
    kill_next_append: Option<u64>,
    kill_next_identity: Option<u64>,
    kill_next_waiting: Option<u64>,
    stamped: performing::Stamped,
    answers_given_again: u64,
    history: History,
    errors: Vec<ClientError>,
    findings: Vec<Finding>,
    trace: Trace,
}

impl World {
    /// A world before its first step, with the faults, the flushes and the clients' first requests on the agenda.
    pub fn new(plan: Plan, rules: Rules, seed: u64, is_traced: bool) -> Self {
        let count = usize::from(plan.replicas);
        let mut world = Self {
            agenda: Agenda::default(),
            dice: Dice::new(seed),
            rules,
            is_partial: schema::is_partial(&plan.placement, plan.replicas),
            placement: plan.placement.clone(),
            split_at: BTreeMap::new(),
            changes_view: plan.sessions.iter().flatten().any(Program::changes_view),
            servers: (0..count).map(|_| Server::default()).collect(),
            membership: members::Membership::new(count),
            refresh_slow_until_us: vec![0; count],
            disk: node::Disk::default(),
            node: None,
            epoch: 0,
            sessions: plan.sessions.iter().map(|programs| Session::new(programs)).collect(),
            lines: BTreeMap::new(),
            network: link::Network::new(count),
            holders: Vec::new(),
            waits_seen: Vec::new(),
            clock_ahead_us: 0,
            wake_requests: 0,
            connections: 0,
            elements: 0,
            kill_next_append: None,
            kill_next_identity: None,
            kill_next_waiting: None,
            stamped: performing::Stamped::draw(seed, &rules),
            answers_given_again: 0,
            history: History::default(),
            errors: Vec::new(),
            findings: Vec::new(),
            trace: Trace::new(is_traced),
            plan,
        };
        for (index, (at_us, _)) in world.plan.faults.iter().enumerate() {
            world.agenda.enter(*at_us, Happening::Fault(index));
        }
        for replica in 0..count {
            let after = world.dice.delay(world.plan.pace.flush_us);
            world.agenda.enter(after, Happening::Flush { replica });
        }
        world.tell_holdings();
        world.start_node();
        for session in 0..world.sessions.len() {
            let after = world.dice.delay(world.plan.pace.think_us);
            world.agenda.enter(after, Happening::Client { session, run: 0 });
        }
        world
    }

    /// Runs until all clients are done and all replicas are level, or until something is wrong.
    pub fn run(mut self) -> Report {
        let mut happenings = 0;
        while !self.is_over() {
            let Some(next) = self.agenda.take_next() else { break };
            happenings += 1;
            if self.agenda.now_us() > END_US || happenings > HAPPENINGS_MAX {
                break;
            }
            self.happen(next);
            if !self.findings.is_empty() {
                break;
            }
        }
        self.judge_end();
        self.count_stamps();
        Report {
            history: self.history,
            errors: self.errors,
            appended: self.disk.appended,
            findings: self.findings,
            happenings,
            end_us: self.agenda.now_us(),
            stamps: self.stamped.counts,
            answers_given_again: self.answers_given_again,
            trace: self.trace,
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Client { session, run } => self.client(session, run),
            Happening::Accept { session, run } => self.accept(session, run),
            Happening::Vanish { session, run } => self.vanish(session, run),
            Happening::Mail { session, epoch } if epoch == self.epoch => self.read_mail(session),
            Happening::UserCancel { session, run } => self.user_cancel(session, run),
            Happening::ToServer { connection } => self.arrive_there(connection),
            Happening::Cancel(cancel) => self.cancel(cancel),
            Happening::Step { replica, generation, connection }
                if self.servers[replica].generation == generation =>
            {
                self.step(replica, connection);
            }
            Happening::Show { replica, generation, connection }
                if self.servers[replica].generation == generation && self.servers[replica].is_up() =>
            {
                self.show(replica, connection);
            }
            Happening::Deadlock { replica, generation, connection } => {
                if self.servers[replica].generation == generation
                    && let Some((answer, woken)) = self.servers[replica].break_deadlock(connection)
                {
                    self.wake(replica, woken);
                    self.answer(connection, Reply::Answer(answer));
                }
            }
            Happening::Blocked { replica, generation, connection }
                if self.servers[replica].generation == generation =>
            {
                self.clear_way(replica, connection);
            }
            Happening::ServerWaits => self.look_at_waits(),
            Happening::WaitsHeard { epoch } => self.hear_of_waits(epoch),
            Happening::FromServer { connection } => self.arrive_back(connection),
            Happening::Lost { connection } => self.lose(connection),
            Happening::Snap { connection } => self.snap(connection),
            Happening::Inspect { holder } => self.inspect(holder),
            Happening::Release { holder } => self.release(holder),
            Happening::Synced { epoch, upto } if epoch == self.epoch => self.synced(upto),
            Happening::Reset { epoch, replica, incarnation, stage } if epoch == self.epoch => {
                self.reset(replica, incarnation, stage);
            }
            Happening::Apply { epoch, replica, incarnation } if epoch == self.epoch => {
                self.apply(replica, incarnation);
            }
            Happening::Catalogue { epoch, replica, version, incarnation } if epoch == self.epoch => {
                self.catalogue_loaded(replica, version, incarnation);
            }
            Happening::TakeOver { epoch, replica } if epoch == self.epoch => {
                self.tell(Event::TakeOver { from: ReplicaId(replica as u16) });
            }
            Happening::WakeUp { request } if request == self.wake_requests => self.tell(Event::WakeUp),
            Happening::Join { replica, for_us } => self.join(replica, for_us),
            Happening::Copied { epoch, replica } => self.copied(epoch, replica),
            Happening::Placed { epoch, replica, table } => self.placed(epoch, replica, table),
            Happening::Undrain { epoch, replica } if epoch == self.epoch => {
                self.tell(Event::Drained { replica: ReplicaId(replica as u16), is_drained: false });
            }
            // A rebuild may have started it on a copy in the meantime.
            Happening::ServerStart { replica } if !self.servers[replica].is_up() => {
                self.servers[replica].start();
            }
            Happening::Flush { replica } => self.flush(replica),
            Happening::NodeStart => self.start_node(),
            Happening::Fault(index) => self.fault(self.plan.faults[index].1),
            Happening::Kill { connection } => self.terminate(connection),
            Happening::Deliver(delivery) => self.deliver(delivery),
            Happening::Perform(start) => self.perform(start),
            _ => {}
        }
    }

    fn flush(&mut self, replica: usize) {
        self.servers[replica].flush();
        let after = self.dice.delay(self.plan.pace.flush_us) + 1;
        self.agenda.enter(after, Happening::Flush { replica });
    }

    fn heard(&mut self, connection: Connection, reply: Reply) {
        let Some(line) = self.lines.get(&connection).copied() else { return };
        if matches!(reply, Reply::Lost) {
            self.lines.remove(&connection);
        }
        match line.owner {
            Owner::Session(session) => self.session_reply(session, connection, reply),
            Owner::Agent(replica) => self.agent_reply(replica, connection, reply),
            Owner::Performer { replica, identity } => {
                self.performer_reply(replica, identity, connection, reply);
            }
        }
    }

    fn find(&mut self, anomaly: Anomaly, text: String) {
        self.trace.say(self.agenda.now_us(), Stage::Found, || text.clone());
        self.findings.push(Finding { anomaly, text });
    }

    fn is_over(&self) -> bool {
        let all_done = self.sessions.iter().all(Session::is_done) && self.servers.iter().all(Server::is_up);
        let Some(node) = self.node.as_ref().filter(|_| all_done) else { return false };
        let faults_are_over = self.plan.faults.last().is_none_or(|(at, _)| *at < self.agenda.now_us());
        let is_same_server = |(server, agent): (&Server, &agent::Agent)| {
            agent.is_quarantined || server.generation == agent.generation
        };
        let servers_are_known = self.servers.iter().zip(&node.agents).all(is_same_server);
        faults_are_over
            && self.membership.is_settled()
            && servers_are_known
            && node.is_level(self.disk.records.len())
    }

    fn judge_end(&mut self) {
        let rows = self.disk.replay();
        let seen = |key: Key| Seen { row: key.number(), list: rows[&key].list.clone() };
        self.history.finals = schema::keys().map(seen).collect();
        self.history.total = Some(0);
        if !self.findings.is_empty() {
            return;
        }
        if !self.is_over() {
            let waiting: Vec<String> = self.sessions.iter().filter_map(Session::stuck).collect();
            let replicas = self.node.as_ref().map(|node| node.cluster.replicas());
            self.find(Anomaly::Stuck, format!("waits for ever: {waiting:?}; replicas {replicas:?}"));
            return;
        }
        let healthy = (0..self.servers.len()).filter(|replica| !self.servers[*replica].refuses);
        let differences: Vec<String> = healthy.flat_map(|replica| self.differences(replica, &rows)).collect();
        for text in differences {
            self.find(Anomaly::Diverged, text);
        }
    }

    /// How a replica's tables differ from the log.
    fn differences(&self, replica: usize, rows: &schema::Rows) -> Vec<String> {
        let server = &self.servers[replica];
        let held = |key: &Key| schema::holds(&self.placement, replica, *key);
        let wrong_row = |key: Key| {
            let (there, logged) = (server.newest(key), &rows[&key]);
            (there != logged)
                .then(|| format!("replica {replica} has {there:?} at {key:?}, the log {logged:?}"))
        };
        let mut differences: Vec<String> = schema::keys().filter(held).filter_map(wrong_row).collect();
        // A replica that has lost a table, or has the data of another one, has rows that it does not hold.
        let gives_more = |(_, fault): &(u64, Fault)| {
            matches!(fault, Fault::Place { .. } | Fault::Rebuild { .. } | Fault::Leave { .. })
        };
        if !self.plan.faults.iter().any(gives_more) {
            let unheld = schema::keys().filter(|key| !held(key));
            let filled = unheld.filter(|key| *server.newest(*key) != schema::Row::first(*key));
            differences
                .extend(filled.map(|key| format!("replica {replica} has {key:?}, which it does not hold")));
        }
        for (version, record) in (1..).zip(&self.disk.records) {
            let identity = record.header().identity;
            let is_held = record.row_changes().any(|change| held(&node::newest(change).0));
            if is_held && !server.applied().contains(&identity) {
                differences.push(format!("replica {replica} never applied version {version}, {identity}"));
            }
        }
        differences
    }

    /// Records when the client learns the outcome of its transaction.
    fn note_outcome(&mut self, transaction: usize, outcome: Outcome, end_us: u64) {
        let noted = &mut self.history.transactions[transaction];
        noted.outcome = outcome;
        noted.end_us = end_us;
    }

    fn fault(&mut self, fault: Fault) {
        self.trace.say(self.agenda.now_us(), Stage::Fault, || format!("{fault:?}"));
        self.strike(fault);
    }
}
