//! Update transactions at several homes. In a new bench the first one roams to replica 1, the second to replica 2.

use super::*;
use crate::ids::{DatabaseId, PartId};
use crate::parts::drawing::FULL_STATEMENTS;
use crate::placement::{Copies, ReplicaSet};

const RC: Level = Level::ReadCommitted;
const SER: Level = Level::Serializable;
const S4: SessionId = SessionId(4);

fn shared(keys: &[u64]) -> Claims {
    Claims { shared: rows(keys).rows, ..Claims::default() }
}

impl Bench {
    fn home_of(&self, session: SessionId) -> usize {
        self.protocol.transactions[&session].home
    }

    /// The version is durable and committed at its home. No other replica has it yet.
    fn commit(&mut self, session: SessionId, version: u64) {
        self.feed(Event::Logged { upto: Version(version) });
        self.feed(Event::Committed { session });
    }
}

/// Gargamel section III: possibly conflicting transactions are put in one chain, which one replica runs.
#[test]
fn conflicting_transactions_are_chained_at_one_home() {
    let mut bench = Bench::new();
    assert_eq!(bench.roam(S1, RC, &[5]), ["execute 1 at 1"]);
    assert_eq!(bench.roam(S2, RC, &[6]), ["execute 2 at 2"], "nothing in common: elsewhere");
    assert_eq!(bench.roam(S3, RC, &[5]), ["execute 3 at 1"], "the server there makes it wait");
    assert_eq!(bench.finish_with(S2, &[rows(&[6])], Reads::All), ["append 1"]);
    assert_eq!(bench.roam(S4, RC, &[6]), ["execute 4 at 2"], "its home has the new row first");
}

#[test]
fn a_statement_waits_for_the_other_home_of_its_row_and_then_for_the_row() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    assert!(bench.write(S2, &[5]).is_empty(), "another home holds it");
    assert_eq!(
        bench.finish_with(S1, &[rows(&[5])], Reads::All),
        ["append 1"],
        "held until here, but not there yet"
    );
    bench.commit(S1, 1);
    assert_eq!(bench.applied(2, 1), ["execute 2 at 2"]);
    assert_eq!(
        bench.finish_with(S2, &[rows(&[6]), rows(&[5])], Reads::All),
        ["append 2"],
        "it has seen version 1"
    );
}

/// DESIGN section 3: "every written row is certified at every isolation level, against what was known to be applied at
/// home when that statement was sent".
#[test]
fn rows_that_were_not_predicted_are_certified() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[]);
    bench.roam(S2, RC, &[]);
    assert_eq!(bench.finish_with(S1, &[rows(&[5])], Reads::All), ["append 1"]);
    bench.commit(S1, 1);
    assert_eq!(bench.finish_with(S2, &[rows(&[5])], Reads::All), ["conflict 2 with 1"]);
}

/// READ COMMITTED waits as on one server: a transaction that has written rows without asking asks afterwards, and if they are another's
/// he undoes it and waits.
#[test]
fn rows_that_were_not_predicted_are_reserved_late() {
    let mut bench = Bench::new();
    let reserve_late = |bench: &mut Bench, session, keys: &[u64]| {
        bench.feed(Event::ReserveLate { session, claims: rows(keys), held: Claims::default() })
    };
    bench.roam(S1, RC, &[]);
    bench.roam(S2, RC, &[6]);
    assert_eq!(
        reserve_late(&mut bench, S1, &[5, 6]),
        ["not reserved 1 from 2 with 0"],
        "another transaction has it"
    );
    assert_eq!(reserve_late(&mut bench, S1, &[5]), ["reserved 1"]);
    assert_eq!(reserve_late(&mut bench, S2, &[5]), ["not reserved 2 from 1 with 0"]);
    assert!(bench.write(S2, &[5]).is_empty(), "it waits for what it wrote");
    assert_eq!(bench.finish_with(S1, &[rows(&[5])], Reads::All), ["append 1"]);
    bench.commit(S1, 1);
    assert_eq!(bench.applied(2, 1), ["execute 2 at 2"]);
    assert_eq!(reserve_late(&mut bench, S2, &[5, 7]), ["reserved 2"], "it has seen version 1");
    bench.roam(S3, RC, &[]);
    assert_eq!(bench.finish_with(S2, &[rows(&[6]), rows(&[5, 7])], Reads::All), ["append 2"]);
    let first = reserve_late(&mut bench, S3, &[7]);
    assert_eq!(first, if bench.home_of(S3) == 2 { ["reserved 3"] } else { ["not reserved 3 from 2 with 2"] });
    bench.feed(Event::End { session: S3 });
    assert!(reserve_late(&mut bench, S3, &[7]).is_empty(), "its transaction is over");
}

