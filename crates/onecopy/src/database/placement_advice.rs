//! Advice on which tables fewer replicas should hold, from what clients' statements have read and written so far.
//!
//! Every replica that holds a table applies its rows, whether or not a statement reads them there. A table whose statements take a tenth
//! of the servers' time keeps a tenth of the servers busy, so a tenth of them is enough, and two for safety. A table goes together with
//! those that refer to it, since these can be held only where it is.
//!
//! Example: four replicas, and `audit` is written as often as orders, and read in 1 % of the time. Two copies are enough, and half of all
//! that is applied of it is applied in vain.
//!
//! A transaction block counts as a whole: it runs where all is held that its statements touch.
//!
//! It is advice: a table that is read seldom and urgently may be wanted everywhere all the same. Statements whose tables are not bounded
//! run only where everything is held, so they count for no table.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::TableId;

/// A copy may be lost.
const COPIES_MIN: usize = 2;

/// How statements alone, or transaction blocks, have used tables so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableUse {
    pub(crate) runs: u64,
    /// The time that servers worked for all runs.
    pub(crate) served_us: u64,
    /// The tables that a run reads or writes, if they are bounded.
    pub(crate) tables: Option<BTreeSet<TableId>>,
    /// Those among them that it writes.
    pub(crate) written: BTreeSet<TableId>,
}

impl TableUse {
    /// Takes so many runs away, or as many as there are, and returns them.
    pub(crate) fn take(&mut self, runs: u64) -> Self {
        let taken = runs.min(self.runs);
        let served_us = self.served_us.saturating_mul(taken) / self.runs.max(1);
        self.runs -= taken;
        self.served_us -= served_us;
        Self { runs: taken, served_us, ..self.clone() }
    }

    /// A statement of each of these runs.
    pub(crate) fn add(&mut self, statement: &Self) {
        self.served_us += statement.served_us;
        self.written.extend(&statement.written);
        match (&mut self.tables, &statement.tables) {
            (Some(tables), Some(more)) => tables.extend(more),
            (tables, _) => *tables = None,
        }
    }
}

/// Tables that fewer replicas could hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    /// A table, and those that refer to it.
    pub(crate) tables: BTreeSet<TableId>,
    /// How often statements have written them.
    pub(crate) writes: u64,
    /// The part of the servers' time that went to statements with one of them, in thousandths.
    pub(crate) share: u64,
    /// How many replicas hold them.
    pub(crate) copies: usize,
    /// How many are enough.
    pub(crate) enough: usize,
}

impl Advice {
    /// How many times a written row was applied where it need not have been.
    pub(crate) fn in_vain(&self) -> u64 {
        self.writes * (self.copies - self.enough) as u64
    }
}

/// The schema and its placement, as far as advice needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldSchema {
    /// The number of replicas.
    pub(crate) replicas: usize,
    /// How many of them hold each table. There is no advice on tables that are not here, and on those to which they refer.
    pub(crate) copies: BTreeMap<TableId, usize>,
    /// The tables that refer to a table.
    pub(crate) children: BTreeMap<TableId, BTreeSet<TableId>>,
}

impl HeldSchema {
    /// A table and all that refer to it, directly or not.
    fn with_children(&self, table: TableId) -> BTreeSet<TableId> {
        let (mut found, mut next) = (BTreeSet::new(), vec![table]);
        while let Some(table) = next.pop() {
            if found.insert(table) {
                next.extend(self.children.get(&table).into_iter().flatten());
            }
        }
        found
    }
}

/// Tables that fewer replicas could hold, the most worthwhile first. No table is in two of them.
pub(crate) fn advise(uses: &[TableUse], schema: &HeldSchema) -> Vec<Advice> {
    let total_us: u64 = uses.iter().map(|one| one.served_us).sum::<u64>().max(1);
    let of_group = |root: &TableId| {
        let tables = schema.with_children(*root);
        let touches = |one: &&TableUse| one.tables.as_ref().is_some_and(|own| !own.is_disjoint(&tables));
        let served_us: u64 = uses.iter().filter(touches).map(|one| one.served_us).sum();
        let writes = uses.iter().map(|one| one.runs * one.written.intersection(&tables).count() as u64).sum();
        let share = served_us.saturating_mul(1_000) / total_us;
        let busy =
            usize::try_from(share).unwrap_or(usize::MAX).saturating_mul(schema.replicas).div_ceil(1_000);
        let copies =
            tables.iter().filter_map(|table| schema.copies.get(table)).max().copied().unwrap_or_default();
        Advice { tables, writes, share, copies, enough: busy.max(COPIES_MIN) }
    };
    let mut all: Vec<Advice> = schema.copies.keys().map(of_group).collect();
    let is_known = |advice: &Advice| advice.tables.iter().all(|table| schema.copies.contains_key(table));
    all.retain(|advice| advice.enough < advice.copies && advice.writes > 0 && is_known(advice));
    all.sort_by_key(|advice| std::cmp::Reverse((advice.in_vain(), advice.tables.len())));
    let mut taken: BTreeSet<TableId> = BTreeSet::new();
    all.retain(|advice| {
        let is_free = taken.is_disjoint(&advice.tables);
        if is_free {
            taken.extend(&advice.tables);
        }
        is_free
    });
    all
}

