//! The beginning of a connection: encryption requests, cancel requests, log-in.
//!
//! Who the client is comes first ([`super::login`]), and what it wants after that: whoever has not proven itself learns
//! nothing of what is served here. The session's first server connection, to the home, is made here, because its settings
//! are what the client is told; there the server decides whether the role may log in at all.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use wire::startup::{Opening, OpeningError, opening};
use wire::{encode, sqlstate};

use super::login::authenticate;
use crate::client::cancel::pid_of;
use crate::client::own_settings::Severity;
use crate::client::prepared::Prepared;
use crate::client::settings::Settings;
use crate::client::signals::Signals;
use crate::client::{Client, DEFAULTS_SQL, welcome};
use crate::config::hba::Right;
use crate::config::runtime::Logins;
use crate::coordinator::session_registry::Who;
use crate::coordinator::{Coordinator, WAITING_MAX};
use crate::error::{Fault, Refusal};
use crate::link::{Leftovers, Link, Registration, Worker};
use crate::logging::InSession;
use crate::pool::servers::Servers;
use crate::security::scram::Secret;
use crate::session::Session;
use crate::session::admin::{Admin, Dialect};
use crate::transaction::open::OpenTransaction;

/// The database in which Onecopy itself answers.
pub(crate) const ADMIN_DATABASE: &str = "onecopy";
/// Another name of it, under which programs made for PgBouncer find what they know.
pub(crate) const ADMIN_ALIAS: &str = "pgbouncer";
/// How long a client may take until it has sent its start-up packet, the handshake of TLS included, if it has no less for all of its
/// log-in.
const OPENING_DEADLINE: Duration = Duration::from_secs(10);
/// How long a client that is refused may take to receive that.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(5);
/// How long they wait.
const ROOM_DEADLINE: Duration = Duration::from_secs(5);

/// Which role this is, whether it may log in, and what it begins with.
const STANDING_SQL: &str = "SELECT pg_catalog.concat_ws(' ', r.oid, r.rolcanlogin, \
     pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CONNECT'), \
     (SELECT pg_catalog.array_agg(s.setconfig::pg_catalog.text ORDER BY s.setrole, s.setdatabase) FROM pg_catalog.pg_db_role_setting s \
      WHERE s.setrole OPERATOR(pg_catalog.=) ANY (ARRAY['0', r.oid]) \
      AND s.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY['0', (SELECT oid FROM pg_catalog.pg_database \
          WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())]))) \
     FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";
/// How often a new connection is made because a role is not what it was.
const DOUBTS_MAX: u32 = 10;

/// Serves one accepted connection to its end.
pub(crate) async fn serve(worker: Rc<Worker>, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let address = stream.peer_addr().ok().map(|address| address.ip());
    let Logins { limits, patience } = worker.coordinator.runtime_config.logins();
    let place = worker.coordinator.half_open.enter(address, limits);
    let until = Instant::now() + patience;
    let opening = timeout(OPENING_DEADLINE.min(patience), open(Client::new(stream), &worker));
    let opened = tokio::select! {
        opened = opening => opened.ok().and_then(Result::ok).flatten(),
        () = place.is_cut() => None,
    };
    // Else it wanted something else, or took too long to say what it wants.
    let Some((mut client, parameters)) = opened else { return };
    let request = tokio::select! {
        request = timeout_at(until, log_in(&worker, &mut client, &parameters)) => {
            request.unwrap_or_else(|_| Err(late()))
        }
        () = place.is_cut() => Err(full("Too many are logging in; try again later.")),
    };
    drop(place);
    match request {
        Ok(Request::Admin(dialect, right)) => Admin::new(worker, client, dialect, right).serve().await,
        Ok(Request::Session { settings, who, secret }) => {
            // Until the session has ended.
            match room(&worker.coordinator).await {
                Ok(_room) => serve_session(worker, client, *settings, who, secret).await,
                Err(fault) => refuse(client, fault).await,
            }
        }
        Err(fault) => refuse(client, fault).await,
    }
}

/// Finds out what a client wants, and whether it may.
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
            check_database(&worker.coordinator.served.database, database, parameters)?;
            let settings = Settings::new(parameters, role, database).map_err(Fault::Fatal)?;
            let who = who(client, parameters);
            return Ok(Request::Session { settings: Box::new(settings), who, secret });
        }
    };
    let right = worker.coordinator.runtime_config.access().right(role).ok_or_else(|| {
        Fault::Fatal(Refusal::new(
            sqlstate::INVALID_AUTHORIZATION_SPECIFICATION,
            format!("role \"{role}\" has no right to the database \"{database}\""),
            "The settings admin_users and stats_users of Onecopy's configuration list the roles that have it.",
        ))
    })?;
    Ok(Request::Admin(dialect, right))
}

/// A client, and its start-up parameters.
type Opened = (Client, Vec<(String, String)>);

