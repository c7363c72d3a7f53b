//! Reasons why transactions run at the anchor. SHOW STATS counts them under `anchor_because`.
//!
//! The reason is known before the place is. It is counted only when the place is the anchor, so the sum over all
//! reasons is the number of transactions that ran there.

use std::sync::atomic::AtomicU64;

use sql::Because;

use crate::classify::statement_analysis::StatementAnalysis;
use crate::local::Stats;

/// The reason why a transaction is at the anchor, if it runs there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnchorReason {
    /// No other replica may run its first statement.
    Needs(Because),
    /// It is not declared READ ONLY, so any statement may follow.
    Interactive,
    /// Elsewhere, transactions of this kind wait more than they work.
    Waits,
    /// It may run anywhere: the core, or the session's `onecopy.home`, chose the anchor.
    Chosen,
}

impl AnchorReason {
    /// The reason why the statements need the anchor; [`Self::Interactive`] if they do not.
    pub(crate) fn of(analysis: &StatementAnalysis) -> Self {
        analysis.access.as_ref().err().map_or(Self::Interactive, |because| Self::Needs(*because))
    }

    /// The counter of the reason.
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
