//! Finds the programs of PostgreSQL on this machine.
//!
//! A folder counts when it has `postgres` and `initdb`, and when `postgres --version` names a supported release. The account of
//! the servers runs that command. So a folder that the account cannot reach, or a program made for another machine, is
//! rejected here and not at the first start. Debian and others keep several releases side by side and none of them on
//! PATH, so their folders are searched as well, newest first.
//!
//! A folder that the user names is taken or rejected, never passed over. Among the others the first that fits is taken; only when
//! none fits, the error says why each was rejected. An existing cluster needs the very release it was made with:
//! PostgreSQL does not read the files of another.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fmt, fs, io};

use tokio::process::Command;
use tokio::time::timeout;

use super::account::Account;

/// The oldest release that we support.
pub(crate) const OLDEST: u16 = 14;
/// The newest release that we support.
pub(crate) const NEWEST: u16 = 18;
/// Names the folder of the programs, like `--pg-bin`.
pub(crate) const VARIABLE: &str = "ONECOPY_PG_BIN";

/// How long `postgres --version` may take.
const ANSWER: Duration = Duration::from_secs(10);
/// At most so many folders are searched.
const CANDIDATES: usize = 64;
/// The folders where systems keep releases: the part before the number, and the part after it.
const USUAL: [(&str, &str, &str); 3] =
    [("/usr/lib/postgresql", "", "bin"), ("/usr", "pgsql-", "bin"), ("/usr/local", "pgsql-", "bin")];

/// A release of PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Servers of the same major release can read each other's files.
    pub major: u16,
    /// In the words of the server, for example `15.14`.
    pub text: String,
}

impl Release {
    /// From the output of `postgres --version`.
    fn parse(line: &str) -> Option<Self> {
        let text = line.trim().strip_prefix("postgres (PostgreSQL) ")?.split_whitespace().next()?;
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        Some(Self { major: text[..digits].parse().ok()?, text: text.to_owned() })
    }
}

/// A folder with the programs we need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binaries {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// The release of the programs.
    pub(crate) release: Release,
}

impl Binaries {
    /// The server.
    pub(crate) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    /// The program that makes the files of a server.
    pub(crate) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }
}

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    /// The folder that the user named, and how.
    pub(crate) named: Option<(PathBuf, &'static str)>,
    /// Folders to try, in this order.
    pub(crate) folders: Vec<PathBuf>,
    /// The release that an existing cluster needs.
    pub(crate) major: Option<u16>,
}

impl Search {
    /// The folder that the user named, else all of this machine; `cache` holds the fetched releases.
    pub(crate) fn everywhere(flag: Option<&Path>, cache: Option<&Path>, major: Option<u16>) -> Self {
        let variable = env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
        let named = flag.map(|f| (f.to_owned(), "--pg-bin")).or_else(|| variable.map(|v| (v, VARIABLE)));
        let mut folders: Vec<PathBuf> = match env::var_os("PATH") {
            Some(path) if named.is_none() => env::split_paths(&path).filter(|p| p.is_absolute()).collect(),
            _ => Vec::new(),
        };
        folders.retain(|folder| folder.join("postgres").exists() || folder.join("pg_config").exists());
        for (parent, prefix, inner) in USUAL {
            folders.extend(numbered(Path::new(parent), prefix, inner));
        }
        folders.extend(cache.into_iter().flat_map(|cache| numbered(cache, "", "bin")));
        folders.truncate(CANDIDATES);
        Self { named, folders, major }
    }

    /// The first folder that fits.
    pub(crate) async fn run(&self, account: &Account) -> Result<Binaries, LocateError> {
        if let Some((folder, by)) = &self.named {
            return self.check(folder, account).await.map_err(|fault| LocateError::Named {
                folder: folder.clone(),
                by,
                fault,
            });
        }
        let mut refused = Vec::new();
        for folder in &self.folders {
            match self.check(folder, account).await {
                Ok(binaries) => return Ok(binaries),
                Err(ProgramsFault::NoServer) => {
                    // Development packages put pg_config on PATH and the server elsewhere.
                    if let Some(told) = bindir(folder, account).await.filter(|told| told != folder)
                        && let Ok(binaries) = self.check(&told, account).await
                    {
                        return Ok(binaries);
                    }
                }
                Err(fault) => refused.push((folder.clone(), fault)),
            }
        }
        Err(LocateError::NoneFits { refused, major: self.major })
    }

    async fn check(&self, folder: &Path, account: &Account) -> Result<Binaries, ProgramsFault> {
        let binaries = Binaries { folder: folder.to_owned(), release: release_of(folder, account).await? };
        let release = &binaries.release;
        if !(OLDEST..=NEWEST).contains(&release.major) {
            return Err(ProgramsFault::Unsupported(release.clone()));
        }
        if self.major.is_some_and(|wanted| wanted != release.major) {
            return Err(ProgramsFault::NotTheOne(release.clone()));
        }
        Ok(binaries)
    }
}

