//! Nodes that are lost, and sessions that ask for an outcome: see [`super::super::crews`].

use super::*;
use crate::event::Found;
use crate::ids::CrewId;

const THEIRS: CrewId = CrewId(2);
const T1: SessionId = SessionId::of(THEIRS, 1);
const T2: SessionId = SessionId::of(THEIRS, 2);

fn lost() -> Event {
    Event::NodeLost { crew: THEIRS }
}

#[test]
fn what_a_lost_node_has_open_is_over_and_others_go_on() {
    let mut bench = Bench::new();
    bench.roam(T1, Level::Serializable, &[5]);
    assert!(bench.roam(S1, Level::Serializable, &[5]).is_empty(), "session 2.1 has the row");
    assert!(bench.roam(T2, Level::Serializable, &[5]).is_empty());
    assert_eq!(bench.feed(lost()).len(), 1, "session 1 goes on, and nothing is left of the others");
    assert_eq!(bench.protocol.transactions.len(), 1);
    assert!(bench.protocol.running.keys().all(|session| session.crew() != THEIRS));
}

/// "queued Finishes": their locks may have fallen with their connections, and their clients were told nothing.
#[test]
fn what_a_lost_node_has_finished_is_dropped_unless_it_is_appended() {
    let mut bench = Bench::new();
    for session in [T1, T2, S1] {
        bench.begin(session, false);
    }
    assert_eq!(bench.finish(T1, 7, 1).len(), 1, "it is appended");
    assert!(bench.finish(T2, 7, 1).is_empty(), "it waits for the COMMIT of the first");
    let lost = bench.feed(lost());
    assert_eq!(lost[0], "reset 0", "home may never get the COMMIT");
    assert_eq!(lost.iter().filter(|word| word.starts_with("append")).count(), 0);
    assert_eq!(bench.feed(Event::Logged { upto: Version(1) })[0], format!("acknowledge {T1}"));
    assert!(bench.protocol.transactions.is_empty(), "only the log has it now");
    assert_eq!(bench.protocol.last, Version(1), "the dropped one is never appended");
}

#[test]
fn a_home_without_versions_of_the_lost_node_goes_on() {
    let mut bench = Bench::new();
    bench.begin(T1, false);
    bench.begin(S1, false);
    let lost = bench.feed(lost());
    assert!(lost.is_empty(), "{lost:?}");
    assert_eq!(bench.finish(S1, 7, 1), ["append 1"]);
}

#[test]
fn an_outcome_is_told_once_it_is_durable() {
    let mut bench = Bench::new();
    bench.begin(T1, false);
    bench.finish(T1, 7, 1);
    bench.feed(lost());
    let again = SessionId::of(CrewId(3), 1);
    assert!(bench.feed(Event::Outcome { session: again, found: Found::At(Version(1)) }).is_empty());
    let told = bench.feed(Event::Logged { upto: Version(1) });
    assert!(told.contains(&format!("acknowledge {again}")) && told.contains(&format!("home lost {again}")));
    assert_eq!(bench.feed(Event::Outcome { session: again, found: Found::At(Version(1)) }).len(), 2);
}

#[test]
fn a_transaction_that_the_log_lacks_is_aborted() {
    let mut bench = Bench::new();
    assert_eq!(bench.feed(Event::Outcome { session: S1, found: Found::Nowhere }), ["abort 1"]);
    assert_eq!(bench.feed(Event::Outcome { session: S1, found: Found::Forgotten }), ["forgotten 1"]);
}

#[test]
fn an_outcome_is_not_told_from_a_log_that_begins_behind_it() {
    let after = Version(5);
    assert_eq!(Found::of(None, after, Version(6)), Found::Nowhere);
    assert_eq!(Found::of(None, after, Version(7)), Found::Forgotten);
    assert_eq!(Found::of(Some(Version(9)), after, Version(7)), Found::At(Version(9)));
}

#[test]
fn a_hold_ends_with_its_node() {
    let mut bench = Bench::new();
    assert_eq!(bench.feed(Event::Hold { session: T1 }).len(), 1);
    bench.begin(S1, false);
    assert!(bench.finish(S1, 7, 1).is_empty(), "nothing is appended during a hold");
    assert_eq!(bench.feed(lost()), ["append 1"]);
}
