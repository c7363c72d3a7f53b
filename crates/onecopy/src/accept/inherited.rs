//! A client that logged in at the process before this one ([`crate::session::passing`]).
//!
//! Invariant: a client that is not served is told so, whatever the reason.

use std::io::Write;
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;

use wire::sqlstate;

use super::startup::{refuse, room};
use crate::client::Client;
use crate::client::passed::PassedSession;
use crate::error::Refusal;
use crate::link::Worker;
use crate::link::node_kind::{Begun, LoggedIn, Origin};

/// A session of the process before this one, until a thread serves it.
#[derive(Debug)]
pub(crate) struct Inherited {
    socket: Option<TcpStream>,
    session: Option<PassedSession>,
}

impl Inherited {
    /// A client whose session is known, unless this release cannot read it.
    pub(crate) fn new(socket: TcpStream, session: Option<PassedSession>) -> Self {
        Self { socket: Some(socket), session }
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        let Some(mut socket) = self.socket.take() else { return };
        let mut out = Vec::new();
        Refusal::new(
            sqlstate::ADMIN_SHUTDOWN,
            "terminating connection: Onecopy was restarted and cannot go on with the session",
            "Connect again, and set up the session anew. Onecopy's log says why.",
        )
        .write(&mut out, "FATAL");
        // The socket does not block; the client may be gone.
        let _ = socket.write(&out);
    }
}

/// Serves the client to the end of its session.
pub(super) async fn serve(worker: Rc<Worker>, mut inherited: Inherited) {
    if !worker.kind.passes_sessions() {
        return;
    }
    let Some(session) = inherited.session.take() else { return };
    let Some(socket) = inherited.socket.take() else { return };
    let stream = match tokio::net::TcpStream::from_std(socket) {
        Ok(stream) => stream,
        // Not even an error could be sent.
        Err(error) => return tracing::error!(%error, "cannot use the socket of a client"),
    };
    let PassedSession {
        number,
        key,
        input,
        settings,
        client_info,
        secret,
        statements,
        prepares,
        draws,
        greeting,
    } = session;
    let client = Client::resumed(stream, &input);
    let begun = Begun { number, key, statements, prepares, draws, greeting };
    match room(&worker.coordinator).await {
        Ok(_room) => {
            let origin = Origin::Predecessor(Box::new(begun));
            let client = LoggedIn { client, settings, client_info, secret, origin };
            if let Err(unserved) = Arc::clone(&worker.kind).serve(worker, client).await {
                refuse(unserved.client, unserved.fault).await;
            }
        }
        Err(fault) => refuse(client, fault).await,
    }
}
