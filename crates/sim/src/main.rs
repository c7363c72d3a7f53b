//! `sim`: runs seeds, and shows one.

use clap::Parser;
use sim::rules::Rules;
use sim::run;

/// Simulates the cluster core under faults and judges what clients saw.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Tell the story of the first seed.
    #[arg(long)]
    trace: bool,
}

/// Some seed failed.
struct Failed(u64);

impl std::fmt::Debug for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} seeds failed", self.0)
    }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Failed> {
    let options = Options::parse();
    let mut failed = 0;
    let mut happenings = 0;
    let count = if options.trace { 1 } else { options.seeds };
    for seed in options.seed..options.seed + count {
        let verdict = run::run_seed(seed, Rules::default(), options.trace);
        happenings += verdict.happenings;
        if options.trace {
            println!("{}", verdict.trace);
            for (number, transaction) in verdict.history.transactions.iter().enumerate() {
                println!("T{number} {transaction:?}");
            }
        }
        if let Some(finding) = verdict.findings.first() {
            failed += 1;
            println!("seed {seed}: {finding}");
        }
    }
    println!("{count} seeds, {happenings} happenings, {failed} failed");
    if failed > 0 { Err(Failed(failed)) } else { Ok(()) }
}
