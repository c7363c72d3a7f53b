//! Who waits for whom inside the servers, as far as that is certain.
//!
//! A server says who waits there at one moment, and it is heard at a later one. Meanwhile whoever was waited for may have
//! committed, and his session may have begun another transaction, at another home, that now waits for the one that waited:
//! what is heard and what is so look like a ring together, and nobody waits for ever. So a wait counts when it has been
//! told twice of the same two transactions. They were under way all the time between, so the second telling is of them;
//! and who holds a lock then holds it until his transaction ends.
//!
//! A session without a transaction counts, too: it may hold an advisory lock, or wait for a lock in a query that is in no
//! transaction of ours. Then both tellings have to find it without one.
//!
//! A ring lasts, so it is found all the same, one telling later. Not certain is what a statement that was cancelled, or a
//! savepoint that was rolled back, has ended since the second telling.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::SessionId;

/// A session, and the number of the transaction that it has open.
type Party = (SessionId, Option<u64>);

/// What was told last.
#[derive(Debug, Default)]
pub struct ServerWaits {
    told: BTreeSet<(Party, Party)>,
}

impl ServerWaits {
    /// Pairs of one that waits and one it waits for are told: those of them that were told before, by who waits. `number`
    /// is that of the transaction that a session has open.
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
    fn what_is_told_twice_of_the_same_transactions_counts() {
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
        assert_eq!(waits.confirm(&edges, next), BTreeMap::new(), "it was not told the last time");
    }
}
