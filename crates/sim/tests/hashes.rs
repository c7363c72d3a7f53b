//! All seeds still have the hashes of `crates/sim/hashes.txt`; `cargo xtask sim --hashes` checks the same, optimized.

use sim::hashes::{SEEDS, differences};

/// How many seeds with another hash are printed.
const DIFFERENCES_MAX: usize = 10;

#[test]
fn decisions_are_as_stored() {
    let found: Vec<String> = differences(0..SEEDS).map(|difference| difference.to_string()).collect();
    let first = found.iter().take(DIFFERENCES_MAX).cloned().collect::<Vec<_>>().join("\n");
    assert!(
        found.is_empty(),
        "{} of {SEEDS} seeds differ. If this commit is to change a decision, name the decision in its subject and run \
         `cargo xtask sim --hashes --write`; else it changes one by mistake.\n{first}",
        found.len(),
    );
}
