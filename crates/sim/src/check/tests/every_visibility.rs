//! The definitions of the weak promises by brute force.
//!
//! Parallel Snapshot Isolation as Cerone, Bernardi and Gotsman define it ("A framework for transactional consistency models with
//! atomic visibility", CONCUR 2015): some assignment of visible transactions to each transaction is transitive, holds of two
//! writers of a row that one sees the other, and explains every read by the writers that are visible. For old snapshots,
//! some order of snapshots and commits does, as in [`brute_force`], but a snapshot may come at any time before its end.

use super::brute_force::{Moment, compare, explains_serially, moments};
use super::*;
use crate::check::graph::Age;

/// A set of events, as bits.
type Set = u32;

/// A transaction above READ COMMITTED, or a statement or the commit of one at READ COMMITTED.
#[derive(Default)]
struct Event {
    reads: Vec<(u32, Vec<Element>)>,
    writes: Vec<(u32, Element)>,
    /// Events that it must see, or whose visible events it must see if they write nothing.
    follows: Vec<usize>,
}

fn events(history: &History, sessions: Sessions) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut of_sessions: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for transaction in &history.transactions {
        let before = of_sessions.entry(transaction.session).or_default();
        let mut push = |event: Event, within: &[usize]| {
            let mut follows = within.to_vec();
            if sessions == Sessions::InOrder {
                follows.extend(before.iter());
            }
            events.push(Event { follows, ..event });
            before.push(events.len() - 1);
            events.len() - 1
        };
        let reads = |statement: &Statement| -> Vec<_> {
            statement.reads.iter().map(|seen| (seen.row, seen.list.clone())).collect()
        };
        let writes = transaction.writes().map(|write| (write.row, write.element)).collect();
        if transaction.keeps_snapshot() {
            let reads = transaction.statements.iter().flat_map(reads).collect();
            push(Event { reads, writes, follows: Vec::new() }, &[]);
        } else {
            let statements = transaction.statements.iter();
            let looks = statements.map(|s| push(Event { reads: reads(s), ..Event::default() }, &[]));
            let looks: Vec<usize> = looks.collect();
            if !writes.is_empty() {
                push(Event { writes, ..Event::default() }, &looks);
            }
        }
    }
    events
}

/// The search: takes up one event after another, each with every set of visible ones.
struct Search<'a> {
    events: &'a [Event],
    end: &'a Index,
    /// What led nowhere.
    failed: BTreeSet<Vec<Option<Set>>>,
}

impl Search<'_> {
    fn explains(&mut self, seen: &[Option<Set>]) -> bool {
        if seen.iter().all(Option::is_some) {
            return true;
        }
        if self.failed.contains(seen) {
            return false;
        }
        let writers = (0..seen.len()).filter(|e| seen[*e].is_some() && !self.events[*e].writes.is_empty());
        let writers: Set = writers.map(|event| 1 << event).sum();
        for next in (0..seen.len()).filter(|event| seen[*event].is_none()) {
            let mut set = writers;
            loop {
                if self.may_see(next, set, seen) {
                    let mut seen = seen.to_vec();
                    seen[next] = Some(set);
                    if self.explains(&seen) {
                        return true;
                    }
                }
                if set == 0 {
                    break;
                }
                set = (set - 1) & writers;
            }
        }
        self.failed.insert(seen.to_vec());
        false
    }

    fn may_see(&self, next: usize, set: Set, seen: &[Option<Set>]) -> bool {
        let event = &self.events[next];
        let has = |set: Set, event: usize| set & 1 << event != 0;
        let is_closed =
            (0..seen.len()).filter(|e| has(set, *e)).all(|e| seen[e].is_some_and(|s| s & !set == 0));
        let follows = event.follows.iter().all(|before| {
            let is_seen = self.events[*before].writes.is_empty() || has(set, *before);
            is_seen && seen[*before].is_some_and(|s| s & !set == 0)
        });
        let visible = |row: u32| -> Vec<Element> {
            let writes = |e: &Element| (0..seen.len()).find(|w| self.events[*w].writes.contains(&(row, *e)));
            let is_visible = |e: &Element| writes(e).is_some_and(|writer| has(set, writer));
            self.end.list(row).iter().filter(|e| is_visible(e)).copied().collect()
        };
        let before = |row: u32, element: Element| {
            let list = self.end.list(row);
            &list[..list.iter().position(|e| *e == element).unwrap()]
        };
        is_closed
            && follows
            && event.reads.iter().all(|(row, list)| visible(*row) == *list)
            && event.writes.iter().all(|(row, element)| visible(*row) == before(*row, *element))
    }
}

fn compare_parallel(levels: &[Level], sessions: Sessions) {
    let every_visibility = |history: &History, index: &Index| {
        let events = events(history, sessions);
        let mut search = Search { events: &events, end: index, failed: BTreeSet::new() };
        search.explains(&vec![None; events.len()])
    };
    let judged = |history: &History, index: &Index| {
        parallel::check(snapshots::graph(history, index, Age::Any, sessions))
    };
    let (good, bad) = compare(levels, 0, every_visibility, judged, |one, other| one == other);
    assert!(good > 2_000 && bad > 2_000, "both kinds occur: {good} good, {bad} bad");
}

