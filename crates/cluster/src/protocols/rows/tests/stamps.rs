//! Protocol `preventive`: transactions in the order of stamps, and replicas that perform them.

use super::*;
use crate::event::{Digest, Message, Performance, Whole};
use crate::placement::{Copies, ReplicaSet};
use crate::protocols::preventive::{PREVENTIVE, PREVENTIVE_BASIC, WAIT_US};
use crate::protocols::rows::PERFORMER_PATIENCE_US;

const NONE: [&str; 0] = [];
pub(super) const SAME: Digest = Digest(1);
const OTHER: Digest = Digest(2);

/// A bench that holds the messages of agents back until they are asked for.
pub(super) struct Stage {
    pub(super) bench: Bench,
    messages: Vec<(ReplicaId, ReplicaId, Message)>,
    /// The last transaction that was performed, and its attempt.
    asked: Vec<(ReplicaId, Identity, u64)>,
}

impl Stage {
    fn new(choices: Choices) -> Self {
        Self::placed(choices, Placement::full(3))
    }

    fn placed(choices: Choices, placement: Placement) -> Self {
        Self::on(Bench::made(choices, placement, 0))
    }

    pub(super) fn on(bench: Bench) -> Self {
        Self { bench, messages: Vec::new(), asked: Vec::new() }
    }

    /// The effects of one event as words, without messages and alarms.
    pub(super) fn feed(&mut self, event: Event) -> Vec<String> {
        let mut said = self.bench.feed(event);
        for effect in std::mem::take(&mut self.bench.effects) {
            match effect {
                Effect::Send { from, to, message } => self.messages.push((from, to, message)),
                Effect::Perform { replica, identity, attempt, .. } => {
                    self.asked.push((replica, identity, attempt));
                }
                _ => {}
            }
        }
        said.retain(|word| !word.starts_with("wake at") && !word.starts_with("send"));
        said
    }

    /// Begins in turn: the first transaction at replica 1, the next at 2, then at 0. It is a single statement that writes these rows.
    fn call(&mut self, session: SessionId, written: &[u64]) -> Vec<String> {
        let whole =
            Whole { writes: rows(written), reads: Claims::default(), is_sure: true, is_performable: true };
        let touches = Touches::Tables([TABLE].into());
        let needs =
            Needs { reads: Reads::Tables([].into()), touches, ..writing(Level::ReadCommitted, written) };
        self.feed(Event::Begin {
            session,
            level: Level::ReadCommitted,
            nonce: Nonce(session.0),
            home: Home::Any,
            needs,
            foreseen: Foreseen::Whole(Box::new(whole)),
        })
    }

    /// The messages that wait for a replica arrive there.
    pub(super) fn deliver(&mut self, at: u16) -> Vec<String> {
        let mut said = Vec::new();
        for (from, to, message) in std::mem::take(&mut self.messages) {
            if to == ReplicaId(at) {
                said.extend(self.feed(Event::Arrived { from, to, message }));
            } else {
                self.messages.push((from, to, message));
            }
        }
        said
    }

    /// The last execution that was asked for at a replica has ended.
    pub(super) fn performed(&mut self, at: u16, performance: Performance) -> Vec<String> {
        let asked = self.asked.iter().rev().find(|(replica, ..)| *replica == ReplicaId(at));
        let (replica, identity, attempt) = *asked.expect("an execution was asked for");
        self.feed(Event::Performed { replica, identity, attempt, performance })
    }

    /// The session's transaction has run at its home.
    fn finish(&mut self, session: SessionId, written: &[u64]) -> Vec<String> {
        self.feed(Event::Executed { session });
        self.feed(Event::Digest { session, digest: SAME });
        self.bench.finish_with(session, &[rows(written)], Reads::Tables([].into()));
        let said = self.bench.effects.iter().map(word).filter(|word| !word.starts_with("wake at"));
        said.collect()
    }

    /// Max + epsilon goes by.
    pub(super) fn wait(&mut self) -> Vec<String> {
        self.bench.now += WAIT_US;
        self.feed(Event::WakeUp)
    }
}

/// Section 4.2: replicas that hold all of it perform it. Each commits what it has performed, since that is what the record says.
#[test]
fn what_is_performed_alike_commits_at_each_replica() {
    let mut stage = Stage::new(PREVENTIVE);
    assert_eq!(stage.call(S1, &[7]), ["execute 1 at 1"], "5.1: it starts on arrival");
    assert_eq!(stage.deliver(0), ["perform 1 at 0, 1"]);
    assert_eq!(stage.deliver(2), ["perform 1 at 2, 2"]);
    assert_eq!(stage.finish(S1, &[7]), NONE, "it is not ordered");
    assert_eq!(stage.performed(0, Performance::Done(SAME)), NONE);
    assert_eq!(stage.performed(2, Performance::Done(SAME)), NONE);
    assert_eq!(stage.wait(), ["append 1"]);
    let said = stage.feed(Event::Logged { upto: Version(1) });
    assert_eq!(said, ["acknowledge 1", "commit own 1 at 0", "commit 1", "commit own 1 at 2"]);
    assert_eq!(stage.bench.protocol.stamps().performed, 2);
}

