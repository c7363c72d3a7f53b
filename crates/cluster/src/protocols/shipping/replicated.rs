//! One of several schedulers (sections 4.1 and 5): it shares its state with the others, so that they can go on without it.
//!
//! ```text
//! client -> Request -> ReplicatedScheduler -> AskNumber -> sequencer
//!                        <- Number             Start       all others; each answers Recorded
//!                        lock request to all proxies, operations, ..
//!           End       -> End, with all writes  -> all others; each answers Recorded
//!                        Log, and then the commit to all proxies
//! ```
//!
//! Each client web interaction stays with one scheduler. The sequencer runs at the eldest scheduler that lives, and so does the
//! fail-over scheduler. When one fails, every other one tells the eldest that it no longer hears it ([`ToPeer::Viewed`]). The eldest
//! then decides about each transaction of the failed one from its own records, tells the others as in
//! `replicate_end_transaction`, and carries the decision out.
//!
//! Invariant: a commit is sent to a replica only if all schedulers that live have the decision, and after it is logged. So the record of
//! the eldest is enough: what it does not know as decided, no replica has committed. Since it tells the others before it acts, the
//! next eldest decides the same.
//!
//! Deviations: the paper does not say at which machine the sequencer runs. A single update is told to the others once, since it is
//! decided when it begins. After the loss of all schedulers, numbers go on instead of beginning again ([`super::failover`]), so no replica
//! has to be empty first.
//!
//! Not here: how a failure is found out (fail-stop, section 5.1), and a scheduler that comes back.

mod takeover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::ids::{ReplicaId, SessionId};

use super::Choices;
use super::message::{Answer, Ending, FromProxy, Request, SchedulerId, SequenceNumber};
use super::peer_message::{Decision, ToPeer};
use super::scheduler::{Output, Scheduler};
use super::sequencer::Sequencer;
use takeover::Takeover;

/// The rules that a mutant of the simulation can switch off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicationRules {
    /// A transaction begins when all others have recorded its start.
    pub starts_are_awaited: bool,
    /// A transaction is logged when all others have recorded its end.
    pub ends_are_awaited: bool,
    /// What the failed scheduler had decided is done.
    pub decided_is_redone: bool,
    /// What it had not decided is undone.
    pub undecided_is_undone: bool,
    /// The next sequencer's host fills the gaps that the last one has left.
    pub gaps_are_filled: bool,
    /// The next sequencer goes on after the last number that any scheduler has heard of.
    pub sequencer_goes_on: bool,
    /// The fail-over scheduler tells the others of its decisions before it acts.
    pub takeovers_are_told: bool,
    /// It waits until no one hears the failed one any more.
    pub views_are_awaited: bool,
    /// Single reads go after the numbers of other schedulers, too.
    pub reads_go_after_all: bool,
}

impl Default for ReplicationRules {
    fn default() -> Self {
        Self {
            starts_are_awaited: true,
            ends_are_awaited: true,
            decided_is_redone: true,
            undecided_is_undone: true,
            gaps_are_filled: true,
            sequencer_goes_on: true,
            takeovers_are_told: true,
            views_are_awaited: true,
            reads_go_after_all: true,
        }
    }
}

/// An output of one of several schedulers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicatedOutput {
    /// What a single scheduler would do, too.
    Own(Output),
    /// Send it to another scheduler. Messages between two schedulers keep their order.
    ToPeer(SchedulerId, ToPeer),
}

/// A transaction of another scheduler.
#[derive(Debug)]
struct Remote {
    coordinator: SchedulerId,
    decision: Option<Decision>,
}

/// What waits for the acknowledgments of the others.
#[derive(Debug)]
enum Shared {
    /// A client's request, which is carried out then.
    Request(SessionId, Request),
    /// The decision about a transaction of a scheduler that has failed.
    Adopted(Decision),
}

/// The numbers that a scheduler has heard of.
#[derive(Debug, Default)]
struct Seen {
    /// All up to this one.
    upto: SequenceNumber,
    above: BTreeSet<SequenceNumber>,
}

impl Seen {
    fn insert(&mut self, number: SequenceNumber) {
        if number > self.upto {
            self.above.insert(number);
        }
        while self.above.remove(&SequenceNumber(self.upto.0 + 1)) {
            self.upto.0 += 1;
        }
    }

    fn highest(&self) -> SequenceNumber {
        self.above.last().copied().unwrap_or_default().max(self.upto)
    }
}

/// One of several schedulers.
#[derive(Debug)]
pub struct ReplicatedScheduler {
    id: SchedulerId,
    rules: ReplicationRules,
    scheduler: Scheduler,
    /// All that live, the eldest first.
    living: Vec<SchedulerId>,
    /// Here, if this one is the eldest.
    sequencer: Option<Sequencer>,
    /// Requests without a number yet, in the order in which the sequencer was asked.
    unnumbered: VecDeque<(SessionId, Request)>,
    /// The sessions whose request waits for a number or for the others.
    waiting: BTreeSet<SessionId>,
    /// For each number, what waits, and for whom.
    shared: BTreeMap<SequenceNumber, (Shared, BTreeSet<SchedulerId>)>,
    remote: BTreeMap<SequenceNumber, Remote>,
    seen: Seen,
    takeover: Takeover,
    outputs: Vec<Output>,
}

