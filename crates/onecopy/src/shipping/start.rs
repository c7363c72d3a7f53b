//! A node that ships statements, before its first replica takes part, and the mark beside its log.
//!
//! The two kinds of node cannot read each other's logs. One needs servers under capture, the other servers without
//! it. So before its first record, a file beside the log says which kind it is.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use cluster::ids::ReplicaId;
use cluster::protocols::shipping::Choices;

use super::node::{Rules, Shipping};
use super::state::replica;
use crate::config::c_jdbc::C_JDBC;
use crate::config::protocol::OF_STATEMENTS;
use crate::coordinator::plan::Term;

/// The file that marks a log of statements.
const KIND_FILE: &str = "statements";
/// The file that marks such a log as one of C-JDBC.
const C_JDBC_FILE: &str = "c-jdbc";

/// The order in which a log of statements is to be read, and so the protocols that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// By the numbers of transactions.
    Numbered,
    /// As its records lie.
    CJdbc,
}
/// Switches one rule off, for tests that a checker notices, and to measure what a rule costs.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";

/// A node cannot ship statements, or its log is of the other kind.
#[derive(Debug)]
pub(crate) enum ShippingError {
    /// The log in this folder holds statements, and the node would propagate rows.
    HoldsStatements(PathBuf),
    /// The log in this folder holds rows, and the node would ship statements.
    HoldsRows(PathBuf),
    /// The log in this folder is one of C-JDBC, and the node would read it by numbers; or the other way round.
    HoldsOther { folder: PathBuf, found: LogKind },
    /// The mark beside the log cannot be written.
    Mark(PathBuf, io::Error),
    /// Sessions cannot share connections where statements are shipped.
    SharedConnections,
    /// A test switches a rule off that does not exist.
    UnknownRule(String),
    /// Replicas have left the cluster, or there is none.
    GapsInNumbers,
}

impl fmt::Display for ShippingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HoldsStatements(folder) => {
                let names = OF_STATEMENTS.iter().map(|choices| choices.name).chain([C_JDBC]);
                let names: Vec<&str> = names.collect();
                write!(
                    f,
                    "{} holds a cluster that ships statements; start it with one of the protocols {}",
                    folder.display(),
                    names.join(", ")
                )
            }
            Self::HoldsRows(folder) => write!(
                f,
                "{} holds a cluster of the protocol onecopy, whose log has rows; start it with --protocol onecopy",
                folder.display()
            ),
            Self::HoldsOther { folder, found } => {
                let protocol = if *found == LogKind::CJdbc {
                    "c-jdbc"
                } else {
                    "another protocol that ships statements"
                };
                write!(f, "{} holds a cluster of {protocol}; start it with that", folder.display())
            }
            Self::Mark(file, error) => write!(f, "cannot write {}: {error}", file.display()),
            Self::SharedConnections => {
                f.write_str("pool_mode = transaction is not offered where statements are shipped")
            }
            Self::UnknownRule(rule) => write!(f, "{RULE_OFF}={rule}: there is no such rule"),
            Self::GapsInNumbers => {
                f.write_str("a cluster that ships statements has replicas numbered from 1 without gaps")
            }
        }
    }
}

impl std::error::Error for ShippingError {}

/// Rejects a folder with a log of statements, for a kind of node that cannot read it.
pub(crate) fn refuse_log(data: &Path) -> Result<(), ShippingError> {
    if data.join(KIND_FILE).exists() {
        return Err(ShippingError::HoldsStatements(data.to_owned()));
    }
    Ok(())
}

/// Marks the folder of a new log as one of statements, and rejects a folder with a log of rows or of the other kind.
pub(crate) fn claim_log(data: &Path, is_new: bool, kind: LogKind) -> Result<(), ShippingError> {
    let (file, own) = (data.join(KIND_FILE), data.join(C_JDBC_FILE));
    if file.exists() {
        let found = if own.exists() { LogKind::CJdbc } else { LogKind::Numbered };
        return if found == kind {
            Ok(())
        } else {
            Err(ShippingError::HoldsOther { folder: data.to_owned(), found })
        };
    }
    if !is_new {
        return Err(ShippingError::HoldsRows(data.to_owned()));
    }
    // The general mark is the last one: without it, the special one says nothing.
    if kind == LogKind::CJdbc {
        mark(&own, "The log of this cluster is one of C-JDBC.\n")?;
    }
    mark(&file, "The log of this cluster holds statements.\n")
}

fn mark(file: &Path, text: &str) -> Result<(), ShippingError> {
    file.parent()
        .map_or(Ok(()), owner_only::make_folder)
        .and_then(|()| owner_only::options().write(true).create(true).truncate(true).open(file))
        .and_then(|mut open| open.write_all(text.as_bytes()).and_then(|()| open.sync_all()))
        .map_err(|error| ShippingError::Mark(file.to_owned(), error))
}

/// How statements are shipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShippingOptions {
    choices: Choices,
    rules: Rules,
}

impl ShippingOptions {
    /// Rejects options that this kind of node does not support.
    pub(crate) fn new(is_shared: bool, choices: Choices) -> Result<Self, ShippingError> {
        if is_shared {
            return Err(ShippingError::SharedConnections);
        }
        let rules = match std::env::var(RULE_OFF).ok().as_deref() {
            None | Some("") => Rules::All,
            Some("locks_wait") => Rules::LocksDoNotWait,
            Some("decisions_are_logged") => Rules::DecisionsAreNotLogged,
            Some(other) => return Err(ShippingError::UnknownRule(other.to_owned())),
        };
        Ok(Self { choices, rules })
    }
}

impl Shipping {
    /// A node of this term, in which no replica takes part yet.
    pub(crate) fn new(
        options: ShippingOptions,
        replicas: &[ReplicaId],
        term: Term,
    ) -> Result<Self, ShippingError> {
        if replicas.iter().enumerate().any(|(index, id)| *id != replica(index)) || replicas.is_empty() {
            return Err(ShippingError::GapsInNumbers);
        }
        Ok(Self::in_term(options.choices, options.rules, replicas, term))
    }
}
