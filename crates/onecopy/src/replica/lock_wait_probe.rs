//! Looks for lock waits inside the servers, which are half of every deadlock between homes.
//!
//! The core knows the waits in its lock table, and each server those for its own locks. A deadlock may lead through
//! both. So while a session has waited for longer than a conflict usually takes, the probe asks every server and tells
//! the core.
//!
//! A server names backends. Each connection of a session counts, not only the one with its open transaction. A session
//! may hold an advisory lock at the anchor while its transaction has its home elsewhere, or while it has no
//! transaction.
//!
//! A transaction that a replica performs for another home gives way to a session that waits for its locks, since the replica can apply
//! the record instead.
//!
//! One task probes for the whole node, on connections of its own that it keeps. Sessions only request a probe, because
//! they have to hear at once when their wait is over. However slow the servers are, most of the time they are not
//! asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::event::{Event, Performance};
use cluster::ids::ReplicaId;
use tokio::time::Instant;

use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::evictions::Occupant;
use crate::coordinator::{Leader, Seat};

/// A session that has waited for this long requests a probe.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(200);
/// It requests the next probe after this time.
pub(crate) const NEXT_LOOK: Duration = Duration::from_millis(500);
/// The pause between two probes, as a multiple of the time that the first one took, ...
const PAUSE_LENGTHS: u32 = 9;
/// ... but not less than this, ...
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// ... and not more.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// How long one server may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

const WAITS_SQL: &str = "SELECT a.pid, b.pid FROM pg_catalog.pg_stat_activity a, \
    LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(a.pid)) AS b(pid) \
    WHERE a.wait_event_type = 'Lock' AND a.backend_type = 'client backend'";

/// The task's connections.
type Connections = BTreeMap<ReplicaId, OwnConnection>;
/// A backend that waits, and one that it waits for.
type Pair = (i32, i32);

/// Probes whenever a session requests it, for as long as the node runs.
pub(crate) async fn run(leader: Arc<Leader>) {
    let mut connections = Connections::new();
    loop {
        leader.deadlock_search.notified().await;
        let began = Instant::now();
        look(&leader, &mut connections).await;
        tokio::time::sleep((began.elapsed() * PAUSE_LENGTHS).clamp(PAUSE_MIN, PAUSE_MAX)).await;
    }
}

/// Asks every server for its lock waits, and tells the core.
async fn look(leader: &Leader, connections: &mut Connections) {
    let mut pairs = Vec::new();
    connections.retain(|replica, _| leader.seats.iter().any(|seat| seat.replica == *replica));
    for seat in leader.seats.iter() {
        // A server that does not answer gets another connection the next time.
        let connection = connections.remove(&seat.replica);
        match tokio::time::timeout(ANSWERS_WITHIN, waits_at(leader, seat, connection)).await {
            Ok(Ok((connection, found))) => {
                connections.insert(seat.replica, connection);
                pairs.extend(found.into_iter().map(|pair| (seat, pair)));
            }
            Ok(Err(error)) => tracing::debug!(replica = seat.name, %error, "its locks cannot be looked at"),
            Err(_) => tracing::debug!(replica = seat.name, "its locks cannot be looked at in time"),
        }
    }
    if pairs.is_empty() {
        return;
    }
    let (owners, elsewhere) = (leader.local.sessions.backends(), leader.crews.backends(ANSWERS_WITHIN).await);
    let session = |seat: &Seat, pid: i32| match seat.evictions.occupant(pid) {
        Some(Occupant::Session(session)) => Some(leader.core.named(session)),
        Some(Occupant::Performer(_)) => None,
        None => {
            let here = owners.get(&(seat.replica, pid)).map(|session| leader.core.named(*session));
            here.or_else(|| elsewhere.get(&(seat.replica, pid)).copied())
        }
    };
    let mut edges = Vec::new();
    for (seat, (waiter, holder)) in pairs {
        let Some(waiter) = session(seat, waiter) else { continue };
        if let Some(Occupant::Performer(performance)) = seat.evictions.occupant(holder) {
            leader.core.tell(performance.reports(Performance::Blocks));
        } else if let Some(holder) = session(seat, holder) {
            edges.push((waiter, holder));
        }
    }
    if !edges.is_empty() {
        leader.core.tell(Event::ServerWaits { edges });
    }
}

/// Asks one server. If the kept connection has ended meanwhile, opens another one.
async fn waits_at(
    leader: &Leader,
    seat: &Seat,
    connection: Option<OwnConnection>,
) -> Result<(OwnConnection, Vec<Pair>), BackendError> {
    let known = match connection {
        Some(mut connection) => connection.query(WAITS_SQL).await.ok().map(|rows| (connection, rows)),
        None => None,
    };
    let (connection, rows) = if let Some(known) = known {
        known
    } else {
        let own = [("application_name", "onecopy waits")];
        let mut connection = OwnConnection::open(&seat.address, &leader.database.served, &own).await?;
        let rows = connection.query(WAITS_SQL).await?;
        (connection, rows)
    };
    let pid = |text: &Option<String>| text.as_deref()?.parse().ok();
    let pair = |row: &Vec<Option<String>>| Some((pid(row.first()?)?, pid(row.get(1)?)?));
    Ok((connection, rows.iter().filter_map(pair).collect()))
}
