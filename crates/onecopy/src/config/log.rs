//! Where the log is kept: the settings that go together, checked as a whole.
//!
//! ```toml
//! log = "etcd"
//! etcd = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"]
//! node = "a"
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use cluster::protocols::middle_r::MIDDLE_R;
use cluster::protocols::onecopy::ONECOPY;
use commitlog::{ClientIdentity, TlsFiles};

use super::kinds::Value;
use super::protocol::Propagation;
use super::{Config, NAME_BYTES_MAX};

/// Where the log is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogPlace {
    /// In the data folder.
    Files,
    /// On etcd, with a copy in the data folder.
    Etcd(Box<EtcdPlace>),
}

/// An etcd, and the part of it that belongs to a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdPlace {
    /// The addresses of its members.
    pub(crate) urls: Vec<String>,
    pub(crate) tls: TlsFiles,
    /// The name of this node.
    pub(crate) node: String,
    pub(crate) cluster_name: String,
    /// How long etcd may be out of reach before new commits are refused.
    pub(crate) patience: Duration,
    /// The other nodes, if there are any.
    pub(crate) peers: Option<PeersPlace>,
}

/// The nodes of a cluster, as one of them sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeersPlace {
    /// Where the others reach this node.
    pub(crate) address: String,
    /// The addresses of the others, by their names.
    pub(crate) others: BTreeMap<String, String>,
    /// The address to listen on.
    pub(crate) listen: String,
    /// Without files the links are plain text, which only the loopback may carry.
    pub(crate) tls: Option<peers::TlsFiles>,
}

/// The settings of the log do not go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogPlaceError {
    /// The log is to be on etcd, and no member is named.
    NoEtcd,
    /// The log is to be on etcd, and the node has no name.
    NoNode,
    /// A name has other signs than names have.
    NoName { setting: &'static str, text: String },
    /// Members of etcd are named, and the log is in files.
    NotUsed,
    /// Several nodes are named, and the log is in files.
    NodesNeedEtcd,
    /// This node is not among the nodes.
    NotAmongNodes { node: String },
    /// A node is named twice.
    TwiceAmongNodes { node: String },
    /// Some of the three files for links are named, and not all.
    LinkFiles,
    /// Something that several nodes cannot have yet.
    NotWithNodes { what: &'static str },
    /// A certificate is named without its key, or a key without its certificate.
    HalfOfAPair,
    /// The protocol ships statements.
    Protocol,
}

impl fmt::Display for LogPlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEtcd => f.write_str("log = \"etcd\" needs the members of etcd: name them with \"etcd\""),
            Self::NoNode => f.write_str("log = \"etcd\" needs a name for this node: give it one with \"node\""),
            Self::NoName { setting, text } => write!(
                f,
                "{setting} = \"{text}\" is no name; use up to {NAME_BYTES_MAX} letters, digits, dots and dashes"
            ),
            Self::NotUsed => {
                f.write_str("\"etcd\" is set, and the log is in files: add log = \"etcd\", or leave \"etcd\" out")
            }
            Self::NodesNeedEtcd => {
                f.write_str("\"nodes\" needs a log that all nodes reach: add log = \"etcd\", or leave \"nodes\" out")
            }
            Self::NotAmongNodes { node } => {
                write!(f, "\"nodes\" lists all nodes, and node = \"{node}\" is not among them: add it with its address")
            }
            Self::TwiceAmongNodes { node } => write!(f, "\"nodes\" names {node} twice"),
            Self::LinkFiles => f.write_str(
                "link_ca_file, link_certificate_file and link_key_file go together: name all three, or none",
            ),
            Self::NotWithNodes { what } => {
                write!(f, "{what} is not possible with several nodes yet: leave \"nodes\" out, or change it")
            }
            Self::HalfOfAPair => {
                f.write_str("etcd_certificate_file and etcd_key_file go together: name both")
            }
            Self::Protocol => f.write_str(
                "log = \"etcd\" needs a protocol that propagates rows, such as onecopy, or several \"nodes\" and one that ships statements by numbers, such as conflict-aware; use log = \"file\", or change protocol",
            ),
        }
    }
}