#[test]
fn each_statement_is_certified_from_when_it_was_sent() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[]);
    bench.roam(S2, RC, &[]);
    bench.finish_with(S1, &[rows(&[5])], Reads::All);
    bench.commit(S1, 1);
    bench.applied(2, 1);
    assert_eq!(bench.write(S2, &[]), ["execute 2 at 2"]);
    let claims = [Claims::default(), rows(&[5])];
    assert_eq!(bench.finish_with(S2, &claims, Reads::All), ["append 2"], "its second statement has seen it");
}

#[test]
fn a_reference_and_its_parent_are_kept_together() {
    for (one, other) in [(shared(&[5]), rows(&[5])), (rows(&[5]), shared(&[5]))] {
        let mut bench = Bench::new();
        bench.roam(S1, RC, &[]);
        bench.roam(S2, RC, &[]);
        bench.roam(S3, RC, &[]);
        assert_eq!(bench.finish_with(S1, std::slice::from_ref(&one), Reads::All), ["append 1"]);
        assert_eq!(bench.finish_with(S2, &[other], Reads::All), ["conflict 2 with 1"]);
        bench.feed(Event::Logged { upto: Version(1) });
        if one == shared(&[5]) {
            assert_eq!(
                bench.finish_with(S3, &[one], Reads::All),
                ["append 2"],
                "two may refer to one parent"
            );
        }
    }
}

#[test]
fn serializable_transactions_wait_for_what_they_read_by_key() {
    let mut bench = Bench::new();
    let read = |bench: &mut Bench, session, level| {
        let writes = if level == SER { rows(&[5]) } else { Claims::default() };
        let needs = Needs { reads: reading(&[5]), writes, ..writing(level, &[]) };
        bench.feed(Event::Begin {
            session,
            level,
            nonce: Nonce(session.0),
            home: Home::Any,
            needs,
            foreseen: Foreseen::default(),
        })
    };
    assert_eq!(read(&mut bench, S1, SER), ["execute 1 at 1"]);
    assert!(read(&mut bench, S2, SER).is_empty(), "at the same home, too");
    assert_eq!(read(&mut bench, S3, RC), ["execute 3 at 2"], "a reader at another level does not wait");
    assert_eq!(bench.finish_with(S1, &[rows(&[5])], reading(&[5])), ["append 1"]);
    assert_eq!(bench.feed(Event::Logged { upto: Version(1) })[2], "commit 1");
    let committed = bench.feed(Event::Committed { session: S1 });
    assert_eq!(committed, ["execute 2 at 1"], "when it has what the other wrote");
    assert_eq!(bench.finish_with(S2, &[rows(&[5])], reading(&[5])), ["append 2"]);
}

#[test]
fn reads_of_a_serializable_transaction_are_certified() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, SER, &[6]);
    bench.roam(S3, SER, &[7]);
    assert_eq!(bench.finish_with(S1, &[rows(&[5])], Reads::All), ["append 1"]);
    let whole = Reads::Tables([TABLE].into());
    assert_eq!(bench.finish_with(S2, &[rows(&[6])], whole), ["conflict 2 with 1"]);
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(bench.finish_with(S3, &[rows(&[7])], reading(&[7, 8])), ["append 2"]);
}

