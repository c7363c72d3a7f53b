//! Turns statements and replies into events for the core (reads, the record's body, claims) and entries of the history.

mod claims;
mod kinds;
mod touches;

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::claims::{ColumnSet, Footprint, definitions, is_definitions};
use cluster::event::{Reads, Whole};
use cluster::ids::TableId;
use cluster::placement::Placement;
use cluster::record::{self, RecordBuilder, RowChange, RowParts, SealedBody, Statement};

use crate::history::{self, Scan, Seen, Write};
use crate::program::{Frame, Program};
use crate::rules::Rules;
use crate::schema::{self, DATABASE, Key, Row};
use crate::server::{Answer, Change, Op};
use claims::{GROUPS, relied_on};

pub(crate) use claims::{Done, Locked, claims, foreseen, is_known, wants};
pub(crate) use kinds::kind;
pub(crate) use touches::touches;

/// The body of the record, with parts as they are told by this placement. Every change is an update, because a deleted row keeps its
/// list.
pub(crate) fn body(changes: &[(u32, Change)], has_ddl: bool, placement: &Placement) -> SealedBody {
    let mut builder = RecordBuilder::new(DATABASE);
    builder.set_edition(placement.edition());
    if has_ddl {
        let statement = Statement {
            text: "CREATE OR REPLACE VIEW v".to_owned(),
            role: "client".to_owned(),
            search_path: "public".to_owned(),
            settings: Vec::new(),
        };
        builder.push_statement(&statement).expect("a statement is far smaller than the limit of a record");
    }
    for (_, Change { key, old, new }) in changes {
        let part = schema::part(placement, *key);
        let change = RowChange {
            table: key.table_id(),
            change: record::Change::Update { old: &old.encode(*key), new: &new.encode(*key) },
            parts: RowParts { old: part, new: part },
        };
        builder.push_change(change).expect("a few rows are far smaller than the limit of a record");
    }
    builder.seal()
}

/// The changed columns of each table without an insert or a delete. Only the first column of a row has a value.
pub(crate) fn changed(changes: &[(u32, Change)], rules: &Rules) -> Vec<(TableId, ColumnSet)> {
    let mut tables: BTreeMap<TableId, bool> = BTreeMap::new();
    for (_, Change { key, old, new }) in changes {
        *tables.entry(key.table_id()).or_insert(true) &= old.present == new.present;
    }
    let column = ColumnSet::EMPTY.with(usize::from(!rules.columns_told));
    tables.into_iter().filter(|(_, stay)| *stay).map(|(table, _)| (table, column)).collect()
}

/// The position of a statement in its transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its index.
    pub(crate) at: usize,
    /// The transaction's snapshot has been taken.
    pub(crate) has_snapshot: bool,
    /// Some replica holds only part of the tables.
    pub(crate) is_partial: bool,
}

/// The reads of a statement, as reported to the core.
///
/// With partial replication the first statement of a transaction that only reads also decides where the later ones run, so it
/// needs everything. The later ones still report their tables, because a replica may lack one.
pub(crate) fn classify(program: &Program, place: Place, view_changes: Option<usize>, rules: &Rules) -> Reads {
    let statement = &program.statements[place.at];
    let is_first = place.at == 0 && program.frame != Frame::Autocommit;
    if place.is_partial && is_first && !program.is_update() {
        return Reads::All;
    }
    let is_snapshot = program.keeps_snapshot() && program.frame != Frame::Autocommit;
    if is_snapshot
        && place.has_snapshot
        && (program.is_update() || !place.is_partial)
        && (statement.is_read() || !rules.errors_are_reads)
    {
        // The snapshot is fixed; only constraint checks see newer rows.
        return Reads::Tables([].into());
    }
    let outlives = is_snapshot && !place.has_snapshot;
    match view_changes.filter(|_| !(statement.is_unknown || outlives && rules.snapshot_needs_all)) {
        Some(view_changes) => footprint(&statement.ops, view_changes, program, rules.constraints_read),
        None => Reads::All,
    }
}