#[test]
fn a_replica_that_has_changed_other_rows_takes_the_record() {
    let mut stage = Stage::new(PREVENTIVE);
    stage.call(S1, &[7]);
    stage.deliver(0);
    stage.deliver(2);
    stage.performed(0, Performance::Done(OTHER));
    stage.performed(2, Performance::Failed);
    stage.finish(S1, &[7]);
    stage.wait();
    let said = stage.feed(Event::Logged { upto: Version(1) });
    assert_eq!(said, ["acknowledge 1", "undo 1 at 0", "apply 1..1 at 0", "commit 1", "apply 1..1 at 2"]);
    assert_eq!(stage.bench.protocol.stamps().differed, 1);
}

/// An execution that waits for a lock of something that waits for the version would wait for ever.
#[test]
fn the_turn_of_a_version_waits_only_so_long_for_its_performer() {
    let mut stage = Stage::new(PREVENTIVE);
    stage.call(S1, &[7]);
    stage.deliver(0);
    stage.finish(S1, &[7]);
    stage.wait();
    let said = stage.feed(Event::Logged { upto: Version(1) });
    assert_eq!(
        said,
        ["acknowledge 1", "commit 1", "apply 1..1 at 2"],
        "2 has not heard of it but by the log"
    );
    stage.bench.now += PERFORMER_PATIENCE_US;
    assert_eq!(stage.feed(Event::WakeUp), ["undo 1 at 0", "apply 1..1 at 0"]);
    assert_eq!(stage.performed(0, Performance::Done(SAME)), NONE, "it comes too late");
    assert_eq!(stage.deliver(2), NONE, "the record has come before the message");
}

/// Section 5.1: "If the message is received out of order, [..] T is aborted and re-submitted". It runs again under its stamp.
#[test]
fn younger_transactions_that_conflict_are_undone_and_run_again() {
    let mut stage = Stage::new(PREVENTIVE);
    assert_eq!(stage.call(S1, &[7]), ["execute 1 at 1"]);
    assert_eq!(stage.call(S2, &[7]), ["execute 2 at 2"], "it has not heard of the older one");
    assert_eq!(stage.call(S3, &[8]), ["execute 3 at 0"]);
    stage.finish(S2, &[7]);
    stage.finish(S3, &[8]);
    stage.bench.now += WAIT_US;
    let said = stage.deliver(2);
    assert_eq!(
        said,
        ["again 2", "perform 3 at 2, 1"],
        "its message took longer than Max, and 3 does not conflict"
    );
    assert_eq!(stage.bench.protocol.stamps().late, 2, "at 2, of 1 and of 3");
    let said = stage.feed(Event::Undone { session: S2 });
    assert_eq!(said, ["perform 1 at 2, 2"], "and 2 waits for that");
    assert_eq!(stage.finish(S1, &[7]), NONE);
    assert_eq!(stage.feed(Event::WakeUp), ["append 1"]);
    let said = stage.feed(Event::Logged { upto: Version(1) });
    assert_eq!(said, ["acknowledge 1", "apply 1..1 at 0", "commit 1"]);
    assert_eq!(stage.performed(2, Performance::Done(SAME)), ["commit own 1 at 2"]);
    assert_eq!(stage.bench.applied(2, 1), ["execute 2 at 2"]);
    assert_eq!(stage.finish(S2, &[7]), ["append 2", "append 3"], "3 was younger");
    assert_eq!(stage.bench.protocol.known_misjudged(), 0);
}

#[test]
fn a_record_stands_for_a_message_that_is_on_its_way() {
    let mut stage = Stage::new(PREVENTIVE);
    stage.call(S1, &[7]);
    assert_eq!(stage.call(S2, &[7]), ["execute 2 at 2"]);
    stage.finish(S2, &[7]);
    stage.finish(S1, &[7]);
    assert_eq!(stage.wait(), ["append 1", "again 2"], "2 is not appended, and hears why");
    stage.feed(Event::Undone { session: S2 });
    stage.feed(Event::Logged { upto: Version(1) });
    assert_eq!(stage.bench.applied(2, 1), ["execute 2 at 2"]);
}

/// Section 4: without 5.1 it starts when it is ordered.
#[test]
fn the_basic_form_starts_when_it_is_ordered() {
    let mut stage = Stage::new(PREVENTIVE_BASIC);
    assert_eq!(stage.call(S1, &[7]), NONE);
    assert_eq!(stage.deliver(0), NONE);
    assert_eq!(stage.wait(), ["perform 1 at 0, 1", "execute 1 at 1"]);
}