impl std::error::Error for LogPlaceError {}

impl Config {
    /// Where the log is kept, for a node with this protocol.
    pub(crate) fn log_place(&self, propagation: &Propagation) -> Result<LogPlace, LogPlaceError> {
        let Value::Urls(urls) = self.value("etcd") else { unreachable!("etcd is a list of URLs") };
        let Value::Nodes(nodes) = self.value("nodes") else { unreachable!("nodes is a list of nodes") };
        if self.text("log") == "file" && !nodes.is_empty() {
            return Err(LogPlaceError::NodesNeedEtcd);
        }
        if self.text("log") == "file" {
            return if urls.is_empty() { Ok(LogPlace::Files) } else { Err(LogPlaceError::NotUsed) };
        }
        if urls.is_empty() {
            return Err(LogPlaceError::NoEtcd);
        }
        if self.text("node").is_empty() {
            return Err(LogPlaceError::NoNode);
        }
        for setting in ["node", "cluster_name"] {
            let text = self.text(setting);
            let is_sign = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if text.len() > NAME_BYTES_MAX || !text.chars().all(is_sign) {
                return Err(LogPlaceError::NoName { setting, text: text.to_owned() });
            }
        }
        let is_served = match propagation {
            Propagation::Rows(_) => true,
            // A node that is alone has nobody to take over from it.
            Propagation::Statements(_) => !nodes.is_empty(),
            Propagation::CJdbc(_) => false,
        };
        if !is_served {
            return Err(LogPlaceError::Protocol);
        }
        let file = |name| Some(self.path(name)).filter(|path: &PathBuf| !path.as_os_str().is_empty());
        let identity = match (file("etcd_certificate_file"), file("etcd_key_file")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
            _ => return Err(LogPlaceError::HalfOfAPair),
        };
        Ok(LogPlace::Etcd(Box::new(EtcdPlace {
            urls: urls.clone(),
            tls: TlsFiles { authorities: file("etcd_ca_file"), identity },
            node: self.text("node").to_owned(),
            cluster_name: self.text("cluster_name").to_owned(),
            patience: self.duration("log_patience"),
            peers: if nodes.is_empty() { None } else { Some(self.peers_place(nodes, propagation)?) },
        })))
    }

    /// The other nodes, and how they are reached.
    fn peers_place(
        &self,
        nodes: &[(String, String)],
        propagation: &Propagation,
    ) -> Result<PeersPlace, LogPlaceError> {
        let is_served = match propagation {
            Propagation::Rows(choices) => [ONECOPY.name, MIDDLE_R.name].contains(&choices.name),
            Propagation::Statements(_) => true,
            Propagation::CJdbc(_) => false,
        };
        if !is_served {
            return Err(LogPlaceError::NotWithNodes { what: "this protocol" });
        }
        if self.number("result_cache") > 0 {
            return Err(LogPlaceError::NotWithNodes { what: "a result cache" });
        }
        let own = self.text("node");
        let mut others = BTreeMap::new();
        for (name, address) in nodes {
            if others.insert(name.clone(), address.clone()).is_some() {
                return Err(LogPlaceError::TwiceAmongNodes { node: name.clone() });
            }
        }
        let address =
            others.remove(own).ok_or_else(|| LogPlaceError::NotAmongNodes { node: own.to_owned() })?;
        let listen = Some(self.text("link_listen")).filter(|text| !text.is_empty()).unwrap_or(&address);
        let files = ["link_ca_file", "link_certificate_file", "link_key_file"].map(|name| self.path(name));
        let tls = match files.clone().map(|path| path.as_os_str().is_empty()) {
            [true, true, true] => None,
            [false, false, false] => {
                let [authority, certificate, key] = files;
                Some(peers::TlsFiles { authority, certificate, key })
            }
            _ => return Err(LogPlaceError::LinkFiles),
        };
        Ok(PeersPlace { listen: listen.to_owned(), address, others, tls })
    }
}
