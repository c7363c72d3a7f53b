//! The rules that are this scheduler's own, and a worked case as a golden trace.

use super::CONFLICT_AWARE;
use crate::protocols::shipping::Request;
use crate::protocols::shipping::stage::{Stage, locks, number, read, single, write};

fn single_read(tables: &[u32], cost_us: u32) -> Request {
    Request::SingleRead(locks(tables, &[]), read(cost_us))
}

/// 3.5: "the scheduler first determines the set of replicas where the locks for its enclosing transaction have been
/// acquired and where all previous writes in the transaction have completed. It then selects the least loaded replica
/// from this set."
#[test]
fn section_3_5_a_read_goes_where_locks_and_writes_are() {
    let mut stage = Stage::new(CONFLICT_AWARE, 3);
    stage.begin(1, &[2], &[1]);
    stage.execute(1, write(5));
    stage.finish(0, number(1));
    stage.execute(1, read(10));
    assert_eq!(stage.runs_at(number(1)), [0, 1, 2], "1 and 2 still write");
    stage.finish(0, number(1));
    stage.finish(2, number(1));
    stage.ask(9, single_read(&[3], 1_000));
    let busy = stage.runs_at(single(9))[0];
    stage.answered();
    stage.execute(1, read(10));
    let at = *stage.runs_at(number(1)).iter().find(|r| **r != 1).unwrap();
    assert_ne!(at, busy);
}

/// 4.8: "the scheduler first selects the set of replicas where the earlier update transactions in the same client web
/// interaction, if any, have completed."
#[test]
fn section_4_8_own_updates_first() {
    let mut stage = Stage::new(CONFLICT_AWARE, 3);
    stage.ask(1, Request::SingleUpdate(locks(&[], &[1]), write(5)));
    stage.finish(2, number(1));
    stage.ask(1, single_read(&[4], 10));
    assert_eq!(stage.runs_at(single(1)), [2], "no conflict anywhere, but its own update is done at 2 only");
    stage.finish(2, single(1));
    stage.ask(1, Request::InteractionOver);
    stage.ask(8, single_read(&[4], 500));
    stage.ask(1, single_read(&[4], 10));
    assert_ne!(stage.runs_at(single(1)), stage.runs_at(single(8)), "the next interaction owes nothing");
}

/// 4.8: "It then determines the subset of this set at which no conflicting locks are held. This set may be empty. It
/// selects a replica with the lowest load in the latter set, if it is not empty, and otherwise from the former set."
#[test]
fn section_4_8_conflict_first_then_load() {
    let mut stage = Stage::new(CONFLICT_AWARE, 3);
    stage.begin(1, &[], &[1]);
    stage.execute(1, write(5));
    stage.ask(2, single_read(&[1], 100));
    assert!(stage.runs_at(single(2)).is_empty(), "the set is empty, so it waits at the least loaded");
    for replica in 0..3 {
        stage.finish(replica, number(1));
    }
    stage.commit(1);
    stage.finish(1, number(1));
    for session in 3..6 {
        stage.ask(session, single_read(&[1], 10_000));
        assert_eq!(stage.runs_at(single(session)), [1], "however loaded it is");
    }
    stage.ask(6, single_read(&[4], 10));
    assert_ne!(stage.runs_at(single(6)), [1], "without a conflict the load decides");
}

/// 1: "a write on a data item may have been sent to all replicas, but it may have completed only at a subset of them
/// [...] it sends a conflicting read that needs to happen after this write to a replica where it knows the write has
/// already completed."
#[test]
fn worked_case_of_the_introduction() {
    let mut stage = Stage::new(CONFLICT_AWARE, 2);
    stage.begin(1, &[], &[1]);
    stage.execute(1, write(5));
    stage.finish(1, number(1));
    stage.commit(1);
    stage.finish(1, number(1));
    stage.ask(2, single_read(&[1], 10));
    stage.finish(1, single(2));
    stage.finish_all(0);
    let expected = "
s1 asks begin
  -> r0 lock #1
  -> r1 lock #1
  => s1 Done
s1 asks write
  -> r1 write #1
  -> r0 write #1
  r0 runs write of #1
  r1 runs write of #1
r1 did write of #1
  => s1 Done
s1 asks commit
  log 1 [StatementId(5)]
  -> r0 commit #1
  -> r1 commit #1
  r1 runs commit of #1
r1 did commit of #1
  => s1 Done
s2 asks single read
  -> r1 single read after #1
  r1 runs read of s2
r1 did read of s2
  => s2 Done
r0 did write of #1
  r0 runs commit of #1
r0 did commit of #1";
    assert_eq!(stage.trace.join("\n"), expected.trim_start());
}

/// 9.2.2: "Most idle time occurs on a particular replica when a transaction holds locks on the database that conflict with
/// all lock requests in the proxy's lock queues, and that transaction is in the process of executing a read on a different
/// replica."
#[test]
fn worked_case_of_the_bottleneck() {
    let mut stage = Stage::new(CONFLICT_AWARE, 2);
    stage.begin(1, &[], &[1]);
    stage.execute(1, read(700));
    stage.ask(2, Request::SingleUpdate(locks(&[], &[1]), write(5)));
    stage.ask(3, single_read(&[1], 10));
    let [at] = stage.runs_at(number(1))[..] else { panic!("one replica reads") };
    assert!(stage.working[1 - at].is_empty(), "the other one has two requests, and is idle");
    stage.finish(at, number(1));
    stage.commit(1);
    stage.finish_all(0);
    stage.finish_all(1);
    assert_eq!(stage.trace.join("\n"), BOTTLENECK.trim_start());
}

const BOTTLENECK: &str = "
s1 asks begin
  -> r0 lock #1
  -> r1 lock #1
  => s1 Done
s1 asks read
  -> r1 read #1
  r1 runs read of #1
s2 asks single update
  log 2 [StatementId(5)]
  -> r1 single update #2
  -> r0 single update #2
s3 asks single read
  -> r0 single read after #2
r1 did read of #1
  => s1 Done
s1 asks commit
  -> r1 commit #1
  -> r0 commit #1
  r0 runs commit of #1
  r1 runs commit of #1
r0 did commit of #1
  r0 runs write of #2
  => s1 Done
r0 did write of #2
  r0 runs read of s3
  => s2 Done
r0 did read of s3
  => s3 Done
r1 did commit of #1
  r1 runs write of #2
r1 did write of #2";
