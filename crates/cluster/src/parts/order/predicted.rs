//! The order by prediction: statements lock what they may write, and transactions that are known as a whole stand in chains.
//!
//! A transaction of which only the next statement is known requests that statement's claims in the lock table
//! ([`super::lock_table`]), and may wait at each of its statements. One that is known *as a whole* before it begins
//! ([`crate::event::Whole`]) waits once, before its first statement, and then runs to its end without meeting another:
//!
//! ```text
//! CALL payment(3, ..)   Behind -> Locking -> Seating -> Running -> appended, or over
//!   Behind    payments of warehouse 3 that came before are not over (Gargamel II-B: "queued after all the transactions with which
//!             it might conflict")
//!   Locking   an interactive transaction holds a row of warehouse 3 in the lock table
//!   Seating   its replica runs as many such transactions as it has slots
//! ```
//!
//! Behind is a place in the chains of [`crate::parts::chains`], where nothing is held yet. So transactions with locks pass those
//! that stand there, and a chain never closes a ring of waits by itself. In the lock table two whole transactions do not
//! exclude each other, since the chains have ordered them ([`Scope::Whole`]); each excludes every other request, at its own home,
//! too.
//!
//! Invariant: of two whole transactions with claims in common, the later one runs only after the earlier one has its version or is
//! over. The protocol then lets it begin only where that version is visible.
//!
//! The protocol says by which claims two whole transactions conflict. A transaction whose statements turn out to write
//! more than was known locks these rows like any other: a wrong prediction costs time, never an answer.

use std::collections::{BTreeMap, BTreeSet};

use super::lock_table::LockTable;
use super::{Deadlock, Go, Holder, Request, Scope};
use crate::claims::{Claims, Meeting};
use crate::ids::SessionId;
use crate::parts::chains::{Arrival, Chain, Chains, Link};

/// Which waits of the chains hold. One is off only in tests, to see that a judge notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waits {
    /// A transaction that merges chains waits for the ends of all of them.
    pub of_merges: bool,
    /// A transaction that splits off a chain waits for the one behind which it does.
    pub of_splits: bool,
}

/// How far a whole transaction has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Others of its chain come first.
    Behind,
    /// It waits in the lock table.
    Locking,
    /// It runs.
    Running,
}

/// A whole transaction that is not over.
#[derive(Debug)]
struct Member {
    link: Link,
    stage: Stage,
    home: usize,
    claims: Claims,
}

/// Lock table and chains of one instance.
#[derive(Debug)]
pub struct Predicted {
    waits: Waits,
    locks: LockTable,
    chains: Chains<usize>,
    members: BTreeMap<SessionId, Member>,
    of_link: BTreeMap<Link, SessionId>,
}

impl Predicted {
    /// Nothing waits or runs.
    pub fn new(waits: Waits) -> Self {
        Self {
            waits,
            locks: LockTable::default(),
            chains: Chains::default(),
            members: BTreeMap::new(),
            of_link: BTreeMap::new(),
        }
    }

    /// The home of the last statement that conflicts with these claims.
    pub fn behind(&self, claims: &Claims) -> Option<usize> {
        self.locks.chain(claims)
    }

    /// The home of the last transaction of the chains that a whole one will follow; else of one that holds its locks.
    pub fn behind_whole(&self, claims: &Claims) -> Option<usize> {
        let last = self.chains.behind(claims).and_then(|link| self.chains.worker(link));
        last.or_else(|| self.locks.chain(claims))
    }

    /// A statement wants to run.
    pub fn ask(&mut self, session: SessionId, request: Request) -> Vec<Go> {
        let others = self.locks.request(session, request);
        let own = (!self.locks.is_waiting(session)).then_some(session);
        let granted = own.into_iter().chain(others).collect();
        self.go_on(granted, Vec::new())
    }

    /// A transaction that is known as a whole wants to begin with its first statement. The claims are those of all of it.
    pub fn ask_whole(&mut self, session: SessionId, home: usize, claims: Claims) -> Vec<Go> {
        let (link, arrival) = self.chains.enter(claims.clone());
        self.chains.place(link, home);
        self.of_link.insert(link, session);
        self.members.insert(session, Member { link, stage: Stage::Behind, home, claims });
        let waits = match arrival {
            Arrival::Merges => self.waits.of_merges,
            Arrival::Splits => self.waits.of_splits,
            Arrival::Starts | Arrival::Extends => true,
        };
        let is_ready = self.chains.is_ready(link) || !waits;
        self.go_on(Vec::new(), is_ready.then_some(link).into_iter().collect())
    }

