//! Claims that home holds: see [`super::super::certification`]. The first to begin roams to replica 1, the second to 2.

use super::*;
use crate::ids::DatabaseId;

const RC: Level = Level::ReadCommitted;

fn table() -> Claims {
    Claims { tables: vec![TABLE], ..Claims::default() }
}

impl Bench {
    /// Two transactions have run a statement each, unforeseen; the first one is committed with these claims, and durable.
    fn behind_one_that_claimed(claims: &Claims) -> Self {
        let mut bench = Self::new();
        bench.roam(S1, RC, &[]);
        bench.roam(S2, RC, &[]);
        assert_eq!(bench.finish_with(S1, std::slice::from_ref(claims), Reads::All), ["append 1"]);
        bench.feed(Event::Logged { upto: Version(1) });
        bench.feed(Event::Committed { session: S1 });
        bench
    }

    /// Finishes a transaction with what its home holds.
    fn finish_held(&mut self, session: SessionId, claims: Claims) -> Vec<String> {
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        body.push_delete(TABLE, &[0, 0, 0, 0]).unwrap();
        let (body, claims) = (Box::new(body.seal()), vec![Claimed { turn: 0, is_held: true, claims }]);
        self.feed(Event::Finish { session, body, claims, changed: Vec::new(), reads: Reads::All })
    }

    fn lock_lsn_drawn(&mut self, session: SessionId) -> Vec<String> {
        self.feed(Event::LockLsn { session, lsn: 9 })
    }
}

/// Thousands of new rows claim their table, where others have put theirs.
#[test]
fn a_held_claim_waits_until_home_has_the_other_version() {
    for (theirs, mine) in [(rows(&[5]), table()), (table(), rows(&[6]))] {
        let mut bench = Bench::behind_one_that_claimed(&theirs);
        assert!(bench.finish_held(S2, mine).is_empty(), "home lacks version 1");
        assert!(bench.lock_lsn_drawn(S2).is_empty(), "nor has it when it was not asked");
        assert_eq!(bench.applied(2, 1), ["draw 2"], "its backend may have died, and its locks with it");
        assert_eq!(bench.lock_lsn_drawn(S2), ["append 2"]);
    }
}

#[test]
fn versions_that_home_has_only_need_a_proof() {
    let mut bench = Bench::behind_one_that_claimed(&rows(&[5]));
    bench.applied(2, 1);
    assert_eq!(bench.finish_held(S2, rows(&[5])), ["draw 2"], "its statement met it there");
    assert_eq!(bench.lock_lsn_drawn(S2), ["append 2"]);
}

#[test]
fn a_conflict_in_a_row_that_home_lacks_aborts() {
    let mut bench = Bench::behind_one_that_claimed(&rows(&[5]));
    assert_eq!(bench.finish_held(S2, rows(&[4, 5])), ["conflict 2 with 1"]);
}

#[test]
fn a_transaction_that_is_over_proves_nothing() {
    let mut bench = Bench::behind_one_that_claimed(&rows(&[5]));
    bench.finish_held(S2, table());
    bench.feed(Event::End { session: S2 });
    assert!(bench.applied(2, 1).is_empty());
    assert!(bench.protocol.proving.is_empty());
}

#[test]
fn versions_appended_meanwhile_are_waited_for_too() {
    let mut bench = Bench::behind_one_that_claimed(&rows(&[5]));
    bench.finish_held(S2, table());
    bench.applied(2, 1);
    bench.feed(Event::Begin {
        session: S3,
        level: RC,
        nonce: Nonce(3),
        home: Home::At(ReplicaId(1)),
        needs: writing(RC, &[]),
        foreseen: Foreseen::default(),
    });
    assert_eq!(bench.finish_with(S3, &[rows(&[8])], Reads::All), ["append 2"]);
    bench.feed(Event::Logged { upto: Version(2) });
    assert!(bench.lock_lsn_drawn(S2).is_empty(), "home lacks version 2 by now");
    assert_eq!(bench.applied(2, 2), ["draw 2"]);
    assert_eq!(bench.lock_lsn_drawn(S2), ["append 3"]);
}

/// Nor is a lock on the table, which no refresh conflicts with.
#[test]
fn unbounded_claims_are_not_waited_for() {
    for theirs in [Claims::everything(), table()] {
        let mut bench = Bench::behind_one_that_claimed(&theirs);
        bench.applied(2, 1);
        assert_eq!(bench.finish_held(S2, table()), ["conflict 2 with 1"]);
    }
}

/// READ COMMITTED: a row that home holds is another's only if home lacks what that one wrote.
#[test]
fn rows_that_home_has_are_reserved() {
    let reserve_late = |bench: &mut Bench| {
        bench.feed(Event::ReserveLate { session: S2, claims: Claims::default(), held: rows(&[5]) })
    };
    let mut bench = Bench::behind_one_that_claimed(&rows(&[5]));
    assert_eq!(reserve_late(&mut bench), ["not reserved 2 from 1 with 1"]);
    bench.applied(2, 1);
    assert_eq!(reserve_late(&mut bench), ["reserved 2"]);
}
