//! From records to steps.
//!
//! Row changes wait per table until something that concerns several tables comes (TRUNCATE, a statement), or too many
//! wait. Then each table's changes become as few statements as its indexes allow.

use std::collections::BTreeMap;

use super::{Kind, RefreshError, RefreshTable, RefreshTables, StatementKey, Values, fold, order};
use crate::ids::TableId;
use crate::record::{Change, Item, Sequence};

/// This many inserts at once are copied.
const COPY_ROWS_MIN: usize = 8;
/// This many updates or deletes at once are unnested.
const MANY_ROWS_MIN: usize = 3;
/// The most rows of one unnesting statement.
const MANY_ROWS_MAX: usize = 1000;
/// The most bytes of images in one unnesting statement, unless a single row has more.
const MANY_BYTES_MAX: usize = 16 << 20;
/// The most row changes that wait before they are planned.
const WAITING_ROWS_MAX: usize = 1 << 17;

/// The images of one row change; what a statement does not need is empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowImages<'a> {
    /// The row before.
    pub old: &'a [u8],
    /// The row after.
    pub new: &'a [u8],
}

impl<'a> RowImages<'a> {
    /// The values for a statement of this kind, one for each parameter.
    pub fn values(&self, table: &RefreshTable, kind: Kind) -> Result<Vec<Option<&'a [u8]>>, RefreshError> {
        let read = |image: &'a [u8], needed: bool| {
            if needed { table.values(image) } else { Ok(Values::new()) }
        };
        let old = read(self.old, !matches!(kind, Kind::Insert | Kind::CopyIn))?;
        let new = read(self.new, !matches!(kind, Kind::Delete | Kind::DeleteMany))?;
        Ok(table.bound(kind, &old, &new))
    }

    fn len_bytes(&self) -> usize {
        self.old.len() + self.new.len()
    }
}

/// A piece of work; the pieces are done in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// Runs a prepared statement once. It must report as many rows as are here: one, except for the kinds for many.
    Execute {
        /// Which.
        statement: StatementKey,
        /// The rows.
        rows: Vec<RowImages<'a>>,
    },
    /// Copies rows into a table; as many must be reported.
    CopyIn {
        /// The table.
        table: TableId,
        /// Images of the new rows.
        rows: Vec<&'a [u8]>,
    },
    /// Empties tables by one statement, so that references between them do not matter.
    Truncate {
        /// The tables.
        tables: Vec<TableId>,
    },
    /// Sets a sequence.
    Sequence(Sequence),
}

/// Plans the items of a batch of records, in their order. A statement may change the tables, so what follows it must be
/// planned anew: callers that have statements call this for the items in between.
pub fn plan<'a>(
    tables: &RefreshTables,
    items: impl IntoIterator<Item = Item<'a>>,
) -> Result<Vec<Step<'a>>, RefreshError> {
    let mut planner = Planner { tables, waiting: BTreeMap::new(), waiting_rows: 0, steps: Vec::new() };
    for item in items {
        match item {
            Item::Rows(rows) => planner.rows(rows.iter())?,
            Item::Sequence(sequence) => planner.steps.push(Step::Sequence(sequence)),
            Item::Fence => {}
            Item::Statement(_) => return Err(RefreshError::Statement),
            Item::Spilled(_) => return Err(RefreshError::Spilled),
        }
    }
    planner.flush()?;
    Ok(planner.steps)
}

struct Planner<'t, 'a> {
    tables: &'t RefreshTables,
    waiting: BTreeMap<TableId, Vec<Change<'a>>>,
    waiting_rows: usize,
    steps: Vec<Step<'a>>,
}

