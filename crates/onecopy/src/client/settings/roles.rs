//! Giving up a role that was set.
//!
//! Before a statement runs, its connection is brought to what the session has set, and a role that was dropped since cannot be
//! set any more. Whoever wants to be rid of it is not to fail because of that.

use super::{Entry, ROLES, Settings};

/// A role that was set before.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(Vec<Entry>);

impl Settings {
    /// A role is about to be given up, or any: one that is gone by now must not keep the session from that. What was set.
    pub(crate) fn give_up_role(&mut self, name: Option<&str>) -> GivenUp {
        let is_it = |entry: &mut Entry| {
            ROLES.contains(&entry.name.as_str()) && name.is_none_or(|name| name == entry.name)
        };
        let given_up: Vec<Entry> = self.kept.extract_if(.., is_it).collect();
        self.generation += u64::from(!given_up.is_empty());
        self.has_given_up |= !given_up.is_empty();
        GivenUp(given_up)
    }

    /// It was not given up after all.
    pub(crate) fn take_back_role(&mut self, GivenUp(given_up): GivenUp) {
        self.generation += u64::from(!given_up.is_empty());
        self.kept.extend(given_up);
    }
}
