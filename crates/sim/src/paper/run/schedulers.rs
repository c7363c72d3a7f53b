//! The machines of the schedulers: which browser each serves, its processor, and the disk of its log.
//!
//! Example: with 40 us a message, a commit that goes out to 60 replicas keeps the processor busy for 2.4 ms. The first message leaves
//! after 40 us, the last one at the end. Whatever comes in meanwhile waits in the order of its arrival.

use std::collections::VecDeque;

use cluster::ids::SessionId;
use cluster::protocols::shipping::Request;

use super::super::scenario::Disk;
use super::super::system::{Log, System, To};
use super::{Moment, NEVER, Packet, World};

/// Something that has come to a scheduler.
pub(super) enum Inbound<M> {
    /// A request of a browser.
    Ask(usize, Request),
    /// A message of a proxy or of another scheduler.
    Message(To, M),
    /// Its log has been synchronised.
    Logged(M),
}

/// What the processor of a scheduler does at present.
enum Work<M> {
    TakesIn(Inbound<M>),
    SendsOut(Packet<M>),
}

/// The machine of a scheduler.
pub(super) struct Machine<M> {
    inbox: VecDeque<Inbound<M>>,
    outbox: VecDeque<Packet<M>>,
    work: Option<Work<M>>,
    /// When the processor has done its present work; never if it is idle.
    pub(super) done: Moment,
    /// When its disk is free.
    disk_us: u64,
}

impl<M> Default for Machine<M> {
    fn default() -> Self {
        Self { inbox: VecDeque::new(), outbox: VecDeque::new(), work: None, done: NEVER, disk_us: 0 }
    }
}

impl<S: System> World<'_, S> {
    /// The scheduler of a browser's request. Interactions are dealt in turn, and each stays with one (section 3.2).
    pub(super) fn scheduler_of(&mut self, browser: usize, request: &Request) -> usize {
        let dealt = self.dealt[browser].take().unwrap_or_else(|| {
            let turn = self.turn;
            self.turn = (turn + 1) % self.machines.len();
            turn
        });
        if *request != Request::InteractionOver {
            self.dealt[browser] = Some(dealt);
        }
        dealt
    }

    /// Something comes to a scheduler, which may be busy.
    pub(super) fn inbound(&mut self, at: usize, what: Inbound<S::Message>) {
        if self.scenario.front.message_us == 0 {
            self.act(at, what);
            self.carry_out();
            return;
        }
        self.machines[at].inbox.push_back(what);
        if self.machines[at].done == NEVER {
            self.processor_starts(at);
        }
    }

    /// The processor of a scheduler has done a piece of work and takes the next one.
    pub(super) fn processor_done(&mut self) {
        let busy = self.machines.iter().enumerate().min_by_key(|(_, machine)| machine.done);
        let Some((at, _)) = busy else { return };
        self.machines[at].done = NEVER;
        match self.machines[at].work.take() {
            Some(Work::TakesIn(what)) => {
                self.act(at, what);
                let mut outbox = std::mem::take(&mut self.machines[at].outbox);
                self.account(&mut outbox);
                self.machines[at].outbox = outbox;
            }
            Some(Work::SendsOut(packet)) => self.send(packet),
            None => {}
        }
        self.processor_starts(at);
    }

    /// What is to be sent goes before what has come in.
    fn processor_starts(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let sends = machine.outbox.pop_front().map(Work::SendsOut);
        machine.work = sends.or_else(|| machine.inbox.pop_front().map(Work::TakesIn));
        if machine.work.is_none() {
            return;
        }
        let busy_us = self.scenario.front.message_us;
        if self.is_measuring {
            self.outcome.scheduler_us += busy_us;
        }
        self.machines[at].done = self.moment(busy_us);
    }

    /// Runs a scheduler and meters its time.
    fn act(&mut self, at: usize, what: Inbound<S::Message>) {
        let begin_ns = self.meter.filter(|_| self.is_measuring).map(|meter| meter());
        let is_message = !matches!(what, Inbound::Logged(_));
        let (system, now_us, out) = (&mut self.system, self.now_us, &mut self.out);
        match what {
            Inbound::Ask(browser, request) => system.ask(at, now_us, SessionId(browser as u64), request, out),
            Inbound::Message(to, message) => system.arrive(now_us, to, message, out),
            Inbound::Logged(message) => system.logged(at, now_us, message, out),
        }
        if let (Some(begin_ns), Some(meter)) = (begin_ns, self.meter) {
            self.outcome.scheduler_ns += meter().saturating_sub(begin_ns);
        }
        if self.is_measuring {
            self.outcome.messages += u64::from(is_message);
            self.outcome.messages += (self.out.sends.len() + self.out.answers.len()) as u64;
        }
    }

    /// A scheduler's disk writes to its log.
    pub(super) fn log(&mut self, Log { at, tables, message }: Log<S::Message>) {
        let log_us = self.scenario.log_us;
        let (begins_us, takes_us) = match self.scenario.front.disk {
            Disk::Together => (self.now_us, log_us),
            Disk::InTurn => (self.now_us.max(self.machines[at].disk_us), log_us * tables),
        };
        let ends_us = begins_us + takes_us;
        self.machines[at].disk_us = ends_us;
        let moment = self.moment(ends_us - self.now_us);
        self.log.insert(moment, (at, message));
    }
}
