//! How a server connection gets the settings of the session that uses it.
//!
//! A session's own connection needs what was set since it was used last. One that another session used before is brought
//! to what it began with, unless it is known to be there, and then to where this session is. What the server reports of
//! that goes to nobody: each client has been told of its own settings already.
//!
//! Invariant: on a connection that is worn by nobody knows what (`worn` is none, or it is tainted) nothing of another
//! session runs before RESET ALL.

use std::sync::Arc;
use std::time::Instant;

use cluster::ids::SessionId;

use super::fault::{Fault, Refusal};
use super::pins::Pins;
use super::pools::{Kind, Permit};
use super::servers::Server;
use super::settings::{NO_ROLE_NOR_SETTING, Settings};

/// What sessions that share a connection have to know of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) kind: Arc<Kind>,
    pub(super) permit: Option<Permit>,
    /// When it was opened, in changes of what the servers say of the role.
    pub(super) epoch: u64,
    /// The session that used it last.
    pub(super) wearer: SessionId,
    /// The statements that lead from what it began with to what it has; none if that is not known.
    pub(super) worn: Option<Arc<str>>,
    /// Something ran that may have set what nobody sees.
    pub(super) is_tainted: bool,
    /// Why it cannot be given back.
    pub(super) pins: Pins,
    pub(super) opened: Instant,
    /// When it was given back.
    pub(super) since: Instant,
}

impl Shared {
    /// A connection that was opened just now.
    pub(super) fn new((kind, epoch): (Arc<Kind>, u64), permit: Permit, wearer: SessionId) -> Self {
        let now = Instant::now();
        Self {
            kind,
            permit: Some(permit),
            epoch,
            wearer,
            worn: Some("".into()),
            is_tainted: false,
            pins: Pins::default(),
            opened: now,
            since: now,
        }
    }
}

/// Puts the connection into the state of this session, whoever had it before.
pub(super) async fn dress(
    server: &mut Server,
    settings: &mut Settings,
    session: SessionId,
) -> Result<(), Fault> {
    if server.shared.as_ref().is_some_and(|shared| shared.wearer != session) {
        return dress_anew(server, settings, session).await;
    }
    if server.settings != settings.generation() {
        run(server, &settings.replay()).await?;
        server.settings = settings.generation();
    }
    Ok(())
}

async fn dress_anew(server: &mut Server, settings: &mut Settings, session: SessionId) -> Result<(), Fault> {
    let wanted = settings.dress();
    let mut sql = String::new();
    if server.has_draws() {
        sql.push_str("DISCARD SEQUENCES;");
    }
    if let Some(shared) = &mut server.shared {
        if shared.is_tainted || shared.worn.as_ref() != Some(&wanted) {
            sql.push_str(NO_ROLE_NOR_SETTING);
            sql.push(';');
            sql.push_str(&wanted);
        }
        // Until it is done nobody knows.
        shared.worn = None;
    }
    run(server, &sql).await?;
    server.forget_draws();
    server.settings = settings.generation();
    if let Some(shared) = &mut server.shared {
        (shared.wearer, shared.worn, shared.is_tainted) = (session, Some(wanted), false);
    }
    Ok(())
}

/// A value that one replica took and another does not is an error.
async fn run(server: &mut Server, sql: &str) -> Result<(), Fault> {
    if sql.is_empty() {
        return Ok(());
    }
    let replica = server.replica;
    // A query of the simple protocol ends it.
    server.prepared.remove(b"");
    server.connection.simple(sql).await.map(|_| ()).map_err(|error| match Fault::at(replica)(error) {
        Fault::Server(body) => Fault::Refused(Refusal::plain(
            wire::sqlstate::INTERNAL_ERROR,
            format!(
                "the session's settings cannot be brought to replica {}: {}",
                replica.0 + 1,
                wire::backend::Fields::new(&body).message()
            ),
        )),
        other => other,
    })
}
