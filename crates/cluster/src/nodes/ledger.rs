//! What the sessions of a node are owed by the core, which may be at another node.
//!
//! A ledger stands between the sessions of a node and the link to the leader. It follows what sessions say and hear, and knows of each
//! how far its exchange with the core is ([`Stage`]). When the term ends or the link breaks, it gives each session at once the effect
//! that the session would have got if its home had been lost. So sessions need no code of their own for a take-over.
//!
//! | stage | when the term ends | when the next one is joined |
//! |---|---|---|
//! | nothing | | |
//! | asked for a place, or a hold | | asks again |
//! | a read runs | its connection will be lost | |
//! | an update is open | `Abort { HomeLost }` | |
//! | Finish was sent | | asks for the outcome of the identity |
//! | acknowledged, COMMIT not over | `HomeLost` | |
//!
//! For example, session 7 has sent its Finish, and the leader dies. The client of session 7 waits. The next leader reads the log and
//! finds the identity there or not. Its answer is `Acknowledge` and `HomeLost`, or `Abort`; the client sees a COMMIT or 40001, and
//! never an unknown outcome (design 1.5, step 7).
//!
//! *Late effects.* A session that gives up, ends or yields clears its mailbox, because nothing more comes for what is over. With a
//! core that is far away something may be under way. So each event carries the session's [`Progress`], the leader returns with each
//! effect what it knew, and the ledger drops an effect that is older. A session that withdraws one statement stays in its transaction: an
//! answer to that statement is dropped, and an abort of the transaction is not, or the session would go on in a transaction that the
//! core has forgotten.
//!
//! Invariant: of each session at most one place is asked for, and at most one outcome.
//!
//! Not here: the numbers of crews ([`super::roster`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Progress, Rules};
use crate::event::{AbortCause, Effect, Event};
use crate::ids::{Identity, SessionId, Version};

/// What a node says to the leader.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Said {
    /// A session's event.
    Event {
        /// How far the session is.
        progress: Progress,
        /// The event.
        event: Box<Event>,
    },
    /// What became of the transaction that a session finished in a former term, or over a former link?
    Outcome {
        /// How far the session is.
        progress: Progress,
        /// The session.
        session: SessionId,
        /// Its transaction.
        identity: Identity,
        /// Its record has a version above this one, if it is in the log.
        after: Version,
    },
    /// The session is closed.
    Closed {
        /// The session.
        session: SessionId,
    },
}

/// The same at the leader, with the session's crew.
#[derive(Clone, Debug)]
pub enum Question {
    /// An event for the core.
    Event(Box<Event>),
    /// To be looked up in the log, then [`Event::Outcome`].
    Outcome {
        /// The session.
        session: SessionId,
        /// Its transaction.
        identity: Identity,
        /// Its record has a version above this one, if it is in the log. If the log begins later, the outcome cannot be told.
        after: Version,
    },
}

/// What the leader says to a session of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heard {
    /// How far the session was when the leader heard of it last.
    pub progress: Progress,
    /// The effect.
    pub effect: Effect,
}

/// How far the exchange of a session with the core is.
#[derive(Debug, Default)]
enum Stage {
    /// The core owes it nothing.
    #[default]
    Nothing,
    /// It waits for a place, or for a hold: its question, to be asked again.
    Asked(Box<Event>),
    /// A read runs.
    Reading,
    /// An update transaction is begun; what is known of it, once its first statement was let run.
    Open(Option<Begun>),
    /// Its Finish was sent.
    Finished {
        begun: Begun,
        /// It was told that its home is lost, so the outcome alone is missing.
        is_home_lost: bool,
    },
    /// It was acknowledged, and its COMMIT is not over.
    Acknowledged,
    /// All replicas are held for it.
    Holding,
}

/// A transaction whose first statement was let run.
#[derive(Clone, Copy, Debug)]
struct Begun {
    identity: Identity,
    /// Its home had every version up to this one, so its record comes later.
    after: Version,
}

#[derive(Debug, Default)]
struct Entry {
    progress: Progress,
    stage: Stage,
}

