//! Anomalies that one promise allows and another forbids, each judged by all of them.

use super::*;
use Promise::{AsAsked, OldSnapshots, Parallel};
use Sessions::{Apart, InOrder};

const OLD: Promise = OldSnapshots(Apart);
const PARALLEL: Promise = Parallel(Apart);

type Finals<'a> = &'a [(u32, &'a [Element])];

const BOTH_ROWS: Finals<'_> = &[(1, &[10]), (2, &[20])];

/// One statement by itself at REPEATABLE READ.
fn snapshot(
    times: (u64, u64),
    reads: &[(u32, &[Element])],
    writes: &[(u32, Element, &[Element])],
) -> Transaction {
    transaction(RepeatableRead, times, vec![statement(times, reads, writes)])
}

fn of_session(session: u32, transaction: Transaction) -> Transaction {
    Transaction { session, ..transaction }
}

/// What a promise allows in a history that keeps it: write skews, long forks, stale reads.
fn counts(promise: Promise, transactions: &[Transaction], finals: Finals<'_>) -> (usize, usize, usize) {
    let finals = finals.iter().map(|(row, list)| seen(*row, list)).collect();
    let judgement = judge(&History { transactions: transactions.to_vec(), finals, total: None }, promise);
    assert_eq!(judgement.findings, [], "{promise:?}");
    let Allowed { write_skews, long_forks, stale_reads } = judgement.allowed;
    (write_skews, long_forks, stale_reads)
}

/// Every promise finds this in it.
fn always(anomaly: Anomaly, transactions: &[Transaction], finals: Finals<'_>) {
    for promise in Promise::ALL {
        let found = found(promise, transactions.to_vec(), finals);
        assert!(found.contains(&anomaly), "{promise:?} finds {found:?}");
    }
}

#[test]
fn a_long_fork_is_for_parallel_snapshots_to_allow() {
    let fork = |level| {
        let look = |reads| transaction(level, (1, 9), vec![statement((1, 9), reads, &[])]);
        let mut fork = vec![
            snapshot((1, 9), &[], &[(1, 10, &[])]),
            snapshot((1, 9), &[], &[(2, 20, &[])]),
            look(&[(1, &[10]), (2, &[])]),
            look(&[(1, &[]), (2, &[20])]),
        ];
        (0..).zip(&mut fork).for_each(|(session, transaction)| transaction.session = session);
        fork
    };
    for fork in [fork(RepeatableRead), fork(ReadCommitted)] {
        for promise in [AsAsked, OLD, OldSnapshots(InOrder)] {
            assert_eq!(found(promise, fork.clone(), BOTH_ROWS), [Anomaly::LongFork], "{promise:?}");
        }
        assert_eq!(counts(PARALLEL, &fork, BOTH_ROWS), (0, 2, 0));
        assert_eq!(counts(Parallel(InOrder), &fork, BOTH_ROWS), (0, 2, 0));
    }
    // The readers are of the writers' sessions, and each sees the other's write only.
    let mut own = fork(RepeatableRead);
    (own[2].session, own[3].session) = (1, 0);
    assert_eq!(found(Parallel(InOrder), own.clone(), BOTH_ROWS), [Anomaly::StaleRead]);
    assert_eq!(counts(PARALLEL, &own, BOTH_ROWS), (0, 2, 0));
}

#[test]
fn a_stale_read_is_for_old_snapshots_to_allow() {
    for level in [ReadCommitted, RepeatableRead] {
        let look = transaction(level, (3, 4), vec![statement((3, 4), &[(1, &[])], &[])]);
        let history = |session| vec![single((1, 2), &[], &[(1, 10, &[])]), of_session(session, look.clone())];
        let finals: Finals<'_> = &[(1, &[10])];
        assert_eq!(found(AsAsked, history(1), finals), [Anomaly::StaleRead]);
        for promise in [OLD, OldSnapshots(InOrder), PARALLEL, Parallel(InOrder)] {
            assert_eq!(counts(promise, &history(1), finals), (0, 0, 1), "{promise:?}");
        }
        // Its own session wrote the row.
        assert_eq!(counts(OLD, &history(0), finals), (0, 0, 1));
        assert_eq!(counts(PARALLEL, &history(0), finals), (0, 0, 1));
        assert_eq!(found(OldSnapshots(InOrder), history(0), finals), [Anomaly::StaleRead]);
        assert_eq!(found(Parallel(InOrder), history(0), finals), [Anomaly::StaleRead]);
        let mut unknown = history(0);
        unknown[0].outcome = Outcome::Unknown;
        assert_eq!(counts(OldSnapshots(InOrder), &unknown, finals), (0, 0, 0), "its commit may be late");
    }
}

#[test]
fn write_skew_is_for_all_to_allow_but_serializable() {
    let pair = |level| {
        let one = |mine: u32, element: Element| {
            let look = statement((1, 2), &[(1, &[]), (2, &[])], &[]);
            let write = statement((3, 4), &[], &[(mine, element, &[])]);
            of_session(mine, transaction(level, (5, 6), vec![look, write]))
        };
        vec![one(1, 10), one(2, 20)]
    };
    for promise in Promise::ALL {
        assert_eq!(counts(promise, &pair(RepeatableRead), BOTH_ROWS), (2, 0, 0), "{promise:?}");
    }
    for promise in [AsAsked, OLD, OldSnapshots(InOrder)] {
        assert_eq!(found(promise, pair(Serializable), BOTH_ROWS), [Anomaly::WriteSkew], "{promise:?}");
    }
    assert_eq!(counts(PARALLEL, &pair(Serializable), BOTH_ROWS), (2, 0, 0));
    assert_eq!(counts(PARALLEL, &pair(ReadCommitted), BOTH_ROWS), (0, 0, 0), "of snapshots only");
}

#[test]
fn dirty_writes_and_circular_flow() {
    let blind = |elements: [Element; 2]| {
        let writes = [(1, elements[0]), (2, elements[1])];
        let write = |(row, element)| Write { row, element, ..Write::default() };
        let mut blind = snapshot((1, 9), &[], &[]);
        blind.statements[0].writes = writes.map(write).to_vec();
        blind
    };
    always(
        Anomaly::DirtyWrite,
        &[blind([10, 20]), of_session(1, blind([11, 21]))],
        &[(1, &[10, 11]), (2, &[21, 20])],
    );
    let circle = [
        snapshot((1, 9), &[(2, &[20])], &[(1, 10, &[])]),
        of_session(1, snapshot((1, 9), &[(1, &[10])], &[(2, 20, &[])])),
    ];
    always(Anomaly::CircularFlow, &circle, BOTH_ROWS);
}

#[test]
fn read_skew() {
    let torn = [
        snapshot((1, 9), &[], &[(1, 10, &[]), (2, 20, &[])]),
        of_session(1, snapshot((1, 9), &[(1, &[10]), (2, &[])], &[])),
    ];
    always(Anomaly::ReadSkew, &torn, BOTH_ROWS);
    // A reader has the effect without the cause, which another transaction had read, in the same statement or before.
    let cause = || snapshot((1, 9), &[], &[(1, 10, &[])]);
    let reader = || of_session(2, snapshot((1, 9), &[(1, &[]), (2, &[20])], &[]));
    let effect = |level, statements| of_session(1, transaction(level, (5, 9), statements));
    let together = || vec![statement((1, 9), &[(1, &[10])], &[(2, 20, &[])])];
    let apart = || vec![statement((1, 2), &[(1, &[10])], &[]), statement((3, 4), &[], &[(2, 20, &[])])];
    for level in [ReadCommitted, RepeatableRead] {
        for statements in [together(), apart()] {
            always(Anomaly::ReadSkew, &[cause(), effect(level, statements), reader()], BOTH_ROWS);
        }
    }
    // A chain of overwriting tells of the cause, too.
    let writer = || of_session(1, snapshot((1, 9), &[], &[(1, 11, &[10]), (2, 20, &[])]));
    always(Anomaly::ReadSkew, &[cause(), writer(), reader()], &[(1, &[10, 11]), (2, &[20])]);
}

#[test]
fn phantoms_of_old_snapshots() {
    let scan = |found: Finals<'_>| {
        let mut look = of_session(1, snapshot((3, 9), &[], &[]));
        let found = found.iter().map(|(row, list)| seen(*row, list)).collect();
        look.statements[0].scans.push(Scan { of: vec![1, 2], found });
        look
    };
    let writer = || snapshot((1, 2), &[], &[(1, 10, &[]), (2, 20, &[])]);
    always(Anomaly::Phantom, &[writer(), scan(&[(1, &[10])])], BOTH_ROWS);
    assert_eq!(found(AsAsked, vec![writer(), scan(&[])], BOTH_ROWS), [Anomaly::StaleRead]);
    for promise in [OLD, PARALLEL] {
        assert_eq!(counts(promise, &[writer(), scan(&[])], BOTH_ROWS), (0, 0, 1), "{promise:?}");
    }
}

#[test]
fn what_a_snapshot_lacks_its_transaction_does_not_overwrite() {
    let weak = [OLD, OldSnapshots(InOrder), PARALLEL, Parallel(InOrder)];
    // It reads row 2 without the other's write, and writes row 1 over the other's write.
    let first = |is_gone| {
        let mut first = snapshot((1, 2), &[], &[(1, 10, &[]), (2, 20, &[])]);
        first.statements[0].writes[0].is_gone = is_gone;
        first
    };
    let second = |level| {
        let statements = vec![statement((3, 4), &[(2, &[])], &[]), statement((5, 6), &[], &[(1, 11, &[10])])];
        of_session(1, transaction(level, (7, 8), statements))
    };
    let finals: Finals<'_> = &[(1, &[10, 11]), (2, &[20])];
    for promise in weak {
        let history = |level| vec![first(false), second(level)];
        assert_eq!(found(promise, history(RepeatableRead), finals), [Anomaly::LostUpdate], "{promise:?}");
        assert_eq!(counts(promise, &history(ReadCommitted), finals), (0, 0, 1), "{promise:?}");
        // The other deleted row 1, so it inserts the row again, as PostgreSQL lets it.
        let inserts = [first(true), second(RepeatableRead)];
        assert_eq!(counts(promise, &inserts, finals), (0, 0, 1), "{promise:?}");
    }
    // It reads the row that it writes.
    let twice = [snapshot((1, 9), &[], &[(1, 10, &[])]), snapshot((1, 9), &[(1, &[])], &[(1, 11, &[10])])];
    always(Anomaly::LostUpdate, &twice, &[(1, &[10, 11])]);
}

#[test]
fn statements_at_read_committed_may_go_back_in_time() {
    let history = |level| {
        let looks = vec![statement((1, 9), &[(1, &[10])], &[]), statement((10, 11), &[(1, &[])], &[])];
        vec![single((1, 9), &[], &[(1, 10, &[])]), of_session(1, transaction(level, (12, 13), looks))]
    };
    let finals: Finals<'_> = &[(1, &[10])];
    assert_eq!(found(AsAsked, history(ReadCommitted), finals), [Anomaly::StaleRead]);
    for promise in [OLD, PARALLEL] {
        assert_eq!(counts(promise, &history(ReadCommitted), finals), (0, 0, 1), "{promise:?}");
    }
    for promise in [OldSnapshots(InOrder), Parallel(InOrder)] {
        assert_eq!(found(promise, history(ReadCommitted), finals), [Anomaly::StaleRead], "{promise:?}");
    }
    always(Anomaly::ReadSkew, &history(RepeatableRead), finals);
}

#[test]
fn old_snapshots_keep_the_order_of_commits() {
    // The reader has the second commit without the first, which had been acknowledged when the second was sent.
    let history = [
        snapshot((1, 2), &[], &[(1, 10, &[])]),
        of_session(1, snapshot((3, 4), &[], &[(2, 20, &[])])),
        of_session(2, snapshot((5, 6), &[(1, &[]), (2, &[20])], &[])),
    ];
    assert_eq!(found(AsAsked, history.to_vec(), BOTH_ROWS), [Anomaly::StaleRead]);
    assert_eq!(found(OLD, history.to_vec(), BOTH_ROWS), [Anomaly::ReadSkew]);
    assert_eq!(counts(PARALLEL, &history, BOTH_ROWS), (0, 0, 1), "no commit saw the other");
    // It has a commit that was sent only after its own end.
    let future =
        [snapshot((5, 6), &[], &[(1, 10, &[])]), of_session(1, snapshot((1, 2), &[(1, &[10])], &[]))];
    assert_eq!(found(OLD, future.to_vec(), &[(1, &[10])]).len(), 1);
}

#[test]
fn a_row_lock_is_a_promise_of_old_snapshots() {
    let mut locker = statement((1, 2), &[], &[(2, 20, &[])]);
    locker.locked.push(seen(1, &[]));
    let locker = of_session(1, transaction(ReadCommitted, (8, 9), vec![locker]));
    let history = [locker, single((3, 4), &[], &[(1, 10, &[])])];
    assert_eq!(found(OLD, history.to_vec(), BOTH_ROWS).len(), 1);
    assert_eq!(counts(PARALLEL, &history, BOTH_ROWS), (0, 0, 0));
}

#[test]
fn serializable_readers_may_be_old_but_no_updates() {
    let writer = || transaction(Serializable, (1, 2), vec![statement((1, 2), &[], &[(1, 10, &[])])]);
    let reader = |writes: &[(u32, Element, &[Element])]| {
        let statements = vec![statement((3, 4), &[(1, &[])], writes)];
        vec![writer(), of_session(1, transaction(Serializable, (3, 4), statements))]
    };
    let finals: Finals<'_> = &[(1, &[10])];
    assert_eq!(found(AsAsked, reader(&[]), finals), [Anomaly::StaleRead, Anomaly::StaleRead]);
    assert_eq!(counts(OLD, &reader(&[]), finals), (0, 0, 1));
    assert_eq!(found(OLD, reader(&[(2, 20, &[])]), BOTH_ROWS).len(), 1);
    let mut own = reader(&[]);
    own[1].session = 0;
    assert_eq!(found(OldSnapshots(InOrder), own, finals), [Anomaly::StaleRead, Anomaly::StaleRead]);
}

#[test]
fn what_was_never_committed_is_for_none_to_show() {
    let mut aborted = single((1, 2), &[], &[(1, 10, &[])]);
    aborted.outcome = Outcome::Aborted;
    always(Anomaly::AbortedRead, &[aborted, snapshot((3, 4), &[(1, &[10])], &[])], &[(1, &[])]);
    let twice = vec![statement((1, 2), &[], &[(1, 10, &[]), (1, 11, &[10])])];
    let twice = transaction(RepeatableRead, (3, 9), twice);
    let half = of_session(1, snapshot((4, 5), &[(1, &[10])], &[]));
    always(Anomaly::IntermediateRead, &[twice, half], &[(1, &[10, 11])]);
    always(Anomaly::LostCommit, &[single((1, 2), &[], &[(1, 10, &[])])], &[(1, &[])]);
}

#[test]
fn promises_have_names() {
    assert_eq!("parallel+sessions".parse::<Promise>().unwrap(), Parallel(InOrder));
    for promise in Promise::ALL {
        assert_eq!(promise.to_string().parse::<Promise>().unwrap(), promise);
    }
    let error = "psi".parse::<Promise>().unwrap_err().to_string();
    assert!(error.contains("unknown promise \"psi\"") && error.contains("parallel, "), "{error}");
}
