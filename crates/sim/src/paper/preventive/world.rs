//! The loop: clients submit, messages travel, nodes execute and commit.
//!
//! Sections 4.1 and 4.2: an origin stamps a transaction by its clock and sends it to all targets, itself included. When the origin
//! commits it, it sends the refresh transaction to the targets that cannot perform it. Messages between two nodes arrive in the order in
//! which they were sent.
//!
//! Query clients (6.4) belong to one node each. Such a client asks again some time after its answer, as long as updates are
//! submitted.
//!
//! Invariant: every update is committed once by each target, and a run ends.

use std::sync::Arc;

use cluster::ids::ReplicaId;
use cluster::parts::stamps::{Act, Can, Rules, Stamp};

use super::calibration::Calibration;
use super::experiment::Discipline;
use super::node::{Here, Node, Stage, WorkId};
use super::outcome::Outcome;
use super::workload::{Configuration, Update};
use crate::agenda::Agenda;
use crate::dice::Dice;
use crate::paper::open::arrivals::exponential_us;

/// Queries that are answered before this time are not measured: all clients begin at once.
const WARM_UP_US: u64 = 5_000_000;

/// What a run consists of, besides its updates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) configuration: Configuration,
    pub(super) nodes: u16,
    pub(super) rules: Rules,
    pub(super) calibration: Calibration,
    pub(super) service: Service,
    pub(super) discipline: Discipline,
    /// Clients that submit queries, and how long.
    pub(super) query_clients: u32,
    pub(super) phase_us: u64,
}

/// The time of an update on a disk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Service {
    /// Always the same.
    Fixed(u64),
    /// Exponential, drawn for each execution.
    OfExecution,
    /// Exponential, drawn for each transaction: all nodes take as long.
    OfTransaction,
}

#[derive(Clone, Copy)]
enum Event {
    Submits(WorkId),
    Arrives(u16, Stamp, WorkId),
    RefreshArrives(u16, Stamp),
    Begins(u16, Stamp, u32),
    DiskEnds(u16),
    Alarm(u16),
    Asks(u32),
    Answers(u16),
}

/// Runs all updates, and queries beside them.
pub(super) fn run(plan: Plan, updates: &[Update], seed: u64) -> Outcome {
    let mut dice = Dice::new(seed);
    let node = |id| Node::new(ReplicaId(id), plan.rules, plan.calibration.skew_us, &mut dice);
    let nodes = (0..plan.nodes).map(node).collect();
    let of_queries = (0..plan.nodes).filter(|node| plan.configuration.answers(*node));
    let mut world = World {
        plan,
        updates,
        nodes,
        of_queries: of_queries.collect(),
        channels: vec![0; usize::from(plan.nodes).pow(2)],
        agenda: Agenda::default(),
        dice,
        outcome: Outcome::default(),
    };
    world.await_client(0);
    for client in 0..plan.query_clients {
        let after_us = world.dice.below(plan.calibration.client_side_us);
        world.agenda.enter(after_us, Event::Asks(client));
    }
    world.run()
}

struct World<'a> {
    plan: Plan,
    updates: &'a [Update],
    nodes: Vec<Node>,
    /// The nodes that can answer queries.
    of_queries: Vec<u16>,
    /// The last arrival between two nodes.
    channels: Vec<u64>,
    agenda: Agenda<Event>,
    dice: Dice,
    outcome: Outcome,
}

