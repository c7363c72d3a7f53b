//! Commit groups: what is in them, and when they are sent.

use super::*;

/// A transaction at this replica, which writes a row of its own and has finished.
fn finishes(bench: &mut Bench, session: u64, home: u16) -> Vec<String> {
    finishes_at(bench, session, home, Level::ReadCommitted)
}

fn finishes_at(bench: &mut Bench, session: u64, home: u16, level: Level) -> Vec<String> {
    let (key, session, nonce) = (session, SessionId(session), Nonce(session));
    let (needs, home) = (writing(level, &[key]), Home::At(ReplicaId(home)));
    bench.feed(Event::Begin { session, level, nonce, home, needs, foreseen: Foreseen::default() });
    bench.feed(Event::Executed { session });
    bench.finish_with(session, &[rows(&[key])], Reads::Tables([].into()))
}

fn logged(bench: &mut Bench, upto: u64) -> Vec<String> {
    bench.feed(Event::Logged { upto: Version(upto) })
}

fn committed(bench: &mut Bench, session: u64) -> Vec<String> {
    bench.feed(Event::Committed { session: SessionId(session) })
}

fn applied_at(bench: &Bench, index: usize) -> u64 {
    bench.protocol.replicas[index].applied.0
}

/// Version 1 of replica 0 is durable; then 2, 3 and 4 of replica 1.
fn three_of_one_home() -> Bench {
    let mut bench = Bench::new();
    assert_eq!(finishes(&mut bench, 1, 0), ["append 1"]);
    for session in [2, 3, 4] {
        assert!(finishes(&mut bench, session, 1).is_empty(), "something is on its way to the log");
    }
    let words = logged(&mut bench, 1);
    assert_eq!(words[..2], ["acknowledge 1", "commit 1"]);
    assert_eq!(words[2..], ["apply 1..1 at 1", "apply 1..1 at 2", "append 2", "append 3", "append 4"]);
    bench
}

#[test]
fn transactions_that_finish_meanwhile_are_appended_home_by_home() {
    let mut bench = Bench::new();
    assert_eq!(finishes(&mut bench, 1, 1), ["append 1"]);
    for (session, home) in [(2, 0), (3, 1), (4, 2), (5, 0), (6, 1)] {
        finishes(&mut bench, session, home);
    }
    logged(&mut bench, 1);
    let sessions: Vec<u64> = bench.protocol.versions.values().map(|assigned| assigned.session.0).collect();
    assert_eq!(sessions, [1, 3, 6, 4, 2, 5]);
}

#[test]
fn a_commit_group_is_committed_together_and_counts_in_its_order() {
    let mut bench = three_of_one_home();
    bench.applied(1, 1);
    let words = logged(&mut bench, 4);
    let commits: Vec<_> = words.iter().filter(|word| word.starts_with("commit")).collect();
    assert_eq!(commits, ["commit 2", "commit 3", "commit 4"]);
    committed(&mut bench, 3);
    assert_eq!(applied_at(&bench, 1), 1, "the one before is not there for sure");
    committed(&mut bench, 2);
    assert_eq!(applied_at(&bench, 1), 3);
    committed(&mut bench, 4);
    assert_eq!(applied_at(&bench, 1), 4);
}

#[test]
fn a_commit_group_is_one_refresh_elsewhere() {
    let mut bench = three_of_one_home();
    bench.applied(1, 1);
    logged(&mut bench, 2);
    assert_eq!(logged(&mut bench, 4).iter().filter(|word| word.starts_with("commit")).count(), 0);
    // Home had sent the first of them alone; the other two go together.
    assert_eq!(committed(&mut bench, 2), ["commit 3", "commit 4"]);
    assert_eq!(bench.applied(2, 1), ["apply 2..4 at 2"], "not 2..3");
    // The limits of a batch give way.
    let many = 2 * REFRESH_VERSIONS_MAX;
    for session in 5..5 + many {
        finishes(&mut bench, session, 1);
    }
    assert_eq!(finishes(&mut bench, 999, 1), Vec::<String>::new());
    committed(&mut bench, 3);
    committed(&mut bench, 4);
    logged(&mut bench, 5);
    committed(&mut bench, 5);
    bench.applied(2, 4);
    logged(&mut bench, 5 + many);
    let upto = applied_at(&bench, 1) + COMMITS_TOGETHER_MAX;
    for (version, assigned) in
        bench.protocol.versions.range(Version(applied_at(&bench, 1) + 1)..=Version(upto))
    {
        assert_eq!((version, assigned.group_end), (version, Version(upto)));
    }
    for last in applied_at(&bench, 1) + 1..=upto {
        let first = Version((last + 1).saturating_sub(REFRESH_VERSIONS_MAX).max(1));
        bench.protocol.replicas[2].applied = Version(first.0 - 1);
        assert!(bench.protocol.end_of_batch(2, first).0 >= upto);
    }
}

