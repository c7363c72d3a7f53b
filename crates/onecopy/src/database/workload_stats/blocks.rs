//! Which statements transaction blocks have run together: a block runs where all that its statements touch is held.
//!
//! Example: a block of an UPDATE and an INSERT has run 40 times. Then 40 of the runs of each were not alone.

use std::collections::{BTreeMap, BTreeSet};

use sql::TemplateId;

/// The most sets of statements. Beyond them the one with the fewest runs is forgotten.
const BLOCKS_MAX: usize = 1_000;

/// The sets of statements that ran together, with the number of such blocks.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    all: BTreeMap<BTreeSet<TemplateId>, u64>,
}

impl Blocks {
    /// A block with these statements has committed.
    pub(super) fn note(&mut self, templates: BTreeSet<TemplateId>) {
        if let Some(runs) = self.all.get_mut(&templates) {
            *runs += 1;
            return;
        }
        if self.all.len() >= BLOCKS_MAX {
            let rarest =
                self.all.iter().min_by_key(|(_, runs)| **runs).map(|(templates, _)| templates.clone());
            rarest.and_then(|templates| self.all.remove(&templates));
        }
        self.all.insert(templates, 1);
    }

    /// Each set, with the number of its runs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BTreeSet<TemplateId>, u64)> {
        self.all.iter().map(|(templates, runs)| (templates, *runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rarest_set_is_forgotten() {
        let mut blocks = Blocks::default();
        let set = |number: u64| BTreeSet::from([TemplateId(number), TemplateId(0)]);
        for number in 0..=BLOCKS_MAX as u64 {
            blocks.note(set(number));
            if number != 5 {
                blocks.note(set(number));
            }
        }
        assert_eq!(blocks.iter().count(), BLOCKS_MAX);
        assert!(blocks.iter().all(|(templates, runs)| *templates != set(5) && runs <= 2));
    }
}
