//! Running a statement of an open transaction so that it can be undone and run again, unseen.
//!
//! Two things can become of a statement that would cost its client the whole transaction, through nobody's fault but ours.
//!
//! - At a home that is lent a range of a sequence it meets the end of that; the server refuses to go on.
//! - At READ COMMITTED it writes rows that nobody could tell beforehand ([`crate::classify::foresight`]), which a transaction of
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

use cluster::claims::{Claims, ROW_CLAIMS_MAX};
use cluster::event::{AbortCause, Effect, Event, Reads, Rival};
use cluster::record::Mark;
use sql::Isolation;

use crate::classify::statement_analysis::{Demand, Judged};
use crate::coordinator::count;
use crate::error::Fault;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected};
use crate::session::{Session, Transaction};
use crate::transaction::broken;
use crate::writeset::claims::ClaimsSoFar;

/// The prepared statements that set it, undo what came after it, and release it.
const SET: &str = "onecopy SAVEPOINT \"onecopy guard\"";
const UNDO: &str = "ROLLBACK TO SAVEPOINT \"onecopy guard\"";
const RELEASE: &str = "onecopy RELEASE SAVEPOINT \"onecopy guard\"";
/// Any answer to it will do.
const ALIVE: &str = "SELECT";

/// How often a statement is run again. Each time more is lent, so what draws too much is given up in the end.
const RERUNS_MAX: u32 = 8;
/// Fewer rows are never too many to be told apart.
const LONG_ROWS_MIN: u64 = 64;
/// After so many times a statement waits for all rows of the tables where it was late.
const BY_ROWS_MAX: u32 = 5;

impl Session {
    /// Whether the statement draws, or may, from what the home of the open transaction is lent.
    fn borrows_for(&self, judged: &Judged) -> bool {
        let is_away =
            matches!(&self.transaction, Transaction::Update(update) if update.replica != self.anchor());
        is_away && !self.failed && judged.is_repeatable && !judged.draws().is_empty()
    }

    /// Whether the statement may write rows that are another's by now without its having been told beforehand.
    pub(crate) fn surprises(&self, judged: &Judged) -> bool {
        !self.failed && self.hub().seats.len() > 1 && !judged.is_foreseen()
    }

    fn is_read_committed(&self) -> bool {
        matches!(&self.transaction,
            Transaction::Update(update) if update.options.isolation <= Some(Isolation::ReadCommitted))
    }

    /// A statement has run, or is about to; what it writes may have to be asked for at the end.
    pub(crate) fn note_surprise(&mut self, is_secure: bool) {
        if let Transaction::Update(update) = &mut self.transaction {
            update.has_surprises |= !is_secure;
        }
    }

    /// Before the record is handed over. A transaction with so many rows that they are not told apart asks for their tables: else
    /// all others that have written there meanwhile would lose against it (40001). What was written without its having been asked for is asked for now, or somebody who
    /// has asked for it would lose it. A statement by itself is undone and run again when that is somebody else's; a
    /// transaction waits for him, and then goes on if he rolls back.
    pub(crate) async fn secure_rest(&mut self) -> Result<(), Fault> {
        let has_many_rows = self.has_many_rows(0);
        let Transaction::Update(update) = &mut self.transaction else { return Ok(()) };
        let has_surprises = std::mem::take(&mut update.has_surprises);
        if !has_surprises && !has_many_rows {
            return Ok(());
        }
        let (is_alone, home) = (has_surprises && update.is_alone && !self.client.shown, update.replica);
        match self.secure(Mark::default()).await? {
            None => Ok(()),
            Some((rival, written)) if is_alone => {
                self.again.missed = written;
                Err(self.aborted(AbortCause::Conflict(rival), home))
            }
            Some((_, written)) => {
                self.gate(Reads::Tables([].into()), written, false).await?;
                self.executed();
                // Home has what it waited for, and so it has to be alive after that: see `cluster`'s certification.
                self.own_query(ALIVE).await?;
                Ok(())
            }
        }
    }

    /// What the catalogue says of statements of the open transaction. Those that can be neither foreseen nor undone ask for
    /// whole tables; and so do all when there are so many rows that they will not be told apart.
    pub(crate) async fn judge_inside(&self, demand: &Demand) -> Judged {
        let mut judged = self.judge_update(demand).await;
        judged.is_wide |= self.is_long() || (!judged.is_repeatable && self.surprises(&judged));
        judged
    }

    /// Whether the transaction has come near what is told apart of one.
    fn is_long(&self) -> bool {
        let Transaction::Update(update) = &self.transaction else { return false };
        update.capture.claims.turns_left() == 0 || self.has_many_rows(1)
    }

    /// Whether its rows alone are so many; a row without keys and references counts as `keyless` claims.
    fn has_many_rows(&self, keyless: usize) -> bool {
        let Transaction::Update(update) = &self.transaction else { return false };
        let rows = update.capture.record.rows();
        if rows < LONG_ROWS_MIN {
            return false;
        }
        let catalogue = self.hub().catalogue();
        let claims_of = |table: &sql::Table| table.keys.len() + table.references.len();
        let tables = update.capture.record.tables().iter().filter_map(|id| catalogue.table(*id));
        let a_row = tables.map(claims_of).max().unwrap_or_default().max(keyless) as u64;
        rows * a_row * 2 >= ROW_CLAIMS_MAX as u64
    }

