//! The term lease: a leader that may have been replaced lets no statement run.
//!
//! For example, a leader sends a confirmation of its term at 10.0 s by its clock, and the answer comes at 10.1 s. With D = 500 ms it may
//! let statements run until 10.5 s. Its process is stopped at 10.2 s and woken at 30 s. Meanwhile another node leads and has answered
//! clients. The first statement after 30 s finds the lease over, so it waits. The next confirmation fails, and the leader steps
//! down. A statement that it let run at 10.19 s is harmless, however late it reads: it began before anything that the successor showed,
//! since a successor waits until D is over ([`super::Timing::lease_is_over_us`]; DESIGN section 6, "A leader answers no read after it
//! could have been replaced").
//!
//! [`Grants`] holds back [`Effect::Execute`] and nothing else: all other effects follow from the log or from events. A kept answer
//! asks [`Grants::may_grant`]. What was held back is let go in its order when the lease is renewed. It may be older by then, and that
//! is harmless, too: it has all versions that were durable when its statement arrived.
//!
//! Invariant: the time is read after the question has arrived, and the lease counts from before the confirmation was sent.

use std::collections::VecDeque;

use super::{Rules, Timing};
use crate::event::Effect;
use crate::ids::SessionId;
use crate::time::Time;

/// A leader's lease, with the statements that wait for it.
#[derive(Debug)]
pub struct Grants {
    timing: Timing,
    rules: Rules,
    /// When the last append or confirmation was sent that succeeded.
    renewed: Time,
    held: VecDeque<Effect>,
}

impl Grants {
    /// The lease of a term whose claim was sent at this time.
    ///
    /// ```
    /// use cluster::nodes::{Rules, Timing, lease::Grants};
    /// use cluster::time::Time;
    ///
    /// let mut grants = Grants::new(Timing::default(), Rules::default(), Time { us: 0 });
    /// assert!(grants.may_grant(Time { us: 499_999 }));
    /// assert!(!grants.may_grant(Time { us: 500_000 }));
    /// assert!(grants.renewed(Time { us: 400_000 }, Time { us: 600_000 }).is_empty(), "nothing waited");
    /// assert!(grants.may_grant(Time { us: 899_999 }));
    /// ```
    pub fn new(timing: Timing, rules: Rules, claimed: Time) -> Self {
        Self { timing, rules, renewed: claimed, held: VecDeque::new() }
    }

    /// Whether a statement may run, or a kept answer be given, at this moment.
    pub fn may_grant(&self, now: Time) -> bool {
        !self.rules.grants_need_a_lease || now.us < self.renewed.us.saturating_add(self.timing.lease_us)
    }

    /// When the lease ends, unless it is renewed.
    pub fn ends(&self) -> Time {
        self.renewed.after_us(self.timing.lease_us)
    }

    /// An append, or a confirmation, that was sent at this time has succeeded. Returns the statements that may run now.
    pub fn renewed(&mut self, sent: Time, now: Time) -> Vec<Effect> {
        self.renewed = self.renewed.max(sent);
        if self.may_grant(now) { self.held.drain(..).collect() } else { Vec::new() }
    }

    /// Takes an effect of the core. Returns it, unless it has to wait for the lease.
    pub fn pass(&mut self, effect: Effect, now: Time) -> Option<Effect> {
        let is_grant = matches!(effect, Effect::Execute { .. });
        if is_grant && (!self.held.is_empty() || !self.may_grant(now)) {
            self.held.push_back(effect);
            return None;
        }
        // What ends the transaction makes the grant of its statement void.
        if let Some(session) = effect.session() {
            self.drop_of(session);
        }
        Some(effect)
    }

    /// The session has gone on without its statement, or is lost.
    pub fn drop_of(&mut self, session: SessionId) {
        self.held.retain(|effect| effect.session() != Some(session));
    }

    /// How many statements wait.
    pub fn waiting(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::AbortCause;
    use crate::ids::{Incarnation, ReplicaId, Version};

    const D: u64 = 500_000;

    fn grants() -> Grants {
        Grants::new(Timing::default(), Rules::default(), Time { us: 0 })
    }

    fn execute(session: u64) -> Effect {
        let (replica, incarnation, applied) = (ReplicaId(0), Incarnation(1), Version::ZERO);
        Effect::Execute { session: SessionId(session), replica, incarnation, identity: None, applied }
    }

    #[test]
    fn statements_wait_in_order_when_the_lease_is_over() {
        let mut grants = grants();
        assert!(grants.pass(execute(1), Time { us: D - 1 }).is_some());
        for session in [2, 3] {
            assert!(grants.pass(execute(session), Time { us: D }).is_none());
        }
        assert!(grants.renewed(Time { us: 1 }, Time { us: D + 2 }).is_empty(), "it is over again");
        let let_go = grants.renewed(Time { us: D }, Time { us: D + 3 });
        let sessions: Vec<_> = let_go.iter().filter_map(Effect::session).collect();
        assert_eq!(sessions, [SessionId(2), SessionId(3)]);
    }

    #[test]
    fn an_older_confirmation_that_is_answered_later_takes_nothing_back() {
        let mut grants = grants();
        grants.renewed(Time { us: 300 }, Time { us: 400 });
        grants.renewed(Time { us: 200 }, Time { us: 500 });
        assert!(grants.may_grant(Time { us: 299 + D }));
    }

    #[test]
    fn a_grant_that_waits_ends_with_its_transaction() {
        let mut grants = grants();
        grants.pass(execute(1), Time { us: D });
        let abort = Effect::Abort { session: SessionId(1), cause: AbortCause::HomeLost };
        assert!(grants.pass(abort, Time { us: D }).is_some());
        assert_eq!(grants.waiting(), 0);
    }

    /// DESIGN section 6: "it stops at the end of its lease minus clock error".
    #[test]
    fn design_6_a_successor_outwaits_a_slow_clock_by_a_fast_one() {
        let timing = Timing::default();
        // Real time is what the successor's clock shows / 1.05, and what the leader's shows / 0.95.
        assert!(timing.lease_is_over_us() * 100 / 105 >= timing.lease_us * 100 / 95);
        assert!(
            timing.lease_us * 105 / 100 * 100 / 105 < timing.lease_us * 100 / 95,
            "D * 1.05 is too short"
        );
    }
}
