//! VACUUM and the like, which every replica does for itself.

use cluster::event::{Event, Reads};
use cluster::ids::{ReplicaId, Version};
use sql::Name;
use wire::sqlstate;

use super::maintenance_error::MaintenanceError;
use crate::error::Fault;
use crate::execute::Executor;
use crate::link::wait::WAIT_MAX;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::open::{Admission, RETRY_PAUSE};

/// Sent before maintenance. Every connection begins with this setting, but the client's code may have changed it by
/// `set_config`. Maintenance calls functions of indexes, and no record would have their writes.
const FORBID_WRITES: &str = "SET default_transaction_read_only = on";

impl Executor<'_> {
    /// Runs VACUUM and the like at the anchor first, whose reply the client gets. Then every other replica runs it as
    /// soon as it is fresh. If it fails at a replica, the client gets a warning with the replica's name; the data there
    /// are the same. `names` are the relations in the statement. Temporary relations exist at the anchor alone.
    pub(crate) async fn maintenance(
        &mut self,
        names: &[Name],
        text: &[u8],
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        let mut is_temporary = !names.is_empty();
        for name in names {
            is_temporary = is_temporary && self.names_temporary(std::slice::from_ref(name)).await?;
        }
        let anchor = self.link.anchor();
        let mark = self.link.client.out.len();
        let ended = self.run_at_home_alone(Some(FORBID_WRITES), work).await?;
        if ended.error.is_some() || is_temporary {
            return Ok(ended);
        }
        let reply = self.link.client.out.split_off(mark.min(self.link.client.out.len()));
        let members: Vec<ReplicaId> = self.link.coordinator().seats.iter().map(|seat| seat.replica).collect();
        for replica in members {
            if replica == anchor {
                continue;
            }
            if let Err(reason) = self.maintain_replica(replica, text).await {
                let text =
                    format!("it was not done at {}: {reason}", self.link.coordinator().seats[replica].name);
                self.link.warn(sqlstate::CONNECTION_FAILURE, &text);
            }
        }
        self.link.client.out.extend_from_slice(&reply);
        Ok(ended)
    }

    async fn maintain_replica(&mut self, replica: ReplicaId, text: &[u8]) -> Result<(), MaintenanceError> {
        // ANALYZE counts the rows that it finds, so everything durable has to be there.
        let event = Event::Read {
            session: self.link.id,
            reads: Reads::All,
            touches: Reads::Catalogue.touches(),
            at: Some(replica),
            cost_us: 1,
            near: None,
            catalogue: Version(u64::MAX),
            kind: None,
        };
        let Ok(Admission::Granted(place)) = self.driver().place(event, false).await else {
            return Err(MaintenanceError::NotUp);
        };
        let connected = self.connector().connect(place).await;
        let result = match connected.map(|()| self.link.servers.get(replica)) {
            Ok(server) => {
                let sql = String::from_utf8_lossy(text).into_owned();
                let run = async {
                    server.ask(FORBID_WRITES).await?;
                    server.run_for_client(&sql).await
                };
                run.await.map(|_| ()).map_err(MaintenanceError::Server)
            }
            Err(_) => Err(MaintenanceError::NoConnection),
        };
        self.link.executed();
        result
    }

    /// Runs one statement at the anchor, outside of any transaction of ours. `before` is a statement of our own that
    /// goes to the same connection first.
    pub(crate) async fn run_at_home_alone(
        &mut self,
        before: Option<&str>,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        self.link.settle().await;
        let started = tokio::time::Instant::now();
        loop {
            match self.read_after(before, &Reads::All, self.link.anchor(), work).await {
                Err(Fault::Unplaced(_)) if started.elapsed() < WAIT_MAX => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                other => return other,
            }
        }
    }
}
