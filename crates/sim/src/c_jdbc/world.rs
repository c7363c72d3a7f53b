//! The world of a run: one agenda for clients, scheduler, log, replicas and faults.

use std::collections::BTreeMap;

use cluster::ids::{ReplicaId, SessionId};
use cluster::protocols::c_jdbc::early_response::Respond;
use cluster::protocols::c_jdbc::message::{Answer, FromReplica, Request, ToReplica};
use cluster::protocols::c_jdbc::{Level, Output, Return, Scheduler};
use cluster::protocols::shipping::StatementId;

use super::client::{Client, Next};
use super::disk::LogDisk;
use super::draw::{Fault, Plan, table_of};
use super::kept::Kept;
use super::replica::{Effect, Replica, Task, Texts};
use super::server::Reply;
use super::{Counts, Options};
use crate::agenda::Agenda;
use crate::check::{Anomaly, Finding};
use crate::dice::Dice;
use crate::history::{self, History, Seen};
use crate::trace::{Stage, Trace};

/// A run that takes more is stuck.
const HAPPENINGS_MAX: u64 = 100_000;

/// One run in so many has small queues.
const WINDOWS_EVERY: u64 = 4;
/// Their sizes.
const WINDOWS: [usize; 3] = [1, 2, 5];

/// How often a checkpoint is tried.
const CHECKPOINT_US: u64 = 2_000;

#[derive(Debug)]
enum Happening {
    Fault(Fault),
    ReplicaBack(ReplicaId),
    ControllerBack,
    Checkpoint,
    ToReplica(ReplicaId, u64, ToReplica),
    Task(ReplicaId, u64, Task),
    Report(ReplicaId, u64, FromReplica, Option<(StatementId, Reply)>),
    Synced(u64, usize),
    Next(usize),
    Request(usize, u64, Request),
    Answered(usize, u64, Answer, Option<Reply>),
}

/// A run at its end.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) level: Level,
    pub(super) respond: Respond,
    pub(super) findings: Vec<Finding>,
    pub(super) history: History,
    pub(super) counts: Counts,
    pub(super) trace: Trace,
}

#[derive(Debug)]
struct World {
    plan: Plan,
    options: Options,
    dice: Dice,
    agenda: Agenda<Happening>,
    scheduler: Option<Scheduler>,
    /// Grows with each crash of the controller.
    run: u64,
    disk: LogDisk,
    kept: Kept,
    replicas: Vec<Replica>,
    clients: Vec<Client>,
    texts: Texts,
    /// What each replica has replied to each statement.
    replies: BTreeMap<(ReplicaId, StatementId), Reply>,
    /// When the last message of a link arrives: to each replica, and from it.
    links: BTreeMap<(ReplicaId, bool), u64>,
    history: History,
    counts: Counts,
    trace: Trace,
}

/// Runs a seed.
pub(super) fn run(seed: u64, mut options: Options, is_traced: bool) -> Ended {
    let mut dice = Dice::new(seed);
    // Queues seldom have more than a few operations here, so in some runs few have room, and fewer are a long way behind.
    if seed.is_multiple_of(WINDOWS_EVERY) {
        let at = usize::try_from(seed / WINDOWS_EVERY).unwrap_or_default();
        options.switches.queue.window = WINDOWS[at % WINDOWS.len()];
        options.switches.core.counts_within = at % WINDOWS.len();
    }
    let mut plan = Plan::draw(&mut dice, options);
    let mut world = World::new(&mut plan, options, dice, is_traced);
    world.plan = plan;
    let text =
        format!("{:?} of {} replicas, {:?}", world.plan.choices, world.plan.replicas, world.plan.placement);
    world.say(Stage::Recover, || text);
    while let Some(happening) = world.agenda.take_next() {
        world.counts.happenings += 1;
        if world.counts.happenings > HAPPENINGS_MAX {
            break;
        }
        world.happen(happening);
    }
    world.end()
}

