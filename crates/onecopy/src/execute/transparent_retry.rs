//! Running a statement of an open transaction so that it can be undone and run again, unseen.
//!
//! Two things can become of a statement that would cost its client the whole transaction, through nobody's fault but ours.
//!
//! - At a home that is lent a range of a sequence it meets the end of that; the server refuses to go on.
//! - At READ COMMITTED it writes rows that nobody could tell beforehand ([`crate::classify::prediction`]), which a transaction of
//!   another home has written, too. On one server it would have waited for that one, and then seen what it has done. So when
//!   its rows are known they are asked for; and if they are another's, it is undone, which frees them here, waits for them
//!   like any other statement, and is run again with a snapshot of then, which is what READ COMMITTED promises. What it
//!   writes then may be something else; after some times it waits for whole tables.
//!
//! So such a statement runs after a savepoint of our own, which goes with it and costs no round trip. A savepoint is released
//! when the next one is set, if nothing of the client's lies between; else it stays for what is left of the transaction,
//! which nobody can see.
//!
//! Invariant: what the client has seen something of is not run again.

use cluster::claims::Claims;
use cluster::event::{AbortCause, Rival};
use cluster::record::Mark;

use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::Fault;
use crate::execute::Executor;
use crate::local::count;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected};
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// The prepared statements that set it, undo what came after it, and release it.
const SET: &str = "onecopy SAVEPOINT \"onecopy guard\"";
const UNDO: &str = "ROLLBACK TO SAVEPOINT \"onecopy guard\"";
const RELEASE: &str = "onecopy RELEASE SAVEPOINT \"onecopy guard\"";

/// How often a statement is run again. Each time more is lent, so what draws too much is given up in the end.
const RERUNS_MAX: u32 = 8;
/// After so many times a statement waits for all rows of the tables where it was late.
const BY_ROWS_MAX: u32 = 5;

impl View<'_> {
    /// Whether the statement draws, or may, from what the home of the open transaction is lent.
    fn draws_from_leases(self, analysis: &StatementAnalysis) -> bool {
        let is_away =
            matches!(&self.txn.state, Transaction::Update(update) if update.replica != self.link.anchor());
        is_away && !self.txn.failed && analysis.execution.is_repeatable && !analysis.draws().is_empty()
    }

    /// Whether the statement may write rows that are another's by now without its having been told beforehand.
    pub(crate) fn may_write_unreserved(self, analysis: &StatementAnalysis) -> bool {
        !self.txn.failed && self.link.coordinator().seats.len() > 1 && !analysis.reserves_all_writes()
    }

    /// What the catalogue says of statements of the open transaction. Those that can be neither foreseen nor undone ask for
    /// whole tables; and so do all when there are so many rows that they will not be told apart.
    pub(crate) async fn analyse_inside(self, requirements: &Requirements) -> StatementAnalysis {
        let mut analysis = self.analyse_update(requirements).await;
        let is_final = || !analysis.execution.is_repeatable && self.may_write_unreserved(&analysis);
        if self.is_long() || is_final() {
            analysis.reserve_tables();
        }
        analysis
    }

    /// Whether the transaction has come near what is told apart of one.
    fn is_long(self) -> bool {
        let Transaction::Update(update) = &self.txn.state else { return false };
        update.capture.claims.turns_left() == 0 || self.has_many_rows(1)
    }

    /// Whether the statement stays is decided, or it is undone.
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
                // Whoever was first has committed, and what is read is waited for.
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
                let Some((_, written)) = self.committer().secure(mark).await? else {
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

    /// Runs it behind a savepoint, which is there already if it `is_again`.
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
                Expected { hold: true, may_be_evicted, ..work.write(server) }
            })
            .await?;
        if may_be_evicted {
            self.end_guard(ended.is_evicted).await;
        }
        self.txn.note_written(&ended.command, before);
        self.link.executed();
        Ok(ended)
    }

    /// The statement at hand must not be cancelled for a refresh any more. That it was to be is forgotten if it came too
    /// late: else a cancel of the client's own would be taken for it later.
    async fn end_guard(&mut self, is_evicted: bool) {
        if let Some(tenancy) = &self.link.tenancy {
            tenancy.end_guard().await;
        }
        if let Some(server) = self.link.servers.find(self.txn.last_home).filter(|_| !is_evicted) {
            server.take_eviction();
        }
    }

    /// Nothing of the statement is left.
    async fn undo(&mut self, out: usize, mark: Mark) -> Result<(), Fault> {
        self.driver().own_query(UNDO).await?;
        self.view().settle_statement();
        self.link.client.take_back(out);
        self.txn.forget_rows(mark);
        count(&self.link.local().stats.retried);
        Ok(())
    }

    /// Waits for what the statement wrote when it was undone, or for all of the tables.
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
        self.driver().gate(analysis.home_reads(), writes, analysis.execution.nowait).await
    }
}
