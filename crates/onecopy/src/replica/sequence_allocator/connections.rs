//! The connections of the sequence allocator, one for each replica, and the limits of its steps on them.
//!
//! Invariant: a connection is used only in the incarnation of its replica in which it was opened.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::ids::{Incarnation, ReplicaId};

use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::Leader;

/// How long a server may take for one step of the allocator.
pub(super) const STEP_DEADLINE: Duration = Duration::from_secs(5);
/// The server ends a statement of the allocator after this time. It is shorter than [`STEP_DEADLINE`], so the allocator
/// normally hears how the statement ended; an unknown outcome bars the replica until its server restarts.
const STATEMENT_TIMEOUT: &str = "-c statement_timeout=3s";

const OPTIONS: &str = "-c session_replication_role=replica -c search_path=pg_catalog -c synchronous_commit=off \
    -c application_name=onecopy\\ lending";

/// The connections, each with the incarnation of its replica.
#[derive(Debug, Default)]
pub(super) struct Connections(BTreeMap<ReplicaId, (Incarnation, OwnConnection)>);

impl Connections {
    /// Returns the connection to the present incarnation of a replica, or opens one.
    pub(super) async fn at(
        &mut self,
        leader: &Leader,
        replica: ReplicaId,
    ) -> Result<&mut OwnConnection, BackendError> {
        let present = leader.seats[replica].run.incarnation();
        let known = self.0.remove(&replica).filter(|(incarnation, _)| *incarnation == present);
        let connection = match known {
            Some((_, connection)) => connection,
            None => open(leader, replica, &format!("{OPTIONS} {STATEMENT_TIMEOUT}")).await?,
        };
        Ok(&mut self.0.entry(replica).insert_entry((present, connection)).into_mut().1)
    }

    /// Takes the connection to a replica out.
    pub(super) fn take(&mut self, replica: ReplicaId) -> Option<(Incarnation, OwnConnection)> {
        self.0.remove(&replica)
    }

    /// Puts a connection back.
    pub(super) fn put(&mut self, replica: ReplicaId, incarnation: Incarnation, connection: OwnConnection) {
        self.0.insert(replica, (incarnation, connection));
    }
}

/// Opens a connection without a limit on its statements.
pub(super) async fn open_unlimited(
    leader: &Leader,
    replica: ReplicaId,
) -> Result<OwnConnection, BackendError> {
    open(leader, replica, OPTIONS).await
}

async fn open(leader: &Leader, replica: ReplicaId, options: &str) -> Result<OwnConnection, BackendError> {
    let address = &leader.seats[replica].address;
    OwnConnection::open(address, &leader.database.served, &[("options", options)]).await
}

/// The first value of an answer.
pub(super) fn answer(rows: &[Vec<Option<String>>]) -> Option<String> {
    rows.first()?.first()?.clone()
}
