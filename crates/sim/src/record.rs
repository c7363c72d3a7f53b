//! From statements and replies to what the core is told (reads, the record's body, claims) and what the history keeps.

mod claims;

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::claims::{ColumnSet, DEFINITIONS, Footprint};
use cluster::event::Reads;
use cluster::ids::TableId;
use cluster::record::{RecordBuilder, SealedBody, Statement};

use crate::history::{self, Scan, Seen, Write};
use crate::program::{Frame, Program};
use crate::rules::Rules;
use crate::schema::{self, Key, Row};
use crate::server::{Answer, Change, Op};
use claims::GROUPS;

pub(crate) use claims::{Done, Locked, claims, foreseen, wants};

/// The body of the record. Every change is an update here, because a row that is gone keeps its list.
pub(crate) fn body(changes: &[(u32, Change)], has_ddl: bool) -> SealedBody {
    let mut builder = RecordBuilder::new();
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
        builder
            .push_update(key.table_id(), &old.encode(*key), &new.encode(*key))
            .expect("a few rows are far smaller than the limit of a record");
    }
    builder.seal()
}

/// Tables of which no row came or went: what their rows hold is in the first column, and in no other.
pub(crate) fn changed(changes: &[(u32, Change)], rules: &Rules) -> Vec<(TableId, ColumnSet)> {
    let mut tables: BTreeMap<TableId, bool> = BTreeMap::new();
    for (_, Change { key, old, new }) in changes {
        *tables.entry(key.table_id()).or_insert(true) &= old.present == new.present;
    }
    let column = ColumnSet::EMPTY.with(usize::from(!rules.columns_told));
    tables.into_iter().filter(|(_, stay)| *stay).map(|(table, _)| (table, column)).collect()
}

/// Where in its transaction a statement stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its number, from 0.
    pub(crate) at: usize,
    /// The snapshot that the transaction keeps, if it keeps one, is taken.
    pub(crate) has_snapshot: bool,
    /// Not every replica holds everything.
    pub(crate) is_partial: bool,
}

/// What the core is told that a statement reads.
///
/// Where not every replica holds everything, the first statement of a transaction also chooses where the later ones
/// run, so it cannot be bounded by its own tables; the later ones are still told, because a replica may lack them.
pub(crate) fn classify(program: &Program, place: Place, view_changes: Option<usize>, rules: &Rules) -> Reads {
    let statement = &program.statements[place.at];
    let is_first = place.at == 0 && program.frame != Frame::Autocommit;
    if place.is_partial && is_first {
        return Reads::All;
    }
    let is_snapshot = program.keeps_snapshot() && program.frame != Frame::Autocommit;
    if is_snapshot
        && place.has_snapshot
        && !place.is_partial
        && (statement.is_read() || !rules.errors_are_reads)
    {
        // Nothing newer is seen anyway, but for what constraints say.
        return Reads::Tables([].into());
    }
    let outlives = is_snapshot && !place.has_snapshot;
    match view_changes.filter(|_| !(statement.is_unknown || outlives && rules.snapshot_needs_all)) {
        Some(view_changes) => footprint(&statement.ops, view_changes, program, rules.constraints_read),
        None => Reads::All,
    }
}

/// What ops read, with what their constraints look at.
fn footprint(ops: &[Op], view_changes: usize, program: &Program, constraints_read: bool) -> Reads {
    let mut found = Footprint::default();
    for op in ops {
        match op {
            Op::ReadView => {
                found.tables.push(TableId(u32::from(schema::view_target(view_changes))));
                found.rows.push((DEFINITIONS, schema::VIEW_NAME));
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
            Op::Scan(table) | Op::LockTable(table) => found.tables.push(TableId(u32::from(*table))),
            Op::Total => found.tables.push(TableId(u32::from(schema::ACCOUNTS))),
            Op::Insert(key) | Op::Delete(key) => found.rows.push((key.table_id(), u64::from(key.row))),
            Op::Put(..) | Op::Savepoint | Op::RollbackTo | Op::Guard | Op::Undo => {}
        }
    }
    let only_reads = ops.iter().all(|op| matches!(op, Op::Read(_) | Op::Scan(_) | Op::Total | Op::ReadView));
    if program.knows_columns && only_reads {
        found.columns =
            found.all_tables().into_iter().map(|table| (table, ColumnSet::EMPTY.with(0))).collect();
    }
    if program.is_coarse {
        found.tables = found.all_tables();
        found.tables.retain(|table| *table != DEFINITIONS);
        found.rows.retain(|(table, _)| *table == DEFINITIONS);
        found.columns.clear();
    }
    Reads::Rows(Arc::new(found))
}

/// Everything that the statements of a transaction have read that have run: `views` is how often the view had changed when
/// each of them was judged, if anything could be concluded from that.
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

/// Writes into the history what the client can tell from the reply.
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

/// A statement of which the client knows nothing but that it sent it.
pub(crate) fn blank(of: &history::Statement) -> history::Statement {
    history::Statement { begin_us: of.begin_us, is_control: of.is_control, ..Default::default() }
}

/// A client sees only the rows that are there.
fn scan(table: u8, found: &[(Key, Row)]) -> Scan {
    let seen = |(key, row): &(Key, Row)| Seen { row: key.number(), list: row.list.clone() };
    Scan { of: schema::rows_of(table).map(Key::number).collect(), found: found.iter().map(seen).collect() }
}