/// The reads of some ops, with their constraint checks.
fn footprint(ops: &[Op], view_changes: usize, program: &Program, constraints_read: bool) -> Reads {
    let mut found = Footprint::default();
    for op in ops {
        match op {
            Op::ReadView => {
                found.tables.push(DATABASE.table(u32::from(schema::view_target(view_changes))));
                found.rows.push((definitions(DATABASE), schema::VIEW_NAME));
            }
            Op::Lock(key) | Op::Update(key) | Op::Delete(key)
                if program.is_grouped && key.group().is_some() =>
            {
                let group = key.group().map_or(0, u64::from);
                found.rows.push((key.table_id(), GROUPS + group));
            }
            Op::Read(key) | Op::Lock(key) | Op::Update(key) | Op::Move(key, _) => {
                found.rows.push((key.table_id(), u64::from(key.row)));
            }
            Op::Insert(key) | Op::Delete(key) if constraints_read => {
                let related = [key.parent(), key.twin()].into_iter().flatten().chain(key.children());
                let rows = std::iter::once(*key).chain(related);
                found.rows.extend(rows.map(|key| (key.table_id(), u64::from(key.row))));
            }
            Op::Scan(table) if program.is_grouped && *table == schema::VISITORS => {
                let groups = schema::rows_of(*table).filter_map(|key| Some((key.table_id(), key.group()?)));
                found.rows.extend(groups.map(|(table, group)| (table, GROUPS + u64::from(group))));
            }
            Op::Scan(table) | Op::LockTable(table) => found.tables.push(DATABASE.table(u32::from(*table))),
            Op::Total => found.tables.push(DATABASE.table(u32::from(schema::ACCOUNTS))),
            Op::Insert(key) | Op::Delete(key) => found.rows.push((key.table_id(), u64::from(key.row))),
            Op::Put(..) | Op::Savepoint | Op::RollbackTo | Op::OwnSavepoint | Op::RollbackToOwn => {}
        }
    }
    let only_reads = ops.iter().all(|op| matches!(op, Op::Read(_) | Op::Scan(_) | Op::Total | Op::ReadView));
    if program.knows_columns && only_reads {
        found.columns =
            found.all_tables().into_iter().map(|table| (table, ColumnSet::EMPTY.with(0))).collect();
    }
    if program.is_coarse {
        found.tables = found.all_tables();
        found.tables.retain(|table| !is_definitions(*table));
        found.rows.retain(|(table, _)| is_definitions(*table));
        found.columns.clear();
    }
    Reads::Rows(Arc::new(found))
}

/// Everything that the transaction's statements so far have read. `views` has for each statement how often the view had
/// changed when it was analysed, or `None` if the analysis could not bound it.
pub(crate) fn reads_so_far(program: &Program, views: &[Option<usize>]) -> Reads {
    let statements = program.statements.iter().zip(views);
    let mut all = Footprint::default();
    for (statement, view_changes) in statements {
        let Some(view_changes) = view_changes.filter(|_| !statement.is_unknown) else { return Reads::All };
        match footprint(&statement.ops, view_changes, program, true) {
            Reads::Rows(rows) => all.add(&rows),
            Reads::Tables(tables) => all.tables.extend_from_slice(&tables),
            Reads::Catalogue | Reads::All => return Reads::All,
        }
    }
    Reads::Rows(Arc::new(all))
}

/// All that a program does, if it is known before it begins. The definition of the view must not change in this run.
pub(crate) fn whole(program: &Program, done: Done<'_>, rules: &Rules) -> Option<Whole> {
    if !is_known(program, done.row_claims_max) {
        return None;
    }
    let views = vec![Some(0); program.statements.len()];
    let Reads::Rows(reads) = reads_so_far(program, &views) else { return None };
    Some(Whole {
        writes: foreseen(program, done, rules),
        reads: relied_on(&reads),
        is_sure: true,
        is_performable: true,
    })
}

/// Records in the history what the client learns from the reply.
pub(crate) fn note(statement: &mut history::Statement, answer: &Answer) {
    let seen = |(key, row): &(Key, Row)| Seen { row: key.number(), list: row.list.clone() };
    statement.reads = answer.reads.iter().map(seen).collect();
    statement.latest = answer.latest.iter().map(seen).collect();
    let of_tables = answer.locked_tables.iter().flat_map(|(_, rows)| rows);
    statement.locked = answer.locked.iter().chain(of_tables).map(seen).collect();
    statement.scans = answer.scans.iter().map(|(table, found)| scan(*table, found)).collect();
    statement.total = answer.total;
    statement.moves = answer.changes.iter().any(|change| change.key.table == schema::ACCOUNTS);
    let write = |change: &Change| Write {
        row: change.key.number(),
        element: *change.new.list.last().expect("a change appends an element"),
        base: Some(change.old.list.clone()),
        is_gone: !change.new.present,
    };
    statement.writes = answer.changes.iter().map(write).collect();
}

/// A statement without a reply: the client only knows that it sent it.
pub(crate) fn blank(of: &history::Statement) -> history::Statement {
    history::Statement { begin_us: of.begin_us, is_control: of.is_control, ..Default::default() }
}

/// A client sees only the rows that exist.
fn scan(table: u8, found: &[(Key, Row)]) -> Scan {
    let seen = |(key, row): &(Key, Row)| Seen { row: key.number(), list: row.list.clone() };
    Scan { of: schema::rows_of(table).map(Key::number).collect(), found: found.iter().map(seen).collect() }
}
