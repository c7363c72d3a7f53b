//! Runs a statement of an open transaction so that Onecopy can roll it back and retry it before the client sees any of
//! its reply.
//!
//! Two events would cost the client its whole transaction, although the client caused neither:
//!
//! - Away from the anchor, the statement reaches the end of a leased range of a sequence. The server rejects it.
//! - At READ COMMITTED, the statement writes rows that Onecopy could not predict ([`crate::classify::prediction`]), and
//!   a transaction of another home has written them, too. One server would let it wait for the other transaction, and
//!   then see the other's changes. So once the rows are known we reserve them. If another home holds one, we roll back
//!   to our savepoint, which frees the rows here, wait, and run the statement again with a new snapshot, as READ
//!   COMMITTED promises. It may write other rows then. After several attempts it waits for whole tables.
//!
//! Such a statement runs after a savepoint of our own, which is sent with it and costs no round trip. The next
//! savepoint releases it, if the client has set none in between. Otherwise it stays until the end of the transaction,
//! where it has no effect.
//!
//! Invariant: a statement is not retried once the client has seen any of its reply.

use cluster::claims::Claims;
use cluster::event::{AbortCause, Rival};
use cluster::record::Mark;

use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::Fault;
use crate::execute::Executor;
use crate::local::count;
use crate::place::holdings::HomeTables;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected, Hold};
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// Statements that set our savepoint, roll back to it, and release it.
const SET: &str = "onecopy SAVEPOINT \"onecopy guard\"";
const UNDO: &str = "ROLLBACK TO SAVEPOINT \"onecopy guard\"";
const RELEASE: &str = "onecopy RELEASE SAVEPOINT \"onecopy guard\"";

/// The number of retries. Each retry requests a larger lease; a statement that draws too many values fails in the end.
const RERUNS_MAX: u32 = 8;
/// After this many conflicts a statement waits for all rows of its tables.
const BY_ROWS_MAX: u32 = 5;

impl View<'_> {
    /// Whether the statement may draw from sequences that the home of the open transaction leases.
    fn draws_from_leases(self, analysis: &StatementAnalysis) -> bool {
        let is_away =
            matches!(&self.txn.state, Transaction::Update(update) if update.replica != self.link.anchor());
        is_away && !self.txn.failed && analysis.execution.is_repeatable && !analysis.draws().is_empty()
    }

    /// Whether the statement may write rows that it has not reserved, and that another transaction may hold.
    pub(crate) fn may_write_unreserved(self, analysis: &StatementAnalysis) -> bool {
        !self.txn.failed && self.link.coordinator().seats.len() > 1 && !analysis.reserves_all_writes()
    }

    /// Analyses statements of the open transaction. Statements that can be neither predicted nor rolled back reserve
    /// whole tables. So do all statements when the transaction has too many rows for the core to tell apart.
    pub(crate) async fn analyse_inside(self, requirements: &Requirements) -> StatementAnalysis {
        let mut analysis = self.analyse_update(requirements).await;
        let is_final = || !analysis.execution.is_repeatable && self.may_write_unreserved(&analysis);
        if self.is_long() || is_final() {
            analysis.reserve_tables();
        }
        analysis
    }

    /// Whether the transaction has nearly as many claims as the core tells apart.
    fn is_long(self) -> bool {
        let Transaction::Update(update) = &self.txn.state else { return false };
        update.capture.claims.turns_left() == 0 || self.has_many_rows(1)
    }

    /// Tells the eviction registry that the statement was rolled back or will stay.
    fn settle_statement(self) {
        if let Some(tenancy) = &self.link.tenancy {
            tenancy.settle_statement();
        }
    }
}

