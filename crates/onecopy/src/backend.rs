//! Connections to the PostgreSQL servers.

mod address;
mod auth_exchange;
mod buffer;
mod connection;
mod connection_list;
mod error;
mod own_connection;
mod pending_replies;
mod process;
mod qualified;
mod server_info;

pub(crate) use address::Address;
pub(crate) use buffer::Buffer;
pub(crate) use connection::{Connection, Rows, cancel};
pub(crate) use connection_list::{ConnectionList, ListedConnection};
pub(crate) use error::BackendError;
pub(crate) use own_connection::OwnConnection;
pub(crate) use process::Process;
pub(crate) use qualified::assert_qualified;
pub(crate) use server_info::{ServerInfo, Unservable};

use cluster::ids::DatabaseId;

use crate::security::scram::Secret;

/// The database that Onecopy serves, and its own role: the same on each server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// The number of the database in the cluster.
    pub(crate) id: DatabaseId,
    /// Its name.
    pub(crate) database: String,
    /// The role of Onecopy's own connections, a superuser.
    pub(crate) superuser: String,
    /// The secret with which that role logs in.
    pub(crate) secret: Secret,
}

impl Served {
    /// The database and role of a new PostgreSQL cluster.
    pub(crate) fn of_new_servers() -> Self {
        Self {
            id: DatabaseId::FIRST,
            database: "postgres".to_owned(),
            superuser: "postgres".to_owned(),
            secret: Secret::None,
        }
    }
}
