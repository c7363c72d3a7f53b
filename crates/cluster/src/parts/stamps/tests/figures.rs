//! The paper's example of section 4.1, and figures 6, 8 and 12 a to d, as scripts.

use super::stage::{Plan, Stage};
use super::*;

/// A transaction that goes to each of these replicas in so much time.
fn plan(submitted: u64, origin: u16, duration: u64, numbers: &[u64], targets: &[(u16, u64)]) -> Plan {
    let targets = targets.iter().map(|(to, delay)| (*to, *delay, Can::Perform)).collect();
    Plan { at: submitted, origin, claims: rows(numbers), duration, targets }
}

fn told(replicas: u16, rules: Rules, plans: Vec<Plan>) -> Vec<String> {
    let mut stage = Stage::new(replicas, rules, plans);
    stage.run();
    stage.told
}

/// What one replica runs and commits.
fn at_replica_1(rules: Rules, plans: Vec<Plan>) -> Vec<String> {
    let told = told(2, rules, plans).into_iter().filter(|line| !line.contains("arrives"));
    told.filter_map(|line| line.strip_suffix(" at 1").map(str::to_owned)).collect()
}

/// 4.1: Max = 10, epsilon = 1. Node i is 1 here, j is 2.
#[test]
fn section_4_1_the_example() {
    let rules = Rules { wait_us: 11, start: Start::Ordered, classes: Classes::One, ..PAPER };
    let t1 = plan(3, 2, 0, &[1], &[(1, 9)]);
    let t2 = plan(5, 1, 0, &[1], &[(1, 5)]);
    let expected = [
        "10 T2 arrives at 1",
        "12 T1 arrives at 1",
        "14 T1 runs at 1",
        "14 T1 commits at 1",
        "16 T2 runs at 1",
        "16 T2 commits at 1",
    ];
    assert_eq!(told(2, rules, vec![t1, t2]), expected);
}

/// 4.2: N1 is the origin, and N4 can perform the transaction, too. N2 lacks S and waits for the refresh transaction. N3 only has a
/// secondary copy of S, so it is "not concerned".
#[test]
fn figure_6_partial_replication() {
    let rules = Rules { wait_us: 10, start: Start::Ordered, ..PAPER };
    let mut t = plan(0, 1, 4, &[1], &[(1, 1), (2, 2), (4, 3)]);
    t.targets[1].2 = Can::NeedsRefresh;
    let expected = [
        "1 T1 arrives at 1",
        "2 T1 arrives at 2",
        "3 T1 arrives at 4",
        "10 T1 runs at 1",
        "10 T1 runs at 4",
        "14 T1 commits at 1",
        "14 T1 commits at 4",
        "16 refresh of T1 at 2",
        "16 T1 is applied at 2",
        "20 T1 commits at 2",
    ];
    assert_eq!(told(4, rules, vec![t]), expected);
}

/// 5.1: T2 has stamp 15 and arrives before T1, which has stamp 10. T2's execution ends before it can be rolled back.
#[test]
fn figure_8_optimistic_execution() {
    let t1 = plan(10, 1, 5, &[1], &[(1, 8)]);
    let t2 = plan(15, 2, 5, &[1], &[(1, 1)]);
    let expected = [
        "16 T2 arrives at 1",
        "16 T2 runs at 1",
        "18 T1 arrives at 1",
        "18 T2 is undone at 1",
        "21 T1 runs at 1",
        "26 T1 commits at 1",
        "26 T2 runs at 1",
        "31 T2 commits at 1",
    ];
    assert_eq!(told(2, PAPER, vec![t1, t2]), expected);
}

/// Three transactions that arrive together and take 4, 2 and 3.
fn three(rules: Rules, numbers: [&[u64]; 3]) -> Vec<String> {
    let plans = (0..).zip([4, 2, 3]).zip(numbers);
    at_replica_1(
        rules,
        plans.map(|((at, duration), rows)| plan(at, 1, duration, rows, &[(1, 2 - at)])).collect(),
    )
}

const NO_WAIT: Rules = Rules { wait_us: 0, ..PAPER };

/// Figure 12 (a): "the transactions are triggered sequentially, which is equivalent to the case where all the transactions are
/// conflicting".
#[test]
fn figure_12_a_sequential() {
    let expected = ["2 T1 runs", "6 T1 commits", "6 T2 runs", "8 T2 commits", "8 T3 runs", "11 T3 commits"];
    assert_eq!(three(NO_WAIT, [&[1], &[1], &[1]]), expected);
    let one = Rules { classes: Classes::One, ..NO_WAIT };
    assert_eq!(three(one, [&[1], &[2], &[3]]), expected);
}

/// Figure 12 (b): "T1, T2 and T3 are not conflicting, so they can run concurrently"; "T2 finishes before T1 but waits for commit".
#[test]
fn figure_12_b_all_run_together() {
    let expected = ["2 T1 runs", "2 T2 runs", "2 T3 runs", "6 T1 commits", "6 T2 commits", "6 T3 commits"];
    assert_eq!(three(NO_WAIT, [&[1], &[2], &[3]]), expected);
}

/// Figure 12 (c): "T2 is conflicting with T3, so T3 must wait for the end of T2 before starting".
#[test]
fn figure_12_c_the_last_two_conflict() {
    let expected = ["2 T1 runs", "2 T2 runs", "6 T1 commits", "6 T2 commits", "6 T3 runs", "9 T3 commits"];
    assert_eq!(three(NO_WAIT, [&[1], &[2], &[2]]), expected);
}

/// Figure 12 (d): "T1 and T2 are conflicting, so T2 cannot start before the commitment of T1 and T3 cannot start before T2 because
/// transactions must be executed in the order they are in the running queue". Ours lets T3 pass.
#[test]
fn figure_12_d_the_first_two_conflict() {
    let expected = ["2 T1 runs", "6 T1 commits", "6 T2 runs", "6 T3 runs", "8 T2 commits", "9 T3 commits"];
    assert_eq!(three(NO_WAIT, [&[1], &[1], &[3]]), expected);
    let ours = Rules { reach: Reach::Conflicting, ..NO_WAIT };
    let passed = ["2 T1 runs", "2 T3 runs", "6 T1 commits", "6 T2 runs", "8 T2 commits", "8 T3 commits"];
    assert_eq!(three(ours, [&[1], &[1], &[3]]), passed);
}
