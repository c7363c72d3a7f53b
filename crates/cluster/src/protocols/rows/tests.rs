//! The protocol driven by hand: one test for each rule of its head.

mod answers;
mod apply_batching;
mod chains;
mod commit_groups;
mod configurations;
mod crews;
mod databases;
mod held;
mod homes;
mod local;
mod members;
mod memory;
mod offers;
mod stamps;

use super::*;
use crate::claims::{Claimed, Footprint};
use crate::event::{AbortCause, Foreseen, Home, Needs, Rival};
use crate::ids::DatabaseId;
use crate::ids::Nonce;
use crate::placement::Touches;
use crate::protocols::onecopy::ONECOPY;
use crate::record::RecordBuilder;

fn claimed(claims: Claims) -> Vec<Claimed> {
    vec![Claimed { turn: 0, is_held: false, claims }]
}

struct Bench {
    protocol: Rows,
    effects: Vec<Effect>,
    now: u64,
}

const S1: SessionId = SessionId(1);
const S2: SessionId = SessionId(2);
const S3: SessionId = SessionId(3);
const ANCHOR: ReplicaId = ReplicaId(0);

impl Bench {
    /// Three replicas, all up, with a catalogue.
    fn new() -> Self {
        Self::placed(Placement::full(3))
    }

    /// As [`Bench::new`], with batches that are collected for this long.
    fn batching(refresh_pause_us: u64) -> Self {
        Self::with(Placement::full(3), refresh_pause_us)
    }

    fn placed(placement: Placement) -> Self {
        Self::with(placement, 0)
    }

    /// As [`Bench::new`], under another protocol.
    fn under(choices: Choices) -> Self {
        Self::made(choices, Placement::full(3), 0)
    }

    fn with(placement: Placement, refresh_pause_us: u64) -> Self {
        Self::made(ONECOPY, placement, refresh_pause_us)
    }

    fn made(choices: Choices, placement: Placement, refresh_pause_us: u64) -> Self {
        Self::of_replicas(3, choices, placement, refresh_pause_us)
    }

    fn of_replicas(replicas: u16, choices: Choices, placement: Placement, refresh_pause_us: u64) -> Self {
        let options = Options {
            choices,
            replicas,
            anchor: ANCHOR,
            placement,
            epoch: Epoch(1),
            last: Version::ZERO,
            schema: Version::ZERO,
            refresh_pause_us,
            keys_max: KEYS_MAX,
            refresh_versions_max: REFRESH_VERSIONS_MAX,
            rules: Rules::default(),
        };
        let mut bench = Self {
            protocol: Rows::new(options).expect("the anchor holds everything"),
            effects: Vec::new(),
            now: 0,
        };
        for replica in 0..replicas {
            let (replica, incarnation, applied) = (ReplicaId(replica), Incarnation(1), Version::ZERO);
            bench.feed(Event::ReplicaUp { replica, incarnation, applied });
        }
        bench.feed(Event::CatalogueLoaded { version: Version::ZERO });
        bench
    }

    /// The effects of one event, each as a short word.
    fn feed(&mut self, event: Event) -> Vec<String> {
        self.now += 100;
        self.effects.clear();
        self.protocol.handle(Time { us: self.now }, event, &mut self.effects);
        self.effects.iter().map(word).collect()
    }

    /// Begins anywhere with a statement that writes these rows of table 7.
    fn roam(&mut self, session: SessionId, level: Level, rows: &[u64]) -> Vec<String> {
        self.begin_any(session, level, writing(level, rows))
    }

    /// Begins anywhere.
    fn begin_any(&mut self, session: SessionId, level: Level, needs: Needs) -> Vec<String> {
        self.feed(Event::Begin {
            session,
            level,
            nonce: Nonce(session.0),
            home: Home::Any,
            needs,
            foreseen: Foreseen::default(),
        })
    }

    /// One more statement that writes these rows of table 7.
    fn write(&mut self, session: SessionId, rows: &[u64]) -> Vec<String> {
        self.feed(Event::Statement { session, needs: writing(Level::ReadCommitted, rows) })
    }

    /// Finishes a transaction whose statements, one after another, have claimed these.
    fn finish_with(&mut self, session: SessionId, claims: &[Claims], reads: Reads) -> Vec<String> {
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        body.push_delete(TABLE, &[0, 0, 0, 0]).unwrap();
        let claims = (0..)
            .zip(claims)
            .map(|(turn, claims)| Claimed { turn, is_held: false, claims: claims.clone() })
            .collect();
        self.feed(Event::Finish { session, body: Box::new(body.seal()), claims, changed: Vec::new(), reads })
    }

