//! The rules that are this scheduler's own.

use super::FR_C;
use crate::protocols::shipping::Request;
use crate::protocols::shipping::stage::{Stage, locks, number, read, single, write};

/// 6.3: "the scheduler chooses the replica that first responds to the lock request as the fixed replica for this
/// transaction"; "all reads are sent to this replica, and a response is returned [...] when this replica responds to a
/// lock request, a write or a commit."
#[test]
fn section_6_3_fixed_where_the_lock_request_was_answered_first() {
    let mut stage = Stage::new(FR_C, 3);
    stage.ask(9, Request::SingleRead(locks(&[1], &[]), read(10)));
    let reader = stage.runs_at(single(9))[0];
    let quick = (reader + 1) % 3;
    stage.cut((reader + 2) % 3);
    stage.begin(1, &[], &[1]);
    assert_eq!(stage.answered(), [1], "the one without a conflict that heard of it");
    stage.mend((reader + 2) % 3);
    stage.execute(1, write(5));
    stage.finish((reader + 2) % 3, number(1));
    assert!(stage.answered().is_empty());
    stage.finish(quick, number(1));
    assert_eq!(stage.answered(), [1]);
    stage.execute(1, read(10));
    assert_eq!(stage.runs_at(number(1)), [quick]);
    stage.finish(quick, number(1));
    stage.commit(1);
    stage.finish((reader + 2) % 3, number(1));
    assert_eq!(stage.answered(), [1], "only the read");
    stage.finish(quick, number(1));
    assert_eq!(stage.answered(), [1]);
}

/// 8.1: "FR-C, in contrast, tries to send the reads to conflict-free replicas."
#[test]
fn section_8_1_single_reads_avoid_conflicts() {
    let mut stage = Stage::new(FR_C, 2);
    stage.ask(1, Request::SingleUpdate(locks(&[], &[1]), write(5)));
    stage.finish(1, number(1));
    for session in 2..4 {
        stage.ask(session, Request::SingleRead(locks(&[1], &[]), read(10)));
        assert_eq!(stage.runs_at(single(session)), [1]);
    }
}
