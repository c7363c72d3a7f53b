//! Eager replication: section 6.1 of conflict-aware scheduling.
//!
//! Everything replicated is synchronous: a lock request, a write and a commit are answered when all replicas have done
//! them. A read goes to the least loaded replica; since the answer to everything before it has come from all, it never
//! waits for its own transaction there.
//!
//! Guarantee, order and propagation are those of the family, see [`super::shipping`].

use super::shipping::{Acknowledge, Choices, Place};

/// Its choices among those of the family.
pub const EAGER: Choices =
    Choices { name: "eager", place: Place::VariableByLoad, acknowledge: Acknowledge::All };

#[cfg(test)]
mod tests;
