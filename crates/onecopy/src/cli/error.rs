//! The errors of commands that use a running node, a schema or a log.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use commitlog::LogError;
use pgserver::FolderError;

use super::connect_error::ConnectError;
use crate::config::LoadError;

/// A command failed. The text is for the person who typed it.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The node cannot be reached.
    Connect(ConnectError),
    /// The node cannot be reached. A file of definitions would do instead.
    NoSchema(ConnectError),
    /// The node has rejected the command.
    Refused { message: String, hint: Option<String> },
    /// The connection to the node was lost.
    Lost(tokio_postgres::Error),
    /// The node has ended the connection.
    Closed,
    /// The node stopped answering.
    NoAnswer(tokio_postgres::Error),
    /// The node's answer cannot be read.
    Answer(tokio_postgres::Error),
    /// Some replicas differ from the others.
    ReplicasDiffer { count: usize },
    /// Some tables differ between replicas.
    TablesDiffer { different: usize, of: usize },
    /// The statement has an error.
    Statement(ErrorInText),
    /// A file of definitions has an error.
    Schema { path: PathBuf, error: ErrorInText },
    /// A statement in a file of statements has an error.
    Template { path: PathBuf, number: usize, error: ErrorInText },
    /// The configuration cannot be used.
    Config(LoadError),
    /// The placement would reject these, which were printed before.
    PlacementBreaches { count: usize },
    /// A file cannot be read.
    Unreadable { path: PathBuf, source: io::Error },
    /// The default data folder cannot be determined.
    Folder(FolderError),
    /// The folder holds no log.
    NoLog { folder: PathBuf },
    /// The log cannot be read.
    Log(LogError),
    /// The log is damaged. These are all damaged places.
    Damaged(Vec<String>),
    /// The log is damaged at places that were printed before.
    DamageShown { places: u64 },
    /// The nodes of a group cannot be asked.
    NotAsked { group: SocketAddr, source: io::Error },
    /// No node has answered.
    NoNodes,
    /// The system gives no random numbers.
    NoChance(io::Error),
    /// The other program is not installed.
    NoProgram { name: &'static str, package: &'static str },
    /// The other program cannot be started.
    NotRun { path: PathBuf, source: io::Error },
}

/// An error at a place in a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErrorInText {
    pub(super) message: String,
    /// `None` if the position is unknown.
    pub(super) line: Option<MarkedLine>,
}

/// A line of a text, with a mark.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MarkedLine {
    number: usize,
    text: String,
    /// Characters before the mark.
    column: usize,
}

impl ErrorInText {
    /// An error at a byte of a text.
    pub(super) fn new(text: &str, message: impl Into<String>, at: Option<usize>) -> Self {
        let line = at.filter(|&at| text.is_char_boundary(at)).map(|at| {
            let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
            MarkedLine {
                number: 1 + text[..at].matches('\n').count(),
                text: text[start..end].to_owned(),
                column: text[start..at].chars().count(),
            }
        });
        Self { message: message.into(), line }
    }
}

/// As in psql: the line, and a mark below the place.
impl fmt::Display for ErrorInText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let Some(MarkedLine { number, text, column }) = &self.line else { return Ok(()) };
        let label = format!("LINE {number}: ");
        write!(f, "\n{label}{text}\n{}^", " ".repeat(label.len() + column))
    }
}

impl CommandError {
    /// The error from a failed answer of the node.
    pub(super) fn of_answer(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refused) => Self::Refused {
                message: refused.message().to_owned(),
                hint: refused.hint().map(str::to_owned),
            },
            None => Self::Answer(error),
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::NoSchema(error) => {
                write!(f, "{error}\nName a file of CREATE statements with --schema.")
            }
            Self::Refused { message, hint: Some(hint) } => write!(f, "{message}\n{hint}"),
            Self::Refused { message, hint: None } => f.write_str(message),
            Self::NotAsked { group, source } => {
                write!(f, "cannot ask the group {group}: {source}\nName the nodes with --nodes where multicast is not to be had.")
            }
            Self::NoNodes => f.write_str(
                "no node has answered in time\nAsk for longer with --wait-ms. A node hears a group if its setting \"discovery\" names it, and \
                 --nodes if \"http_listen\" does.",
            ),
            Self::NoChance(error) => write!(f, "the system gives no random numbers: {error}"),
            Self::Lost(error) => write!(f, "lost the connection to the node: {error}"),
            Self::Closed => f.write_str("the node has closed the connection"),
            Self::NoAnswer(error) => write!(f, "the node no longer answers: {error}"),
            Self::Answer(error) => error.fmt(f),
            Self::ReplicasDiffer { count: 1 } => f.write_str("one replica differs from the others"),
            Self::ReplicasDiffer { count } => write!(f, "{count} replicas differ from the others"),
            Self::TablesDiffer { different, of } => {
                write!(f, "{different} of {of} tables differ between the replicas")
            }
            Self::Statement(error) => error.fmt(f),
            Self::Schema { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Template { path, number, error } => write!(f, "{}:{number}: {error}", path.display()),
            Self::Config(error) => error.fmt(f),
            Self::PlacementBreaches { count } => write!(
                f,
                "{count} foreign keys or materialized views would be rejected as the tables are placed; \
                 hold a table wherever a table is held that refers to it, and everywhere what a materialized view shows"
            ),
            Self::Unreadable { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Folder(error) => error.fmt(f),
            Self::NoLog { folder } => write!(
                f,
                "there is no log in {}; name the data folder of a cluster with --data",
                folder.display()
            ),
            Self::Log(error) => error.fmt(f),
            Self::Damaged(damages) => f.write_str(&damages.join("\n")),
            Self::DamageShown { places: 1 } => {
                f.write_str("the log is damaged in one place, which is shown above")
            }
            Self::DamageShown { places } => {
                write!(f, "the log is damaged in {places} places, which are shown above")
            }
            Self::NoProgram { name, package } => write!(
                f,
                "{name} is neither beside this program nor on the path; `cargo build --release --package {package}` \
                 makes it"
            ),
            Self::NotRun { path, source } => write!(f, "cannot run {}: {source}", path.display()),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<ConnectError> for CommandError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<LogError> for CommandError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}
