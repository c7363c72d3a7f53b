//! The order among update transactions of different homes: which statement may run, and which has to wait.
//!
//! Conflicting transactions of *one* home wait for each other inside their PostgreSQL. Those of different homes would meet
//! only when the changes of one are applied at the home of the other, and then one of them fails. An order makes them wait
//! beforehand. It only avoids failures: certification decides ([`super::version_index`]), so an order that is wrong costs
//! time or an error 40001, and never an anomaly.
//!
//! The protocol tells an order what happens to a transaction; most calls return what may go on because of that ([`Go`]). An
//! order acts on nothing itself.
//!
//! | call | when |
//! |---|---|
//! | [`Ordering::behind`] | a transaction is to begin: where do those run that it would wait for? |
//! | [`Ordering::ask`] | one of its statements wants to run |
//! | [`Ordering::reserve_late`] | a statement has written rows that it did not ask for |
//! | [`Ordering::withdraw`] | the statement that waits is not to run |
//! | [`Ordering::rehome`] | transactions that have not begun get another home |
//! | [`Ordering::appended`] | its version is assigned |
//! | [`Ordering::ended`] | it is over, or can only be rolled back |
//!
//! The other methods tell which transactions wait, and for which.
//!
//! To come: chains of transactions and timestamps, each a file in `order/` and a variant here, and calls for what only they
//! need to hear (that a transaction has finished its statements, that a replica shows a version, that an alarm has rung).
//! For them [`Go`] will grow: let a transaction begin at a home, append it, run it again.

pub mod lock_table;

use std::collections::{BTreeMap, BTreeSet};

use crate::claims::{Claims, Meeting};
use crate::ids::SessionId;
use lock_table::LockTable;

/// The order of one instance.
#[derive(Debug)]
pub enum Ordering {
    /// Statements lock what they may write.
    Statements(LockTable),
}

/// A wish of a transaction, for one of its statements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The index of the replica where the transaction runs.
    pub home: usize,
    /// The rows, groups and tables that it may write, lock or rely on.
    pub claims: Claims,
    /// The request conflicts with others of its own home, too.
    pub is_strict: bool,
}

/// A transaction that has what another one wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Its session.
    pub session: SessionId,
    /// The claims in which the two meet.
    pub meeting: Option<Meeting>,
}

/// A ring of transactions that wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlock {
    /// The session that has to give way: the youngest of those that wait in the order.
    pub victim: SessionId,
    /// The session that waits for the victim.
    pub rival: SessionId,
}

/// Permission to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// The statement of this session that asked last may run.
    Run(SessionId),
}

impl Ordering {
    /// The home of the last transaction that one with these claims would wait for, or that conflicts with it at one home.
    pub fn behind(&self, claims: &Claims) -> Option<usize> {
        match self {
            Self::Statements(locks) => locks.chain(claims),
        }
    }

    /// A statement wants to run. The answer is its own permission, or, if it has to wait, those of others that may pass it.
    pub fn ask(&mut self, session: SessionId, request: Request) -> Vec<Go> {
        match self {
            Self::Statements(locks) => {
                let others = locks.request(session, request);
                let own = (!locks.is_waiting(session)).then_some(session);
                own.into_iter().chain(others).map(Go::Run).collect()
            }
        }
    }

    /// A statement has written what it did not ask for. The transaction has that now, too, unless another one is in its way:
    /// then nothing is changed.
    pub fn reserve_late(&mut self, session: SessionId, request: Request) -> Result<Vec<Go>, Holder> {
        match self {
            Self::Statements(locks) => locks.take(session, request).map(run),
        }
    }

    /// The statement that waits is not to run. The transaction keeps what it has.
    pub fn withdraw(&mut self, session: SessionId) -> Vec<Go> {
        match self {
            Self::Statements(locks) => run(locks.withdraw(session)),
        }
    }

    /// These transactions have not begun, and get another home because theirs is lost.
    pub fn rehome(&mut self, sessions: &[SessionId], home: usize) -> Vec<Go> {
        match self {
            Self::Statements(locks) => run(locks.rehome(sessions, home)),
        }
    }

