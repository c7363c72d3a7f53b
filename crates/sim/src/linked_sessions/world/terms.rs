//! Who leads: the chair that chooses, terms, leases, and what nodes ask of the log.

use cluster::protocols::shipping::SequenceNumber;

use super::{Event, Happening, LEASE_US, Node, Process, World};
use crate::linked_sessions::Rule;
use crate::linked_sessions::database::Database;
use crate::linked_sessions::draw::NODES;
use crate::linked_sessions::leader::{AtLeader, Leading};
use crate::linked_sessions::log::Record;
use crate::trace::Stage;

/// The time between two looks at the leader.
const LOOK_US: u64 = 1_500;

/// Who chooses leaders.
#[derive(Debug)]
pub(super) struct Chair {
    /// The node that was chosen last.
    pub(super) chosen: Option<Process>,
    /// It is to be replaced.
    pub(super) is_suspect: bool,
    /// Faults that are not over.
    pub(super) faults_left: usize,
    /// The run is over, and nobody looks any more.
    pub(super) is_over: bool,
}

impl Chair {
    pub(super) fn new(faults_left: usize) -> Self {
        Self { chosen: None, is_suspect: false, faults_left, is_over: false }
    }
}

/// What a node asks of the log.
#[derive(Debug)]
pub(super) enum LogAsk {
    Claim,
    Read(u64),
    Append(u64, SequenceNumber, Record),
    /// Whether the term is still the newest; with the time of this question.
    Confirm(u64, u64),
}

/// What the log replies.
#[derive(Debug)]
pub(super) enum LogReply {
    Claimed(u64),
    Records(u64, Vec<Record>),
    Logged(u64, SequenceNumber),
    Confirmed(u64, u64),
    /// There is a newer term.
    Refused(u64),
}

impl World {
    pub(super) fn look_at_leader(&mut self) {
        self.chair.is_over = self.is_settled();
        if self.chair.is_over {
            return;
        }
        let present = self.chair.chosen.filter(|chosen| {
            self.is_alive(*chosen) && !self.nodes[chosen.node].is_asleep && !self.chair.is_suspect
        });
        if present.is_none() {
            let fits = |node: &usize| {
                let at = &self.nodes[*node];
                at.is_up && !at.is_asleep && !at.is_cut
            };
            let fit: Vec<usize> = (0..NODES).filter(fits).collect();
            let former = self.chair.chosen.map(|former| former.node);
            let others: Vec<usize> = fit.iter().copied().filter(|node| Some(*node) != former).collect();
            let from = if others.is_empty() { fit } else { others };
            if !from.is_empty() {
                let node = *self.dice.pick(&from);
                let next = self.process(node);
                (self.chair.chosen, self.chair.is_suspect) = (Some(next), false);
                let after_us = self.message_us();
                self.enter_at(after_us, next, Event::Elected);
            }
        }
        self.agenda.enter(LOOK_US, Happening::Chair);
    }

    fn ask_log(&mut self, from: Process, ask: LogAsk) {
        let after_us = self.dice.delay(self.plan.log_us);
        self.agenda.enter(after_us, Happening::Log(from, ask));
    }

    pub(super) fn claim(&mut self, process: Process) {
        self.step_down(process);
        self.ask_log(process, LogAsk::Claim);
    }

    pub(super) fn read_log(&mut self, process: Process, term: u64) {
        self.ask_log(process, LogAsk::Read(term));
    }

    pub(super) fn append(&mut self, process: Process, term: u64, number: SequenceNumber, record: Record) {
        self.ask_log(process, LogAsk::Append(term, number, record));
    }

    pub(super) fn confirm_lease(&mut self, process: Process, term: u64) {
        let now_us = self.agenda.now_us();
        self.ask_log(process, LogAsk::Confirm(term, now_us));
    }

    pub(super) fn at_log(&mut self, from: Process, ask: LogAsk) {
        if self.nodes[from.node].is_cut {
            return;
        }
        let reply = match ask {
            LogAsk::Claim if !self.is_alive(from) => return,
            LogAsk::Claim => {
                // The last one that claims leads.
                self.chair.chosen = Some(from);
                LogReply::Claimed(self.log.claim())
            }
            LogAsk::Read(term) => LogReply::Records(term, self.log.records.clone()),
            LogAsk::Append(term, number, record) => {
                self.say(Stage::Propagate, || format!("the log is asked to take {record:?}"));
                let is_fenced = self.switches.has(Rule::LogIsFenced);
                if self.log.append(record, is_fenced) {
                    LogReply::Logged(term, number)
                } else {
                    LogReply::Refused(term)
                }
            }
            LogAsk::Confirm(term, sent_us) if term == self.log.claimed => LogReply::Confirmed(term, sent_us),
            LogAsk::Confirm(term, _) => LogReply::Refused(term),
        };
        let after_us = self.dice.delay(self.plan.log_us);
        self.enter_at(after_us, from, Event::Log(reply));
    }

