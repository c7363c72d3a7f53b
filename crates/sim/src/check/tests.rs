//! Hand-made histories: each anomaly, and similar histories without it.
//!
//! [`brute_force`] and [`every_visibility`] compare the judges with a search through all orders, on tiny random histories.
//! [`promises`] has the anomalies that one promise allows and another forbids.

mod brute_force;
mod every_visibility;
mod promises;

use super::*;
use crate::history::{Level, Seen, Statement, Transaction, Write};

use Level::{ReadCommitted, RepeatableRead, Serializable};

fn seen(row: u32, list: &[Element]) -> Seen {
    Seen { row, list: list.to_vec() }
}

/// A statement at these times, with reads and with appends on these bases.
fn statement(
    times: (u64, u64),
    reads: &[(u32, &[Element])],
    writes: &[(u32, Element, &[Element])],
) -> Statement {
    Statement {
        begin_us: times.0,
        end_us: times.1,
        reads: reads.iter().map(|(row, list)| seen(*row, list)).collect(),
        writes: writes
            .iter()
            .map(|(row, element, base)| Write {
                row: *row,
                element: *element,
                base: Some(base.to_vec()),
                is_gone: false,
            })
            .collect(),
        ..Statement::default()
    }
}

fn transaction(level: Level, finish: (u64, u64), statements: Vec<Statement>) -> Transaction {
    Transaction {
        session: 0,
        level,
        outcome: Outcome::Committed,
        finish_us: finish.0,
        end_us: finish.1,
        statements,
    }
}

/// One statement by itself.
fn single(
    times: (u64, u64),
    reads: &[(u32, &[Element])],
    writes: &[(u32, Element, &[Element])],
) -> Transaction {
    transaction(ReadCommitted, times, vec![statement(times, reads, writes)])
}

fn anomalies(transactions: Vec<Transaction>, finals: &[(u32, &[Element])]) -> Vec<Anomaly> {
    found(Promise::AsAsked, transactions, finals)
}

fn found(promise: Promise, transactions: Vec<Transaction>, finals: &[(u32, &[Element])]) -> Vec<Anomaly> {
    let finals = finals.iter().map(|(row, list)| seen(*row, list)).collect();
    let judgement = judge(&History { transactions, finals, total: None }, promise);
    judgement.findings.into_iter().map(|finding| finding.anomaly).collect()
}

#[test]
fn a_quiet_history_is_clean() {
    let history = vec![
        single((1, 2), &[], &[(1, 10, &[])]),
        single((3, 4), &[(1, &[10])], &[(2, 20, &[])]),
        transaction(
            Serializable,
            (9, 10),
            vec![statement((5, 6), &[(1, &[10])], &[]), statement((7, 8), &[(2, &[20])], &[(1, 11, &[10])])],
        ),
    ];
    assert_eq!(anomalies(history, &[(1, &[10, 11]), (2, &[20])]), []);
}

#[test]
fn a_stale_read() {
    let history = vec![single((1, 2), &[], &[(1, 10, &[])]), single((3, 4), &[(1, &[])], &[])];
    assert_eq!(anomalies(history, &[(1, &[10])]), [Anomaly::StaleRead]);
}

#[test]
fn a_long_stale_read() {
    // The second reader begins before the writer is answered, but after the first reader has seen the write.
    let history = vec![
        single((1, 9), &[], &[(1, 10, &[])]),
        single((2, 3), &[(1, &[10])], &[]),
        single((4, 5), &[(1, &[])], &[]),
    ];
    assert_eq!(anomalies(history, &[(1, &[10])]), [Anomaly::StaleRead]);
}

#[test]
fn an_overlapping_read_may_miss() {
    let history = vec![single((1, 9), &[], &[(1, 10, &[])]), single((4, 5), &[(1, &[])], &[])];
    assert_eq!(anomalies(history, &[(1, &[10])]), []);
}

#[test]
fn a_long_fork() {
    let history = vec![
        single((1, 9), &[], &[(1, 10, &[])]),
        single((1, 9), &[], &[(2, 20, &[])]),
        single((1, 9), &[(1, &[10]), (2, &[])], &[]),
        single((1, 9), &[(1, &[]), (2, &[20])], &[]),
    ];
    assert_eq!(anomalies(history, &[(1, &[10]), (2, &[20])]), [Anomaly::LongFork]);
}

#[test]
fn a_skewed_read() {
    let writer = vec![statement((1, 2), &[], &[(1, 10, &[]), (2, 20, &[])])];
    let history =
        vec![transaction(ReadCommitted, (3, 9), writer), single((1, 9), &[(1, &[10]), (2, &[])], &[])];
    assert_eq!(anomalies(history, &[(1, &[10]), (2, &[20])]), [Anomaly::ReadSkew]);
}