#[test]
fn a_transaction_begins_where_what_it_is_going_to_write_is() {
    let mut bench = Bench::new();
    let look = |bench: &mut Bench, session: SessionId, foreseen: &[u64]| {
        let needs = Needs { reads: reading(&[1]), ..writing(RC, &[]) };
        let (level, nonce, home) = (RC, Nonce(session.0), Home::Any);
        bench.feed(Event::Begin {
            session,
            level,
            nonce,
            home,
            needs,
            foreseen: Foreseen::Likely(rows(foreseen)),
        })
    };
    assert_eq!(bench.roam(S1, RC, &[5]), ["execute 1 at 1"]);
    assert_eq!(look(&mut bench, S2, &[5]), ["execute 2 at 1"]);
    assert_eq!(look(&mut bench, S3, &[6]), ["execute 3 at 2"]);
    assert_eq!(look(&mut bench, S4, &[]), ["execute 4 at 0"]);
    assert_eq!(bench.write(S4, &[6]), ["execute 4 at 0"], "what is foreseen holds nothing");
}

#[test]
fn a_ring_of_waits_is_broken() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    assert!(bench.write(S1, &[6]).is_empty());
    assert_eq!(bench.write(S2, &[5]), ["deadlock 2", "execute 1 at 1"], "the younger one gives way");
    assert_eq!(bench.protocol.conflicts()[0].deadlocks, 1);
}

#[test]
fn a_ring_through_the_locks_of_a_server_is_broken_when_that_is_known() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    assert_eq!(bench.roam(S3, RC, &[6, 8]), ["execute 3 at 2"], "it waits for 2 inside its server");
    assert!(bench.write(S2, &[5]).is_empty());
    assert!(bench.write(S1, &[8]).is_empty(), "the ring is not known yet");
    let edges = vec![(S3, S2)];
    assert!(bench.feed(Event::ServerWaits { edges: edges.clone() }).is_empty(), "it may be over by now");
    assert_eq!(bench.feed(Event::ServerWaits { edges }), ["deadlock 2"]);
}

#[test]
fn a_transaction_that_blocks_a_refresh_is_rolled_back_unless_it_is_logged() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    bench.finish_with(S2, &[rows(&[6])], Reads::All);
    let blocks_apply = |session, replica| {
        let replica = ReplicaId(replica);
        Event::BlocksApply { session, replica, incarnation: Incarnation(1) }
    };
    assert!(bench.feed(blocks_apply(S1, 2)).is_empty(), "it is not there");
    assert_eq!(bench.feed(blocks_apply(S1, 1)), ["conflict 1 with 0"]);
    assert!(bench.feed(blocks_apply(S2, 2)).is_empty(), "the log decides");
}

#[test]
fn a_lost_home_takes_only_its_own_with_it() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    bench.finish_with(S1, &[rows(&[5])], Reads::All);
    bench.roam(S3, RC, &[5]);
    let lost = bench.feed(Event::ReplicaLost { replica: ReplicaId(1), incarnation: Incarnation(1) });
    assert_eq!(lost, ["reset 1", "home lost 1", "abort 3"]);
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(bench.finish_with(S2, &[rows(&[6])], Reads::All), ["append 2"]);
    assert_eq!(bench.roam(S4, RC, &[7]), ["execute 4 at 0"]);
}

#[test]
fn whole_tables_and_everything_meet_all_rows() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    let mut whole = |session, writes: Claims| {
        let needs = Needs { writes, ..writing(RC, &[]) };
        bench.feed(Event::Begin {
            session,
            level: RC,
            nonce: Nonce(session.0),
            home: Home::Anchor,
            needs,
            foreseen: Foreseen::default(),
        })
    };
    assert!(whole(S2, Claims { tables: vec![TABLE], ..Claims::default() }).is_empty());
    assert!(whole(S3, Claims::everything()).is_empty());
    assert_eq!(
        bench.feed(Event::End { session: S1 }),
        ["execute 2 at 0", "execute 3 at 0"],
        "both at the anchor"
    );
}

