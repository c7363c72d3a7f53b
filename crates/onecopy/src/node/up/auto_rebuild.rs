//! Rebuilds servers of `onecopy up` whose data is lost or damaged, without a command.
//!
//! The log and the other replicas have everything that such a server had. Once another replica is up, the server gets
//! a copy of its data, as by REBUILD REPLICA. Rebuilds run one at a time, so that the donors keep serving. A server
//! that is damaged again within an hour has a cause that no copy repairs. It stays down, with its reason, until an
//! operator rebuilds it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::coordinator::Leader;
use crate::membership::resync;
use crate::terminal::Progress;

/// A rebuilt server is not rebuilt again for this long.
const AGAIN_AFTER: Duration = Duration::from_hours(1);
/// A failed rebuild is retried after this pause.
const RETRY_AFTER: Duration = Duration::from_mins(1);
/// Interval at which we check whether a rebuild can start.
const LOOK: Duration = Duration::from_millis(200);

/// Rebuilds the replicas that supervisors name, until the task is dropped.
pub(super) async fn run(leader: Arc<Leader>, mut damaged: mpsc::Receiver<ReplicaId>, progress: Progress) {
    let mut rests: BTreeMap<ReplicaId, Instant> = BTreeMap::new();
    while let Some(replica) = damaged.recv().await {
        let name = &leader.seats[replica].name;
        if rests.get(&replica).is_some_and(|until| Instant::now() < *until) {
            continue;
        }
        while !leader.local.sessions.is_open() || resync::donors(&leader, replica).next().is_none() {
            tokio::time::sleep(LOOK).await;
        }
        // The server may have started, or been rebuilt, meanwhile.
        if !leader.seats[replica].absence.is_of_the_server() || leader.stage(replica).is_some() {
            continue;
        }
        progress.say(format_args!("rebuilding {name}, because it does not start with its data"));
        let rest = match resync::run(Arc::clone(&leader), replica).await {
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
