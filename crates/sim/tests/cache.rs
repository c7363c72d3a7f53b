//! Kept answers (`world/cache.rs`): they are given again, and no client can tell them from the answer of a replica.

use cluster::protocols::gargamel::GARGAMEL;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::preventive::PREVENTIVE;
use cluster::protocols::rows::{Choices, See};
use sim::program::Plan;
use sim::rules::Rules;
use sim::run::run_plan;

/// Enough for gross mistakes; `cargo xtask sim --seeds` runs more.
const SEEDS: u64 = 400;

fn plans(protocol: Choices) -> impl Iterator<Item = (u64, Plan)> {
    let plans = (0..SEEDS).map(move |seed| (seed, Plan::of(seed, protocol)));
    plans.filter(|(_, plan)| plan.keeps_answers)
}

/// How many kept answers are given again in all plans with a cache. None of these runs has a finding.
fn given_again(protocol: Choices) -> u64 {
    let rules = Rules { protocol, ..Rules::default() };
    let run = |(seed, plan)| {
        let verdict = run_plan(plan, rules, seed, false);
        assert_eq!(verdict.findings, [], "seed {seed} of {}", protocol.name);
        verdict.answers_given_again
    };
    plans(protocol).map(run).sum()
}

#[test]
fn one_plan_in_five_keeps_answers() {
    let count = plans(ONECOPY).count() as u64;
    assert!((SEEDS / 7..SEEDS / 4).contains(&count), "{count} of {SEEDS} plans");
}

#[test]
fn kept_answers_are_those_of_a_replica() {
    for protocol in [ONECOPY, GARGAMEL, PREVENTIVE] {
        let given = given_again(protocol);
        assert!(given > SEEDS, "only {given} kept answers were given under {}", protocol.name);
    }
}

#[test]
fn where_reads_may_be_stale_none_is_given() {
    assert_eq!(given_again(Choices { see: See::Local, ..GARGAMEL }), 0);
}
