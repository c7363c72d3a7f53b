//! Replicas that join, leave and are drained.

use super::*;
use crate::placement::{Copies, ReplicaSet};

const NEW: ReplicaId = ReplicaId(3);

fn up(replica: ReplicaId, incarnation: u64, applied: u64) -> Event {
    Event::ReplicaUp { replica, incarnation: Incarnation(incarnation), applied: Version(applied) }
}

/// The replicas at which so many reads of table 7 run.
fn readers(bench: &mut Bench, count: u64) -> BTreeSet<String> {
    (100..100 + count).flat_map(|session| bench.read(SessionId(session), 7)).collect()
}

#[test]
fn a_new_replica_is_asked_for_nothing_before_it_says_what_it_has() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.finish(S1, 7, 1);
    bench.feed(Event::Logged { upto: Version(1) });
    assert!(bench.feed(Event::Joined { replica: NEW }).is_empty());
    assert!(bench.feed(up(NEW, 1, 1)).is_empty(), "it has no data of the cluster yet");
    bench.feed(Event::Committed { session: S1 });
    bench.applied(1, 1);
    bench.applied(2, 1);
    assert_eq!(readers(&mut bench, 8).len(), 8);
    assert_eq!(bench.protocol.replicas()[3].reads, 0);
    bench.feed(Event::Rebuilt { replica: NEW });
    assert_eq!(bench.protocol.replicas()[3].reads, 0);
    assert_eq!(bench.feed(up(NEW, 2, 0)), ["apply 1..1 at 3"], "the copy was older than what is needed");
    let applied = Event::Applied { replica: NEW, incarnation: Incarnation(2), upto: Version(1) };
    bench.feed(applied);
    readers(&mut bench, 8);
    assert!(bench.protocol.replicas()[3].reads > 0);
}

#[test]
fn updates_begin_at_a_new_replica_when_it_has_what_was_assigned_before_it_joined() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.finish(S1, 7, 1);
    bench.feed(Event::Joined { replica: NEW });
    bench.feed(Event::Rebuilt { replica: NEW });
    bench.feed(up(NEW, 1, 0));
    let needs = writing(Level::ReadCommitted, &[5]);
    let begin = Event::Begin {
        session: S2,
        level: Level::ReadCommitted,
        nonce: Nonce(2),
        home: Home::At(NEW),
        needs,
        foreseen: Foreseen::default(),
    };
    assert!(bench.feed(begin).is_empty(), "version 1 is on its way");
    bench.feed(Event::Logged { upto: Version(1) });
    let applied = Event::Applied { replica: NEW, incarnation: Incarnation(1), upto: Version(1) };
    assert_eq!(bench.feed(applied), ["execute 2 at 3"]);
}

#[test]
fn one_that_left_is_lost_for_ever_and_its_number_can_be_given_again() {
    let mut bench = Bench::new();
    let gone = ReplicaId(2);
    let needs = writing(Level::ReadCommitted, &[5]);
    let (session, level, nonce) = (S1, Level::ReadCommitted, Nonce(1));
    bench.feed(Event::Begin {
        session,
        level,
        nonce,
        home: Home::At(gone),
        needs,
        foreseen: Foreseen::default(),
    });
    assert_eq!(bench.feed(Event::Left { replica: gone }), ["abort 1"]);
    assert!(bench.feed(up(gone, 2, 0)).is_empty());
    assert_eq!(bench.protocol.replicas().len(), 2, "it is no member");
    assert!(!readers(&mut bench, 8).iter().any(|read| read.ends_with("at 2")));
    assert!(bench.feed(Event::Rebuilt { replica: gone }).is_empty());
    bench.feed(Event::Joined { replica: gone });
    assert_eq!(bench.protocol.replicas()[2].state, State::Quarantined);
    bench.feed(Event::Rebuilt { replica: gone });
    bench.feed(up(gone, 3, 0));
    assert!(readers(&mut bench, 8).iter().any(|read| read.ends_with("at 2")));
}

#[test]
fn a_waiter_for_an_anchor_that_left_runs_when_its_number_is_back() {
    let mut bench = Bench::new();
    let anchor = ReplicaId(0);
    for other in [1, 2] {
        bench.feed(Event::Drained { replica: ReplicaId(other), is_drained: true });
    }
    bench.feed(Event::Left { replica: anchor });
    let needs = writing(Level::ReadCommitted, &[5]);
    let (session, level, nonce) = (S1, Level::ReadCommitted, Nonce(1));
    let begin =
        Event::Begin { session, level, nonce, home: Home::Anchor, needs, foreseen: Foreseen::default() };
    assert!(bench.feed(begin).is_empty(), "no other replica takes new work");
    bench.feed(Event::Joined { replica: anchor });
    bench.feed(Event::Rebuilt { replica: anchor });
    let ran = bench.feed(up(anchor, 2, 0));
    assert!(ran.contains(&"execute 1 at 0".to_owned()), "{ran:?}");
}

#[test]
fn an_anchor_that_leaves_is_followed_at_once() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    assert_eq!(bench.feed(Event::Left { replica: ANCHOR })[..2], ["abort 1", "anchor 1"]);
    assert_eq!(bench.begin(S2, false), ["execute 2 at 1"]);
    assert!(bench.feed(Event::TakeOver { from: ANCHOR }).is_empty());
}

