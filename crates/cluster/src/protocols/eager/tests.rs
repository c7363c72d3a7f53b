//! The rules that are this scheduler's own.

use super::EAGER;
use crate::protocols::conflict_aware::CONFLICT_AWARE;
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

/// 2: "Consider, for instance, a single-write transaction followed by a single-read transaction. If the two conflict, then
/// in a conventional synchronous update protocol, the read needs to wait until the write has completed at all replicas. In
/// contrast, in a lazy update protocol, the read can proceed as soon as the write has executed at its replica."
#[test]
fn worked_case_of_the_motivation() {
    let traced = |choices| {
        let mut stage = Stage::new(choices, 2);
        stage.ask(1, Request::SingleUpdate(locks(&[], &[1]), write(5)));
        stage.finish(1, number(1));
        if stage.answered() == [1] {
            stage.ask(1, Request::SingleRead(locks(&[1], &[]), read(10)));
            stage.finish(1, single(1));
            stage.finish(0, number(1));
        } else {
            stage.finish(0, number(1));
            stage.ask(1, Request::SingleRead(locks(&[1], &[]), read(10)));
            stage.finish_all(0);
            stage.finish_all(1);
        }
        stage.trace.join("\n")
    };
    assert_eq!(traced(EAGER), EAGERLY.trim_start());
    assert_eq!(traced(CONFLICT_AWARE), LAZILY.trim_start());
}

const EAGERLY: &str = "
s1 asks single update
  log 1 [StatementId(5)]
  -> r0 single update #1
  -> r1 single update #1
  r0 runs write of #1
  r1 runs write of #1
r1 did write of #1
r0 did write of #1
  => s1 Done
s1 asks single read
  -> r1 single read after #1
  r1 runs read of s1
r1 did read of s1
  => s1 Done";

const LAZILY: &str = "
s1 asks single update
  log 1 [StatementId(5)]
  -> r0 single update #1
  -> r1 single update #1
  r0 runs write of #1
  r1 runs write of #1
r1 did write of #1
  => s1 Done
s1 asks single read
  -> r1 single read after #1
  r1 runs read of s1
r1 did read of s1
  => s1 Done
r0 did write of #1";