#[cfg(test)]
mod tests {
    use cluster::ids::DatabaseId;

    use super::*;

    const fn table(number: u32) -> TableId {
        DatabaseId::FIRST.table(number)
    }

    const ORDERS: TableId = table(1);
    const LINES: TableId = table(2);
    const AUDIT: TableId = table(3);

    fn used(runs: u64, served_us: u64, read: &[TableId], written: &[TableId]) -> TableUse {
        let tables = read.iter().chain(written).copied().collect();
        TableUse { runs, served_us, tables: Some(tables), written: written.iter().copied().collect() }
    }

    /// Lines refer to orders.
    fn schema(replicas: usize) -> HeldSchema {
        HeldSchema {
            replicas,
            copies: [ORDERS, LINES, AUDIT].map(|table| (table, replicas)).into(),
            children: [(ORDERS, [LINES].into())].into(),
        }
    }

    #[test]
    fn what_is_written_and_seldom_read_goes_to_two() {
        let uses = [used(100, 900_000, &[LINES], &[ORDERS]), used(100, 10_000, &[], &[AUDIT])];
        let advice = advise(&uses, &schema(4));
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert_eq!((&advice[0].tables, advice[0].copies, advice[0].enough), (&[AUDIT].into(), 4, 2));
        assert_eq!((advice[0].writes, advice[0].share, advice[0].in_vain()), (100, 10, 200));
        assert_eq!(advise(&uses, &schema(2)), [], "both replicas are wanted");
    }

    /// A child is held only where its parent is, so a parent that moves takes it along.
    #[test]
    fn tables_that_refer_to_a_table_go_with_it() {
        let uses = [used(10, 100, &[], &[ORDERS, LINES]), used(1, 900, &[AUDIT], &[])];
        let advice = advise(&uses, &schema(8));
        assert_eq!(advice.len(), 1);
        assert_eq!((&advice[0].tables, advice[0].writes), (&[ORDERS, LINES].into(), 20));
        let lines_are_read = [used(10, 100, &[], &[ORDERS]), used(1, 900, &[LINES], &[])];
        assert_eq!(advise(&lines_are_read, &schema(8)), [], "orders cannot leave where lines are");
    }

    /// A block that writes the audit beside orders binds all its work to where the audit is.
    #[test]
    fn a_block_counts_as_a_whole() {
        let mut orders = used(100, 800, &[ORDERS], &[]);
        let mut block = TableUse { runs: 75, tables: Some(BTreeSet::new()), ..TableUse::default() };
        block.add(&orders.take(75));
        block.add(&used(75, 200, &[], &[AUDIT]));
        assert_eq!((orders.runs, orders.served_us, block.served_us), (25, 200, 800));
        assert_eq!(advise(&[orders, block.clone()], &schema(4)), [], "four fifths of the time need it");
        block.add(&TableUse::default());
        assert_eq!(block.tables, None, "a part of it may touch anything");
    }

    #[test]
    fn as_many_are_enough_as_statements_keep_busy() {
        for (served_us, enough) in [(100, 2), (300, 3), (600, 5)] {
            let uses = [used(5, served_us, &[], &[AUDIT]), used(1, 1_000 - served_us, &[ORDERS], &[])];
            assert_eq!(advise(&uses, &schema(8))[0].enough, enough, "{served_us}");
        }
        let never_written = [used(5, 1, &[AUDIT], &[]), used(1, 999, &[ORDERS], &[])];
        assert_eq!(advise(&never_written, &schema(8)), []);
        let unbounded = [TableUse { runs: 5, served_us: 1_000, ..TableUse::default() }];
        assert_eq!(advise(&unbounded, &schema(8)), []);
    }
}