    fn begin(&mut self, session: SessionId, serializable: bool) -> Vec<String> {
        let (nonce, reads) = (Nonce(session.0), Reads::All);
        let level = if serializable { Level::Serializable } else { Level::ReadCommitted };
        let needs = Needs {
            reads,
            writes: Claims::default(),
            cost_us: 1,
            near: None,
            catalogue: Version::ZERO,
            kind: None,
            touches: Touches::Anything,
        };
        self.feed(Event::Begin {
            session,
            level,
            nonce,
            home: Home::Anchor,
            needs,
            foreseen: Foreseen::default(),
        })
    }

    fn finish(&mut self, session: SessionId, table: u32, key: u64) -> Vec<String> {
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        body.push_delete(DatabaseId::FIRST.table(table), &[0, 0, 0, 0]).unwrap();
        let claims = Claims { rows: vec![(DatabaseId::FIRST.table(table), key)], ..Claims::default() };
        self.feed(Event::Finish {
            session,
            body: Box::new(body.seal()),
            claims: claimed(claims),
            changed: Vec::new(),
            reads: Reads::All,
        })
    }

    fn read(&mut self, session: SessionId, table: u32) -> Vec<String> {
        let reads = Reads::Tables([DatabaseId::FIRST.table(table)].into());
        self.feed(Event::Read {
            session,
            touches: reads.touches(),
            reads,
            at: None,
            cost_us: 1,
            near: None,
            catalogue: Version::ZERO,
            kind: None,
        })
    }

    fn applied(&mut self, replica: u16, upto: u64) -> Vec<String> {
        let (replica, incarnation) = (ReplicaId(replica), Incarnation(1));
        self.feed(Event::Applied { replica, incarnation, upto: Version(upto) })
    }
}

const TABLE: TableId = DatabaseId::FIRST.table(7);

fn rows(keys: &[u64]) -> Claims {
    Claims { rows: keys.iter().map(|key| (TABLE, *key)).collect(), ..Claims::default() }
}

fn reading(keys: &[u64]) -> Reads {
    Reads::Rows(Arc::new(Footprint { rows: rows(keys).rows, ..Footprint::default() }))
}

fn writing(level: Level, keys: &[u64]) -> Needs {
    let reads = if level == Level::ReadCommitted { reading(keys) } else { Reads::All };
    Needs {
        reads,
        touches: Touches::Anything,
        writes: rows(keys),
        cost_us: 1,
        near: None,
        catalogue: Version::ZERO,
        kind: None,
    }
}

fn word(effect: &Effect) -> String {
    match effect {
        Effect::Execute { session, replica, .. } => format!("execute {session} at {replica}"),
        Effect::LateReservation { session, rival: None } => format!("reserved {session}"),
        Effect::LateReservation { session, rival: Some(Rival { version, session: other, .. }) } => {
            let whose = other.map_or_else(String::new, |other| other.to_string());
            format!("not reserved {session} from {whose} with {}", version.unwrap_or_default())
        }
        Effect::Reclassify { session } => format!("reclassify {session}"),
        Effect::Append { version, .. } => format!("append {version}"),
        Effect::DrawLockLsn { session } => format!("draw {session}"),
        Effect::Acknowledge { session, .. } => format!("acknowledge {session}"),
        Effect::Commit { session, .. } => format!("commit {session}"),
        Effect::HomeLost { session } => format!("home lost {session}"),
        Effect::Abort { session, cause: AbortCause::NotHeld } => format!("not held {session}"),
        Effect::Abort { session, cause: AbortCause::HomeLost } => format!("abort {session}"),
        Effect::Abort { session, cause: AbortCause::OutcomeForgotten } => format!("forgotten {session}"),
        Effect::Abort { session, cause: AbortCause::Conflict(Rival { version, .. }) } => {
            format!("conflict {session} with {}", version.unwrap_or_default())
        }
        Effect::Abort { session, cause: AbortCause::Deadlock(_) } => format!("deadlock {session}"),
        Effect::Abort { session, cause: AbortCause::Impatience(_) } => format!("impatient {session}"),
        Effect::Apply { replica, from, upto, .. } => format!("apply {from}..{upto} at {replica}"),
        Effect::Reset { replica } => format!("reset {replica}"),
        Effect::LoadCatalogue { version, .. } => format!("catalogue {version}"),
        Effect::Anchor { replica } => format!("anchor {replica}"),
        Effect::Held { version, .. } => format!("held {version}"),
        Effect::WakeAt { at } => format!("wake at {}", at.us),
        Effect::Send { from, to, .. } => format!("send {from} to {to}"),
        Effect::Perform { replica, session, attempt, .. } => {
            format!("perform {session} at {replica}, {attempt}")
        }
        Effect::CommitPerformed { replica, version, .. } => format!("commit own {version} at {replica}"),
        Effect::UndoPerformed { replica, attempt, .. } => format!("undo {attempt} at {replica}"),
        Effect::RunAgain { session } => format!("again {session}"),
    }
}

