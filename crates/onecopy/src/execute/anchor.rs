//! Handles statements that need the anchor in a transaction that began elsewhere.

use std::collections::BTreeSet;

use cluster::event::{Home, Reads};
use sql::Isolation;

use crate::classify::effects::AsksDraws;
use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::drive::reading::WantedRead;
use crate::error::{Fault, Refusal};
use crate::execute::Executor;
use crate::place::holdings::HomeTables;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::open::Transaction;

impl Executor<'_> {
    /// Moves the transaction to the anchor, if its next statement can run only there, or draws from a sequence without
    /// a lease; or to a replica that holds the tables of that statement. Returns whether the statement is the first one of its transaction there.
    pub(crate) async fn come_to_anchor(
        &mut self,
        analysis: &StatementAnalysis,
        is_first: bool,
    ) -> Result<bool, Fault> {
        let lacks_lease = !is_first && self.placer().lacks_lease(analysis).await?;
        if !lacks_lease && !self.view().is_away_for(analysis) {
            return Ok(false);
        }
        let lacks_only_table = !lacks_lease && analysis.may_leave_anchor;
        if !lacks_only_table {
            self.placer().note_anchor_needed();
        }
        let Transaction::Update(update) = &self.txn.state else { return Ok(false) };
        let (options, boundary) = (update.options, update.boundary);
        let may_move = update.profile.is_movable
            && update.capture.record.is_empty()
            && options.isolation <= Some(Isolation::ReadCommitted)
            && self.txn.savepoints.is_empty()
            && self.link.settings.staged() == 0;
        if !may_move {
            let mut placer = self.placer();
            return Err(if lacks_only_table {
                placer
                    .lose_misplaced(
                        "the transaction runs at a replica that does not hold all tables of this statement",
                    )
                    .await
            } else {
                placer.lose_at_home("the transaction runs at a replica that cannot run this statement").await
            });
        }
        self.driver().roll_back_home().await;
        let mut opening = self.placer().opening(analysis, BTreeSet::new(), lacks_only_table);
        if !lacks_only_table {
            opening.home = Home::Anchor;
        }
        self.placer().open_update(options, opening, boundary).await?;
        Ok(true)
    }

    /// Runs a query of the catalogues at the anchor, beside a transaction that is open elsewhere. A query of tables that the
    /// transaction has not written runs where these are held.
    pub(crate) async fn ask_beside(
        &mut self,
        requirements: &Requirements,
        analysis: &StatementAnalysis,
        work: Work<'_>,
    ) -> Option<Result<Ended, Fault>> {
        let is_whole = !matches!(work, Work::Batch { sync: false, .. });
        if !is_whole || !self.view().is_away_for(analysis) {
            return None;
        }
        if let Some(reads) = HomeTables::of(self.view(), analysis).reads_beside(requirements) {
            return Some(self.read_beside(&reads, analysis, work).await);
        }
        if !analysis.asks_catalogues_only(requirements) {
            return None;
        }
        let anchor = self.link.anchor();
        self.link.count(|stats| &stats.anchor_catalogue);
        Some(self.read_at(&Reads::All, anchor, work).await)
    }

    /// Runs a query at a replica that holds its tables, beside a transaction that is open elsewhere.
    pub(super) async fn read_beside(
        &mut self,
        reads: &Reads,
        analysis: &StatementAnalysis,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        let touches = HomeTables::of(self.view(), analysis).touched();
        let replica = self
            .driver()
            .place_read_of(WantedRead { reads, touches }, None, analysis.generation(), None)
            .await?;
        self.driver().at_replica(replica, work).await
    }

    /// Runs a statement that asks only for drawn values, such as `currval`, where these are known.
    pub(crate) async fn ask_where_drawn(
        &mut self,
        analysis: &StatementAnalysis,
        work: Work<'_>,
    ) -> Option<Result<Ended, Fault>> {
        self.link.servers.draws.is_asked = true;
        if !self.link.servers.recover_draws() {
            return Some(Err(lost_draws().into()));
        }
        let place = self.link.servers.draws.certain_place()?;
        let open_at = match &self.txn.state {
            Transaction::Update(update) => Some(update.replica),
            Transaction::Read(read) => Some(read.replica),
            _ => None,
        };
        let is_whole = !matches!(work, Work::Batch { sync: false, .. });
        if analysis.sequences.asks == AsksDraws::Only && is_whole {
            return match (open_at, &self.txn.state) {
                (None, _) if place == self.link.anchor() => None,
                (Some(at), Transaction::Update(_)) if at == place => {
                    Some(self.driver().at_home(work, false).await)
                }
                (Some(at), _) if at == place => None,
                _ => {
                    // The turn of a transaction that begins with this statement is at another replica.
                    self.link.executed();
                    Some(self.read_at(&Reads::Catalogue, place, work).await)
                }
            };
        }
        open_at.filter(|at| *at != place).map(|_| {
            Err(Refusal::unsupported(
                "currval or lastval in a transaction that runs at another replica than the one where the session drew",
                "Ask with a statement of its own, or use RETURNING; or SET onecopy.sequences = anchor.",
            )
            .into())
        })
    }
}

fn lost_draws() -> Refusal {
    Refusal::unsupported(
        "currval or lastval after the connection on which the session drew was used by others",
        "From now on the session keeps the connection on which it draws. Use RETURNING, or ask in the same transaction.",
    )
}