/// A driver that did not ask whether the replica may leave.
#[test]
fn the_last_holder_of_a_table_is_lost_but_stays_a_member() {
    let mut placement = Placement::full(3);
    placement.restrict(TABLE, Copies::Whole(ReplicaSet::first(1)));
    let mut bench = Bench::placed(placement);
    let refused = LastHolder { replica: ANCHOR, table: TABLE, part: None };
    assert_eq!(bench.protocol.may_leave(ANCHOR), Err(refused));
    assert_eq!(bench.protocol.may_leave(ReplicaId(2)), Ok(()));
    bench.begin(S1, false);
    assert_eq!(bench.feed(Event::Left { replica: ANCHOR }), ["reset 0", "abort 1"]);
    assert_eq!(bench.protocol.replicas()[0].state, State::Down);
    assert!(bench.read(S2, 7).is_empty(), "a read waits for the one replica that has the table");
    bench.feed(Event::Left { replica: ReplicaId(2) });
    assert!(bench.feed(up(ANCHOR, 2, 0)).contains(&"execute 2 at 0".to_owned()));
    assert!(bench.protocol.holdings(ANCHOR).is_everything());
    assert!(!bench.protocol.holdings(ReplicaId(1)).holds(TABLE));
}

#[test]
fn one_that_is_drained_applies_everything_and_takes_nothing_new() {
    let mut bench = Bench::new();
    let drained = ReplicaId(2);
    let open = Event::Begin {
        session: S1,
        level: Level::ReadCommitted,
        nonce: Nonce(1),
        home: Home::At(drained),
        needs: writing(Level::ReadCommitted, &[5]),
        foreseen: Foreseen::default(),
    };
    assert_eq!(bench.feed(open), ["execute 1 at 2"]);
    assert!(bench.feed(Event::Drained { replica: drained, is_drained: true }).is_empty());
    assert!(!readers(&mut bench, 8).iter().any(|read| read.ends_with("at 2")));
    assert_eq!(bench.protocol.replicas()[2].open, 1);
    // What is open there goes on to its end.
    bench.feed(Event::Executed { session: S1 });
    assert_eq!(bench.write(S1, &[6]), ["execute 1 at 2"]);
    bench.feed(Event::Executed { session: S1 });
    assert_eq!(bench.finish(S1, 7, 5), ["append 1"]);
    let logged = bench.feed(Event::Logged { upto: Version(1) });
    assert!(logged.contains(&"commit 1".to_owned()), "{logged:?}");
    bench.feed(Event::Committed { session: S1 });
    assert_eq!(bench.protocol.replicas()[2].open, 0);
    let wished = writing(Level::ReadCommitted, &[9]);
    let home = Home::At(drained);
    let begin = Event::Begin {
        session: S2,
        level: Level::ReadCommitted,
        nonce: Nonce(2),
        home,
        needs: wished,
        foreseen: Foreseen::default(),
    };
    let begun = bench.feed(begin);
    assert!(!begun.iter().any(|effect| effect.ends_with("at 2")), "{begun:?}");
    bench.feed(Event::Drained { replica: drained, is_drained: false });
    assert!(readers(&mut bench, 8).iter().any(|read| read.ends_with("at 2")));
}

#[test]
fn an_anchor_that_is_drained_gives_its_place_up_and_only_if_another_one_can_have_it() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    let drain = |replica| Event::Drained { replica, is_drained: true };
    assert_eq!(bench.feed(drain(ANCHOR)), ["reset 0", "abort 1", "anchor 1"]);
    bench.feed(up(ANCHOR, 2, 0));
    assert_eq!(bench.begin(S2, false), ["execute 2 at 1"], "it is there again, and keeps out of it");
    bench.feed(drain(ReplicaId(2)));
    assert!(bench.feed(drain(ReplicaId(1))).is_empty(), "no other replica is left");
    assert!(!bench.protocol.replicas()[1].is_drained);
    // A drained one does not become the anchor, however long the anchor is lost.
    bench.feed(Event::ReplicaLost { replica: ReplicaId(1), incarnation: Incarnation(1) });
    assert!(bench.feed(Event::TakeOver { from: ReplicaId(1) }).is_empty());
    assert_eq!(bench.feed(Event::Drained { replica: ReplicaId(2), is_drained: false })[0], "anchor 2");
}

#[test]
fn a_read_that_waits_does_not_go_where_its_table_is_held_no_more() {
    let mut bench = Bench::new();
    for lost in [0, 1, 2] {
        bench.feed(Event::ReplicaLost { replica: ReplicaId(lost), incarnation: Incarnation(1) });
    }
    assert!(bench.read(S1, 7).is_empty(), "no replica is up");
    let holders = Copies::Whole(ReplicaSet::first(2));
    assert!(bench.feed(Event::Placed { table: TABLE, copies: Some(holders) }).is_empty());
    assert!(bench.feed(up(ReplicaId(2), 2, 0)).is_empty(), "its copy of the table is empty");
    assert_eq!(bench.read(S2, 8), ["execute 2 at 2"], "it holds everything else");
    let came = bench.feed(up(ReplicaId(1), 2, 0));
    assert!(came.contains(&"execute 1 at 1".to_owned()), "{came:?}");
    bench.feed(Event::Executed { session: S1 });
    bench.feed(Event::Placed { table: TABLE, copies: Some(Copies::Whole(ReplicaSet::first(3))) });
    bench.feed(Event::Joined { replica: NEW });
    bench.feed(Event::Placed { table: TABLE, copies: None });
    assert!(
        !bench.protocol.holdings(NEW).holds(TABLE),
        "it has joined meanwhile, and has no row of the table"
    );
    bench.feed(Event::Left { replica: NEW });
    bench.feed(Event::Placed { table: TABLE, copies: None });
    assert!(!bench.protocol.placement.is_partial());
    assert!(readers(&mut bench, 8).iter().any(|read| read.ends_with("at 2")));
}
