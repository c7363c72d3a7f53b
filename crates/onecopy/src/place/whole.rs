//! Transactions that are known as a whole before they begin, so that they can wait for others beforehand.
//!
//! Example: `CALL payment(3, ..)` by itself writes the rows of warehouse 3, and nothing follows it. Under protocol `gargamel`, or
//! after `SET onecopy.ordering = chains`, the core lets it begin when all transactions are over with which it may conflict
//! ([`cluster::parts::order::predicted`]). So it does not fail with 40001 at REPEATABLE READ.
//!
//! Known are a statement outside of a transaction block, statements that came together in one query string to the end of their
//! transaction, and a block whose accesses the client has declared, or that began as others did whose accesses were all
//! predicted. Nothing else is: later statements of a block may do anything.
//!
//! Invariant: a wrong prediction costs time or 40001 only. Certification sees what was written, not what was predicted.

use cluster::claims::Claims;
use cluster::event::{Home, Reads, Whole};
use sql::accesses::Accesses;

use super::home_choice::PlaceDecision;
use crate::classify::effects::Verbs;
use crate::classify::footprint::{forecast, relied_on};
use crate::classify::statement_analysis::StatementAnalysis;
use crate::transaction::profile::{Origin, Prediction};
use crate::transaction::view::View;

/// A learned prediction counts as known if so many of a thousand transactions with the same beginning did what was predicted.
const SURE: u32 = 900;

/// All that a statement outside of a transaction block does, if that can be bounded and the session waits in chains.
pub(super) fn whole_alone(
    view: View<'_>,
    analysis: &StatementAnalysis,
    opening: &PlaceDecision,
) -> Option<Whole> {
    if !view.link.waits_in_chains() || opening.writes.everything {
        return None;
    }
    let reads = match (&analysis.touched, analysis.home_reads()) {
        (Some(touched), _) => relied_on(touched, &analysis.catalogue),
        (None, Reads::Tables(tables)) => Claims { tables: tables.to_vec(), ..Claims::default() },
        (None, Reads::Catalogue) => Claims::default(),
        (None, Reads::Rows(_) | Reads::All) => return None,
    };
    let is_sure = analysis.reserves_all_writes();
    let is_performable = is_performable(view, analysis, opening);
    Some(Whole { writes: opening.writes.clone(), reads, is_sure, is_performable })
}

/// Whether another replica can execute the statement, too, with no other effect than the rows that it changes: it draws from no
/// sequence and leaves nothing on the connection. One that tells when its transaction began would change other rows there. It need not be sure
/// which rows these are.
fn is_performable(view: View<'_>, analysis: &StatementAnalysis, opening: &PlaceDecision) -> bool {
    view.link.performs_elsewhere()
        && opening.home != Home::Anchor
        && opening.draws.is_empty()
        && !opening.asks_draws
        && analysis.draws().is_empty()
        && analysis.routings.iter().all(|routing| !routing.transaction_time)
        && !analysis.may_leave_traces()
        && analysis.execution.verbs != Verbs::Any
        && view.link.settings.staged() == 0
}

/// All that statements will do that came together to the end of their transaction.
pub(super) fn whole_together(view: View<'_>, opening: &PlaceDecision) -> Option<Whole> {
    if !view.link.waits_in_chains() || opening.writes.everything {
        return None;
    }
    whole_by(view, opening, &accesses_together(view)?)
}

/// All that a transaction block will do, if its statements came together, it was declared, or is predicted with confidence.
pub(super) fn whole_block(view: View<'_>, opening: &PlaceDecision) -> Option<Whole> {
    if !view.link.waits_in_chains() || opening.writes.everything {
        return None;
    }
    if let Some(accesses) = accesses_together(view) {
        return whole_by(view, opening, &accesses);
    }
    let Prediction { accesses, origin } = view.prediction()?;
    let is_sure = match origin {
        Origin::Declared => true,
        Origin::WorkloadStats { confidence, .. } => confidence >= SURE,
    };
    if is_sure { whole_by(view, opening, &accesses) } else { None }
}

/// All accesses of the transaction that is about to open, if its statements came together and can be bounded.
pub(super) fn accesses_together(view: View<'_>) -> Option<Accesses> {
    let catalogue = view.link.database().catalogue();
    let together = &view.txn.txn_profile.together;
    let mut all = Accesses::default();
    for sent in together {
        all.add(sent.statement().outline(&catalogue).bind(&sent.arguments(&[])));
    }
    (!together.is_empty() && all.unbounded.is_none()).then_some(all)
}

/// A transaction with these accesses, unless they cannot be bounded.
fn whole_by(view: View<'_>, opening: &PlaceDecision, accesses: &Accesses) -> Option<Whole> {
    let catalogue = view.link.database().catalogue();
    let mut writes = forecast(accesses, view.link.id.0, &catalogue);
    writes.add(&opening.writes);
    let reads = relied_on(accesses, &catalogue);
    (!writes.everything).then_some(Whole { writes, reads, ..Whole::default() })
}
