//! The rules that are this scheduler's own.

use super::FR_L;
use crate::protocols::shipping::Request;
use crate::protocols::shipping::stage::{Stage, locks, number, read, single, write};

/// 6.2: "At the beginning of the transaction, the scheduler selects the replica with the lowest load"; "the reply is
/// sent back to the application server when the chosen replica replies"; "Reads are sent to the chosen replica."
#[test]
fn section_6_2_fixed_at_the_least_loaded() {
    let mut stage = Stage::new(FR_L, 2);
    stage.ask(9, Request::SingleRead(locks(&[4], &[]), read(1_000)));
    let busy = stage.runs_at(single(9))[0];
    stage.begin(1, &[], &[1]);
    stage.execute(1, write(5));
    assert_eq!(stage.answered(), [1]);
    stage.finish(busy, number(1));
    assert!(stage.answered().is_empty(), "not the chosen one");
    stage.finish(1 - busy, number(1));
    assert_eq!(stage.answered(), [1]);
    stage.finish(busy, single(9));
    stage.ask(8, Request::SingleRead(locks(&[4], &[]), read(1)));
    stage.ask(7, Request::SingleRead(locks(&[4], &[]), read(9_000)));
    stage.answered();
    stage.execute(1, read(10));
    assert_eq!(stage.runs_at(number(1)), [1 - busy], "whatever the loads are now");
    stage.finish(1 - busy, number(1));
    stage.commit(1);
    stage.finish(busy, number(1));
    assert_eq!(stage.answered(), [1], "only the read");
    stage.finish(1 - busy, number(1));
    assert_eq!(stage.answered(), [1]);
}

/// 6.2: the scheduler is "essentially a load balancer": a conflict does not matter for a single read.
#[test]
fn section_6_2_conflicts_are_not_looked_at() {
    let mut stage = Stage::new(FR_L, 2);
    stage.ask(1, Request::SingleUpdate(locks(&[], &[1]), write(5)));
    stage.finish(0, number(1));
    stage.ask(9, Request::SingleRead(locks(&[4], &[]), read(1_000)));
    stage.ask(2, Request::SingleRead(locks(&[1], &[]), read(10)));
    let expected: Vec<usize> = if stage.runs_at(single(9)) == [0] { vec![] } else { vec![0] };
    assert_eq!(stage.runs_at(single(2)), expected);
}