impl World<'_> {
    fn run(mut self) -> Outcome {
        while let Some(event) = self.agenda.take_next() {
            match event {
                Event::Submits(work) => self.submit(work),
                Event::Arrives(at, stamp, work) => self.arrive(at, stamp, work),
                Event::RefreshArrives(at, stamp) => {
                    let acts = self.node(at).agent.refreshed(stamp);
                    self.act(at, acts);
                }
                Event::Begins(at, stamp, attempt) => self.begin(at, stamp, attempt),
                Event::DiskEnds(at) => self.disk_ends(at),
                Event::Alarm(at) => self.alarm(at),
                Event::Asks(client) => self.ask(client),
                Event::Answers(at) => self.answer(at),
            }
        }
        let all = self.nodes.iter();
        assert!(all.clone().all(|node| node.agent.is_empty() && node.here.is_empty()), "all is committed");
        assert!(self.outcome.updates as usize == self.updates.len(), "every origin commits its updates");
        all.for_each(|node| self.outcome.add(node.agent.counts()));
        let until_us = self.plan.phase_us.saturating_sub(WARM_UP_US);
        self.outcome.measured_us = if self.plan.query_clients > 0 { until_us } else { 0 };
        self.outcome
    }

    fn node(&mut self, at: u16) -> &mut Node {
        &mut self.nodes[usize::from(at)]
    }

    /// The next update is on its way.
    fn await_client(&mut self, number: usize) {
        if let Some(update) = self.updates.get(number) {
            let after_us = update.at_us.saturating_sub(self.agenda.now_us());
            self.agenda.enter(after_us, Event::Submits(WorkId(number)));
        }
    }

    fn submit(&mut self, work: WorkId) {
        self.await_client(work.0 + 1);
        let kind = self.updates[work.0].kind;
        let Plan { configuration, nodes, .. } = self.plan;
        let able: Vec<u16> =
            (0..nodes).filter(|node| configuration.can(*node, kind) == Some(Can::Perform)).collect();
        let origin = *self.dice.pick(&able);
        let now_us = self.agenda.now_us();
        let node = self.node(origin);
        let clock = node.clock(now_us);
        let stamp = node.stamper.stamp(clock);
        for to in 0..nodes {
            if let Some(can) = configuration.can(to, kind) {
                self.outcome.messages_stated += if can == Can::Perform { 1 } else { 2 };
                self.send(origin, to, Event::Arrives(to, stamp, work));
            }
        }
    }

    fn send(&mut self, from: u16, to: u16, event: Event) {
        let now_us = self.agenda.now_us();
        let message_us = exponential_us(self.plan.calibration.message_us, &mut self.dice);
        let channel = &mut self.channels[usize::from(from * self.plan.nodes + to)];
        *channel = (*channel).max(now_us + message_us);
        self.agenda.enter(*channel - now_us, event);
        self.outcome.messages += 1;
    }

    fn arrive(&mut self, at: u16, stamp: Stamp, work: WorkId) {
        let arrived_us = self.agenda.now_us();
        let update = &self.updates[work.0];
        let can = self.plan.configuration.can(at, update.kind);
        let node = &mut self.nodes[usize::from(at)];
        let clock = node.clock(arrived_us);
        let here = Here { work, arrived_us, stage: Stage::Idle, attempt: 0, is_refresh: false };
        node.here.insert(stamp, here);
        let acts =
            node.agent.arrived(clock, stamp, Arc::clone(&update.claims), can.unwrap_or(Can::NeedsRefresh));
        let before = self.outcome.aborted;
        self.act(at, acts);
        self.outcome.aborting += u64::from(self.outcome.aborted > before);
    }

    /// Does what the agent of a node asks for, and sets its alarm.
    fn act(&mut self, at: u16, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Perform(stamp) => self.start(at, stamp, false),
                Act::Apply(stamp) => self.start(at, stamp, true),
                Act::Undo(stamp) => self.undo(at, stamp),
                Act::Commit(stamp) => self.commit(at, stamp),
            }
        }
        let now_us = self.agenda.now_us();
        let node = &mut self.nodes[usize::from(at)];
        let next = node.agent.next_alarm();
        if next != node.alarm {
            node.alarm = next;
            if let Some(clock) = next {
                let after_us = node.until_us(now_us, clock);
                self.agenda.enter(after_us, Event::Alarm(at));
            }
        }
    }

    fn start(&mut self, at: u16, stamp: Stamp, is_refresh: bool) {
        let (now_us, hold_us) = (self.agenda.now_us(), self.plan.calibration.hold_us);
        let Some(here) = self.node(at).here.get_mut(&stamp) else { return };
        here.attempt += 1;
        (here.stage, here.is_refresh) = (Stage::Held, is_refresh);
        let (attempt, begins_us) = (here.attempt, here.arrived_us + hold_us);
        self.agenda.enter(begins_us.saturating_sub(now_us), Event::Begins(at, stamp, attempt));
    }

    fn begin(&mut self, at: u16, stamp: Stamp, attempt: u32) {
        let discipline = self.plan.discipline;
        let node = self.node(at);
        let is_held = |here: &&mut Here| here.stage == Stage::Held && here.attempt == attempt;
        let Some(here) = node.here.get_mut(&stamp).filter(is_held) else { return };
        here.stage = Stage::Inside;
        // The first one is on the disk, whatever comes.
        let place = match discipline {
            Discipline::InTurn => node.disk.len(),
            Discipline::OldestFirst => {
                let younger = node.disk.iter().skip(1).position(|other| *other > stamp);
                younger.map_or(node.disk.len(), |at| at + 1)
            }
        };
        node.disk.insert(place, stamp);
        if node.disk.len() == 1 {
            self.serve(at);
        }
    }

    /// The first execution in the queue gets the disk.
    fn serve(&mut self, at: u16) {
        let Calibration { update_us, refresh_us, .. } = self.plan.calibration;
        let node = &self.nodes[usize::from(at)];
        let Some(here) = node.disk.front().and_then(|stamp| node.here.get(stamp)) else { return };
        let mean_us = if here.is_refresh { refresh_us } else { update_us };
        let service_us = match self.plan.service {
            Service::Fixed(size_us) => size_us,
            Service::OfExecution => exponential_us(mean_us, &mut self.dice),
            Service::OfTransaction => self.updates[here.work.0].size.of_us(mean_us),
        };
        self.agenda.enter(service_us, Event::DiskEnds(at));
    }

    fn disk_ends(&mut self, at: u16) {
        let node = self.node(at);
        let Some(stamp) = node.disk.pop_front() else { return };
        let acts = match node.here.get_mut(&stamp) {
            Some(here) if here.stage == Stage::Doomed => {
                here.stage = Stage::Idle;
                node.agent.undone(stamp)
            }
            Some(here) => {
                here.stage = Stage::Done;
                node.agent.performed(stamp)
            }
            None => Vec::new(),
        };
        self.serve(at);
        self.act(at, acts);
    }

    fn undo(&mut self, at: u16, stamp: Stamp) {
        let node = &mut self.nodes[usize::from(at)];
        let Some(here) = node.here.get_mut(&stamp) else { return };
        self.outcome.aborted += u64::from(here.stage != Stage::Held);
        if here.stage == Stage::Inside {
            here.stage = Stage::Doomed;
            return;
        }
        here.stage = Stage::Idle;
        let acts = node.agent.undone(stamp);
        self.act(at, acts);
    }

    fn commit(&mut self, at: u16, stamp: Stamp) {
        let node = &mut self.nodes[usize::from(at)];
        let here = node.here.remove(&stamp);
        self.outcome.disordered += u64::from(node.committed > Some(stamp));
        node.committed = node.committed.max(Some(stamp));
        let Some(work) = here.filter(|_| stamp.origin == ReplicaId(at)).map(|here| here.work) else { return };
        let Update { at_us, kind, .. } = self.updates[work.0];
        self.outcome.updates += 1;
        self.outcome.response_us += self.agenda.now_us() - at_us;
        for to in 0..self.plan.nodes {
            if self.plan.configuration.can(to, kind) == Some(Can::NeedsRefresh) {
                self.send(at, to, Event::RefreshArrives(to, stamp));
            }
        }
    }

    fn alarm(&mut self, at: u16) {
        let now_us = self.agenda.now_us();
        let node = self.node(at);
        let clock = node.clock(now_us);
        if node.alarm.is_some_and(|alarm| alarm <= clock) {
            let acts = node.agent.alarm(clock);
            self.act(at, acts);
        }
    }

    fn ask(&mut self, client: u32) {
        if self.agenda.now_us() >= self.plan.phase_us {
            return;
        }
        let at = self.of_queries[client as usize % self.of_queries.len()];
        let processor = &mut self.node(at).processor;
        processor.push_back(client);
        if processor.len() == 1 {
            self.query(at);
        }
    }

    fn query(&mut self, at: u16) {
        let query_us = exponential_us(self.plan.calibration.query_us, &mut self.dice);
        self.agenda.enter(query_us, Event::Answers(at));
    }

    fn answer(&mut self, at: u16) {
        let now_us = self.agenda.now_us();
        let processor = &mut self.node(at).processor;
        let Some(client) = processor.pop_front() else { return };
        let is_more = !processor.is_empty();
        if is_more {
            self.query(at);
        }
        let is_measured = (WARM_UP_US..self.plan.phase_us).contains(&now_us);
        self.outcome.queries += u64::from(is_measured);
        self.agenda.enter(self.plan.calibration.client_side_us, Event::Asks(client));
    }
}
