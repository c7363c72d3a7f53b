//! Conflict-aware scheduling (VR-C in the paper's naming): section 3.5 of conflict-aware scheduling.
//!
//! The first reply counts, and the scheduler remembers who has replied: a read goes to the least loaded of the replicas
//! that hold the locks of its transaction and have done its writes; a single read to the least loaded of those that have
//! the updates of its own interaction and no conflicting transaction under way, if there is one (section 4.8).
//!
//! Guarantee, order and propagation are those of the family, see [`super::shipping`].

use super::shipping::{Acknowledge, Choices, Place};

/// Its choices among those of the family.
pub const CONFLICT_AWARE: Choices =
    Choices { name: "conflict-aware", place: Place::VariableByConflict, acknowledge: Acknowledge::First };

#[cfg(test)]
mod tests;
