//! From records to steps.
//!
//! Row changes wait per table until something that concerns several tables comes (TRUNCATE, a statement), or too many
//! wait. Then each table's changes become as few statements as its indexes allow: deletes, then updates that no unique
//! index can object to, then inserts.

use std::collections::BTreeMap;

use super::fold::{Folded, Folds};
use super::net::Net;
use super::{ColumnSet, Kind, RefreshError, RefreshTable, RefreshTables, StatementKey, Value, Values};
use crate::ids::TableId;
use crate::placement::Holdings;
use crate::record::{Change, Item, RowChange, Sequence};

/// Up to so many rows have a statement for their number, with their values one by one. It is quicker than a statement for
/// each row, whose fixed cost (binding, and the condition of a trigger) is as large as what its row costs, and than arrays.
const FEW_ROWS_MAX: usize = 7;
/// This many inserts at once are copied.
const COPY_ROWS_MIN: usize = FEW_ROWS_MAX + 1;
/// This many rows at once are unnested where there is no statement for their number.
const MANY_ROWS_MIN: usize = 3;
/// The most rows of one unnesting statement.
const MANY_ROWS_MAX: usize = 1000;
/// The most bytes of images in one statement for several rows, unless a single row has more.
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
    pub fn values(&self, table: &RefreshTable, kind: Kind) -> Result<Vec<Value<'a>>, RefreshError> {
        let read = |image: &'a [u8], needed: bool| {
            if needed { table.values(image) } else { Ok(Values::new()) }
        };
        let old = read(self.old, !kind.is_insert())?;
        let new = read(self.new, kind.writes_new())?;
        Ok(table.bound(kind, &old, &new))
    }

    fn len_bytes(&self) -> usize {
        self.old.len() + self.new.len()
    }
}

/// A piece of work; the pieces are done in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<'a> {
    /// Runs a prepared statement once. It must report as many rows as are here: one, except for the kinds for few or many.
    Execute {
        /// Its name.
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

/// Plans the items of each record of a batch, in their order, without the rows that the replica does not hold, and without
/// TRUNCATEs of tables of which it holds none. A statement may change the tables, so what follows it must
/// be planned anew: callers that have statements call this for the items in between.
pub fn plan<'a, I: IntoIterator<Item = Item<'a>>>(
    tables: &RefreshTables,
    holdings: &Holdings,
    records: impl IntoIterator<Item = I>,
) -> Result<Vec<Step<'a>>, RefreshError> {
    let waiting = BTreeMap::new();
    let mut planner = Planner { tables, holdings, waiting, waiting_rows: 0, steps: Vec::new() };
    for items in records {
        for item in items {
            match item {
                Item::Rows(rows) => planner.rows(rows.iter())?,
                Item::Sequence(sequence) => planner.steps.push(Step::Sequence(sequence)),
                Item::Fence | Item::Origin(_) => {}
                Item::Statement(_) | Item::Shipped(_) => return Err(RefreshError::Statement),
                Item::Spilled(_) => return Err(RefreshError::Spilled),
            }
        }
        planner.end_record()?;
    }
    planner.flush()?;
    Ok(planner.steps)
}

struct Planner<'t, 'a> {
    tables: &'t RefreshTables,
    holdings: &'t Holdings,
    waiting: BTreeMap<TableId, Waiting<'a>>,
    waiting_rows: usize,
    steps: Vec<Step<'a>>,
}

/// A change of rows that are there.
#[derive(Clone, Copy)]
enum Work {
    Delete,
    Update(ColumnSet),
    Keep,
}

impl Work {
    const fn one(self) -> Kind {
        match self {
            Self::Delete => Kind::Delete,
            Self::Update(columns) => Kind::Update(columns),
            Self::Keep => Kind::Keep,
        }
    }

    /// Those for numbers of rows, which are one by one where there is none.
    const fn few(self, count: usize) -> Kind {
        match (self, count) {
            (Self::Keep, _) | (_, 1) => self.one(),
            (Self::Delete, _) => Kind::DeleteFew(count),
            (Self::Update(columns), _) => Kind::UpdateFew(count, columns),
        }
    }

