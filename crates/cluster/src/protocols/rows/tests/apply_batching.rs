//! Batches of refreshes: when each is sent.

use super::*;
use crate::ids::DatabaseId;
use crate::record::Statement;

const PAUSE_US: u64 = 10_000;

/// A record of the anchor's is durable and committed there; what the replicas 1 and 2 are sent.
fn record(bench: &mut Bench, table: u32) -> Vec<String> {
    bench.begin(S1, false);
    let version = bench.protocol.last.next();
    bench.finish(S1, table, version.0);
    let mut words = bench.feed(Event::Logged { upto: version });
    words.extend(bench.feed(Event::Executed { session: S1 }));
    words.extend(bench.feed(Event::Committed { session: S1 }));
    words.retain(|word| word.starts_with("apply") || word.starts_with("wake at"));
    words
}

/// The first record is applied everywhere, and then a few more come at once.
fn after_a_few(pause_us: u64) -> (Bench, u64) {
    let mut bench = Bench::batching(pause_us);
    assert_eq!(record(&mut bench, 7), ["apply 1..1 at 1", "apply 1..1 at 2"], "after a quiet time");
    bench.applied(1, 1);
    let rested = bench.now + pause_us;
    bench.applied(2, 1);
    assert_eq!(record(&mut bench, 7), [format!("wake at {rested}")]);
    assert!(record(&mut bench, 8).is_empty(), "the driver comes back anyhow");
    (bench, rested)
}

fn wake_up(bench: &mut Bench, at: u64) -> Vec<String> {
    bench.now = at - 100;
    bench.feed(Event::WakeUp)
}

#[test]
fn versions_that_are_not_waited_for_go_together_after_a_pause() {
    let (mut bench, rested) = after_a_few(PAUSE_US);
    assert_eq!(
        wake_up(&mut bench, rested),
        ["apply 2..3 at 1".to_owned(), format!("wake at {}", rested + 100)]
    );
    assert_eq!(record(&mut bench, 7), ["apply 2..4 at 2"], "it need not be told that the time has come");
    assert_eq!(bench.applied(1, 3), Vec::<String>::new(), "the driver comes back anyhow, ...");
    let again = bench.now + PAUSE_US;
    assert_eq!(bench.feed(Event::WakeUp), [format!("wake at {again}")], "... and is told to come again");
    bench.applied(2, 4);
    assert_eq!(wake_up(&mut bench, again), ["apply 4..4 at 1"]);
}

#[test]
fn a_version_that_a_statement_waits_for_goes_at_once_with_all_others() {
    let (mut bench, _) = after_a_few(PAUSE_US);
    let reads = Reads::Tables([DatabaseId::FIRST.table(7)].into());
    let at = Some(ReplicaId(1));
    let read = Event::Read {
        session: S2,
        touches: reads.touches(),
        reads,
        at,
        cost_us: 1,
        near: None,
        catalogue: Version::ZERO,
        kind: None,
    };
    assert_eq!(bench.feed(read), ["apply 2..3 at 1"]);
    assert!(record(&mut bench, 8).is_empty());
    assert_eq!(bench.applied(1, 3), ["execute 2 at 1"], "later versions are collected");
}

#[test]
fn a_waiter_for_a_version_is_seen_when_that_is_durable() {
    let (mut bench, _) = after_a_few(PAUSE_US);
    bench.begin(S1, false);
    bench.finish(S1, 7, 3);
    // Its row was written by what is in the log only.
    let needs = writing(Level::ReadCommitted, &[3]);
    let (session, level, home) = (S2, Level::ReadCommitted, Home::At(ReplicaId(1)));
    let begin = Event::Begin { session, level, nonce: Nonce(2), home, needs, foreseen: Foreseen::default() };
    assert_eq!(bench.feed(begin), Vec::<String>::new());
    let logged = bench.feed(Event::Logged { upto: Version(4) });
    assert_eq!(logged, ["acknowledge 1", "commit 1", "apply 2..4 at 1"], "not at replica 2");
}

#[test]
fn versions_before_a_commit_of_its_own_go_at_once() {
    let (mut bench, _) = after_a_few(PAUSE_US);
    let needs = writing(Level::ReadCommitted, &[70]);
    let (session, level, home) = (S2, Level::ReadCommitted, Home::At(ReplicaId(1)));
    let begin = Event::Begin { session, level, nonce: Nonce(2), home, needs, foreseen: Foreseen::default() };
    assert_eq!(bench.feed(begin), ["execute 2 at 1"]);
    bench.finish(S2, 7, 70);
    let logged = bench.feed(Event::Logged { upto: Version(4) });
    assert_eq!(logged, ["acknowledge 2", "apply 2..3 at 1"]);
    assert_eq!(bench.applied(1, 3), ["commit 2"]);
}

#[test]
fn a_version_that_a_transaction_lost_against_goes_at_once() {
    let (mut bench, _) = after_a_few(PAUSE_US);
    let needs = writing(Level::ReadCommitted, &[70]);
    let (session, level, home) = (S2, Level::ReadCommitted, Home::At(ReplicaId(1)));
    let begin = Event::Begin { session, level, nonce: Nonce(2), home, needs, foreseen: Foreseen::default() };
    assert_eq!(bench.feed(begin), ["execute 2 at 1"]);
    // It turns out to have written what version 2 wrote.
    assert_eq!(bench.finish(S2, 7, 2), ["conflict 2 with 2", "apply 2..3 at 1"]);
}

#[test]
fn replicas_that_are_held_or_drained_collect_no_batch() {
    let (mut bench, _) = after_a_few(PAUSE_US);
    let held = bench.feed(Event::Hold { session: S3 });
    assert_eq!(held, ["apply 2..3 at 1", "apply 2..3 at 2"]);
    bench.applied(1, 3);
    assert_eq!(bench.applied(2, 3), ["held 3"]);
    bench.feed(Event::Release { session: S3 });
    assert!(record(&mut bench, 7).is_empty());
    let drained = Event::Drained { replica: ReplicaId(2), is_drained: true };
    assert_eq!(bench.feed(drained), ["apply 4..4 at 2"]);
}

#[test]
fn a_schema_change_and_a_full_batch_go_at_once() {
    let (mut bench, _) = after_a_few(PAUSE_US);
    bench.begin(S1, false);
    let mut body = RecordBuilder::new(DatabaseId::FIRST);
    body.push_statement(&Statement::default()).unwrap();
    let (body, reads) = (Box::new(body.seal()), Reads::All);
    let claims = claimed(Claims { everything: true, ..Claims::default() });
    bench.feed(Event::Finish { session: S1, body, claims, changed: Vec::new(), reads });
    let logged = bench.feed(Event::Logged { upto: Version(4) });
    assert_eq!(logged, ["acknowledge 1", "commit 1", "apply 2..4 at 1", "apply 2..4 at 2"]);
    let mut bench = after_a_few(100 * PAUSE_US).0;
    let words: Vec<String> = (0..REFRESH_VERSIONS_MAX - 2).flat_map(|_| record(&mut bench, 7)).collect();
    let upto = REFRESH_VERSIONS_MAX + 1;
    assert_eq!(words, [format!("apply 2..{upto} at 1"), format!("apply 2..{upto} at 2")]);
}
