//! Sessions of several nodes keep the promises of their scheduler over failures, and the judge notices each rule that is off.

use sim::linked_sessions::mutants::MUTANTS;
use sim::linked_sessions::{Counts, Switches, run_seed};

/// Seeds that run with all rules on.
const SEEDS: u64 = 300;
/// Each mutant is noticed within this number of seeds. Most take "a take-over is not told first": 2,345.
const SEEDS_MAX: u64 = 3_000;

#[test]
fn seeds_are_clean() {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        let verdict = run_seed(seed, Switches::default(), false);
        assert!(verdict.findings.is_empty(), "seed {seed}: {:?}", verdict.findings);
        counts.add(verdict.counts);
    }
    let Counts { killed, redone, undone, lost, restarts, restored, .. } = counts;
    assert!([killed, redone, undone, lost, restarts, restored].iter().all(|count| *count > 20), "{counts:?}");
}

#[test]
fn every_mutant_is_noticed() {
    for mutant in MUTANTS {
        let mut switches = Switches::default();
        (mutant.switch)(&mut switches);
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
