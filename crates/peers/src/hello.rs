//! The first frame of each direction: who is there, and whether both nodes have the same settings.
//!
//! The dialler speaks first. The acceptor always answers with its own hello, and with its refusal if there is one, so that both
//! logs name the difference. Length, magic and version stand at fixed places, for every version of the link.

use std::fmt;

use cluster::ids::Nonce;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::options::Options;

/// The version of the link. Nodes with different ones are not linked.
pub const LINK_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"1COPYLNK";
const FIXED_BYTES: usize = MAGIC.len() + 4;
/// Names of all nodes and a refusal fit.
const HELLO_BYTES_MAX: usize = 16 << 10;

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) cluster: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) run: Nonce,
    /// All names, sorted: they give the nodes their numbers.
    pub(crate) nodes: Vec<String>,
    /// Only the acceptor refuses.
    pub(crate) refusal: Option<String>,
}

/// Why a connection became no link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    Io(String),
    NoHello,
    Version(u32),
    Cluster { theirs: String, ours: String },
    From(String),
    To { wanted: String, ours: String },
    Nodes { theirs: Vec<String>, ours: Vec<String> },
    Certificate(String),
    ByPeer(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(reason) => f.write_str(reason),
            Self::NoHello => f.write_str("the other side is no node: it sent something else than a hello"),
            Self::Version(theirs) => write!(
                f,
                "the peer speaks version {theirs} of the link, this node version {LINK_VERSION}: run the same release"
            ),
            Self::Cluster { theirs, ours } => write!(
                f,
                "the peer belongs to cluster {theirs:?}, this node to {ours:?}: correct the addresses of the nodes"
            ),
            Self::From(name) => {
                write!(f, "node {name:?} may not dial here: list it, under the same name, at both nodes")
            }
            Self::To { wanted, ours } => write!(
                f,
                "the peer looks for node {wanted:?}, but this is {ours:?}: correct the addresses of the nodes"
            ),
            Self::Nodes { theirs, ours } => {
                write!(
                    f,
                    "the peer knows the nodes {theirs:?}, this node {ours:?}: list the same at all nodes"
                )
            }
            Self::Certificate(name) => write!(
                f,
                "the peer says it is node {name:?}, but its certificate does not: issue one with this DNS name, or \
                 correct the name"
            ),
            Self::ByPeer(reason) => write!(f, "the peer refuses: {reason:?}"),
        }
    }
}

impl Hello {
    pub(crate) fn new(options: &Options, to: &str, refusal: Option<String>) -> Self {
        Self {
            cluster: options.cluster.clone(),
            from: options.name.clone(),
            to: to.to_owned(),
            run: options.run,
            nodes: options.nodes(),
            refusal,
        }
    }

    /// Compares the settings of the peer with ours.
    pub(crate) fn check(&self, options: &Options) -> Result<(), Refusal> {
        if self.cluster != options.cluster {
            return Err(Refusal::Cluster { theirs: self.cluster.clone(), ours: options.cluster.clone() });
        }
        if self.to != options.name {
            return Err(Refusal::To { wanted: self.to.clone(), ours: options.name.clone() });
        }
        if !options.others.contains_key(&self.from) {
            return Err(Refusal::From(self.from.clone()));
        }
        let ours = options.nodes();
        if self.nodes != ours {
            return Err(Refusal::Nodes { theirs: self.nodes.clone(), ours });
        }
        Ok(())
    }

    pub(crate) async fn write<S: AsyncWrite + Unpin>(&self, stream: &mut S) -> Result<(), Refusal> {
        let bytes = self.frame(LINK_VERSION)?;
        stream.write_all(&bytes).await.map_err(|error| io(&error))?;
        stream.flush().await.map_err(|error| io(&error))
    }

    pub(crate) fn frame(&self, version: u32) -> Result<Vec<u8>, Refusal> {
        let body = postcard::to_allocvec(self).map_err(|error| Refusal::Io(error.to_string()))?;
        let length = u32::try_from(FIXED_BYTES + body.len()).map_err(|_| Refusal::NoHello)?;
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&version.to_be_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    pub(crate) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Self, Refusal> {
        let length = stream.read_u32().await.map_err(|error| io(&error))? as usize;
        if !(FIXED_BYTES..=HELLO_BYTES_MAX).contains(&length) {
            return Err(Refusal::NoHello);
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).await.map_err(|error| io(&error))?;
        let (magic, rest) = bytes.split_at(MAGIC.len());
        let Some((version, body)) = rest.split_first_chunk::<4>() else { return Err(Refusal::NoHello) };
        if magic != MAGIC {
            return Err(Refusal::NoHello);
        }
        match u32::from_be_bytes(*version) {
            LINK_VERSION => postcard::from_bytes(body).map_err(|_| Refusal::NoHello),
            other => Err(Refusal::Version(other)),
        }
    }
}

pub(crate) fn io(error: &std::io::Error) -> Refusal {
    Refusal::Io(error.to_string())
}
