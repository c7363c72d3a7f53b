//! The entry of the register that names the cluster of `onecopy serve` and its members: the file `served.json` of the data folder, or a
//! key of etcd.
//!
//! It is replaced whole, so a crash leaves the old one or the new one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cluster::ids::ClusterId;
use commitlog::{Entry, FileRegister, Register, RegisterError};
use serde::{Deserialize, Serialize};

use crate::coordinator::register::TermRegister;

/// The file of this kind that `onecopy up` writes into its folders.
const OTHER_DESCRIPTION: &str = "onecopy.json";
const FORMAT: u32 = 1;

/// The contents of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    format: u32,
    cluster: String,
    /// Names of the replicas that were adopted, in the order of their numbers.
    replicas: Vec<String>,
    is_adopted: bool,
    /// The members, if they are no longer those that were adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    members: Option<Vec<Member>>,
    /// Names that the configuration may still have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<String>,
}

/// A member, as the register remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its number.
    pub(crate) number: u16,
    /// Its name.
    pub(crate) name: String,
    /// Its address, or none if only the configuration has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
}

impl Membership {
    /// The cluster.
    pub(crate) fn id(&self) -> Result<ClusterId, ClusterFileError> {
        let id = u128::from_str_radix(&self.cluster.replace('-', ""), 16);
        id.map(ClusterId).map_err(|_| ClusterFileError::NoClusterId { text: self.cluster.clone() })
    }

    /// Makes a cluster of these servers, which are not adopted yet.
    pub(super) fn begin(cluster: String, replicas: Vec<String>) -> Self {
        Self { format: FORMAT, cluster, replicas, is_adopted: false, members: None, dropped: Vec::new() }
    }

    /// The same cluster, adopted.
    pub(super) fn adopted(&self) -> Self {
        Self { is_adopted: true, ..self.clone() }
    }

    /// The id of the cluster as the servers have it.
    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Whether the replica was dropped while a node ran, so that the configuration may still name it.
    pub(super) fn was_dropped(&self, name: &str) -> bool {
        self.dropped.iter().any(|dropped| dropped == name)
    }

    /// Whether everything was installed and checked.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted
    }

    fn encode(&self) -> Result<Vec<u8>, ClusterFileError> {
        let written = serde_json::to_string_pretty(self);
        let damaged = |source| ClusterFileError::Damaged { location: Entry::Members.to_string(), source };
        Ok((written.map_err(damaged)? + "\n").into_bytes())
    }

    /// The members, in the order of their numbers.
    pub(crate) fn members(&self) -> Vec<Member> {
        let adopted = |(number, name): (u16, &String)| Member { number, name: name.clone(), url: None };
        self.members.clone().unwrap_or_else(|| (0..).zip(&self.replicas).map(adopted).collect())
    }

    /// The same cluster with one member more.
    pub(crate) fn with(&self, member: Member) -> Self {
        let dropped = self.dropped.iter().filter(|name| **name != member.name).cloned().collect();
        let mut members = self.members();
        members.push(member);
        members.sort_by_key(|member| member.number);
        Self { members: Some(members), dropped, is_adopted: true, ..self.clone() }
    }

    /// The same cluster with one member less.
    pub(crate) fn without(&self, name: &str) -> Self {
        let members = self.members().into_iter().filter(|member| member.name != name).collect();
        let mut dropped = self.dropped.clone();
        dropped.push(name.to_owned());
        Self { members: Some(members), dropped, is_adopted: true, ..self.clone() }
    }
}

/// The list of members cannot be used.
#[derive(Debug)]
pub(crate) enum ClusterFileError {
    /// The folder belongs to servers of `onecopy up`.
    FolderOfUp { folder: PathBuf },
    /// It cannot be read or written.
    Register(RegisterError),
    /// It is not one of Onecopy's, or is damaged.
    Damaged { location: String, source: serde_json::Error },
    /// Another release wrote it.
    OtherFormat { location: String, format: u32 },
    /// The id of the cluster is not valid.
    NoClusterId { text: String },
}

impl fmt::Display for ClusterFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FolderOfUp { folder } => {
                write!(f, "{} is a folder of `onecopy up`; name another one", folder.display())
            }
            Self::Register(error) => error.fmt(f),
            Self::Damaged { location, source } => write!(f, "{location} is damaged: {source}"),
            Self::OtherFormat { location, format } => {
                write!(f, "{location} has format {format}; this version knows {FORMAT}")
            }
            Self::NoClusterId { text } => write!(f, "\"{text}\" is not the id of a cluster"),
        }
    }
}

impl std::error::Error for ClusterFileError {}

impl From<RegisterError> for ClusterFileError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

/// A folder of `onecopy up` has other servers.
pub(super) fn refuse_folder_of_up(folder: &Path) -> Result<(), ClusterFileError> {
    let is_of_up = folder.join(OTHER_DESCRIPTION).exists();
    if is_of_up { Err(ClusterFileError::FolderOfUp { folder: folder.to_owned() }) } else { Ok(()) }
}

/// Reads the file of a data folder. Returns none if the folder has no cluster yet.
pub(crate) fn read(folder: &Path) -> Result<Option<Membership>, ClusterFileError> {
    let files = FileRegister::in_folder(folder);
    let found = files.read(&Entry::Members)?;
    found.map(|value| decode(&value, || files.location(&Entry::Members))).transpose()
}

/// Reads an entry that was found there.
pub(super) fn decode(value: &[u8], location: impl Fn() -> String) -> Result<Membership, ClusterFileError> {
    let membership: Membership = serde_json::from_slice(value)
        .map_err(|source| ClusterFileError::Damaged { location: location(), source })?;
    if membership.format != FORMAT {
        return Err(ClusterFileError::OtherFormat { location: location(), format: membership.format });
    }
    membership.id()?;
    Ok(membership)
}

/// Writes the file of a data folder as a whole or not at all.
pub(super) fn write(folder: &Path, membership: &Membership) -> Result<(), ClusterFileError> {
    let files = FileRegister::in_folder(folder);
    Ok(files.change(&Entry::Members, Some(&membership.encode()?))?)
}

/// Writes the entry as a whole or not at all.
pub(crate) async fn keep(
    register: &Arc<TermRegister>,
    membership: &Membership,
) -> Result<(), ClusterFileError> {
    Ok(register.change(Entry::Members, Some(membership.encode()?)).await?)
}