impl<'a> Planner<'_, 'a> {
    /// Takes the rows of one item of one record.
    fn rows(&mut self, rows: impl Iterator<Item = crate::record::RowChange<'a>>) -> Result<(), RefreshError> {
        let mut own: BTreeMap<TableId, Vec<Change<'a>>> = BTreeMap::new();
        for row in rows {
            if matches!(row.change, Change::Truncate) {
                self.take(std::mem::take(&mut own))?;
                self.truncate(row.table)?;
            } else {
                own.entry(row.table).or_default().push(row.change);
            }
        }
        self.take(own)
    }

    fn take(&mut self, own: BTreeMap<TableId, Vec<Change<'a>>>) -> Result<(), RefreshError> {
        for (table, mut changes) in own {
            order::mend(self.tables.table(table)?, &mut changes)?;
            self.waiting_rows += changes.len();
            self.waiting.entry(table).or_default().append(&mut changes);
        }
        if self.waiting_rows > WAITING_ROWS_MAX { self.flush() } else { Ok(()) }
    }

    fn truncate(&mut self, table: TableId) -> Result<(), RefreshError> {
        self.tables.table(table)?;
        self.flush()?;
        if let Some(Step::Truncate { tables }) = self.steps.last_mut() {
            if !tables.contains(&table) {
                tables.push(table);
            }
        } else {
            self.steps.push(Step::Truncate { tables: vec![table] });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RefreshError> {
        self.waiting_rows = 0;
        for (id, changes) in std::mem::take(&mut self.waiting) {
            let table = self.tables.table(id)?;
            if table.folds() && changes.len() > 1 {
                self.folded(table, changes)?;
            } else {
                self.one_by_one(table, changes)?;
            }
        }
        Ok(())
    }

    /// In the order of capture; only inserts that follow each other go together.
    fn one_by_one(&mut self, table: &RefreshTable, changes: Vec<Change<'a>>) -> Result<(), RefreshError> {
        let mut inserts = Vec::new();
        for change in changes {
            match change {
                Change::Insert { new } => inserts.push(new),
                Change::Update { old, new } => {
                    self.inserts(table, std::mem::take(&mut inserts));
                    self.update(table, RowImages { old, new })?;
                }
                Change::Delete { old } => {
                    self.inserts(table, std::mem::take(&mut inserts));
                    self.execute(table, Kind::Delete, vec![RowImages { old, new: &[] }]);
                }
                Change::Truncate => unreachable!("a TRUNCATE does not wait"),
            }
        }
        self.inserts(table, inserts);
        Ok(())
    }

    /// Net effects: deletes, then updates, then inserts.
    fn folded(&mut self, table: &RefreshTable, changes: Vec<Change<'a>>) -> Result<(), RefreshError> {
        if changes.iter().all(|change| matches!(change, Change::Insert { .. })) {
            return self.one_by_one(table, changes);
        }
        let (mut deletes, mut updates, mut inserts) = (Vec::new(), Vec::new(), Vec::new());
        for (found, left) in fold::net_effects(table, changes)? {
            match (found, left) {
                (None, None) => {}
                (None, Some(new)) => inserts.push(new),
                (Some(old), None) => deletes.push(RowImages { old, new: &[] }),
                (Some(old), Some(new)) if table.keeps_fixed(old, new)? => {
                    updates.push(RowImages { old, new });
                }
                (Some(old), Some(new)) => {
                    deletes.push(RowImages { old, new: &[] });
                    inserts.push(new);
                }
            }
        }
        self.many(table, Kind::Delete, Kind::DeleteMany, &deletes);
        // An update with nothing to write but its key changes nothing that is stored.
        if table.updated().next().is_some() {
            self.many(table, Kind::Update, Kind::UpdateMany, &updates);
        }
        self.inserts(table, inserts);
        Ok(())
    }

    fn many(&mut self, table: &RefreshTable, one: Kind, many: Kind, rows: &[RowImages<'a>]) {
        if rows.len() < MANY_ROWS_MIN || !table.unnests() {
            for row in rows {
                self.execute(table, one, vec![*row]);
            }
            return;
        }
        let (mut start, mut bytes) = (0, 0);
        for (at, row) in rows.iter().enumerate() {
            let full = at - start == MANY_ROWS_MAX || bytes + row.len_bytes() > MANY_BYTES_MAX;
            if full && at > start {
                self.execute(table, many, rows[start..at].to_vec());
                (start, bytes) = (at, 0);
            }
            bytes += row.len_bytes();
        }
        self.execute(table, many, rows[start..].to_vec());
    }

    fn inserts(&mut self, table: &RefreshTable, rows: Vec<&'a [u8]>) {
        if rows.len() >= COPY_ROWS_MIN && table.copies() {
            self.steps.push(Step::CopyIn { table: table.id, rows });
            return;
        }
        for new in rows {
            self.execute(table, Kind::Insert, vec![RowImages { old: &[], new }]);
        }
    }

    fn update(&mut self, table: &RefreshTable, images: RowImages<'a>) -> Result<(), RefreshError> {
        let (old, new) = (table.values(images.old)?, table.values(images.new)?);
        if !table.keeps_fixed(images.old, images.new)? {
            // UPDATE cannot write an identity column that is GENERATED ALWAYS; INSERT can.
            self.execute(table, Kind::Delete, vec![RowImages { old: images.old, new: &[] }]);
            self.execute(table, Kind::Insert, vec![RowImages { old: &[], new: images.new }]);
            return Ok(());
        }
        let keyed = !table.primary_key.is_empty();
        let kind = if keyed && RefreshTable::agree(&old, &new, table.primary_key.iter().copied()) {
            Kind::Update
        } else {
            Kind::Rekey
        };
        let writes = match kind {
            Kind::Update => table.updated().next().is_some(),
            _ => table.rekeyed().next().is_some(),
        };
        if writes {
            self.execute(table, kind, vec![images]);
        }
        Ok(())
    }

    fn execute(&mut self, table: &RefreshTable, kind: Kind, rows: Vec<RowImages<'a>>) {
        self.steps.push(Step::Execute { statement: StatementKey { table: table.id, kind }, rows });
    }
}
