//! The loop of the open-loop world.
//!
//! A transaction that starts takes a message to its worker, its duration, and a message back. Then the world tells whether it
//! was overtaken: whether a transaction whose written rows conflict was committed since it started (the first committer wins).
//! The scheduler decides what follows from that. Write-sets cost nothing to apply (Table I), so a committed transaction is seen
//! everywhere at once.
//!
//! Invariant: every transaction that arrives is committed exactly once, and a run ends.

use cluster::claims::Claims;
use cluster::parts::claim_index::{ClaimIndex, Owner};
use cluster::time::Time;

use super::arrivals::Jittered;
use super::outcome::Outcome;
use crate::agenda::Agenda;
use crate::dice::Dice;

/// A worker: a replica that runs transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(pub u32);

/// A transaction, by its number in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkId(pub usize);

/// What the world has to know of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    /// When it arrives.
    pub at_us: u64,
    /// How long it runs.
    pub duration_us: u64,
    /// How long a worker is taken beyond that, before it is known whether the transaction commits.
    pub held_us: u64,
    /// How much later its client is answered.
    pub reply_us: u64,
    /// How long it would run under no protocol's own factor.
    pub plain_us: u64,
    /// Whether it writes.
    pub is_update: bool,
    /// The rows that it writes.
    pub written: Claims,
}

/// The end of an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is committed.
    Commits,
    /// It is rolled back, and the scheduler will start it again.
    Restarts,
}

/// Chooses workers. All steps are asked for in the order of simulated time.
pub trait Scheduler {
    /// A transaction arrives.
    fn arrive(&mut self, now: Time, work: WorkId);
    /// The next transaction to start, and where; asked again until there is none.
    fn start(&mut self, now: Time) -> Option<(WorkerId, WorkId)>;
    /// An execution has ended; `is_overtaken` if a transaction that conflicts was committed meanwhile.
    fn ended(&mut self, now: Time, worker: WorkerId, work: WorkId, is_overtaken: bool) -> Verdict;
    /// Workers that run something.
    fn busy(&self) -> usize;
    /// Transactions that lack nothing but a worker.
    fn waiting(&self) -> usize;
}

/// The number of a commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Commit(u64);

impl Owner for Commit {
    const FIRST: Self = Self(0);
}

/// What has been committed.
#[derive(Default)]
struct Committed {
    count: u64,
    index: ClaimIndex<Commit>,
}

impl Committed {
    fn add(&mut self, written: &Claims) {
        self.count += 1;
        self.index.insert(Commit(self.count), written);
    }

    /// Whether anything that conflicts was committed after the first `seen` commits.
    fn has_newer(&self, seen: u64, written: &Claims) -> bool {
        self.index.last_before(Commit(self.count + 1), written).is_some_and(|commit| commit.0 > seen)
    }
}

#[derive(Clone, Copy)]
enum Event {
    Arrives(WorkId),
    Ends { worker: WorkerId, work: WorkId, seen: u64 },
}

/// Runs all transactions. `all` is in the order of arrival; messages take `message` each way.
pub fn run(
    all: &[Work],
    phase_us: u64,
    message: Jittered,
    seed: u64,
    scheduler: &mut impl Scheduler,
) -> Outcome {
    let mut agenda: Agenda<Event> = Agenda::default();
    let mut dice = Dice::new(seed);
    let mut committed = Committed::default();
    let mut outcome = Outcome::new(phase_us);
    outcome.sequential_us = all.iter().map(|work| work.plain_us).sum();
    for (number, work) in all.iter().enumerate() {
        agenda.enter(work.at_us, Event::Arrives(WorkId(number)));
    }
    while let Some(event) = agenda.take_next() {
        let now_us = agenda.now_us();
        let now = Time { us: now_us };
        match event {
            Event::Arrives(work) => scheduler.arrive(now, work),
            Event::Ends { worker, work: id, seen } => {
                let work = &all[id.0];
                let is_overtaken = committed.has_newer(seen, &work.written);
                outcome.overtaken += u64::from(is_overtaken);
                match scheduler.ended(now, worker, id, is_overtaken) {
                    Verdict::Commits => {
                        committed.add(&work.written);
                        let response_us = now_us - work.at_us + work.reply_us;
                        outcome.commit(now_us, response_us, work.duration_us, work.is_update);
                    }
                    Verdict::Restarts => outcome.restarts += 1,
                }
            }
        }
        while let Some((worker, work)) = scheduler.start(now) {
            let Work { duration_us, held_us, .. } = all[work.0];
            let messages_us = message.draw_us(&mut dice) + message.draw_us(&mut dice);
            let seen = committed.count;
            agenda.enter(messages_us + duration_us + held_us, Event::Ends { worker, work, seen });
        }
        outcome.look(now_us, scheduler.busy(), scheduler.waiting());
    }
    assert!(outcome.penalties.len() == all.len(), "every transaction commits once");
    outcome
}
