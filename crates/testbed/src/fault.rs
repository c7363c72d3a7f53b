//! Why a benchmark has no result, by who is at fault.

use std::fmt;
use std::io;

/// A benchmark could not be done.
#[derive(Debug)]
pub enum Fault {
    /// Something has to be installed or named first.
    Missing(String),
    /// The system refused something.
    System {
        /// Our attempt, as a verb with its object.
        doing: String,
        /// The system's error.
        error: io::Error,
    },
    /// A program ended when it should not have, failed, or gave no sign of life.
    Program {
        /// Which one.
        name: String,
        /// The event.
        what: String,
        /// Its last lines.
        said: String,
    },
    /// A program said something that we do not understand.
    Unreadable {
        /// Which one, and what we looked for.
        what: String,
        /// Its output.
        said: String,
    },
    /// A server refused what it must not refuse, or gave no sign of life.
    Database(String),
    /// Everything ran, and what came out is wrong; the report.
    Wrong(String),
    /// The person who started us wants it to end.
    Interrupted,
}

impl Fault {
    /// Makes a fault of a system error.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        |error| Self::System { doing, error }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(what) | Self::Database(what) => write!(f, "{what}"),
            Self::System { doing, error } => write!(f, "cannot {doing}: {error}"),
            Self::Program { name, what, said } => write!(f, "{name} {what}; its last words:\n{said}"),
            Self::Unreadable { what, said } => write!(f, "cannot read {what} in:\n{said}"),
            Self::Wrong(report) => write!(f, "what was seen is wrong\n{report}"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}