    /// A statement has written what it did not ask for, and takes that unless another transaction has it.
    pub fn reserve_late(&mut self, session: SessionId, request: Request) -> Result<Vec<Go>, Holder> {
        let granted = self.locks.take(session, request)?;
        Ok(self.go_on(granted, Vec::new()))
    }

    /// The statement that waits is not to run. A transaction that stood in a chain and has not begun leaves it, and locks its
    /// later statements one by one.
    pub fn withdraw(&mut self, session: SessionId) -> Vec<Go> {
        let granted = self.locks.withdraw(session);
        let has_begun = self.members.get(&session).is_none_or(|member| member.stage == Stage::Running);
        let ready = if has_begun { Vec::new() } else { self.leave_chain(session) };
        self.go_on(granted, ready)
    }

    /// These transactions have not begun and get another home.
    pub fn rehome(&mut self, sessions: &[SessionId], home: usize) -> Vec<Go> {
        for session in sessions {
            if let Some(member) = self.members.get_mut(session) {
                member.home = home;
                self.chains.place(member.link, home);
            }
        }
        let granted = self.locks.rehome(sessions, home);
        self.go_on(granted, Vec::new())
    }

    /// The session's transaction has its version, or is over.
    pub fn over(&mut self, session: SessionId) -> Vec<Go> {
        let granted = self.locks.release(session);
        let ready = self.leave_chain(session);
        self.go_on(granted, ready)
    }

    fn leave_chain(&mut self, session: SessionId) -> Vec<Link> {
        let Some(member) = self.members.remove(&session) else { return Vec::new() };
        self.of_link.remove(&member.link);
        self.chains.over(member.link)
    }

    /// Those that were granted locks run. Those whose chain has come to them ask for their locks, which may grant others theirs.
    fn go_on(&mut self, granted: Vec<SessionId>, ready: Vec<Link>) -> Vec<Go> {
        let mut run = Vec::new();
        self.begin(granted, &mut run);
        for link in ready {
            let Some(session) = self.of_link.get(&link).copied() else { continue };
            let Some(member) = self.members.get_mut(&session) else { continue };
            if member.stage != Stage::Behind {
                continue;
            }
            member.stage = Stage::Locking;
            let request = Request { home: member.home, claims: member.claims.clone(), scope: Scope::Whole };
            let others = self.locks.request(session, request);
            let own = (!self.locks.is_waiting(session)).then_some(session);
            self.begin(own.into_iter().chain(others).collect(), &mut run);
        }
        run
    }

    fn begin(&mut self, granted: Vec<SessionId>, run: &mut Vec<Go>) {
        for session in granted {
            if let Some(member) = self.members.get_mut(&session) {
                member.stage = Stage::Running;
            }
            run.push(Go::Run(session));
        }
    }

    fn is_behind(&self, session: SessionId) -> bool {
        self.members.get(&session).is_some_and(|member| member.stage == Stage::Behind)
    }

    /// The sessions that wait: in the order of their requests in the lock table, then those in chains.
    pub fn waiting(&self) -> Vec<SessionId> {
        let mut all = self.locks.waiting();
        all.extend(self.of_link.values().filter(|session| self.is_behind(**session)));
        all
    }

    /// The sessions that a session waits for.
    pub fn rivals(&self, session: SessionId) -> Vec<SessionId> {
        match self.members.get(&session) {
            Some(Member { link, stage: Stage::Behind, .. }) => {
                let before = self.chains.predecessors(*link);
                before.iter().filter_map(|link| self.of_link.get(link)).copied().collect()
            }
            _ => self.locks.rivals(session),
        }
    }

    /// The claims in which a session meets one of those that it waits for.
    pub fn meeting(&self, session: SessionId) -> Option<Meeting> {
        let Some(Member { stage: Stage::Behind, claims, .. }) = self.members.get(&session) else {
            return self.locks.meeting(session);
        };
        let before = self.rivals(session);
        before.iter().find_map(|rival| claims.meeting(&self.members.get(rival)?.claims))
    }