#[test]
fn nothing_is_answered_or_committed_before_it_is_durable() {
    let mut bench = Bench::new();
    assert_eq!(bench.begin(S1, false), ["execute 1 at 0"]);
    assert_eq!(bench.finish(S1, 7, 1), ["append 1"]);
    let logged = bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(logged, ["acknowledge 1", "commit 1", "apply 1..1 at 1", "apply 1..1 at 2"]);
}

#[test]
fn a_read_waits_for_the_last_writer_of_what_it_reads_and_for_nothing_else() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.finish(S1, 7, 1);
    assert_eq!(bench.read(S2, 7).len(), 1, "what is not durable is not needed");
    bench.feed(Event::Executed { session: S2 });
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(bench.read(S2, 8).len(), 1, "another table");
    bench.feed(Event::Executed { session: S2 });
    assert!(bench.read(S2, 7).is_empty(), "no replica has version 1");
    let all: Vec<_> =
        [bench.applied(1, 1), bench.applied(2, 1), bench.feed(Event::Committed { session: S1 })].concat();
    assert_eq!(all.iter().filter(|word| word.starts_with("execute 2")).count(), 1);
}

#[test]
fn an_overlapping_transaction_is_appended_only_after_the_commit_it_may_depend_on() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.begin(S2, false);
    bench.begin(S3, false);
    assert_eq!(bench.finish(S1, 7, 1), ["append 1"]);
    assert!(bench.finish(S2, 7, 1).is_empty());
    assert!(bench.finish(S3, 7, 2).is_empty(), "the log is busy");
    let logged = bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(logged.last().unwrap(), "append 2", "another key goes on");
    bench.feed(Event::Logged { upto: Version(2) });
    assert_eq!(bench.feed(Event::Committed { session: S1 }), ["commit 3", "append 3"]);
}

#[test]
fn a_transaction_that_seems_overtaken_draws_again() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.begin(S2, false);
    bench.feed(Event::LockLsn { session: S1, lsn: 10 });
    bench.feed(Event::LockLsn { session: S2, lsn: 11 });
    assert_eq!(bench.finish(S2, 7, 1), ["append 1"]);
    bench.feed(Event::Logged { upto: Version(1) });
    bench.feed(Event::Committed { session: S2 });
    assert_eq!(bench.finish(S1, 7, 1), ["draw 1"]);
    assert_eq!(bench.feed(Event::LockLsn { session: S1, lsn: 12 }), ["append 2"]);
}

#[test]
fn one_that_waits_overtakes_as_well_as_one_that_is_in_the_log() {
    let mut bench = Bench::new();
    for session in [S1, S2, S3] {
        bench.begin(session, false);
    }
    bench.feed(Event::LockLsn { session: S1, lsn: 10 });
    bench.feed(Event::LockLsn { session: S2, lsn: 11 });
    bench.feed(Event::LockLsn { session: S3, lsn: 12 });
    assert_eq!(bench.finish(S1, 7, 1), ["append 1"]);
    assert!(bench.finish(S3, 7, 1).is_empty(), "it waits for the COMMIT of the first");
    assert_eq!(bench.finish(S2, 7, 1), ["draw 2"], "the third may have its locks");
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(bench.feed(Event::Committed { session: S1 }), ["append 2"]);
    bench.feed(Event::Logged { upto: Version(2) });
    assert!(bench.feed(Event::Committed { session: S3 }).is_empty(), "the second has not drawn");
    assert_eq!(bench.feed(Event::LockLsn { session: S2, lsn: 13 }), ["append 3"]);
}

#[test]
fn a_transaction_that_overlaps_one_that_draws_waits_for_it() {
    let mut bench = Bench::new();
    for session in [S1, S2, S3] {
        bench.begin(session, false);
    }
    bench.feed(Event::LockLsn { session: S1, lsn: 10 });
    bench.feed(Event::LockLsn { session: S2, lsn: 11 });
    bench.feed(Event::LockLsn { session: S3, lsn: 12 });
    assert_eq!(bench.finish(S2, 7, 1), ["append 1"]);
    bench.feed(Event::Logged { upto: Version(1) });
    bench.feed(Event::Committed { session: S2 });
    assert_eq!(bench.finish(S1, 7, 1), ["draw 1"]);
    assert!(bench.finish(S3, 7, 1).is_empty());
    assert_eq!(bench.feed(Event::End { session: S1 }), ["append 2"], "it could not draw, and is gone");
}