    /// Runs a statement of the open update transaction.
    pub(crate) async fn at_home_guarded(&mut self, judged: &Judged, work: Work<'_>) -> Result<Ended, Fault> {
        let is_surprise = self.surprises(judged);
        let surprises = is_surprise && judged.is_repeatable && self.is_read_committed();
        let mut is_secure = !is_surprise;
        if !surprises && !self.borrows_for(judged) {
            self.note_surprise(is_secure);
            return self.at_home(work, false).await;
        }
        let (out, mark) = (self.client.out.len(), self.record_mark());
        self.client.shown = false;
        let mut ended = self.behind_savepoint(work, surprises, false).await?;
        let (mut ends, mut losses) = (0, 0);
        while !self.client.shown && ends + losses < RERUNS_MAX {
            if ended.is_evicted {
                // Whoever was first has committed, and what is read is waited for.
                losses += 1;
                self.undo(out, mark).await?;
                self.await_rows(judged, Claims::default(), false).await?;
            } else if self.met_end_of_range(&ended, judged, self.last_home, ends > 0) {
                ends += 1;
                self.undo(out, mark).await?;
                if self.lacks_lease(judged).await? {
                    break;
                }
            } else if surprises && ended.error.is_none() {
                let Some((_, written)) = self.secure(mark).await? else {
                    is_secure = true;
                    break;
                };
                losses += 1;
                self.undo(out, mark).await?;
                self.await_rows(judged, written, losses > BY_ROWS_MAX).await?;
            } else {
                break;
            }
            ended = self.behind_savepoint(work, surprises, true).await?;
        }
        self.note_surprise(is_secure);
        self.judged();
        if ended.is_evicted {
            let fault = self.aborted(AbortCause::Conflict(Rival::default()), self.last_home);
            self.step_back().await;
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
        let before = self.rows_captured();
        let is_there = match &mut self.transaction {
            Transaction::Update(update) => std::mem::replace(&mut update.is_guarded, true),
            _ => false,
        };
        if let Some(tenancy) = self.tenancy.as_ref().filter(|_| may_be_evicted) {
            tenancy.guard();
        }
        let ended = self
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
        self.note_written(&ended.command, before);
        self.executed();
        Ok(ended)
    }

    /// The statement at hand must not be cancelled for a refresh any more. That it was to be is forgotten if it came too
    /// late: else a cancel of the client's own would be taken for it later.
    async fn end_guard(&mut self, is_evicted: bool) {
        if let Some(tenancy) = &self.tenancy {
            tenancy.end_guard().await;
        }
        if let Some(server) = self.servers.find(self.last_home).filter(|_| !is_evicted) {
            server.evictions.take(server.running.pid);
        }
    }

    /// Whether the statement stays is decided, or it is undone.
    fn judged(&self) {
        if let Some(tenancy) = &self.tenancy {
            tenancy.judged();
        }
    }

    /// Nothing of the statement is left.
    async fn undo(&mut self, out: usize, mark: Mark) -> Result<(), Fault> {
        self.own_query(UNDO).await?;
        self.judged();
        self.client.take_back(out);
        self.forget_rows(mark);
        count(&self.hub().stats.retried);
        Ok(())
    }

    /// Asks for what was written since the mark. `None` when it is the transaction's own now; else whose it is, and what.
    async fn secure(&mut self, mark: Mark) -> Result<Option<(Rival, Claims)>, Fault> {
        let catalogue = self.hub().catalogue();
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let (nonce, record) = (update.identity.nonce, &mut update.capture.record);
        let (claims, held) = match record.rows_since(mark) {
            Some(rows) => ClaimsSoFar::of_rows(nonce, rows, &catalogue),
            None => (Claims { tables: record.tables().to_vec(), ..Claims::default() }, Claims::default()),
        };
        let mut written = claims.clone();
        written.add(&held);
        let event = Event::Secure { session: self.id, claims, held };
        if let Some(Effect::Secured { rival, .. }) = self.worker.hub.ask(Some(self.id), event) {
            return Ok(rival.map(|rival| (rival, written)));
        }
        // The core has ended the transaction.
        let cause = self.why_aborted();
        let fault = cause.map_or(Fault::Lost(self.last_home), |cause| self.aborted(cause, self.last_home));
        self.step_back().await;
        Err(fault)
    }

    /// Waits for what the statement wrote when it was undone, or for all of the tables.
    async fn await_rows(&mut self, judged: &Judged, written: Claims, by_tables: bool) -> Result<(), Fault> {
        let mut writes = judged.writes(self.id);
        writes.add(&written);
        if by_tables {
            writes = writes.widened();
        }
        self.gate(judged.home_reads(), writes, judged.nowait).await
    }

    /// The client sets or ends savepoints of its own: ours may be gone, or lie under them.
    pub(crate) fn leave_guard(&mut self) {
        if let Transaction::Update(update) = &mut self.transaction {
            update.is_guarded = false;
        }
    }

    fn record_mark(&mut self) -> Mark {
        match &mut self.transaction {
            Transaction::Update(update) => update.capture.record.mark_whole(),
            _ => Mark::default(),
        }
    }

    /// What was captured after the mark was undone.
    pub(crate) fn forget_rows(&mut self, mark: Mark) {
        let Transaction::Update(update) = &mut self.transaction else { return };
        let capture = &mut update.capture;
        capture.record.truncate_to(mark);
        capture.claims.cut(capture.record.elements());
        capture.forget_runs(mark.elements());
    }
}
