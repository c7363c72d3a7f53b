//! Why a transaction runs at the anchor. SHOW STATS counts the reasons under `anchor_because`.
//!
//! The reason is known before the place is, and counted only when that is the anchor. So the sum over all reasons is the
//! number of transactions that ran there.

use std::sync::atomic::AtomicU64;

use sql::Because;

use crate::classify::statement_analysis::StatementAnalysis;
use crate::local::Stats;

/// Why a transaction is at the anchor, if that is where it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnchorReason {
    /// No other replica may run its first statement.
    Needs(Because),
    /// It is not declared READ ONLY, so anything may follow.
    Interactive,
    /// Elsewhere its kind waits more than it works.
    Waits,
    /// It may run anywhere: the core, or the session's `onecopy.home`, chose the anchor.
    Chosen,
}

impl AnchorReason {
    /// It needs something that only the anchor may run.
    pub(crate) fn of(analysis: &StatementAnalysis) -> Self {
        analysis.access.as_ref().err().map_or(Self::Interactive, |because| Self::Needs(*because))
    }

    /// Where it is counted.
    pub(crate) fn counter(self, stats: &Stats) -> &AtomicU64 {
        match self {
            Self::Needs(Because::Update) => &stats.anchor_update,
            Self::Needs(Because::Unknown) => &stats.anchor_unknown,
            Self::Needs(Because::Catalogue) => &stats.anchor_catalogue,
            Self::Interactive => &stats.anchor_interactive,
            Self::Waits => &stats.anchor_waits,
            Self::Chosen => &stats.anchor_chosen,
        }
    }
}
