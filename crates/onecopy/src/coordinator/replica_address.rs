//! The name of a replica, and the addresses at which its server listens.

use cluster::ids::ReplicaId;

use crate::backend::Address;

/// A replica's number and name, and how clients and Onecopy reach its server.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaAddress {
    /// Its number for as long as it is a member.
    pub(crate) replica: ReplicaId,
    /// Its name in commands and log lines.
    pub(crate) name: String,
    /// Where clients that want this server itself connect.
    pub(crate) host: String,
    /// The port there.
    pub(crate) port: u16,
    /// Where Onecopy connects.
    pub(crate) address: Address,
}
