//! The pool's knowledge of a connection that sessions share: its kind, permit, last session and settings.

use std::sync::Arc;
use std::time::Instant;

use cluster::ids::SessionId;

use super::kind::Kind;
use super::permit::Permit;
use super::request::{Requester, Thread};

/// The pool's knowledge of one connection.
#[derive(Debug)]
pub(crate) struct SharedConnection {
    pub(crate) kind: Arc<Kind>,
    pub(crate) permit: Option<Permit>,
    /// The epoch of its role when it was opened.
    pub(crate) epoch: u64,
    /// The session that used it last.
    pub(crate) last_session: SessionId,
    /// The thread that it wakes.
    pub(crate) thread: Thread,
    /// The statements that lead from its start-up settings to its present ones; none if those are not known.
    pub(crate) applied: Option<Arc<str>>,
    /// Code ran that may have changed settings without a report.
    pub(crate) is_tainted: bool,
    pub(crate) opened: Instant,
    /// When it was given back.
    pub(crate) since: Instant,
}

impl SharedConnection {
    /// A connection that was opened just now.
    pub(super) fn new(kind: Arc<Kind>, epoch: u64, permit: Permit, owner: Requester) -> Self {
        let now = Instant::now();
        Self {
            kind,
            permit: Some(permit),
            epoch,
            last_session: owner.session,
            thread: owner.thread,
            applied: Some("".into()),
            is_tainted: false,
            opened: now,
            since: now,
        }
    }
}