#[test]
fn a_snapshot_that_moves() {
    let reader = |level| {
        let reads = vec![statement((1, 2), &[(1, &[])], &[]), statement((5, 6), &[(1, &[10])], &[])];
        vec![single((3, 4), &[], &[(1, 10, &[])]), transaction(level, (7, 8), reads)]
    };
    assert_eq!(anomalies(reader(ReadCommitted), &[(1, &[10])]), []);
    assert!(!anomalies(reader(RepeatableRead), &[(1, &[10])]).is_empty());
}

#[test]
fn write_skew_is_for_serializable_to_forbid() {
    let pair = |level| {
        let one = |mine: u32, element: Element| {
            let statements = vec![
                statement((1, 2), &[(1, &[]), (2, &[])], &[]),
                statement((3, 4), &[], &[(mine, element, &[])]),
            ];
            transaction(level, (5, 6), statements)
        };
        vec![one(1, 10), one(2, 20)]
    };
    let finals: &[(u32, &[Element])] = &[(1, &[10]), (2, &[20])];
    assert_eq!(anomalies(pair(RepeatableRead), finals), []);
    assert_eq!(anomalies(pair(Serializable), finals), [Anomaly::WriteSkew]);
}

#[test]
fn lost_updates() {
    let both = || vec![single((1, 9), &[], &[(1, 10, &[])]), single((1, 9), &[], &[(1, 11, &[])])];
    assert_eq!(anomalies(both(), &[(1, &[11])]), [Anomaly::LostUpdate], "gone");
    assert_eq!(anomalies(both(), &[(1, &[10, 11])]), [Anomaly::LostUpdate], "there, on the wrong base");
}

#[test]
fn lost_and_doubled_commits() {
    let one = || vec![single((1, 2), &[], &[(1, 10, &[])])];
    assert_eq!(anomalies(one(), &[(1, &[])]), [Anomaly::LostCommit]);
    assert!(anomalies(one(), &[(1, &[10, 10])]).contains(&Anomaly::AppliedTwice));
    assert_eq!(anomalies(one(), &[(1, &[10, 99])]), [Anomaly::AppliedTwice], "the second attempt of a retry");
}

#[test]
fn reads_of_what_was_aborted_or_half_done() {
    let mut aborted = single((1, 2), &[], &[(1, 10, &[])]);
    aborted.outcome = Outcome::Aborted;
    let history = vec![aborted.clone(), single((3, 4), &[(1, &[10])], &[])];
    assert_eq!(anomalies(history, &[(1, &[])]), [Anomaly::AbortedRead]);
    assert_eq!(anomalies(vec![aborted], &[(1, &[10])]), [Anomaly::AbortedRead]);
    let twice = vec![statement((1, 2), &[], &[(1, 10, &[]), (1, 11, &[10])])];
    let history = vec![transaction(ReadCommitted, (3, 9), twice), single((4, 5), &[(1, &[10])], &[])];
    assert_eq!(anomalies(history, &[(1, &[10, 11])]), [Anomaly::IntermediateRead]);
}

#[test]
fn a_write_that_its_own_transaction_misses() {
    let statements = vec![statement((1, 2), &[], &[(1, 10, &[])]), statement((3, 4), &[(1, &[])], &[])];
    let history = vec![transaction(ReadCommitted, (5, 6), statements)];
    assert_eq!(anomalies(history, &[(1, &[10])]), [Anomaly::OwnWriteMissed]);
}

#[test]
fn an_error_is_a_read() {
    // An error says that the row exists, after its deletion (the element 11) was acknowledged.
    let mut late = single((5, 6), &[], &[]);
    late.outcome = Outcome::Aborted;
    late.statements[0].latest.push(seen(1, &[10]));
    let history = vec![single((1, 2), &[], &[(1, 10, &[])]), single((3, 4), &[], &[(1, 11, &[10])]), late];
    assert_eq!(anomalies(history, &[(1, &[10, 11])]), [Anomaly::StaleRead]);
}

#[test]
fn a_locked_row_stays_as_it_is() {
    let mut locker = statement((1, 2), &[], &[(2, 20, &[])]);
    locker.locked.push(seen(1, &[]));
    let locker = transaction(ReadCommitted, (8, 9), vec![locker]);
    let history = vec![locker, single((3, 4), &[], &[(1, 10, &[])])];
    assert_eq!(anomalies(history, &[(1, &[10]), (2, &[20])]).len(), 1);
}