/// The sessions of a node, by their own numbers.
#[derive(Debug, Default)]
pub struct Ledger {
    rules: Rules,
    sessions: BTreeMap<SessionId, Entry>,
    is_joined: bool,
}

impl Ledger {
    /// A node that follows no leader yet.
    ///
    /// ```
    /// use cluster::event::{Effect, Event};
    /// use cluster::ids::{Identity, SessionId, Version};
    /// use cluster::nodes::{Progress, Rules, ledger::{Heard, Ledger, Said}};
    ///
    /// let mut ledger = Ledger::new(Rules::default());
    /// let session = SessionId(7);
    /// let hold = Event::Hold { session };
    /// assert!(ledger.say(hold).is_none(), "there is no leader, so the question waits");
    /// let said = ledger.joined();
    /// assert!(matches!(&said[..], [Said::Event { event, .. }] if matches!(**event, Event::Hold { .. })));
    ///
    /// let effect = Effect::Held { session, version: Version(3) };
    /// assert!(ledger.hear(Heard { progress: Progress::default(), effect }).is_some());
    /// assert!(matches!(ledger.lost()[..], [Effect::Abort { .. }]), "the hold ended with its leader");
    /// ```
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// A session says something. Returns what goes over the link, if something does.
    pub fn say(&mut self, event: Event) -> Option<Said> {
        let session = event.session()?;
        let entry = self.sessions.entry(session).or_default();
        if entry.is_void(&event) {
            return None;
        }
        entry.note_event(&event);
        let progress = entry.progress;
        self.is_joined.then_some(Said::Event { progress, event: Box::new(event) })
    }

    /// The leader says something. Returns the effect for its session, unless the session has gone on.
    pub fn hear(&mut self, heard: Heard) -> Option<Effect> {
        let Heard { progress, effect } = heard;
        let entry = self.sessions.get_mut(&effect.session()?)?;
        if self.rules.late_effects_are_dropped && entry.is_late(progress, &effect) {
            return None;
        }
        entry.note_effect(&effect).then_some(effect)
    }

    /// The session is closed.
    pub fn close(&mut self, session: SessionId) -> Option<Said> {
        self.sessions.remove(&session)?;
        self.is_joined.then_some(Said::Closed { session })
    }

    /// The term has ended, or the link is broken. Returns what sessions are owed for it at once.
    pub fn lost(&mut self) -> Vec<Effect> {
        self.is_joined = false;
        let asks = self.rules.outcome_is_asked;
        self.sessions.iter_mut().filter_map(|(session, entry)| entry.lost(*session, asks)).collect()
    }

    /// A leader was joined. Returns what is to be said first, in this order.
    pub fn joined(&mut self) -> Vec<Said> {
        self.is_joined = true;
        self.sessions.iter().filter_map(|(session, entry)| entry.again(*session)).collect()
    }

    /// Whether a leader is joined.
    pub fn is_joined(&self) -> bool {
        self.is_joined
    }
}

impl Entry {
    /// Whether the event is about a transaction that is over for the core. The session will find the abort in its mailbox.
    fn is_void(&self, event: &Event) -> bool {
        let needs_open = matches!(
            event,
            Event::Statement { .. }
                | Event::ReserveLate { .. }
                | Event::LockLsn { .. }
                | Event::Digest { .. }
                | Event::Finish { .. }
                | Event::Failed { .. }
                | Event::Undone { .. }
        );
        needs_open && matches!(self.stage, Stage::Nothing)
    }

    fn note_event(&mut self, event: &Event) {
        let stage = std::mem::take(&mut self.stage);
        self.stage = match (event, stage) {
            (Event::Read { .. } | Event::Begin { .. } | Event::Hold { .. }, _) => {
                Stage::Asked(Box::new(event.clone()))
            }
            (Event::Executed { .. }, Stage::Reading) => Stage::Nothing,
            // Without a Begin that was answered the core does not know its identity; with none at all it has nothing to lose.
            (Event::Finish { .. }, Stage::Open(Some(begun))) => {
                Stage::Finished { begun, is_home_lost: false }
            }
            (Event::Withdraw { .. }, stage) => {
                self.progress.withdrawn += 1;
                match stage {
                    Stage::Asked(event) if matches!(*event, Event::Begin { .. }) => Stage::Open(None),
                    Stage::Asked(_) => Stage::Nothing,
                    stage => stage,
                }
            }
            (
                Event::End { .. }
                | Event::Yield { .. }
                | Event::Committed { .. }
                | Event::GiveUp { .. }
                | Event::Release { .. },
                _,
            ) => {
                self.progress = Progress { ended: self.progress.ended + 1, withdrawn: 0 };
                Stage::Nothing
            }
            (_, stage) => stage,
        };
    }