/// Folders that may have programs for clients. Those of this machine's packages come before PATH, where there may be only a
/// program that chooses one of them.
pub fn program_folders() -> Vec<PathBuf> {
    let named = env::var_os(VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    let mut folders: Vec<PathBuf> = named.into_iter().collect();
    for (parent, prefix, inner) in USUAL {
        folders.extend(numbered(Path::new(parent), prefix, inner));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    folders.extend(env::split_paths(&path).filter(|p| p.is_absolute()));
    folders.truncate(CANDIDATES);
    folders
}

/// The release of the `postgres` in this folder.
async fn release_of(folder: &Path, account: &Account) -> Result<Release, ProgramsFault> {
    for (program, fault) in [("postgres", ProgramsFault::NoServer), ("initdb", ProgramsFault::NoInitdb)] {
        if !folder.join(program).exists() {
            let closed =
                account.stopped_at(folder).map(|at| ProgramsFault::Closed { at, account: account.clone() });
            return Err(closed.unwrap_or(fault));
        }
    }
    let line =
        first_line(&folder.join("postgres"), "--version", account).await.map_err(|error| {
            match account.stopped_at(folder) {
                Some(at) if error.kind() == io::ErrorKind::PermissionDenied => {
                    ProgramsFault::Closed { at, account: account.clone() }
                }
                _ => ProgramsFault::Broken(error.to_string()),
            }
        })?;
    Release::parse(&line).ok_or_else(|| ProgramsFault::Broken(format!("`postgres --version` says {line:?}")))
}

/// The folder of programs that `pg_config` in this folder names.
async fn bindir(folder: &Path, account: &Account) -> Option<PathBuf> {
    let program = folder.join("pg_config");
    let line = if program.exists() { first_line(&program, "--bindir", account).await.ok() } else { None };
    line.map(PathBuf::from).filter(|path| path.is_absolute())
}

async fn first_line(program: &Path, argument: &str, account: &Account) -> io::Result<String> {
    let mut command = Command::from(account.command(program, Path::new("/")));
    command.arg(argument).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(ANSWER, command.output())
        .await
        .map_err(|_| io::Error::other(format!("no answer in {} s", ANSWER.as_secs())))??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("nothing");
        return Err(io::Error::other(format!("it ended with {} and said: {said}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// The folders `parent/prefixN/inner`, highest N first.
fn numbered(parent: &Path, prefix: &str, inner: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(Vec<u32>, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let number =
                name.strip_prefix(prefix)?.split('.').map(str::parse).collect::<Result<_, _>>().ok()?;
            Some((number, entry.path().join(inner)))
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Why the programs in a folder cannot be used.
#[derive(Debug)]
pub enum ProgramsFault {
    /// There is no `postgres`.
    NoServer,
    /// There is `postgres` but no `initdb`.
    NoInitdb,
    /// The account may not enter a folder on the way.
    Closed {
        /// That folder.
        at: PathBuf,
        /// The account.
        account: Account,
    },
    /// The server does not run here.
    Broken(String),
    /// A release that we do not support.
    Unsupported(Release),
    /// Not the release that the cluster was made with.
    NotTheOne(Release),
}

impl fmt::Display for ProgramsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServer => write!(f, "there is no program `postgres`"),
            Self::NoInitdb => write!(f, "there is `postgres` but no `initdb`"),
            Self::Closed { at, account } => write!(
                f,
                "{account}, which would run it, may not enter {} (to allow it: chmod o+x {0})",
                at.display()
            ),
            Self::Broken(said) => write!(f, "`postgres` does not run here: {said}"),
            Self::Unsupported(release) if release.major < OLDEST => {
                write!(f, "PostgreSQL {} is too old, {OLDEST} to {NEWEST} is needed", release.text)
            }
            Self::Unsupported(release) => {
                write!(f, "PostgreSQL {} is not supported yet, {OLDEST} to {NEWEST} is needed", release.text)
            }
            Self::NotTheOne(release) => write!(f, "it is PostgreSQL {}", release.text),
        }
    }
}

/// No usable PostgreSQL was found.
#[derive(Debug)]
pub enum LocateError {
    /// The folder that the user named cannot be used.
    Named {
        /// That folder.
        folder: PathBuf,
        /// How it was named.
        by: &'static str,
        /// The reason.
        fault: ProgramsFault,
    },
    /// None of the folders does.
    NoneFits {
        /// Those that have something of PostgreSQL in them.
        refused: Vec<(PathBuf, ProgramsFault)>,
        /// The release that was needed.
        major: Option<u16>,
    },
}

impl fmt::Display for LocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named { folder, by, fault: fault @ ProgramsFault::NotTheOne(_) } => write!(
                f,
                "{by} {} does not fit: the cluster in this data folder was made by another release, and {fault}",
                folder.display()
            ),
            Self::Named { folder, by, fault } => {
                write!(f, "{by} {} cannot be used: {fault}", folder.display())
            }
            Self::NoneFits { refused, major } => {
                match major {
                    Some(major) => {
                        write!(
                            f,
                            "no PostgreSQL {major} found, with which the cluster in this data folder was made"
                        )?;
                    }
                    None => write!(f, "no PostgreSQL {OLDEST} to {NEWEST} found")?,
                }
                for (folder, fault) in refused {
                    write!(f, "\n  {}: {fault}", folder.display())?;
                }
                let (deb, rpm) =
                    major.map_or((String::new(), String::new()), |m| (format!("-{m}"), m.to_string()));
                write!(
                    f,
                    "\nInstall it (Debian, Ubuntu: apt-get install postgresql{deb}; Fedora, RHEL: dnf install \
                     postgresql{rpm}-server), or name the folder of its programs with --pg-bin DIR"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