#[test]
fn json_lines_there_and_back() {
    let history = History {
        transactions: vec![single((1, 2), &[(2, &[5])], &[(1, 10, &[])])],
        finals: vec![seen(1, &[10]), seen(2, &[5])],
        total: Some(7),
    };
    let text = history.to_json_lines();
    assert_eq!(History::from_json_lines(&text).unwrap(), history);
    assert_eq!(History::from_json_lines("{\"nonsense\": 1}").unwrap_err().line, 1);
}

/// Writes without a reply.
fn blind(times: (u64, u64), writes: &[(u32, Element)]) -> Transaction {
    let mut transaction = single(times, &[], &[]);
    let write = |(row, element): &(u32, Element)| Write { row: *row, element: *element, ..Write::default() };
    transaction.statements[0].writes = writes.iter().map(write).collect();
    transaction
}

#[test]
fn writes_in_a_circle() {
    let both = || vec![blind((1, 9), &[(1, 10), (2, 11)]), blind((1, 9), &[(1, 20), (2, 21)])];
    assert_eq!(anomalies(both(), &[(1, &[10, 20]), (2, &[11, 21])]), []);
    assert_eq!(anomalies(both(), &[(1, &[10, 20]), (2, &[21, 11])]), [Anomaly::DirtyWrite]);
}

#[test]
fn information_in_a_circle() {
    let history =
        vec![single((1, 9), &[(2, &[20])], &[(1, 10, &[])]), single((1, 9), &[(1, &[10])], &[(2, 20, &[])])];
    assert_eq!(anomalies(history, &[(1, &[10]), (2, &[20])]), [Anomaly::CircularFlow]);
}

#[test]
fn half_a_transaction() {
    let mut history = vec![blind((1, 2), &[(1, 10), (2, 20)])];
    assert_eq!(anomalies(history.clone(), &[(1, &[10]), (2, &[])]), [Anomaly::TornCommit]);
    history[0].outcome = Outcome::Unknown;
    assert_eq!(anomalies(history.clone(), &[(1, &[10]), (2, &[])]), [Anomaly::TornCommit]);
    assert_eq!(anomalies(history, &[(1, &[]), (2, &[])]), [], "no client was told that it is there");
}

#[test]
fn a_register_that_is_computed_from_an_old_value() {
    let adder = |level, finish, element| {
        let mut one = blind(finish, &[(1, element)]);
        one.level = level;
        one.statements.insert(0, statement((1, 2), &[(1, &[])], &[]));
        one
    };
    let both = |level| vec![adder(level, (3, 9), 10), adder(level, (3, 9), 11)];
    assert_eq!(anomalies(both(ReadCommitted), &[(1, &[10, 11])]), [], "PostgreSQL allows it there");
    assert!(anomalies(both(RepeatableRead), &[(1, &[10, 11])]).contains(&Anomaly::LostUpdate));
    let mut locked = both(ReadCommitted);
    for transaction in &mut locked {
        let first = &mut transaction.statements[0];
        first.locked = std::mem::take(&mut first.reads);
    }
    assert!(anomalies(locked, &[(1, &[10, 11])]).contains(&Anomaly::LostUpdate));
}

/// Reads two rows by a predicate, then inserts one of them.
fn visitor(level: Level, found: &[(u32, &[Element])], row: u32, element: Element) -> Transaction {
    let mut look = statement((1, 2), &[], &[]);
    let found = found.iter().map(|(row, list)| seen(*row, list)).collect();
    look.scans.push(Scan { of: vec![1, 2], found });
    transaction(level, (3, 9), vec![look, statement((3, 9), &[], &[(row, element, &[])])])
}

#[test]
fn phantoms() {
    let finals: &[(u32, &[Element])] = &[(1, &[10]), (2, &[20])];
    let pair = |level| vec![visitor(level, &[], 1, 10), visitor(level, &[], 2, 20)];
    assert_eq!(anomalies(pair(RepeatableRead), finals), []);
    assert_eq!(anomalies(pair(Serializable), finals), [Anomaly::Phantom]);
    // A statement finds one of two rows that one transaction inserted.
    let mut look = single((1, 9), &[], &[]);
    look.statements[0].scans.push(Scan { of: vec![1, 2], found: vec![seen(1, &[10])] });
    let history = vec![blind((1, 9), &[(1, 10), (2, 20)]), look.clone()];
    assert_eq!(anomalies(history, finals), [Anomaly::Phantom]);
    // A statement misses a row that has existed for long; in the other history the row was deleted before.
    let mut gone = blind((1, 2), &[(2, 20)]);
    look.statements[0].begin_us = 5;
    let history = vec![blind((1, 2), &[(1, 10)]), gone.clone(), look.clone()];
    assert_eq!(anomalies(history, finals), [Anomaly::StaleRead]);
    gone.statements[0].writes[0].is_gone = true;
    assert_eq!(anomalies(vec![blind((1, 2), &[(1, 10)]), gone, look], finals), []);
}

