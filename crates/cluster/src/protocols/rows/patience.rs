//! Patience: how long a transaction that is known as a whole waits for those in its way before it fails after all.
//!
//! Chains make a transaction wait that would fail at REPEATABLE READ or SERIALIZABLE. Those before it may take long, as a
//! declared block does whose client thinks, so the wait is bounded by [`super::Choices::patience_us`]; then the client gets the
//! 40001 that it would have had at once without chains. At READ COMMITTED a wait has no bound but the client's own
//! (`lock_timeout`), because there PostgreSQL never answers 40001.
//!
//! Example: with a patience of 10 s, at REPEATABLE READ, `CALL payment(3, ..)` fails with 40001 if the row of warehouse 3 is
//! still in other hands after 10 s.
//!
//! Invariant: only a transaction that has not begun loses patience, so nothing has to be undone.

use super::apply_batching::Alarm;
use super::{Out, Rows, Transaction};
use crate::event::{AbortCause, Level, Rival};
use crate::ids::SessionId;
use crate::time::Time;

/// The patience unless the operator sets another, in microseconds.
pub const PATIENCE_US: u64 = 10_000_000;

impl Transaction {
    /// When it began to wait, if it is one that can lose patience.
    fn waits_since(&self) -> Option<Time> {
        let can = self.is_fresh && self.seen.is_some() && self.level != Level::ReadCommitted;
        self.pending.as_ref().filter(|_| can).map(|pending| pending.since)
    }
}

impl Rows {
    /// The transaction, which is known as a whole, may have to wait from now on.
    pub(super) fn begins_to_wait(&mut self, session: SessionId, out: &mut Out<'_>) {
        if self.transactions.get(&session).is_some_and(|one| one.waits_since().is_some()) {
            let at = Time { us: out.now.us.saturating_add(self.choices.patience_us) };
            self.set_alarm(Alarm::Patience(session), at, out);
        }
    }

    /// The patience of the session's transaction is over. It fails if it still waits for others.
    pub(super) fn lose_patience(&mut self, session: SessionId, out: &mut Out<'_>) {
        // The alarm may be of an earlier transaction of the session.
        let since = self.transactions.get(&session).and_then(Transaction::waits_since);
        if since.is_none_or(|since| out.now.since_us(since) < self.choices.patience_us) {
            return;
        }
        let rival = Rival {
            meeting: self.order.meeting(session),
            version: None,
            session: self.rivals(session).first().copied(),
        };
        self.conflicts.of(rival.meeting.map(|meeting| meeting.table)).aborts += 1;
        self.abort(session, AbortCause::Impatience(rival), out);
    }
}
