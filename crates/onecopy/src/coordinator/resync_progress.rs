//! The progress of a replica that gets the data of another one. The task that copies writes it, SHOW REPLICAS shows it.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cluster::ids::Version;
use tokio::sync::Notify;

/// The step of a resync, or of joining.
#[derive(Clone, Debug)]
pub(crate) enum ResyncStage {
    /// Onecopy prepares the server of a new replica.
    Preparing,
    /// The replica stops serving. If it was the anchor, another replica becomes the anchor.
    LeavingService,
    /// The donor is being copied.
    Copying {
        /// The donor's name.
        donor: String,
        /// The progress of the copy.
        transfer: Arc<Transfer>,
    },
    /// The server runs on the copy. Versions that were committed meanwhile are applied.
    CatchingUp {
        /// The version that the replica has to reach.
        target: Version,
    },
    /// The replica's data is compared with the anchor's.
    Comparing,
}

impl fmt::Display for ResyncStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preparing => f.write_str("preparing"),
            Self::LeavingService => f.write_str("leaving service"),
            Self::Copying { donor, transfer } => {
                let (received, total) = transfer.bytes();
                // The part of the log that belongs to a copy is not in the total.
                write!(f, "copying {donor}: {} of about {} MB", received >> 20, total.max(received) >> 20)
            }
            Self::Comparing => f.write_str("comparing its data with the anchor"),
            Self::CatchingUp { target } => write!(f, "catching up to version {target}"),
        }
    }
}

/// The progress of a copy, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    received_bytes: AtomicU64,
    total_bytes: AtomicU64,
    is_abandoned: AtomicBool,
    abandoned: Notify,
}

impl Transfer {
    /// The bytes received, and the approximate total, which is zero until the server has reported it.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.received_bytes.load(Ordering::Relaxed), self.total_bytes.load(Ordering::Relaxed))
    }

    /// Sets the number of bytes that are expected.
    pub(crate) fn expect(&self, bytes: u64) {
        self.total_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Counts bytes that were received.
    pub(crate) fn add(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The donor is given up: the copy ends with an error.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.abandoned.notify_waiters();
    }

    /// Whether the donor was given up.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Runs `work`; `None` if the donor is given up before it is done.
    pub(crate) async fn unless_abandoned<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut abandoned = pin!(self.abandoned.notified());
        abandoned.as_mut().enable();
        if self.is_abandoned() {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = abandoned => None,
        }
    }
}