/// An empty record: it was certified, and only its home has anything to do for it.
#[test]
fn an_empty_record_is_committed_at_home_and_passed_over_elsewhere() {
    let mut placement = Placement::full(3);
    placement.restrict(DatabaseId::FIRST.table(1), Copies::Whole(ReplicaSet::first(1)));
    let mut bench = Bench::placed(placement);
    assert_eq!(bench.begin(S1, true), ["execute 1 at 0"]);
    let body = Box::new(RecordBuilder::new(DatabaseId::FIRST).seal());
    let event =
        Event::Finish { session: S1, body, claims: Vec::new(), changed: Vec::new(), reads: reading(&[5]) };
    assert_eq!(bench.feed(event), ["append 1"]);
    assert_eq!(bench.feed(Event::Logged { upto: Version(1) }), ["acknowledge 1", "commit 1"]);
    assert!(bench.feed(Event::Committed { session: S1 }).is_empty());
    assert!(bench.protocol.replicas().iter().all(|status| status.applied == Version(1)));
}

#[test]
fn a_record_is_applied_only_where_its_table_is() {
    let mut placement = Placement::full(3);
    placement.restrict(TABLE, Copies::Whole(ReplicaSet::first(2)));
    let mut bench = Bench::placed(placement);
    bench.begin(S1, false);
    bench.finish(S1, 7, 6);
    let logged = bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(logged, ["acknowledge 1", "commit 1", "apply 1..1 at 1"]);
    assert_eq!(bench.protocol.replicas()[2].applied, Version(1), "it is nothing to replica 2");
    bench.feed(Event::Committed { session: S1 });
    bench.begin(S2, false);
    bench.finish(S2, 8, 6);
    let logged = bench.feed(Event::Logged { upto: Version(2) });
    assert_eq!(logged, ["acknowledge 2", "commit 2", "apply 2..2 at 2"], "replica 1 is busy");
}

/// Part 0 of the table is at 0 and 1, part 1 at 0 and 2.
#[test]
fn an_update_begins_where_its_part_is_and_not_where_everything_is() {
    let mut placement = Placement::full(3);
    let only = |replica| ReplicaSet::EMPTY.with(ANCHOR).with(ReplicaId(replica));
    placement.restrict(TABLE, Copies::Parts { column: "k".into(), holders: [only(1), only(2)].into() });
    let edition = placement.edition();
    let mut bench = Bench::placed(placement);
    let touching = |parts: &[u8]| {
        let parts = parts.iter().copied().map(PartId).collect();
        Touches::Parts { tables: [TABLE].into(), parts, edition }
    };
    let needs = |row: u64, parts: &[u8]| Needs { touches: touching(parts), ..writing(RC, &[row]) };
    for (session, parts, home) in [(S1, &[0][..], 1), (S2, &[1], 2), (S3, &[0, 1], 0)] {
        let begun = bench.begin_any(session, RC, needs(10 * session.0, parts));
        assert_eq!(begun, [format!("execute {} at {home}", session.0)]);
    }
    let next = Event::Statement { session: S1, needs: needs(11, &[1]) };
    assert_eq!(bench.feed(next), ["not held 1"], "its home has not this part");
    bench.feed(Event::End { session: S2 });
    bench.feed(Event::ReplicaLost { replica: ReplicaId(2), incarnation: Incarnation(1) });
    assert_eq!(bench.begin_any(S2, RC, needs(21, &[1])), ["execute 2 at 0"], "no other holder is up");
}