    const fn many(self) -> Kind {
        match self {
            Self::Delete => Kind::DeleteMany,
            Self::Update(columns) => Kind::UpdateMany(columns),
            Self::Keep => Kind::KeepMany,
        }
    }
}

/// The changes of a table.
enum Waiting<'a> {
    /// Rows are told apart by their primary key.
    ByKey(Folds<'a>),
    /// Rows are told apart by all their columns: the net effects of records, and that of the present one.
    ByImage(Vec<Net<'a>>, Net<'a>),
}

impl<'a> Planner<'_, 'a> {
    /// Takes rows of the present record.
    fn rows(&mut self, rows: impl Iterator<Item = RowChange<'a>>) -> Result<(), RefreshError> {
        for row in rows {
            let Some(change) = held(row, self.holdings) else { continue };
            let table = self.tables.table(row.table)?;
            if matches!(change, Change::Truncate) {
                self.truncate(row.table)?;
                continue;
            }
            self.waiting_rows += 1;
            let waiting = self.waiting.entry(row.table).or_insert_with(|| {
                if table.has_key() {
                    Waiting::ByKey(Folds::default())
                } else {
                    Waiting::ByImage(Vec::new(), Net::default())
                }
            });
            match waiting {
                Waiting::ByKey(folds) => folds.change(table, change)?,
                Waiting::ByImage(_, own) => own.change(change),
            }
        }
        Ok(())
    }

    fn end_record(&mut self) -> Result<(), RefreshError> {
        let mut must_go = self.waiting_rows > WAITING_ROWS_MAX;
        for (id, waiting) in &mut self.waiting {
            match waiting {
                Waiting::ByKey(folds) => {
                    let table = self.tables.table(*id)?;
                    folds.end_record(table)?;
                    // The next record may come from a server to which the same key has other bytes.
                    must_go |= !table.has_plain_key();
                }
                Waiting::ByImage(nets, own) => end_record(nets, std::mem::take(own)),
            }
        }
        if must_go { self.flush() } else { Ok(()) }
    }

    fn truncate(&mut self, table: TableId) -> Result<(), RefreshError> {
        self.end_record()?;
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
        for (id, waiting) in std::mem::take(&mut self.waiting) {
            let table = self.tables.table(id)?;
            match waiting {
                Waiting::ByKey(folds) => self.folded(table, folds)?,
                Waiting::ByImage(nets, _) => {
                    for net in nets {
                        for old in net.found {
                            self.execute(table, Kind::Delete, vec![RowImages { old, new: &[] }]);
                        }
                        self.inserts(table, net.left);
                    }
                }
            }
        }
        Ok(())
    }

    /// In this order no unique index is in the way: what is there after each statement is a part of what was there, or
    /// of what will be.
    fn folded(&mut self, table: &RefreshTable, folds: Folds<'a>) -> Result<(), RefreshError> {
        let (mut deletes, mut inserts, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        // By the columns that change, so that only these are sent and written.
        let mut updates: BTreeMap<ColumnSet, Vec<RowImages<'a>>> = BTreeMap::new();
        let folded: Vec<_> = folds.into_folded().collect();
        let is_alone = folded.len() == 1;
        for row in folded {
            match row {
                Folded::Kept(old) if table.is_settable() => kept.push(RowImages { old, new: &[] }),
                Folded::Ends((None, None)) | Folded::Kept(_) => {}
                Folded::Ends((None, Some(new))) => inserts.push(new),
                Folded::Ends((Some(old), None)) => deletes.push(RowImages { old, new: &[] }),
                Folded::Ends((Some(old), Some(new))) if table.may_update(old, new, is_alone)? => {
                    let columns = table.changed(old, new)?;
                    updates.entry(columns).or_default().push(RowImages { old, new });
                }
                Folded::Ends((Some(old), Some(new))) => {
                    deletes.push(RowImages { old, new: &[] });
                    inserts.push(new);
                }
            }
        }
        self.many(table, Work::Delete, &deletes);
        for (columns, rows) in updates {
            if columns.is_empty() {
                kept.extend(rows.iter().map(|row| RowImages { old: row.old, new: &[] }));
            } else {
                self.many(table, Work::Update(columns), &rows);
            }
        }
        self.many(table, Work::Keep, &kept);
        self.inserts(table, inserts);
        Ok(())
    }

    fn many(&mut self, table: &RefreshTable, work: Work, rows: &[RowImages<'a>]) {
        let is_few = table.joins() && rows.len() <= FEW_ROWS_MAX;
        if is_few && !matches!(work, Work::Keep) {
            self.few(table, |count| work.few(count), rows);
        } else if rows.len() >= MANY_ROWS_MIN && table.unnests() {
            for piece in pieces(rows, MANY_ROWS_MAX) {
                self.execute(table, work.many(), piece.to_vec());
            }
        } else {
            for row in rows {
                self.execute(table, work.one(), vec![*row]);
            }
        }
    }

    fn inserts(&mut self, table: &RefreshTable, rows: Vec<&'a [u8]>) {
        if rows.len() >= COPY_ROWS_MIN && table.copies() {
            self.steps.push(Step::CopyIn { table: table.id, rows });
            return;
        }
        let rows: Vec<_> = rows.into_iter().map(|new| RowImages { old: &[], new }).collect();
        let is_many = rows.len() >= COPY_ROWS_MIN && table.sandbox.is_some();
        if is_many && table.unnests() && table.inserted().next().is_some() {
            for piece in pieces(&rows, MANY_ROWS_MAX) {
                self.execute(table, Kind::InsertMany, piece.to_vec());
            }
            return;
        }
        if table.inserted().next().is_some() {
            self.few(table, |count| if count == 1 { Kind::Insert } else { Kind::InsertFew(count) }, &rows);
        } else {
            for row in rows {
                self.execute(table, Kind::Insert, vec![row]);
            }
        }
    }

    /// Statements for numbers of rows.
    fn few(&mut self, table: &RefreshTable, kind: impl Fn(usize) -> Kind, rows: &[RowImages<'a>]) {
        for piece in pieces(rows, FEW_ROWS_MAX) {
            self.execute(table, kind(piece.len()), piece.to_vec());
        }
    }

    fn execute(&mut self, table: &RefreshTable, kind: Kind, rows: Vec<RowImages<'a>>) {
        self.steps.push(Step::Execute { statement: StatementKey { table: table.id, kind }, rows });
    }
}

/// What a change is where only some rows are held: a row may come from a part that is not held, or go to one.
fn held<'a>(row: RowChange<'a>, holdings: &Holdings) -> Option<Change<'a>> {
    let is_held = |part| holdings.holds_row(row.table, part);
    match row.change {
        Change::Update { old, new } => match (is_held(row.parts.old), is_held(row.parts.new)) {
            (true, true) => Some(row.change),
            (true, false) => Some(Change::Delete { old }),
            (false, true) => Some(Change::Insert { new }),
            (false, false) => None,
        },
        Change::Insert { .. } => is_held(row.parts.new).then_some(row.change),
        Change::Delete { .. } => is_held(row.parts.old).then_some(row.change),
        Change::Truncate => is_held(None).then_some(row.change),
    }
}

/// Cuts rows into what one statement takes of them.
fn pieces<'r, 'a>(rows: &'r [RowImages<'a>], most: usize) -> Vec<&'r [RowImages<'a>]> {
    let (mut cut, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (at, row) in rows.iter().enumerate() {
        let is_full = at - start == most || bytes + row.len_bytes() > MANY_BYTES_MAX;
        if is_full && at > start {
            cut.push(&rows[start..at]);
            (start, bytes) = (at, 0);
        }
        bytes += row.len_bytes();
    }
    if start < rows.len() {
        cut.push(&rows[start..]);
    }
    cut
}

/// Puts the net effect of a record after those of the ones before; inserts that follow each other go together.
fn end_record<'a>(nets: &mut Vec<Net<'a>>, mut own: Net<'a>) {
    own.cancel();
    match nets.last_mut() {
        Some(last) if own.found.is_empty() => last.left.append(&mut own.left),
        _ if own.found.is_empty() && own.left.is_empty() => {}
        _ => nets.push(own),
    }
}
