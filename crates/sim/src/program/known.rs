//! Plans for protocols other than `onecopy`, and plans with nothing but transactions that are known beforehand.

use cluster::protocols::rows::{Choices, KEYS_MAX, Order, PATIENCE_US, Rule};

use super::{Plan, Program};
use crate::dice::Dice;
use crate::history::Level;
use crate::record;

/// The longest of short patiences, in microseconds.
const PATIENCE_SHORT_US: u64 = 20_000;

impl Plan {
    /// The plan of a seed under a protocol.
    pub fn of(seed: u64, protocol: Choices) -> Self {
        let mut dice = Dice::new(seed);
        Self::draw(&mut dice).under(protocol, &mut dice)
    }

    /// The plan as it is run under a protocol.
    ///
    /// Where transactions stand in chains, none that is known may fail. So rows that others have written without saying so are
    /// reserved at once, and no key is forgotten. In some plans transactions lose patience with those before them. By [`Rule::ReadWrite`] every client asks for SERIALIZABLE.
    /// The same holds for an order by stamps, where in some plans every client asks for that.
    fn under(mut self, protocol: Choices, dice: &mut Dice) -> Self {
        if let Order::Chains(rule) = protocol.order {
            (self.reserves_late, self.keys_max) = (true, KEYS_MAX);
            if dice.percent(30) {
                self.patience_us = dice.between(1, PATIENCE_SHORT_US);
            }
            if rule == Rule::ReadWrite {
                self.sessions.iter_mut().flatten().for_each(|program| program.level = Level::Serializable);
            }
        }
        if let Order::Stamps(_) = protocol.order {
            (self.reserves_late, self.keys_max) = (true, KEYS_MAX);
            if dice.percent(10) {
                self.patience_us = dice.between(1, PATIENCE_SHORT_US);
            }
            if dice.percent(40) {
                self.sessions.iter_mut().flatten().for_each(|program| program.level = Level::Serializable);
            }
        }
        self
    }

    /// The plan without transactions that write more than is known when they begin, and without short
    /// patience, which fails a known one.
    #[must_use]
    pub fn only_known(mut self) -> Self {
        self.patience_us = PATIENCE_US;
        let row_claims_max = self.row_claims_max;
        let is_known = |program: &Program| {
            (!program.is_update() || record::is_known(program, row_claims_max)) && !program.changes_view()
        };
        self.sessions.iter_mut().for_each(|programs| programs.retain(is_known));
        self
    }
}
