//! The temporary folder of one benchmark.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::account::Account;
use crate::fault::Fault;

/// How many folders this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A folder that is gone when the benchmark is. It must be dropped after the programs that use it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder; other accounts may look into it.
    pub fn new() -> Result<Self, Fault> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("onecopy-bench-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(Fault::system(format!("make {}", path.display())))?;
        let scratch = Self(path);
        open(&scratch.0, 0o755)?;
        Ok(scratch)
    }

    /// The folder itself.
    pub fn top(&self) -> &Path {
        &self.0
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new folder inside that belongs to the account.
    pub fn folder(&self, name: &str, account: Account) -> Result<PathBuf, Fault> {
        let path = self.path(name);
        fs::create_dir(&path).map_err(Fault::system(format!("make {}", path.display())))?;
        open(&path, 0o700)?;
        account.give(&path)?;
        Ok(path)
    }

    /// A new file inside that the account can read.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.path(name);
        fs::write(&path, text).map_err(Fault::system(format!("write {}", path.display())))?;
        open(&path, 0o644)?;
        Ok(path)
    }
}

fn open(path: &Path, mode: u32) -> Result<(), Fault> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(Fault::system(format!("open {}", path.display())))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A temporary folder that cannot be removed is not worth losing a result for.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays() {
        let scratch = Scratch::new().unwrap();
        let file = scratch.file("a", "text").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        drop(scratch);
        assert!(!file.parent().unwrap().exists());
    }
}
