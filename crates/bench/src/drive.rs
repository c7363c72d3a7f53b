//! The frame of all drivers: clients that run a workload at a pace, for a time, with measurements.
//!
//! In a *closed* loop a client sends its next interaction when it has the reply to the one before and has thought for
//! a while; the offered load follows the system. In an *open* loop interactions are due at a constant rate whatever
//! the system does, and a response time begins when its interaction was due (Schroeder, Wierman, Harchol-Balter: "Open
//! versus closed", NSDI 2006). The runtime's timers have ticks of a millisecond, so an open loop's times are that coarse.
//!
//! All clients of a course live on one thread, as tasks of one runtime. What that thread used is reported: a driver that
//! has no processor time left measures itself. A client that loses its connection makes a new one and goes on.
//! A seed is what the clients draw, not a history: which of them comes first is up to the servers.

mod draw;
mod fill;
mod ledger;
mod session;
mod tally;
#[cfg(test)]
pub(crate) mod tests;
mod value;

use std::cell::RefCell;
use std::time::{Duration, Instant};

use futures_util::future::{LocalBoxFuture, join_all};
use sim::dice::Dice;
use tokio::time::{sleep, sleep_until};

pub(crate) use draw::{date, day_ahead, exponential, letters, now};
pub(crate) use fill::Fill;
pub(crate) use ledger::{Account, Ledger};
pub(crate) use session::{
    Added, Call, Endpoints, Heard, Isolation, Session, Texts, Transaction, Tries, connect,
};
pub(crate) use tally::{Kind, SLICE, Slice, Tally};
pub(crate) use value::{Cents, Rate, Text, cents, rate};

use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::refusal::Refusal;

use crate::cpu;
use tally::Ended;

/// The interval of the checks on the clients.
const LOOK: Duration = Duration::from_millis(100);
/// Seeds of clients lie apart by this.
const APART: u64 = 0x5851_f42d_4c95_7f2d;
/// Random gaps are at most this multiple of their mean.
const GAP_MAX: u32 = 20;

/// The next step of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// The kind of interaction.
    pub(crate) kind: &'static str,
    /// How long it thinks first, in a closed loop with think times.
    pub(crate) think: Duration,
}

/// One emulated client.
pub(crate) trait Actor {
    /// Draws what comes next.
    fn draw(&mut self) -> Next;

    /// Does what was drawn last, to the end.
    fn act<'a>(&'a mut self, session: &'a mut Session) -> LocalBoxFuture<'a, Result<(), Refusal>>;
}

/// A rule that must hold of the database whenever no transaction runs.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// In words.
    pub(crate) name: String,
    /// Has a row for each case in which it does not hold.
    pub(crate) sql: String,
}

/// The transactions of clients, and their tables.
pub(crate) trait Workload {
    /// Its name, with what tells it apart from its kin.
    fn name(&self) -> String;

    /// The texts of its statements.
    fn texts(&self) -> Texts;

    /// Makes its tables and fills them.
    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>>;

    /// A client.
    fn actor(&self, number: usize, dice: Dice) -> Box<dyn Actor>;

    /// The things whose number can be counted.
    fn accounts(&self) -> Vec<Account>;

    /// The rules that must hold.
    fn rules(&self) -> Vec<Rule>;

    /// How long nine in ten interactions of a kind may take, if that is laid down.
    fn limit(&self, _kind: &str) -> Option<Duration> {
        None
    }
}

/// When interactions are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// At once when the one before is done.
    Busy,
    /// After thinking, multiplied by this.
    Thinking(f64),
    /// So many in a second, of all clients together.
    Rate(f64),
    /// So many in a second on average, of all clients together, at random moments (a Poisson process).
    Random(f64),
}

