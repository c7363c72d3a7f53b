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
use wire::sqlstate;

use super::servers::Server;
use super::{Kind, Permit, Thread};
use crate::backend::{BackendError, Connection};
use crate::client::settings::{NO_ROLE_NOR_SETTING, Settings};
use crate::error::{Fault, Refusal};

/// What sessions that share a connection have to know of it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) kind: Arc<Kind>,
    pub(crate) permit: Option<Permit>,
    /// When it was opened, in changes of what the servers say of the role.
    pub(crate) epoch: u64,
    /// The session that used it last.
    pub(crate) wearer: SessionId,
    /// Where that lives.
    pub(crate) thread: Thread,
    /// The statements that lead from what it began with to what it has; none if that is not known.
    pub(crate) worn: Option<Arc<str>>,
    /// Something ran that may have set what nobody sees.
    pub(crate) is_tainted: bool,
    pub(crate) opened: Instant,
    /// When it was given back.
    pub(crate) since: Instant,
}

impl Shared {
    /// A connection that was opened just now.
    pub(crate) fn new(
        (kind, epoch): (Arc<Kind>, u64),
        permit: Permit,
        (wearer, thread): (SessionId, Thread),
    ) -> Self {
        let now = Instant::now();
        Self {
            kind,
            permit: Some(permit),
            epoch,
            wearer,
            thread,
            worn: Some("".into()),
            is_tainted: false,
            opened: now,
            since: now,
        }
    }
}

/// How often it is tried to lift the limit of whoever had a connection before, which may be so short that it ends that.
const ATTEMPTS: u32 = 10;
/// Forgets what was drawn.
const DISCARD_SEQUENCES: &str = "DISCARD SEQUENCES;";
/// Lifts it.
const UNLIMITED: &str = "SET statement_timeout = 0;";

/// Put before a PREPARE, for the implicit transaction of both.
const HASTILY: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '100ms'; ";

/// Puts the connection into the state of this session, whoever had it before. It may have to forget what the session drew
/// there.
pub(crate) async fn dress(
    server: &mut Server,
    settings: &mut Settings,
    session: SessionId,
    forgets_draws: bool,
) -> Result<(), Fault> {
    if server.shared.as_ref().is_some_and(|shared| shared.wearer != session) {
        return dress_anew(server, settings, session).await;
    }
    let mut sql = if forgets_draws { DISCARD_SEQUENCES.to_owned() } else { String::new() };
    if server.settings != settings.generation() {
        sql.push_str(&settings.replay());
    }
    run(server, &sql).await?;
    server.settings = settings.generation();
    if forgets_draws {
        server.forget_draws();
    }
    Ok(())
}

async fn dress_anew(server: &mut Server, settings: &mut Settings, session: SessionId) -> Result<(), Fault> {
    let wanted = settings.dress();
    let mut sql = String::new();
    if server.has_draws() {
        sql.push_str(DISCARD_SEQUENCES);
    }
    if let Some(shared) = &mut server.shared {
        if shared.is_tainted || shared.worn.as_ref() != Some(&wanted) {
            // The limits of whoever had it before are for his own statements.
            sql.insert_str(0, UNLIMITED);
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
    patiently(&mut server.connection, sql).await.map_err(|error| match Fault::at(replica)(error) {
        Fault::Server(body) => Fault::Refused(Refusal::plain(
            sqlstate::INTERNAL_ERROR,
            format!(
                "the session's settings cannot be brought to replica {}: {}",
                replica.0 + 1,
                wire::backend::Fields::new(&body).message()
            ),
        )),
        other => other,
    })
}

/// Prepares a statement of the session's again, which may fail: a table is gone, or locked for longer than other statements
/// may be made to wait.
pub(crate) async fn prepare_again(server: &mut Server, text: &str) -> Result<bool, Fault> {
    server.prepared.remove(b"");
    match patiently(&mut server.connection, &format!("{HASTILY}{text}")).await {
        Ok(()) => Ok(true),
        Err(BackendError::Server(_)) => Ok(false),
        Err(error) => Err(Fault::at(server.replica)(error)),
    }
}

/// Runs statements that do the same when they are run again: a limit of time for the statements of somebody may end them,
/// even the one that lifts it.
async fn patiently(connection: &mut Connection, sql: &str) -> Result<(), BackendError> {
    let mut attempts = 1;
    loop {
        match connection.simple(sql).await {
            Err(error)
                if error.sqlstate() == Some(sqlstate::QUERY_CANCELED.as_bytes()) && attempts < ATTEMPTS =>
            {
                attempts += 1;
            }
            other => return other.map(|_| ()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};
    use wire::backend::Status;
    use wire::encode;

    use super::*;
    use crate::backend::Address;
    use crate::security::scram::Secret;

    /// A server that lets anybody in, and cancels the first queries. It returns how many there were.
    async fn serve(mut client: UnixStream, cancelled: u32) -> u32 {
        let (mut input, mut out) = ([0; 1024], Vec::new());
        assert!(client.read(&mut input).await.unwrap() > 0);
        encode::authentication_ok(&mut out);
        encode::ready_for_query(&mut out, Status::Idle);
        client.write_all(&out).await.unwrap();
        for queries in 0.. {
            if client.read(&mut input).await.unwrap() == 0 {
                return queries;
            }
            out.clear();
            if queries < cancelled {
                encode::error(&mut out, "ERROR", sqlstate::QUERY_CANCELED, "too slow", None);
            } else {
                encode::command_complete(&mut out, "SET");
            }
            encode::ready_for_query(&mut out, Status::Idle);
            client.write_all(&out).await.unwrap();
        }
        0
    }

    #[tokio::test]
    async fn a_limit_of_the_former_wearer_ends_nobody_elses_statement() {
        let folder = std::env::temp_dir().join(format!("onecopy-dress-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
        let address = Address::Unix { socket_dir: folder.clone(), port: 5432 };
        for (cancelled, succeeds, queries) in [(0, true, 1), (3, true, 4), (ATTEMPTS, false, ATTEMPTS)] {
            let server = async {
                let (stream, _) = listener.accept().await.unwrap();
                serve(stream, cancelled).await
            };
            let client = async {
                let mut connection =
                    Connection::open(&address, &Secret::None, &[("user", "joe")]).await.unwrap();
                patiently(&mut connection, "SET work_mem = '1MB'").await.is_ok()
            };
            let both = async { tokio::join!(server, client) };
            let told = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
            assert_eq!(told, (queries, succeeds), "{cancelled} cancelled");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