impl Executor<'_> {
    /// Runs a statement of the open update transaction.
    pub(crate) async fn at_home_guarded(
        &mut self,
        analysis: &StatementAnalysis,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        let is_unreserved = self.view().may_write_unreserved(analysis);
        let must_reserve_after =
            is_unreserved && analysis.execution.is_repeatable && self.txn.is_read_committed();
        let mut is_reserved = !is_unreserved;
        if !must_reserve_after && !self.view().draws_from_leases(analysis) {
            self.txn.note_unreserved(is_reserved);
            return self.driver().at_home(work, false).await;
        }
        let (out, mark) = (self.link.client.out.len(), self.txn.record_mark());
        self.link.client.shown = false;
        let mut ended = self.behind_savepoint(work, must_reserve_after, false).await?;
        let (mut ends, mut losses) = (0, 0);
        while !self.link.client.shown && ends + losses < RERUNS_MAX {
            if ended.is_evicted {
                // The other transaction has committed. The statement waits until its reads are fresh.
                losses += 1;
                self.undo(out, mark).await?;
                self.await_rows(analysis, Claims::default(), false).await?;
            } else if self.view().met_end_of_range(&ended, analysis, self.txn.last_home, ends > 0) {
                ends += 1;
                self.undo(out, mark).await?;
                if self.placer().lacks_lease(analysis).await? {
                    break;
                }
            } else if must_reserve_after && ended.error.is_none() {
                let Some((_, written)) = self.committer().reserve_written_since(mark).await? else {
                    is_reserved = true;
                    break;
                };
                losses += 1;
                self.undo(out, mark).await?;
                self.await_rows(analysis, written, losses > BY_ROWS_MAX).await?;
            } else {
                break;
            }
            ended = self.behind_savepoint(work, must_reserve_after, true).await?;
        }
        self.txn.note_unreserved(is_reserved);
        self.view().settle_statement();
        if ended.is_evicted {
            let fault = self.view().aborted(AbortCause::Conflict(Rival::default()), self.txn.last_home);
            self.driver().step_back().await;
            return Err(fault);
        }
        Ok(ended)
    }

    /// Runs a statement after our savepoint. With `is_again`, the savepoint exists already.
    async fn behind_savepoint(
        &mut self,
        work: Work<'_>,
        may_be_evicted: bool,
        is_again: bool,
    ) -> Result<Ended, Fault> {
        let before = self.txn.rows_captured();
        let is_there = match &mut self.txn.state {
            Transaction::Update(update) => std::mem::replace(&mut update.server.has_own_savepoint, true),
            _ => false,
        };
        if let Some(tenancy) = self.link.tenancy.as_ref().filter(|_| may_be_evicted) {
            tenancy.guard();
        }
        let ended = self
            .driver()
            .exchange_home(|server| {
                if is_there && !is_again {
                    server.put_ahead(RELEASE);
                }
                if !is_again {
                    server.put_ahead(SET);
                }
                Expected { hold: Hold::UntilCommit, may_be_evicted, ..work.write(server) }
            })
            .await?;
        if may_be_evicted {
            self.end_guard(ended.is_evicted).await;
        }
        self.txn.note_written(&ended.command, before);
        self.link.executed();
        Ok(ended)
    }

    /// Ends the time in which a refresh may cancel the statement. A request that came too late is dropped, since a
    /// later cancel of the client would be taken for it.
    async fn end_guard(&mut self, is_evicted: bool) {
        if let Some(tenancy) = &self.link.tenancy {
            tenancy.end_guard().await;
        }
        if let Some(server) = self.link.servers.find(self.txn.last_home).filter(|_| !is_evicted) {
            server.take_eviction();
        }
    }

    /// Rolls back to our savepoint, also in the captured rows and the output.
    async fn undo(&mut self, out: usize, mark: Mark) -> Result<(), Fault> {
        self.driver().own_query(UNDO).await?;
        self.view().settle_statement();
        self.link.client.take_back(out);
        self.txn.forget_rows(mark);
        count(&self.link.local().stats.retried);
        Ok(())
    }

    /// Waits for the rows that the statement wrote before it was rolled back, or for all rows of their tables.
    async fn await_rows(
        &mut self,
        analysis: &StatementAnalysis,
        written: Claims,
        by_tables: bool,
    ) -> Result<(), Fault> {
        let mut writes = analysis.writes(self.link.id);
        writes.add(&written);
        if by_tables {
            writes = writes.widened();
        }
        let touches = HomeTables::of(self.view(), analysis).touched();
        self.driver().gate(analysis.home_reads(), touches, writes, analysis.execution.nowait).await
    }
}