impl ReplicatedScheduler {
    /// One of these schedulers, the eldest first, for replicas that have everything up to a number.
    pub fn new(
        id: SchedulerId,
        schedulers: &[SchedulerId],
        choices: Choices,
        replicas: usize,
        upto: SequenceNumber,
    ) -> Self {
        let mut scheduler = Scheduler::new(choices, replicas);
        scheduler.hear_of(upto);
        Self {
            id,
            rules: ReplicationRules::default(),
            scheduler,
            living: schedulers.to_vec(),
            sequencer: (schedulers.first() == Some(&id)).then(|| Sequencer::restarted(upto)),
            unnumbered: VecDeque::new(),
            waiting: BTreeSet::new(),
            shared: BTreeMap::new(),
            remote: BTreeMap::new(),
            seen: Seen { upto, above: BTreeSet::new() },
            takeover: Takeover::default(),
            outputs: Vec::new(),
        }
    }

    /// The same with other rules.
    #[must_use]
    pub fn with_rules(self, rules: ReplicationRules) -> Self {
        Self { rules, ..self }
    }

    /// A client asks.
    pub fn request(&mut self, session: SessionId, request: Request, out: &mut Vec<ReplicatedOutput>) {
        if self.waiting.contains(&session) || !self.scheduler.accepts(session, &request, self.waiting.len()) {
            out.push(ReplicatedOutput::Own(Output::Answer(session, Answer::Refused)));
            return;
        }
        match request {
            Request::Begin(_) | Request::SingleUpdate(..) => {
                self.waiting.insert(session);
                self.unnumbered.push_back((session, request));
                self.ask_number(out);
            }
            Request::End(Ending::Commit) => {
                let Some((number, active)) = self.scheduler.open_of(session) else { return };
                let decision = Decision::Commit(active.locks.clone(), active.writes.clone());
                self.waiting.insert(session);
                let end = ToPeer::End(number, decision);
                self.share(number, Shared::Request(session, request), &end, out);
            }
            request => {
                self.scheduler.request(session, request, &mut self.outputs);
                self.pass_on(out);
            }
        }
    }

    /// A message of another scheduler has arrived.
    pub fn hear(&mut self, from: SchedulerId, message: ToPeer, out: &mut Vec<ReplicatedOutput>) {
        if !self.living.contains(&from) {
            // It has failed, and the take-over may be under way without this message.
            return;
        }
        match message {
            ToPeer::AskNumber => self.give_number(from, out),
            ToPeer::Number(number) => self.numbered(number, out),
            ToPeer::Start(number) => {
                self.record(from, number, None);
                out.push(ReplicatedOutput::ToPeer(from, ToPeer::Recorded(number)));
            }
            ToPeer::End(number, decision) => {
                self.record(from, number, Some(decision));
                out.push(ReplicatedOutput::ToPeer(from, ToPeer::Recorded(number)));
            }
            ToPeer::Recorded(number) => {
                if let Some((_, missing)) = self.shared.get_mut(&number) {
                    missing.remove(&from);
                    self.go_on(number, out);
                }
            }
            ToPeer::Over(number) => {
                self.remote.remove(&number);
            }
            ToPeer::Viewed(view, highest) => self.viewed(from, view, highest, out),
        }
    }

    /// A proxy reports on a transaction of this scheduler.
    pub fn report(&mut self, replica: ReplicaId, report: FromProxy, out: &mut Vec<ReplicatedOutput>) {
        let ended = match report {
            FromProxy::Ended(number, _) => Some(number).filter(|number| self.scheduler.has(*number)),
            FromProxy::Granted(_) | FromProxy::Done(..) | FromProxy::Read(..) => None,
        };
        self.scheduler.report(replica, report, &mut self.outputs);
        self.pass_on(out);
        if let Some(number) = ended.filter(|number| !self.scheduler.has(*number)) {
            self.tell(&ToPeer::Over(number), out);
        }
    }

    /// The writes of a transaction are durable in the log of this scheduler.
    pub fn logged(&mut self, number: SequenceNumber, out: &mut Vec<ReplicatedOutput>) {
        self.scheduler.logged(number, &mut self.outputs);
        self.pass_on(out);
    }

    /// A replica is lost (fail-stop).
    pub fn replica_lost(&mut self, replica: ReplicaId, out: &mut Vec<ReplicatedOutput>) {
        let before: Vec<SequenceNumber> = self.scheduler.under_way().collect();
        self.scheduler.replica_lost(replica, &mut self.outputs);
        self.pass_on(out);
        for number in before.into_iter().filter(|number| !self.scheduler.has(*number)).collect::<Vec<_>>() {
            self.tell(&ToPeer::Over(number), out);
        }
    }

