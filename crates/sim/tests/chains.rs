//! Protocols that order known transactions as a whole: `gargamel` by each rule, and its rivals.

use cluster::protocols::centralised_writes::CENTRALISED_WRITES;
use cluster::protocols::gargamel::GARGAMEL;
use cluster::protocols::round_robin::ROUND_ROBIN;
use cluster::protocols::rows::{Choices, Order, Rule, See};
use cluster::protocols::tashkent_plus::TASHKENT_PLUS;
use sim::check::{Anomaly, Finding};
use sim::mutants::{CHAIN_MUTANTS, Mutant};
use sim::program::Plan;
use sim::rules::Rules;
use sim::run::{run_plan, run_seed};
use sim::schema::BY_MEMORY;

/// Seeds of each protocol.
const SEEDS: u64 = 60;

/// More seeds than it takes to find any of the mutants.
const MUTANT_SEEDS: u64 = 4_000;

/// With certification off, and clients whose transactions are all known, chains alone order conflicting transactions.
fn by_chains_alone(mut rules: Rules, seed: u64) -> Vec<Finding> {
    rules.protocol = GARGAMEL;
    (rules.core.certifies_writes, rules.core.certifies_reads) = (false, false);
    let plan = Plan::of(seed, GARGAMEL).only_known();
    run_plan(plan, rules, seed, false).findings
}

#[test]
fn each_protocol_keeps_its_promise() {
    let one_copy = Order::Chains(Rule::ReadWrite);
    let protocols = [
        GARGAMEL,
        Choices { see: See::Local, ..GARGAMEL },
        Choices { order: one_copy, ..GARGAMEL },
        Choices { order: one_copy, see: See::Local, ..GARGAMEL },
        ROUND_ROBIN,
        Choices { home: BY_MEMORY, ..TASHKENT_PLUS },
        CENTRALISED_WRITES,
    ];
    for protocol in protocols {
        for seed in 0..SEEDS {
            let found = run_seed(seed, Rules { protocol, ..Rules::default() }, false).findings;
            assert_eq!(found, [], "seed {seed} of {protocol:?}");
        }
    }
}

#[test]
fn reads_that_may_be_stale_are_stale_now_and_then() {
    let protocol = Choices { see: See::Local, ..GARGAMEL };
    let stale = (0..SEEDS)
        .map(|seed| run_seed(seed, Rules { protocol, ..Rules::default() }, false).allowed.stale_reads)
        .sum::<usize>();
    assert!(stale > 0, "else nothing shows that they are not delayed");
}

/// Gargamel section III: "conflicting transactions do not execute concurrently".
#[test]
fn chains_suffice_without_certification() {
    for seed in 0..SEEDS {
        assert_eq!(by_chains_alone(Rules::default(), seed), [], "seed {seed}");
    }
}

#[test]
fn a_chain_that_does_not_wait_loses_updates() {
    for mutant in CHAIN_MUTANTS {
        let Mutant { name, .. } = mutant;
        let loses = |seed: &u64| {
            by_chains_alone(mutant.rules(), *seed).iter().any(|found| found.anomaly == Anomaly::LostUpdate)
        };
        assert!((0..MUTANT_SEEDS).any(|seed| loses(&seed)), "no seed found the mutant: {name}");
    }
}
