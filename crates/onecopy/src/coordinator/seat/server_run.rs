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
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::backend::{Connection, ConnectionList, ListedConnection};
use crate::capture::vouch::Voucher;

/// The run of a server that its agent vouches for, if any.
#[derive(Debug, Default)]
pub(crate) struct ServerRun {
    vouched: Mutex<Option<Vouched>>,
    /// Wakes tasks that wait for the server when it is given up.
    ended: Notify,
    /// The sessions' connections.
    connections: ConnectionList,
}

/// With what a connection and a run of a server prove themselves to each other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunProof {
    /// The query that returns a row only on a connection to this run.
    pub(crate) sql: String,
    /// Proves to the server that a connection is Onecopy's. Each leader draws another one.
    pub(crate) voucher: Voucher,
    /// Backends of the former term that this run's agent has spared ([`crate::coordinator::held_backends`]).
    pub(crate) spared: Vec<i32>,
}

/// The run that is vouched for.
#[derive(Debug)]
struct Vouched {
    incarnation: Incarnation,
    proof: RunProof,
}

impl ServerRun {
    /// The agent is connected to this run.
    pub(crate) fn begin(&self, incarnation: Incarnation, proof: RunProof) {
        *self.vouched() = Some(Vouched { incarnation, proof });
    }

    /// Enters a connection of a session, which is cut when the server is given up.
    pub(crate) fn enter(&self, connection: &Connection) -> std::io::Result<ListedConnection> {
        self.connections.enter(connection)
    }

    /// Gives the server up: cuts its connections and wakes the tasks that wait for the server. Returns the number of
    /// connections.
    pub(crate) fn give_up(&self) -> usize {
        *self.vouched() = None;
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
        self.vouched().as_ref().map_or_else(Incarnation::default, |vouched| vouched.incarnation)
    }

    /// The proof for a connection of this incarnation; `None` if the incarnation is not the present one.
    pub(crate) fn proof_of(&self, incarnation: Incarnation) -> Option<RunProof> {
        let vouched = self.vouched();
        vouched.as_ref().filter(|vouched| vouched.incarnation == incarnation).map(|found| found.proof.clone())
    }

    /// Whether a connection that began with this incarnation can be used in the present one. If that is another one, both sides have to
    /// prove themselves again.
    pub(crate) fn has_backend(&self, incarnation: Incarnation, pid: i32) -> bool {
        let vouched = self.vouched();
        let is_here = |run: &Vouched| run.incarnation == incarnation || run.proof.spared.contains(&pid);
        vouched.as_ref().is_some_and(is_here)
    }

    fn vouched(&self) -> MutexGuard<'_, Option<Vouched>> {
        self.vouched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn proof() -> RunProof {
        RunProof { sql: "SELECT".to_owned(), voucher: Voucher::draw().unwrap(), spared: vec![71] }
    }

    #[tokio::test]
    async fn a_wait_for_a_server_ends_when_the_server_is_given_up() {
        let run = ServerRun::default();
        run.begin(Incarnation(7), proof());
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
        run.begin(Incarnation(7), proof());
        let sql_of = |incarnation| run.proof_of(incarnation).map(|proof| proof.sql);
        assert_eq!(sql_of(Incarnation(6)), None);
        assert_eq!(sql_of(Incarnation(7)).as_deref(), Some("SELECT"));
        run.give_up();
        assert_eq!(sql_of(Incarnation(7)), None);
    }

    #[test]
    fn a_spared_backend_can_be_used_while_the_run_lasts() {
        let run = ServerRun::default();
        run.begin(Incarnation(7), proof());
        assert!(run.has_backend(Incarnation(7), 5), "it began in this run");
        assert!(run.has_backend(Incarnation(6), 71), "it was spared");
        assert!(!run.has_backend(Incarnation(6), 72));
        run.give_up();
        assert!(!run.has_backend(Incarnation(6), 71));
    }
}
