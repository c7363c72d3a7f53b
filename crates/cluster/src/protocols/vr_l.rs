//! Variable replica by load: section 6.4 of conflict-aware scheduling.
//!
//! The first reply counts; each read goes to the replica that is least loaded when it arrives, and may have to wait there
//! for other transactions, or for the lock request and the writes of its own.
//!
//! Guarantee, order and propagation are those of the family, see [`super::shipping`].

use super::shipping::{Acknowledge, Choices, Place};

/// Its choices among those of the family.
pub const VR_L: Choices =
    Choices { name: "vr-l", place: Place::VariableByLoad, acknowledge: Acknowledge::First };

#[cfg(test)]
mod tests;
