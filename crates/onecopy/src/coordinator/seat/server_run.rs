//! The present run of a replica's server, as connections to it see it. It gives the proof that a connection belongs to
//! this run, and lists the connections to cut when the server is given up.
//!
//! A server that crashes may lose the end of its WAL. Without the proof a session could go on with a connection to the
//! restarted server and read a state that lacks acknowledged commits.
//!
//! Invariant: once the server is given up, no earlier connection can be proven, and none stays open.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::ids::Incarnation;
use tokio::sync::Notify;

use crate::backend::{Connection, ConnectionList, ListedConnection};

/// The run of a server that its agent vouches for, if any.
#[derive(Debug, Default)]
pub(crate) struct ServerRun {
    proof: Mutex<Proof>,
    /// Wakes tasks that wait for the server when it is given up.
    ended: Notify,
    /// The sessions' connections.
    connections: ConnectionList,
}

/// Identifies a run; the default value belongs to no run.
#[derive(Debug, Default)]
struct Proof {
    incarnation: Incarnation,
    sql: String,
}

impl ServerRun {
    /// The agent is connected to this run. The query returns a row only on a connection to this run.
    pub(crate) fn begin(&self, incarnation: Incarnation, proof_sql: String) {
        *self.proof() = Proof { incarnation, sql: proof_sql };
    }

    /// Enters a connection of a session, which is cut when the server is given up.
    pub(crate) fn enter(&self, connection: &Connection) -> std::io::Result<ListedConnection> {
        self.connections.enter(connection)
    }

    /// Gives the server up: cuts its connections and wakes the tasks that wait for the server. Returns the number of
    /// connections.
    pub(crate) fn give_up(&self) -> usize {
        *self.proof() = Proof::default();
        self.ended.notify_waiters();
        self.connections.cut()
    }

    /// Runs `work` with a server of this incarnation; `None` if the server is given up meanwhile. This guards the
    /// opening of a connection, which is not entered yet: a server whose postmaster hangs never answers it.
    pub(crate) async fn unless_given_up<W: Future>(
        &self,
        incarnation: Incarnation,
        work: W,
    ) -> Option<W::Output> {
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        if incarnation == Incarnation::default() || self.incarnation() != incarnation {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = ended => None,
        }
    }

    /// The present incarnation; the default one while the server is given up.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.proof().incarnation
    }

    /// The query that must return a row on a connection of this incarnation; `None` if the incarnation is not the
    /// present one.
    pub(crate) fn proof_of(&self, incarnation: Incarnation) -> Option<String> {
        let proof = self.proof();
        (proof.incarnation == incarnation).then(|| proof.sql.clone())
    }

    fn proof(&self) -> MutexGuard<'_, Proof> {
        self.proof.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_wait_for_a_server_ends_when_the_server_is_given_up() {
        let run = ServerRun::default();
        run.begin(Incarnation(7), "SELECT".to_owned());
        assert_eq!(run.unless_given_up(Incarnation(7), std::future::ready(1)).await, Some(1));
        assert_eq!(run.unless_given_up(Incarnation(6), std::future::ready(1)).await, None);
        let waiting = run.unless_given_up(Incarnation(7), std::future::pending::<()>());
        let (waited, ()) = tokio::join!(tokio::time::timeout(Duration::from_mins(1), waiting), async {
            tokio::task::yield_now().await;
            run.give_up();
        });
        assert_eq!(waited, Ok(None));
        assert_eq!(run.unless_given_up(run.incarnation(), std::future::ready(1)).await, None);
    }

    #[test]
    fn only_the_present_run_can_be_proven() {
        let run = ServerRun::default();
        run.begin(Incarnation(7), "SELECT".to_owned());
        assert_eq!(run.proof_of(Incarnation(6)), None);
        assert_eq!(run.proof_of(Incarnation(7)), Some("SELECT".to_owned()));
        run.give_up();
        assert_eq!(run.proof_of(Incarnation(7)), None);
    }
}
