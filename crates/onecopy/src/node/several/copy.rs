//! This node's copy of the log: it follows etcd while another node leads, and is what a term of this node begins with.
//!
//! Invariant: one owner at a time has the copy, the follower or the log of a term. Its folder is locked.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::ids::ClusterId;
use commitlog::{Ending, EtcdKeys, Follower, LogCopy, LogError};
use tokio::task::spawn_blocking;

/// The pause between two looks whether the copy is followed.
const TEND_EVERY: Duration = Duration::from_millis(300);

/// Keeps the copy.
#[derive(Clone)]
pub(super) struct CopyKeeper(Arc<Inner>);

struct Inner {
    etcd: EtcdKeys,
    dir: PathBuf,
    cluster: ClusterId,
    node: String,
    owner: Mutex<Owner>,
}

/// The owner of the copy.
enum Owner {
    /// It is to be followed.
    Unowned,
    Follower(Follower),
    /// A term of this node. Also when the node stops: then the copy is not followed again.
    Term,
}

impl CopyKeeper {
    /// Opens nothing yet.
    pub(super) fn new(etcd: EtcdKeys, dir: PathBuf, cluster: ClusterId, node: String) -> Self {
        Self(Arc::new(Inner { etcd, dir, cluster, node, owner: Mutex::new(Owner::Unowned) }))
    }

    /// The keys of the cluster.
    pub(super) fn etcd(&self) -> &EtcdKeys {
        &self.0.etcd
    }

    /// Follows the log whenever no term of this node has it, until the task is dropped.
    pub(super) async fn run(self) {
        loop {
            let inner = Arc::clone(&self.0);
            let tended = spawn_blocking(move || inner.tend()).await;
            if let Ok(Err(error)) = tended {
                tracing::warn!(%error, "the copy of the log does not follow; trying again");
            }
            tokio::time::sleep(TEND_EVERY).await;
        }
    }

    /// The copy, for a term of this node.
    pub(super) async fn take(&self) -> Result<LogCopy, LogError> {
        let inner = Arc::clone(&self.0);
        spawn_blocking(move || {
            let mut owner = inner.owner();
            let follower = match std::mem::replace(&mut *owner, Owner::Term) {
                Owner::Follower(follower) => Some(follower),
                Owner::Unowned | Owner::Term => None,
            };
            match follower.and_then(Follower::stop) {
                Some(copy) => Ok(copy),
                None => LogCopy::open(&inner.dir, inner.cluster),
            }
        })
        .await
        .map_err(LogError::from)?
    }

    /// A term of this node has let the copy go.
    pub(super) fn give_back(&self) {
        *self.0.owner() = Owner::Unowned;
    }

    /// Ends following, for good.
    pub(super) async fn close(&self) {
        let inner = Arc::clone(&self.0);
        let ended = spawn_blocking(move || drop(std::mem::replace(&mut *inner.owner(), Owner::Term))).await;
        if ended.is_err() {
            tracing::error!("the copy of the log was not closed");
        }
    }
}

impl Inner {
    /// Tasks of a term that has ended may still have its log for a moment, and its folder is locked.
    fn tend(&self) -> Result<(), LogError> {
        let mut owner = self.owner();
        if let Owner::Follower(follower) = &*owner {
            match follower.ending() {
                None => return Ok(()),
                Some(Ending::Behind { base }) => {
                    tracing::warn!(%base, "the log was trimmed past the copy of this node, which begins anew");
                }
                Some(Ending::Failed(error)) => tracing::warn!(%error, "the copy of the log follows no more"),
            }
            *owner = Owner::Unowned;
        }
        if matches!(*owner, Owner::Unowned) {
            let copy = LogCopy::open(&self.dir, self.cluster)?;
            *owner = Owner::Follower(Follower::start(self.etcd.clone(), copy, &self.node)?);
        }
        Ok(())
    }

    fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
