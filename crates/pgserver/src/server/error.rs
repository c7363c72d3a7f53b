//! Why a server does not start, and whether its data is the cause.
//!
//! A server whose data is lost or damaged can get the data of another one. If the machine keeps it from starting (a full
//! disk, a missing right), a copy would not help. If its data folder holds files of another program, a copy would destroy
//! them. Such a server is only tried again.

use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

use super::super::folder::FolderError;
use super::START;

/// Parts of a server's message when the machine keeps it from starting, not its data.
const OF_THE_MACHINE: [&str; 15] = [
    "No space left on device",
    "Permission denied",
    "Operation not permitted",
    "Read-only file system",
    "invalid permissions",
    "wrong ownership",
    "shared memory",
    "semaphores",
    "Cannot allocate memory",
    "out of memory",
    "Too many open files",
    "Address already in use",
    "could not create any",
    "already exists",
    "shutdown request",
];

/// How a server ended.
#[derive(Debug)]
pub struct Ending {
    /// The status from the system; none if the system could not be asked.
    pub status: Option<ExitStatus>,
    /// The last lines of its log.
    pub last_words: String,
}

impl Ending {
    /// The line of its log with the reason, if there is one.
    fn reason(&self) -> Option<&str> {
        let at = |line: &'_ str| ["FATAL:", "PANIC:"].iter().find_map(|level| line.find(level));
        self.last_words.lines().find_map(|line| Some(line[at(line)?..].trim()))
    }

    /// Whether its data kept it from starting. A server that was killed says nothing about its data.
    fn is_about_data(&self) -> bool {
        let was_killed = self.status.is_some_and(|status| matches!(status.signal(), Some(2 | 3 | 9 | 15)))
            || ["signal 9:", "signal 15:"].iter().any(|signal| self.last_words.contains(signal));
        let is_of_the_machine = OF_THE_MACHINE.iter().any(|cause| self.last_words.contains(cause));
        self.reason().is_some() && !was_killed && !is_of_the_machine
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}")?,
            None => write!(f, "unknown status")?,
        }
        if self.last_words.is_empty() {
            Ok(())
        } else {
            write!(f, "; its log ends with:\n{}", self.last_words)
        }
    }
}

/// Why no server can be started on a data folder.
#[derive(Debug)]
pub enum DataFault {
    /// There is no such folder.
    Missing,
    /// It is empty, or has lost files that every server has.
    NotWhole,
    /// It was made by another release of PostgreSQL.
    OtherRelease {
        /// Its release.
        found: u16,
        /// The cluster's.
        expected: u16,
    },
    /// It has other files than those of a server.
    Foreign {
        /// One of them.
        example: String,
    },
}

/// A server did not start.
#[derive(Debug)]
pub enum ServerError {
    /// The system refused something that the server needs.
    Io {
        /// The server.
        name: String,
        /// The action, as a verb with its object.
        doing: String,
        /// The answer of the system.
        error: io::Error,
    },
    /// No server can be started on its data folder.
    Data {
        /// The server.
        name: String,
        /// The folder.
        path: PathBuf,
        /// The reason.
        fault: DataFault,
    },
    /// No port is free for it.
    NoPort(String),
    /// Another program has its port, which it keeps for as long as the node runs.
    PortTaken {
        /// The server.
        name: String,
        /// The port.
        port: u16,
    },
    /// The copy could not take the place of its data folder.
    Swap(FolderError),
    /// It ended before it accepted a session.
    Ended {
        /// The server.
        name: String,
        /// Its end.
        ending: Ending,
        /// The file with its output.
        log: PathBuf,
    },
    /// It runs but accepts no session.
    Silent {
        /// The server.
        name: String,
        /// The error of the last attempt at a session.
        last: String,
        /// The file with its output.
        log: PathBuf,
    },
}

impl ServerError {
    /// Whether its data is lost or damaged, so that it needs the data of another server.
    pub fn is_about_data(&self) -> bool {
        match self {
            Self::Data { fault, .. } => matches!(fault, DataFault::Missing | DataFault::NotWhole),
            Self::Ended { ending, .. } => ending.is_about_data(),
            _ => false,
        }
    }

