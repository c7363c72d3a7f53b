//! How a server connection gets the settings of the session that uses it.
//!
//! Example: session A has set `work_mem` on a connection and gives it back. Before session B runs a statement there, it
//! gets `RESET ALL` and B's own settings in one query; if A had just the settings that B has, nothing is sent. A
//! session's own connection gets what was set since it was used last. ParameterStatus messages that this causes are
//! not passed on, because each client has been told of its own settings already.
//!
//! Invariant: on a connection whose settings are unknown (`applied` is none, or it is tainted) nothing of another session
//! runs before `RESET ALL`.

use cluster::ids::SessionId;
use wire::sqlstate;

use super::server::Server;
use crate::backend::{BackendError, Connection};
use crate::client::settings::{NO_ROLE_NOR_SETTING, Settings};
use crate::error::{Fault, Refusal};

/// Attempts to lift the `statement_timeout` of the last session, which may be short enough to cancel the statement that
/// lifts it.
const ATTEMPTS: u32 = 10;
const DISCARD_SEQUENCES: &str = "DISCARD SEQUENCES;";
const UNLIMITED: &str = "SET statement_timeout = 0;";

/// Goes before a PREPARE; both run in one implicit transaction.
const LIMITS_OF_PREPARE: &str = "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '100ms'; ";

/// Brings the connection to the settings of this session. `forgets_draws` ends the values that the session has drawn from
/// sequences there.
pub(super) async fn sync_state(
    server: &mut Server,
    settings: &mut Settings,
    session: SessionId,
    forgets_draws: bool,
) -> Result<(), Fault> {
    if server.shared.as_ref().is_some_and(|shared| shared.last_session != session) {
        return sync_from_other_session(server, settings, session).await;
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

async fn sync_from_other_session(
    server: &mut Server,
    settings: &mut Settings,
    session: SessionId,
) -> Result<(), Fault> {
    let wanted = settings.dress();
    let mut sql = String::new();
    if server.has_draws() {
        sql.push_str(DISCARD_SEQUENCES);
    }
    if let Some(shared) = &mut server.shared {
        if shared.is_tainted || shared.applied.as_ref() != Some(&wanted) {
            // A limit of the last session must not cancel these statements.
            sql.insert_str(0, UNLIMITED);
            sql.push_str(NO_ROLE_NOR_SETTING);
            sql.push(';');
            sql.push_str(&wanted);
        }
        // The settings are unknown until the server has answered.
        shared.applied = None;
    }
    run(server, &sql).await?;
    server.forget_draws();
    server.settings = settings.generation();
    if let Some(shared) = &mut server.shared {
        (shared.last_session, shared.applied, shared.is_tainted) = (session, Some(wanted), false);
    }
    Ok(())
}

/// Runs settings that another replica has accepted; an error means that the replicas differ.
async fn run(server: &mut Server, sql: &str) -> Result<(), Fault> {
    if sql.is_empty() {
        return Ok(());
    }
    let replica = server.replica;
    // A simple query ends the unnamed statement.
    server.prepared.remove(b"");
    repeat_if_cancelled(&mut server.connection, sql).await.map_err(|error| match Fault::at(replica)(error) {
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

/// Prepares a statement of the session again; false if the server refuses, because a table is gone or is locked for longer
/// than other statements may be made to wait.
pub(super) async fn prepare_again(server: &mut Server, text: &str) -> Result<bool, Fault> {
    server.prepared.remove(b"");
    match repeat_if_cancelled(&mut server.connection, &format!("{LIMITS_OF_PREPARE}{text}")).await {
        Ok(()) => Ok(true),
        Err(BackendError::Server(_)) => Ok(false),
        Err(error) => Err(Fault::at(server.replica)(error)),
    }
}

/// Runs statements that may be repeated, again if the server cancels them: the `statement_timeout` of the last session may
/// cancel even the statement that lifts it.
async fn repeat_if_cancelled(connection: &mut Connection, sql: &str) -> Result<(), BackendError> {
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

    /// A server that accepts each login and cancels the first queries. Returns the number of queries.
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
    async fn a_limit_of_the_last_session_does_not_end_the_statements_of_the_next() {
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
                repeat_if_cancelled(&mut connection, "SET work_mem = '1MB'").await.is_ok()
            };
            let both = async { tokio::join!(server, client) };
            let told = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
            assert_eq!(told, (queries, succeeds), "{cancelled} cancelled");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
