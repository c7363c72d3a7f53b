//! Hand-made histories, one an anomaly; and tiny random ones, judged once more by trying every order.

use super::*;
use crate::dice::Dice;
use crate::history::{Level, Seen, Statement, Transaction, Write};

use Level::{ReadCommitted, RepeatableRead, Serializable};

fn seen(row: u32, list: &[Element]) -> Seen {
    Seen { row, list: list.to_vec() }
}

/// A statement at these times that reads, then appends to rows on these bases.
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
            .map(|(row, element, base)| Write { row: *row, element: *element, base: Some(base.to_vec()) })
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
    let finals = finals.iter().map(|(row, list)| seen(*row, list)).collect();
    judge(&History { transactions, finals }).into_iter().map(|finding| finding.anomaly).collect()
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
    // The writer is not answered before the second reader begins; the first reader has seen its write.
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
    assert_eq!(anomalies(one(), &[(1, &[10, 99])]), [Anomaly::AppliedTwice], "somebody's second attempt");
}

#[test]
fn reads_of_what_was_aborted_or_half_done() {
    let mut aborted = single((1, 2), &[], &[(1, 10, &[])]);
    aborted.outcome = Outcome::Aborted;
    let history = vec![aborted.clone(), single((3, 4), &[(1, &[10])], &[])];
    assert_eq!(anomalies(history, &[(1, &[])]), [Anomaly::LostCommit]);
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
    // Told that the row is there, after its deletion (the element 11) was answered.
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
    };
    let text = history.to_json_lines();
    assert_eq!(History::from_json_lines(&text).unwrap(), history);
    assert_eq!(History::from_json_lines("{\"nonsense\": 1}").unwrap_err().line, 1);
}

mod brute_force {
    //! The definition, tried out: is there an order of commits and snapshots, in real time, that explains every read?

    use super::*;

    struct Moment {
        begin_us: u64,
        end_us: u64,
        reads: Vec<(u32, Vec<Element>)>,
        writes: Vec<(u32, Element)>,
        /// The moment of the same transaction that must come before.
        after: Option<usize>,
    }

    fn moments(history: &History) -> Vec<Moment> {
        let mut moments: Vec<Moment> = Vec::new();
        for transaction in &history.transactions {
            let keeps = transaction.level != ReadCommitted;
            let mut before = None;
            for (place, statement) in transaction.statements.iter().enumerate() {
                let reads = statement.reads.iter().map(|seen| (seen.row, seen.list.clone()));
                if keeps && place > 0 {
                    let first: usize = before.unwrap();
                    moments[first].reads.extend(reads);
                    continue;
                }
                moments.push(Moment {
                    begin_us: statement.begin_us,
                    end_us: statement.end_us,
                    reads: reads.collect(),
                    writes: Vec::new(),
                    after: before,
                });
                before = Some(moments.len() - 1);
            }
            let writes = transaction.statements.iter().flat_map(|s| &s.writes);
            let writes: Vec<_> = writes.map(|write| (write.row, write.element)).collect();
            if !writes.is_empty() {
                moments.push(Moment {
                    begin_us: transaction.finish_us,
                    end_us: transaction.end_us,
                    reads: Vec::new(),
                    writes,
                    after: before,
                });
            }
        }
        moments
    }

    fn explains(moments: &[Moment], done: u32, rows: &BTreeMap<u32, Vec<Element>>, end: &Index) -> bool {
        if done.count_ones() as usize == moments.len() {
            return rows.iter().all(|(row, list)| end.list(*row) == list);
        }
        let is_open = |other: usize| done & 1 << other == 0;
        (0..moments.len()).filter(|next| is_open(*next)).any(|next| {
            let moment = &moments[next];
            let too_late = |o: usize| is_open(o) && o != next && moments[o].end_us < moment.begin_us;
            if (0..moments.len()).any(too_late) || moment.after.is_some_and(is_open) {
                return false;
            }
            let now = |row: &u32| rows.get(row).map(Vec::as_slice).unwrap_or_default();
            if moment.reads.iter().any(|(row, list)| now(row) != list) {
                return false;
            }
            let mut rows = rows.clone();
            for (row, element) in &moment.writes {
                rows.entry(*row).or_default().push(*element);
            }
            explains(moments, done | 1 << next, &rows, end)
        })
    }

    /// Two or three transactions over two rows; reads show beginnings of the final lists, true or not.
    fn draw(dice: &mut Dice) -> History {
        let mut history = History::default();
        let mut lists: [Vec<Element>; 2] = [Vec::new(), Vec::new()];
        let mut clock = 0;
        for number in 0..dice.between(2, 4) {
            let level = *dice.pick(&[ReadCommitted, RepeatableRead]);
            let begin_us = dice.between(1, 8);
            clock = begin_us;
            let mut statements = Vec::new();
            for _ in 0..dice.between(1, 2) {
                let times = (clock, clock + dice.between(1, 4));
                clock = times.1 + 1;
                let row = dice.below(2) as u32;
                statements.push(statement(times, &[(row, &[])], &[]));
            }
            if dice.percent(60) {
                let row = dice.index(2);
                let element = number + 1;
                let last = statements.last_mut().unwrap();
                last.writes.push(Write { row: row as u32, element, base: None });
                lists[row].push(element);
            }
            let finish = (clock, clock + dice.between(1, 4));
            history.transactions.push(transaction(level, finish, statements));
        }
        assert!(clock > 0);
        for transaction in &mut history.transactions {
            for seen in transaction.statements.iter_mut().flat_map(|s| &mut s.reads) {
                let list = &lists[seen.row as usize];
                seen.list = list[..dice.index(list.len() + 1)].to_vec();
            }
        }
        history.finals = (0..2).map(|row| seen(row, &lists[row as usize])).collect();
        history
    }

    /// Reads of what the transaction itself writes later cannot be told from own writes: such histories are left out.
    fn is_plain(history: &History) -> bool {
        history.transactions.iter().all(|transaction| {
            let own: Vec<Element> =
                transaction.statements.iter().flat_map(|s| &s.writes).map(|w| w.element).collect();
            let mut lists = transaction.statements.iter().flat_map(|s| &s.reads).map(|seen| &seen.list);
            lists.all(|list| !own.iter().any(|element| list.contains(element)))
        })
    }

    #[test]
    fn agrees_with_every_order() {
        let mut dice = Dice::new(7);
        let (mut good, mut bad) = (0, 0);
        while good + bad < 20_000 {
            let history = draw(&mut dice);
            if !is_plain(&history) {
                continue;
            }
            let index = Index::new(&history);
            let expected = explains(&moments(&history), 0, &BTreeMap::new(), &index);
            let found = one_copy::check_snapshots(&history, &index);
            assert_eq!(found.is_none(), expected, "{found:?} of {history:#?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 2_000 && bad > 2_000, "both kinds occur: {good} good, {bad} bad");
    }
}
