//! The beginning of a connection: encryption requests, cancel requests, log-in.
//!
//! The client proves its role first ([`super::login`]). Only then Onecopy looks at the database that it names, so an
//! unauthenticated client learns nothing about databases. The node's kind serves the session that follows.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use wire::startup::{Opening, OpeningError, opening};
use wire::{encode, sqlstate};

use super::login::authenticate;
use crate::client::Client;
use crate::client::settings::Settings;
use crate::config::runtime::Logins;
use crate::coordinator::Coordinator;
use crate::error::{Fault, Refusal};
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, Origin};
use crate::local::WAITING_MAX;
use crate::local::session_registry::ClientInfo;
use crate::security::scram::Secret;
use crate::session::admin::{Admin, Admitted, Dialect};

/// The admin database, in which Onecopy itself answers.
pub(crate) const ADMIN_DATABASE: &str = "onecopy";
/// Its alias, for programs that are made for PgBouncer.
pub(crate) const ADMIN_ALIAS: &str = "pgbouncer";
/// Time limit of the start-up packet, with the handshake of TLS. A shorter limit for the whole log-in overrides it.
const OPENING_DEADLINE: Duration = Duration::from_secs(10);
/// Time limit for sending the refusal to a client.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(5);
/// A client waits at most this long for another session to end.
const ROOM_DEADLINE: Duration = Duration::from_secs(5);

/// Serves one accepted connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let address = stream.peer_addr().ok().map(|address| address.ip());
    let Logins { limits, patience } = worker.local.runtime_config.logins();
    let place = worker.local.half_open.enter(address, limits);
    let until = Instant::now() + patience;
    let opening = timeout(OPENING_DEADLINE.min(patience), open(Client::new(stream), &worker));
    let opened = tokio::select! {
        opened = opening => opened.ok().and_then(Result::ok).flatten(),
        () = place.is_cut() => None,
    };
    // The connection was a cancel request, or too slow.
    let Some((mut client, parameters)) = opened else { return };
    let request = tokio::select! {
        request = timeout_at(until, log_in(&worker, &mut client, &parameters)) => {
            request.unwrap_or_else(|_| Err(late()))
        }
        () = place.is_cut() => Err(full("Too many are logging in; try again later.")),
    };
    drop(place);
    match request {
        Ok(Request::Admin(dialect, admitted)) => Admin::new(worker, client, dialect, admitted).serve().await,
        Ok(Request::Session { settings, client_info, secret }) => {
            // The permit lives until the session has ended.
            match room(&worker.coordinator).await {
                Ok(_room) => {
                    let origin = Origin::LogIn;
                    let client = LoggedIn { client, settings: *settings, client_info, secret, origin };
                    if let Err(unserved) = Arc::clone(&worker.kind).serve(worker, client).await {
                        refuse(unserved.client, unserved.fault).await;
                    }
                }
                Err(fault) => refuse(client, fault).await,
            }
        }
        Err(fault) => refuse(client, fault).await,
    }
}

/// Authenticates the client and decides what it may use.
async fn log_in(
    worker: &Worker,
    client: &mut Client,
    parameters: &[(String, String)],
) -> Result<Request, Fault> {
    let (role, database) = role_and_database(parameters)?;
    let secret = authenticate(worker, client, role, database).await?;
    let dialect = match database {
        ADMIN_DATABASE => Dialect::Own,
        ADMIN_ALIAS => Dialect::PgBouncer,
        _ => {
            check_database(&worker.coordinator.database.served.database, database, parameters)?;
            let settings = Settings::new(parameters, role, database).map_err(Fault::Fatal)?;
            let client_info = client_info(client, parameters);
            return Ok(Request::Session { settings: Box::new(settings), client_info, secret });
        }
    };
    let right = worker.local.runtime_config.access().right(role).ok_or_else(|| {
        Fault::Fatal(Refusal::new(
            sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("role \"{role}\" has no right to the database \"{database}\""),
            "The settings admin_users and stats_users of Onecopy's configuration list the roles that have it.",
        ))
    })?;
    Ok(Request::Admin(dialect, Admitted { role: role.to_owned(), right }))
}

/// A client, and its start-up parameters.
type Opened = (Client, Vec<(String, String)>);

/// Waits for a session's permit, first come first served. The number of waiting clients is bounded, too.
pub(super) async fn room(coordinator: &Coordinator) -> Result<OwnedSemaphorePermit, Fault> {
    let (room, waiting) =
        (coordinator.local.runtime_config.room(), Arc::clone(&coordinator.local.waiting_room));
    if coordinator.local.sessions.is_drained() {
        return Err(Fault::Fatal(Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            "this node is drained",
            "Connect to another node. UNDRAIN NODE, in the database \"onecopy\", lets clients in again.",
        )));
    }
    if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
        return Ok(permit);
    }
    let sessions =
        format!("Onecopy serves {} sessions at a time.", coordinator.local.runtime_config.sessions_max());
    let Ok(_place) = waiting.try_acquire_owned() else {
        return Err(full(format!("{sessions} {WAITING_MAX} more wait for a place; try again later.")));
    };
    match timeout(ROOM_DEADLINE, room.acquire_owned()).await {
        Ok(Ok(permit)) => Ok(permit),
        _ => Err(full(format!(
            "{sessions} None has ended within {} s; try again later.",
            ROOM_DEADLINE.as_secs()
        ))),
    }
}

fn full(hint: impl Into<String>) -> Fault {
    Fault::Fatal(Refusal::new(sqlstate::TOO_MANY_CONNECTIONS, "sorry, too many clients already", hint))
}

