//! C-JDBC keeps its table of guarantees, and the judges notice each frequent mutant.

use cluster::protocols::c_jdbc::Level;
use cluster::protocols::c_jdbc::early_response::Respond;
use sim::c_jdbc::mutants::MUTANTS;
use sim::c_jdbc::{Options, Switches, run_seed};

/// Mutants that need more seeds than a test has, with the first seed that finds each.
const RARE: [(&str, u64); 5] = [
    ("a replica that is behind gets reads", 3664),
    ("statements pass one that waits", 1697),
    ("statements do not wait for what has passed them", 3855),
    ("ends pass what they may free", 1183),
    ("what has failed is aborted when its client says so", 814),
];

fn is_clean(seed: u64, options: Options) -> bool {
    run_seed(seed, options, false).findings.is_empty()
}

#[test]
fn seeds_are_clean() {
    for seed in 0..300 {
        let verdict = run_seed(seed, Options::default(), false);
        assert!(verdict.findings.is_empty(), "seed {seed}: {:?}", verdict.findings);
    }
}

#[test]
fn rare_mutants_are_found() {
    for (name, seed) in RARE {
        let mutant = MUTANTS.iter().find(|mutant| mutant.name == name).unwrap();
        assert!(!is_clean(seed, mutant.options()), "{name}");
        assert!(is_clean(seed, Options { switches: Switches::default(), ..mutant.options() }), "{name}");
    }
}

/// A client that waited for no answer was told of a deadlock, and took that for the answer to its next request.
#[test]
fn a_victim_waits_for_an_answer() {
    let (level, respond) = (Some(Level::PassThrough), Some(Respond::First));
    assert!(is_clean(2813, Options { level, respond, ..Options::default() }));
}

#[test]
fn frequent_mutants_are_found() {
    for mutant in MUTANTS.iter().filter(|mutant| RARE.iter().all(|(name, _)| *name != mutant.name)) {
        let is_found = (0..100).any(|seed| !is_clean(seed, mutant.options()));
        assert!(is_found, "{}", mutant.name);
    }
}

#[test]
fn a_seed_gives_the_same_history_again() {
    for seed in 0..20 {
        let [one, other] = [0; 2].map(|_| run_seed(seed, Options::default(), true));
        assert_eq!(format!("{:?}", one.history), format!("{:?}", other.history));
        assert_eq!(one.trace.to_string(), other.trace.to_string());
    }
}
