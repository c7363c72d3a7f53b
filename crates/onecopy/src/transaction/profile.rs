//! The profile of the open transaction: its declared, past and expected accesses.
//!
//! A client declares with a comment on BEGIN or before the first statement, or with `SET LOCAL onecopy.access`. The rest is
//! predicted from how other transactions went on that began alike (`crate::database::workload_stats`, which learns
//! from each transaction that commits). The stage *place* asks for a prediction by
//! [`View::prediction`](crate::transaction::view::View::prediction).
//!
//! Invariant: a wrong prediction costs time, and nothing else. So a mistake in a comment is a warning.

use std::sync::Arc;

use sql::Statement;
use sql::accesses::Accesses;
use sql::profile::{Declaration, Digests};

use crate::client::sent::Sent;

/// Of the open transaction; empty when there is none.
#[derive(Debug, Default)]
pub(crate) struct TxnProfile {
    pub(crate) declared: Option<Declaration>,
    pub(crate) steps: Vec<(Arc<Statement>, Digests)>,
    pub(crate) beginning: Vec<Sent>,
}

/// The accesses of the open transaction, as far as they are known ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prediction {
    /// Of its first statements and of all that is expected.
    pub(crate) accesses: Accesses,
    /// Where this comes from.
    pub(crate) origin: Origin,
}

/// Where a prediction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The client said so.
    Declared,
    /// Other transactions began alike.
    WorkloadStats {
        /// In how many of them all was predicted, in thousandths.
        confidence: u32,
        /// How many there were; older ones count less.
        seen: u32,
    },
}
