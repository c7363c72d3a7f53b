//! Cancel requests: the session that a key belongs to, and where its statement runs.
//!
//! A cancel request is forwarded to the server that runs the session's statement. In the window between the append of
//! a record and the reply to its COMMIT nothing is forwarded: only the log decides there (pitfalls 1.1).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cluster::ids::{NodeId, SessionId};
use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::backend;
use crate::backend::{Address, Connection};
use crate::coordinator::mailbox::{End, Mailbox};
use crate::coordinator::mailboxes::node_of;

/// Session numbers start above every process number of a server (Linux has at most 2^22). A server that gets such a
/// number in `pg_terminate_backend` so cannot hit a process of its own.
pub(crate) const PID_BASE: i32 = 1 << 30;

/// The process number that the client gets at log-in. It is unique while the session lives.
pub(crate) fn pid_of(session: SessionId) -> i32 {
    PID_BASE | i32::try_from(session.counter() & 0x3fff_ffff).unwrap_or(0)
}

pub(crate) fn session_of(pid: i32) -> SessionId {
    SessionId(u64::from((pid & !PID_BASE).unsigned_abs()))
}

/// Length of the secrets that Onecopy gives out, in bytes. Protocol 3.0 allows no more.
const SECRET_BYTES: usize = 4;

/// A connection waits so long for a cancel request that is under way to it.
const CANCEL_PATIENCE: Duration = Duration::from_secs(12);

/// The work of a session, as far as a cancel request is concerned.
#[derive(Clone, Debug, Default)]
pub(crate) enum CancelState {
    /// The session does nothing that could be cancelled.
    #[default]
    Nothing,
    /// The session waits for a free place.
    Waiting,
    /// A statement runs at a server.
    Running(Arc<Running>),
}

#[derive(Debug)]
pub(crate) struct Running {
    address: Address,
    pub(crate) pid: i32,
    secret: Vec<u8>,
    /// Cancel requests that are under way to the server.
    under_way: watch::Sender<usize>,
}

struct PendingCancel<'a>(&'a Running);

impl Drop for PendingCancel<'_> {
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

    /// Waits until no cancel request is under way to this connection; `false` if that takes too long. After `true` no
    /// old request can hit the next statement on it, unless a new request has learned of the connection meanwhile.
    pub(crate) async fn is_left_alone(&self) -> bool {
        if *self.under_way.borrow() == 0 {
            return true;
        }
        let mut count = self.under_way.subscribe();
        tokio::time::timeout(CANCEL_PATIENCE, count.wait_for(|count| *count == 0)).await.is_ok()
    }

    pub(crate) async fn cancel(&self) {
        if let Err(error) = backend::cancel(&self.address, self.pid, &self.secret).await {
            tracing::warn!(%error, "a cancel request could not be forwarded");
        }
    }
}

/// The entry of one session.
#[derive(Debug)]
pub(crate) struct CancelTarget {
    pub(crate) pid: i32,
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
                // Count the request before the session can say that its statement has ended.
                at.enter();
            }
            doing.clone()
        };
        match doing {
            CancelState::Nothing => {}
            CancelState::Waiting => self.mailbox.cancel(),
            CancelState::Running(at) => {
                let _under_way = PendingCancel(&at);
                at.cancel().await;
            }
        }
    }
}

/// All sessions by their process number.
#[derive(Default)]
pub(crate) struct CancelKeys {
    targets: Mutex<FxHashMap<i32, Arc<CancelTarget>>>,
    others: Option<Others>,
}

/// Hands a request with its key to the node of its session.
type Forward = Box<dyn Fn(NodeId, i32, &[u8]) + Send + Sync>;

/// The way to the sessions of other nodes.
struct Others {
    own: NodeId,
    forward: Forward,
}

impl CancelKeys {
    /// Those of one of several nodes. Requests for sessions of another node are handed over.
    pub(crate) fn of_node(
        own: NodeId,
        forward: impl Fn(NodeId, i32, &[u8]) + Send + Sync + 'static,
    ) -> Arc<Self> {
        let others = Some(Others { own, forward: Box::new(forward) });
        Arc::new(Self { targets: Mutex::default(), others })
    }

    /// Adds a session. Its process number is made from its session number, which is unique while it lives.
    pub(crate) fn register(
        &self,
        pid: i32,
        mailbox: Arc<Mailbox>,
    ) -> Result<Arc<CancelTarget>, getrandom::Error> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        Ok(self.register_again(pid, secret, mailbox))
    }

    /// Adds a session whose client has had its key from the process before this one.
    pub(crate) fn register_again(
        &self,
        pid: i32,
        secret: [u8; SECRET_BYTES],
        mailbox: Arc<Mailbox>,
    ) -> Arc<CancelTarget> {
        let target = Arc::new(CancelTarget { pid, secret, doing: Mutex::default(), mailbox });
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, Arc::clone(&target));
        target
    }

    pub(crate) fn remove(&self, pid: i32) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).remove(&pid);
    }

    fn find(&self, pid: i32) -> Option<Arc<CancelTarget>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).cloned()
    }

    /// Cancels the statement of a session. The caller has checked the rights.
    pub(crate) async fn cancel_statement(&self, pid: i32) {
        if let Some(target) = self.find(pid) {
            target.cancel().await;
        }
    }

    /// Ends a session and its statement. The number is the session's own or the process number that its client got;
    /// `false` if no session has it.
    pub(crate) async fn kill(&self, number: i32) -> bool {
        let Some(target) = self.find(number | PID_BASE) else { return false };
        target.mailbox.end(End::Killed);
        target.cancel().await;
        true
    }

    /// Handles a cancel request. A wrong key is ignored silently, as in PostgreSQL.
    pub(crate) async fn cancel(&self, pid: i32, secret: &[u8]) {
        if let Some(target) = self.find(pid).filter(|target| target.secret == secret) {
            target.cancel().await;
        } else if let Some(Others { own, forward }) = &self.others {
            let node = node_of(session_of(pid).0);
            if node != *own {
                forward(node, pid, secret);
            }
        }
    }
}

impl std::fmt::Debug for CancelKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelKeys").finish_non_exhaustive()
    }
}
