//! Several nodes keep their promises, and the judges notice each rule that is off.

use cluster::protocols::middle_r::MIDDLE_R;
use sim::nodes::mutants::{LOCAL_MUTANTS, MUTANTS};
use sim::nodes::{Switches, run_seed};

/// A node left before it was welcome, and said the same Hello again, which the leader had seen.
const LEFT_BEFORE_WELCOME: u64 = 17_277;
/// The world took one message for each event, so a node that was stopped while it was down heard beats of long ago after its start.
const STOPPED_WHILE_DOWN: u64 = 2_642;
/// The world's chair confirmed a term that was over, because an earlier try of the leader's append was in the log.
const FOUND_IN_THE_LOG: u64 = 5_944;

/// Each mutant is noticed within this number of seeds. Most takes "a dead node's backends stay": 373.
const SEEDS_MAX: u64 = 1_000;

#[test]
fn seeds_are_clean() {
    for seed in (0..100).chain([LEFT_BEFORE_WELCOME, STOPPED_WHILE_DOWN, FOUND_IN_THE_LOG]) {
        let (findings, _) = run_seed(seed, Switches::default(), false);
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}

#[test]
fn sessions_that_are_connected_to_replicas_never_go_back() {
    let switches = Switches { protocol: MIDDLE_R, ..Switches::default() };
    for seed in 0..100 {
        let (findings, _) = run_seed(seed, switches, false);
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}

#[test]
fn every_mutant_is_noticed() {
    let of_onecopy = MUTANTS.iter().map(|mutant| (mutant, Switches::default()));
    let of_middle_r =
        LOCAL_MUTANTS.iter().map(|mutant| (mutant, Switches { protocol: MIDDLE_R, ..Switches::default() }));
    for (mutant, mut switches) in of_onecopy.chain(of_middle_r) {
        (mutant.switch)(&mut switches);
        let is_noticed = |seed| !run_seed(seed, switches, false).0.is_empty();
        assert!((0..SEEDS_MAX).any(is_noticed), "{}", mutant.name);
    }
}
