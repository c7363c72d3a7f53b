//! TRUNCATE in the captured rows, where its order or its rollback is uncertain.

use std::collections::BTreeSet;

use cluster::ids::TableId;

use crate::capture::Operation;

/// The captured TRUNCATEs.
#[derive(Debug, Default)]
pub(crate) struct Truncates {
    /// A function truncated a table. An exception block may have rolled it back, which cannot be found out.
    pub(crate) has_nested: bool,
    /// A trigger wrote rows of a table during a TRUNCATE that emptied the table before, but reported it after.
    pub(crate) has_torn: bool,
    /// Tables that functions have written since the last reported TRUNCATE, while its statement may still run.
    written_since: Option<BTreeSet<TableId>>,
}

impl Truncates {
    /// A TRUNCATE empties all its tables before the triggers of the first one run, but it reports each table only at
    /// its own triggers. Rows that a trigger meanwhile writes into a table reported later would be lost at the other
    /// replicas.
    pub(crate) fn note(&mut self, table: TableId, is_nested: bool, operation: Operation) {
        self.has_nested |= is_nested && operation == Operation::Truncate;
        match (operation, &mut self.written_since) {
            (Operation::Truncate, Some(written)) => self.has_torn |= written.contains(&table),
            (Operation::Truncate, none) => *none = Some(BTreeSet::new()),
            (_, Some(written)) if is_nested => _ = written.insert(table),
            // Another statement has begun.
            (_, written) => *written = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TableId = cluster::ids::DatabaseId(0).table(1);
    const B: TableId = cluster::ids::DatabaseId(0).table(2);

    #[test]
    fn a_table_that_a_trigger_writes_before_it_is_reported_is_torn() {
        let mut truncates = Truncates::default();
        truncates.note(A, false, Operation::Truncate);
        truncates.note(B, true, Operation::Insert);
        truncates.note(B, false, Operation::Truncate);
        assert!(truncates.has_torn && !truncates.has_nested);
    }

    #[test]
    fn another_statement_ends_a_truncate() {
        let mut truncates = Truncates::default();
        truncates.note(A, false, Operation::Truncate);
        truncates.note(B, false, Operation::Insert);
        truncates.note(B, true, Operation::Insert);
        truncates.note(B, false, Operation::Truncate);
        assert!(!truncates.has_torn);
        truncates.note(B, true, Operation::Truncate);
        assert!(truncates.has_nested);
    }
}
