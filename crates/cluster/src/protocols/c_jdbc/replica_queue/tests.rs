//! Order at one replica, and what passes a statement that waits.

use std::sync::Arc;

use super::*;
use crate::ids::DatabaseId;
use crate::protocols::shipping::Ending;

const NONE: &[u32] = &[];

fn operation(number: u64, transaction: u64, step: Step) -> ToReplica {
    let (number, transaction) = (OperationNumber(number), TransactionId(transaction));
    ToReplica::Operation(Operation { number, transaction, step })
}

fn write(reads: &[u32], writes: &[u32]) -> Step {
    let of = |tables: &[u32], mode| -> Vec<(TableId, Mode)> {
        tables.iter().map(|table| (DatabaseId::FIRST.table(*table), mode)).collect()
    };
    let tables = [of(reads, Mode::Read), of(writes, Mode::Write)].concat();
    Step::Write(Arc::from(tables), StatementId(0))
}

/// What the server was given since the last look.
fn given(out: &mut Vec<QueueOutput>) -> Vec<u64> {
    out.drain(..)
        .filter_map(|output| match output {
            QueueOutput::Server(Work::Operation(operation)) => Some(operation.number.0),
            QueueOutput::Server(Work::Read(id, ..)) => Some(id.0),
            QueueOutput::Report(_) => None,
        })
        .collect()
}

fn queue(operations: &[(u64, u64, Step)]) -> (ReplicaQueue, Vec<QueueOutput>) {
    let (mut queue, mut out) = (ReplicaQueue::default(), Vec::new());
    for (number, transaction, step) in operations {
        queue.handle(operation(*number, *transaction, step.clone()), &mut out);
    }
    (queue, out)
}

/// 2.2.2: "Update operations are multicast in total order to all the replicas."
#[test]
fn section_2_2_2_writers_of_a_table_run_in_the_order_of_their_numbers() {
    let (mut queue, mut out) = queue(&[
        (3, 1, write(NONE, &[1])),
        (4, 2, write(NONE, &[1])),
        (5, 5, write(NONE, &[3])),
        (6, 6, write(&[1], &[2])),
        (7, 6, Step::End(Ending::Commit)),
    ]);
    assert_eq!(given(&mut out), [3, 5, 6], "a statement that reads what others write has its snapshot");
    queue.executed(OperationNumber(3), &mut out);
    assert_eq!(given(&mut out), [4]);
    queue.executed(OperationNumber(6), &mut out);
    assert!(given(&mut out).is_empty(), "an end shares the tables that its transaction read");
    queue.executed(OperationNumber(4), &mut out);
    assert_eq!(given(&mut out), [7]);
}

/// What a transaction commits is seen by the statements after its end, and not by those before it.
#[test]
fn an_end_keeps_its_place_among_statements_that_read_its_tables() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(&[1], &[2]))]);
    queue.executed(OperationNumber(3), &mut out);
    queue.handle(operation(5, 1, Step::End(Ending::Commit)), &mut out);
    queue.handle(operation(6, 6, write(&[1], &[3])), &mut out);
    assert_eq!(given(&mut out), [3, 4]);
    queue.executed(OperationNumber(4), &mut out);
    assert_eq!(given(&mut out), [5]);
    queue.executed(OperationNumber(5), &mut out);
    assert_eq!(given(&mut out), [6]);
}

/// The one that it waits for passes, and so does its end; others queue behind, so that two are never freed at once.
#[test]
fn what_waits_inside_the_server_is_passed_by_its_blocker_only() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(NONE, &[1, 2]))]);
    queue.executed(OperationNumber(3), &mut out);
    assert_eq!(given(&mut out), [3, 4]);
    queue.waits(OperationNumber(4), TransactionId(1), &mut out);
    queue.handle(operation(5, 5, write(NONE, &[2])), &mut out);
    let waits = |waiter, blocker| {
        let blockers = BTreeSet::from([TransactionId(blocker)]);
        QueueOutput::Report(FromReplica::Waits(TransactionId(waiter), blockers))
    };
    assert_eq!(out, [waits(2, 1), waits(5, 1)]);
    assert!(given(&mut out).is_empty());
    queue.handle(operation(6, 1, write(NONE, &[1, 2])), &mut out);
    assert_eq!(given(&mut out), [6], "4 waits for it, and 5 behind 4");
    queue.executed(OperationNumber(6), &mut out);
    queue.handle(operation(7, 1, Step::End(Ending::Commit)), &mut out);
    assert_eq!(given(&mut out), [7]);
    queue.executed(OperationNumber(7), &mut out);
    assert!(given(&mut out).is_empty(), "4 runs again");
    queue.executed(OperationNumber(4), &mut out);
    assert_eq!(given(&mut out), [5]);
}

