//! The lock table between homes: what open update transactions hold or want.
//!
//! Each statement requests beforehand what it may write, and waits here for transactions of other homes that hold it (DESIGN
//! section 5: "lock its classes in the lock table (queue, no abort)"; Gargamel section III: conflicting transactions are put
//! in one chain). Claims are held until the transaction's version is assigned, or it ends. Transactions of one home need
//! this only at SERIALIZABLE: their PostgreSQL makes them wait.
//!
//! The table is fair: a request also waits for earlier ones of other homes that conflict with it, unless they wait for its own
//! transaction. At SERIALIZABLE a transaction requests rows that it reads by key, too, and such *strict* requests conflict
//! within one home as well, since PostgreSQL makes no reader wait.

use std::collections::{BTreeMap, BTreeSet};

use super::{Holder, Request};
use crate::claims::{Claims, Meeting};
use crate::ids::SessionId;
use crate::parts::claim_index::{ClaimIndex, Owner};

/// A request's number, in the order in which they came.
type Seq = u64;

impl Owner for Seq {
    const FIRST: Self = 0;
}

#[derive(Debug)]
struct Entry {
    session: SessionId,
    request: Request,
    is_granted: bool,
}

impl Entry {
    /// Whether claims that touch each other make one wait for the other.
    fn is_against(&self, other: &Self) -> bool {
        let (mine, theirs) = (&self.request, &other.request);
        self.session != other.session && mine.scope.meets(theirs.scope, mine.home == theirs.home)
    }
}

/// All requests.
#[derive(Debug, Default)]
pub struct LockTable {
    entries: BTreeMap<Seq, Entry>,
    index: ClaimIndex<Seq>,
    of_session: BTreeMap<SessionId, Vec<Seq>>,
    /// Requests that wait; at most one of each session.
    waiting: BTreeMap<Seq, SessionId>,
    /// For each session that waits, those that it waits for.
    edges: BTreeMap<SessionId, BTreeSet<SessionId>>,
    requests: Seq,
}

impl LockTable {
    /// Adds a request. It is granted, unless [`LockTable::is_waiting`]. Returns other sessions that may go on because this one
    /// waits.
    pub fn request(&mut self, session: SessionId, request: Request) -> Vec<SessionId> {
        assert!(!self.edges.contains_key(&session), "a session waits for one statement at a time");
        if request.claims.is_empty() {
            return Vec::new();
        }
        self.requests += 1;
        let seq = self.requests;
        self.index.insert(seq, &request.claims);
        self.entries.insert(seq, Entry { session, request, is_granted: false });
        self.of_session.entry(session).or_default().push(seq);
        self.waiting.insert(seq, session);
        self.edges.insert(session, BTreeSet::new());
        let mut granted = self.grant();
        if self.is_waiting(session) {
            // Its waiting may let requests pass that stand before it, and that were looked at first.
            granted.extend(self.grant());
        }
        granted.retain(|one| *one != session);
        granted
    }

    /// Grants a request without waiting, of a transaction that has written already. Returns other sessions that may go on. If
    /// another transaction is in its way, that one is returned, and nothing changes.
    pub fn take(&mut self, session: SessionId, request: Request) -> Result<Vec<SessionId>, Holder> {
        let entry = Entry { session, request, is_granted: true };
        let others = self.index.all_before(Seq::MAX, &entry.request.claims);
        let mut others = others.iter().map(|seq| &self.entries[seq]).filter(|one| entry.is_against(one));
        // A request that waits for this session is not in its way.
        let rival = others.find(|one| one.is_granted || !self.leads_to(one.session, session));
        if let Some(one) = rival {
            let meeting = entry.request.claims.meeting(&one.request.claims);
            return Err(Holder { session: one.session, meeting });
        }
        if entry.request.claims.is_empty() {
            return Ok(Vec::new());
        }
        self.requests += 1;
        let seq = self.requests;
        self.index.insert(seq, &entry.request.claims);
        self.entries.insert(seq, entry);
        self.of_session.entry(session).or_default().push(seq);
        Ok(self.grant())
    }

