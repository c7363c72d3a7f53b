//! Names the session that blocked or aborted a transaction, in the detail of the error
//! ([`crate::transaction::conflict_detail`]).

use cluster::claims::Meeting;
use cluster::event::AbortCause;
use cluster::ids::ReplicaId;
use cluster::protocols::Waiting;
use wire::sqlstate;

use crate::classify::statement_analysis::StatementAnalysis;
use crate::drive::Driver;
use crate::error::{Fault, Refusal};
use crate::relay::Ended;
use crate::transaction::conflict_detail::{add_detail, is_held, key_of, waited, was_first, with_capital};
use crate::transaction::view::View;

impl View<'_> {
    /// The error that the client gets when the core has aborted its transaction.
    pub(crate) fn aborted(self, cause: AbortCause, home: ReplicaId) -> Fault {
        const HINT: &str = "Run the transaction again.";
        let (code, what, detail) = match cause {
            AbortCause::HomeLost => return Fault::Lost(home),
            AbortCause::OutcomeForgotten => {
                let text = "the outcome of the transaction cannot be told: the log was trimmed beyond it while \
                     this node had no leader";
                let hint = "Look whether its changes are there before you repeat it.";
                return Fault::Fatal(Refusal::new(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text, hint));
            }
            AbortCause::Conflict(rival) => (
                sqlstate::SERIALIZATION_FAILURE,
                "could not serialize access due to concurrent update",
                was_first(self.place_of(rival.meeting), rival),
            ),
            AbortCause::NotHeld => (
                sqlstate::SERIALIZATION_FAILURE,
                "could not go on: the transaction needs a table that its replica does not hold",
                None,
            ),
            AbortCause::Impatience(rival) => (
                sqlstate::SERIALIZATION_FAILURE,
                "could not serialize access: waited for others too long",
                is_held(self.place_of(rival.meeting), rival.session),
            ),
            AbortCause::Deadlock(rival) => (
                sqlstate::DEADLOCK_DETECTED,
                "deadlock detected",
                waited(self.place_of(rival.meeting), rival.session),
            ),
        };
        let refusal = Refusal::new(code, what, HINT);
        let refusal = match detail {
            Some(detail) => refusal.about(detail),
            None => refusal,
        };
        // One that has waited in vain is not run again unseen, which would be another wait.
        if matches!(cause, AbortCause::Impatience(_)) {
            Fault::Refused(refusal)
        } else {
            Fault::Rival(refusal)
        }
    }

    /// Words such as `key (id)=(7) of table "t"`, as far as they are known.
    fn place_of(self, meeting: Option<Meeting>) -> Option<String> {
        let catalogue = self.link.database().catalogue();
        let meeting = meeting?;
        let table = &catalogue.table(meeting.table)?.name;
        let key = key_of(meeting, self.txn.named_rows.0.iter(), &catalogue);
        Some(
            key.map_or_else(|| format!("table \"{table}\""), |key| format!("key {key} of table \"{table}\"")),
        )
    }
}

impl Driver<'_> {
    /// The error of a NOWAIT statement, if transactions of other homes block it.
    pub(crate) async fn must_wait(&self, nowait: bool) -> Option<Refusal> {
        let waiting = if nowait { self.wait_of_own().await? } else { return None };
        let catalogue = self.link.database().catalogue();
        let table = waiting.meeting.and_then(|meeting| catalogue.table(meeting.table));
        let what = table.map_or_else(String::new, |table| format!(" on row in relation \"{}\"", table.name));
        let refusal = Refusal::plain(sqlstate::LOCK_NOT_AVAILABLE, format!("could not obtain lock{what}"));
        Some(self.name_obstacle(&waiting, refusal))
    }

    /// Adds to a refusal the transaction of another home for which the statement waits, if there is one.
    pub(crate) async fn with_obstacle(&self, refusal: Refusal) -> Refusal {
        match self.wait_of_own().await {
            Some(waiting) => self.name_obstacle(&waiting, refusal),
            None => refusal,
        }
    }

    async fn wait_of_own(&self) -> Option<Waiting> {
        self.link.coordinator().core.wait_of(self.link.id).await
    }

    fn name_obstacle(&self, waiting: &Waiting, refusal: Refusal) -> Refusal {
        match (self.view().place_of(waiting.meeting), waiting.rivals.first()) {
            (Some(place), Some(holder)) => {
                refusal.about(format!("{} is held by session {holder}.", with_capital(&place)))
            }
            _ => refusal,
        }
    }

    /// Completes the error of a server that refused to overwrite a row written after the transaction's snapshot: adds
    /// which session wrote it. It does so only if nothing was sent to the client since the output had this length.
    pub(crate) async fn explain_loss(&mut self, ended: &Ended, analysis: &StatementAnalysis, mark: usize) {
        if ended.sqlstate() != Some(sqlstate::SERIALIZATION_FAILURE.as_bytes()) || self.link.client.shown {
            return;
        }
        let writes = analysis.writes(self.link.id);
        let writer = self.link.coordinator().core.earlier_writer(self.link.id, writes).await;
        let Some(rival) = writer else { return };
        if let Some(detail) = was_first(self.view().place_of(rival.meeting), rival) {
            add_detail(&mut self.link.client.out, mark, &detail);
        }
    }
}
