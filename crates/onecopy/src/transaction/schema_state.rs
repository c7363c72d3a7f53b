//! The schema changes of an open transaction, and the definitions that it relies on.

use std::collections::BTreeSet;

use sql::{DdlFacts, Name};

use super::definitions::Definitions;

/// Kinds of schema change after which the catalogue is still right about everything but the relations that they name.
const CONCERNS_NAMED: [&str; 6] =
    ["AlterTableStmt", "CommentStmt", "CreateSeqStmt", "CreateStmt", "GrantStmt", "IndexStmt"];

/// The schema as one update transaction sees it.
#[derive(Debug, Default)]
pub(crate) struct SchemaState {
    /// The parts of the catalogue that its schema changes have outdated; `None` without schema changes.
    changes: Option<SchemaChanges>,
    /// The definitions that it uses and replaces.
    pub(crate) definitions: Definitions,
    /// Set if statements of the transaction may have changed roles or other objects that all databases share. Holds the
    /// number of changes of such objects after the last such statement.
    pub(crate) shared_changes: Option<String>,
}

/// The parts of the catalogue that schema changes have outdated. The catalogue has none of these changes yet.
#[derive(Default, Debug)]
struct SchemaChanges {
    /// Bare names of relations.
    relations: BTreeSet<String>,
    /// A schema change may concern any object.
    everything: bool,
}

impl SchemaState {
    /// The transaction has changed the schema.
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// A schema change has run.
    pub(crate) fn note_change(&mut self, facts: &DdlFacts) {
        let changes = self.changes.get_or_insert_default();
        changes.everything |= !CONCERNS_NAMED.contains(&facts.tag);
        changes.relations.extend(facts.relations.iter().map(|name| name.name.clone()));
    }

    /// Whether the catalogue is still right about functions, casts and the like, and about these relations.
    pub(crate) fn leaves_known(&self, relations: &[Name]) -> bool {
        self.changes.as_ref().is_none_or(|changes| {
            !changes.everything && relations.iter().all(|name| !changes.relations.contains(&name.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use sql::{Analyzer, Limits, Verb};

    use super::*;

    fn facts(text: &str) -> DdlFacts {
        let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
        let Verb::Ddl(facts) = &script.statements[0].statement.verb else {
            panic!("no schema change: {text}")
        };
        facts.clone()
    }

    #[test]
    fn a_change_of_one_table_leaves_the_others_known() {
        let mut schema = SchemaState::default();
        assert!(!schema.has_changes() && schema.leaves_known(&[Name::bare("t")]));
        schema.note_change(&facts("ALTER TABLE t ADD COLUMN w int"));
        assert!(schema.has_changes());
        assert!(!schema.leaves_known(&[Name::bare("t")]) && schema.leaves_known(&[Name::bare("u")]));
    }

    #[test]
    fn a_change_that_may_concern_anything_leaves_nothing_known() {
        let mut schema = SchemaState::default();
        schema.note_change(&facts("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'"));
        assert!(!schema.leaves_known(&[]));
    }
}