#[test]
fn parallel_snapshots_agree_with_every_visibility() {
    compare_parallel(&[RepeatableRead], Sessions::Apart);
}

#[test]
fn parallel_statements_agree_with_every_visibility() {
    compare_parallel(&[ReadCommitted, RepeatableRead], Sessions::Apart);
}

#[test]
fn parallel_sessions_agree_with_every_visibility() {
    compare_parallel(&[ReadCommitted, RepeatableRead], Sessions::InOrder);
}

/// The moments of a history in which snapshots may be old.
struct OldMoments<'a> {
    moments: Vec<Moment>,
    history: &'a History,
    sessions: Sessions,
    end: &'a Index,
}

impl OldMoments<'_> {
    fn explain(&self, placed: &[usize]) -> bool {
        let moments = &self.moments;
        let now = |row: u32| {
            let writes = placed.iter().flat_map(|m| &moments[*m].writes).filter(move |(of, _)| *of == row);
            writes.map(|(_, element)| *element).collect::<Vec<Element>>()
        };
        if placed.len() == moments.len() {
            return (0..2).all(|row| now(row) == self.end.list(row));
        }
        let is_open = |other: usize| !placed.contains(&other);
        (0..moments.len()).filter(|next| is_open(*next)).any(|next| {
            let moment = &moments[next];
            let begin_us = if moment.writes.is_empty() { 0 } else { moment.begin_us };
            let must_come_first = |other: usize| {
                let session = |m: &Moment| self.history.transactions[m.of].session;
                let is_within = moments[other].of == moment.of && !moment.writes.is_empty();
                let is_in_order =
                    self.sessions == Sessions::InOrder && session(&moments[other]) == session(moment);
                moments[other].end_us < begin_us || other < next && (is_within || is_in_order)
            };
            let is_too_early = (0..moments.len()).filter(|o| *o != next && is_open(*o)).any(must_come_first);
            if is_too_early || moment.reads.iter().any(|(row, list)| now(*row) != *list) {
                return false;
            }
            if !self.is_based_on_snapshot(moment, placed) {
                return false;
            }
            self.explain(&[placed, &[next]].concat())
        })
    }

    /// Nothing was written to the rows of a commit since the snapshot of its transaction.
    fn is_based_on_snapshot(&self, commit: &Moment, placed: &[usize]) -> bool {
        let keeps = self.history.transactions[commit.of].keeps_snapshot();
        let Some(snapshot) = commit.after.filter(|_| keeps && !commit.writes.is_empty()) else { return true };
        let since = placed.iter().skip_while(|moment| **moment != snapshot);
        let mut written = since.flat_map(|moment| &self.moments[*moment].writes).map(|(row, _)| *row);
        !written.any(|row| commit.writes.iter().any(|(own, _)| *own == row))
    }
}

fn compare_old(sessions: Sessions) {
    let every_order = |history: &History, end: &Index| {
        OldMoments { moments: moments(history), history, sessions, end }.explain(&[])
    };
    let judged = |history: &History, index: &Index| {
        snapshots::graph(history, index, Age::Any, sessions).judge(Age::Any)
    };
    let levels = [ReadCommitted, RepeatableRead];
    let (good, bad) = compare(&levels, 0, every_order, judged, |one, other| one == other);
    assert!(good > 2_000 && bad > 2_000, "both kinds occur: {good} good, {bad} bad");
}

#[test]
fn old_snapshots_agree_with_every_order() {
    compare_old(Sessions::Apart);
}

#[test]
fn old_snapshots_of_sessions_agree_with_every_order() {
    compare_old(Sessions::InOrder);
}

#[test]
fn serializable_with_old_readers_agrees_with_every_order() {
    let every_order = |history: &History, index: &Index| {
        let mut history = history.clone();
        for reader in history.transactions.iter_mut().filter(|t| t.writes().next().is_none()) {
            reader.statements[0].begin_us = 0;
        }
        let all: Vec<&Transaction> = history.transactions.iter().collect();
        explains_serially(&all, &BTreeMap::new(), index)
    };
    let judged =
        |history: &History, index: &Index| serializable::check(history, index, Age::Any, Sessions::Apart);
    let (good, bad) = compare(&[Serializable], 0, every_order, judged, |one, other| one == other);
    assert!(good > 2_000 && bad > 2_000, "both kinds occur: {good} good, {bad} bad");
}

/// With predicates, too: what old snapshots explain, parallel snapshots explain.
#[test]
fn old_snapshots_are_parallel_snapshots() {
    let graph =
        |history: &History, index: &Index| snapshots::graph(history, index, Age::Any, Sessions::Apart);
    let is_old = |history: &History, index: &Index| graph(history, index).judge(Age::Any).is_none();
    let judged = |history: &History, index: &Index| parallel::check(graph(history, index));
    let levels = [ReadCommitted, RepeatableRead];
    let (good, bad) = compare(&levels, 50, is_old, judged, |is_old, is_parallel| is_parallel || !is_old);
    assert!(good > 1_000 && bad > 1_000, "both kinds occur: {good} good, {bad} bad");
}
