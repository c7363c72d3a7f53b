//! What replicas offer to sessions that place reads by themselves.

use super::*;
use crate::placement::{Copies, ReplicaSet};

const REPLICA: ReplicaId = ReplicaId(1);

/// What the replica has, if it makes an offer.
fn offered(bench: &Bench) -> Option<Version> {
    bench.protocol.offer(REPLICA).map(|offer| offer.applied)
}

#[test]
fn an_offer_tells_what_the_replica_has_and_how_busy_it_is() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.finish(S1, 7, 1);
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(
        (offered(&bench), bench.protocol.durable()),
        (Some(Version::ZERO), Version(1)),
        "it is behind"
    );
    bench.applied(1, 1);
    assert_eq!(offered(&bench), Some(Version(1)));
    let load_us = |bench: &Bench| bench.protocol.offer(REPLICA).map(|offer| offer.load_us);
    let at = Some(REPLICA);
    let reads = Reads::Tables([TABLE].into());
    let (touches, near, kind) = (reads.touches(), None, None);
    let read =
        Event::Read { session: S2, reads, touches, at, cost_us: 70, near, catalogue: Version(0), kind };
    bench.feed(read);
    assert_eq!(load_us(&bench), Some(70));
    bench.feed(Event::Executed { session: S2 });
    assert_eq!(load_us(&bench), Some(0));
}

#[test]
fn a_replica_that_takes_no_reads_makes_no_offer() {
    let mut bench = Bench::new();
    let drained = |is_drained| Event::Drained { replica: REPLICA, is_drained };
    bench.feed(drained(true));
    assert_eq!(offered(&bench), None, "it is drained");
    bench.feed(drained(false));
    assert!(offered(&bench).is_some());
    bench.feed(Event::ReplicaLost { replica: REPLICA, incarnation: Incarnation(1) });
    assert_eq!(offered(&bench), None, "it is lost");
}

#[test]
fn where_replicas_hold_parts_or_reads_take_turns_the_core_is_asked() {
    let mut placement = Placement::full(3);
    placement.restrict(TABLE, Copies::Whole(ReplicaSet::first(2)));
    let partial = Bench::of_replicas(3, ONECOPY, placement, 0);
    assert_eq!(offered(&partial), None);
    assert_eq!(offered(&Bench::under(crate::protocols::round_robin::ROUND_ROBIN)), None);
    assert_eq!(offered(&Bench::under(crate::protocols::tashkent_plus::TASHKENT_PLUS)), None);
    assert!(offered(&Bench::under(ONECOPY)).is_some());
}

#[test]
fn reads_that_sessions_place_count_as_load_and_as_open() {
    let mut bench = Bench::new();
    bench.protocol.note_outside(REPLICA, Outside { outstanding_us: 900, running: 2, reads: 5 });
    let status = bench.protocol.replicas().into_iter().find(|status| status.replica == REPLICA);
    let told = status.map(|status| (status.expected_wait_us, status.open, status.reads));
    assert_eq!(told, Some((900, 2, 5)));
}