    pub(super) fn log_replies(&mut self, process: Process, reply: LogReply) {
        match reply {
            LogReply::Claimed(term) if term < self.nodes[process.node].claimed => {}
            LogReply::Claimed(term) => {
                self.nodes[process.node].claimed = term;
                let waits = self.switches.has(Rule::LeaseIsAwaited);
                let after_us = if waits { LEASE_US } else { 0 };
                self.say(Stage::Recover, || format!("node {} has term {term}", process.node));
                self.enter_at(after_us, process, Event::LeaseIsOut(term));
            }
            LogReply::Records(term, records) => self.begin_term(process, term, records),
            LogReply::Logged(term, number) => {
                let leading = self.nodes[process.node].leading.as_mut();
                if let Some(leading) = leading.filter(|leading| leading.term == term) {
                    leading.logged(number);
                    self.leader_goes_on(process);
                }
            }
            LogReply::Confirmed(term, sent_us) => {
                let leading = self.nodes[process.node].leading.as_mut();
                if let Some(leading) = leading.filter(|leading| leading.term == term) {
                    leading.confirmed_us = leading.confirmed_us.max(sent_us);
                    self.leader_goes_on(process);
                }
            }
            LogReply::Refused(term) => {
                if self.nodes[process.node].leading.as_ref().is_some_and(|leading| leading.term == term) {
                    self.step_down(process);
                }
            }
        }
    }

    fn begin_term(&mut self, process: Process, term: u64, records: Vec<Record>) {
        if term != self.nodes[process.node].claimed {
            return;
        }
        self.step_down(process);
        self.counts.terms += 1;
        self.say(Stage::Recover, || format!("term {term} of node {} begins", process.node));
        let mut leading = Leading::new(term, self.plan.choices, self.plan.replicas, self.switches);
        leading.records = records;
        self.nodes[process.node].leading = Some(leading);
        for node in 0..NODES {
            let after_us = if node == process.node { 0 } else { self.notice_us() };
            let to = self.process(node);
            self.enter_at(after_us, to, Event::Roster(process, term));
        }
    }

    /// A node learns who leads.
    pub(super) fn learn_leader(&mut self, process: Process, leader: Process, term: u64) {
        let node = &mut self.nodes[process.node];
        if node.roster.is_some_and(|(_, known)| known >= term) {
            return;
        }
        node.roster = Some((leader, term));
        if node.leading.as_ref().is_some_and(|leading| leading.term < term) {
            self.step_down(process);
        }
        if let Some(link) = self.nodes[process.node].sessions.link.filter(|link| link.term < term) {
            self.lose_link(process, link.crew);
        }
        self.connect(process);
    }

    /// The term of a node is over, and its links and own connections end.
    pub(super) fn step_down(&mut self, process: Process) {
        let Some(leading) = self.nodes[process.node].leading.take() else { return };
        self.say(Stage::Recover, || format!("node {} leads no more", process.node));
        let its = self.links.iter().filter(|(_, link)| link.leader == process && link.term == leading.term);
        for crew in its.map(|(crew, _)| *crew).collect::<Vec<_>>() {
            self.break_link(crew);
        }
        self.end_backends(process, true);
    }

    /// Whether there is nothing left to do.
    fn is_settled(&self) -> bool {
        let leads = |node: &Node| {
            node.leading.as_ref().is_some_and(|leading| {
                let is_watched = |(at, database): (&AtLeader, &Database)| {
                    at.watch.is_some_and(|watch| database.has(watch))
                };
                let is_idle = leading.scheduler.active() == 0 && leading.all_are_up();
                leading.term == self.log.claimed
                    && is_idle
                    && leading.replicas.iter().zip(&self.databases).all(is_watched)
            })
        };
        self.chair.faults_left == 0 && self.clients_are_over() && self.nodes.iter().any(leads)
    }
}