/// The error for a log-in that took too long.
fn late() -> Fault {
    let text = "canceling authentication due to timeout";
    Fault::Fatal(Refusal::plain(sqlstate::QUERY_CANCELED, text))
}

/// The service that a client has asked for and may use.
enum Request {
    Admin(Dialect, Admitted),
    Session { settings: Box<Settings>, client_info: ClientInfo, secret: Secret },
}

pub(super) async fn refuse(mut client: Client, fault: Fault) {
    match fault {
        Fault::Server(body) => encode::message(&mut client.out, b'E', |b| b.extend_from_slice(&body)),
        other => {
            if let Some(refusal) = other.into_refusal() {
                refusal.write(&mut client.out, "FATAL");
            }
        }
    }
    let telling = async {
        if client.flush().await.is_ok() {
            let _ = client.stream.shutdown().await;
        }
    };
    let _ = timeout(REFUSAL_DEADLINE, telling).await;
}

/// Reads the start-up packet, after the handshake of TLS if the client wants one and the node has a certificate.
/// `None` if the connection was a cancel request.
async fn open(mut client: Client, worker: &Worker) -> Result<Option<Opened>, Fault> {
    let identity = worker.local.runtime_config.identity();
    if let Some(identity) = &identity
        && client.begins_with_handshake().await?
    {
        client = client.encrypt(identity, false).await?;
    }
    loop {
        match opening(client.input.data()) {
            Ok(None) => client.fill().await?,
            Ok(Some((Opening::Ssl, length))) if identity.is_some() && !client.is_encrypted() => {
                let Some(identity) = &identity else { return Err(Fault::Client) };
                client.input.consume(length);
                client.out.push(b'S');
                client.flush().await?;
                client = client.encrypt(identity, true).await?;
            }
            Ok(Some((Opening::Ssl | Opening::Gssenc, length))) => {
                client.input.consume(length);
                client.out.push(b'N');
                client.flush().await?;
            }
            Ok(Some((Opening::Cancel { pid, secret }, _))) => {
                worker.keys.cancel(pid, secret).await;
                return Ok(None);
            }
            Ok(Some((Opening::Startup { minor, parameters }, length))) => {
                let parameters: Vec<_> =
                    parameters.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
                client.input.consume(length);
                negotiate(&mut client, minor, &parameters);
                return Ok(Some((client, parameters)));
            }
            Err(error) => {
                let refusal = match error {
                    OpeningError::Protocol(major) => Refusal::plain(
                        sqlstate::FEATURE_NOT_SUPPORTED,
                        format!("unsupported frontend protocol {major}: server supports 3.0"),
                    ),
                    OpeningError::Length | OpeningError::Malformed => {
                        Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "invalid startup packet")
                    }
                };
                refusal.write(&mut client.out, "FATAL");
                client.flush().await?;
                return Ok(None);
            }
        }
    }
}

/// Negotiates a newer minor version, or an unknown protocol option, down.
fn negotiate(client: &mut Client, minor: u16, parameters: &[(String, String)]) {
    let unknown: Vec<&str> =
        parameters.iter().map(|(name, _)| name.as_str()).filter(|name| name.starts_with("_pq_.")).collect();
    if minor == 0 && unknown.is_empty() {
        return;
    }
    encode::message(&mut client.out, b'v', |b| {
        b.extend_from_slice(&0i32.to_be_bytes());
        b.extend_from_slice(&i32::try_from(unknown.len()).unwrap_or(i32::MAX).to_be_bytes());
        for name in unknown {
            b.extend_from_slice(name.as_bytes());
            b.push(0);
        }
    });
}

fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

fn role_and_database(parameters: &[(String, String)]) -> Result<(&str, &str), Fault> {
    let user = parameter(parameters, "user").filter(|user| !user.is_empty()).ok_or_else(|| {
        Fault::Fatal(Refusal::plain(
            sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            "no PostgreSQL user name specified in startup packet",
        ))
    })?;
    let database = parameter(parameters, "database").filter(|name| !name.is_empty()).unwrap_or(user);
    Ok((user, database))
}

fn client_info(client: &Client, parameters: &[(String, String)]) -> ClientInfo {
    ClientInfo {
        user: parameter(parameters, "user").unwrap_or_default().to_owned(),
        application_name: parameter(parameters, "application_name").unwrap_or_default().to_owned(),
        peer: client.peer(),
        local: client.local(),
    }
}

fn check_database(served: &str, database: &str, parameters: &[(String, String)]) -> Result<(), Fault> {
    if parameter(parameters, "replication").is_some_and(|v| !matches!(v, "" | "false" | "off" | "no" | "0")) {
        return Err(Fault::Fatal(Refusal::unsupported(
            "a replication connection",
            "Connect to one of the servers that SHOW REPLICAS names.",
        )));
    }
    if database != served {
        return Err(Fault::Fatal(Refusal::new(
            sqlstate::INVALID_CATALOG_NAME,
            format!("database \"{database}\" is not served"),
            format!("Onecopy serves the database \"{served}\", and answers itself in \"{ADMIN_DATABASE}\"."),
        )));
    }
    // Some drivers quote the name.
    let encoding = parameter(parameters, "client_encoding").unwrap_or("UTF8").trim_matches(['\'', '"']);
    if !matches!(encoding.to_ascii_lowercase().replace(['-', '_'], "").as_str(), "utf8" | "unicode" | "auto")
    {
        return Err(Fault::Fatal(Refusal::unsupported(format!("client_encoding {encoding}"), "Use UTF8.")));
    }
    Ok(())
}
