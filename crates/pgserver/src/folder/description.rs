//! The file that describes a data folder: its format, the cluster, the release of PostgreSQL, the members.
//!
//! It is replaced as a whole, so that a crash leaves the old one or the new one. Only the node's account may read it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use cluster::ids::ClusterId;
use serde::{Deserialize, Serialize};

use super::{FolderError, rename, sync};
use crate::MAX_REPLICAS;

/// The layout that the parent module describes.
const FORMAT: u32 = 1;
/// The same, with members that are not numbered from 1 without a gap.
const FORMAT_WITH_MEMBERS: u32 = 2;
/// The name of the file.
pub(super) const DESCRIPTION: &str = "onecopy.json";
/// Longer than any description that we write.
const DESCRIPTION_LIMIT_BYTES: u64 = 64 * 1024;

/// The cluster of a data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Random at birth.
    pub(crate) id: ClusterId,
    /// The release of PostgreSQL that made the servers' files.
    pub(crate) postgres: u16,
    /// The numbers of its servers, in order.
    pub(crate) numbers: Vec<u16>,
}

#[derive(Serialize, Deserialize)]
struct Format {
    format: u32,
}

#[derive(Serialize, Deserialize)]
struct Description {
    format: u32,
    cluster: String,
    postgres: u16,
    replicas: u16,
    /// The numbers of the servers; without it they are numbered from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    members: Option<Vec<u16>>,
}

impl Description {
    fn of(cluster: &Cluster) -> Self {
        let replicas = u16::try_from(cluster.numbers.len()).expect("there are no more than MAX_REPLICAS");
        let is_dense = cluster.numbers.iter().copied().eq(1..=replicas);
        Self {
            format: if is_dense { FORMAT } else { FORMAT_WITH_MEMBERS },
            cluster: cluster.id.to_string(),
            postgres: cluster.postgres,
            replicas,
            members: (!is_dense).then(|| cluster.numbers.clone()),
        }
    }

    /// The servers' numbers in order; `None` if they contradict `replicas`, or are more than [`MAX_REPLICAS`].
    fn numbers(&self) -> Option<Vec<u16>> {
        let numbers = self.members.clone().unwrap_or_else(|| (1..=self.replicas).collect());
        let is_right = (1..=MAX_REPLICAS).contains(&self.replicas)
            && numbers.len() == usize::from(self.replicas)
            && numbers.is_sorted_by(|one, next| one < next)
            && numbers.iter().all(|number| (1..=MAX_REPLICAS).contains(number));
        is_right.then_some(numbers)
    }
}

/// Reads the description of a folder; `None` if it has none.
pub(super) fn read(folder: &Path) -> Result<Option<Cluster>, FolderError> {
    let path = folder.join(DESCRIPTION);
    owner_only::close(&path).map_err(FolderError::io("close to other accounts", &path))?;
    let unreadable = |reason: String| FolderError::Unreadable { path: path.clone(), reason };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FolderError::io("read", &path)(error)),
    };
    let mut text = String::new();
    file.take(DESCRIPTION_LIMIT_BYTES).read_to_string(&mut text).map_err(FolderError::io("read", &path))?;
    let Format { format } = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    if !(FORMAT..=FORMAT_WITH_MEMBERS).contains(&format) {
        return Err(FolderError::OtherFormat {
            path: folder.to_owned(),
            found: format,
            known: FORMAT_WITH_MEMBERS,
        });
    }
    let description: Description =
        serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    let id = u128::from_str_radix(&description.cluster, 16)
        .map_err(|_| unreadable(format!("{:?} is no cluster id", description.cluster)))?;
    let numbers =
        description.numbers().ok_or_else(|| unreadable(format!("{} replicas", description.replicas)))?;
    Ok(Some(Cluster { id: ClusterId(id), postgres: description.postgres, numbers }))
}

/// Writes the description of a folder, completely or not at all.
pub(super) fn write(folder: &Path, cluster: &Cluster) -> Result<(), FolderError> {
    let mut text = serde_json::to_string_pretty(&Description::of(cluster))
        .map_err(|error| FolderError::io("describe the cluster in", folder)(error.into()))?;
    text.push('\n');
    let unnamed = folder.join("description");
    let made = owner_only::options().write(true).create(true).truncate(true).open(&unnamed);
    let written = made.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(FolderError::io("write", &unnamed))?;
    rename(&unnamed, &folder.join(DESCRIPTION))?;
    sync(folder)
}
