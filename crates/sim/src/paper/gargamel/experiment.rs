//! One run: a system, a rate, a bound on workers, a seed, and the setting that all figures share.

use cluster::claims::Claims;

use super::super::open::{self, Jittered, Outcome, Work, arrivals};
use super::certified::Certified;
use super::chained::Chained;
use super::tpcc::{Kind, Reading, Transaction};
use crate::dice::Dice;

/// Table I: the default number of workers.
pub const WORKERS: usize = 100;
/// Table I: the default rate, in transactions a second.
pub const RATE: u32 = 150;
/// Table I: the first phase.
const PHASE_US: u64 = 28_000_000;
/// Table I: a message between scheduler and worker.
const MESSAGE: Jittered = Jittered { mean_us: 60.0, variance: 0.005 };
/// Table I: the latency of consensus.
const CONSENSUS: Jittered = Jittered { mean_us: 180_000.0, variance: 0.01 };
/// IV-B: "reducing the duration of every transaction by 10% under Tashkent+".
const TASHKENT_FACTOR: f64 = 0.9;

/// A system of the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum System {
    /// Chains.
    Gargamel,
    /// Certification, workers in turn.
    RoundRobin,
    /// Certification, groups of workers.
    Tashkent,
    /// All updates at one worker.
    Centralised,
}

impl System {
    /// Those of every figure, and the fourth, which is compared "when possible".
    pub const ALL: [Self; 4] = [Self::Gargamel, Self::RoundRobin, Self::Tashkent, Self::Centralised];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gargamel => "gargamel",
            Self::RoundRobin => "round-robin",
            Self::Tashkent => "tashkent+",
            Self::Centralised => "centralised-writes",
        }
    }
}

/// What becomes of a transaction that was overtaken; the paper does not say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Retry {
    /// It waits behind all others.
    AtTheEnd,
    /// It runs again at once, at the same worker.
    AtOnce,
}

impl Retry {
    /// The name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Self::AtTheEnd => "queued again at the end",
            Self::AtOnce => "restarted at once",
        }
    }
}

/// What the latency of consensus delays; the paper does not say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Consensus {
    /// The reply to the client.
    Reply,
    /// Certification and commit, so the worker is taken as long.
    Commit,
    /// Nothing.
    Off,
}

impl Consensus {
    /// The name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reply => "delays the reply",
            Self::Commit => "delays the commit",
            Self::Off => "is left out",
        }
    }
}

/// What all figures share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Setting {
    /// Which transactions conflict.
    pub reading: Reading,
    /// What becomes of one that was overtaken.
    pub retry: Retry,
    /// What consensus delays.
    pub consensus: Consensus,
}

impl Default for Setting {
    fn default() -> Self {
        Self { reading: Reading::Columns, retry: Retry::AtTheEnd, consensus: Consensus::Reply }
    }
}

/// A run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell {
    /// The system.
    pub system: System,
    /// Transactions a second.
    pub rate: u32,
    /// The number of workers; `None` for as many as are needed.
    pub bound: Option<usize>,
    /// The seed of all random choices. The same seed and rate give every system the same transactions.
    pub seed: u64,
}

/// A run with its measures.
#[derive(Clone, PartialEq, Debug)]
pub struct Run {
    /// The run.
    pub cell: Cell,
    /// The measures.
    pub outcome: Outcome,
    /// Pairs that the classifier compared, and those among them that were false positives; only of bounded Gargamel at the
    /// default rate.
    pub classified: Option<(u64, u64)>,
}

/// Runs one cell.
pub fn measure(cell: Cell, setting: Setting) -> Run {
    let (all, works) = transactions(cell, setting);
    let kinds = || all.iter().map(|transaction| transaction.kind().id()).collect();
    let written = |works: &[Work]| works.iter().map(|work| work.written.clone()).collect::<Vec<_>>();
    let message_seed = cell.seed.wrapping_add(1 << 32);
    let mut classified = None;
    let outcome = match cell.system {
        System::Gargamel | System::Centralised => {
            let claims: Vec<Claims> = all.iter().map(|one| claims_of(one, cell.system, setting)).collect();
            let is_counted =
                cell.system == System::Gargamel && cell.rate == RATE && cell.bound == Some(WORKERS);
            let mut chained = Chained::new(claims, cell.bound, is_counted.then(|| written(&works)));
            let outcome = open::run(&works, PHASE_US, MESSAGE, message_seed, &mut chained);
            classified = chained.classified().map(|account| (account.pairs, account.false_positives));
            outcome
        }
        System::RoundRobin => {
            let mut scheduler = Certified::round_robin(kinds(), cell.bound, setting.retry);
            open::run(&works, PHASE_US, MESSAGE, message_seed, &mut scheduler)
        }
        System::Tashkent => {
            let mut scheduler = Certified::tashkent(kinds(), cell.bound, setting.retry);
            open::run(&works, PHASE_US, MESSAGE, message_seed, &mut scheduler)
        }
    };
    Run { cell, outcome, classified }
}

fn claims_of(transaction: &Transaction, system: System, setting: Setting) -> Claims {
    match system {
        System::Centralised if transaction.kind().is_update() => Claims::everything(),
        _ => transaction.predicted(setting.reading),
    }
}

/// The transactions of a run, the same for each system but for Tashkent+'s durations.
fn transactions(cell: Cell, setting: Setting) -> (Vec<Transaction>, Vec<Work>) {
    let mut dice = Dice::new(cell.seed.wrapping_mul(1_000).wrapping_add(u64::from(cell.rate)));
    let at_us = arrivals::poisson_us(cell.rate, PHASE_US, &mut dice);
    let factor = if cell.system == System::Tashkent { TASHKENT_FACTOR } else { 1.0 };
    let drawn = at_us.into_iter().map(|at_us| {
        let transaction = Transaction::draw(&mut dice);
        let kind: Kind = transaction.kind();
        let plain_us = kind.duration().draw_us(&mut dice);
        let consensus_us = CONSENSUS.draw_us(&mut dice);
        let (held_us, reply_us) = match setting.consensus {
            Consensus::Reply => (0, consensus_us),
            Consensus::Commit => (consensus_us, 0),
            Consensus::Off => (0, 0),
        };
        let work = Work {
            at_us,
            duration_us: shortened(plain_us, factor),
            held_us,
            reply_us,
            plain_us,
            is_update: kind.is_update(),
            written: transaction.written(setting.reading),
        };
        (transaction, work)
    });
    drawn.unzip()
}

#[expect(clippy::cast_sign_loss, reason = "a duration and its factor are positive")]
fn shortened(duration_us: u64, factor: f64) -> u64 {
    (duration_us as f64 * factor) as u64
}
