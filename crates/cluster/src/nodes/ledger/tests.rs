//! The ledger by hand, and against a naive world: sessions, a link in two directions, and a leader that is lost now and then.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::event::{Foreseen, Home, Level, Needs, Reads};
use crate::ids::{Epoch, Incarnation, Nonce, ReplicaId, Version};
use crate::placement::Touches;
use crate::record::RecordBuilder;

const S: SessionId = SessionId(7);
/// What the home had when the first statement was let run.
const APPLIED: Version = Version(4);

fn needs() -> Needs {
    let (reads, touches, writes) = (Reads::All, Touches::Anything, crate::claims::Claims::default());
    Needs { reads, touches, writes, cost_us: 1, near: None, catalogue: Version::ZERO, kind: None }
}

fn begin(session: SessionId) -> Event {
    let (level, home, foreseen) = (Level::ReadCommitted, Home::Any, Foreseen::default());
    Event::Begin { session, level, nonce: Nonce(1), home, needs: needs(), foreseen }
}

fn read(session: SessionId) -> Event {
    let (reads, touches) = (Reads::All, Touches::Anything);
    let (catalogue, cost_us) = (Version::ZERO, 1);
    Event::Read { session, reads, touches, at: None, cost_us, near: None, catalogue, kind: None }
}

fn finish(session: SessionId) -> Event {
    let body = Box::new(RecordBuilder::new(crate::ids::DatabaseId::FIRST).seal());
    Event::Finish { session, body, claims: Vec::new(), changed: Vec::new(), reads: Reads::All }
}

fn identity(n: u64) -> Identity {
    Identity { epoch: Epoch(1), n, nonce: Nonce(1) }
}

fn execute(session: SessionId, identity: Option<Identity>) -> Effect {
    let (replica, incarnation) = (ReplicaId(0), Incarnation(1));
    Effect::Execute { session, replica, incarnation, identity, applied: APPLIED }
}

/// A session that has joined a leader.
fn joined() -> Ledger {
    let mut ledger = Ledger::new(Rules::default());
    assert!(ledger.joined().is_empty());
    ledger
}

impl Ledger {
    fn hears_now(&mut self, effect: Effect) -> Option<Effect> {
        let progress = self.sessions[&effect.session().unwrap()].progress;
        self.hear(Heard { progress, effect })
    }

    /// An update transaction is open.
    fn open() -> Self {
        let mut ledger = joined();
        ledger.say(begin(S));
        assert!(ledger.hears_now(execute(S, Some(identity(1)))).is_some());
        ledger
    }

    fn finished() -> Self {
        let mut ledger = Self::open();
        ledger.say(Event::Executed { session: S });
        assert!(ledger.say(finish(S)).is_some());
        ledger
    }
}

/// Design 1.5, step 7, a row each.
#[test]
fn design_1_5_7_each_session_gets_what_it_is_owed() {
    let mut asks = joined();
    asks.say(read(S));
    assert!(asks.lost().is_empty());
    let again = asks.joined();
    let is_read = |event: &Event| matches!(event, Event::Read { .. });
    assert!(matches!(&again[..], [Said::Event { event, .. }] if is_read(event)), "it asks again");

    let mut reads = joined();
    reads.say(read(S));
    reads.hears_now(execute(S, None));
    assert!(reads.lost().is_empty() && reads.joined().is_empty(), "its connection is lost");

    let mut open = Ledger::open();
    assert!(matches!(open.lost()[..], [Effect::Abort { cause: AbortCause::HomeLost, .. }]));
    assert!(open.joined().is_empty());

    let mut finished = Ledger::finished();
    assert!(finished.lost().is_empty());
    let asked = finished.joined();
    assert!(matches!(asked[..], [Said::Outcome { identity: of, after: APPLIED, .. }] if of == identity(1)));

    let mut acknowledged = Ledger::finished();
    acknowledged.hears_now(Effect::Acknowledge { session: S, version: Version(1) });
    acknowledged.hears_now(Effect::Commit { session: S, version: Version(1) });
    assert!(matches!(acknowledged.lost()[..], [Effect::HomeLost { .. }]));
    assert!(acknowledged.joined().is_empty());
}

