//! Why several nodes do not start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pgserver::{Ending, ServerError};

use crate::node::etcd_check::EtcdUnfit;

/// `onecopy up --nodes` did not start, or ended.
#[derive(Debug)]
pub(crate) enum NodesError {
    /// These flags need one node.
    Flags(Vec<&'static str>),
    /// The folder has another number of nodes.
    OtherNodes { folder: PathBuf, found: u16, asked: u16 },
    /// There are no ports above the first one for so many nodes.
    PortsEnd { port: u16, nodes: u16 },
    /// No block of ports for etcd and the links is free.
    NoPorts,
    /// Another program has a port that the folder's etcd or nodes have had from the beginning.
    PortTaken { port: u16, file: PathBuf, source: io::Error },
    /// The machine has no etcd.
    NoEtcd { searched: PathBuf },
    /// The program does not run, or is none of etcd.
    NotEtcd { program: PathBuf, reason: String },
    /// This etcd can lose data.
    Unfit(Box<EtcdUnfit>),
    /// A file or folder cannot be used.
    File { path: PathBuf, doing: &'static str, source: io::Error },
    /// The file that describes the nodes cannot be read.
    Damaged { path: PathBuf, reason: String },
    /// A program could not be run.
    NotRun { name: String, program: PathBuf, source: io::Error },
    /// A server does not start.
    Server(Box<ServerError>),
    /// A program ended before it served.
    Ended { name: String, log: PathBuf, ending: Ending },
    /// A program runs and does not serve.
    Silent { name: String, log: PathBuf },
}

impl fmt::Display for NodesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flags(flags) => write!(
                f,
                "{} cannot be used with several nodes: leave that out, or use --nodes 1 and a folder of its own (--data)",
                flags.join(", ")
            ),
            Self::OtherNodes { folder, found, asked } => write!(
                f,
                "the cluster in {} has --nodes {found}, not {asked}: leave --nodes out, or name another folder with --data",
                folder.display()
            ),
            Self::PortsEnd { port, nodes } => {
                write!(f, "{nodes} nodes need {nodes} ports from {port} on, and 65535 is the last one")
            }
            Self::NoPorts => f.write_str("no ports are free for etcd and for the links between the nodes"),
            Self::PortTaken { port, file, source } => write!(
                f,
                "port {port} of the loopback, which etcd and the nodes have kept since the start ({}), cannot be used: {source}; stop \
                 what listens there",
                file.display()
            ),
            Self::NoEtcd { searched } => write!(
                f,
                "several nodes need etcd, and there is none at {} nor on the PATH; run scripts/etcd, which builds one, or name one \
                 (3.5.14 or later, best the newest 3.6 or 3.7) with --etcd-bin",
                searched.display()
            ),
            Self::NotEtcd { program, reason } => {
                write!(f, "{} is not a program of etcd: {reason}", program.display())
            }
            Self::Unfit(error) => error.fmt(f),
            Self::File { path, doing, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            Self::Damaged { path, reason } => {
                write!(f, "{} is damaged: {reason}; put a copy of it back", path.display())
            }
            Self::NotRun { name, program, source } => {
                write!(f, "cannot run {} for {name}: {source}", program.display())
            }
            Self::Server(error) => error.fmt(f),
            Self::Ended { name, log, ending } => {
                write!(f, "{name} ended before it served: {ending}\nThe whole log is {}", log.display())
            }
            Self::Silent { name, log } => {
                write!(f, "{name} runs, but does not serve; its log is {}", log.display())
            }
        }
    }
}

impl std::error::Error for NodesError {}
