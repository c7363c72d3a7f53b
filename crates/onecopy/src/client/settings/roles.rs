//! RESET ROLE after the role was dropped.
//!
//! Before a statement runs, its connection gets the settings of the session. A role that was dropped meanwhile cannot
//! be set any more. That must not keep the client from giving the role up, so RESET ROLE and its kin drop the role
//! from the replay first.

use super::{Entry, ROLES, Settings};

/// The SET ROLE that was dropped from the replay.
#[derive(Debug, Default)]
pub(crate) struct GivenUp(Vec<Entry>);

impl Settings {
    /// Drops the role from the replay before a statement that gives it up, and returns it.
    pub(crate) fn give_up_role(&mut self, name: Option<&str>) -> GivenUp {
        let is_it = |entry: &mut Entry| {
            ROLES.contains(&entry.name.as_str()) && name.is_none_or(|name| name == entry.name)
        };
        let given_up: Vec<Entry> = self.kept.extract_if(.., is_it).collect();
        self.generation += u64::from(!given_up.is_empty());
        self.has_given_up |= !given_up.is_empty();
        GivenUp(given_up)
    }

    /// Restores it, because the statement failed.
    pub(crate) fn take_back_role(&mut self, GivenUp(given_up): GivenUp) {
        self.generation += u64::from(!given_up.is_empty());
        self.kept.extend(given_up);
    }
}
