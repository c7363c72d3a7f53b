//! Where the program of etcd comes from, and whether its release may hold a log.
//!
//! 1. `--etcd-bin`, or the variable `ONECOPY_ETCD_BIN`;
//! 2. what `scripts/etcd` has built: beside the folder of our own program, `target/etcd/etcd` in a source tree;
//! 3. `etcd` on the PATH.
//!
//! A release that can lose data is refused wherever it comes from.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::error::NodesError;
use crate::node::etcd_check;

/// Names the program, as `--etcd-bin` does.
pub(super) const VARIABLE: &str = "ONECOPY_ETCD_BIN";
const NAME: &str = "etcd";
/// How long the program may take to name its release.
const ANSWER: Duration = Duration::from_secs(10);
/// How its release is named.
const LABEL: &str = "etcd Version:";

/// A program of etcd that can be used.
#[derive(Clone, Debug)]
pub(super) struct EtcdProgram {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

impl EtcdProgram {
    /// Finds the program, and asks it for its release.
    pub(super) async fn find(named: Option<&Path>) -> Result<Self, NodesError> {
        let named = named.map(Path::to_owned).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None => search()?,
        };
        Self::at(&path).await
    }

    async fn at(path: &Path) -> Result<Self, NodesError> {
        let refused = |reason: String| NodesError::NotEtcd { program: path.to_owned(), reason };
        let path = std::path::absolute(path).map_err(|error| refused(error.to_string()))?;
        let asked = Command::new(&path)
            .arg("--version")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .output();
        let told = match timeout(ANSWER, asked).await {
            Ok(told) => told.map_err(|error| refused(error.to_string()))?,
            Err(_) => return Err(refused("it does not name its release".to_owned())),
        };
        let text = String::from_utf8_lossy(&told.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix(LABEL)).map(str::trim);
        let version = version.ok_or_else(|| refused("it does not name its release".to_owned()))?.to_owned();
        etcd_check::check_release(path.display().to_string(), version.clone())
            .map_err(|error| NodesError::Unfit(Box::new(error)))?;
        Ok(Self { path, version })
    }

    /// Whether it has the options of 3.6 and later.
    pub(super) fn has_catchup_entries(&self) -> bool {
        etcd_check::numbers(&self.version).is_some_and(|release| release >= [3, 6, 0])
    }
}

fn search() -> Result<PathBuf, NodesError> {
    let built = built().unwrap_or_else(|| PathBuf::from("target/etcd/etcd"));
    if built.is_file() {
        return Ok(built);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(NAME)).find(|path| path.is_file());
    found.ok_or(NodesError::NoEtcd { searched: built })
}

/// Where `scripts/etcd` puts the program, seen from our own, which is in `target/quick` or the like.
fn built() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    Some(own.parent()?.parent()?.join("etcd").join(NAME))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn a_release_that_loses_data_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let program = |name: &str, version: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\necho '{version}'\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            path
        };
        let old = EtcdProgram::at(&program("old", "etcd Version: 3.4.23")).await.unwrap_err().to_string();
        assert!(old.contains("3.4.23") && old.contains("/old") && old.contains("scripts/etcd"), "{old}");
        let bad = EtcdProgram::at(&program("bad", "etcd Version: 3.5.13")).await.unwrap_err().to_string();
        assert!(bad.contains("3.5.13"), "{bad}");
        let good = EtcdProgram::at(&program("good", "etcd Version: 3.5.14")).await.unwrap();
        assert!(!good.has_catchup_entries());
        assert!(EtcdProgram::at(&program("new", "etcd Version: 3.7.3")).await.unwrap().has_catchup_entries());
        let none = EtcdProgram::at(&program("none", "hello")).await.unwrap_err().to_string();
        assert!(none.contains("does not name its release"), "{none}");
    }
}
