//! Fixed replica by load: section 6.2 of conflict-aware scheduling.
//!
//! The scheduler is a load balancer: the replica that is least loaded when a transaction begins serves its reads, and the
//! client waits for its replies. If that replica is behind or in conflict, the client waits with it.
//!
//! Guarantee, order and propagation are those of the family, see [`super::shipping`].

use super::shipping::{Acknowledge, Choices, Place};

/// Its choices among those of the family.
pub const FR_L: Choices =
    Choices { name: "fr-l", place: Place::FixedByLoad, acknowledge: Acknowledge::Chosen };

#[cfg(test)]
mod tests;
