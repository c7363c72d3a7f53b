//! The sizes of the tables, as a server told them last.
//!
//! Only a protocol that places by memory fills this ([`crate::replica::table_size_probe`]). The sizes are up to half a
//! minute old; they decide where a transaction runs, and nothing else.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use cluster::ids::TableId;

/// Bytes by table.
#[derive(Debug, Default)]
pub(crate) struct TableSizes(RwLock<BTreeMap<TableId, u64>>);

impl TableSizes {
    /// Takes the sizes of all tables.
    pub(crate) fn set(&self, sizes: BTreeMap<TableId, u64>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = sizes;
    }

    /// These tables with their sizes in bytes; 0 for one whose size is not known.
    pub(crate) fn of(&self, tables: &[TableId]) -> Vec<(TableId, u64)> {
        let sizes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        tables.iter().map(|table| (*table, sizes.get(table).copied().unwrap_or_default())).collect()
    }
}
