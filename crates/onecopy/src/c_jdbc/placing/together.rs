//! What must be held by the same replicas, so that statements that change it run somewhere.
//!
//! A statement that writes a row with a foreign key locks the row that it refers to, and one that deletes that looks for
//! rows that refer to it: each writes both tables, at all their holders. Only holders of a sequence have its state.

use std::collections::BTreeMap;

use cluster::ids::TableId;
use cluster::placement::Placement;
use sql::Catalogue;

use super::copy::sequences;
use crate::coordinator::Leader;
use crate::membership::place_table::closure::Breach;
use crate::shipping::locks::sequence_lock;

/// The first two tables that would have other holders than each other, and may not.
pub(super) fn breach(placement: &Placement, catalogue: &Catalogue, leader: &Leader) -> Option<Breach> {
    let holders = |table: TableId| placement.holders_of_all(&[table]);
    let apart = |tables: [TableId; 2], shared: String| {
        let [own, its] = tables.map(holders);
        (own != its).then(|| Breach::Apart { tables: tables.map(|table| leader.table_name(table)), shared })
    };
    let mut drawing: BTreeMap<TableId, TableId> = BTreeMap::new();
    for table in catalogue.tables() {
        for reference in &table.references {
            if let Some(breach) = apart([table.id, reference.parent], "a foreign key".to_owned()) {
                return Some(breach);
            }
        }
        for sequence in sequences(table.id, catalogue) {
            let first = *drawing.entry(sequence_lock(&sequence.name)).or_insert(table.id);
            if let Some(breach) = apart([first, table.id], format!("sequence \"{}\"", sequence.name)) {
                return Some(breach);
            }
        }
    }
    None
}