#[test]
fn what_is_not_known_as_a_whole_starts_in_order_and_is_performed_by_its_home_alone() {
    let mut stage = Stage::new(PREVENTIVE);
    let needs = writing(Level::ReadCommitted, &[7]);
    let began = |session| Event::Begin {
        session,
        level: Level::ReadCommitted,
        nonce: Nonce(session.0),
        home: Home::Any,
        needs: needs.clone(),
        foreseen: Foreseen::default(),
    };
    assert_eq!(stage.feed(began(S1)), NONE);
    assert_eq!(stage.deliver(0), NONE);
    assert_eq!(stage.wait(), ["execute 1 at 1"]);
    stage.feed(Event::Executed { session: S1 });
    let second = Event::Statement { session: S1, needs: writing(Level::ReadCommitted, &[9]) };
    assert_eq!(stage.feed(second), ["execute 1 at 1"], "its later statements wait for no one");
    stage.deliver(2);
    assert_eq!(stage.call(S2, &[8]), NONE, "nobody knows that they do not conflict");
}

#[test]
fn a_lost_home_ends_what_is_not_in_the_log_and_keeps_no_one_waiting() {
    let mut stage = Stage::new(PREVENTIVE);
    stage.call(S1, &[7]);
    stage.deliver(0);
    stage.deliver(2);
    assert_eq!(stage.call(S2, &[7]), NONE, "at 2, behind the first one");
    stage.performed(0, Performance::Done(SAME));
    let lost = Event::ReplicaLost { replica: ReplicaId(1), incarnation: Incarnation(1) };
    let said = stage.feed(lost);
    assert_eq!(said, ["reset 1", "abort 1", "undo 1 at 0", "undo 2 at 2", "execute 2 at 2"]);
    assert_eq!(stage.performed(0, Performance::Done(SAME)), NONE, "nobody asks any more");
    stage.finish(S2, &[7]);
    assert_eq!(stage.wait(), ["append 1"]);
}

/// Section 4.2: a node that lacks a table waits for the refresh transaction.
#[test]
fn a_replica_that_lacks_a_table_waits_for_the_record_and_lets_others_pass() {
    let mut placement = Placement::full(3);
    placement.restrict(DatabaseId::FIRST.table(9), Copies::Whole(ReplicaSet::first(2)));
    let mut stage = Stage::placed(PREVENTIVE, placement);
    let touches = Touches::Tables([TABLE, DatabaseId::FIRST.table(9)].into());
    let needs = Needs { touches, ..writing(Level::ReadCommitted, &[7]) };
    let whole = Whole { writes: rows(&[7]), reads: Claims::default(), is_sure: true, is_performable: true };
    let began = stage.feed(Event::Begin {
        session: S1,
        level: Level::ReadCommitted,
        nonce: Nonce(1),
        home: Home::Any,
        needs,
        foreseen: Foreseen::Whole(Box::new(whole)),
    });
    assert_eq!(began, ["execute 1 at 1"]);
    assert_eq!((stage.deliver(0), stage.deliver(2)), (vec!["perform 1 at 0, 1".to_owned()], vec![]));
    assert_eq!(stage.call(S2, &[8]), ["execute 2 at 2"], "it does not conflict");
    assert_eq!(stage.call(S3, &[7]), NONE);
    stage.finish(S1, &[7]);
    assert_eq!(stage.wait(), ["append 1"]);
}

#[test]
fn an_execution_in_the_way_of_a_refresh_gives_way() {
    let mut stage = Stage::new(PREVENTIVE);
    stage.call(S1, &[7]);
    stage.deliver(0);
    assert_eq!(stage.performed(0, Performance::Blocks), ["undo 1 at 0"]);
    stage.finish(S1, &[7]);
    stage.wait();
    let said = stage.feed(Event::Logged { upto: Version(1) });
    assert_eq!(said, ["acknowledge 1", "apply 1..1 at 0", "commit 1", "apply 1..1 at 2"]);
}

/// Their claims say that the two do not conflict, and a server knows better.
#[test]
fn an_older_transaction_that_waits_inside_a_server_undoes_the_younger_one() {
    let mut stage = Stage::new(PREVENTIVE);
    stage.call(S1, &[7]);
    for (session, row) in [(S2, 8), (S3, 9)] {
        assert_eq!(stage.call(session, &[row]).len(), 1, "each has a home of its own");
    }
    let waits = |edges| Event::ServerWaits { edges };
    assert_eq!(stage.feed(waits(vec![(S1, S2), (S3, S1)])), NONE, "a wait counts when it is told twice");
    assert_eq!(stage.feed(waits(vec![(S1, S2), (S3, S1)])), ["again 2"], "and 1 is older than 3");
    assert_eq!(stage.feed(Event::Undone { session: S2 }), ["execute 2 at 2"]);
}