/// How a workload is run.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// How many clients there are.
    pub(crate) clients: usize,
    /// When their interactions are due.
    pub(crate) pace: Pace,
    /// The time at the beginning that is not counted.
    pub(crate) warm_up: Duration,
    /// The time that is counted.
    pub(crate) length: Duration,
    /// The seed of all random choices.
    pub(crate) seed: u64,
    /// How transactions are isolated.
    pub(crate) isolation: Isolation,
}

/// The result of a course.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The measurements.
    pub(crate) tally: Tally,
    /// The acknowledgements that clients got, warm-up included.
    pub(crate) ledger: Ledger,
    /// How much of one processor the clients used, from the beginning to the end.
    pub(crate) driver: f64,
}

/// The state that all clients of a course share.
struct Shared<'a> {
    course: &'a Course,
    begin: Instant,
    end: Instant,
    tally: RefCell<Tally>,
    ledger: RefCell<Ledger>,
}

/// Runs a course; `watch` hears when it begins, and now and then how far it is.
pub(crate) async fn drive(
    workload: &dyn Workload,
    endpoints: &Endpoints,
    course: &Course,
    interrupt: &Interrupt,
    watch: &dyn Fn(Duration, u64),
) -> Result<Outcome, Fault> {
    let texts = workload.texts();
    let mut sessions = Vec::new();
    for number in 0..course.clients {
        let session = Session::open(endpoints, number, course.isolation, &texts).await;
        sessions.push(session.map_err(|why| Fault::Database(format!("client {number}: {why}")))?);
    }
    let begin = Instant::now();
    let used = cpu::of_process(std::process::id())?;
    let window = course.warm_up..course.warm_up + course.length;
    let shared = Shared {
        course,
        begin,
        end: begin + window.end,
        tally: RefCell::new(Tally::new(begin, window)),
        ledger: RefCell::new(Ledger::default()),
    };
    let clients = sessions.into_iter().enumerate().map(|(number, session)| {
        let dice = Dice::new(course.seed.wrapping_add(APART.wrapping_mul(number as u64 + 1)));
        work(&shared, number, session, workload.actor(number, dice))
    });
    tokio::select! {
        ended = join_all(clients) => ended.into_iter().collect::<Result<Vec<()>, Fault>>().map(drop)?,
        fault = look_after(&shared, interrupt, watch) => return Err(fault),
    }
    let used = cpu::of_process(std::process::id())? - used;
    let driver = used.micros() / 1e6 / begin.elapsed().as_secs_f64();
    Ok(Outcome { tally: shared.tally.into_inner(), ledger: shared.ledger.into_inner(), driver })
}

/// Records the statements of one client for each of its interactions, for as long as this, without those that fail.
pub(crate) async fn trace(
    workload: &dyn Workload,
    endpoints: &Endpoints,
    course: &Course,
    interrupt: &Interrupt,
) -> Result<Vec<(&'static str, Vec<Heard>)>, Fault> {
    let said = |why: Refusal| Fault::Database(format!("a trace: {why}"));
    let mut session = Session::open(endpoints, 0, course.isolation, &workload.texts()).await.map_err(said)?;
    let mut actor = workload.actor(0, Dice::new(course.seed.wrapping_add(APART)));
    let begin = Instant::now();
    let mut traced = Vec::new();
    while begin.elapsed() < course.warm_up + course.length {
        interrupt.check()?;
        let kind = actor.draw().kind;
        let outcome = actor.act(&mut session).await;
        let heard = session.heard();
        match outcome {
            Ok(()) if begin.elapsed() > course.warm_up => traced.push((kind, heard)),
            Ok(()) | Err(Refusal::Again(_) | Refusal::Told(_)) => {}
            Err(why) => return Err(said(why)),
        }
    }
    Ok(traced)
}

/// Ends only with a fault.
async fn look_after(shared: &Shared<'_>, interrupt: &Interrupt, watch: &dyn Fn(Duration, u64)) -> Fault {
    loop {
        watch(shared.begin.elapsed(), shared.tally.borrow().done());
        sleep(LOOK).await;
        if let Err(fault) = interrupt.check() {
            return fault;
        }
    }
}

