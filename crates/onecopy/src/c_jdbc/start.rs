//! A node of C-JDBC before its first replica takes part.

use std::fmt;
use std::io;

use cluster::ids::ReplicaId;
use cluster::placement::Placement;
use cluster::protocols::c_jdbc::balancer::Balance;
use cluster::protocols::c_jdbc::{Choices, Level};

use super::node::CJdbc;
use crate::coordinator::plan::{Plan, Term};
use crate::shipping::state::replica;

/// Switches one rule off, for tests that a checker notices.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";

/// A node cannot be one of C-JDBC.
#[derive(Debug)]
pub(crate) enum CJdbcError {
    /// Sessions cannot share connections where statements are shipped.
    SharedConnections,
    /// Replicas have left the cluster.
    GapsInNumbers,
    /// There is not one weight for each replica.
    Weights { given: usize, replicas: usize },
    /// Tables are placed, and the level is pass-through.
    Placed,
    /// There are checkpoints, and the level is pass-through.
    Checkpoints,
    /// The checkpoints cannot be read.
    Unreadable(io::Error),
    /// A test switches a rule off that does not exist.
    UnknownRule(String),
}

impl fmt::Display for CJdbcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedConnections => {
                f.write_str("pool_mode = transaction is not offered where statements are shipped")
            }
            Self::GapsInNumbers => {
                f.write_str("a cluster that ships statements has replicas numbered from 1 without gaps")
            }
            Self::Weights { given, replicas } => {
                write!(f, "balancer_weights has {given} numbers, and there are {replicas} replicas")
            }
            Self::Placed => f.write_str(
                "only some replicas hold some tables, which is not offered under transaction_level = pass-through",
            ),
            Self::Checkpoints => f.write_str(
                "there are checkpoints, which are not offered under transaction_level = pass-through; start with another level, and DROP CHECKPOINT",
            ),
            Self::Unreadable(error) => error.fmt(f),
            Self::UnknownRule(rule) => write!(f, "{RULE_OFF}={rule}: there is no such rule"),
        }
    }
}

impl std::error::Error for CJdbcError {}

/// How the scheduler works.
#[derive(Clone, Debug)]
pub(crate) struct CJdbcOptions {
    choices: Choices,
}

impl CJdbcOptions {
    /// Rejects options that this kind of node does not support.
    pub(crate) fn new(plan: &Plan, mut choices: Choices, replicas: &[ReplicaId]) -> Result<Self, CJdbcError> {
        if plan.limits.pooling.is_shared {
            return Err(CJdbcError::SharedConnections);
        }
        if replicas.iter().enumerate().any(|(index, id)| *id != replica(index)) {
            return Err(CJdbcError::GapsInNumbers);
        }
        if let Balance::Weighted(weights) = &choices.balance
            && weights.len() != replicas.len()
        {
            return Err(CJdbcError::Weights { given: weights.len(), replicas: replicas.len() });
        }
        let has_checkpoints = || Ok(plan.checkpoints()?.oldest().is_some());
        if choices.level == Level::PassThrough && has_checkpoints().map_err(CJdbcError::Unreadable)? {
            return Err(CJdbcError::Checkpoints);
        }
        match std::env::var(RULE_OFF).ok().as_deref() {
            None | Some("") => {}
            Some("locks_wait") => {
                (choices.rules.writers_wait, choices.rules.readers_wait) = (false, false);
            }
            Some("writes_end_answers") => choices.rules.writes_end_answers = false,
            Some(other) => return Err(CJdbcError::UnknownRule(other.to_owned())),
        }
        Ok(Self { choices })
    }
}

impl CJdbc {
    /// A node of this term, in which no replica takes part yet.
    pub(crate) fn new(
        options: CJdbcOptions,
        replicas: &[ReplicaId],
        term: Term,
        placement: Placement,
    ) -> Result<Self, CJdbcError> {
        if options.choices.level == Level::PassThrough && placement.is_partial() {
            return Err(CJdbcError::Placed);
        }
        Ok(Self::in_term(options.choices, replicas, term, placement))
    }
}