#[test]
fn updates_of_a_table_begin_at_its_masters_as_long_as_one_is_up() {
    let mut bench = Bench::new();
    let [master, other] = [1, 0].map(|replica| ReplicaSet::EMPTY.with(ReplicaId(replica)));
    bench.feed(Event::Mastered { table: TABLE, masters: master });
    for (session, row) in [(S1, 10), (S2, 20), (S3, 30)] {
        assert_eq!(bench.roam(session, RC, &[row]), [format!("execute {} at 1", session.0)]);
    }
    for session in [S1, S2, S3] {
        bench.feed(Event::End { session });
    }
    bench.feed(Event::ReplicaLost { replica: ReplicaId(1), incarnation: Incarnation(1) });
    assert_eq!(bench.roam(S1, RC, &[10]), ["execute 1 at 2"], "a master is a preference");
    bench.feed(Event::Mastered { table: TABLE, masters: other });
    assert_eq!(bench.roam(S2, RC, &[20]), ["execute 2 at 0"]);
    bench.feed(Event::Mastered { table: TABLE, masters: ReplicaSet::EMPTY });
    assert!(bench.protocol.placement.mastered().next().is_none());
}

#[test]
fn a_waiter_for_an_empty_record_goes_on_when_it_is_passed_over() {
    let mut placement = Placement::full(3);
    placement.restrict(DatabaseId::FIRST.table(1), Copies::Whole(ReplicaSet::first(1)));
    let mut bench = Bench::placed(placement);
    bench.begin(S1, false);
    bench.finish(S1, 7, 6);
    bench.feed(Event::Logged { upto: Version(1) });
    bench.feed(Event::Committed { session: S1 });
    bench.begin(S2, true);
    let body = Box::new(RecordBuilder::new(DatabaseId::FIRST).seal());
    bench.feed(Event::Finish {
        session: S2,
        body,
        claims: Vec::new(),
        changed: Vec::new(),
        reads: reading(&[5]),
    });
    bench.feed(Event::Logged { upto: Version(2) });
    // Its snapshot needs every version, whatever it reads.
    let level = Level::RepeatableRead;
    let touches = Touches::Tables([DatabaseId::FIRST.table(5)].into());
    let needs = Needs { reads: Reads::All, touches, ..writing(level, &[5]) };
    let (home, foreseen) = (Home::At(ReplicaId(1)), Foreseen::default());
    let begin = Event::Begin { session: S3, level, nonce: Nonce(3), home, needs, foreseen };
    assert!(bench.feed(begin).is_empty());
    assert_eq!(bench.applied(1, 1), ["execute 3 at 1"], "version 2 is nothing to it");
}

#[test]
fn no_transaction_waits_for_a_failed_one() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    assert!(bench.write(S2, &[5]).is_empty(), "another home holds it");
    assert_eq!(bench.feed(Event::Failed { session: S1 }), ["execute 2 at 2"]);
    assert!(bench.feed(Event::End { session: S1 }).is_empty());
    assert_eq!(bench.finish_with(S2, &[rows(&[6]), rows(&[5])], Reads::All), ["append 1"]);
}

