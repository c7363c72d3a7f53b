//! Cancel requests: which session a key belongs to, and what it is doing where.
//!
//! A cancel request is forwarded to the server that runs the session's statement. In the window between the append of
//! a record and the reply to its COMMIT nothing is forwarded: only the log decides there (pitfalls 1.1).

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::backend::{self, Address};
use crate::mailbox::{End, Mailbox};

/// Length of the secrets that we give out, in bytes (all that protocol 3.0 allows).
const SECRET_BYTES: usize = 4;

/// What a session is doing, as far as a cancel request is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) enum Doing {
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
    pub(crate) address: Address,
    pub(crate) pid: i32,
    pub(crate) secret: Vec<u8>,
}

impl Running {
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
    doing: Mutex<Doing>,
    mailbox: Arc<Mailbox>,
}

impl CancelTarget {
    /// Says what the session does from now on.
    pub(crate) fn set(&self, doing: Doing) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }

    pub(crate) async fn cancel(&self) {
        let doing = self.doing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match doing {
            Doing::Nothing => {}
            Doing::Waiting => self.mailbox.cancel(),
            Doing::Running(at) => at.cancel().await,
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

    /// Ends a session, and what it is doing; whether there was one of that number.
    pub(crate) async fn kill(&self, pid: i32) -> bool {
        let target = self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).cloned();
        let Some(target) = target else { return false };
        target.mailbox.end(End::Killed);
        target.cancel().await;
        true
    }

    /// A cancel request came in. A wrong key is ignored without a word, as PostgreSQL does.
    pub(crate) async fn cancel(&self, pid: i32, secret: &[u8]) {
        let target = self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).cloned();
        if let Some(target) = target.filter(|target| target.secret == secret) {
            target.cancel().await;
        }
    }
}
