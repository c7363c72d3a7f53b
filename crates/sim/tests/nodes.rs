//! Several nodes keep their promises.

use sim::nodes::{Switches, run_seed};

/// A node left before it was welcome, and said the same Hello again, which the leader had seen.
const LEFT_BEFORE_WELCOME: u64 = 17_277;

#[test]
fn seeds_are_clean() {
    for seed in (0..100).chain([LEFT_BEFORE_WELCOME]) {
        let (findings, _) = run_seed(seed, Switches::default(), false);
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}
