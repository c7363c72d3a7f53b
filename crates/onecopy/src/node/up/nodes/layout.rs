//! What several nodes have in the data folder, beside the servers.
//!
//! ```text
//! DIR/nodes.json            the number of nodes, and the first of their ports
//! DIR/nodes/a/onecopy.toml  the configuration of node a, written anew at every start
//! DIR/nodes/a/data          its data folder: its copy of the log
//! DIR/nodes/a.log           its output
//! DIR/etcd/1                the data of member 1 of etcd
//! DIR/etcd/1.log            its output
//! ```
//!
//! Members of etcd know each other by their ports, so a folder keeps its ports. They follow each other: links, then what clients of etcd
//! use, then what its members use.

use std::fmt::Write;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use cluster::ids::ClusterId;
use pgserver::{LOG_FOLDER, NODE_DATA_FOLDER, NODES_FOLDER, Server};
use serde::{Deserialize, Serialize};

use super::error::NodesError;
use crate::cli::{NODES_MAX, Up};
use crate::config::runtime::{DEFAULT_SESSIONS_MAX, POOLED_SESSIONS_MAX};
use crate::pool::POOL_MODE_TRANSACTION;

const DESCRIPTION: &str = "nodes.json";
const ETCD_FOLDER: &str = "etcd";
const CONFIGURATION: &str = "onecopy.toml";
/// Above the ports that servers get, below those that systems use for outgoing connections.
const FIRST_PORT: u16 = 28_500;
/// Ports of a folder: links, clients and members for each node.
const BLOCK: u16 = 3 * NODES_MAX;
/// How many blocks there are.
const BLOCKS: u16 = 200;

/// The nodes of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Layout {
    #[serde(skip)]
    pub(super) folder: PathBuf,
    pub(super) nodes: u16,
    first_port: u16,
}

