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
//! | [`Ordering::behind`], [`Ordering::behind_whole`] | a transaction is to begin: where do those run that it would wait for? |
//! | [`Ordering::ask`], [`Ordering::ask_whole`] | one of its statements wants to run; or its first one, and all of it is known |
//! | [`Ordering::reserve_late`] | a statement has written rows that it did not ask for |
//! | [`Ordering::withdraw`] | the statement that waits is not to run |
//! | [`Ordering::rehome`] | transactions that have not begun get another home |
//! | [`Ordering::appended`] | its version is assigned |
//! | [`Ordering::ended`] | it is over, or can only be rolled back |
//!
//! The other methods tell which transactions wait, and for which.
//!
//! To come: timestamps, a file in `order/` and a variant here, and calls for what only they need to hear (that a transaction
//! has finished its statements, that an alarm has rung). For them [`Go`] will grow: let a transaction begin at a home, append
//! it, run it again.

pub mod lock_table;
pub mod predicted;
mod rings;

use std::collections::{BTreeMap, BTreeSet};

use crate::claims::{Claims, Meeting};
use crate::ids::SessionId;
use predicted::Predicted;

/// The order of one instance.
#[derive(Debug)]
pub enum Ordering {
    /// What is predicted is waited for: statements lock what they may write, whole transactions stand in chains.
    Predicted(Box<Predicted>),
    /// No statement waits. Transactions that conflict fail in certification.
    Nothing,
}

/// A wish of a transaction, for one of its statements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The index of the replica where the transaction runs.
    pub home: usize,
    /// The rows, groups and tables that it may write, lock or rely on.
    pub claims: Claims,
    /// The transactions that it may have to wait for.
    pub scope: Scope,
}

/// Which of the requests with claims in common exclude each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those of other homes: at one home PostgreSQL's own locks do it.
    BetweenHomes,
    /// Those of its own home as well.
    Everywhere,
    /// The same, but no other request of this scope: [`predicted`] has ordered these among themselves.
    Whole,
}