/// The end of a transaction that no one waits for passes a statement that waits, but no statement that runs.
#[test]
fn an_end_passes_what_waits() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(NONE, &[1]))]);
    queue.executed(OperationNumber(3), &mut out);
    queue.executed(OperationNumber(4), &mut out);
    queue.handle(operation(5, 5, write(NONE, &[1])), &mut out);
    queue.handle(operation(6, 2, Step::End(Ending::Commit)), &mut out);
    assert_eq!(given(&mut out), [3, 4, 5]);
    queue.waits(OperationNumber(5), TransactionId(1), &mut out);
    assert_eq!(given(&mut out), [6]);
}

#[test]
fn an_abort_does_not_wait_for_its_own_statement_that_waits() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(NONE, &[1]))]);
    queue.executed(OperationNumber(3), &mut out);
    queue.waits(OperationNumber(4), TransactionId(1), &mut out);
    queue.handle(operation(5, 2, Step::End(Ending::Abort)), &mut out);
    assert_eq!(given(&mut out), [3, 4, 5]);
    queue.executed(OperationNumber(5), &mut out);
    assert!(queue.is_idle());
}

/// Example: 4 waits for transaction 1, and 5 behind 4. The end of 1 frees both, so the end of 7, which 5 must see or not see, keeps
/// its place after it.
#[test]
fn an_end_shares_the_tables_of_what_it_frees() {
    let (mut queue, mut out) = queue(&[
        (2, 7, write(NONE, &[2])),
        (3, 1, write(NONE, &[1])),
        (4, 4, write(NONE, &[1])),
        (5, 5, write(&[2], &[1])),
        (6, 1, Step::End(Ending::Commit)),
        (8, 7, Step::End(Ending::Commit)),
    ]);
    queue.executed(OperationNumber(2), &mut out);
    queue.executed(OperationNumber(3), &mut out);
    assert_eq!(given(&mut out), [2, 3, 4]);
    queue.waits(OperationNumber(4), TransactionId(1), &mut out);
    assert_eq!(given(&mut out), [6]);
    queue.executed(OperationNumber(6), &mut out);
    queue.executed(OperationNumber(4), &mut out);
    assert_eq!(given(&mut out), [5]);
    queue.executed(OperationNumber(5), &mut out);
    assert_eq!(given(&mut out), [8]);
}

/// Example: 5 is queued behind 4, and 6 passes both, because 4 waits for its transaction. The abort of 4 would free 5 while 6 runs,
/// and both write table 2.
#[test]
fn an_abort_shares_the_tables_of_what_is_queued_behind_it() {
    let (mut queue, mut out) = queue(&[
        (3, 1, write(NONE, &[1])),
        (4, 4, write(NONE, &[1])),
        (5, 5, write(NONE, &[1, 2])),
        (6, 1, write(NONE, &[2])),
        (7, 4, Step::End(Ending::Abort)),
    ]);
    queue.executed(OperationNumber(3), &mut out);
    queue.waits(OperationNumber(4), TransactionId(1), &mut out);
    assert_eq!(given(&mut out), [3, 4, 6]);
    queue.executed(OperationNumber(6), &mut out);
    assert_eq!(given(&mut out), [7]);
    queue.executed(OperationNumber(7), &mut out);
    assert_eq!(given(&mut out), [5]);
}

/// Example: 6 passes 4 and 5, and waits for the transaction of 4. The abort of 4 frees 6 inside the server, and 5 in the queue.
#[test]
fn what_was_passed_comes_after_what_has_passed_it() {
    let (mut queue, mut out) = queue(&[
        (3, 1, write(NONE, &[1])),
        (4, 4, write(NONE, &[1, 2])),
        (5, 5, write(NONE, &[2])),
        (6, 1, write(NONE, &[2])),
    ]);
    queue.executed(OperationNumber(3), &mut out);
    queue.waits(OperationNumber(4), TransactionId(1), &mut out);
    queue.waits(OperationNumber(6), TransactionId(4), &mut out);
    queue.handle(operation(7, 4, Step::End(Ending::Abort)), &mut out);
    assert_eq!(given(&mut out), [3, 4, 6, 7]);
    queue.executed(OperationNumber(7), &mut out);
    assert!(given(&mut out).is_empty(), "6 runs again");
    queue.executed(OperationNumber(6), &mut out);
    assert_eq!(given(&mut out), [5]);
}

