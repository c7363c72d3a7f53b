//! Which transactions may begin away from the anchor, by the template that they begin with.
//!
//! Of an interactive transaction only the first statement is known when its home is chosen. If those that began alike so
//! far never needed the anchor, this one is not likely to. A wrong guess costs a move, or an error that says to repeat it;
//! so one that needed the anchor once counts until it has not for a while.

use std::collections::BTreeMap;

use sql::TemplateId;

/// So often a template must have been seen without need of the anchor.
const SURE: u32 = 3;
/// So often after it needed the anchor.
const SURE_AGAIN: u32 = 300;
/// Most templates that are remembered.
const BEGINNINGS_MAX: usize = 4_096;

#[derive(Clone, Copy, Debug)]
struct Beginning {
    /// How often it did not need the anchor since it last did.
    free: u32,
    wanted: u32,
    last: u64,
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
    /// A transaction that began with this template needed the anchor, or not.
    pub(super) fn note(&mut self, template: TemplateId, generation: u64, needs_anchor: bool) {
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
        let known = self.of.entry(template).or_insert(Beginning { free: 0, wanted: SURE, last });
        known.last = last;
        if needs_anchor {
            (known.free, known.wanted) = (0, SURE_AGAIN);
        } else {
            known.free = known.free.saturating_add(1);
        }
    }

    /// Whether a transaction that begins with this template may be expected not to need the anchor.
    pub(super) fn may_leave(&self, template: TemplateId, generation: u64) -> bool {
        self.generation == generation
            && self.of.get(&template).is_some_and(|known| known.free >= known.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TemplateId = TemplateId(1);

    #[test]
    fn a_template_is_trusted_after_a_few_and_for_long_not_after_it_failed() {
        let mut all = Beginnings::default();
        for _ in 0..SURE {
            assert!(!all.may_leave(ONE, 7));
            all.note(ONE, 7, false);
        }
        assert!(all.may_leave(ONE, 7) && !all.may_leave(TemplateId(2), 7));
        all.note(ONE, 7, true);
        for _ in 0..SURE_AGAIN {
            assert!(!all.may_leave(ONE, 7));
            all.note(ONE, 7, false);
        }
        assert!(all.may_leave(ONE, 7));
        assert!(!all.may_leave(ONE, 8), "the schema has changed");
        all.note(TemplateId(2), 8, false);
        assert!(!all.may_leave(ONE, 7), "what was learned before is forgotten");
    }

    #[test]
    fn the_number_is_bounded() {
        let mut all = Beginnings::default();
        for template in 0..2 * BEGINNINGS_MAX as u64 {
            all.note(TemplateId(template), 1, false);
        }
        assert_eq!(all.of.len(), BEGINNINGS_MAX);
        assert!(all.of.contains_key(&TemplateId(2 * BEGINNINGS_MAX as u64 - 1)));
    }
}