#[test]
fn a_session_that_waits_for_a_connection_is_load_and_holds_nothing() {
    let mut bench = Bench::new();
    let loads = |bench: &Bench| -> Vec<bool> {
        bench.protocol.replicas().iter().map(|replica| replica.expected_wait_us > 0).collect()
    };
    assert_eq!(bench.roam(S1, RC, &[5]), ["execute 1 at 1"]);
    assert!(bench.feed(Event::Yield { session: S1 }).is_empty());
    assert_eq!(loads(&bench), [false, true, false]);
    // No session waits for it, and others begin elsewhere, regardless of how short their statements are.
    for (session, home) in [(S2, 2), (S3, 0)] {
        assert_eq!(bench.roam(session, RC, &[session.0]), [format!("execute {session} at {home}")]);
        bench.feed(Event::Executed { session });
    }
    assert_eq!(bench.write(S2, &[5]), ["execute 2 at 2"]);
    bench.feed(Event::Executed { session: S2 });
    assert_eq!(loads(&bench), [false, true, false]);
    // It is not in its own way when it has got one.
    bench.now += 3_000;
    assert_eq!(bench.roam(S1, RC, &[6]), ["execute 1 at 1"]);
    bench.feed(Event::Executed { session: S1 });
    assert_eq!(loads(&bench), [false; 3]);
    // Nor does one count that has given up, or whose replica was lost meanwhile.
    for end in [Event::End { session: S1 }, Event::GiveUp { session: S1 }] {
        bench.feed(Event::End { session: S1 });
        bench.roam(S1, RC, &[6]);
        bench.feed(Event::Yield { session: S1 });
        assert!(loads(&bench).contains(&true));
        bench.feed(end);
        assert_eq!(loads(&bench), [false; 3]);
    }
    let home = bench.roam(S1, RC, &[6])[0].rsplit(' ').next().and_then(|home| home.parse().ok()).unwrap();
    bench.feed(Event::Yield { session: S1 });
    bench.feed(Event::ReplicaLost { replica: ReplicaId(home), incarnation: Incarnation(1) });
    bench.feed(Event::ReplicaUp {
        replica: ReplicaId(home),
        incarnation: Incarnation(2),
        applied: Version::ZERO,
    });
    assert_eq!(loads(&bench), [false; 3]);
    bench.feed(Event::GiveUp { session: S1 });
    assert_eq!(loads(&bench), [false; 3]);
}

#[test]
fn a_transaction_that_withdraws_a_statement_goes_on_without_it() {
    let mut bench = Bench::new();
    bench.roam(S1, RC, &[5]);
    bench.roam(S2, RC, &[6]);
    assert!(bench.write(S2, &[5]).is_empty(), "another home holds it");
    let waiting = bench.protocol.waiting();
    assert_eq!(
        (waiting[0].session, &waiting[0].rivals[..], waiting[0].meeting.map(|meeting| meeting.table)),
        (S2, &[S1][..], Some(TABLE))
    );
    assert!(bench.feed(Event::Withdraw { session: S2 }).is_empty());
    assert_eq!(bench.protocol.waiting(), []);
    assert_eq!(bench.finish_with(S1, &[rows(&[5])], Reads::All), ["append 1"], "no statement is let run");
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(bench.write(S2, &[7]), ["execute 2 at 2"]);
    assert_eq!(bench.finish_with(S2, &[rows(&[6]), rows(&[7])], Reads::All), ["append 2"]);
}

#[test]
fn transactions_that_draw_stay_at_the_anchor_while_that_has_room() {
    let mut bench = Bench::new();
    let anchor = ReplicaId(0);
    let draw = |bench: &mut Bench, session: u64, last| {
        let home = Home::Drawing { last };
        let needs = Needs { cost_us: 200, near: Some(ReplicaId(2)), ..writing(RC, &[]) };
        let session = SessionId(session);
        bench.feed(Event::Begin {
            session,
            level: RC,
            nonce: Nonce(session.0),
            home,
            needs,
            foreseen: Foreseen::default(),
        })
    };
    let full = u64::from(FULL_STATEMENTS);
    for session in 1..=full {
        assert_eq!(draw(&mut bench, session, Some(ReplicaId(1))), [format!("execute {session} at {anchor}")]);
    }
    assert_eq!(
        draw(&mut bench, full + 1, None),
        [format!("execute {} at 0", full + 1)],
        "the wait is not longer"
    );
    assert_eq!(draw(&mut bench, full + 2, None), [format!("execute {} at 2", full + 2)], "where it was last");
    assert_eq!(
        draw(&mut bench, full + 3, Some(ReplicaId(1))),
        [format!("execute {} at 1", full + 3)],
        "where it drew last"
    );
    for session in 1..=full + 2 {
        bench.feed(Event::Executed { session: SessionId(session) });
        bench.feed(Event::End { session: SessionId(session) });
    }
    assert_eq!(draw(&mut bench, 20, Some(ReplicaId(1))), ["execute 20 at 1"], "the load may come back");
    assert_eq!(draw(&mut bench, 21, None), ["execute 21 at 0"]);
    bench.now += 2_000_000;
    assert_eq!(draw(&mut bench, 22, Some(ReplicaId(1))), ["execute 22 at 0"]);
    // Only what has run has had its home there.
    let writes: Vec<u64> = bench.protocol.replicas().iter().map(|replica| replica.writes).collect();
    assert_eq!(writes, [full + 1, 0, 1]);
}

