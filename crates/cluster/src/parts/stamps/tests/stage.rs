//! A small world around agents: messages with given delays, executions with given durations, and what happened as text.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::*;
use crate::claims::Claims;

/// Global time 0 on a clock without skew, so that clocks behind it are positive.
pub(super) const CLOCK_AT_0_US: u64 = 1_000;

/// A transaction to submit.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) at: u64,
    pub(super) origin: u16,
    pub(super) claims: Claims,
    pub(super) duration: u64,
    /// Targets with the delay of the message, and what they can do.
    pub(super) targets: Vec<(u16, u64, Can)>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submits(usize),
    Arrives(u16, usize),
    RefreshArrives(u16, usize),
    Ends(u16, Stamp),
    Alarm(u16),
}

#[derive(Debug)]
pub(super) struct Stage {
    pub(super) agents: BTreeMap<u16, Agent>,
    pub(super) plans: Vec<Plan>,
    pub(super) stamps: BTreeMap<Stamp, usize>,
    /// Commits of each replica in their order.
    pub(super) commits: BTreeMap<u16, Vec<Stamp>>,
    pub(super) log: Vec<Stamp>,
    pub(super) told: Vec<String>,
    skew: BTreeMap<u16, i64>,
    stampers: BTreeMap<u16, Stamper>,
    appends: Option<Appends>,
    agenda: BTreeSet<(u64, u64)>,
    events: BTreeMap<u64, Event>,
    entered: u64,
    now: u64,
    /// The last arrival between two replicas.
    channels: BTreeMap<(u16, u16), u64>,
    /// Executions: whether each is being undone, and what had been committed at its replica when it began.
    running: BTreeMap<(u16, Stamp), (bool, BTreeSet<Stamp>)>,
    done: BTreeMap<(u16, Stamp), BTreeSet<Stamp>>,
}

