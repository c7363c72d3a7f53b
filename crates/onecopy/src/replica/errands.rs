//! Does what a leader wants this node to do at the servers ([`crate::coordinator::errands`]).
//!
//! - The anchor has a new schema: the catalogue is read there, since statements of this node are classified with it.
//! - A backend is in the way of a refresh: if a session of this node has its update transaction there, its statement is cancelled, or
//!   the transaction is overtaken, as the agent would do if it were here.
//!
//! Invariant: the catalogue has the generation that the leader told, so it reflects all schema changes up to there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use tokio::sync::{mpsc, watch};

use super::agent::catalogue::load_catalogue;
use super::agent::giving_way::{Blocker, GiveWay, GivingWay};
use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::Coordinator;
use crate::coordinator::errands::ErrandQueue;
use crate::coordinator::evictions::Occupant;
use crate::coordinator::node_link::Obstruction;

/// The pause after a failed attempt to read the catalogue.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a server may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Does errands for as long as the node runs.
pub(crate) async fn run(coordinator: Arc<Coordinator>, errands: ErrandQueue) {
    let ErrandQueue { schema, obstructions } = errands;
    tokio::join!(read_catalogues(&coordinator, schema), give_way(&coordinator, obstructions));
}

async fn read_catalogues(coordinator: &Coordinator, mut schema: watch::Receiver<Version>) {
    loop {
        let wanted = *schema.borrow_and_update();
        if coordinator.database.catalogue().generation() < wanted.0 {
            match read_catalogue(coordinator, wanted).await {
                Ok(catalogue) => coordinator.database.take_catalogue(catalogue),
                Err(error) => {
                    tracing::debug!(%error, version = wanted.0, "cannot read the catalogue; trying again");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
        }
        if schema.changed().await.is_err() {
            return;
        }
    }
}

async fn read_catalogue(coordinator: &Coordinator, version: Version) -> Result<sql::Catalogue, BackendError> {
    let reading = async {
        let mut connection = connect(coordinator, coordinator.view.anchor(), "onecopy catalogue").await?;
        load_catalogue(&mut connection, coordinator.database.served.id, version.0).await
    };
    in_time(reading).await
}

async fn connect(
    coordinator: &Coordinator,
    replica: ReplicaId,
    name: &str,
) -> Result<OwnConnection, BackendError> {
    let seat = &coordinator.seats[replica];
    let own = [("application_name", name)];
    OwnConnection::open(&seat.address, &coordinator.database.served, &own).await
}

async fn in_time<T>(work: impl Future<Output = Result<T, BackendError>>) -> Result<T, BackendError> {
    let late = BackendError::Protocol("the server does not answer in time");
    tokio::time::timeout(ANSWERS_WITHIN, work).await.unwrap_or(Err(late))
}

async fn give_way(coordinator: &Coordinator, mut obstructions: mpsc::Receiver<Obstruction>) {
    let mut connections: BTreeMap<ReplicaId, OwnConnection> = BTreeMap::new();
    let mut giving_way = GivingWay::default();
    while let Some(obstruction) = obstructions.recv().await {
        giving_way.forget_old();
        let Obstruction { replica, pid, is_direct, is_late } = obstruction;
        let evictions = &coordinator.seats[replica].evictions;
        let Some(Occupant::Session(session)) = evictions.occupant(pid) else { continue };
        let (function, _under_way) = match giving_way.decide(evictions, Blocker { pid, is_direct, is_late }) {
            GiveWay::NotYet => continue,
            GiveWay::Statement(under_way) => ("pg_cancel_backend", Some(under_way)),
            GiveWay::Transaction(function) => {
                tracing::debug!(replica = replica.0, blocker = pid, %session, "a refresh overtakes a transaction");
                coordinator.core.overtaken(replica, session);
                (function, None)
            }
        };
        evictions.note(pid);
        let kept = connections.remove(&replica);
        let ending = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => connect(coordinator, replica, "onecopy evictions").await?,
            };
            connection.query(&format!("SELECT {function}({pid})")).await?;
            Ok(connection)
        };
        match in_time(ending).await {
            Ok(connection) => drop(connections.insert(replica, connection)),
            // The agent finds the backend in its way again.
            Err(error) => {
                tracing::debug!(replica = replica.0, %error, "a backend could not be ended for a refresh");
            }
        }
    }
}
