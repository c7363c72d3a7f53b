//! The leader's side of the links: whose an event is, and which of a session's events an effect answers.
//!
//! A node numbers its sessions by itself, and its link knows no crew. The leader gives each link the number of a crew. So an event of
//! session 7 over the link of crew 3 becomes one of session 3.7, and no node can speak for the sessions of another one. On the way
//! back the effect gets the [`Progress`] of the session as far as the leader knows it. The node drops the effect if its session has gone
//! on meanwhile ([`super::ledger`]).
//!
//! Invariant: numbers of crews are not used twice in a term.

use std::collections::BTreeMap;

use super::Progress;
use super::ledger::{Heard, Question, Said};
use crate::event::{Effect, Event};
use crate::ids::{CrewId, SessionId};

/// The crews of a term.
#[derive(Debug, Default)]
pub struct Roster {
    crews: BTreeMap<CrewId, BTreeMap<u64, Progress>>,
    last: CrewId,
}

/// The roster has no number left for another crew. The leader has to begin a new term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyCrews;

impl Roster {
    /// A node has joined: the number of its crew.
    pub fn join(&mut self) -> Result<CrewId, TooManyCrews> {
        self.last = CrewId(self.last.0.checked_add(1).ok_or(TooManyCrews)?);
        self.crews.insert(self.last, BTreeMap::new());
        Ok(self.last)
    }

    /// The link of a crew was broken. Say [`Event::NodeLost`] to the core, unless it was lost before.
    pub fn leave(&mut self, crew: CrewId) -> Option<Event> {
        self.crews.remove(&crew).map(|_| Event::NodeLost { crew })
    }

    /// What a crew has said, for the core, or a question about the log. `None` if the crew is lost.
    pub fn hear(&mut self, crew: CrewId, said: Said) -> Option<Question> {
        let sessions = self.crews.get_mut(&crew)?;
        match said {
            Said::Event { progress, mut event } => {
                let session = event.session_mut()?;
                sessions.insert(session.counter(), progress);
                *session = SessionId::of(crew, session.counter());
                Some(Question::Event(event))
            }
            Said::Outcome { progress, session, identity, after } => {
                sessions.insert(session.counter(), progress);
                let session = SessionId::of(crew, session.counter());
                Some(Question::Outcome { session, identity, after })
            }
            Said::Closed { session } => {
                sessions.remove(&session.counter());
                let session = SessionId::of(crew, session.counter());
                Some(Question::Event(Box::new(Event::Closed { session })))
            }
        }
    }

    /// An effect of the core for a session, as it goes over the link of its crew. `None` if the session is gone.
    pub fn address(&self, mut effect: Effect) -> Option<(CrewId, Heard)> {
        let session = effect.session_mut()?;
        let crew = session.crew();
        let progress = *self.crews.get(&crew)?.get(&session.counter())?;
        *session = SessionId(session.counter());
        Some((crew, Heard { progress, effect }))
    }

    /// The crews that are joined.
    pub fn crews(&self) -> impl Iterator<Item = CrewId> {
        self.crews.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_finds_its_way_back_with_what_the_leader_knew() {
        let mut roster = Roster::default();
        let (one, other) = (roster.join().unwrap(), roster.join().unwrap());
        let progress = Progress { ended: 4, withdrawn: 1 };
        let event = Box::new(Event::Executed { session: SessionId(7) });
        let Some(Question::Event(event)) = roster.hear(other, Said::Event { progress, event }) else {
            panic!("an event of a crew that is there")
        };
        assert_eq!(event.session(), Some(SessionId::of(other, 7)));
        let effect = Effect::HomeLost { session: SessionId::of(other, 7) };
        let (crew, heard) = roster.address(effect).expect("the crew is there");
        assert_eq!((crew, heard.progress, heard.effect.session()), (other, progress, Some(SessionId(7))));
        assert!(roster.address(Effect::HomeLost { session: SessionId::of(one, 7) }).is_none());
    }

    #[test]
    fn a_lost_crew_says_and_hears_nothing_and_its_number_is_not_used_again() {
        let mut roster = Roster::default();
        let crew = roster.join().unwrap();
        assert!(matches!(roster.leave(crew), Some(Event::NodeLost { .. })));
        assert!(roster.leave(crew).is_none());
        let progress = Progress::default();
        let event = Box::new(Event::End { session: SessionId(1) });
        assert!(roster.hear(crew, Said::Event { progress, event }).is_none());
        assert_ne!(roster.join(), Ok(crew));
    }

    #[test]
    fn a_closed_session_takes_no_room() {
        let mut roster = Roster::default();
        let crew = roster.join().unwrap();
        let (session, progress) = (SessionId(1), Progress::default());
        roster.hear(crew, Said::Event { progress, event: Box::new(Event::End { session }) });
        roster.hear(crew, Said::Closed { session });
        assert!(roster.crews[&crew].is_empty());
    }
}
