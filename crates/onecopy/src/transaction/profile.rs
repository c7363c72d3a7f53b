//! The profile of the open transaction: its declared, past and expected accesses.
//!
//! A client declares accesses with a comment on BEGIN or before the first statement, or with
//! `SET LOCAL onecopy.access`. The other accesses are predicted: from how transactions with the same beginning went on.
//! `crate::database::workload_stats` learns that from each transaction that commits. The stage *place* asks for a
//! prediction by [`View::prediction`](crate::transaction::view::View::prediction).
//!
//! Invariant: a wrong prediction costs only time. So a mistake in a comment is a warning.

use std::sync::Arc;

use sql::Statement;
use sql::accesses::Accesses;
use sql::profile::{Declaration, Digests};

use crate::client::sent::Sent;

/// The profile of the open transaction; empty when there is none.
#[derive(Debug, Default)]
pub(crate) struct TxnProfile {
    pub(crate) declared: Option<Declaration>,
    pub(crate) steps: Vec<(Arc<Statement>, Digests)>,
    pub(crate) beginning: Vec<Sent>,
    /// All statements that it will still run, if they came together in one query string.
    pub(crate) together: Vec<Sent>,
}

/// The accesses of the open transaction that are known ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// The accesses of its first statements, and all expected ones.
    pub(crate) accesses: Accesses,
    /// The source of the prediction.
    pub(crate) origin: Origin,
}

/// The source of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The client declared it.
    Declared,
    /// Earlier transactions had the same beginning.
    WorkloadStats {
        /// The share of them whose accesses were all predicted, in thousandths.
        confidence: u32,
        /// The number of them; older ones count less.
        seen: u32,
    },
}