    /// Drops all requests of a session. Returns the sessions that may go on now.
    pub fn release(&mut self, session: SessionId) -> Vec<SessionId> {
        self.edges.remove(&session);
        for seq in self.of_session.remove(&session).unwrap_or_default() {
            self.waiting.remove(&seq);
            if let Some(entry) = self.entries.remove(&seq) {
                self.index.remove(seq, &entry.request.claims);
            }
        }
        self.grant()
    }

    /// Drops the request of a session that waits. It keeps the granted ones. Returns the sessions that may go on now.
    pub fn withdraw(&mut self, session: SessionId) -> Vec<SessionId> {
        if self.edges.remove(&session).is_none() {
            return Vec::new();
        }
        let own = self.of_session.entry(session).or_default();
        if let Some(seq) = own.pop_if(|seq| self.waiting.contains_key(seq))
            && let Some(entry) = self.entries.remove(&seq)
        {
            self.waiting.remove(&seq);
            self.index.remove(seq, &entry.request.claims);
        }
        self.grant()
    }

    /// Moves transactions that have not begun to another home, because theirs is lost. Requests that waited for one of another
    /// home may now meet it at their own. Returns the sessions that may go on now.
    pub fn rehome(&mut self, sessions: &[SessionId], home: usize) -> Vec<SessionId> {
        for seq in sessions.iter().filter_map(|session| self.of_session.get(session)).flatten() {
            if let Some(entry) = self.entries.get_mut(seq) {
                entry.request.home = home;
            }
        }
        self.grant()
    }

    /// Looks at all requests that wait, in their order. Returns the sessions whose requests are granted now.
    fn grant(&mut self) -> Vec<SessionId> {
        let mut granted = Vec::new();
        for (seq, session) in self.waiting.clone() {
            self.edges.insert(session, BTreeSet::new());
            let blockers = self.blockers(seq);
            if blockers.is_empty() {
                self.edges.remove(&session);
                self.waiting.remove(&seq);
                self.entries.get_mut(&seq).expect("a request that waits has an entry").is_granted = true;
                granted.push(session);
            } else {
                self.edges.insert(session, blockers);
            }
        }
        granted
    }

    /// The sessions that a request waits for: holders, and the last of the earlier requests that do not wait for it.
    fn blockers(&self, seq: Seq) -> BTreeSet<SessionId> {
        let entry = &self.entries[&seq];
        let mut found = BTreeSet::new();
        let mut ahead = None;
        for other in self.index.all_before(Seq::MAX, &entry.request.claims) {
            let one = &self.entries[&other];
            if !entry.is_against(one) {
                continue;
            }
            if one.is_granted {
                found.insert(one.session);
            } else if other < seq && !self.leads_to(one.session, entry.session) {
                ahead = Some(one.session);
            }
        }
        found.extend(ahead);
        found
    }

    /// Whether a session waits for another, directly or by way of others.
    fn leads_to(&self, session: SessionId, target: SessionId) -> bool {
        let mut seen = BTreeSet::from([session]);
        let mut open = vec![session];
        while let Some(next) = open.pop() {
            for one in self.edges.get(&next).into_iter().flatten() {
                if *one == target {
                    return true;
                }
                if seen.insert(*one) {
                    open.push(*one);
                }
            }
        }
        false
    }

    /// The home of the last request that conflicts with these claims: the end of the chain.
    pub fn chain(&self, claims: &Claims) -> Option<usize> {
        let last = self.index.last_before(Seq::MAX, claims)?;
        Some(self.entries[&last].request.home)
    }

    /// The claims of all requests of a session.
    pub fn claims(&self, session: SessionId) -> Claims {
        let mut all = Claims::default();
        for seq in self.of_session.get(&session).into_iter().flatten() {
            if let Some(entry) = self.entries.get(seq) {
                all.add(&entry.request.claims);
            }
        }
        all
    }