    /// Takes note of the load that a proxy tells with a reply.
    pub fn note_load(&mut self, replica: ReplicaId, load_us: u64) {
        self.scheduler.note_load(replica, load_us);
    }

    /// The scheduler without its peers.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// The records of other schedulers' transactions.
    pub fn records(&self) -> usize {
        self.remote.len()
    }

    /// About how much memory the state takes.
    pub fn memory_bytes(&self) -> usize {
        let of_decision = |decision: &Decision| match decision {
            Decision::Commit(locks, writes) => size_of_val(&**locks) + size_of_val(writes.as_slice()),
            Decision::Abort => 0,
        };
        let records = self.remote.values().map(|remote| {
            size_of::<(SequenceNumber, Remote)>() + remote.decision.as_ref().map_or(0, of_decision)
        });
        self.scheduler.memory_bytes() + records.sum::<usize>()
    }

    fn eldest(&self) -> SchedulerId {
        self.living.first().copied().unwrap_or(self.id)
    }

    fn others(&self) -> impl Iterator<Item = SchedulerId> + '_ {
        self.living.iter().copied().filter(|other| *other != self.id)
    }

    fn tell(&self, message: &ToPeer, out: &mut Vec<ReplicatedOutput>) {
        out.extend(self.others().map(|other| ReplicatedOutput::ToPeer(other, message.clone())));
    }

    fn pass_on(&mut self, out: &mut Vec<ReplicatedOutput>) {
        out.extend(self.outputs.drain(..).map(ReplicatedOutput::Own));
    }

    fn ask_number(&mut self, out: &mut Vec<ReplicatedOutput>) {
        let eldest = self.eldest();
        if eldest == self.id {
            self.give_number(eldest, out);
        } else {
            out.push(ReplicatedOutput::ToPeer(eldest, ToPeer::AskNumber));
        }
    }

    /// The sequencer gives a number, if the take-over after a failure is over.
    fn give_number(&mut self, to: SchedulerId, out: &mut Vec<ReplicatedOutput>) {
        let Some(sequencer) = self.sequencer.as_mut().filter(|_| !self.takeover.is_under_way()) else {
            self.takeover.postpone(to);
            return;
        };
        let number = sequencer.next_number();
        if to == self.id {
            self.numbered(number, out);
            return;
        }
        // If the other one fails before it has told of the number, it is known here whose it was.
        self.record(to, number, None);
        out.push(ReplicatedOutput::ToPeer(to, ToPeer::Number(number)));
    }

    /// The first of the unnumbered requests has got its number.
    fn numbered(&mut self, number: SequenceNumber, out: &mut Vec<ReplicatedOutput>) {
        self.seen.insert(number);
        let Some((session, request)) = self.unnumbered.pop_front() else { return };
        let message = match &request {
            Request::SingleUpdate(locks, operation) => {
                ToPeer::End(number, Decision::Commit(locks.clone(), vec![*operation]))
            }
            _ => ToPeer::Start(number),
        };
        self.share(number, Shared::Request(session, request), &message, out);
    }

    /// Tells all others, and goes on when they have recorded it.
    fn share(
        &mut self,
        number: SequenceNumber,
        what: Shared,
        message: &ToPeer,
        out: &mut Vec<ReplicatedOutput>,
    ) {
        self.tell(message, out);
        let is_awaited = match message {
            ToPeer::Start(_) => self.rules.starts_are_awaited,
            _ if matches!(what, Shared::Adopted(_)) => self.rules.takeovers_are_told,
            _ => self.rules.ends_are_awaited,
        };
        let missing = if is_awaited { self.others().collect() } else { BTreeSet::new() };
        self.shared.insert(number, (what, missing));
        self.go_on(number, out);
    }

    /// Goes on if all others have recorded it.
    fn go_on(&mut self, number: SequenceNumber, out: &mut Vec<ReplicatedOutput>) {
        if self.shared.get(&number).is_none_or(|(_, missing)| !missing.is_empty()) {
            return;
        }
        let Some((what, _)) = self.shared.remove(&number) else { return };
        let outputs = &mut self.outputs;
        match what {
            Shared::Request(session, request) => {
                self.waiting.remove(&session);
                self.scheduler.request_numbered(session, request, number, outputs);
            }
            Shared::Adopted(Decision::Commit(locks, writes)) if !writes.is_empty() => {
                self.scheduler.adopt(number, locks, writes, outputs);
            }
            Shared::Adopted(_) => self.scheduler.undo(number, outputs),
        }
        self.pass_on(out);
    }

    fn record(&mut self, coordinator: SchedulerId, number: SequenceNumber, decision: Option<Decision>) {
        self.seen.insert(number);
        if self.rules.reads_go_after_all {
            self.scheduler.hear_of(number);
        }
        self.remote.insert(number, Remote { coordinator, decision });
    }
}