impl Stage {
    pub(super) fn new(replicas: u16, rules: Rules, plans: Vec<Plan>) -> Self {
        let ids = 1..=replicas;
        let mut stage = Self {
            agents: ids.clone().map(|id| (id, Agent::new(ReplicaId(id), rules))).collect(),
            plans,
            stamps: BTreeMap::new(),
            commits: ids.clone().map(|id| (id, Vec::new())).collect(),
            log: Vec::new(),
            told: Vec::new(),
            skew: BTreeMap::new(),
            stampers: ids.map(|id| (id, Stamper::new(ReplicaId(id)))).collect(),
            appends: (rules.commit == Commit::ByTheLog).then(Appends::default),
            agenda: BTreeSet::new(),
            events: BTreeMap::new(),
            entered: 0,
            now: 0,
            channels: BTreeMap::new(),
            running: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        for plan in 0..stage.plans.len() {
            stage.enter(stage.plans[plan].at, Event::Submits(plan));
        }
        stage
    }

    pub(super) fn skewed(mut self, skew: &[i64]) -> Self {
        self.skew = (1..).zip(skew.iter().copied()).collect();
        self
    }

    /// Runs until nothing happens any more.
    pub(super) fn run(&mut self) {
        while let Some((at, number)) = self.agenda.pop_first() {
            self.now = at;
            let Some(event) = self.events.remove(&number) else { continue };
            match event {
                Event::Submits(plan) => self.submit(plan),
                Event::Arrives(to, plan) => self.arrive(to, plan),
                Event::RefreshArrives(to, plan) => {
                    let stamp = self.stamp_of(plan);
                    self.told.push(format!("{at} refresh of T{} at {to}", plan + 1));
                    let acts = self.agent(to).refreshed(stamp);
                    self.act(to, acts);
                }
                Event::Ends(at, stamp) => self.end(at, stamp),
                Event::Alarm(at) => {
                    let clock = self.clock(at);
                    let acts = self.agent(at).alarm(clock);
                    self.act(at, acts);
                }
            }
            self.append();
        }
    }

    fn enter(&mut self, at: u64, event: Event) {
        self.entered += 1;
        // An alarm orders what arrives at the same time.
        let class = if matches!(event, Event::Alarm(_)) { 1 << 40 } else { 0 };
        self.events.insert(self.entered + class, event);
        self.agenda.insert((at, self.entered + class));
    }

    fn agent(&mut self, replica: u16) -> &mut Agent {
        self.agents.get_mut(&replica).unwrap()
    }

    fn clock(&self, replica: u16) -> Time {
        let skew = self.skew.get(&replica).copied().unwrap_or_default();
        Time { us: (self.now + CLOCK_AT_0_US).checked_add_signed(skew).unwrap() }
    }

    fn stamp_of(&self, plan: usize) -> Stamp {
        *self.stamps.iter().find(|(_, of)| **of == plan).unwrap().0
    }

    fn submit(&mut self, plan: usize) {
        let Plan { origin, targets, .. } = self.plans[plan].clone();
        let clock = self.clock(origin);
        let stamp = match &mut self.appends {
            Some(appends) => appends.stamp(clock, ReplicaId(origin)),
            None => self.stampers.get_mut(&origin).unwrap().stamp(clock),
        };
        self.stamps.insert(stamp, plan);
        for (to, delay, _) in targets {
            self.send(origin, to, delay, Event::Arrives(to, plan));
        }
    }

    fn send(&mut self, from: u16, to: u16, delay: u64, event: Event) {
        let last = self.channels.entry((from, to)).or_default();
        *last = (*last).max(self.now + delay);
        let at = *last;
        self.enter(at, event);
    }

    fn arrive(&mut self, to: u16, plan: usize) {
        let stamp = self.stamp_of(plan);
        let Plan { claims, targets, .. } = self.plans[plan].clone();
        let can = targets.iter().find(|(target, _, _)| *target == to).unwrap().2;
        let clock = self.clock(to);
        self.told.push(format!("{} T{} arrives at {to}", self.now, plan + 1));
        let acts = self.agent(to).arrived(clock, stamp, Arc::new(claims), can);
        self.act(to, acts);
    }

    /// Does what an agent asks for, and sets its alarm.
    fn act(&mut self, at: u16, acts: Vec<Act>) {
        let mut undone = Vec::new();
        for act in acts {
            let (Act::Perform(stamp) | Act::Apply(stamp) | Act::Undo(stamp) | Act::Commit(stamp)) = act;
            let plan = self.stamps[&stamp];
            let what = match act {
                Act::Perform(_) => "runs",
                Act::Apply(_) => "is applied",
                Act::Undo(_) => "is undone",
                Act::Commit(_) => "commits",
            };
            self.told.push(format!("{} T{} {what} at {at}", self.now, plan + 1));
            let seen = || self.commits[&at].iter().copied().collect::<BTreeSet<_>>();
            match act {
                Act::Perform(_) | Act::Apply(_) => {
                    self.check_alone(at, stamp);
                    let seen = seen();
                    assert!(self.running.insert((at, stamp), (false, seen)).is_none(), "it runs already");
                    let ends = self.now + self.plans[plan].duration;
                    self.enter(ends, Event::Ends(at, stamp));
                }
                // It is told when all these acts are done, among them a commit that the rest has to see.
                Act::Undo(_) if self.done.remove(&(at, stamp)).is_some() => undone.push(stamp),
                Act::Undo(_) => self.running.get_mut(&(at, stamp)).unwrap().0 = true,
                Act::Commit(_) => self.commit(at, stamp),
            }
        }
        for stamp in undone {
            let acts = self.agent(at).undone(stamp);
            self.act(at, acts);
        }
        if let Some(alarm) = self.agents[&at].next_alarm() {
            let after = alarm.us.saturating_sub(self.clock(at).us);
            self.enter(self.now + after, Event::Alarm(at));
        }
    }

    /// Section 5.2: "we do not trigger conflicting transactions concurrently".
    fn check_alone(&self, at: u16, stamp: Stamp) {
        let others = self.running.keys().chain(self.done.keys());
        for (_, other) in others.filter(|(replica, other)| *replica == at && *other != stamp) {
            let claims = |stamp: &Stamp| &self.plans[self.stamps[stamp]].claims;
            assert!(!claims(other).overlaps(claims(&stamp)), "{other:?} and {stamp:?} run together at {at}");
        }
    }

    fn end(&mut self, at: u16, stamp: Stamp) {
        let Some((is_undone, seen)) = self.running.remove(&(at, stamp)) else { return };
        let acts = if is_undone {
            self.agent(at).undone(stamp)
        } else {
            self.done.insert((at, stamp), seen);
            self.agent(at).performed(stamp)
        };
        self.act(at, acts);
    }

    fn commit(&mut self, at: u16, stamp: Stamp) {
        let seen = self.done.remove(&(at, stamp)).expect("only what is done commits");
        let plan = &self.plans[self.stamps[&stamp]];
        let before = &self.commits[&at];
        let conflicts = |other: &&Stamp| self.plans[self.stamps[other]].claims.overlaps(&plan.claims);
        let missed: Vec<_> = before
            .iter()
            .filter(conflicts)
            .filter(|other| **other < stamp && !seen.contains(other))
            .collect();
        assert!(missed.is_empty(), "{stamp:?} at {at} has not seen {missed:?}");
        let waiting = plan.targets.iter().filter(|(_, _, can)| *can == Can::NeedsRefresh);
        let waiting: Vec<(u16, u64)> = waiting.map(|(to, delay, _)| (*to, *delay)).collect();
        self.commits.get_mut(&at).unwrap().push(stamp);
        if self.appends.is_none() && stamp.origin == ReplicaId(at) {
            for (to, delay) in waiting {
                self.send(at, to, delay, Event::RefreshArrives(to, self.stamps[&stamp]));
            }
        }
    }

    /// Appends all that the log and the origins allow.
    fn append(&mut self) {
        if self.appends.is_none() {
            return;
        }
        loop {
            let ready: Vec<Stamp> = self.agents.values().filter_map(Agent::ready).collect();
            let appends = self.appends.as_mut().unwrap();
            let Some(stamp) = ready.into_iter().find(|stamp| appends.is_next(*stamp)) else { return };
            appends.appended(stamp);
            self.check_seen(stamp);
            self.log.push(stamp);
            for (to, _, _) in self.plans[self.stamps[&stamp]].targets.clone() {
                let acts = self.agent(to).logged(stamp);
                self.act(to, acts);
            }
        }
    }

    /// What is appended is what its origin has executed, so that must have seen all records that go there and conflict.
    fn check_seen(&self, stamp: Stamp) {
        let origin = stamp.origin.0;
        let plan = |stamp: &Stamp| &self.plans[self.stamps[stamp]];
        let goes_there = |other: &&Stamp| plan(other).targets.iter().any(|(to, _, _)| *to == origin);
        let conflicts = |other: &&Stamp| plan(other).claims.overlaps(&plan(&stamp).claims);
        let seen = &self.done[&(origin, stamp)];
        let missed: Vec<_> = self
            .log
            .iter()
            .filter(goes_there)
            .filter(conflicts)
            .filter(|other| !seen.contains(other))
            .collect();
        assert!(missed.is_empty(), "{stamp:?} is appended without {missed:?}");
    }
}
