//! Signs of life: the agent checks that a server answers open connections and accepts new ones.
//!
//! A killed server closes its connections, which the agent sees at once. A server that hangs, or that the network has
//! lost, sends no sign at all. So the agent asks for a sign of life on a connection of its own, again and again. It
//! gives the server up when none has come for as long as the operator allows. Well before that it suspects the server,
//! and reads go elsewhere.
//!
//! The question waits for no lock and no disk, so when its answer is late, every client's answer is late, too. The
//! question checks that the applier still holds its advisory lock. Sessions ask the same on each new connection, to
//! prove that they speak with the server of this incarnation.
//!
//! Users' code in an index or a CHECK runs in the applier as well, and may release the lock (`pg_advisory_unlock_all`).
//! Then no session gets a connection until the applier has taken the lock anew.
//!
//! A server whose postmaster hangs still answers open connections, and accepts no new ones. So every second time the
//! agent also opens a new connection and sends a cancel request for its own idle connection. The server closes the new
//! connection when it has read the request.
//!
//! Such a request costs the server only one process. Unlike a log-in it waits for no lock on a catalogue (VACUUM FULL
//! takes some), works when all connections are in use, and leaves no line in the server's log.
//!
//! Every wait is cut into parts. If this process pauses (it was stopped, or had no processor), that uses up one part,
//! not all.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use wire::sqlstate;

use crate::backend::{Address, BackendError, OwnConnection, Process, Rows, cancel};

/// The pause between two questions, and the time after which a server is suspected, as parts of the deadline.
const PARTS: u32 = 4;
/// The pause before the next attempt at a connection that could not be made.
const KNOCK_PAUSE: Duration = Duration::from_millis(50);

/// Why the connections to a server are given up. The agent fences it and connects again.
#[derive(Debug)]
pub(crate) enum HealthError {
    /// The server does not answer on an open connection.
    Silent { deadline: Duration },
    /// The server does not answer new connections.
    NoLogin { deadline: Duration },
    /// The lock that proves the incarnation is not held any more.
    LockReleased,
    /// The connection is lost.
    Lost(BackendError),
}

impl fmt::Display for HealthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { deadline } => write!(f, "the server has not answered for {deadline:?}"),
            Self::NoLogin { deadline } => {
                write!(f, "the server accepts no login: no answer to a new connection for {deadline:?}")
            }
            Self::LockReleased => f.write_str(
                "the advisory lock of the applier was released, maybe by a function in an index, a CHECK or a domain",
            ),
            Self::Lost(error) => error.fmt(f),
        }
    }
}

/// Asks `proof_sql` at the server, and makes a new connection to it every second time. Returns why the server is given
/// up: an answer is missing, or proves nothing. `suspect` is told when a doubt begins and when it ends.
pub(super) async fn watch<F: Future<Output = ()>>(
    connection: &mut OwnConnection,
    address: &Address,
    proof_sql: &str,
    deadline: Duration,
    suspect: impl Fn(bool) -> F,
) -> HealthError {
    let part = deadline / PARTS;
    loop {
        for _ in 0..2 {
            sleep(part).await;
            // The pause before is a part as well.
            let answered = within(connection.query(proof_sql), part, PARTS - 1, &suspect).await;
            let proven = match answered {
                None => Err(HealthError::Silent { deadline }),
                Some(answer) => proven(answer),
            };
            if let Err(reason) = proven {
                return reason;
            }
        }
        if let Err(reason) = lets_in(connection, address, deadline, &suspect).await {
            return reason;
        }
    }
}

/// Checks that the server answers a new connection. The error says why the server is given up. `connection` must be
/// idle.
pub(crate) async fn lets_in<F: Future<Output = ()>>(
    connection: &OwnConnection,
    address: &Address,
    deadline: Duration,
    suspect: impl Fn(bool) -> F,
) -> Result<(), HealthError> {
    let Process { pid, secret, .. } = connection.process();
    let knock = || cancel(address, *pid, secret);
    let heard = within(is_heard(knock), deadline / PARTS, PARTS, suspect).await;
    heard.ok_or(HealthError::NoLogin { deadline })
}

/// Checks that the answer comes from the incarnation that was asked.
fn proven(answer: Result<Rows, BackendError>) -> Result<(), HealthError> {
    match answer {
        Ok(rows) if rows.is_empty() => Err(HealthError::LockReleased),
        Ok(_) => Ok(()),
        // A cancel request of ours was late. The error is a sign of life.
        Err(error) if error.sqlstate() == Some(sqlstate::QUERY_CANCELED.as_bytes()) => Ok(()),
        Err(error) => Err(HealthError::Lost(error)),
    }
}

/// Returns the outcome of `work`, or `None` if it takes longer than so many parts. After the first part the server is
/// suspected.
async fn within<W: Future, F: Future<Output = ()>>(
    work: W,
    part: Duration,
    parts: u32,
    suspect: impl Fn(bool) -> F,
) -> Option<W::Output> {
    let mut work = pin!(work);
    if let Ok(done) = timeout(part, &mut work).await {
        return Some(done);
    }
    suspect(true).await;
    for _ in 1..parts {
        if let Ok(done) = timeout(part, &mut work).await {
            suspect(false).await;
            return Some(done);
        }
    }
    None
}

/// Returns when the server has answered a new connection.
async fn is_heard<K: Future<Output = io::Result<()>>>(knock: impl Fn() -> K) {
    // A socket with a full queue refuses at once, and has room a moment later.
    while knock().await.is_err() {
        sleep(KNOCK_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    const PART: Duration = Duration::from_millis(50);

    /// The outcome of the work within four parts, and the doubts that were reported.
    async fn told<W: Future>(work: W) -> (Option<W::Output>, Vec<bool>) {
        let told = Mutex::new(Vec::new());
        let tell = |is_suspect| {
            told.lock().unwrap().push(is_suspect);
            std::future::ready(())
        };
        let done = within(work, PART, PARTS, tell).await;
        (done, told.into_inner().unwrap())
    }

    #[tokio::test]
    async fn a_server_is_suspected_before_it_is_given_up() {
        assert_eq!(told(std::future::ready(1)).await, (Some(1), vec![]));
        assert_eq!(told(std::future::pending::<()>()).await, (None, vec![true]));
        let refused = is_heard(async || Err(io::ErrorKind::ConnectionRefused.into()));
        assert_eq!(told(refused).await, (None, vec![true]));
        let late = async {
            sleep(PART * 5 / 2).await;
            2
        };
        assert_eq!(told(late).await, (Some(2), vec![true, false]));
    }

    #[tokio::test]
    async fn a_pause_of_our_own_uses_up_one_part() {
        let stopped = async {
            for _ in 1..PARTS {
                std::thread::sleep(PART * 8);
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(told(stopped).await, (Some(()), vec![true, false]));
    }
}
