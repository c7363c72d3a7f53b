//! Lock waits inside the servers, as far as they are certain.
//!
//! A server's report is of an earlier moment. Meanwhile the holder may have committed, and its session may have begun another
//! transaction, at another home, that now waits for the former waiter. Report and present together then look like a ring,
//! although no transaction waits for ever. So a wait counts when two reports in a row have it, of the same two transactions.
//! Both were under way all the time between, so the second report is of them; and the holder keeps its lock until its
//! transaction ends.
//!
//! A session without a transaction counts, too: it may hold an advisory lock, or wait for a lock in a query that is in no
//! transaction of ours. Then both reports have to find it without a transaction.
//!
//! A ring lasts, so it is found all the same, one report later. A wait that has ended since the second report, since its
//! statement was cancelled or its savepoint was rolled back, still counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::SessionId;

/// A session, and the number of the transaction that it has open.
type Party = (SessionId, Option<u64>);

/// The last report.
#[derive(Debug, Default)]
pub struct ServerWaits {
    told: BTreeSet<(Party, Party)>,
}

impl ServerWaits {
    /// Takes a report: pairs of a session that waits and one that it waits for. Returns the waits that the report before had,
    /// too, by waiting session. `number` is that of the transaction that a session has open.
    pub fn confirm(
        &mut self,
        edges: &[(SessionId, SessionId)],
        number: impl Fn(SessionId) -> Option<u64>,
    ) -> BTreeMap<SessionId, BTreeSet<SessionId>> {
        let party = |session: SessionId| (session, number(session));
        let told: BTreeSet<_> =
            edges.iter().map(|(waiter, holder)| (party(*waiter), party(*holder))).collect();
        let mut certain: BTreeMap<SessionId, BTreeSet<SessionId>> = BTreeMap::new();
        for ((waiter, _), (holder, _)) in told.intersection(&self.told) {
            certain.entry(*waiter).or_default().insert(*holder);
        }
        self.told = told;
        certain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITER: SessionId = SessionId(1);
    const HOLDER: SessionId = SessionId(2);

    #[test]
    fn a_wait_reported_twice_of_the_same_transactions_counts() {
        let mut waits = ServerWaits::default();
        let edges = [(WAITER, HOLDER)];
        let both = |session: SessionId| Some(10 + session.0);
        assert_eq!(waits.confirm(&edges, both), BTreeMap::new());
        assert_eq!(waits.confirm(&edges, both), BTreeMap::from([(WAITER, BTreeSet::from([HOLDER]))]));
        let next = |session: SessionId| Some(if session == HOLDER { 20 } else { 11 });
        assert_eq!(
            waits.confirm(&edges, next),
            BTreeMap::new(),
            "the holder's session has another transaction"
        );
        let idle = |session| (session == WAITER).then_some(11);
        assert_eq!(waits.confirm(&edges, idle), BTreeMap::new(), "the transaction is over");
        let certain = BTreeMap::from([(WAITER, BTreeSet::from([HOLDER]))]);
        assert_eq!(waits.confirm(&edges, idle), certain, "what the session holds is not of a transaction");
        assert_eq!(waits.confirm(&edges, next), BTreeMap::new(), "the report before did not have it");
    }
}
