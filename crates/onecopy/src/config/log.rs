//! Where the log is kept: the settings that go together, checked as a whole.
//!
//! ```toml
//! log = "etcd"
//! etcd = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"]
//! node = "a"
//! ```

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

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
    Etcd(EtcdPlace),
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
            Self::HalfOfAPair => {
                f.write_str("etcd_certificate_file and etcd_key_file go together: name both")
            }
            Self::Protocol => f.write_str(
                "log = \"etcd\" needs a protocol that propagates rows, such as onecopy; use log = \"file\", or change protocol",
            ),
        }
    }
}

impl std::error::Error for LogPlaceError {}

impl Config {
    /// Where the log is kept, for a node with this protocol.
    pub(crate) fn log_place(&self, propagation: &Propagation) -> Result<LogPlace, LogPlaceError> {
        let Value::Urls(urls) = self.value("etcd") else { unreachable!("etcd is a list of URLs") };
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
        if !matches!(propagation, Propagation::Rows(_)) {
            return Err(LogPlaceError::Protocol);
        }
        let file = |name| Some(self.path(name)).filter(|path: &PathBuf| !path.as_os_str().is_empty());
        let identity = match (file("etcd_certificate_file"), file("etcd_key_file")) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some(ClientIdentity { certificate, key }),
            _ => return Err(LogPlaceError::HalfOfAPair),
        };
        Ok(LogPlace::Etcd(EtcdPlace {
            urls: urls.clone(),
            tls: TlsFiles { authorities: file("etcd_ca_file"), identity },
            node: self.text("node").to_owned(),
            cluster_name: self.text("cluster_name").to_owned(),
            patience: self.duration("log_patience"),
        }))
    }
}
