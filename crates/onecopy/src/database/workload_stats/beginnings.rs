//! Which transactions may begin away from the anchor, by the template that they begin with.
//!
//! Of an interactive transaction only the first statement is known when its home is chosen. If those that began alike so
//! far never needed the anchor, this one is not likely to. A wrong guess costs a move, or an error that says to repeat it;
//! so one that needed the anchor once counts until it has not for a while. Those that drew from sequences begin elsewhere
//! only where these are lent to, and not as long as the anchor has room.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::SequenceId;
use sql::TemplateId;

/// So often a template must have been seen without need of the anchor.
const SURE: u32 = 3;
/// So often after it needed the anchor.
const SURE_AGAIN: u32 = 300;
/// Most templates that are remembered.
const BEGINNINGS_MAX: usize = 4_096;
/// Who draws from more sequences than this begins at the anchor.
const DRAWS_MAX: usize = 16;

#[derive(Clone, Debug)]
struct Beginning {
    /// How often it did not need the anchor since it last did.
    free: u32,
    wanted: u32,
    last: u64,
    /// What any of them drew from.
    draws: BTreeSet<SequenceId>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Beginnings {
    of: BTreeMap<TemplateId, Beginning>,
    /// The catalogue that all this was learned under.
    generation: u64,
    runs: u64,
}

impl Beginnings {
    /// A transaction that began with this template needed the anchor, or not, and drew from these sequences.
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

    /// If a transaction that begins with this template may be expected not to need the anchor: what it may draw from.
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
