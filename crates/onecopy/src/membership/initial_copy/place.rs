//! The server that is filled: what it is now, and its database made anew.

use crate::backend::{BackendError, Connection, Served};
use crate::config::Replica;
use crate::coordinator::requests::Reason;
use crate::membership::adoption;
use crate::membership::adoption::Found;

use super::MARK;
use super::roles::Database;

/// Databases that a server has, from which another one can be dropped and made.
const BESIDE: [&str; 2] = ["template1", "postgres"];

/// What a server is to us.
pub(crate) enum ServerCondition {
    /// It has our objects, whole: a server of some cluster.
    Member(Box<Found>),
    /// It has nothing, not even the database, or what was left half full.
    Empty,
    /// It has something of its own: what.
    Full(String),
}

/// Looks at a server that may be empty.
pub(crate) async fn standing(served: &Served, replica: &Replica) -> Result<ServerCondition, Reason> {
    let mut found = match adoption::reach(served, replica).await {
        Ok(found) => found,
        Err(unfit) if unfit.has_no_database => {
            let beside = Served { database: BESIDE[0].to_owned(), ..served.clone() };
            adoption::reach(&beside, replica).await.map_err(|unfit| unfit.text)?;
            return Ok(ServerCondition::Empty);
        }
        Err(unfit) => return Err(unfit.text),
    };
    let text = |error: BackendError| format!("the server at {} cannot be read: {error}", replica.address);
    let marked = format!("SELECT 1 FROM pg_namespace WHERE nspname = '{MARK}'");
    if !found.connection.simple(&marked).await.map_err(text)?.is_empty() {
        return Ok(ServerCondition::Empty);
    }
    if found.cluster.is_some() {
        return Ok(ServerCondition::Member(Box::new(found)));
    }
    let holds = adoption::what_is_there(&mut found.connection).await.map_err(text)?;
    Ok(holds.map_or(ServerCondition::Empty, ServerCondition::Full))
}

/// A connection to the server, but not to the database that is made anew.
pub(super) async fn connect_beside(served: &Served, replica: &Replica) -> Result<Connection, Reason> {
    let mut why = String::new();
    for database in BESIDE.into_iter().filter(|database| *database != served.database) {
        let beside = Served { database: database.to_owned(), ..served.clone() };
        let own = [("options", super::QUIET), ("client_encoding", "UTF8")];
        match Connection::open_own(&replica.address, &beside, &own).await {
            Ok(connection) => return Ok(connection),
            Err(error) => why = error.to_string(),
        }
    }
    Err(format!("the server at {} cannot be reached: {why}", replica.address))
}

/// Drops the database, which is empty or may go, and makes it as the donor's is.
pub(super) async fn make_anew(
    connection: &mut Connection,
    served: &Served,
    database: &Database,
    is_former: bool,
) -> Result<(), BackendError> {
    let name = crate::capture::catalogue::quoted(&served.database);
    // Whoever is connected to an empty one may be about to use it.
    let force = if is_former { " WITH (FORCE)" } else { "" };
    connection.simple(&format!("DROP DATABASE IF EXISTS {name}{force}")).await?;
    connection.simple(&format!("CREATE DATABASE {name} TEMPLATE template0 {}", database.options)).await?;
    for sql in &database.properties {
        connection.simple(sql).await?;
    }
    Ok(())
}
