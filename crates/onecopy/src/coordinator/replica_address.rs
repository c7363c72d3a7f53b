//! The name of a replica, and the addresses at which its server listens.

use cluster::ids::ReplicaId;
use serde::{Deserialize, Serialize};

use crate::backend::{Address, Served};
use crate::config::{AddressError, Replica, address_of};

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

/// A member, as its leader names it to other nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MemberSeat {
    /// Its number.
    pub(crate) replica: ReplicaId,
    /// Its name.
    pub(crate) name: String,
    host: String,
    port: u16,
    /// As in the configuration; files in it are those of each node.
    url: String,
}

impl MemberSeat {
    /// How other nodes reach a replica.
    pub(crate) fn of(at: &ReplicaAddress) -> Self {
        let ReplicaAddress { replica, name, host, port, address } = at;
        Self { replica: *replica, name: name.clone(), host: host.clone(), port: *port, url: address.url() }
    }

    /// Reads the files that the URL names.
    pub(crate) fn address(&self, served: &Served) -> Result<ReplicaAddress, AddressError> {
        let address = address_of(&self.url, &served.database, &served.superuser)?;
        let Self { replica, name, host, port, .. } = self.clone();
        Ok(ReplicaAddress { replica, name, host, port, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_node_reaches_a_member_at_the_same_address() {
        let served = Served::of_new_servers();
        for url in
            ["postgresql://%2Frun%2Fpost%20gres:5433", "postgresql://[::1]:5432", "postgresql://db1:5432"]
        {
            let address = address_of(url, &served.database, &served.superuser).unwrap();
            let replica = Replica { name: "one".to_owned(), address };
            let at = ReplicaAddress::of(ReplicaId(3), &replica);
            let told = MemberSeat::of(&at).address(&served).unwrap();
            assert_eq!((told.replica, told.name, told.address), (at.replica, at.name, at.address), "{url}");
        }
    }

    #[test]
    fn encryption_goes_with_the_address() {
        let served = Served::of_new_servers();
        let url = "postgresql://db1:5432?sslmode=require";
        let address = address_of(url, &served.database, &served.superuser).unwrap();
        let at = ReplicaAddress::of(ReplicaId(0), &Replica { name: "one".to_owned(), address });
        assert_eq!(MemberSeat::of(&at).url, url);
    }
}
