//! Rebuilds servers of ours whose data is lost or damaged, without a command.
//!
//! The log and the other replicas have everything that such a server had. So as soon as the node serves and another replica
//! is up, the server gets that one's data, as by REBUILD REPLICA. One at a time, so that the donors go on serving. A server
//! that is damaged again within the hour has a cause that no copy mends: it stays down, with its reason, until an operator
//! rebuilds it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::coordinator::Coordinator;
use crate::membership::resync;
use crate::terminal::Progress;

/// How long after a rebuild its server is not rebuilt again.
const AGAIN_AFTER: Duration = Duration::from_hours(1);
/// How long after a rebuild that failed it is tried again.
const RETRY_AFTER: Duration = Duration::from_mins(1);
/// How often it is looked whether a rebuild can begin.
const LOOK: Duration = Duration::from_millis(200);

/// Rebuilds the replicas that supervisors name, for as long as the node runs.
pub(super) async fn run(
    coordinator: Arc<Coordinator>,
    mut damaged: mpsc::Receiver<ReplicaId>,
    progress: Progress,
) {
    let mut rests: BTreeMap<ReplicaId, Instant> = BTreeMap::new();
    while let Some(replica) = damaged.recv().await {
        let name = &coordinator.seats[replica].name;
        if rests.get(&replica).is_some_and(|until| Instant::now() < *until) {
            continue;
        }
        while !coordinator.local.sessions.is_open() || resync::donors(&coordinator, replica).next().is_none()
        {
            tokio::time::sleep(LOOK).await;
        }
        // It may have been rebuilt, or have started, since.
        if !coordinator.seats[replica].absence.is_of_the_server() || coordinator.stage(replica).is_some() {
            continue;
        }
        progress.say(format_args!("{name} is rebuilt, since it does not start with the data it has"));
        let rest = match resync::run(Arc::clone(&coordinator), replica).await {
            Ok(rebuilt) => {
                progress.say(format_args!("{name} was rebuilt from {}", rebuilt.donor));
                AGAIN_AFTER
            }
            Err(error) => {
                progress.say(format_args!("{name} was not rebuilt: {error}"));
                RETRY_AFTER
            }
        };
        rests.insert(replica, Instant::now() + rest);
    }
}
