//! Fixed replica by conflict: section 6.3 of conflict-aware scheduling.
//!
//! As FR-L, but a transaction is fixed at the replica that answers its lock request first, which is one without conflicts.
//! A single read has its lock request at the one replica where it runs, so nothing can answer first: it goes where the
//! scheduler knows of no conflict, like in conflict-aware scheduling (our reading of sections 4.8, 6.3 and 8.1, which says
//! that FR-C sends reads to replicas without conflicts also where nearly all are single ones).
//!
//! Guarantee, order and propagation are those of the family, see [`super::shipping`].

use super::shipping::{Acknowledge, Choices, Place};

/// Its choices among those of the family.
pub const FR_C: Choices =
    Choices { name: "fr-c", place: Place::FixedByConflict, acknowledge: Acknowledge::Chosen };

#[cfg(test)]
mod tests;
