//! Where a session drew from sequences last.
//!
//! Example: a session inserts into a table with a `serial` column at replica 2 and then asks `currval`. Only the session's
//! connection to replica 2 knows the value, so the question goes there. If another session of the pool has used that
//! connection in between, the value is lost, and the question is rejected.

use cluster::ids::ReplicaId;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastDraw {
    #[default]
    None,
    At(ReplicaId),
    /// The session drew there, and has run statements elsewhere since that may have drawn.
    Unsure(ReplicaId),
    /// Other sessions have used the connection since.
    Lost,
}

/// The last draw of a session, and whether the session asks for drawn values.
#[derive(Debug, Default)]
pub(crate) struct Draws {
    last: LastDraw,
    /// The session uses `currval` or `lastval`.
    pub(crate) is_asked: bool,
}

impl Draws {
    /// The replica that can answer `currval`; none if that is not certain. An uncertain draw is forgotten.
    pub(crate) fn certain_place(&mut self) -> Option<ReplicaId> {
        if let LastDraw::Unsure(_) = self.last {
            self.last = LastDraw::None;
        }
        self.place()
    }

    /// The replica of the last draw that is known.
    pub(super) fn place(&self) -> Option<ReplicaId> {
        match self.last {
            LastDraw::At(place) | LastDraw::Unsure(place) => Some(place),
            LastDraw::None | LastDraw::Lost => None,
        }
    }

    /// Whether other sessions have used the connection that knew the drawn values.
    pub(super) fn are_lost(&self) -> bool {
        self.last == LastDraw::Lost
    }

    /// Whether the session has drawn, so that `currval` had an answer or would be rejected.
    pub(crate) fn has_any(&self) -> bool {
        self.last != LastDraw::None
    }

    /// The drawn values were known to a connection of another process.
    pub(crate) fn note_lost(&mut self) {
        self.last = LastDraw::Lost;
    }

    /// The session draws at this replica.
    pub(super) fn note(&mut self, replica: ReplicaId) {
        self.last = LastDraw::At(replica);
    }

    /// The session may draw at this replica.
    pub(super) fn note_possible(&mut self, replica: ReplicaId) {
        self.last = match self.place() {
            Some(place) if place != replica => LastDraw::Unsure(place),
            _ => LastDraw::At(replica),
        };
    }

    /// It turned out that the session has not drawn since the last draw that was noted.
    pub(super) fn note_none(&mut self) {
        if let LastDraw::Unsure(place) = self.last {
            self.last = LastDraw::At(place);
        }
    }

    /// The connection to this replica is closed.
    pub(super) fn note_closed(&mut self, replica: ReplicaId) {
        if self.place() == Some(replica) {
            self.last = LastDraw::None;
        }
    }

    /// Another session has used the connection to this replica.
    pub(super) fn note_shared(&mut self, replica: ReplicaId) {
        if self.place() == Some(replica) {
            self.last = LastDraw::Lost;
        }
    }

    /// DISCARD SEQUENCES: the session has drawn nothing that it can ask for. Lost values stay lost.
    pub(crate) fn discard(&mut self) {
        let last = if self.are_lost() { LastDraw::Lost } else { LastDraw::None };
        *self = Self { last, is_asked: false };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ReplicaId = ReplicaId(0);
    const SECOND: ReplicaId = ReplicaId(1);

    #[test]
    fn a_possible_draw_elsewhere_makes_the_last_one_uncertain() {
        let mut draws = Draws::default();
        draws.note(FIRST);
        draws.note_possible(FIRST);
        assert_eq!(draws.certain_place(), Some(FIRST));
        draws.note_possible(SECOND);
        draws.note_none();
        assert_eq!(draws.certain_place(), Some(FIRST), "it did not draw at the second");
        draws.note_possible(SECOND);
        assert_eq!(draws.place(), Some(FIRST));
        assert_eq!(draws.certain_place(), None);
        draws.note_none();
        assert_eq!(draws.place(), None, "an uncertain draw is forgotten");
    }

    #[test]
    fn values_are_lost_with_a_connection_that_others_have_used() {
        let mut draws = Draws::default();
        draws.note(FIRST);
        draws.note_shared(SECOND);
        draws.note_closed(SECOND);
        assert_eq!(draws.certain_place(), Some(FIRST));
        draws.note_shared(FIRST);
        assert!(draws.are_lost());
        draws.note_closed(FIRST);
        assert!(draws.are_lost());
        draws.note_possible(SECOND);
        assert_eq!((draws.are_lost(), draws.certain_place()), (false, Some(SECOND)));
        draws.note_closed(SECOND);
        assert_eq!((draws.are_lost(), draws.certain_place()), (false, None));
    }
}
