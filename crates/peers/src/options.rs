//! The settings of one node's links, and their check.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use cluster::ids::{NodeId, Nonce};

use crate::tls::{TlsFileError, TlsFiles};

/// The most nodes of a cluster.
const NODES_MAX: usize = 64;
/// The longest name of a node or cluster, as of a DNS label.
const NAME_BYTES_MAX: usize = 63;

/// The settings of one node's links.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this node: lower-case letters, digits and `-`, with a letter first.
    pub name: String,
    /// The addresses (`host:port`) of all other nodes by their names.
    pub others: BTreeMap<String, String>,
    /// The address to listen at.
    pub listen: String,
    /// The id of the cluster.
    pub cluster: String,
    /// A random number of this run.
    pub run: Nonce,
    /// The files for mutual TLS. Without them only loopback addresses are allowed.
    pub tls: Option<TlsFiles>,
}

/// The links cannot be set up. The operator has to correct it.
#[derive(Debug)]
pub enum PeersError {
    /// A name cannot be used.
    Name(String),
    /// This node is among the others.
    OwnName(String),
    /// Too many nodes.
    TooManyNodes(usize),
    /// An address is not `host:port`.
    Address(String),
    /// An address of the network, but no TLS.
    NeedsTls(String),
    /// A file for TLS cannot be used.
    Tls(TlsFileError),
    /// The address to listen at cannot be used.
    Listen {
        /// The address.
        address: String,
        /// The answer of the system.
        source: std::io::Error,
    },
}

impl fmt::Display for PeersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "the name {name:?} cannot be used: take up to {NAME_BYTES_MAX} of a-z, 0-9 and -, a letter first"
            ),
            Self::OwnName(name) => write!(f, "node \"{name}\" is listed as another node: leave it out"),
            Self::TooManyNodes(found) => write!(f, "{found} nodes: at most {NODES_MAX} are possible"),
            Self::Address(address) => write!(f, "{address:?} is no address of the form host:port"),
            Self::NeedsTls(address) => write!(
                f,
                "{address} is an address of the network, which needs TLS: set the files with the authority, certificate \
                 and key of this node, or use a loopback address"
            ),
            Self::Tls(error) => error.fmt(f),
            Self::Listen { address, source } => write!(f, "cannot listen at {address}: {source}"),
        }
    }
}

impl std::error::Error for PeersError {}

impl Options {
    /// The names of all nodes, sorted. The place of a name is the number of its node.
    pub(crate) fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<String> = self.others.keys().cloned().collect();
        nodes.push(self.name.clone());
        nodes.sort();
        nodes
    }

    pub(crate) fn check(&self) -> Result<(), PeersError> {
        if self.others.contains_key(&self.name) {
            return Err(PeersError::OwnName(self.name.clone()));
        }
        if self.others.len() >= NODES_MAX {
            return Err(PeersError::TooManyNodes(self.others.len() + 1));
        }
        if let Some(name) = self.nodes().into_iter().find(|name| !is_name(name)) {
            return Err(PeersError::Name(name));
        }
        if self.cluster.len() > NAME_BYTES_MAX {
            return Err(PeersError::Name(self.cluster.clone()));
        }
        for address in self.others.values().chain([&self.listen]) {
            let host = host(address).ok_or_else(|| PeersError::Address(address.clone()))?;
            if self.tls.is_none() && !is_loopback(host) {
                return Err(PeersError::NeedsTls(address.clone()));
            }
        }
        Ok(())
    }
}

/// The number of a node.
pub(crate) fn number(nodes: &[String], name: &str) -> Option<NodeId> {
    let place = nodes.iter().position(|node| node == name)?;
    u16::try_from(place).ok().map(NodeId)
}

/// A name without dots: no wildcard of a certificate can match it.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(allowed)
}

fn host(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then_some(host)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}
