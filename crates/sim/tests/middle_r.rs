//! Protocol `middle-r`: what its sessions see, and what they commit, under faults.

use cluster::protocols::middle_r::MIDDLE_R;
use cluster::protocols::rows::{Choices, See};
use sim::check::{Allowed, Anomaly, Promise, Sessions, judge};
use sim::mutants::{LOCAL_MUTANTS, Mutant};
use sim::rules::Rules;
use sim::run::run_seed;

/// Seeds of each choice.
const SEEDS: u64 = 120;

/// More seeds than it takes to find any of the mutants.
const MUTANT_SEEDS: u64 = 4_000;

fn under(protocol: Choices) -> Rules {
    Rules { protocol, ..Rules::default() }
}

#[test]
fn it_keeps_its_promise() {
    for protocol in [MIDDLE_R, Choices { see: See::Fresh, ..MIDDLE_R }] {
        for seed in 0..SEEDS {
            let found = run_seed(seed, under(protocol), false).findings;
            assert_eq!(found, [], "seed {seed} of {protocol:?}");
        }
    }
}

/// Else the test above would show little: replicas answer with what they have (2.1.2: "Read only transactions are executed locally").
#[test]
fn what_the_promise_allows_does_occur() {
    let mut allowed = Allowed::default();
    (0..SEEDS).for_each(|seed| allowed.add(run_seed(seed, under(MIDDLE_R), false).allowed));
    assert!(allowed.stale_reads > 0 && allowed.write_skews > 0, "{allowed}");
}

/// The sessions of a stale protocol without local replicas see less than before now and then, so the judge can tell.
#[test]
fn without_local_replicas_sessions_go_back() {
    let spread = Choices { see: See::Local, ..cluster::protocols::gargamel::GARGAMEL };
    let goes_back = |seed: u64| {
        let history = run_seed(seed, under(spread), false).history;
        let findings = judge(&history, Promise::OldSnapshots(Sessions::InOrder)).findings;
        findings.iter().any(|finding| finding.anomaly == Anomaly::StaleRead)
    };
    assert!((0..SEEDS).any(goes_back));
}

#[test]
fn each_rule_is_needed() {
    for mutant in LOCAL_MUTANTS {
        let Mutant { name, .. } = mutant;
        let rules = Rules { protocol: MIDDLE_R, ..mutant.rules() };
        let shows = |seed: u64| !run_seed(seed, rules, false).findings.is_empty();
        assert!((0..MUTANT_SEEDS).any(shows), "no seed found the mutant: {name}");
    }
}