#[test]
fn versions_that_another_replica_has_shown_apart_are_committed_apart() {
    let mut bench = three_of_one_home();
    // Replica 1, the home, is still busy with version 1; replica 2 goes ahead.
    bench.applied(2, 1);
    assert!(logged(&mut bench, 2).contains(&"apply 2..2 at 2".to_owned()));
    logged(&mut bench, 4);
    assert_eq!(bench.applied(1, 1), ["commit 2"], "replica 2 may show the second without the third");
    assert_eq!(committed(&mut bench, 2), ["commit 3", "commit 4"]);
}

#[test]
fn versions_that_a_replica_has_when_it_comes_up_are_committed_apart() {
    let mut bench = three_of_one_home();
    let (replica, incarnation) = (ReplicaId(2), Incarnation(1));
    bench.feed(Event::ReplicaLost { replica, incarnation });
    logged(&mut bench, 4);
    bench.feed(Event::ReplicaUp { replica, incarnation: Incarnation(2), applied: Version(3) });
    assert_eq!(bench.applied(1, 1), ["commit 2", "commit 3"]);
}

#[test]
fn a_waiter_for_a_replica_does_not_read_inside_a_commit_group() {
    let mut bench = three_of_one_home();
    let (replica, incarnation) = (ANCHOR, Incarnation(1));
    bench.feed(Event::ReplicaLost { replica, incarnation });
    logged(&mut bench, 3);
    // It needs version 3, at the anchor, which is not there.
    let (session, reads) = (SessionId(9), Reads::Catalogue);
    bench.feed(Event::Read {
        session,
        touches: reads.touches(),
        reads,
        at: None,
        cost_us: 1,
        near: None,
        catalogue: Version::ZERO,
        kind: None,
    });
    logged(&mut bench, 4);
    assert_eq!(bench.applied(1, 1), ["commit 2", "commit 3", "commit 4"]);
    // Home shows the last of them first.
    committed(&mut bench, 4);
    let (incarnation, applied) = (Incarnation(2), Version(3));
    let up = bench.feed(Event::ReplicaUp { replica, incarnation, applied });
    assert_eq!(up, ["apply 4..4 at 0"], "version 3 is not shown without version 4");
    let upto = Version(4);
    assert_eq!(bench.feed(Event::Applied { replica, incarnation, upto })[..1], ["execute 9 at 0"]);
}

#[test]
fn a_serializable_transaction_and_a_schema_change_are_committed_alone() {
    let mut bench = Bench::new();
    finishes(&mut bench, 1, 0);
    finishes(&mut bench, 2, 1);
    finishes_at(&mut bench, 3, 1, Level::Serializable);
    finishes_at(&mut bench, 4, 1, Level::RepeatableRead);
    logged(&mut bench, 1);
    bench.applied(1, 1);
    let words = logged(&mut bench, 4);
    assert_eq!(words.iter().filter(|word| word.starts_with("commit")).count(), 1);
    assert_eq!(committed(&mut bench, 2), ["commit 3"]);
    assert_eq!(committed(&mut bench, 3), ["commit 4"]);
}

#[test]
fn a_home_that_is_lost_among_them_gets_the_rest_from_the_log() {
    let mut bench = three_of_one_home();
    bench.applied(1, 1);
    logged(&mut bench, 4);
    committed(&mut bench, 3);
    let (replica, incarnation) = (ReplicaId(1), Incarnation(1));
    let lost = bench.feed(Event::ReplicaLost { replica, incarnation });
    assert_eq!(lost, ["reset 1", "home lost 2", "home lost 4"]);
    let (incarnation, applied) = (Incarnation(2), Version(3));
    let up = bench.feed(Event::ReplicaUp { replica, incarnation, applied });
    assert_eq!(up, ["apply 4..4 at 1"]);
}

#[test]
fn a_transaction_that_finishes_after_an_answer_is_appended_after_its_commit_is_sent() {
    let mut bench = three_of_one_home();
    logged(&mut bench, 4);
    assert!(finishes(&mut bench, 5, 1).is_empty() && finishes(&mut bench, 6, 1).is_empty());
    assert_eq!(finishes(&mut bench, 7, 2), ["append 5"], "home by home");
    logged(&mut bench, 5);
    assert_eq!(bench.applied(1, 1), ["commit 2", "commit 3", "commit 4", "append 6", "append 7"]);
    logged(&mut bench, 7);
    assert!(committed(&mut bench, 2).is_empty() && committed(&mut bench, 3).is_empty());
    assert_eq!(committed(&mut bench, 4), ["apply 5..5 at 1"]);
    assert_eq!(bench.applied(1, 5), ["commit 5", "commit 6"]);
}
