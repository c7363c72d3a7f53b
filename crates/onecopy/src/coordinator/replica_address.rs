//! The name of a replica, and the addresses at which its server listens.

use cluster::ids::ReplicaId;

use crate::backend::Address;
use crate::config::Replica;

/// A replica's number and name, and how clients and Onecopy reach its server.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaAddress {
    /// Its number for as long as it is a member.
    pub(crate) replica: ReplicaId,
    /// Its name in commands and log lines.
    pub(crate) name: String,
    /// The host at which clients reach this server itself.
    pub(crate) host: String,
    /// The port there.
    pub(crate) port: u16,
    /// The address at which Onecopy connects.
    pub(crate) address: Address,
}

impl ReplicaAddress {
    /// A server that the configuration names. Clients and Onecopy reach it at the same address.
    pub(crate) fn of(replica: ReplicaId, server: &Replica) -> Self {
        let Replica { name, address } = server;
        let (host, port) = match address {
            Address::Unix { socket_dir, port } => (socket_dir.display().to_string(), *port),
            Address::Tcp { host, port, .. } => (host.clone(), *port),
        };
        Self { replica, name: name.clone(), host, port, address: address.clone() }
    }
}
