//! Several nodes keep their promises.

use sim::nodes::{Switches, run_seed};

#[test]
fn seeds_are_clean() {
    for seed in 0..100 {
        let (findings, _) = run_seed(seed, Switches::default(), false);
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}