    /// Whether it may start when it is tried again at once: another program took the port after we had looked, or a process
    /// of its former life still holds its memory.
    pub(super) fn passes(&self) -> bool {
        let causes = ["Address already in use", "is still in use", "pre-existing shared memory block"];
        let Self::Ended { ending, .. } = self else { return false };
        causes.iter().any(|cause| ending.last_words.contains(cause))
    }

    /// The same in one line.
    pub fn in_short(&self) -> String {
        match self {
            Self::Ended { name, ending, log } => {
                let status = ending.status.map_or_else(String::new, |status| status.to_string());
                let reason = ending.reason().unwrap_or(&status);
                format!("{name} did not start: {reason} (all it says is in {})", log.display())
            }
            other => other.to_string().lines().collect::<Vec<_>>().join("; "),
        }
    }
}

impl std::error::Error for ServerError {}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { name, doing, error } => write!(f, "{name}: cannot {doing}: {error}"),
            Self::Data { name, path, fault } => {
                let path = path.display();
                match fault {
                    DataFault::Missing => write!(f, "{name}: its data folder {path} is not there"),
                    DataFault::NotWhole => write!(f, "{name}: its data folder {path} has lost its files"),
                    DataFault::OtherRelease { found, expected } => write!(
                        f,
                        "{name}: its data folder {path} holds files of PostgreSQL {found}, but the cluster was made with \
                         PostgreSQL {expected}"
                    ),
                    DataFault::Foreign { example } => write!(
                        f,
                        "{name}: its data folder {path} holds other files than those of a PostgreSQL server, {example:?} for one"
                    ),
                }
            }
            Self::Swap(error) => error.fmt(f),
            Self::NoPort(name) => write!(f, "{name}: none of the ports that were tried on 127.0.0.1 is free"),
            Self::PortTaken { name, port } => {
                write!(
                    f,
                    "{name} did not start: another program has port {port}, which is tried again until it is free"
                )
            }
            Self::Ended { name, ending, log } => {
                write!(f, "{name} did not start: {ending}\nAll it says is in {}", log.display())
            }
            Self::Silent { name, last, log } => write!(
                f,
                "{name} runs but lets no session in after {} s: {last}\nAll it says is in {}",
                START.as_secs(),
                log.display()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, said: &str) -> ServerError {
        let ending = Ending { status: Some(ExitStatus::from_raw(code)), last_words: said.to_owned() };
        ServerError::Ended { name: "replica-1".to_owned(), ending, log: "server-1.log".into() }
    }

    #[test]
    fn only_causes_that_pass_are_tried_again_at_once() {
        for said in [
            "WARNING:  could not bind IPv4 address \"127.0.0.1\": Address already in use",
            "FATAL:  pre-existing shared memory block (key 1, ID 2) is still in use",
        ] {
            assert!(ended(256, said).passes(), "{said}");
        }
        assert!(!ended(256, "FATAL:  could not write lock file: No space left on device").passes());
    }

    /// A rebuild that is not needed copies everything; one that is not begun leaves the replica down.
    #[test]
    fn what_the_machine_does_to_a_server_is_no_damage() {
        for (code, said) in [
            (256, "FATAL:  could not write lock file \"postmaster.pid\": No space left on device"),
            (256, "FATAL:  data directory \"/d\" has invalid permissions"),
            (256, "FATAL:  could not map anonymous shared memory: Cannot allocate memory"),
            (256, "LOG:  startup process (PID 7) was terminated by signal 9: Killed"),
            (256, "FATAL:  the database system is starting up\nLOG:  received fast shutdown request"),
            (9, "LOG:  starting PostgreSQL"),
            (256, ""),
        ] {
            assert!(!ended(code, said).is_about_data(), "{said}");
        }
        for said in [
            "  2025-01-01 UTC [7] PANIC:  could not locate a valid checkpoint record\n  LOG:  startup process (PID 8) was \
             terminated by signal 6: Aborted",
            "FATAL:  database files are incompatible with server",
            "FATAL:  could not open directory \"pg_notify\": No such file or directory",
        ] {
            assert!(ended(256, said).is_about_data(), "{said}");
        }
        let short = ended(256, "  2025-01-01 UTC [7] PANIC:  could not find it\n  LOG:  aborted").in_short();
        assert_eq!(
            short,
            "replica-1 did not start: PANIC:  could not find it (all it says is in server-1.log)"
        );
    }
}
