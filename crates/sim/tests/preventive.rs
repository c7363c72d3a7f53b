//! Protocol `preventive`, with clocks that differ, messages later than Max, lost homes and performers, and partial replicas.

use cluster::protocols::StampCounts;
use cluster::protocols::preventive::{PREVENTIVE, PREVENTIVE_BASIC};
use cluster::protocols::rows::{Choices, Perform, See};
use sim::check::{Anomaly, Finding};
use sim::mutants::{Mutant, STAMP_MUTANTS};
use sim::program::Plan;
use sim::rules::Rules;
use sim::run::{run_plan, run_seed};

/// Seeds of each choice.
const SEEDS: u64 = 80;

/// More seeds than it takes to find any of the mutants.
const MUTANT_SEEDS: u64 = 4_000;

fn under(protocol: Choices) -> Rules {
    Rules { protocol, ..Rules::default() }
}

/// With certification off, and clients whose transactions are all known, stamps alone order conflicting transactions.
fn by_stamps_alone(mut rules: Rules, seed: u64) -> Vec<Finding> {
    rules.protocol = PREVENTIVE;
    (rules.core.certifies_writes, rules.core.certifies_reads) = (false, false);
    let plan = Plan::of(seed, PREVENTIVE).only_known();
    run_plan(plan, rules, seed, false).findings
}

#[test]
fn each_choice_keeps_its_promise() {
    let choices = [
        PREVENTIVE,
        PREVENTIVE_BASIC,
        Choices { see: See::Local, ..PREVENTIVE },
        Choices { see: See::Local, ..PREVENTIVE_BASIC },
        Choices { perform: Perform::Home, ..PREVENTIVE },
    ];
    for protocol in choices {
        for seed in 0..SEEDS {
            let found = run_seed(seed, under(protocol), false).findings;
            assert_eq!(found, [], "seed {seed} of {protocol:?}");
        }
    }
}

/// Else the test above would show little.
#[test]
fn what_can_happen_does() {
    let mut counts = StampCounts::default();
    (0..SEEDS).for_each(|seed| counts.add(run_seed(seed, under(PREVENTIVE), false).stamps));
    let StampCounts { late, undone, performed, differed, .. } = counts;
    assert!(late > 0 && undone > 0 && performed > 0 && differed > 0, "{counts}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..20 {
        let run = || run_seed(seed, under(PREVENTIVE), true);
        assert_eq!(run().trace.to_string(), run().trace.to_string(), "seed {seed}");
    }
}

#[test]
fn stamps_suffice_without_certification() {
    for seed in 0..SEEDS {
        assert_eq!(by_stamps_alone(Rules::default(), seed), [], "seed {seed}");
    }
}

#[test]
fn each_rule_is_needed() {
    for mutant in STAMP_MUTANTS {
        let Mutant { name, .. } = mutant;
        let harms = |found: Vec<Finding>| found.iter().any(|found| found.anomaly != Anomaly::Order);
        let alone = |seed: u64| harms(by_stamps_alone(mutant.rules(), seed));
        let certified = |seed: u64| {
            harms(run_seed(seed, Rules { protocol: PREVENTIVE, ..mutant.rules() }, false).findings)
        };
        let shows = |seed: u64| alone(seed) || certified(seed);
        assert!((0..MUTANT_SEEDS).any(shows), "no seed found the mutant: {name}");
    }
}