impl Scope {
    /// Whether a request of this scope excludes one of the other scope.
    fn meets(self, other: Self, is_same_home: bool) -> bool {
        match (self, other) {
            (Self::Whole, Self::Whole) => false,
            (Self::BetweenHomes, Self::BetweenHomes) => !is_same_home,
            _ => true,
        }
    }
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
        self.predicted().and_then(|order| order.behind(claims))
    }

    /// The same for a transaction that is known as a whole.
    pub fn behind_whole(&self, claims: &Claims) -> Option<usize> {
        self.predicted().and_then(|order| order.behind_whole(claims))
    }

    /// A statement wants to run. The answer is its own permission, or, if it has to wait, those of others that may pass it.
    pub fn ask(&mut self, session: SessionId, request: Request) -> Vec<Go> {
        match self {
            Self::Predicted(order) => order.ask(session, request),
            Self::Nothing => vec![Go::Run(session)],
        }
    }

    /// A transaction that is known as a whole wants to run its first statement. The claims are those of all of it.
    pub fn ask_whole(&mut self, session: SessionId, home: usize, claims: Claims) -> Vec<Go> {
        match self {
            Self::Predicted(order) => order.ask_whole(session, home, claims),
            Self::Nothing => vec![Go::Run(session)],
        }
    }

    /// A statement has written what it did not ask for. The transaction has that now, too, unless another one is in its way:
    /// then nothing is changed.
    pub fn reserve_late(&mut self, session: SessionId, request: Request) -> Result<Vec<Go>, Holder> {
        match self {
            Self::Predicted(order) => order.reserve_late(session, request),
            Self::Nothing => Ok(Vec::new()),
        }
    }

    /// The statement that waits is not to run. The transaction keeps what it has.
    pub fn withdraw(&mut self, session: SessionId) -> Vec<Go> {
        self.change(|order| order.withdraw(session))
    }

    /// These transactions have not begun, and get another home because theirs is lost.
    pub fn rehome(&mut self, sessions: &[SessionId], home: usize) -> Vec<Go> {
        self.change(|order| order.rehome(sessions, home))
    }

    /// The version of the session's transaction is assigned. From here on the log orders it.
    pub fn appended(&mut self, session: SessionId) -> Vec<Go> {
        self.change(|order| order.over(session))
    }

    /// The session's transaction is over, or can only be rolled back.
    pub fn ended(&mut self, session: SessionId) -> Vec<Go> {
        self.change(|order| order.over(session))
    }

    /// The sessions whose statements wait.
    pub fn waiting(&self) -> Vec<SessionId> {
        self.predicted().map(Predicted::waiting).unwrap_or_default()
    }

    /// The sessions that a session waits for.
    pub fn rivals(&self, session: SessionId) -> Vec<SessionId> {
        self.predicted().map(|order| order.rivals(session)).unwrap_or_default()
    }

    /// The claims in which a session meets one of those that it waits for.
    pub fn meeting(&self, session: SessionId) -> Option<Meeting> {
        self.predicted().and_then(|order| order.meeting(session))
    }

    /// All that a session holds or wants.
    pub fn claims(&self, session: SessionId) -> Claims {
        self.predicted().map(|order| order.claims(session)).unwrap_or_default()
    }

    /// A ring of waits through a session whose statement waits, with the waits inside the servers. A transaction that began
    /// later has a greater `age`.
    pub fn deadlock(
        &self,
        session: SessionId,
        servers: &BTreeMap<SessionId, BTreeSet<SessionId>>,
        age: impl Fn(SessionId) -> u64,
    ) -> Option<Deadlock> {
        self.predicted().and_then(|order| order.deadlock(session, servers, age))
    }

    /// The chains of whole transactions, for operators.
    pub fn predicted(&self) -> Option<&Predicted> {
        match self {
            Self::Predicted(order) => Some(order.as_ref()),
            Self::Nothing => None,
        }
    }

    fn change(&mut self, act: impl FnOnce(&mut Predicted) -> Vec<Go>) -> Vec<Go> {
        match self {
            Self::Predicted(order) => act(order),
            Self::Nothing => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::predicted::Waits;
    use super::*;
    use crate::ids::DatabaseId;

    const FIRST: SessionId = SessionId(1);
    const SECOND: SessionId = SessionId(2);
    const THIRD: SessionId = SessionId(3);

    fn request(home: usize, keys: &[u64]) -> Request {
        let rows = keys.iter().map(|key| (DatabaseId::FIRST.table(1), *key)).collect();
        Request { home, claims: Claims { rows, ..Claims::default() }, scope: Scope::BetweenHomes }
    }

    #[test]
    fn a_statement_that_waits_runs_when_the_holder_is_appended_or_over() {
        for ends in [Ordering::appended, Ordering::ended] {
            let mut order =
                Ordering::Predicted(Box::new(Predicted::new(Waits { of_merges: true, of_splits: true })));
            assert_eq!(order.ask(FIRST, request(0, &[7])), [Go::Run(FIRST)]);
            assert_eq!(order.ask(SECOND, request(1, &[7])), []);
            assert_eq!((order.waiting(), order.rivals(SECOND)), (vec![SECOND], vec![FIRST]));
            assert_eq!(ends(&mut order, FIRST), [Go::Run(SECOND)]);
        }
    }

    #[test]
    fn a_transaction_that_begins_to_wait_lets_others_pass() {
        let mut order =
            Ordering::Predicted(Box::new(Predicted::new(Waits { of_merges: true, of_splits: true })));
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
        let mut order =
            Ordering::Predicted(Box::new(Predicted::new(Waits { of_merges: true, of_splits: true })));
        order.ask(FIRST, request(0, &[1]));
        let servers = BTreeMap::from([(FIRST, [SECOND].into()), (SECOND, [FIRST].into())]);
        assert_eq!(order.deadlock(FIRST, &servers, |session| session.0), None);
    }
}
