//! The rules that are this scheduler's own.

use super::EAGER;
use crate::protocols::shipping::Request;
use crate::protocols::shipping::stage::{Stage, locks, number, read, single, write};

/// 6.1: "the scheduler waits for completion of every lock, write or commit operation on all replicas, before sending a
/// response back to the application server."
#[test]
fn section_6_1_the_last_reply_counts() {
    let mut stage = Stage::new(EAGER, 3);
    stage.cut(2);
    stage.begin(1, &[], &[1]);
    assert!(stage.answered().is_empty());
    stage.mend(2);
    assert_eq!(stage.answered(), [1]);
    stage.execute(1, write(5));
    stage.finish(0, number(1));
    stage.finish(1, number(1));
    assert!(stage.answered().is_empty());
    stage.finish(2, number(1));
    assert_eq!(stage.answered(), [1]);
    stage.commit(1);
    stage.finish(2, number(1));
    stage.finish(0, number(1));
    assert!(stage.answered().is_empty());
    stage.finish(1, number(1));
    assert_eq!(stage.answered(), [1]);
}

/// 6.1: "The scheduler directs a read to the replica with the lowest load."
#[test]
fn section_6_1_reads_go_to_the_least_loaded() {
    let mut stage = Stage::new(EAGER, 2);
    stage.ask(1, Request::SingleRead(locks(&[1], &[]), read(100)));
    stage.ask(2, Request::SingleRead(locks(&[1], &[]), read(10)));
    let light = stage.runs_at(single(2));
    assert_ne!(stage.runs_at(single(1)), light);
    stage.begin(3, &[2], &[]);
    stage.execute(3, read(10));
    assert_eq!(stage.runs_at(number(1)), light);
}
