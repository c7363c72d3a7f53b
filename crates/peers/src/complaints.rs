//! Why links are not there: each reason is logged once, not at each retry, until the peer's link is up.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Reasons that are remembered. Further ones are not logged, so that strangers cannot fill the log.
const REASONS_MAX: usize = 64;

/// The reasons that hold at present, each with the peer it is about; empty for strangers.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<BTreeSet<(String, String)>>);

impl Complaints {
    /// Logs a reason, unless it is known.
    pub(crate) fn add(&self, peer: &str, reason: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < REASONS_MAX && known.insert((peer.to_owned(), reason.to_owned())) {
            tracing::warn!(peer, "no link: {reason}");
        }
    }

    /// The link of this peer is up.
    pub(crate) fn settle(&self, peer: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(about, _)| about != peer);
    }

    /// All reasons that hold.
    pub(crate) fn all(&self) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(_, reason)| reason.clone()).collect()
    }
}