#[test]
fn a_lost_home_is_told_once() {
    let mut ledger = Ledger::finished();
    assert!(ledger.hears_now(Effect::HomeLost { session: S }).is_some());
    ledger.lost();
    assert_eq!(ledger.joined().len(), 1, "the outcome is missing");
    assert!(ledger.hears_now(Effect::Acknowledge { session: S, version: Version(1) }).is_some());
    assert!(ledger.hears_now(Effect::HomeLost { session: S }).is_none());
}

#[test]
fn what_belongs_to_an_aborted_transaction_is_not_said() {
    let mut ledger = Ledger::open();
    ledger.lost();
    ledger.joined();
    let statement = Event::Statement { session: S, needs: needs() };
    for event in [statement, finish(S), Event::Failed { session: S }] {
        assert!(ledger.say(event).is_none(), "the abort is in its mailbox");
    }
    assert!(ledger.say(Event::End { session: S }).is_some());
    assert!(ledger.say(begin(S)).is_some());
}

#[test]
fn effects_that_were_under_way_when_the_session_went_on_are_dropped() {
    let mut ledger = joined();
    let Some(Said::Event { progress, .. }) = ledger.say(begin(S)) else { panic!("it is joined") };
    ledger.say(Event::GiveUp { session: S });
    assert!(ledger.hear(Heard { progress, effect: execute(S, Some(identity(1))) }).is_none());
    ledger.say(begin(S));
    assert!(ledger.hear(Heard { progress, effect: execute(S, Some(identity(1))) }).is_none());
    assert!(ledger.hears_now(execute(S, Some(identity(2)))).is_some());
}

/// A transaction goes on after a statement was withdrawn, so its abort must reach it, however late.
#[test]
fn an_abort_reaches_a_session_that_has_withdrawn_a_statement() {
    let mut ledger = Ledger::open();
    let statement = Event::Statement { session: S, needs: needs() };
    let Some(Said::Event { progress, .. }) = ledger.say(statement) else { panic!("it is joined") };
    ledger.say(Event::Withdraw { session: S });
    assert!(ledger.hear(Heard { progress, effect: execute(S, None) }).is_none(), "its answer is late");
    let abort = Effect::Abort { session: S, cause: AbortCause::HomeLost };
    assert!(ledger.hear(Heard { progress, effect: abort }).is_some());
}

#[test]
fn a_transaction_whose_first_statement_was_withdrawn_ends_with_its_leader() {
    let mut ledger = joined();
    ledger.say(begin(S));
    ledger.say(Event::Withdraw { session: S });
    assert!(matches!(ledger.lost()[..], [Effect::Abort { .. }]), "no core knows of it");
}

/// The naive session: what its code would wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Naive {
    Idle,
    Placing,
    Running(Identity),
    Ordering(Identity),
    Settling { is_acknowledged: bool, is_settled: bool },
}

/// A leader, the log that outlives it, and the link in two directions.
#[derive(Default)]
struct NaiveWorld {
    ledger: Ledger,
    sessions: BTreeMap<SessionId, Naive>,
    mail: VecDeque<Effect>,
    there: VecDeque<Said>,
    back: VecDeque<Heard>,
    log: BTreeSet<Identity>,
    /// The identities of which the present leader knows that they are open.
    open: BTreeSet<Identity>,
    begun: u64,
    outcomes: BTreeMap<Identity, bool>,
    finished: Vec<Identity>,
}

impl NaiveWorld {
    fn say(&mut self, event: Event) {
        self.there.extend(self.ledger.say(event));
    }

    fn act(&mut self, session: SessionId, choice: u8) {
        match self.sessions[&session] {
            Naive::Idle => {
                self.sessions.insert(session, Naive::Placing);
                self.say(begin(session));
            }
            Naive::Placing if choice == 0 => self.end(session, Event::GiveUp { session }),
            Naive::Running(identity) if choice == 0 => {
                self.sessions.insert(session, Naive::Ordering(identity));
                self.finished.push(identity);
                self.say(finish(session));
            }
            Naive::Running(_) if choice == 1 => self.end(session, Event::End { session }),
            Naive::Placing | Naive::Running(_) | Naive::Ordering(_) | Naive::Settling { .. } => {}
        }
    }

    /// As the code of sessions does: what is in the mailbox of what is over is dropped.
    fn end(&mut self, session: SessionId, event: Event) {
        self.sessions.insert(session, Naive::Idle);
        self.mail.retain(|effect| effect.session() != Some(session));
        self.say(event);
    }