/// One client, until the course is over.
async fn work(
    shared: &Shared<'_>,
    number: usize,
    mut session: Session,
    mut actor: Box<dyn Actor>,
) -> Result<(), Fault> {
    let mut turns = Turns::new(shared, number);
    loop {
        let next = actor.draw();
        let Some(due) = turns.next(next.think) else { break };
        // A timer is late by up to a millisecond, which a client that does not wait must not pay.
        if due > Instant::now() {
            sleep_until(due.into()).await;
        }
        let sent = Instant::now();
        let due = if turns.is_open() { due } else { sent };
        if sent >= shared.end {
            shared.tally.borrow_mut().unsent += turns.left(due);
            break;
        }
        session.tries = Tries::default();
        let outcome = actor.act(&mut session).await;
        let is_lost = matches!(outcome, Err(Refusal::Lost(_)));
        let stuck =
            outcome.as_ref().err().filter(|why| matches!(why, Refusal::Stuck(_))).map(ToString::to_string);
        let trouble = outcome.err().map(|why| why.to_string());
        let ended = Ended { kind: next.kind, due, sent, tries: session.tries, trouble };
        shared.tally.borrow_mut().add(&ended, Instant::now());
        if let Some(why) = stuck {
            return Err(Fault::Database(format!("client {number}: {why}")));
        }
        if is_lost {
            session.mend().await.map_err(|why| Fault::Database(format!("client {number}: {why}")))?;
        }
    }
    *shared.ledger.borrow_mut() += &session.ledger;
    Ok(())
}

/// When a client's interactions are due.
struct Turns {
    end: Instant,
    pace: Pace,
    /// In an open loop: the next one, and how far apart they are, at random moments on average.
    due: Instant,
    apart: Duration,
    dice: Dice,
}

impl Turns {
    fn new(shared: &Shared<'_>, number: usize) -> Self {
        let clients = shared.course.clients as f64;
        let mut dice = Dice::new(shared.course.seed.wrapping_sub(APART.wrapping_mul(number as u64 + 1)));
        let (apart, first) = match shared.course.pace {
            Pace::Rate(rate) => {
                let between = 1.0 / rate;
                (Duration::from_secs_f64(between * clients), Duration::from_secs_f64(between * number as f64))
            }
            Pace::Random(rate) => {
                let apart = Duration::from_secs_f64(clients / rate);
                (apart, gap(&mut dice, apart))
            }
            Pace::Busy | Pace::Thinking(_) => (Duration::ZERO, Duration::ZERO),
        };
        Self { end: shared.end, pace: shared.course.pace, due: shared.begin + first, apart, dice }
    }

    /// When the next one is due, if that is before the end.
    fn next(&mut self, think: Duration) -> Option<Instant> {
        let now = Instant::now();
        let due = match self.pace {
            Pace::Busy => now,
            Pace::Thinking(factor) => now + think.mul_f64(factor),
            Pace::Rate(_) => {
                let due = self.due;
                self.due += self.apart;
                due
            }
            Pace::Random(_) => {
                let due = self.due;
                self.due += gap(&mut self.dice, self.apart);
                due
            }
        };
        (due < self.end).then_some(due)
    }

    /// Whether interactions are due whatever became of those before.
    fn is_open(&self) -> bool {
        matches!(self.pace, Pace::Rate(_) | Pace::Random(_))
    }

    /// In an open loop, how many from this one on will not be sent.
    fn left(&self, due: Instant) -> u64 {
        if self.apart.is_zero() {
            return 0;
        }
        let left = self.end.saturating_duration_since(due).as_nanos() / self.apart.as_nanos();
        u64::try_from(left).map_or(u64::MAX, |left| left + 1)
    }
}

/// The time to a client's next interaction, when these are due at random moments.
fn gap(dice: &mut Dice, mean: Duration) -> Duration {
    exponential(dice, mean, mean * GAP_MAX)
}
