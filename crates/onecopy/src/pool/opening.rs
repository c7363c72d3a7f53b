//! Opens a connection of a session to a server, and exchanges the proofs of both sides.
//!
//! The server proves that it is in the same run as when its agent connected: it still knows that agent's proof. The
//! connection proves that it is ours, so that capture accepts its identities.

use std::sync::Arc;
use std::time::Duration;

use super::anchor_oids::AnchorOids;
use super::cached::Cached;
use super::carried::CarriedHere;
use super::defaults::{ALTERED_SQL, Defaults};
use super::own_statements::OwnStatements;
use super::request::ServerPlace;
use super::server::{BackendRegistration, Server};
use crate::backend::{BackendError, Connection, assert_qualified};
use crate::capture::vouch::STARTED_SQL;
use crate::client::cancel::Running;
use crate::client::settings::Settings;
use crate::coordinator::{Coordinator, RunProof};
use crate::error::Fault;
use crate::local::pins::Pins;
use crate::local::session_registry::SessionEntry;
use crate::security::scram::Secret;

/// Attempts to connect while the server is not ready.
const ATTEMPTS: u32 = 3;

/// Checks that the server has not restarted, and proves to the server that the connection is ours. Returns the defaults with
/// which it has begun; none if the server has restarted.
pub(super) async fn prove(
    connection: &mut Connection,
    proof: &RunProof,
) -> Result<Option<Defaults>, BackendError> {
    let question = format!("{}; {STARTED_SQL}; {ALTERED_SQL}", proof.sql);
    assert_qualified(&question);
    let rows = connection.simple(&question).await?;
    let mut answers = rows.into_iter().flatten();
    let (Some(_), Some(Some(started))) = (answers.next(), answers.next()) else { return Ok(None) };
    let vouch = proof.voucher.vouch_sql(connection.process.pid, &started);
    assert_qualified(&vouch);
    connection.simple(&vouch).await?;
    Ok(Some(Defaults::new(answers.flatten().collect())))
}

/// The session that opens a connection.
#[derive(Clone, Copy)]
pub(super) struct Opener<'a> {
    pub(super) settings: &'a Settings,
    pub(super) entry: &'a Arc<SessionEntry>,
    pub(super) secret: &'a Secret,
}

/// Opens a connection of a session to one run of a replica.
pub(super) async fn open(
    coordinator: &Coordinator,
    opener: Opener<'_>,
    place: ServerPlace,
) -> Result<Server, Fault> {
    let Opener { settings, entry, secret } = opener;
    let ServerPlace { replica, incarnation } = place;
    let seat = &coordinator.seats[usize::from(replica.0)];
    let options = settings.server_options();
    let parameters = settings.start_up(&options);
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        match Connection::open(&seat.address, secret, &parameters).await {
            Ok(mut connection) => {
                let listed = seat.run.enter(&connection).map_err(|_| Fault::Lost(replica))?;
                // After the entry: a driver that gave the server up before it has removed the proof.
                let proof = seat.run.proof_of(incarnation).ok_or(Fault::Lost(replica))?;
                let proven = prove(&mut connection, &proof).await.map_err(Fault::at(replica))?;
                let defaults = proven.ok_or(Fault::Lost(replica))?;
                let running = Running::new(seat.address.clone(), &connection);
                return Ok(Server {
                    backend_registration: BackendRegistration {
                        shown: Some(entry.connect(replica, connection.process.pid)),
                        _listed: listed,
                        running: Arc::new(running),
                        evictions: Arc::clone(&seat.evictions),
                    },
                    shared: None,
                    replica,
                    incarnation,
                    defaults,
                    connection,
                    prepared: Cached::default(),
                    settings: 0,
                    own: OwnStatements::default(),
                    pins: Pins::default(),
                    carried: CarriedHere::default(),
                    has_draws: false,
                    oids: AnchorOids::of(coordinator, replica),
                });
            }
            Err(error) => failed = Some(error),
        }
        let is_final = matches!(&failed, Some(BackendError::LogIn(_)))
            || failed.as_ref().and_then(BackendError::sqlstate).is_some_and(|code| code != b"57P03");
        if is_final {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(match failed {
        // The server is stopping, or starting: it will be back, or the agent will say so.
        Some(error) if error.sqlstate().is_some_and(|code| code.starts_with(b"57P")) => Fault::Lost(replica),
        Some(error @ (BackendError::Server(_) | BackendError::LogIn(_))) => Fault::at(replica)(error),
        _ => Fault::Lost(replica),
    })
}
