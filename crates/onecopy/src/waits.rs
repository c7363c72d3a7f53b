//! Who waits for whom inside the servers: half of what a deadlock between homes is made of.
//!
//! The core knows who waits in its lock table, each server knows who waits for a lock of its own. A ring may lead through
//! both. So while a session has waited for longer than a conflict usually takes, every server is asked, on a connection
//! made for that, and the core is told. One asks at a time; who comes meanwhile is served by the same answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cluster::event::Event;
use cluster::ids::SessionId;

use crate::backend::{BackendError, Connection, Served};
use crate::hub::{Hub, Seat};

/// A session that has waited so long asks.
pub(crate) const FIRST_LOOK: Duration = Duration::from_millis(200);
/// And again.
pub(crate) const NEXT_LOOK: Duration = Duration::from_millis(500);
/// How long one server may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

const WAITS_SQL: &str = "SELECT a.pid, b.pid FROM pg_catalog.pg_stat_activity a, \
    LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(a.pid)) AS b(pid) \
    WHERE a.wait_event_type = 'Lock' AND a.backend_type = 'client backend'";

/// Whether somebody asks just now.
#[derive(Debug, Default)]
pub(crate) struct Looking(AtomicBool);

/// Somebody asks, until this is dropped.
struct Looks<'a>(&'a Looking);

impl Looking {
    fn begin(&self) -> Option<Looks<'_>> {
        (!self.0.swap(true, Ordering::AcqRel)).then_some(Looks(self))
    }
}

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

/// Asks every server who waits for whom there, and tells the core.
pub(crate) async fn look(hub: &Hub, looking: &Looking) {
    let Some(_looks) = looking.begin() else { return };
    let mut edges = Vec::new();
    for seat in hub.seats.iter() {
        match tokio::time::timeout(ANSWERS_WITHIN, waits_at(seat, &hub.served)).await {
            Ok(Ok(found)) => edges.extend(found),
            Ok(Err(error)) => tracing::debug!(replica = seat.name, %error, "its locks cannot be looked at"),
            Err(_) => tracing::debug!(replica = seat.name, "its locks cannot be looked at in time"),
        }
    }
    if !edges.is_empty() {
        hub.handle(Event::ServerWaits { edges });
    }
}

async fn waits_at(seat: &Seat, served: &Served) -> Result<Vec<(SessionId, SessionId)>, BackendError> {
    let own = [("application_name", "onecopy waits")];
    let mut connection = Connection::open_own(&seat.address, served, &own).await?;
    let rows = connection.simple(WAITS_SQL).await?;
    let session = |text: &Option<String>| seat.evictions.tenant(text.as_deref()?.parse().ok()?);
    let edge = |row: &Vec<Option<String>>| Some((session(row.first()?)?, session(row.get(1)?)?));
    Ok(rows.iter().filter_map(edge).collect())
}