    /// The version of the session's transaction is assigned. From here on the log orders it.
    pub fn appended(&mut self, session: SessionId) -> Vec<Go> {
        match self {
            Self::Statements(locks) => run(locks.release(session)),
        }
    }

    /// The session's transaction is over, or can only be rolled back.
    pub fn ended(&mut self, session: SessionId) -> Vec<Go> {
        match self {
            Self::Statements(locks) => run(locks.release(session)),
        }
    }

    /// The sessions whose statements wait.
    pub fn waiting(&self) -> Vec<SessionId> {
        match self {
            Self::Statements(locks) => locks.waiting(),
        }
    }

    /// The sessions that a session waits for.
    pub fn rivals(&self, session: SessionId) -> Vec<SessionId> {
        match self {
            Self::Statements(locks) => locks.rivals(session),
        }
    }

    /// The claims in which a session meets one of those that it waits for.
    pub fn meeting(&self, session: SessionId) -> Option<Meeting> {
        match self {
            Self::Statements(locks) => locks.meeting(session),
        }
    }

    /// All that a session holds or wants.
    pub fn claims(&self, session: SessionId) -> Claims {
        match self {
            Self::Statements(locks) => locks.claims(session),
        }
    }

    /// A ring of waits through a session whose statement waits, with the waits inside the servers. A transaction that began
    /// later has a greater `age`.
    pub fn deadlock(
        &self,
        session: SessionId,
        servers: &BTreeMap<SessionId, BTreeSet<SessionId>>,
        age: impl Fn(SessionId) -> u64,
    ) -> Option<Deadlock> {
        match self {
            Self::Statements(locks) => locks.deadlock(session, servers, age),
        }
    }
}

fn run(sessions: Vec<SessionId>) -> Vec<Go> {
    sessions.into_iter().map(Go::Run).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    const FIRST: SessionId = SessionId(1);
    const SECOND: SessionId = SessionId(2);
    const THIRD: SessionId = SessionId(3);

    fn request(home: usize, keys: &[u64]) -> Request {
        let rows = keys.iter().map(|key| (DatabaseId::FIRST.table(1), *key)).collect();
        Request { home, claims: Claims { rows, ..Claims::default() }, is_strict: false }
    }

    #[test]
    fn a_statement_that_waits_runs_when_the_holder_is_appended_or_over() {
        for ends in [Ordering::appended, Ordering::ended] {
            let mut order = Ordering::Statements(LockTable::default());
            assert_eq!(order.ask(FIRST, request(0, &[7])), [Go::Run(FIRST)]);
            assert_eq!(order.ask(SECOND, request(1, &[7])), []);
            assert_eq!((order.waiting(), order.rivals(SECOND)), (vec![SECOND], vec![FIRST]));
            assert_eq!(ends(&mut order, FIRST), [Go::Run(SECOND)]);
        }
    }

    #[test]
    fn a_transaction_that_begins_to_wait_lets_others_pass() {
        let mut order = Ordering::Statements(LockTable::default());
        order.ask(FIRST, request(0, &[1]));
        order.ask(SECOND, request(1, &[2]));
        order.ask(THIRD, request(2, &[1, 3]));
        assert_eq!(order.ask(SECOND, request(1, &[3])), [], "it stands in line behind the third");
        assert_eq!(order.ask(FIRST, request(0, &[2])), [Go::Run(SECOND)], "else they would wait in a ring");
        assert_eq!(order.behind(&request(0, &[2]).claims), Some(0));
        assert_eq!(order.withdraw(FIRST), []);
        assert_eq!(order.ask(FIRST, request(0, &[9])), [Go::Run(FIRST)]);
    }

    #[test]
    fn only_a_session_that_waits_is_looked_at_for_a_deadlock() {
        let mut order = Ordering::Statements(LockTable::default());
        order.ask(FIRST, request(0, &[1]));
        let servers = BTreeMap::from([(FIRST, [SECOND].into()), (SECOND, [FIRST].into())]);
        assert_eq!(order.deadlock(FIRST, &servers, |session| session.0), None);
    }
}