    /// The sessions that a session waits for.
    pub fn rivals(&self, session: SessionId) -> Vec<SessionId> {
        self.edges.get(&session).into_iter().flatten().copied().collect()
    }

    /// The claims in which a session meets one of those that it waits for.
    pub fn meeting(&self, session: SessionId) -> Option<Meeting> {
        let rivals = self.edges.get(&session)?;
        let own = self.of_session.get(&session)?.iter().rev().find(|seq| self.waiting.contains_key(seq))?;
        let claims = &self.entries.get(own)?.request.claims;
        let theirs = rivals.iter().filter_map(|rival| self.of_session.get(rival)).flatten();
        let mut theirs = theirs.filter_map(|seq| self.entries.get(seq));
        theirs.find_map(|one| claims.meeting(&one.request.claims))
    }

    /// Whether a request of the session waits.
    pub fn is_waiting(&self, session: SessionId) -> bool {
        self.edges.contains_key(&session)
    }

    /// The sessions that wait, in the order of their requests.
    pub fn waiting(&self) -> Vec<SessionId> {
        self.waiting.values().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scope;
    use super::*;
    use crate::ids::DatabaseId;

    const S: [SessionId; 5] = [SessionId(0), SessionId(1), SessionId(2), SessionId(3), SessionId(4)];

    fn rows(keys: &[u64]) -> Claims {
        Claims {
            rows: keys.iter().map(|key| (DatabaseId::FIRST.table(1), *key)).collect(),
            ..Claims::default()
        }
    }

    /// Requests rows. Returns one of the sessions that it waits for.
    fn want(table: &mut LockTable, who: usize, home: usize, keys: &[u64]) -> Option<SessionId> {
        let request = Request { home, claims: rows(keys), scope: Scope::BetweenHomes };
        assert_eq!(table.request(S[who], request), []);
        table.edges.get(&S[who])?.first().copied()
    }

    #[test]
    fn only_other_homes_are_waited_for() {
        let mut table = LockTable::default();
        assert_eq!(want(&mut table, 0, 0, &[7]), None);
        assert_eq!(want(&mut table, 1, 0, &[7]), None, "their own server makes them wait");
        assert_eq!(want(&mut table, 2, 1, &[8]), None);
        assert_eq!(want(&mut table, 2, 1, &[7]), Some(S[0]));
        assert_eq!(table.chain(&rows(&[7])), Some(1), "the end of the chain is where the last one waits");
        assert_eq!(table.release(S[0]), []);
        assert_eq!(table.release(S[1]), [S[2]]);
    }

    #[test]
    fn strict_ones_wait_at_one_home_too() {
        let mut table = LockTable::default();
        let strict = || Request { home: 0, claims: rows(&[7]), scope: Scope::Everywhere };
        table.request(S[0], strict());
        table.request(S[1], strict());
        assert!(!table.is_waiting(S[0]) && table.is_waiting(S[1]));
        assert_eq!(want(&mut table, 2, 0, &[7]), Some(S[0]));
        assert_eq!(table.release(S[0]), [S[1]]);
        assert_eq!(table.release(S[1]), [S[2]]);
    }

    #[test]
    fn no_request_passes_an_earlier_one() {
        let mut table = LockTable::default();
        assert_eq!(want(&mut table, 0, 0, &[7]), None);
        assert_eq!(want(&mut table, 1, 1, &[7]), Some(S[0]));
        assert_eq!(want(&mut table, 2, 0, &[7]), Some(S[1]), "or a request could wait for ever");
        assert_eq!(want(&mut table, 3, 1, &[7]), Some(S[0]));
        assert_eq!(table.release(S[0]), [S[1]]);
        assert_eq!(table.release(S[1]), [S[2]]);
        assert_eq!(table.release(S[2]), [S[3]]);
    }

    #[test]
    fn a_transaction_that_withdraws_keeps_what_it_has() {
        let mut table = LockTable::default();
        assert_eq!(want(&mut table, 0, 0, &[7]), None);
        assert_eq!(want(&mut table, 1, 1, &[8]), None);
        assert_eq!(want(&mut table, 1, 1, &[7]), Some(S[0]));
        assert_eq!(want(&mut table, 2, 0, &[7]), Some(S[1]), "it stands in line");
        assert_eq!(table.withdraw(S[1]), [S[2]]);
        assert_eq!(table.withdraw(S[1]), [], "it waits for nothing");
        assert_eq!(want(&mut table, 3, 2, &[8]), Some(S[1]));
        assert_eq!(table.release(S[1]), [S[3]]);
    }

    #[test]
    fn rows_that_were_not_requested_are_taken_if_they_are_free() {
        let mut table = LockTable::default();
        let request = |home, keys: &[u64]| Request { home, claims: rows(keys), scope: Scope::BetweenHomes };
        assert_eq!(want(&mut table, 0, 0, &[7]), None);
        let met = Some(Meeting { table: DatabaseId::FIRST.table(1), row: Some(7) });
        let holder = Holder { session: S[0], meeting: met };
        assert_eq!(table.take(S[1], request(1, &[8, 7])), Err(holder));
        assert_eq!(table.take(S[1], request(1, &[8])), Ok(vec![]));
        assert_eq!(table.take(S[2], request(0, &[7])), Ok(vec![]), "their own server makes them wait");
        assert_eq!(want(&mut table, 0, 0, &[8]), Some(S[1]));
        assert_eq!(table.meeting(S[0]), Some(Meeting { table: DatabaseId::FIRST.table(1), row: Some(8) }));
        assert_eq!(table.take(S[3], request(2, &[8])).map_err(|holder| holder.session), Err(S[1]));
        assert_eq!(table.release(S[1]), [S[0]]);
        assert_eq!(table.release(S[0]), []);
        assert_eq!(want(&mut table, 3, 1, &[7]), Some(S[2]));
        assert!(table.take(S[4], request(2, &[7])).is_err());
        assert_eq!(
            table.take(S[2], request(0, &[9, 7])),
            Ok(vec![]),
            "a session that is waited for may have more of it"
        );
        assert_eq!(table.release(S[2]), [S[3]]);
    }

    #[test]
    fn a_session_that_is_waited_for_passes() {
        let mut table = LockTable::default();
        assert_eq!(want(&mut table, 0, 0, &[7]), None);
        assert_eq!(want(&mut table, 1, 1, &[7, 8]), Some(S[0]));
        assert_eq!(want(&mut table, 0, 0, &[8]), None, "the other one waits for it anyway");
        assert_eq!(table.release(S[0]), [S[1]]);
    }

    #[test]
    fn a_place_in_line_closes_no_ring() {
        let mut table = LockTable::default();
        assert_eq!(want(&mut table, 0, 0, &[1]), None);
        assert_eq!(want(&mut table, 1, 1, &[2]), None);
        assert_eq!(want(&mut table, 2, 2, &[1, 3]), Some(S[0]));
        assert_eq!(want(&mut table, 1, 1, &[3]), Some(S[2]), "it stands in line");
        let request = Request { home: 0, claims: rows(&[2]), scope: Scope::BetweenHomes };
        assert_eq!(table.request(S[0], request), [S[1]], "who is waited for need not");
        assert_eq!(table.release(S[1]), [S[0]]);
    }

    #[test]
    fn a_transaction_that_moves_to_the_home_of_a_holder_goes_on() {
        let mut table = LockTable::default();
        assert_eq!(want(&mut table, 0, 0, &[7]), None);
        assert_eq!(want(&mut table, 1, 1, &[7]), Some(S[0]));
        assert_eq!(want(&mut table, 2, 2, &[7]), Some(S[0]));
        assert_eq!(table.rehome(&[S[1]], 0), [S[1]]);
        assert_eq!(
            table.take(S[0], Request { home: 0, claims: rows(&[8]), scope: Scope::BetweenHomes }),
            Ok(vec![])
        );
        assert_eq!(table.rehome(&[S[0], S[1]], 2), [S[2]], "nor do requests wait for them there");
    }
}