impl World {
    fn new(plan: &mut Plan, options: Options, dice: Dice, is_traced: bool) -> Self {
        let level = match plan.choices.level {
            Level::Pessimistic => history::Level::Serializable,
            Level::Optimistic | Level::PassThrough => history::Level::ReadCommitted,
        };
        let mut agenda = Agenda::default();
        let programs = std::mem::take(&mut plan.clients);
        let clients: Vec<Client> =
            (0..).zip(programs).map(|(number, programs)| Client::new(number, level, programs)).collect();
        (0..clients.len()).for_each(|client| agenda.enter(0, Happening::Next(client)));
        plan.faults.iter().for_each(|(at_us, fault)| agenda.enter(*at_us, Happening::Fault(*fault)));
        agenda.enter(CHECKPOINT_US, Happening::Checkpoint);
        let replicas = (0..plan.replicas)
            .map(|id| Replica::new(ReplicaId(id), plan.choices.level, options.switches))
            .collect();
        let scheduler = Scheduler::new(plan.choices.clone(), plan.placement.clone(), plan.replicas);
        let nothing = Plan {
            clients: Vec::new(),
            faults: Vec::new(),
            choices: plan.choices.clone(),
            placement: plan.placement.clone(),
            ..*plan
        };
        Self {
            plan: nothing,
            options,
            dice,
            agenda,
            scheduler: Some(scheduler),
            run: 0,
            disk: LogDisk::default(),
            kept: Kept::default(),
            replicas,
            clients,
            texts: Texts::new(),
            replies: BTreeMap::new(),
            links: BTreeMap::new(),
            history: History::default(),
            counts: Counts::default(),
            trace: Trace::new(is_traced),
        }
    }

