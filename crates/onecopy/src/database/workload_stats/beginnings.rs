//! Finds transactions that may begin away from the anchor, by their first template.
//!
//! When the home of an interactive transaction is chosen, only its first statement is known. If earlier transactions
//! with the same beginning never needed the anchor, this one probably does not either. A wrong guess costs a move to
//! the anchor, or an error that asks the client to retry. So a template that needed the anchor once counts as needing
//! it until it has not for a while. Transactions that draw from sequences begin elsewhere only where these are leased,
//! and not while the anchor has room.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::SequenceId;
use sql::TemplateId;

/// The number of runs without need of the anchor before a template may leave it.
const SURE: u32 = 3;
/// The same number after a run that needed the anchor.
const SURE_AGAIN: u32 = 300;
/// The most templates that are remembered.
const BEGINNINGS_MAX: usize = 4_096;
/// A transaction that draws from more sequences than this begins at the anchor.
const DRAWS_MAX: usize = 16;

#[derive(Clone, Debug)]
struct Beginning {
    /// The number of runs without need of the anchor since the last run that needed it.
    free: u32,
    wanted: u32,
    last: u64,
    /// The sequences that any of these transactions drew from.
    draws: BTreeSet<SequenceId>,
}

/// The history by first template.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    of: BTreeMap<TemplateId, Beginning>,
    /// The generation of the catalogue behind this history.
    generation: u64,
    runs: u64,
}

impl Beginnings {
    /// A transaction with this first template has ended: whether it needed the anchor, and the sequences that it drew
    /// from.
    pub(super) fn note(
        &mut self,
        template: TemplateId,
        generation: u64,
        needs_anchor: bool,
        draws: &BTreeSet<SequenceId>,
    ) {
        if self.generation != generation {
            self.of.clear();
            self.generation = generation;
        }
        self.runs += 1;
        let last = self.runs;
        if self.of.len() >= BEGINNINGS_MAX && !self.of.contains_key(&template) {
            let oldest = self.of.iter().min_by_key(|(_, known)| known.last).map(|(id, _)| *id);
            oldest.and_then(|oldest| self.of.remove(&oldest));
        }
        let known = self.of.entry(template).or_insert(Beginning {
            free: 0,
            wanted: SURE,
            last,
            draws: BTreeSet::new(),
        });
        known.last = last;
        if known.draws.len() <= DRAWS_MAX {
            known.draws.extend(draws);
        }
        if needs_anchor {
            (known.free, known.wanted) = (0, SURE_AGAIN);
        } else {
            known.free = known.free.saturating_add(1);
        }
    }

    /// The sequences that a transaction with this first template may draw from. `None` if it probably needs the anchor.
    pub(super) fn may_leave(&self, template: TemplateId, generation: u64) -> Option<&BTreeSet<SequenceId>> {
        let known = self.of.get(&template).filter(|_| self.generation == generation)?;
        let may = known.free >= known.wanted && known.draws.len() <= DRAWS_MAX;
        may.then_some(&known.draws)
    }
}

#[cfg(test)]
mod tests {
    use cluster::ids::DatabaseId;

    use super::*;

    const ONE: TemplateId = TemplateId(1);

    #[test]
    fn a_template_is_trusted_after_a_few_and_for_long_not_after_it_failed() {
        let mut all = Beginnings::default();
        let (nothing, may) = (BTreeSet::new(), |all: &Beginnings, one| all.may_leave(one, 7).is_some());
        for _ in 0..SURE {
            assert!(!may(&all, ONE));
            all.note(ONE, 7, false, &nothing);
        }
        assert!(may(&all, ONE) && !may(&all, TemplateId(2)));
        all.note(ONE, 7, true, &nothing);
        for _ in 0..SURE_AGAIN {
            assert!(!may(&all, ONE));
            all.note(ONE, 7, false, &nothing);
        }
        assert!(may(&all, ONE));
        assert!(all.may_leave(ONE, 8).is_none(), "the schema has changed");
        all.note(TemplateId(2), 8, false, &nothing);
        assert!(!may(&all, ONE), "what was learned before is forgotten");
    }

    #[test]
    fn what_they_drew_from_is_remembered() {
        let mut all = Beginnings::default();
        let only = |n: usize| BTreeSet::from([DatabaseId::FIRST.sequence(u32::try_from(n).unwrap())]);
        for n in [3, 5, 3] {
            all.note(ONE, 7, false, &only(n));
        }
        let both = BTreeSet::from([DatabaseId::FIRST.sequence(3), DatabaseId::FIRST.sequence(5)]);
        assert_eq!(all.may_leave(ONE, 7), Some(&both));
        for n in 0..=DRAWS_MAX {
            all.note(ONE, 7, false, &only(n));
        }
        assert_eq!(all.may_leave(ONE, 7), None, "these are too many");
    }

    #[test]
    fn the_number_is_bounded() {
        let mut all = Beginnings::default();
        for template in 0..2 * BEGINNINGS_MAX as u64 {
            all.note(TemplateId(template), 1, false, &BTreeSet::new());
        }
        assert_eq!(all.of.len(), BEGINNINGS_MAX);
        assert!(all.of.contains_key(&TemplateId(2 * BEGINNINGS_MAX as u64 - 1)));
    }
}
