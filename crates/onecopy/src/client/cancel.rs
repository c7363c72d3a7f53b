//! Cancel requests: which session a key belongs to, and what it is doing where.
//!
//! A cancel request is forwarded to the server that runs the session's statement. In the window between the append of
//! a record and the reply to its COMMIT nothing is forwarded: only the log decides there (pitfalls 1.1).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::ids::SessionId;
use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::backend;
use crate::backend::{Address, Connection};
use crate::coordinator::mailbox::{End, Mailbox};

/// Numbers of sessions begin here: no process of a server has such a number (Linux has at most 2^22), so none of them is a
/// stranger's where a server is asked to end it.
pub(crate) const PID_BASE: i32 = 1 << 30;

/// What a client is told as its process number: unique while the session lives.
pub(crate) fn pid_of(session: SessionId) -> i32 {
    PID_BASE | i32::try_from(session.0 & 0x3fff_ffff).unwrap_or(0)
}

/// The session that has this number, if there is one.
pub(crate) fn session_of(pid: i32) -> SessionId {
    SessionId(u64::from((pid & !PID_BASE).unsigned_abs()))
}

/// Length of the secrets that we give out, in bytes (all that protocol 3.0 allows).
const SECRET_BYTES: usize = 4;

/// How long a connection is kept for a cancel request that is under way to it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(12);

/// What a session is doing, as far as a cancel request is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) enum CancelState {
    /// Nothing that could be cancelled.
    #[default]
    Nothing,
    /// Waiting for a place.
    Waiting,
    /// A statement runs at a server.
    Running(Arc<Running>),
}

/// A server connection, as a cancel request needs it.
#[derive(Debug)]
pub(crate) struct Running {
    address: Address,
    pub(crate) pid: i32,
    secret: Vec<u8>,
    /// Cancel requests that may not have arrived yet.
    under_way: watch::Sender<usize>,
}

/// A cancel request is under way, as long as this lives.
struct UnderWay<'a>(&'a Running);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.send_modify(|count| *count -= 1);
    }
}

impl Running {
    pub(crate) fn new(address: Address, connection: &Connection) -> Self {
        let (pid, secret) = (connection.process.pid, connection.process.secret.clone());
        Self { address, pid, secret, under_way: watch::channel(0).0 }
    }

    fn enter(&self) {
        self.under_way.send_modify(|count| *count += 1);
    }

    /// Waits until no cancel request is under way to this connection; whether that was so in time. After that none can
    /// hit what somebody else runs there, if nobody was told of it in the meantime.
    pub(crate) async fn is_left_alone(&self) -> bool {
        if *self.under_way.borrow() == 0 {
            return true;
        }
        let mut count = self.under_way.subscribe();
        tokio::time::timeout(CANCEL_PATIENCE, count.wait_for(|count| *count == 0)).await.is_ok()
    }

    /// Asks the server to end what it runs there.
    pub(crate) async fn cancel(&self) {
        if let Err(error) = backend::cancel(&self.address, self.pid, &self.secret).await {
            tracing::warn!(%error, "a cancel request could not be forwarded");
        }
    }
}

/// One session's entry.
#[derive(Debug)]
pub(crate) struct CancelTarget {
    /// Given to the client at log-in.
    pub(crate) pid: i32,
    /// Given to the client at log-in.
    pub(crate) secret: [u8; SECRET_BYTES],
    doing: Mutex<CancelState>,
    mailbox: Arc<Mailbox>,
}

impl CancelTarget {
    /// Says what the session does from now on.
    pub(crate) fn set(&self, doing: CancelState) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    pub(crate) async fn cancel(&self) {
        let doing = {
            let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner);
            if let CancelState::Running(at) = &*doing {
                // Before the session can say that it has ended there.
                at.enter();
            }
            doing.clone()
        };
        match doing {
            CancelState::Nothing => {}
            CancelState::Waiting => self.mailbox.cancel(),
            CancelState::Running(at) => {
                let _under_way = UnderWay(&at);
                at.cancel().await;
            }
        }
    }
}

/// All sessions by their process number.
#[derive(Debug, Default)]
pub(crate) struct CancelKeys {
    targets: Mutex<FxHashMap<i32, Arc<CancelTarget>>>,
}

impl CancelKeys {
    /// A new session's entry. The process number is its session number, which is unique while it lives.
    pub(crate) fn register(
        &self,
        pid: i32,
        mailbox: Arc<Mailbox>,
    ) -> Result<Arc<CancelTarget>, getrandom::Error> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        let target = Arc::new(CancelTarget { pid, secret, doing: Mutex::default(), mailbox });
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, Arc::clone(&target));
        Ok(target)
    }

    /// The session is gone.
    pub(crate) fn remove(&self, pid: i32) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }

    fn find(&self, pid: i32) -> Option<Arc<CancelTarget>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).cloned()
    }

    /// Ends what a session is doing, for somebody who may do that.
    pub(crate) async fn cancel_statement(&self, pid: i32) {
        if let Some(target) = self.find(pid) {
            target.cancel().await;
        }
    }

    /// Ends a session, and what it is doing; whether there was one of that number, or of the process number that its client has.
    pub(crate) async fn kill(&self, number: i32) -> bool {
        let Some(target) = self.find(number | PID_BASE) else { return false };
        target.mailbox.end(End::Killed);
        target.cancel().await;
        true
    }

    /// A cancel request came in. A wrong key is ignored without a word, as PostgreSQL does.
    pub(crate) async fn cancel(&self, pid: i32, secret: &[u8]) {
        if let Some(target) = self.find(pid).filter(|target| target.secret == secret) {
            target.cancel().await;
        }
    }
}