/// It would not be looked at again before another transaction ends or asks for more: found by the simulator, where the core gave up.
#[test]
fn a_waiter_for_one_at_the_new_anchor_goes_on_there() {
    let mut bench = Bench::new();
    assert_eq!(bench.roam(S1, Level::ReadCommitted, &[5]), ["execute 1 at 1"]);
    let bound = Event::Begin {
        session: S2,
        level: Level::ReadCommitted,
        nonce: Nonce(2),
        home: Home::Anchor,
        needs: writing(Level::ReadCommitted, &[5]),
        foreseen: Foreseen::default(),
    };
    assert!(bench.feed(bound).is_empty());
    bench.feed(Event::ReplicaLost { replica: ANCHOR, incarnation: Incarnation(1) });
    assert_eq!(bench.feed(Event::TakeOver { from: ANCHOR }), ["anchor 1", "execute 2 at 1"]);
    let late = Event::ReserveLate { session: S1, claims: rows(&[6]), held: Claims::default() };
    assert_eq!(bench.feed(late), ["reserved 1"]);
}

/// Preventive replication section 3: a replica may hold some tables only. A transaction begins where all is that it needs.
#[test]
fn a_transaction_has_its_home_where_all_that_it_needs_is_held() {
    let mut placement = Placement::full(3);
    let only = ReplicaSet::EMPTY.with(ANCHOR).with(ReplicaId(2));
    placement.restrict(TABLE, Copies::Whole(only));
    placement.restrict(DatabaseId::FIRST.table(9), Copies::Whole(ReplicaSet::EMPTY.with(ANCHOR)));
    let mut bench = Bench::placed(placement);
    let other = DatabaseId::FIRST.table(8);
    let needs = |tables: &[TableId]| Needs { touches: Touches::Tables(tables.into()), ..writing(RC, &[]) };
    let mut homes = BTreeSet::new();
    for session in (1..=6).map(SessionId) {
        let begin = bench.begin_any(session, RC, needs(&[TABLE]));
        homes.extend(begin.iter().filter_map(|word| Some(word.rsplit_once(" at ")?.1.to_owned())));
    }
    assert_eq!(homes, BTreeSet::from(["0".to_owned(), "2".to_owned()]));
    // Only the others make replica 1 the least loaded.
    let said = bench.begin_any(SessionId(7), RC, needs(&[other]));
    assert_eq!(said, ["execute 7 at 1"]);
    bench.feed(Event::Executed { session: SessionId(7) });
    let said = bench.feed(Event::Statement { session: SessionId(7), needs: needs(&[other]) });
    assert_eq!(said, ["execute 7 at 1"]);
    bench.feed(Event::Executed { session: SessionId(7) });
    let said = bench.feed(Event::Statement { session: SessionId(7), needs: needs(&[TABLE, other]) });
    assert_eq!(said, ["not held 7"], "an empty table must not answer");
    let unbounded = Needs { touches: Touches::Anything, ..writing(RC, &[]) };
    assert_eq!(bench.begin_any(SessionId(8), RC, unbounded), ["execute 8 at 0"]);
}
