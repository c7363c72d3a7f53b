//! The definitions that the last schema changes have changed.
//!
//! A session analyses with a catalogue what a statement reads, writes and locks. A schema change may be applied at the
//! statement's server before the statement runs, or while it runs. The analysis is still right if no definition that it rests
//! on has changed by then: names of relations and functions, by their hashes ([`crate::claims::definitions`]). So the session
//! asks when the transaction has run. A change is durable before it is applied anywhere, so this file knows every change that
//! was applied meanwhile.
//!
//! Invariant: a change that is not remembered any more counts as one of every definition.

use std::collections::{BTreeSet, VecDeque};

use crate::claims::{Claims, is_definitions};
use crate::ids::{DatabaseId, Version};

/// The number of schema changes that are remembered.
pub const CHANGES_MAX: usize = 1_000;

/// The definitions that one schema change changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Defined {
    /// Any definition. Sequence leases are revoked.
    Anything,
    /// The objects with these names, by database and hash.
    Names(BTreeSet<(DatabaseId, u64)>),
}

impl Defined {
    /// The definitions among the claims of the change.
    pub fn of(claims: &Claims) -> Self {
        if claims.everything {
            return Self::Anything;
        }
        let names = claims.rows.iter().filter(|(table, _)| is_definitions(*table));
        Self::Names(names.map(|(table, name)| (table.database, *name)).collect())
    }

    fn concerns(&self, database: DatabaseId, mentioned: &[u64]) -> bool {
        match self {
            Self::Anything => true,
            Self::Names(names) => mentioned.iter().any(|name| names.contains(&(database, *name))),
        }
    }
}

/// The last schema changes.
#[derive(Debug)]
pub struct SchemaChanges {
    recent: VecDeque<(Version, Defined)>,
    /// The last one that is not remembered.
    forgotten: Version,
    /// The last one that revoked sequence leases.
    voided: Version,
}

impl SchemaChanges {
    /// At the start of a term. Nothing is known of schema changes up to `schema`; none after it is in the log, which ends with `last`.
    /// Leases of former terms are revoked.
    pub fn recovered(last: Version, schema: Version) -> Self {
        Self { recent: VecDeque::new(), forgotten: schema, voided: last }
    }

    /// A schema change is durable, after all those before.
    pub fn note(&mut self, version: Version, defined: Defined) {
        if defined == Defined::Anything {
            self.voided = version;
        }
        self.recent.push_back((version, defined));
        if self.recent.len() > CHANGES_MAX
            && let Some((version, _)) = self.recent.pop_front()
        {
            self.forgotten = version;
        }
    }

    /// Whether one after this version may have changed the definition of an object that is mentioned in a database.
    pub fn concern(&self, since: Version, database: DatabaseId, mentioned: &[u64]) -> bool {
        let later = self.recent.iter().rev().take_while(|(version, _)| *version > since);
        self.forgotten > since
            || later.map(|(_, defined)| defined).any(|one| one.concerns(database, mentioned))
    }

    /// Whether one after this version may have revoked sequence leases.
    pub fn void_lent(&self, since: Version) -> bool {
        self.voided > since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::definitions;

    const SALES: DatabaseId = DatabaseId(1);
    const STOCK: DatabaseId = DatabaseId(2);

    fn names(all: &[u64]) -> Defined {
        let rows = all.iter().map(|name| (definitions(SALES), *name)).collect();
        Defined::of(&Claims { rows, ..Claims::default() })
    }

    #[test]
    fn only_later_changes_of_what_is_mentioned_concern() {
        let mut changes = SchemaChanges::recovered(Version(4), Version(3));
        changes.note(Version(5), names(&[7]));
        changes.note(Version(8), names(&[9]));
        assert!(changes.concern(Version(2), SALES, &[]), "what was before is not known");
        assert!(changes.concern(Version(4), SALES, &[6, 7]));
        assert!(!changes.concern(Version(4), SALES, &[6]));
        assert!(!changes.concern(Version(5), SALES, &[7]));
        assert!(changes.concern(Version(5), SALES, &[9]) && !changes.concern(Version(8), SALES, &[9]));
        assert!(changes.void_lent(Version(3)) && !changes.void_lent(Version(4)), "leases of former terms");
    }

    #[test]
    fn unknown_changes_concern_all_names() {
        let mut changes = SchemaChanges::recovered(Version(0), Version(0));
        changes.note(Version(2), Defined::of(&Claims::everything()));
        assert!(changes.concern(Version(1), SALES, &[]) && changes.void_lent(Version(1)));
        assert!(!changes.concern(Version(2), SALES, &[]) && !changes.void_lent(Version(2)));
    }

    #[test]
    fn forgotten_changes_concern_all_names() {
        let mut changes = SchemaChanges::recovered(Version(0), Version(0));
        (1..=CHANGES_MAX as u64 + 2).for_each(|version| changes.note(Version(version), names(&[7])));
        assert!(changes.concern(Version(1), SALES, &[]) && !changes.concern(Version(2), SALES, &[]));
    }

    #[test]
    fn a_name_of_another_database_does_not_concern() {
        let mut changes = SchemaChanges::recovered(Version(0), Version(0));
        changes.note(Version(1), names(&[7]));
        assert!(changes.concern(Version(0), SALES, &[7]) && !changes.concern(Version(0), STOCK, &[7]));
    }
}
