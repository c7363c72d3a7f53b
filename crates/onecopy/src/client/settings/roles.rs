//! RESET ROLE after the role was dropped.
//!
//! Before a statement runs, its connection gets the settings of the session. A role that was dropped meanwhile cannot
//! be set any more. That must not keep the client from giving the role up, so RESET ROLE and its kin drop the role
//! from the replay first.

use super::{Entry, ROLES, Settings};

/// The SET ROLE that was dropped from the replay.
#[derive(Debug, Default)]
pub(crate) struct RemovedRole(Vec<Entry>);

impl Settings {
    /// Drops the role from the replay before a statement that gives it up, and returns it.
    pub(crate) fn remove_role(&mut self, name: Option<&str>) -> RemovedRole {
        let is_it = |entry: &mut Entry| {
            ROLES.contains(&entry.name.as_str()) && name.is_none_or(|name| name == entry.name)
        };
        let removed: Vec<Entry> = self.kept.extract_if(.., is_it).collect();
        self.generation += u64::from(!removed.is_empty());
        self.has_removed_role |= !removed.is_empty();
        RemovedRole(removed)
    }

    /// Restores it, because the statement failed.
    pub(crate) fn restore_role(&mut self, RemovedRole(removed): RemovedRole) {
        self.generation += u64::from(!removed.is_empty());
        self.kept.extend(removed);
    }
}
