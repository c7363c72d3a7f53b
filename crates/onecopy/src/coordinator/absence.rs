//! Reasons why a replica does not serve: SHOW REPLICAS shows them, and the start waits only for replicas that may come.
//!
//! Two tasks report them. The supervisor reports that a server of ours does not start. The agent reports that it cannot
//! reach the server, or that another server than the expected one answers.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether waiting for a replica may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The reason may pass by itself.
    Passing,
    /// An operator has to remove the reason.
    Lasting,
}

/// The reasons of one replica.
#[derive(Debug, Default)]
pub(crate) struct Absence(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The reason why the server does not start.
    server: Option<String>,
    link: Link,
}

/// The agent's connection to the server.
#[derive(Debug, Default)]
enum Link {
    /// The agent has reported nothing, or the replica serves.
    #[default]
    Unreported,
    /// The agent has no connection.
    Unreachable(Obstacle, String),
    /// The replica is brought up to the log before it serves.
    CatchingUp,
}

impl Absence {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server does not start; `None` when it runs. Returns whether that is news.
    pub(crate) fn note_server(&self, reason: Option<String>) -> bool {
        let mut known = self.known();
        let is_news = known.server != reason;
        known.server = reason;
        is_news
    }

    /// The agent cannot reach the server.
    pub(crate) fn note_unreachable(&self, obstacle: Obstacle, reason: String) {
        self.known().link = Link::Unreachable(obstacle, reason);
    }

    /// The replica is connected, and being brought up to the log.
    pub(crate) fn note_catching_up(&self) {
        self.known().link = Link::CatchingUp;
    }

    /// The replica has been brought up to the log, or will not be. A reason why it is unreachable stays.
    pub(crate) fn end_catching_up(&self) {
        let link = &mut self.known().link;
        if matches!(link, Link::CatchingUp) {
            *link = Link::Unreported;
        }
    }

    /// Whether the replica is connected and being brought up to the log.
    pub(crate) fn is_catching_up(&self) -> bool {
        matches!(self.known().link, Link::CatchingUp)
    }

    /// The replica serves.
    pub(crate) fn end(&self) {
        *self.known() = Known::default();
    }

    pub(crate) fn is_of_the_server(&self) -> bool {
        self.known().server.is_some()
    }

    /// The reason why the replica does not serve, as far as known.
    pub(crate) fn reason(&self) -> Option<(Obstacle, String)> {
        let known = self.known();
        let server = known.server.clone().map(|reason| (Obstacle::Lasting, reason));
        server.or_else(|| match &known.link {
            Link::Unreachable(obstacle, reason) => Some((*obstacle, reason.clone())),
            Link::Unreported | Link::CatchingUp => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_start_is_why_it_cannot_be_reached() {
        let absence = Absence::default();
        assert_eq!(absence.reason(), None);
        absence.note_unreachable(Obstacle::Passing, "refused".to_owned());
        assert_eq!(absence.reason(), Some((Obstacle::Passing, "refused".to_owned())));
        assert!(absence.note_server(Some("no data".to_owned())));
        assert!(!absence.note_server(Some("no data".to_owned())), "said once");
        assert_eq!(absence.reason(), Some((Obstacle::Lasting, "no data".to_owned())));
        assert!(absence.note_server(None));
        assert_eq!(absence.reason(), Some((Obstacle::Passing, "refused".to_owned())));
        absence.end();
        assert_eq!(absence.reason(), None);
    }

    #[test]
    fn a_replica_catches_up_until_it_serves_or_is_lost() {
        let absence = Absence::default();
        absence.note_catching_up();
        assert_eq!((absence.is_catching_up(), absence.reason()), (true, None));
        absence.note_unreachable(Obstacle::Passing, "the connection was closed".to_owned());
        assert!(!absence.is_catching_up() && absence.reason().is_some());
        absence.end_catching_up();
        assert!(absence.reason().is_some(), "still unreachable");
        absence.note_catching_up();
        absence.end_catching_up();
        assert_eq!((absence.is_catching_up(), absence.reason()), (false, None));
    }
}
