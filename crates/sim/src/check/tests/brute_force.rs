//! The definition by brute force: does any order of commits and snapshots, within real time, explain every read?

use super::*;
use crate::check::graph::Age;
use crate::dice::Dice;

/// A snapshot with reads, or a commit with writes.
pub(super) struct Moment {
    pub(super) begin_us: u64,
    pub(super) end_us: u64,
    pub(super) reads: Vec<(u32, Vec<Element>)>,
    scans: Vec<Scan>,
    pub(super) writes: Vec<(u32, Element)>,
    /// The moment of the same transaction that must come before.
    pub(super) after: Option<usize>,
    /// The number of the transaction.
    pub(super) of: usize,
}

pub(super) fn moments(history: &History) -> Vec<Moment> {
    let mut moments: Vec<Moment> = Vec::new();
    for (of, transaction) in history.transactions.iter().enumerate() {
        let keeps = transaction.level != ReadCommitted;
        let mut before = None;
        for (place, statement) in transaction.statements.iter().enumerate() {
            let reads = statement.reads.iter().map(|seen| (seen.row, seen.list.clone()));
            if keeps && place > 0 {
                let first: usize = before.unwrap();
                moments[first].reads.extend(reads);
                moments[first].scans.extend(statement.scans.clone());
                continue;
            }
            moments.push(Moment {
                begin_us: statement.begin_us,
                end_us: statement.end_us,
                reads: reads.collect(),
                scans: statement.scans.clone(),
                writes: Vec::new(),
                after: before,
                of,
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
                scans: Vec::new(),
                writes,
                after: before,
                of,
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
        let is_there = |row: &u32| now(row).last().is_some_and(|last| !end.gone.contains(last));
        let fits = |scan: &Scan, row: &u32| match scan.found.iter().find(|seen| seen.row == *row) {
            Some(seen) => is_there(row) && now(row) == seen.list,
            None => !is_there(row),
        };
        let scans_fit = moment.scans.iter().all(|scan| scan.of.iter().all(|row| fits(scan, row)));
        if !scans_fit || moment.reads.iter().any(|(row, list)| now(row) != list) {
            return false;
        }
        let mut rows = rows.clone();
        for (row, element) in &moment.writes {
            rows.entry(*row).or_default().push(*element);
        }
        explains(moments, done | 1 << next, &rows, end)
    })
}

/// Draws two to four transactions over two rows. Reads show random prefixes of the final lists.
fn draw(dice: &mut Dice, levels: &[Level], scans: u64) -> History {
    let mut history = History::default();
    let mut lists: [Vec<Element>; 2] = [Vec::new(), Vec::new()];
    for number in 0..dice.between(2, 4) {
        let level = *dice.pick(levels);
        let mut clock = dice.between(1, 8);
        let mut statements = Vec::new();
        for _ in 0..dice.between(1, 2) {
            let times = (clock, clock + dice.between(1, 4));
            clock = times.1 + 1;
            let mut one = statement(times, &[], &[]);
            if dice.percent(scans) {
                one.scans.push(Scan { of: vec![0, 1], found: Vec::new() });
            } else {
                one.reads.push(seen(dice.below(2) as u32, &[]));
            }
            statements.push(one);
        }
        for (row, list) in (0..).zip(&mut lists) {
            if dice.percent(35) {
                let element = number * 2 + u64::from(row) + 1;
                let is_gone = dice.percent(scans);
                let write = Write { row, element, is_gone, ..Write::default() };
                statements.last_mut().unwrap().writes.push(write);
                let at = dice.index(list.len() + 1);
                list.insert(at, element);
            }
        }
        let finish = (clock, clock + dice.between(1, 4));
        history.transactions.push(transaction(level, finish, statements));
    }
    for statement in history.transactions.iter_mut().flat_map(|t| &mut t.statements) {
        let mut beginning = |row: u32| {
            let list = &lists[row as usize];
            seen(row, &list[..dice.index(list.len() + 1)])
        };
        for seen in &mut statement.reads {
            *seen = beginning(seen.row);
        }
        for scan in &mut statement.scans {
            scan.found = (0..2).map(&mut beginning).filter(|seen| !seen.list.is_empty()).collect();
        }
    }
    history.transactions.iter_mut().for_each(|transaction| transaction.session = dice.below(2) as u32);
    history.finals = (0..2).map(|row| seen(row, &lists[row as usize])).collect();
    history
}

/// Whether a read shows a later write of its own transaction. The judges would take it for an own write, so such histories are skipped.
fn is_plain(history: &History) -> bool {
    history.transactions.iter().all(|transaction| {
        let own: Vec<Element> =
            transaction.statements.iter().flat_map(|s| &s.writes).map(|w| w.element).collect();
        let mut lists = transaction.statements.iter().flat_map(|s| &s.reads).map(|seen| &seen.list);
        lists.all(|list| !own.iter().any(|element| list.contains(element)))
    })
}

/// Draws and compares many histories, and returns how many were good and bad.
pub(super) fn compare(
    levels: &[Level],
    scans: u64,
    expected: impl Fn(&History, &Index) -> bool,
    found: impl Fn(&History, &Index) -> Option<Finding>,
    agree: impl Fn(bool, bool) -> bool,
) -> (usize, usize) {
    const HISTORIES: usize = 20_000;
    let mut dice = Dice::new(7);
    let (mut good, mut bad) = (0, 0);
    while good + bad < HISTORIES {
        let history = draw(&mut dice, levels, scans);
        if !is_plain(&history) {
            continue;
        }
        let index = Index::new(&history);
        let (is_good, finding) = (expected(&history, &index), found(&history, &index));
        assert!(agree(is_good, finding.is_none()), "{is_good}, but {finding:?} of {history:#?}");
        if finding.is_none() { good += 1 } else { bad += 1 }
    }
    (good, bad)
}

fn judged_snapshots(history: &History, index: &Index) -> Option<Finding> {
    snapshots::graph(history, index, Age::Present, Sessions::Apart).judge(Age::Present)
}

#[test]
fn snapshots_agree_with_every_order() {
    let every_order =
        |history: &History, index: &Index| explains(&moments(history), 0, &BTreeMap::new(), index);
    let same = |one, other| one == other;
    let (good, bad) = compare(&[ReadCommitted, RepeatableRead], 0, every_order, judged_snapshots, same);
    assert!(good > 2_000 && bad > 2_000, "both kinds occur: {good} good, {bad} bad");
}

/// A row that a predicate missed may have been absent at several moments, so the judge may accept too much, but never reject a good history.
#[test]
fn scans_are_never_judged_too_hard() {
    let every_order =
        |history: &History, index: &Index| explains(&moments(history), 0, &BTreeMap::new(), index);
    let is_fair = |is_good: bool, is_clean: bool| !is_good || is_clean;
    let (good, bad) = compare(&[ReadCommitted, RepeatableRead], 50, every_order, judged_snapshots, is_fair);
    assert!(good > 1_000 && bad > 1_000, "both kinds occur: {good} good, {bad} bad");
}

/// The same for SERIALIZABLE: does any order of whole transactions explain every read?
pub(super) fn explains_serially(
    open: &[&Transaction],
    rows: &BTreeMap<u32, Vec<Element>>,
    end: &Index,
) -> bool {
    if open.is_empty() {
        return rows.iter().all(|(row, list)| end.list(*row) == list);
    }
    (0..open.len()).any(|next| {
        let mut rest = open.to_vec();
        let transaction = rest.remove(next);
        let begin_us = transaction.statements[0].begin_us;
        let now = |row: &u32| rows.get(row).map(Vec::as_slice).unwrap_or_default();
        let mut reads = transaction.statements.iter().flat_map(|statement| &statement.reads);
        if rest.iter().any(|other| other.end_us < begin_us) || reads.any(|seen| now(&seen.row) != seen.list) {
            return false;
        }
        let mut rows = rows.clone();
        for write in transaction.writes() {
            rows.entry(write.row).or_default().push(write.element);
        }
        explains_serially(&rest, &rows, end)
    })
}

#[test]
fn serializable_agrees_with_every_order() {
    let every_order = |history: &History, index: &Index| {
        let all: Vec<&Transaction> = history.transactions.iter().collect();
        explains_serially(&all, &BTreeMap::new(), index)
    };
    let judged =
        |history: &History, index: &Index| serializable::check(history, index, Age::Present, Sessions::Apart);
    let same = |one, other| one == other;
    let (good, bad) = compare(&[Serializable], 0, every_order, judged, same);
    assert!(good > 2_000 && bad > 2_000, "both kinds occur: {good} good, {bad} bad");
}