    fn read_mail(&mut self) {
        let Some(effect) = self.mail.pop_front() else { return };
        let session = effect.session().unwrap();
        let next = match (effect, self.sessions[&session]) {
            (Effect::Execute { identity, .. }, Naive::Placing) => Naive::Running(identity.unwrap()),
            (Effect::Acknowledge { .. }, Naive::Ordering(identity)) => {
                self.told(identity, true);
                Naive::Settling { is_acknowledged: true, is_settled: false }
            }
            (Effect::HomeLost { .. }, Naive::Settling { is_acknowledged: true, .. }) => Naive::Idle,
            (Effect::Abort { .. }, state) => {
                if let Naive::Ordering(identity) = state {
                    self.told(identity, false);
                }
                self.end(session, Event::End { session });
                return;
            }
            (effect, state) => panic!("{effect:?} in {state:?}"),
        };
        self.sessions.insert(session, next);
    }

    fn told(&mut self, identity: Identity, is_committed: bool) {
        assert!(self.outcomes.insert(identity, is_committed).is_none(), "an outcome is told once");
    }

    fn lead(&mut self, appends: bool) {
        let Some(said) = self.there.pop_front() else { return };
        let (progress, session, identity) = match said {
            Said::Event { progress, event } => match *event {
                Event::Begin { session, .. } => {
                    self.begun += 1;
                    self.open.insert(identity(self.begun));
                    let effect = execute(session, Some(identity(self.begun)));
                    self.back.push_back(Heard { progress, effect });
                    return;
                }
                Event::Finish { session, .. } => {
                    // The naive session has told which one; a leader would know it by the session.
                    let Naive::Ordering(identity) = self.sessions[&session] else { return };
                    assert!(self.open.remove(&identity), "the leader knows of what is finished");
                    if appends {
                        self.log.insert(identity);
                    }
                    (progress, session, identity)
                }
                _ => return,
            },
            Said::Outcome { progress, session, identity, .. } => (progress, session, identity),
            Said::Closed { .. } => return,
        };
        let effects = if self.log.contains(&identity) {
            vec![Effect::Acknowledge { session, version: Version(1) }, Effect::HomeLost { session }]
        } else {
            vec![Effect::Abort { session, cause: AbortCause::HomeLost }]
        };
        self.back.extend(effects.into_iter().map(|effect| Heard { progress, effect }));
    }

    fn break_link(&mut self) {
        self.there.clear();
        self.back.clear();
        self.open.clear();
        let owed = self.ledger.lost();
        self.mail.extend(owed);
    }

    fn join(&mut self) {
        if !self.ledger.is_joined() {
            self.there.extend(self.ledger.joined());
        }
    }

    fn step(&mut self, step: u8, session: u8, choice: u8) {
        match step {
            0..4 => self.act(SessionId(u64::from(session)), choice),
            4..7 => self.lead(choice.is_multiple_of(2)),
            7..10 => {
                let heard = self.back.pop_front();
                self.mail.extend(heard.and_then(|heard| self.ledger.hear(heard)));
            }
            10..13 => self.read_mail(),
            13 => self.break_link(),
            _ => self.join(),
        }
    }
}

proptest! {
    #[test]
    fn nobody_waits_for_ever_and_every_outcome_is_told_once_and_true(
        steps in proptest::collection::vec((0..16_u8, 0..3_u8, 0..4_u8), 0..200),
    ) {
        let sessions = (0..3).map(|session| (SessionId(session), Naive::Idle)).collect();
        let mut world = NaiveWorld { sessions, ..NaiveWorld::default() };
        for (step, session, choice) in steps {
            world.step(step, session, choice);
        }
        // A last leader answers everything, and nothing breaks any more.
        world.break_link();
        world.join();
        for _ in 0..60 {
            for step in [4, 7, 10] {
                world.step(step, 0, 0);
            }
        }
        for (session, state) in &world.sessions {
            let is_served = matches!(state, Naive::Idle | Naive::Running(_));
            prop_assert!(is_served, "session {session} is left with {state:?}");
        }
        for identity in &world.finished {
            prop_assert_eq!(world.outcomes.get(identity), Some(&world.log.contains(identity)));
        }
    }
}
