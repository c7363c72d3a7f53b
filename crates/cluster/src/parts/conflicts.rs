//! Counts of waits and aborts by table, which an operator looks at first.

use std::collections::BTreeMap;

use crate::ids::TableId;

/// Most tables counted apart. Others are counted together with conflicts without a table.
pub const CLASSES_MAX: usize = 1_000;

/// The counts of one table, or of conflicts without a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// The table.
    pub table: Option<TableId>,
    /// Statements that waited for a transaction of another home.
    pub waits: u64,
    /// The sum of their waits.
    pub waited_us: u64,
    /// Transactions aborted because of a conflict.
    pub aborts: u64,
    /// Transactions aborted to break a deadlock.
    pub deadlocks: u64,
}

/// All counts.
#[derive(Debug, Default)]
pub struct Conflicts {
    counts: BTreeMap<Option<TableId>, Count>,
}

impl Conflicts {
    /// The count to add to.
    pub fn of(&mut self, table: Option<TableId>) -> &mut Count {
        let is_full = self.counts.len() >= CLASSES_MAX;
        let table = table.filter(|_| !is_full || self.counts.contains_key(&table));
        let count = self.counts.entry(table).or_default();
        count.table = table;
        count
    }

    /// All, the worst first.
    pub fn all(&self) -> Vec<Count> {
        let mut all: Vec<Count> = self.counts.values().copied().collect();
        all.sort_by_key(|count| std::cmp::Reverse((count.aborts + count.deadlocks, count.waited_us)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    #[test]
    fn the_worst_come_first_and_the_number_is_bounded() {
        let mut conflicts = Conflicts::default();
        conflicts.of(Some(DatabaseId::FIRST.table(1))).waited_us += 10;
        conflicts.of(Some(DatabaseId::FIRST.table(2))).aborts += 1;
        conflicts.of(None).deadlocks += 2;
        let tables: Vec<_> = conflicts.all().iter().map(|count| count.table).collect();
        assert_eq!(tables, [None, Some(DatabaseId::FIRST.table(2)), Some(DatabaseId::FIRST.table(1))]);
        for table in 0..2 * CLASSES_MAX as u32 {
            conflicts.of(Some(DatabaseId::FIRST.table(table))).waits += 1;
        }
        assert!(conflicts.all().len() <= CLASSES_MAX);
        assert!(conflicts.of(None).waits > 0);
    }
}
