//! The tasks that drive the agents of replicas, one a replica.
//!
//! When a replica joins, a session on a thread of its own spawns its driver. The driver still runs in the runtime where
//! the node was started, since it has to outlive the session.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinSet;

#[derive(Debug)]
pub(crate) struct Drivers {
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
}

impl Drivers {
    /// No drivers yet. They will run in the runtime of the caller.
    pub(super) fn in_this_runtime() -> Self {
        Self { tasks: Mutex::default(), runtime: Handle::current() }
    }

    /// Runs the driver of a replica until it ends or the node stops.
    pub(crate) fn spawn(&self, driver: impl Future<Output = ()> + Send + 'static) {
        self.tasks().spawn_on(driver, &self.runtime);
    }

    /// Stops the drivers of all replicas.
    pub(crate) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks());
        tasks.shutdown().await;
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
