//! Looks up the stored password of a role at each log-in.
//!
//! Each session thread asks the anchor over a connection of its own, once the anchor shows every acknowledged schema
//! change. So a changed password counts at once, and no copy can be out of date.

use std::time::Duration;

use cluster::ids::ReplicaId;
use cluster::parts::replica::State;
use tokio::sync::Mutex;
use wire::encode::{self, Format};

use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::{Coordinator, Seat};
use crate::security::scram::Verifier;

/// The stored verifier, unless it has expired. The name is a parameter, because the client has not authenticated yet.
const PASSWORD_SQL: &[u8] = b"SELECT rolpassword FROM pg_catalog.pg_authid WHERE rolname = $1 \
    AND rolpassword IS NOT NULL AND (rolvaliduntil IS NULL OR rolvaliduntil > pg_catalog.clock_timestamp())";
/// Interval at which we check whether the anchor is fresh.
const LOOK: Duration = Duration::from_millis(1);
/// One attempt can fail because the connection ended since its last use, or because the anchor moved.
const ATTEMPTS: u32 = 2;

#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// With the replica it is to. Not here while it is in use, so that one in an unknown
    /// state is never used again.
    connection: Mutex<Option<(ReplicaId, OwnConnection)>>,
}

impl Credentials {
    /// The stored verifier of a role. `None` if there is no such role, or if its password is stored in a form that
    /// Onecopy cannot check.
    pub(crate) async fn verifier(
        &self,
        coordinator: &Coordinator,
        role: &str,
    ) -> Result<Option<Verifier>, BackendError> {
        // One question at a time, so that no log-in gets the answer of another.
        let mut slot = self.connection.lock().await;
        let mut attempt = 1;
        loop {
            let known = slot.take();
            let asked = tokio::time::timeout(
                coordinator.local.timeouts.health_deadline,
                ask(coordinator, known, role),
            );
            match asked.await.unwrap_or(Err(BackendError::Protocol("no answer in time"))) {
                Ok((connection, kept)) => {
                    *slot = Some(connection);
                    let verifier = kept.as_deref().and_then(Verifier::parse);
                    if kept.is_some() && verifier.is_none() {
                        tracing::warn!(
                            role,
                            "its password is not stored as SCRAM-SHA-256; set it again through Onecopy"
                        );
                    }
                    return Ok(verifier);
                }
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(_) => attempt += 1,
            }
        }
    }
}

/// The anchor, once it shows the last schema change. Callers bound this wait.
async fn fresh_anchor(coordinator: &Coordinator) -> ReplicaId {
    let wanted = coordinator.view.last_ddl();
    loop {
        let anchor = coordinator.view.anchor();
        let mut replicas = coordinator.replicas().into_iter();
        if replicas.any(|it| it.replica == anchor && it.state == State::Up && it.applied >= wanted) {
            return anchor;
        }
        tokio::time::sleep(LOOK).await;
    }
}

type Answer = ((ReplicaId, OwnConnection), Option<String>);

/// Asks the anchor. If the anchor moves meanwhile, asks the new one.
async fn ask(
    coordinator: &Coordinator,
    mut known: Option<(ReplicaId, OwnConnection)>,
    role: &str,
) -> Result<Answer, BackendError> {
    loop {
        let anchor = fresh_anchor(coordinator).await;
        let seat = &coordinator.seats[anchor];
        let connection = known.take().filter(|(at, _)| *at == anchor).map(|(_, connection)| connection);
        let asked = ask_at(coordinator, seat, connection, role);
        if let Some(answer) = coordinator.unless_given_up(anchor, asked).await {
            return answer;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn ask_at(
    coordinator: &Coordinator,
    seat: &Seat,
    known: Option<OwnConnection>,
    role: &str,
) -> Result<Answer, BackendError> {
    let mut connection = if let Some(connection) = known {
        connection
    } else {
        let own = [("application_name", "onecopy log-in")];
        OwnConnection::open(&seat.address, &coordinator.database.served, &own).await?
    };
    let exchange = connection.exchange();
    let out = &mut exchange.output;
    encode::parse(out, b"", PASSWORD_SQL, &[]);
    encode::bind(out, b"", b"", &[Some(role.as_bytes())], Format::Text);
    encode::execute(out, b"", 0);
    encode::sync(out);
    exchange.flush().await?;
    let kept = exchange.drain().await?.into_iter().flatten().flatten().next();
    Ok(((seat.replica, connection), kept))
}