    /// All that a session holds or wants.
    pub fn claims(&self, session: SessionId) -> Claims {
        let mut all = self.locks.claims(session);
        if let Some(Member { stage: Stage::Behind, claims, .. }) = self.members.get(&session) {
            all.add(claims);
        }
        all
    }

    /// A ring of waits through a session that waits here. Waits inside the servers count.
    pub fn deadlock(
        &self,
        session: SessionId,
        servers: &BTreeMap<SessionId, BTreeSet<SessionId>>,
        age: impl Fn(SessionId) -> u64,
    ) -> Option<Deadlock> {
        let is_waiting = |one| self.locks.is_waiting(one) || self.is_behind(one);
        if !is_waiting(session) {
            return None;
        }
        let next = |of: SessionId| -> BTreeSet<SessionId> {
            let there = servers.get(&of).into_iter().flatten().copied();
            self.rivals(of).into_iter().chain(there).collect()
        };
        super::rings::deadlock(session, next, is_waiting, age)
    }

    /// The chains, for operators.
    pub fn chains(&self) -> Vec<Chain<usize>> {
        self.chains.chains()
    }

    /// The session of a link.
    pub fn session(&self, link: Link) -> Option<SessionId> {
        self.of_link.get(&link).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    const S: [SessionId; 5] = [SessionId(0), SessionId(1), SessionId(2), SessionId(3), SessionId(4)];

    fn order() -> Predicted {
        Predicted::new(Waits { of_merges: true, of_splits: true })
    }

    fn rows(keys: &[u64]) -> Claims {
        Claims {
            rows: keys.iter().map(|key| (DatabaseId::FIRST.table(1), *key)).collect(),
            ..Claims::default()
        }
    }

    fn whole(order: &mut Predicted, who: usize, home: usize, keys: &[u64]) -> Vec<Go> {
        order.ask_whole(S[who], home, rows(keys))
    }

    fn statement(order: &mut Predicted, who: usize, home: usize, keys: &[u64]) -> Vec<Go> {
        order.ask(S[who], Request { home, claims: rows(keys), scope: Scope::BetweenHomes })
    }

    fn run(who: &[usize]) -> Vec<Go> {
        who.iter().map(|who| Go::Run(S[*who])).collect()
    }

    /// Gargamel II-B: "Conflicting transactions execute sequentially at a single worker; non-conflicting transactions are assigned
    /// to parallel queues".
    #[test]
    fn known_transactions_that_conflict_follow_each_other_at_one_home_too() {
        let mut order = order();
        assert_eq!(whole(&mut order, 0, 0, &[7]), run(&[0]));
        assert_eq!(order.behind_whole(&rows(&[7])), Some(0));
        assert_eq!(whole(&mut order, 1, 0, &[7]), []);
        assert_eq!(whole(&mut order, 2, 1, &[8]), run(&[2]));
        assert_eq!((order.waiting(), order.rivals(S[1])), (vec![S[1]], vec![S[0]]));
        assert!(order.meeting(S[1]).is_some());
        assert_eq!(order.over(S[0]), run(&[1]));
    }

    /// II-B: "if it conflicts with both, the two queues merge"; "t4 and t5 [..] will be on parallel queues but both after t3".
    #[test]
    fn merges_wait_for_all_chains_and_splits_for_their_link() {
        let mut order = order();
        whole(&mut order, 0, 0, &[1]);
        whole(&mut order, 1, 1, &[2]);
        assert_eq!(whole(&mut order, 2, 1, &[1, 2]), []);
        assert_eq!(whole(&mut order, 3, 1, &[1]), []);
        assert_eq!(whole(&mut order, 4, 1, &[2]), []);
        assert_eq!(order.over(S[1]), []);
        assert_eq!(order.over(S[0]), run(&[2]));
        assert_eq!(order.over(S[2]), run(&[3, 4]));
    }

    #[test]
    fn a_transaction_that_stands_in_a_chain_keeps_no_statement_waiting() {
        let mut order = order();
        whole(&mut order, 0, 0, &[1]);
        assert_eq!(whole(&mut order, 1, 0, &[1, 2]), []);
        assert_eq!(statement(&mut order, 2, 1, &[2]), run(&[2]), "the second one holds nothing yet");
        assert_eq!(order.over(S[0]), [], "it waits for the statement's lock");
        assert_eq!(order.rivals(S[1]), [S[2]]);
        assert_eq!(statement(&mut order, 3, 0, &[2]), [], "now it stands in line, at its own home, too");
        assert_eq!(order.over(S[2]), run(&[1]));
        assert_eq!(order.over(S[1]), run(&[3]));
    }

    #[test]
    fn a_transaction_that_is_withdrawn_leaves_its_chain() {
        let mut order = order();
        whole(&mut order, 0, 0, &[1]);
        whole(&mut order, 1, 0, &[1]);
        whole(&mut order, 2, 0, &[1]);
        assert_eq!(order.withdraw(S[1]), []);
        assert_eq!(order.over(S[0]), run(&[2]));
        assert_eq!(statement(&mut order, 1, 1, &[9]), run(&[1]), "it goes on by statements");
        assert_eq!(order.over(S[1]), []);
    }

    #[test]
    fn what_a_known_transaction_writes_beyond_its_claims_is_locked() {
        let mut order = order();
        whole(&mut order, 0, 0, &[1]);
        statement(&mut order, 1, 1, &[5]);
        let late = |keys: &[u64]| Request { home: 0, claims: rows(keys), scope: Scope::BetweenHomes };
        assert_eq!(order.reserve_late(S[0], late(&[5])).unwrap_err().session, S[1]);
        assert_eq!(order.reserve_late(S[0], late(&[6])), Ok(vec![]));
        assert_eq!(statement(&mut order, 2, 1, &[6]), []);
    }

    #[test]
    fn transactions_of_a_lost_home_that_have_not_begun_move() {
        let mut order = order();
        whole(&mut order, 0, 0, &[1]);
        whole(&mut order, 1, 0, &[1]);
        assert_eq!(order.rehome(&[S[0], S[1]], 2), []);
        assert_eq!(order.behind_whole(&rows(&[1])), Some(2));
        assert_eq!(order.over(S[0]), run(&[1]));
    }

    fn deadlock(order: &Predicted, who: usize, servers: &[(usize, usize)]) -> Option<Deadlock> {
        let mut waits: BTreeMap<SessionId, BTreeSet<SessionId>> = BTreeMap::new();
        for (waiter, holder) in servers {
            waits.entry(S[*waiter]).or_default().insert(S[*holder]);
        }
        order.deadlock(S[who], &waits, |session| session.0)
    }

    #[test]
    fn rings_are_found_and_the_youngest_gives_way() {
        let mut order = order();
        for (who, key) in [(0, 1), (1, 2), (2, 3)] {
            assert_eq!(statement(&mut order, who, who, &[key]), run(&[who]));
        }
        assert_eq!(statement(&mut order, 0, 0, &[2]), []);
        assert_eq!(statement(&mut order, 1, 1, &[3]), []);
        assert_eq!(deadlock(&order, 1, &[]), None);
        assert_eq!(statement(&mut order, 2, 2, &[1]), []);
        assert_eq!(deadlock(&order, 0, &[]), Some(Deadlock { victim: S[2], rival: S[1] }));
        assert_eq!(order.over(S[2]), run(&[1]));
    }

    #[test]
    fn rings_lead_through_waits_inside_the_servers() {
        let mut order = order();
        statement(&mut order, 0, 0, &[1]);
        statement(&mut order, 1, 1, &[2]);
        assert_eq!(statement(&mut order, 0, 0, &[2]), []);
        assert_eq!(deadlock(&order, 0, &[]), None);
        let found = deadlock(&order, 0, &[(1, 3), (3, 0)]);
        assert_eq!(found, Some(Deadlock { victim: S[0], rival: S[3] }), "the others wait in their servers");
    }

    #[test]
    fn rings_lead_through_chains() {
        let mut order = order();
        whole(&mut order, 0, 0, &[1]);
        assert_eq!(whole(&mut order, 1, 0, &[1]), []);
        assert_eq!(deadlock(&order, 1, &[(0, 2)]), None);
        let found = deadlock(&order, 1, &[(0, 2), (2, 1)]);
        assert_eq!(found, Some(Deadlock { victim: S[1], rival: S[2] }));
    }
}