#[test]
fn a_lost_home_rolls_back_what_is_open_and_applies_what_is_logged_from_the_log() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.begin(S2, false);
    bench.finish(S1, 7, 1);
    bench.finish(S2, 7, 1);
    bench.begin(S3, false);
    let lost = bench.feed(Event::ReplicaLost { replica: ANCHOR, incarnation: Incarnation(1) });
    assert_eq!(lost, ["reset 0", "home lost 1", "abort 2", "abort 3"]);
    assert!(bench.begin(S2, false).is_empty(), "no home, no update");
    assert_eq!(bench.feed(Event::Logged { upto: Version(1) })[0], "acknowledge 1", "only the log decides");
    let up = Event::ReplicaUp { replica: ANCHOR, incarnation: Incarnation(2), applied: Version::ZERO };
    assert_eq!(bench.feed(up), ["apply 1..1 at 0"]);
    let applied = Event::Applied { replica: ANCHOR, incarnation: Incarnation(2), upto: Version(1) };
    assert_eq!(bench.feed(applied), ["execute 2 at 0"]);
}

fn lose_anchor(bench: &mut Bench) -> Vec<String> {
    bench.feed(Event::ReplicaLost { replica: ANCHOR, incarnation: Incarnation(1) })
}

#[test]
fn a_quarantined_replica_comes_up_only_when_it_was_rebuilt() {
    let mut bench = Bench::new();
    let away = ReplicaId(2);
    bench.feed(Event::Diverged { replica: away });
    let up = |incarnation| Event::ReplicaUp {
        replica: away,
        incarnation: Incarnation(incarnation),
        applied: Version::ZERO,
    };
    let state = |bench: &Bench| bench.protocol.replicas()[2].state;
    bench.feed(up(2));
    assert_eq!(state(&bench), State::Quarantined, "its agent connects again, and that says nothing");
    bench.feed(Event::Rebuilt { replica: away });
    assert_eq!(state(&bench), State::Down, "it is not believed to have anything before it says so");
    bench.feed(up(3));
    assert_eq!(state(&bench), State::Up);
    // Of one that is not in quarantine it means nothing.
    bench.feed(Event::Rebuilt { replica: ReplicaId(1) });
    assert_eq!(bench.protocol.replicas()[1].state, State::Up);
}

#[test]
fn another_replica_takes_over_when_it_has_what_the_lost_anchor_was_given() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.begin(S2, false);
    bench.finish(S1, 7, 1);
    assert_eq!(lose_anchor(&mut bench), ["reset 0", "home lost 1", "abort 2"]);
    assert!(bench.begin(S3, false).is_empty());
    assert_eq!(bench.feed(Event::TakeOver { from: ANCHOR }), ["anchor 1"], "version 1 is not durable yet");
    let logged = bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(logged, ["acknowledge 1", "apply 1..1 at 1", "apply 1..1 at 2"]);
    assert_eq!(bench.applied(1, 1), ["execute 3 at 1"]);
    assert_eq!(bench.finish(S3, 7, 1), ["append 2"]);
    bench.applied(2, 1);
    let back = Event::ReplicaUp { replica: ANCHOR, incarnation: Incarnation(2), applied: Version::ZERO };
    assert_eq!(bench.feed(back), ["apply 1..1 at 0"], "the old anchor is a replica like any other");
    assert_eq!(
        bench.feed(Event::Logged { upto: Version(2) }),
        ["acknowledge 3", "commit 3", "apply 2..2 at 2"]
    );
    assert!(bench.begin(S1, false).is_empty(), "it needs version 2");
    assert_eq!(bench.feed(Event::Committed { session: S3 }), ["execute 1 at 1"]);
}

#[test]
fn an_anchor_that_is_there_keeps_its_place() {
    let mut bench = Bench::new();
    assert!(bench.feed(Event::TakeOver { from: ANCHOR }).is_empty());
    lose_anchor(&mut bench);
    assert!(bench.feed(Event::TakeOver { from: ReplicaId(1) }).is_empty(), "it is not the anchor");
    bench.feed(Event::ReplicaUp { replica: ANCHOR, incarnation: Incarnation(2), applied: Version::ZERO });
    assert!(bench.feed(Event::TakeOver { from: ANCHOR }).is_empty());
    assert_eq!(bench.begin(S1, false), ["execute 1 at 0"]);
}