impl Layout {
    /// The nodes of a folder, if it has several.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, NodesError> {
        let path = folder.join(DESCRIPTION);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(NodesError::File { path, doing: "read", source }),
        };
        let damaged = |reason: String| NodesError::Damaged { path: path.clone(), reason };
        let layout: Self = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if !(2..=NODES_MAX).contains(&layout.nodes) || layout.first_port.checked_add(BLOCK).is_none() {
            return Err(damaged(format!("{} nodes from port {}", layout.nodes, layout.first_port)));
        }
        Ok(Some(Self { folder: folder.to_owned(), ..layout }))
    }

    /// The nodes of this folder, which gets so many if it has none yet.
    pub(super) fn of_folder(folder: &Path, cluster: ClusterId, nodes: u16) -> Result<Self, NodesError> {
        if let Some(found) = Self::read(folder)? {
            return if found.nodes == nodes { Ok(found) } else { Err(found.not(nodes)) };
        }
        if folder.join(LOG_FOLDER).exists() {
            return Err(NodesError::OtherNodes { folder: folder.to_owned(), found: 1, asked: nodes });
        }
        let start = (cluster.0 % u128::from(BLOCKS)) as u16;
        let block = |step: u16| FIRST_PORT + (start + step) % BLOCKS * BLOCK;
        let candidates =
            (0..BLOCKS).map(|step| Self { folder: folder.to_owned(), nodes, first_port: block(step) });
        let is_free = |layout: &Self| layout.ports().all(|port| claim(port).is_ok());
        let layout = candidates.into_iter().find(is_free).ok_or(NodesError::NoPorts)?;
        layout.write()?;
        Ok(layout)
    }

    /// The error for a folder with another number of nodes.
    pub(super) fn not(&self, asked: u16) -> NodesError {
        NodesError::OtherNodes { folder: self.folder.clone(), found: self.nodes, asked }
    }

    fn write(&self) -> Result<(), NodesError> {
        let path = self.folder.join(DESCRIPTION);
        let new = path.with_extension("json.new");
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other);
        let written = text.and_then(|text| {
            std::fs::write(&new, text + "\n")?;
            std::fs::File::open(&new)?.sync_all()?;
            std::fs::rename(&new, &path)
        });
        written.map_err(|source| NodesError::File { path, doing: "write", source })
    }

    /// Checks that its ports are free.
    pub(super) fn check_ports(&self) -> Result<(), NodesError> {
        self.ports().try_for_each(|port| {
            let file = self.folder.join(DESCRIPTION);
            claim(port).map_err(|source| NodesError::PortTaken { port, file, source })
        })
    }

    fn ports(&self) -> impl Iterator<Item = u16> {
        self.first_port..self.first_port + 3 * self.nodes
    }

    /// The port on which node `n` listens for the others.
    fn link_port(&self, n: u16) -> u16 {
        self.first_port + n
    }

    /// The port of member `n` for clients of etcd.
    pub(super) fn client_port(&self, n: u16) -> u16 {
        self.first_port + self.nodes + n
    }

    fn peer_port(&self, n: u16) -> u16 {
        self.first_port + 2 * self.nodes + n
    }

    pub(super) fn nodes_folder(&self) -> PathBuf {
        self.folder.join(NODES_FOLDER)
    }

    pub(super) fn etcd_folder(&self) -> PathBuf {
        self.folder.join(ETCD_FOLDER)
    }

    pub(super) fn configuration(&self, n: u16) -> PathBuf {
        self.node_folder(n).join(CONFIGURATION)
    }

    pub(super) fn node_folder(&self, n: u16) -> PathBuf {
        self.nodes_folder().join(node_name(n))
    }

    /// The arguments of member `n` that no other process has.
    pub(super) fn own_member_arguments(&self, n: u16) -> [std::ffi::OsString; 2] {
        ["--data-dir".into(), self.etcd_folder().join((n + 1).to_string()).into()]
    }

    /// Its further arguments.
    pub(super) fn member_arguments(&self, n: u16, has_catchup_entries: bool) -> Vec<String> {
        let client = url(self.client_port(n));
        let peer = url(self.peer_port(n));
        let all: Vec<String> =
            (0..self.nodes).map(|n| format!("{}={}", member_name(n), url(self.peer_port(n)))).collect();
        let mut arguments: Vec<String> = [
            ("--name", member_name(n).as_str()),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &all.join(",")),
            ("--initial-cluster-state", "new"),
            ("--heartbeat-interval", "50"),
            ("--election-timeout", "500"),
            ("--quota-backend-bytes", "8589934592"),
            ("--auto-compaction-retention", "0"),
            ("--snapshot-count", "1000"),
            ("--log-level", "warn"),
        ]
        .map(|(option, value)| format!("{option}={value}"))
        .into();
        if has_catchup_entries {
            arguments.push("--snapshot-catchup-entries=500".to_owned());
        }
        arguments
    }

    /// Writes the configuration of node `n` over these servers.
    pub(super) fn write_configuration(&self, n: u16, up: &Up, servers: &[Server]) -> Result<(), NodesError> {
        let path = self.configuration(n);
        let written = std::fs::write(&path, self.configuration_text(n, up, servers));
        written.map_err(|source| NodesError::File { path, doing: "write", source })
    }

    fn configuration_text(&self, n: u16, up: &Up, servers: &[Server]) -> String {
        let etcd: Vec<String> = (0..self.nodes).map(|n| url(self.client_port(n))).collect();
        let links: Vec<String> =
            (0..self.nodes).map(|n| format!("{}=127.0.0.1:{}", node_name(n), self.link_port(n))).collect();
        let data = toml::Value::from(self.node_folder(n).join(NODE_DATA_FOLDER).display().to_string());
        let mut text = format!(
            "# Written by `onecopy up` at every start: changes here do not last.\n\
             listen = \"127.0.0.1:{}\"\nhba = \"host all all 127.0.0.1/32 trust\"\nadmin_users = \"postgres\"\n\
             data = {data}\nlog = \"etcd\"\netcd = {etcd:?}\nnode = {:?}\nnodes = {links:?}\n",
            up.port + n,
            node_name(n)
        );
        // Writing to a text cannot fail.
        if let Some(port) = up.http_port {
            let _ = writeln!(text, "http_listen = \"127.0.0.1:{}\"", port + n);
        }
        text.push_str(&settings_text(up, self.nodes));
        for server in servers {
            let url = format!("postgresql://{}:{}", server.host, server.port);
            let _ = write!(text, "[[replica]]\nname = {:?}\nurl = {url:?}\n", server.name);
        }
        text
    }
}

