//! Plans for protocols other than `onecopy`, and plans with nothing but transactions that are known beforehand.

use cluster::protocols::rows::{Choices, KEYS_MAX, Order, Rule};

use super::{Plan, Program};
use crate::history::Level;
use crate::record;

impl Plan {
    /// The plan as it is run under a protocol.
    ///
    /// Where transactions stand in chains, none that is known may fail. So rows that others have written without saying so are
    /// reserved at once, and no key is forgotten. By [`Rule::ReadWrite`] every client asks for SERIALIZABLE.
    #[must_use]
    pub fn under(mut self, protocol: Choices) -> Self {
        if let Order::Chains(rule) = protocol.order {
            (self.reserves_late, self.keys_max) = (true, KEYS_MAX);
            if rule == Rule::ReadWrite {
                self.sessions.iter_mut().flatten().for_each(|program| program.level = Level::Serializable);
            }
        }
        self
    }

    /// The plan without transactions that write more than is known when they begin.
    #[must_use]
    pub fn only_known(mut self) -> Self {
        let row_claims_max = self.row_claims_max;
        let is_known = |program: &Program| {
            (!program.is_update() || record::is_known(program, row_claims_max)) && !program.changes_view()
        };
        self.sessions.iter_mut().for_each(|programs| programs.retain(is_known));
        self
    }
}
