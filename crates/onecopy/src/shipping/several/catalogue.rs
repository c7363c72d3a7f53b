//! Reads the schema whenever the scheduler says that it has changed, or a leader names one that this node does not have.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::remote::RemoteScheduler;
use crate::shipping::replica_run::ReplicaHost;
use crate::shipping::scheduling::{Scheduling, load_catalogue};

/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads it until the node stops.
pub(super) async fn keep(scheduler: Arc<RemoteScheduler>) {
    let mut wanted = scheduler.wanted_generations();
    loop {
        let generation = *wanted.borrow_and_update();
        read(&scheduler, generation).await;
        scheduler.tell_known(generation);
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

async fn read(scheduler: &Arc<RemoteScheduler>, generation: u64) {
    while scheduler.coordinator().database.catalogue().generation() < generation {
        if let Some(run) = scheduler.any_up() {
            match load_catalogue(&**scheduler, run, generation).await {
                Ok(catalogue) => scheduler.coordinator().set_catalogue(catalogue),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the catalogue; retrying");
                    sleep(PAUSE).await;
                }
            }
        } else {
            sleep(PAUSE).await;
        }
    }
}