#[test]
fn the_first_replica_that_can_takes_over_and_catalogue_reads_follow_it() {
    let mut bench = Bench::new();
    for replica in 0..3 {
        bench.feed(Event::ReplicaLost { replica: ReplicaId(replica), incarnation: Incarnation(1) });
    }
    assert!(bench.feed(Event::TakeOver { from: ANCHOR }).is_empty(), "no replica can");
    let reads = Reads::Catalogue;
    bench.feed(Event::Read {
        session: S1,
        touches: reads.touches(),
        reads,
        at: None,
        cost_us: 1,
        near: None,
        catalogue: Version::ZERO,
        kind: None,
    });
    bench.begin(S2, false);
    let up = Event::ReplicaUp { replica: ReplicaId(2), incarnation: Incarnation(2), applied: Version::ZERO };
    assert_eq!(bench.feed(up), ["anchor 2", "execute 2 at 2", "execute 1 at 2"]);
}

#[test]
fn reports_of_an_earlier_incarnation_are_ignored() {
    let mut bench = Bench::new();
    bench.feed(Event::ReplicaLost { replica: ANCHOR, incarnation: Incarnation(1) });
    let up = Event::ReplicaUp { replica: ANCHOR, incarnation: Incarnation(2), applied: Version::ZERO };
    bench.feed(up);
    assert!(bench.feed(Event::ReplicaLost { replica: ANCHOR, incarnation: Incarnation(1) }).is_empty());
    assert_eq!(bench.begin(S1, false), ["execute 1 at 0"]);
}

#[test]
fn reads_are_classified_again_after_a_schema_change() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    let mut body = RecordBuilder::new(DatabaseId::FIRST);
    body.push_fence().unwrap();
    bench.feed(Event::Finish {
        session: S1,
        body: Box::new(body.seal()),
        claims: claimed(Claims::everything()),
        changed: Vec::new(),
        reads: Reads::All,
    });
    bench.feed(Event::Logged { upto: Version(1) });
    assert!(bench.read(S2, 7).is_empty(), "the catalogue is out of date");
    assert_eq!(bench.feed(Event::Committed { session: S1 }), ["catalogue 1"]);
    assert_eq!(bench.feed(Event::CatalogueLoaded { version: Version(1) }), ["reclassify 2"]);
}

#[test]
fn one_catalogue_is_asked_for_at_a_time() {
    let mut bench = Bench::new();
    let change = |bench: &mut Bench, session, version| {
        bench.begin(session, false);
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        body.push_fence().unwrap();
        bench.feed(Event::Finish {
            session,
            body: Box::new(body.seal()),
            claims: claimed(Claims::everything()),
            changed: Vec::new(),
            reads: Reads::All,
        });
        bench.feed(Event::Logged { upto: Version(version) });
        bench.feed(Event::Committed { session })
    };
    assert_eq!(change(&mut bench, S1, 1), ["catalogue 1"]);
    let none: [&str; 0] = [];
    assert_eq!(change(&mut bench, S2, 2), none, "the first is still being read");
    assert_eq!(change(&mut bench, S3, 3), none);
    assert_eq!(bench.feed(Event::CatalogueLoaded { version: Version(1) }), ["catalogue 3"]);
    assert_eq!(bench.feed(Event::CatalogueLoaded { version: Version(3) }), none);
}

#[test]
fn a_hold_stops_the_versions_until_all_replicas_are_level() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.begin(S2, false);
    bench.finish(S1, 7, 1);
    bench.feed(Event::Logged { upto: Version(1) });
    assert!(bench.feed(Event::Hold { session: S3 }).is_empty());
    assert!(bench.finish(S2, 7, 2).is_empty());
    bench.applied(1, 1);
    bench.applied(2, 1);
    assert_eq!(bench.feed(Event::Committed { session: S1 }), ["held 1"]);
    assert_eq!(bench.feed(Event::Release { session: S3 }), ["append 2"]);
}

#[test]
fn a_session_counts_once_as_load() {
    let mut bench = Bench::new();
    let read = |bench: &mut Bench| {
        assert_eq!(bench.read(S1, 7).len(), 1);
        bench.protocol.replicas().iter().map(|replica| replica.expected_wait_us).sum::<u64>()
    };
    let once = read(&mut bench);
    assert!(once > 0);
    assert_eq!(read(&mut bench), once, "the end of the first one was not reported");
    bench.feed(Event::Executed { session: S1 });
    assert!(bench.protocol.replicas().iter().all(|replica| replica.expected_wait_us == 0));
}