/// Waits until there is room for one more session. Who came first is served first; those who wait are bounded, too.
async fn room(coordinator: &Coordinator) -> Result<OwnedSemaphorePermit, Fault> {
    let (room, waiting) = (coordinator.runtime_config.room(), Arc::clone(&coordinator.waiting_room));
    if let Ok(permit) = Arc::clone(&room).try_acquire_owned() {
        return Ok(permit);
    }
    let sessions =
        format!("Onecopy serves {} sessions at a time.", coordinator.runtime_config.sessions_max());
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

/// A client took too long to log in.
fn late() -> Fault {
    let text = "canceling authentication due to timeout";
    Fault::Fatal(Refusal::plain(sqlstate::QUERY_CANCELED, text))
}

/// What a client wants, and may have.
enum Request {
    Admin(Dialect, Right),
    Session { settings: Box<Settings>, who: Who, secret: Secret },
}

async fn refuse(mut client: Client, fault: Fault) {
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

/// The client, encrypted if it wants that and we can, and its start-up parameters; `None` when the connection was for
/// something else.
async fn open(mut client: Client, worker: &Worker) -> Result<Option<Opened>, Fault> {
    let identity = worker.coordinator.runtime_config.identity();
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

/// A newer minor version, or an option of the protocol that is not known, is negotiated down.
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

fn who(client: &Client, parameters: &[(String, String)]) -> Who {
    Who {
        user: parameter(parameters, "user").unwrap_or_default().to_owned(),
        application_name: parameter(parameters, "application_name").unwrap_or_default().to_owned(),
        peer: client.peer(),
        local: client.local(),
    }
}

async fn serve_session(worker: Rc<Worker>, client: Client, settings: Settings, who: Who, secret: Secret) {
    if worker.coordinator.shipping.get().is_some() {
        if let Err((client, fault)) = crate::shipping::serve(worker, client, settings, who, secret).await {
            refuse(client, fault).await;
        }
        return;
    }
    let keys = Arc::clone(&worker.keys);
    let coordinator = Arc::clone(&worker.coordinator);
    let (id, mailbox) = coordinator.open_session();
    let pid = pid_of(id);
    let cancel = match keys.register(pid, Arc::clone(&mailbox)) {
        Ok(cancel) => cancel,
        Err(error) => {
            coordinator.close_session(id);
            let refusal = Refusal::plain(sqlstate::INTERNAL_ERROR, format!("no random number: {error}"));
            return refuse(client, Fault::Fatal(refusal)).await;
        }
    };
    let entry = coordinator.sessions.register(id, who);
    let (thread, keys_of_all) = (worker.thread, Arc::clone(&keys));
    let anchor = coordinator.anchor();
    let progress = coordinator.memory_budget.register(id);
    let signals = Signals::new(id, Arc::clone(&coordinator), keys_of_all);
    let servers = Servers::new(&coordinator, thread, &settings, Arc::clone(&entry), secret);
    let client = client.of_session(&mailbox).with_signals(signals);
    let link = Link {
        worker,
        id,
        registration: Registration { mailbox, cancel, entry, progress, ending: None },
        client,
        servers,
        settings,
        prepared: Prepared::default(),
        leftovers: Leftovers::default(),
        settling: None,
        tenancy: None,
    };
    let mut session = Session { link, txn: OpenTransaction::none(anchor), skipping: false };
    let serving = async {
        match session.greet().await {
            Ok(()) => session.serve().await,
            Err(fault) => {
                coordinator.close_session(id);
                refuse(session.link.client, fault).await;
            }
        }
        tracing::info!("the session has ended");
    };
    InSession::new(id, serving).await;
    keys.remove(pid);
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
    // Some drivers put the name into quotes.
    let encoding = parameter(parameters, "client_encoding").unwrap_or("UTF8").trim_matches(['\'', '"']);
    if !matches!(encoding.to_ascii_lowercase().replace(['-', '_'], "").as_str(), "utf8" | "unicode" | "auto")
    {
        return Err(Fault::Fatal(Refusal::unsupported(format!("client_encoding {encoding}"), "Use UTF8.")));
    }
    Ok(())
}

impl Session {
    /// Connects to the home. Where sessions share connections the role may be there from before: it has to be the same one,
    /// with the same right to log in, and to begin with the same settings.
    async fn connect_first(&mut self) -> Result<ReplicaId, Fault> {
        let started = Instant::now();
        let mut doubts = 0;
        loop {
            let anchor = match self.executor().connect_home().await {
                Err(Fault::Unplaced(_) | Fault::Lost(_))
                    if started.elapsed() < crate::link::wait::WAIT_MAX =>
                {
                    tokio::time::sleep(crate::transaction::open::RETRY_PAUSE).await;
                    continue;
                }
                other => other?,
            };
            if !self.link.servers.is_shared() {
                return Ok(anchor);
            }
            let said = self.link.servers.get(anchor).ask(STANDING_SQL).await;
            if self.link.servers.note_role(anchor, said) {
                return Ok(anchor);
            }
            doubts += 1;
            if doubts == DOUBTS_MAX {
                let text = "the role is changed again and again";
                return Err(Fault::Fatal(Refusal::plain(sqlstate::CANNOT_CONNECT_NOW, text)));
            }
        }
    }

    /// Connects to the home and tells the client what the server says of itself.
    async fn greet(&mut self) -> Result<(), Fault> {
        self.link.registration.entry.tell_beginning();
        let anchor = self.connect_first().await?;
        let defaults = self.link.servers.get(anchor).ask(DEFAULTS_SQL).await.map_err(Fault::at(anchor))?;
        let defaults: Vec<String> = defaults.into_iter().flatten().flatten().collect();
        self.link.settings.begin_with(&defaults);
        let useless = self.placer().begin_with_own()?;
        let connection = &self.link.servers.get(anchor).connection;
        welcome(
            &mut self.link.client,
            connection,
            self.link.settings.read_only,
            &self.link.registration.cancel,
        );
        for refusal in useless {
            let Refusal { sqlstate, message, hint, .. } = refusal;
            self.link.tell_client(Severity::Warning, sqlstate, &message, hint.as_deref());
        }
        self.ready();
        Ok(())
    }
}
