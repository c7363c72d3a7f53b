//! The file in the data folder of `onecopy serve` that names the cluster and its members.
//!
//! The file is replaced whole, so a crash leaves the old one or the new one.

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use cluster::ids::ClusterId;
use serde::{Deserialize, Serialize};

/// The name of the file.
pub(super) const DESCRIPTION: &str = "served.json";
/// The file of this kind that `onecopy up` writes into its folders.
const OTHER_DESCRIPTION: &str = "onecopy.json";
const FORMAT: u32 = 1;

/// The contents of the file.
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

/// A member, as the folder remembers it.
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

/// The file of a cluster cannot be used.
#[derive(Debug)]
pub(crate) enum ClusterFileError {
    /// The folder belongs to servers of `onecopy up`.
    FolderOfUp { folder: PathBuf },
    /// The system refuses.
    Io { action: FileAction, path: PathBuf, source: std::io::Error },
    /// The file is not one of Onecopy's, or is damaged.
    Damaged { path: PathBuf, source: serde_json::Error },
    /// Another release wrote the file.
    OtherFormat { path: PathBuf, format: u32 },
    /// The id of the cluster is not valid.
    NoClusterId { text: String },
}

/// The operation on the file that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FileAction {
    /// Take other accounts' rights to it away.
    Close,
    Read,
    Write,
}

impl fmt::Display for ClusterFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FolderOfUp { folder } => {
                write!(f, "{} is a folder of `onecopy up`; name another one", folder.display())
            }
            Self::Io { action, path, source } => {
                let action = match action {
                    FileAction::Close => "closed to other accounts",
                    FileAction::Read => "read",
                    FileAction::Write => "written",
                };
                write!(f, "{} cannot be {action}: {source}", path.display())
            }
            Self::Damaged { path, source } => write!(f, "{} is damaged: {source}", path.display()),
            Self::OtherFormat { path, format } => {
                write!(f, "{} has format {format}; this version knows {FORMAT}", path.display())
            }
            Self::NoClusterId { text } => write!(f, "\"{text}\" is not the id of a cluster"),
        }
    }
}

impl std::error::Error for ClusterFileError {}

/// Reads the file of a data folder. Returns none if the folder has no cluster yet.
pub(super) fn read(folder: &Path) -> Result<Option<Membership>, ClusterFileError> {
    if folder.join(OTHER_DESCRIPTION).exists() {
        return Err(ClusterFileError::FolderOfUp { folder: folder.to_owned() });
    }
    let path = folder.join(DESCRIPTION);
    let failed = |action: FileAction| {
        let path = path.clone();
        move |source| ClusterFileError::Io { action, path, source }
    };
    owner_only::close(&path).map_err(failed(FileAction::Close))?;
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(FileAction::Read)(error)),
    };
    let membership: Membership = serde_json::from_str(&text)
        .map_err(|source| ClusterFileError::Damaged { path: path.clone(), source })?;
    if membership.format != FORMAT {
        return Err(ClusterFileError::OtherFormat { path, format: membership.format });
    }
    membership.id()?;
    Ok(Some(membership))
}

/// Writes the file as a whole or not at all.
pub(crate) fn write(folder: &Path, membership: &Membership) -> Result<(), ClusterFileError> {
    let (path, new): (PathBuf, PathBuf) = (folder.join(DESCRIPTION), folder.join("served.json.new"));
    let written = || -> std::io::Result<()> {
        owner_only::make_folder(folder)?;
        let mut file = owner_only::options().write(true).create(true).truncate(true).open(&new)?;
        file.write_all(serde_json::to_string_pretty(membership)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(|source| ClusterFileError::Io { action: FileAction::Write, path, source })
}