    fn say(&mut self, stage: Stage, text: impl FnOnce() -> String) {
        self.trace.say(self.agenda.now_us(), stage, text);
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(Fault::Replica(replica, away_us)) => self.lose_replica(replica, away_us),
            Happening::Fault(Fault::Controller(away_us)) => self.lose_controller(away_us),
            Happening::ReplicaBack(replica) => {
                self.replicas[usize::from(replica.0)].is_up = true;
                self.return_replica(replica);
            }
            Happening::ControllerBack => self.return_controller(),
            Happening::Checkpoint => self.checkpoint(),
            Happening::ToReplica(replica, incarnation, message) => {
                let there = &mut self.replicas[usize::from(replica.0)];
                if there.is_up && there.incarnation == incarnation {
                    let effects = there.handle(message, &self.texts);
                    self.replica_effects(replica, effects);
                }
            }
            Happening::Task(replica, incarnation, task) => {
                let there = &mut self.replicas[usize::from(replica.0)];
                if there.is_up && there.incarnation == incarnation {
                    let effects = there.perform(task, &self.texts);
                    self.say(Stage::Execute, || format!("replica {replica}: {task:?}"));
                    self.replica_effects(replica, effects);
                }
            }
            Happening::Report(replica, incarnation, report, reply) => {
                self.report(replica, incarnation, report, reply);
            }
            Happening::Synced(run, count) if run == self.run => {
                let number = self.disk.synced(count);
                self.schedule(|scheduler, out| scheduler.logged(number, out));
                self.sync();
            }
            Happening::Synced(..) => {}
            Happening::Next(client) if self.scheduler.is_some() => {
                let now_us = self.agenda.now_us();
                let next = self.clients[client].begin(now_us, &mut self.texts, &mut self.history);
                self.client_goes_on(client, next);
            }
            Happening::Next(client) => self.agenda.enter(1_000, Happening::Next(client)),
            Happening::Request(client, run, request) => {
                if run == self.run {
                    self.say(Stage::Accept, || format!("client {client}: {request:?}"));
                    if !self.answer_again(client, &request) {
                        let session = SessionId(client as u64);
                        self.schedule(|scheduler, out| scheduler.request(session, request, out));
                    }
                }
            }
            Happening::Answered(client, run, answer, reply) => {
                if run == self.run {
                    self.answered(client, &answer, reply);
                }
            }
        }
    }

    fn message_us(&mut self) -> u64 {
        self.dice.delay(self.plan.message_us)
    }

    /// The delay of a message over a link, which keeps its order.
    fn link_us(&mut self, replica: ReplicaId, is_back: bool) -> u64 {
        let now_us = self.agenda.now_us();
        let arrival = now_us + self.message_us();
        let last = self.links.entry((replica, is_back)).or_default();
        *last = arrival.max(*last);
        *last - now_us
    }

    fn schedule(&mut self, act: impl FnOnce(&mut Scheduler, &mut Vec<Output>)) {
        let Some(scheduler) = &mut self.scheduler else { return };
        let mut out = Vec::new();
        act(scheduler, &mut out);
        for output in out {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        self.say(Stage::Order, || format!("{output:?}"));
        match output {
            Output::ToReplica(replica, message) => {
                let incarnation = self.replicas[usize::from(replica.0)].incarnation;
                let after_us = self.link_us(replica, false);
                self.agenda.enter(after_us, Happening::ToReplica(replica, incarnation, message));
            }
            Output::Answer(session, answer) => {
                let client = session.0 as usize;
                if answer == Answer::Lost && self.could_wait() {
                    self.counts.given_up += 1;
                }
                let from = match answer {
                    Answer::Done(replica) => replica,
                    Answer::Failed(replica) => Some(replica),
                    _ => None,
                };
                let statement = self.clients[client].statement;
                let reply = from.and_then(|replica| self.replies.get(&(replica, statement)).cloned());
                self.kept.answered(session, self.texts.get(&statement), reply.as_ref());
                let after_us = self.message_us();
                self.agenda.enter(after_us, Happening::Answered(client, self.run, answer, reply));
            }
            Output::Keep(session, moment) => self.kept.note(session, moment),
            Output::Log(operation) => {
                self.disk.append(operation);
                self.sync();
            }
        }
    }

    /// Answers a read with a kept answer, if there is one. Whether it did.
    fn answer_again(&mut self, client: usize, request: &Request) -> bool {
        let (Some(scheduler), Request::Read(tables, statement)) = (&self.scheduler, request) else {
            return false;
        };
        let question = self.texts.get(statement);
        let found = self.kept.find(scheduler, SessionId(client as u64), tables, question);
        let is_found = found.is_some();
        if is_found {
            self.counts.given_again += 1;
            let after_us = self.message_us();
            let answer = Answer::Done(None);
            self.agenda.enter(after_us, Happening::Answered(client, self.run, answer, found));
        }
        is_found
    }

    fn sync(&mut self) {
        if let Some(count) = self.disk.sync() {
            let after_us = self.dice.delay(self.plan.sync_us);
            self.agenda.enter(after_us, Happening::Synced(self.run, count));
        }
    }

    fn replica_effects(&mut self, replica: ReplicaId, effects: Vec<Effect>) {
        let incarnation = self.replicas[usize::from(replica.0)].incarnation;
        for effect in effects {
            match effect {
                Effect::Schedule(task) => {
                    let after_us = self.dice.delay(self.plan.step_us);
                    self.agenda.enter(after_us, Happening::Task(replica, incarnation, task));
                }
                Effect::Report(report, reply) => {
                    let after_us = self.link_us(replica, true);
                    self.agenda.enter(after_us, Happening::Report(replica, incarnation, report, reply));
                }
            }
        }
    }

    fn report(
        &mut self,
        replica: ReplicaId,
        incarnation: u64,
        report: FromReplica,
        reply: Option<(StatementId, Reply)>,
    ) {
        if self.replicas[usize::from(replica.0)].incarnation != incarnation {
            return;
        }
        if let Some((statement, reply)) = reply {
            self.replies.insert((replica, statement), reply);
        }
        self.schedule(|scheduler, out| scheduler.report(replica, report, out));
    }

    /// Whether a replica takes part that executes everything sooner or later, whatever clients do.
    fn could_wait(&self) -> bool {
        let Some(scheduler) = &self.scheduler else { return false };
        self.plan.choices.level != Level::PassThrough
            && !self.plan.placement.is_partial()
            && (0..self.plan.replicas).any(|replica| scheduler.takes_part(ReplicaId(replica)))
    }

    fn answered(&mut self, client: usize, answer: &Answer, reply: Option<Reply>) {
        match answer {
            Answer::Deadlock => self.counts.deadlocks += 1,
            Answer::NotHeld(_) => self.counts.not_held += 1,
            _ => {}
        }
        self.say(Stage::Acknowledge, || format!("client {client}: {answer:?} {reply:?}"));
        let now_us = self.agenda.now_us();
        let next = self.clients[client].answered(answer, reply, now_us, &mut self.texts, &mut self.history);
        self.client_goes_on(client, next);
    }

    fn client_goes_on(&mut self, client: usize, next: Next) {
        match next {
            Next::Ask(request) => {
                let after_us = self.message_us();
                self.agenda.enter(after_us, Happening::Request(client, self.run, request));
            }
            Next::Rest => {
                let after_us = self.dice.delay(1_000);
                self.agenda.enter(after_us, Happening::Next(client));
            }
            Next::Over => {}
        }
    }

    fn lose_replica(&mut self, replica: ReplicaId, away_us: u64) {
        let there = &mut self.replicas[usize::from(replica.0)];
        if !there.is_up {
            return;
        }
        there.is_up = false;
        there.disconnect();
        self.say(Stage::Fault, || format!("replica {replica} crashes"));
        self.schedule(|scheduler, out| scheduler.replica_lost(replica, out));
        self.agenda.enter(away_us, Happening::ReplicaBack(replica));
    }

    fn return_replica(&mut self, replica: ReplicaId) {
        if self.scheduler.is_none() {
            return;
        }
        let switches = self.options.switches;
        let there = &mut self.replicas[usize::from(replica.0)];
        let has = if self.plan.choices.level == Level::PassThrough && switches.checkpoint_is_restored {
            let (number, disk) = there.checkpoint.clone();
            there.server.disk = disk;
            Return::AsOf(number)
        } else if switches.kept_is_told {
            Return::Kept(there.server.disk.committed.clone())
        } else {
            Return::AsOf(there.checkpoint.0)
        };
        self.counts.returns += 1;
        self.say(Stage::Recover, || format!("replica {replica} returns: {has:?}"));
        self.schedule(|scheduler, out| scheduler.replica_joined(replica, &has, out));
    }

    fn lose_controller(&mut self, away_us: u64) {
        if self.scheduler.take().is_none() {
            return;
        }
        self.say(Stage::Fault, || "the controller crashes".to_owned());
        self.run += 1;
        self.disk.crash(&mut self.dice);
        self.kept = Kept::default();
        self.replicas.iter_mut().for_each(Replica::disconnect);
        for client in 0..self.clients.len() {
            if self.clients[client].disconnect(&mut self.history) {
                self.agenda.enter(1_000, Happening::Next(client));
            }
        }
        self.agenda.enter(away_us, Happening::ControllerBack);
    }

    fn return_controller(&mut self) {
        let log = self.disk.recover();
        self.say(Stage::Recover, || format!("the controller restarts after {:?}", log.last()));
        let Plan { choices, placement, .. } = &self.plan;
        self.scheduler = Some(Scheduler::recovered(choices.clone(), placement.clone(), log));
        self.counts.restarts += 1;
        let up: Vec<ReplicaId> =
            self.replicas.iter().filter(|there| there.is_up).map(|there| there.id).collect();
        for replica in up {
            self.return_replica(replica);
        }
    }

    fn checkpoint(&mut self) {
        if self.clients.iter().all(Client::is_over) {
            return;
        }
        self.agenda.enter(CHECKPOINT_US, Happening::Checkpoint);
        let name = format!("at {}", self.agenda.now_us());
        let number = self.scheduler.as_mut().and_then(|scheduler| scheduler.checkpoint(name.clone()));
        let Some(number) = number else { return };
        self.counts.checkpoints += 1;
        self.say(Stage::Recover, || format!("checkpoint {number:?}"));
        self.disk.name(name, number);
        for there in self.replicas.iter_mut().filter(|there| there.is_up) {
            there.checkpoint = (number, there.server.disk.clone());
        }
    }

    fn end(mut self) -> Ended {
        let mut findings = Vec::new();
        let is_idle = self.scheduler.as_ref().is_some_and(|scheduler| scheduler.active() == 0)
            && self.replicas.iter().all(|there| there.is_up && there.is_idle());
        if !self.clients.iter().all(Client::is_over) || !is_idle {
            findings
                .push(Finding { anomaly: Anomaly::Stuck, text: "a transaction waits for ever".to_owned() });
        }
        if self.counts.given_up > 0 {
            let text = "a statement was given up, though a replica took part".to_owned();
            findings.push(Finding { anomaly: Anomaly::Order, text });
        }
        for row in 0..self.plan.rows {
            let holders = self.plan.placement.holders_of_all(&[table_of(row)]);
            let value = |replica: ReplicaId| {
                self.replicas[usize::from(replica.0)].server.disk.rows.get(&row).cloned().unwrap_or_default()
            };
            let first = holders.iter().next().map(value).unwrap_or_default();
            if let Some(other) = holders.iter().find(|replica| value(*replica) != first) {
                let text = format!("row {row}: {first:?}, and at replica {other} {:?}", value(other));
                findings.push(Finding { anomaly: Anomaly::Diverged, text });
            }
            self.history.finals.push(Seen { row, list: first.list });
        }
        let committed = self.history.transactions.iter().filter(|t| t.outcome == history::Outcome::Committed);
        self.counts.committed = committed.count() as u64;
        let (level, respond) = (self.plan.choices.level, self.plan.choices.respond);
        let Self { history, counts, trace, .. } = self;
        Ended { level, respond, findings, history, counts, trace }
    }
}
