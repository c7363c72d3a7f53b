//! The rules that are this scheduler's own.

use super::VR_L;
use crate::protocols::shipping::Request;
use crate::protocols::shipping::stage::{Stage, locks, number, read, single, write};

/// 6.4: "the response to the application server on a lock request, write, or commit is sent as soon as the first
/// response is received from any replica"; "A read is sent to the replica with the lowest load at the time the read
/// arrives [...] This may result in the read being sent to a replica where it needs to wait for [...] previous
/// operations in its own transaction."
#[test]
fn section_6_4_first_reply_and_least_load() {
    let mut stage = Stage::new(VR_L, 2);
    stage.ask(9, Request::SingleRead(locks(&[4], &[]), read(5)));
    let busy = stage.runs_at(single(9))[0];
    stage.begin(1, &[2], &[1]);
    stage.execute(1, write(5));
    stage.finish(busy, number(1));
    assert_eq!(stage.answered(), [1, 1], "lock request and write");
    stage.ask(8, Request::SingleRead(locks(&[4], &[]), read(1_000)));
    assert_eq!(stage.runs_at(single(8)), [busy], "it has done the write, so it was the least loaded");
    stage.execute(1, read(20));
    let behind = 1 - busy;
    assert_eq!(stage.working[behind][&number(1)].cost().0, 10, "the write is before the read there");
    stage.finish(behind, number(1));
    assert_eq!(stage.working[behind][&number(1)].cost().0, 20);
}

/// 6.4: conflicts of other transactions are not looked at either.
#[test]
fn section_6_4_a_read_may_wait_for_other_transactions() {
    let mut stage = Stage::new(VR_L, 2);
    stage.ask(1, Request::SingleUpdate(locks(&[], &[1]), write(5)));
    stage.finish(0, number(1));
    stage.ask(9, Request::SingleRead(locks(&[4], &[]), read(1_000)));
    let busy = stage.runs_at(single(9));
    stage.ask(2, Request::SingleRead(locks(&[1], &[]), read(10)));
    let expected: Vec<usize> = if busy == [0] { vec![] } else { vec![0] };
    assert_eq!(stage.runs_at(single(2)), expected);
}
