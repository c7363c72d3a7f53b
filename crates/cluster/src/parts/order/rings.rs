//! Deadlocks: rings of sessions that wait for each other.

use std::collections::BTreeSet;

use super::Deadlock;
use crate::ids::SessionId;

/// A ring of waits through a session, if there is one. `next` tells for whom a session waits. The victim is the youngest of those
/// that the order keeps waiting (`may_give_way`), since only these can be told to give way; a session that began later has a
/// greater `age`.
pub(super) fn deadlock(
    session: SessionId,
    next: impl Fn(SessionId) -> BTreeSet<SessionId>,
    may_give_way: impl Fn(SessionId) -> bool,
    age: impl Fn(SessionId) -> u64,
) -> Option<Deadlock> {
    // Depth first. A session that was searched in vain is not searched again.
    let mut path = vec![(session, next(session))];
    let mut seen = BTreeSet::from([session]);
    while let Some((_, open)) = path.last_mut() {
        let Some(one) = open.pop_first() else {
            path.pop();
            continue;
        };
        if one == session {
            let ring: Vec<SessionId> = path.iter().map(|(session, _)| *session).collect();
            let waiting = ring.iter().enumerate().filter(|(_, one)| may_give_way(**one));
            let (at, victim) = waiting.max_by_key(|(_, one)| age(**one))?;
            let rival = ring[(at + ring.len() - 1) % ring.len()];
            return Some(Deadlock { victim: *victim, rival });
        }
        if seen.insert(one) {
            path.push((one, next(one)));
        }
    }
    None
}
