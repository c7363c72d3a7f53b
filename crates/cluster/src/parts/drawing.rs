//! The home of a transaction that draws from sequences: the anchor as long as that has room.
//!
//! Sequences count at the anchor. As long as all transactions draw there, values ascend over all sessions, as on one server.
//! Other replicas draw from leased ranges ([`crate::parts::sequences::leases`]), without gaps inside a range and without order
//! between ranges. So a small load stays together, and a large one spreads: the anchor is full when several statements run there
//! and the wait is clearly longer than at another replica. One long statement alone is no load.
//!
//! A session that has drawn at another replica stays there while the load lasts, so that its values ascend. A range is drawn at
//! the anchor before it is leased, so values that the anchor gives out later are beyond it. A range that was leased earlier
//! may lie before values that the session drew at the anchor.

use crate::ids::ReplicaId;
use crate::parts::replica::Replica;
use crate::time::Time;

/// With fewer running statements the anchor has room, however long they take.
pub const FULL_STATEMENTS: u32 = 4;
/// The wait is clearly longer if it is by so many times the statement's own time, ...
const LONGER_TIMES: u64 = 4;
/// ... within these bounds.
const LONGER_MIN_US: u64 = 400;
const LONGER_MAX_US: u64 = 8_000;
/// The load is over when the anchor had room, and few statements ran anywhere, for so long.
const CALM_US: u64 = 1_000_000;

/// Remembers when the anchor had no room last.
#[derive(Debug, Default)]
pub struct Drawing {
    full: Option<Time>,
}

impl Drawing {
    /// Whether the anchor, which is up, has room. The least wait at the other replicas is `least_us`, if there are others.
    pub fn has_room(
        &mut self,
        now: Time,
        anchor: (&Replica, u64),
        least_us: Option<u64>,
        cost_us: u32,
    ) -> bool {
        let (anchor, wait_us) = anchor;
        let longer_us = (LONGER_TIMES * u64::from(cost_us)).clamp(LONGER_MIN_US, LONGER_MAX_US);
        let has_room = least_us.is_none_or(|least_us| {
            !anchor.is_suspect
                && (anchor.running + anchor.queued < FULL_STATEMENTS || wait_us <= least_us + longer_us)
        });
        if !has_room {
            self.full = Some(now);
        }
        has_room
    }

    /// The replica where a session drew last, if it stays there. `running` statements run at all replicas together.
    pub fn stays(
        &mut self,
        now: Time,
        running: u32,
        last: Option<ReplicaId>,
        anchor: ReplicaId,
    ) -> Option<ReplicaId> {
        let is_loaded = self.full.is_some_and(|full| now.since_us(full) < CALM_US);
        if is_loaded && running >= FULL_STATEMENTS {
            self.full = Some(now);
        }
        last.filter(|last| *last != anchor && is_loaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Incarnation, Version};

    #[test]
    fn one_long_statement_is_no_load() {
        let (mut drawing, now) = (Drawing::default(), Time { us: 5 });
        let mut anchor = Replica::new(ReplicaId(0));
        anchor.up(Incarnation(1), Version(5));
        anchor.running = FULL_STATEMENTS - 1;
        assert!(drawing.has_room(now, (&anchor, 9_000_000), Some(0), 200));
        anchor.running = FULL_STATEMENTS;
        assert!(drawing.has_room(now, (&anchor, 800), Some(0), 200), "four statements like this one");
        assert!(drawing.has_room(now, (&anchor, 1_300), Some(500), 200), "the others wait, too");
        assert!(drawing.has_room(now, (&anchor, 9_000_000), None, 200), "there is no other");
        assert_eq!(drawing.stays(now, 9, Some(ReplicaId(1)), anchor.id), None);
        assert!(!drawing.has_room(now, (&anchor, 801), Some(0), 200));
        assert!(drawing.has_room(now, (&anchor, LONGER_MAX_US), Some(0), 1_000_000));
        assert!(!drawing.has_room(now, (&anchor, LONGER_MAX_US + 1), Some(0), 1_000_000));
        (anchor.running, anchor.is_suspect) = (0, true);
        assert!(!drawing.has_room(now, (&anchor, 0), Some(9_000), 200), "others answer");
        assert!(drawing.has_room(now, (&anchor, 0), None, 200));
    }

    #[test]
    fn a_session_that_drew_elsewhere_stays_while_the_load_lasts() {
        let (mut drawing, full) = (Drawing::default(), Time { us: 5 });
        let mut anchor = Replica::new(ReplicaId(0));
        anchor.running = FULL_STATEMENTS;
        assert!(!drawing.has_room(full, (&anchor, 10_000), Some(0), 1));
        let mut at = |us, running, last| drawing.stays(Time { us }, running, last, anchor.id);
        let there = Some(ReplicaId(1));
        assert_eq!(at(CALM_US, 0, there), there);
        assert_eq!(at(CALM_US, 0, Some(ReplicaId(0))), None);
        assert_eq!(at(CALM_US, FULL_STATEMENTS, None), None);
        assert_eq!(at(2 * CALM_US - 1, FULL_STATEMENTS - 1, there), there, "they run elsewhere now");
        assert_eq!(at(2 * CALM_US, FULL_STATEMENTS, there), None);
    }
}
