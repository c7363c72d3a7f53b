//! What a leader wants another node to do at the servers: that node has the connections, or the catalogue to read.
//!
//! The task that hears the link hands errands over and does not wait ([`Errands`]); a task of the node does them
//! ([`crate::replica::errands`]). For example, a refresh waits for a backend of a session of this node. The leader's agent cannot know
//! whether the session's statement may be cancelled alone, so the node of the session does what the agent would do.
//!
//! Invariant: nothing is lost by an errand that is dropped. A leader asks again as long as a backend is in its way.

use cluster::ids::Version;
use tokio::sync::{mpsc, watch};

use super::node_link::Obstruction;

/// Backends that can wait to be looked at.
const OBSTRUCTIONS_MAX: usize = 1_024;

/// Takes errands.
#[derive(Clone, Debug)]
pub(crate) struct Errands {
    schema: watch::Sender<Version>,
    obstructions: mpsc::Sender<Obstruction>,
}

/// Has errands to be done.
#[derive(Debug)]
pub(crate) struct ErrandQueue {
    /// The version whose schema the anchor has.
    pub(crate) schema: watch::Receiver<Version>,
    /// The backends that are in the way of refreshes.
    pub(crate) obstructions: mpsc::Receiver<Obstruction>,
}

impl Errands {
    /// Errands, and their queue.
    pub(crate) fn new() -> (Self, ErrandQueue) {
        let (schema, wanted) = watch::channel(Version::ZERO);
        let (obstructions, queue) = mpsc::channel(OBSTRUCTIONS_MAX);
        (Self { schema, obstructions }, ErrandQueue { schema: wanted, obstructions: queue })
    }

    pub(super) fn read_catalogue(&self, version: Version) {
        self.schema.send_if_modified(|known| {
            let is_newer = version > *known;
            *known = version.max(*known);
            is_newer
        });
    }

    pub(super) fn give_way(&self, obstruction: Obstruction) {
        if self.obstructions.try_send(obstruction).is_err() {
            tracing::debug!(?obstruction, "there is no room to note what is in the way of a refresh");
        }
    }
}