/// The victim of a deadlock may be queued behind a statement that waits.
#[test]
fn an_abort_passes_its_own_statement_that_is_stuck() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(NONE, &[1]))]);
    queue.executed(OperationNumber(3), &mut out);
    queue.waits(OperationNumber(4), TransactionId(1), &mut out);
    queue.handle(operation(5, 5, write(NONE, &[1])), &mut out);
    queue.handle(operation(6, 5, Step::End(Ending::Abort)), &mut out);
    assert_eq!(given(&mut out), [3, 4, 6]);
    queue.executed(OperationNumber(6), &mut out);
    queue.handle(operation(7, 1, Step::End(Ending::Commit)), &mut out);
    queue.executed(OperationNumber(7), &mut out);
    queue.executed(OperationNumber(4), &mut out);
    assert!(queue.is_idle());
}

/// A driver may see a wait and report it when it is over.
#[test]
fn a_wait_for_a_transaction_that_has_ended_is_not_heard() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(NONE, &[1]))]);
    queue.executed(OperationNumber(3), &mut out);
    queue.waits(OperationNumber(4), TransactionId(9), &mut out);
    queue.handle(operation(5, 5, Step::End(Ending::Commit)), &mut out);
    queue.handle(operation(6, 6, write(NONE, &[1])), &mut out);
    assert_eq!(given(&mut out), [3, 4, 5], "4 still runs");
}

#[test]
fn a_read_waits_for_the_writes_of_its_own_transaction_only() {
    let (mut queue, mut out) = queue(&[(3, 1, write(NONE, &[1])), (4, 2, write(NONE, &[2]))]);
    queue.handle(ToReplica::Read(ReadId(91), Some(TransactionId(2)), StatementId(0)), &mut out);
    queue.handle(ToReplica::Read(ReadId(92), None, StatementId(0)), &mut out);
    assert_eq!(given(&mut out), [3, 4, 92]);
    queue.executed(OperationNumber(4), &mut out);
    assert_eq!(given(&mut out), [91]);
}

#[test]
fn the_end_of_a_transaction_shares_all_its_tables() {
    let (mut queue, mut out) = queue(&[(3, 1, write(&[2], &[1]))]);
    queue.executed(OperationNumber(3), &mut out);
    queue.handle(operation(4, 1, Step::End(Ending::Commit)), &mut out);
    queue.handle(operation(5, 5, write(NONE, &[2])), &mut out);
    queue.handle(operation(6, 6, write(NONE, &[3])), &mut out);
    assert_eq!(given(&mut out), [3, 4, 6]);
    queue.executed(OperationNumber(4), &mut out);
    assert_eq!(given(&mut out), [5]);
}

/// Only a part of what a returning replica lacks is compared with each other; otherwise this test would take hours.
#[test]
fn a_long_backlog_is_worked_off() {
    const TRANSACTIONS: u64 = 10_000;
    let (mut queue, mut out) = (ReplicaQueue::default(), Vec::new());
    for transaction in 1..=TRANSACTIONS {
        let table = u32::try_from(transaction % 4).unwrap();
        let steps = [Step::Begin, write(NONE, &[table]), Step::End(Ending::Commit)];
        for (step, number) in steps.into_iter().zip(3 * transaction..) {
            queue.handle(operation(number, transaction, step), &mut out);
        }
    }
    let mut done = 0;
    loop {
        let next = given(&mut out);
        if next.is_empty() {
            break;
        }
        done += next.len();
        for number in next {
            queue.executed(OperationNumber(number), &mut out);
        }
    }
    assert_eq!((done, queue.is_idle()), (30_000, true));
}

/// What frees the operations in a full queue may have arrived after them.
#[test]
fn a_full_queue_of_statements_that_wait_lets_one_more_in() {
    let rules = QueueRules { window: 2, ..QueueRules::default() };
    let (mut queue, mut out) = (ReplicaQueue::new(rules), Vec::new());
    for (number, transaction) in [(1, 1), (2, 2), (3, 3)] {
        queue.handle(operation(number, transaction, write(NONE, &[1])), &mut out);
    }
    queue.handle(operation(4, 1, Step::End(Ending::Commit)), &mut out);
    assert_eq!(given(&mut out), [1]);
    queue.executed(OperationNumber(1), &mut out);
    assert_eq!(given(&mut out), [2]);
    queue.waits(OperationNumber(2), TransactionId(1), &mut out);
    assert_eq!(given(&mut out), [4], "it passes both");
}
