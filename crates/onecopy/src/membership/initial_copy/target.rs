//! The server that is filled: checks its present contents, and makes its database anew.

use crate::backend::{Address, BackendError, OwnConnection, Served};
use crate::capture;
use crate::capture::quoting::quoted;
use crate::config::Replica;
use crate::coordinator::Leader;
use crate::membership::adoption;
use crate::membership::reach::{ReachedServer, reach};

use super::error::{InitialCopyError, TargetStep};
use super::roles::Database;

/// Databases that every server has. From one of them another database can be dropped and created.
const BESIDE: [&str; 2] = ["template1", "postgres"];

/// A server has this schema until it is full.
const MARK: &str = "onecopy_filling";

/// Settings of our connections to the server. They keep the roles' secrets, which stand in statements, out of its log.
const QUIET: &str = "-c session_replication_role=replica -c search_path=pg_catalog -c synchronous_commit=off \
    -c log_statement=none -c log_min_duration_statement=-1 -c log_duration=off -c log_min_error_statement=panic \
    -c statement_timeout=0 -c idle_in_transaction_session_timeout=0 -c client_min_messages=error \
    -c lc_monetary=C -c array_nulls=on -c xmloption=content -c TimeZone=UTC -c application_name=onecopy\\ filling";

/// The condition of a server that is to be filled.
pub(crate) enum ServerCondition {
    /// It has our objects, complete: it belongs to some cluster.
    Member(Box<ReachedServer>),
    /// It is empty, even of the database, or was left half full.
    Empty,
    /// It has data of its own, described by the text.
    Full(String),
}

/// Checks the condition of a server that may be empty.
pub(crate) async fn standing(
    served: &Served,
    replica: &Replica,
) -> Result<ServerCondition, InitialCopyError> {
    let mut found = match reach(served, replica).await {
        Ok(found) => found,
        Err(error) if error.has_no_database() => {
            let beside = Served { database: BESIDE[0].to_owned(), ..served.clone() };
            reach(&beside, replica).await?;
            return Ok(ServerCondition::Empty);
        }
        Err(error) => return Err(error.into()),
    };
    let unreadable = |source| InitialCopyError::Target {
        address: replica.address.to_string(),
        step: TargetStep::Read,
        source,
    };
    let marked = format!("SELECT 1 FROM pg_namespace WHERE nspname = '{MARK}'");
    if !found.connection.query(&marked).await.map_err(unreadable)?.is_empty() {
        return Ok(ServerCondition::Empty);
    }
    if found.cluster.is_some() {
        return Ok(ServerCondition::Member(Box::new(found)));
    }
    let holds = adoption::what_is_there(&mut found.connection).await.map_err(unreadable)?;
    Ok(holds.map_or(ServerCondition::Empty, ServerCondition::Full))
}

/// Connects to the server, but not to the database that is made anew.
pub(super) async fn connect_beside(
    served: &Served,
    replica: &Replica,
) -> Result<OwnConnection, InitialCopyError> {
    let mut lost = BackendError::Protocol("there is no other database");
    for database in BESIDE.into_iter().filter(|database| *database != served.database) {
        let beside = Served { database: database.to_owned(), ..served.clone() };
        let own = [("options", QUIET), ("client_encoding", "UTF8")];
        match OwnConnection::open(&replica.address, &beside, &own).await {
            Ok(connection) => return Ok(connection),
            Err(error) => lost = error,
        }
    }
    Err(InitialCopyError::Target {
        address: replica.address.to_string(),
        step: TargetStep::Reach,
        source: lost,
    })
}

/// Drops the database, which is empty or may go, and creates it with the donor's options.
pub(super) async fn make_anew(
    connection: &mut OwnConnection,
    served: &Served,
    database: &Database,
    is_former: bool,
) -> Result<(), BackendError> {
    let name = quoted(&served.database);
    // A client that is connected to an empty database may be about to use it.
    let force = if is_former { " WITH (FORCE)" } else { "" };
    connection.query(&format!("DROP DATABASE IF EXISTS {name}{force}")).await?;
    connection.query(&format!("CREATE DATABASE {name} TEMPLATE template0 {}", database.options)).await?;
    for sql in &database.properties {
        connection.query(sql).await?;
    }
    Ok(())
}

/// Connects to the database that is filled. Capture ignores writes on this connection.
pub(super) async fn connect(address: &Address, leader: &Leader) -> Result<OwnConnection, BackendError> {
    let token = capture::apply_token(leader.term.cluster_id);
    let options = format!("{QUIET} -c {}={token}", capture::VIA_SETTING);
    let own = [("options", options.as_str()), ("client_encoding", "UTF8")];
    OwnConnection::open(address, &leader.database.served, &own).await
}

/// Marks the server as half full, and installs our objects before the schema, without the id of the cluster.
pub(super) async fn mark(connection: &mut OwnConnection, leader: &Leader) -> Result<(), BackendError> {
    connection.query(&format!("CREATE SCHEMA {MARK}")).await?;
    connection.query(&capture::install_sql(leader.term.cluster_id)).await?;
    connection.query("TRUNCATE onecopy.cluster").await?;
    Ok(())
}

/// Drops the guards against schema changes. They come again with the definitions after the rows.
pub(super) async fn drop_guards(connection: &mut OwnConnection) -> Result<(), BackendError> {
    for name in adoption::EVENT_TRIGGERS {
        connection.query(&format!("DROP EVENT TRIGGER IF EXISTS {name}")).await?;
    }
    Ok(())
}

/// Makes it a server of the cluster, durably: it remains one after a crash of its own.
pub(super) async fn complete(connection: &mut OwnConnection, leader: &Leader) -> Result<(), BackendError> {
    let id = leader.term.cluster_id;
    connection
        .query(&format!(
            "BEGIN; SET LOCAL synchronous_commit = on; INSERT INTO onecopy.cluster VALUES ('{id}'); DROP SCHEMA {MARK}; COMMIT"
        ))
        .await?;
    Ok(())
}