    /// Whether the session has gone on since the leader knew this of it.
    fn is_late(&self, known: Progress, effect: &Effect) -> bool {
        let answers_statement = matches!(
            effect,
            Effect::Execute { .. } | Effect::LateReservation { .. } | Effect::Reclassify { .. }
        );
        known.ended < self.progress.ended || answers_statement && known < self.progress
    }

    /// Notes an effect. False if the session has had it before.
    fn note_effect(&mut self, effect: &Effect) -> bool {
        let stage = std::mem::take(&mut self.stage);
        let (stage, is_new) = match (effect, stage) {
            (Effect::Execute { .. }, Stage::Asked(event)) if matches!(*event, Event::Read { .. }) => {
                (Stage::Reading, true)
            }
            (Effect::Execute { identity, applied, .. }, Stage::Asked(_)) => {
                (Stage::Open(begun(*identity, *applied)), true)
            }
            (Effect::Execute { identity, applied, .. }, Stage::Open(known)) => {
                (Stage::Open(known.or_else(|| begun(*identity, *applied))), true)
            }
            (Effect::Held { .. }, _) => (Stage::Holding, true),
            (Effect::Acknowledge { .. }, Stage::Finished { is_home_lost: false, .. }) => {
                (Stage::Acknowledged, true)
            }
            (Effect::HomeLost { .. }, Stage::Finished { begun, is_home_lost: false }) => {
                (Stage::Finished { begun, is_home_lost: true }, true)
            }
            // After a Reclassify the session asks anew by itself; after the others it is owed nothing.
            (Effect::Reclassify { .. }, Stage::Asked(_))
            | (Effect::Acknowledge { .. }, Stage::Finished { .. })
            | (Effect::HomeLost { .. }, Stage::Acknowledged)
            | (Effect::Abort { .. }, _) => (Stage::Nothing, true),
            // Once for a lost home of the former term, and again with the outcome.
            (Effect::HomeLost { .. }, stage) => (stage, false),
            (_, stage) => (stage, true),
        };
        self.stage = stage;
        is_new
    }

    fn lost(&mut self, session: SessionId, asks: bool) -> Option<Effect> {
        let abort = Effect::Abort { session, cause: AbortCause::HomeLost };
        let (stage, owed) = match std::mem::take(&mut self.stage) {
            Stage::Nothing | Stage::Reading => (Stage::Nothing, None),
            Stage::Finished { .. } if !asks => (Stage::Nothing, Some(abort)),
            stage @ (Stage::Asked(_) | Stage::Finished { .. }) => (stage, None),
            Stage::Open(_) | Stage::Holding => (Stage::Nothing, Some(abort)),
            Stage::Acknowledged => (Stage::Nothing, Some(Effect::HomeLost { session })),
        };
        self.stage = stage;
        owed
    }

    fn again(&self, session: SessionId) -> Option<Said> {
        let progress = self.progress;
        match &self.stage {
            Stage::Asked(event) => Some(Said::Event { progress, event: event.clone() }),
            Stage::Finished { begun: Begun { identity, after }, .. } => {
                Some(Said::Outcome { progress, session, identity: *identity, after: *after })
            }
            Stage::Nothing | Stage::Reading | Stage::Open(_) | Stage::Acknowledged | Stage::Holding => None,
        }
    }
}

fn begun(identity: Option<Identity>, after: Version) -> Option<Begun> {
    identity.map(|identity| Begun { identity, after })
}

#[cfg(test)]
mod tests;
