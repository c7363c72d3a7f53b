//! The register in files of the data folder, as they have been since the first version.
//!
//! A file appears under its name only when it is complete and durable: it is written beside that name, synchronised and renamed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::register::{Entry, Register, RegisterError};

/// The folder of the log, in the data folder.
const LOG_FOLDER: &str = "log";
/// A file's name is one of these prefixes and the name of a replica.
const QUARANTINE: &str = "quarantine-";
const PARKED: &str = "parked-";
/// The end of the name of a file that is not complete.
const UNFINISHED: &str = ".new";

/// The files of one data folder.
#[derive(Clone, Debug)]
pub struct FileRegister {
    data: PathBuf,
}

impl FileRegister {
    /// The files in this data folder.
    pub fn in_folder(data: &Path) -> Self {
        Self { data: data.to_owned() }
    }

    /// The entries that have a value.
    pub fn entries(&self) -> Result<Vec<Entry>, RegisterError> {
        let single = [Entry::Members, Entry::Seal, Entry::Placement, Entry::Usage, Entry::Statements];
        let mut found: Vec<Entry> = single.into_iter().filter(|entry| self.path(entry).is_file()).collect();
        let folder = self.data.join(LOG_FOLDER);
        let failed = |source| RegisterError::Io { path: folder.clone(), source };
        let files = match fs::read_dir(&folder) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(failed(error)),
        };
        for file in files {
            let name = file.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if name.ends_with(UNFINISHED) {
                continue;
            }
            if let Some(replica) = name.strip_prefix(QUARANTINE) {
                found.push(Entry::Quarantine(replica.to_owned()));
            } else if let Some(replica) = name.strip_prefix(PARKED) {
                found.push(Entry::Parked(replica.to_owned()));
            }
        }
        Ok(found)
    }

    fn path(&self, entry: &Entry) -> PathBuf {
        let log = self.data.join(LOG_FOLDER);
        match entry {
            Entry::Members => self.data.join("served.json"),
            Entry::Seal => self.data.join("identity.key"),
            Entry::Placement => log.join("placement"),
            Entry::Usage => log.join("usage.json"),
            Entry::Statements => self.data.join("statements"),
            Entry::Quarantine(replica) => log.join(format!("{QUARANTINE}{replica}")),
            Entry::Parked(replica) => log.join(format!("{PARKED}{replica}")),
        }
    }
}

impl Register for FileRegister {
    fn read(&self, entry: &Entry) -> Result<Option<Vec<u8>>, RegisterError> {
        let path = self.path(entry);
        let bytes = owner_only::close(&path).and_then(|()| fs::read(&path));
        match bytes {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(RegisterError::Io { path, source }),
        }
    }

    fn change(&self, entry: &Entry, value: Option<&[u8]>) -> Result<(), RegisterError> {
        let path = self.path(entry);
        let changed = match value {
            Some(value) => write(&path, value),
            None => remove(&path),
        };
        changed.map_err(|source| RegisterError::Io { path, source })
    }

    fn location(&self, entry: &Entry) -> String {
        self.path(entry).display().to_string()
    }
}

fn write(path: &Path, value: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    owner_only::make_folder(folder)?;
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED);
    let mut file = owner_only::options().write(true).create(true).truncate(true).open(&unfinished)?;
    file.write_all(value)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(folder)?.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all(),
    }
}
