//! What draws in an open transaction at a home that is lent a range does not hear of the range's end.
//!
//! The server refuses to go past the end, and by that the whole transaction is lost, which could be nobody's fault but ours.
//! So each statement there that may draw runs after a savepoint of our own, which goes with it and costs no round trip. When
//! it meets the end it is undone, unless the client has seen something of it, the next range is waited for, and it is run
//! again.
//!
//! A savepoint is released when the next one is set, if nothing of the client's lies between; else it stays for what is
//! left of the transaction, which nobody can see.

use cluster::record::Mark;

use super::demand::Judged;
use super::fault::Fault;
use super::relay::{Ended, Expected};
use super::session::{Session, Transaction};
use super::work::Work;

/// The prepared statements that set it, undo what came after it, and release it.
const SET: &str = "onecopy SAVEPOINT \"onecopy draws\"";
const UNDO: &[u8] = b"ROLLBACK TO SAVEPOINT \"onecopy draws\"";
const RELEASE: &str = "onecopy RELEASE SAVEPOINT \"onecopy draws\"";

/// How often a statement is run again. Each time more is lent, so what draws too much is given up in the end.
const RERUNS_MAX: u32 = 8;

impl Session {
    /// Whether the statement draws, or may, from what the home of the open transaction is lent.
    fn borrows_for(&self, judged: &Judged) -> bool {
        let is_away =
            matches!(&self.transaction, Transaction::Update(update) if update.replica != self.anchor());
        is_away && !self.failed && !judged.draws().is_empty()
    }

    /// Runs a statement of the open update transaction.
    pub(crate) async fn at_home_drawing(&mut self, judged: &Judged, work: Work<'_>) -> Result<Ended, Fault> {
        if !self.borrows_for(judged) {
            return self.at_home(work, false).await;
        }
        let (out, mark) = (self.client.out.len(), self.record_mark());
        self.client.shown = false;
        let mut ended = self.at_home_guarded(work).await;
        for rerun in 0..RERUNS_MAX {
            let is_end = |ended: &Ended| self.met_end_of_range(ended, judged, self.last_home, rerun > 0);
            if self.client.shown || !ended.as_ref().is_ok_and(is_end) {
                break;
            }
            self.own_query(UNDO).await?;
            self.client.out.truncate(out);
            self.forget_rows(mark);
            if self.lacks_lease(judged).await {
                break;
            }
            ended = self.at_home(work, true).await;
        }
        ended
    }

    async fn at_home_guarded(&mut self, work: Work<'_>) -> Result<Ended, Fault> {
        let before = self.rows_captured();
        let releases = match &mut self.transaction {
            Transaction::Update(update) => std::mem::replace(&mut update.is_guarded, true),
            _ => false,
        };
        let ended = self
            .exchange_home(|server| {
                if releases {
                    server.put_ahead(RELEASE);
                }
                server.put_ahead(SET);
                Expected { hold: true, ..work.write(server) }
            })
            .await?;
        self.note_written(&ended.command, before);
        self.executed();
        Ok(ended)
    }

    /// The client sets or ends savepoints of its own: ours may be gone, or lie under them.
    pub(crate) fn leave_guard(&mut self) {
        if let Transaction::Update(update) = &mut self.transaction {
            update.is_guarded = false;
        }
    }

    fn record_mark(&self) -> Mark {
        match &self.transaction {
            Transaction::Update(update) => update.capture.record.mark(),
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
