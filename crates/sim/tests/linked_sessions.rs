//! Sessions of several nodes keep the promises of their scheduler over failures, and the judge notices each rule that is off.

use sim::linked_sessions::mutants::MUTANTS;
use sim::linked_sessions::{Counts, Rule, Switches, run_seed};

/// Seeds that run with all rules on.
const SEEDS: u64 = 300;
/// Each mutant is noticed within this number of seeds, except the rare ones.
const SEEDS_MAX: u64 = 1_000;
/// Noticing these takes thousands of seeds (docs/explanation/testing.md).
const RARE: [Rule; 3] = [Rule::LeaseIsAwaited, Rule::OrphansAreVouched, Rule::LateReportsAreDropped];

#[test]
fn seeds_are_clean() {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        let verdict = run_seed(seed, Switches::default(), false);
        assert!(verdict.findings.is_empty(), "seed {seed}: {:?}", verdict.findings);
        counts.add(verdict.counts);
    }
    let Counts { killed, paused, crashed, orphaned, outcomes, redone, .. } = counts;
    let happened = [killed, paused, crashed, orphaned, outcomes, redone];
    assert!(happened.iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn every_mutant_is_noticed() {
    for mutant in MUTANTS.iter().filter(|mutant| !RARE.contains(&mutant.rule)) {
        let switches = Switches::without(mutant.rule);
        let is_noticed = |seed| !run_seed(seed, switches, false).findings.is_empty();
        assert!((0..SEEDS_MAX).any(is_noticed), "{}", mutant.name);
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 0..20 {
        let [one, other] = [0; 2].map(|_| run_seed(seed, Switches::default(), true));
        assert_eq!(one.trace, other.trace);
    }
}
