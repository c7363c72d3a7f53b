//! The kind of a transaction with its working set, for protocols that place by memory.
//!
//! Example: under protocol `tashkent+`, `SELECT * FROM orders WHERE id = 7` is of the same kind as with 8, and its working
//! set is the table `orders`, with its size. The core sends both to the replicas that keep `orders` in memory
//! ([`cluster::protocols::tashkent_plus`]).
//!
//! A block is of the kind of its first statement. Under other protocols there are no kinds, and nothing is looked up.

use cluster::event::Kind;
use cluster::ids::TableId;

use crate::classify::statement_analysis::StatementAnalysis;
use crate::transaction::view::View;

impl View<'_> {
    /// The kind of what begins with these statements, if the protocol asks for it and their tables are bounded.
    pub(crate) fn kind(self, analysis: &StatementAnalysis) -> Option<Box<Kind>> {
        if !self.link.tells_kinds() {
            return None;
        }
        let (id, tables) = (analysis.kind()?, analysis.tables()?);
        let tables: Vec<TableId> = tables.into_iter().collect();
        let tables = self.link.database().table_sizes.of(&tables);
        (!tables.is_empty()).then(|| Box::new(Kind { id, tables }))
    }
}
