//! How the open update transaction of a session gives way to a refresh: by its statement alone, or as a whole.
//!
//! The watchdog asks for sessions of its own node ([`super::watchdog`]). A node asks for its sessions when the agent of another
//! node has found them in the way ([`crate::replica::errands`]). For example, a backend blocks the refresh directly, and its statement
//! can be undone alone: it is cancelled, and the session runs it again behind the applied records.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::coordinator::evictions::{Cancelling, Evictions};

/// How long a read or another backend may block the applier before it has to give way.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// A backend with an open update transaction that is in the way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocker {
    pub(crate) pid: i32,
    /// Not through another backend.
    pub(crate) is_direct: bool,
    /// For longer than the patience of a refresh.
    pub(crate) is_late: bool,
}

/// What has to give way.
#[derive(Debug)]
pub(crate) enum GiveWay {
    /// Nothing for now.
    NotYet,
    /// The statement, whose cancel is announced as long as this lives.
    Statement(Cancelling),
    /// The transaction: this function of the server ends it.
    Transaction(&'static str),
}

/// Remembers which transactions were asked to give way.
#[derive(Debug, Default)]
pub(crate) struct GivingWay {
    asked: BTreeMap<i32, Instant>,
}

impl GivingWay {
    /// What has to give way at this backend now.
    pub(crate) fn decide(&mut self, evictions: &Evictions, blocker: Blocker) -> GiveWay {
        let Blocker { pid, is_direct, is_late } = blocker;
        // An indirect blocker may well end soon, unless it waits for this very refresh.
        let is_soon = is_direct && !is_late;
        if is_soon && evictions.is_judged(pid) {
            return GiveWay::NotYet;
        }
        if let Some(under_way) = is_soon.then(|| evictions.begin_cancel(pid)).flatten() {
            return GiveWay::Statement(under_way);
        }
        if !is_direct && !is_late {
            return GiveWay::NotYet;
        }
        // A session that would lose more than the transaction rolls back as soon as it hears of the conflict, unless it waits for its
        // client. So its backend is first cancelled, and ended only later.
        if !evictions.holds(pid) {
            return GiveWay::Transaction("pg_terminate_backend");
        }
        match self.asked.get(&pid) {
            Some(asked) if asked.elapsed() < PATIENCE => GiveWay::NotYet,
            Some(_) => GiveWay::Transaction("pg_terminate_backend"),
            None => {
                self.asked.insert(pid, Instant::now());
                GiveWay::Transaction("pg_cancel_backend")
            }
        }
    }

    /// Forgets backends that were asked long ago.
    pub(crate) fn forget_old(&mut self) {
        self.asked.retain(|_, asked| asked.elapsed() < PATIENCE * 10);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::ids::SessionId;

    use super::*;
    use crate::coordinator::evictions::Occupant;

    const PID: i32 = 7;

    fn function(what: &GiveWay) -> &'static str {
        match what {
            GiveWay::NotYet => "nothing",
            GiveWay::Statement(_) => "its statement",
            GiveWay::Transaction(function) => function,
        }
    }

    #[test]
    fn a_transaction_gives_way_by_its_statement_if_that_is_enough() {
        let (evictions, mut giving_way) = (Arc::<Evictions>::default(), GivingWay::default());
        let tenancy = evictions.move_in(PID, Occupant::Session(SessionId(1)));
        let mut decide = |is_direct, is_late| {
            let blocker = Blocker { pid: PID, is_direct, is_late };
            function(&giving_way.decide(&evictions, blocker)).to_owned()
        };
        assert_eq!(decide(false, false), "nothing", "what it waits for may end soon");
        tenancy.guard();
        assert_eq!(decide(true, false), "its statement");
        assert_eq!(decide(true, true), "pg_terminate_backend", "its statement was not all that blocks");
        tenancy.guard();
        tenancy.hold();
        assert_eq!(decide(true, true), "pg_cancel_backend", "its state may be kept");
        assert_eq!(decide(true, true), "nothing", "it has been asked just now");
    }

    #[tokio::test]
    async fn a_statement_that_is_about_to_be_judged_is_left_alone() {
        let (evictions, mut giving_way) = (Arc::<Evictions>::default(), GivingWay::default());
        let tenancy = evictions.move_in(PID, Occupant::Session(SessionId(1)));
        tenancy.guard();
        tenancy.end_guard().await;
        let blocker = |is_late| Blocker { pid: PID, is_direct: true, is_late };
        assert_eq!(function(&giving_way.decide(&evictions, blocker(false))), "nothing");
        assert_eq!(function(&giving_way.decide(&evictions, blocker(true))), "pg_terminate_backend");
    }
}