#[test]
fn money_from_nowhere() {
    let look = |total| {
        let mut look = single((3, 4), &[], &[]);
        look.statements[0].total = Some(total);
        History { transactions: vec![look], finals: Vec::new(), total: Some(800) }
    };
    let judge = |history: &History| judge(history, Promise::AsAsked).findings;
    assert_eq!(judge(&look(800)), []);
    assert_eq!(judge(&look(790))[0].anomaly, Anomaly::WrongTotal);
    let mut own = look(790);
    own.transactions[0].statements.insert(0, Statement { moves: true, end_us: 2, ..Statement::default() });
    assert_eq!(judge(&own), [], "half of its own transfer");
}

#[test]
fn what_was_rolled_back_to_a_savepoint() {
    let history = |seen_after: &[Element]| {
        let mut write = statement((3, 4), &[], &[(1, 10, &[])]);
        write.undone_by = Some(3);
        let control = |times| Statement { is_control: true, ..statement(times, &[], &[]) };
        let look = |times, list| statement(times, &[(1, list)], &[]);
        let statements =
            vec![control((1, 2)), write, look((5, 6), &[10]), control((7, 8)), look((9, 10), seen_after)];
        vec![transaction(ReadCommitted, (11, 12), statements)]
    };
    assert_eq!(anomalies(history(&[]), &[(1, &[])]), []);
    assert!(anomalies(history(&[]), &[(1, &[10])]).contains(&Anomaly::AbortedRead), "it is there at the end");
    assert!(anomalies(history(&[10]), &[(1, &[])]).contains(&Anomaly::AbortedRead), "it is still seen");
    let mut other = history(&[]);
    other.push(single((20, 21), &[(1, &[10])], &[]));
    assert!(anomalies(other, &[(1, &[])]).contains(&Anomaly::AbortedRead), "another sees it");
}

#[test]
fn a_savepoint_takes_no_snapshot() {
    let reader = |is_control| {
        let first = Statement { is_control, ..statement((1, 2), &[], &[]) };
        let statements = vec![first, statement((5, 6), &[(1, &[])], &[])];
        vec![single((3, 4), &[], &[(1, 10, &[])]), transaction(RepeatableRead, (7, 8), statements)]
    };
    assert_eq!(anomalies(reader(true), &[(1, &[10])]), [Anomaly::StaleRead]);
    assert_eq!(anomalies(reader(false), &[(1, &[10])]), [], "the snapshot is older than the write");
}

#[test]
fn a_failed_statement_may_have_taken_a_snapshot() {
    let reader = |list: &[Element], first| {
        let statements = vec![first, statement((5, 6), &[(1, list)], &[])];
        let writers = vec![single((1, 2), &[], &[(1, 10, &[])]), single((4, 5), &[], &[(1, 11, &[10])])];
        [writers, vec![transaction(RepeatableRead, (7, 8), statements)]].concat()
    };
    let judge = |list, first| anomalies(reader(list, first), &[(1, &[10, 11])]);
    let failed = || statement((3, 3), &[], &[]);
    assert_eq!(judge(&[10], failed()), []);
    assert_eq!(judge(&[10, 11], failed()), []);
    assert_eq!(judge(&[], failed()), [Anomaly::StaleRead]);
    assert_eq!(judge(&[10, 11], statement((3, 3), &[(2, &[])], &[])), [Anomaly::StaleRead]);
}

#[test]
fn what_was_taken_back_or_failed_has_told_something() {
    // Its snapshot is older than the other's write, but its own attempt to write is newer.
    let history = |level, tried: Statement| {
        let control = |times| Statement { is_control: true, ..statement(times, &[], &[]) };
        let look = |times| statement(times, &[(1, &[])], &[]);
        let tried = Statement { undone_by: Some(3), ..tried };
        let statements = vec![look((1, 2)), control((3, 4)), tried, control((9, 10)), look((11, 12))];
        let writer = transaction(level, (5, 6), vec![statement((5, 6), &[], &[(1, 10, &[])])]);
        vec![writer, transaction(level, (13, 14), statements)]
    };
    let written = || statement((7, 8), &[], &[(1, 11, &[10])]);
    let refused = || Statement { latest: vec![seen(1, &[10])], ..statement((7, 8), &[], &[]) };
    for tried in [written(), refused()] {
        assert_eq!(anomalies(history(RepeatableRead, tried.clone()), &[(1, &[10])]), []);
        assert_eq!(anomalies(history(Serializable, tried), &[(1, &[10])]), [Anomaly::ReadSkew]);
    }
}