/// The settings that flags of `onecopy up` change, as lines of a configuration.
fn settings_text(up: &Up, nodes: u16) -> String {
    let is_shared = up.pool.mode == POOL_MODE_TRANSACTION;
    // The servers have connections for the sessions of all nodes together.
    let sessions_max = if is_shared { POOLED_SESSIONS_MAX } else { DEFAULT_SESSIONS_MAX / u64::from(nodes) };
    format!(
        "transaction_size_max = \"{}MB\"\nreader_patience = \"{}s\"\nlog_size_max = \"{}MB\"\n\
         parked_log_size_max = \"{}MB\"\nchain_patience = \"{}ms\"\nstop_patience = \"{}s\"\ndrain_patience = \"{}ms\"\nhealth_deadline = \"{}ms\"\n\
         takeover_after = \"{}ms\"\nlogins_max = {}\nlogins_per_address_max = {}\nsessions_max = {sessions_max}\n\
         protocol = {:?}\nsee = {:?}\nsequences = {:?}\npool_mode = {:?}\npool_size = {}\npool_wait = \"{}ms\"\n",
        up.limits.transaction_max_mb,
        up.limits.reader_patience,
        up.limits.log_max_mb,
        up.limits.parked_log_max_mb,
        up.protocol.chain_patience_ms,
        up.patience.stop_patience,
        up.patience.drain_patience_ms,
        up.patience.health_deadline_ms,
        up.patience.takeover_after_ms,
        up.logins_max,
        up.logins_max,
        up.protocol.name.name(),
        up.protocol.see,
        up.sequences,
        up.pool.mode,
        up.pool.size,
        up.pool.wait_ms,
    )
}

/// The name of a node: a, b, and so on.
pub(super) fn node_name(n: u16) -> String {
    (0..n).fold('a', |name, _| char::from_u32(u32::from(name) + 1).unwrap_or(name)).to_string()
}

fn member_name(n: u16) -> String {
    format!("etcd-{}", n + 1)
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn claim(port: u16) -> io::Result<()> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_number_of_nodes_and_its_ports() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Layout::read(folder.path()).unwrap(), None);
        let made = Layout::of_folder(folder.path(), ClusterId(7), 3).unwrap();
        assert_eq!(Layout::of_folder(folder.path(), ClusterId(7), 3).unwrap(), made);
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, made.client_port(1))).unwrap();
        assert_eq!(Layout::of_folder(folder.path(), ClusterId(7), 3).unwrap(), made);
        let error = made.check_ports().unwrap_err().to_string();
        assert!(error.contains(&made.client_port(1).to_string()) && error.contains("nodes.json"), "{error}");
        let error = Layout::of_folder(folder.path(), ClusterId(7), 5).unwrap_err().to_string();
        assert!(error.contains("--nodes 3, not 5"), "{error}");
        std::fs::write(folder.path().join(DESCRIPTION), "{\"nodes\":1,\"first_port\":1}").unwrap();
        assert!(Layout::read(folder.path()).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn a_folder_of_one_node_does_not_get_several() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(LOG_FOLDER)).unwrap();
        let error = Layout::of_folder(folder.path(), ClusterId(7), 3).unwrap_err().to_string();
        assert!(error.contains("--nodes 1, not 3"), "{error}");
    }

    #[test]
    fn the_ports_of_all_folders_are_apart_from_those_of_the_system() {
        assert!(u32::from(FIRST_PORT) + u32::from(BLOCK) * u32::from(BLOCKS) <= 32_768);
        assert_eq!([0, 1, 6].map(node_name), ["a", "b", "g"]);
    }
}
