//! The kind of a program with its working set, for protocols that place by memory.
//!
//! Programs that touch the same tables are of one kind. The tables grow with the log, so kinds that fit together at first
//! do not later.

use std::collections::BTreeSet;

use cluster::event::Kind;
use cluster::ids::KindId;

use crate::program::Program;
use crate::schema::{ACCOUNTS, CATALOGUE, DATABASE, GROWTH_RECORDS, TABLE_BYTES};
use crate::server::Op;

/// The kind of a program, when the log has so many records; `None` if the analysis cannot bound a statement.
pub(crate) fn kind(program: &Program, records: usize) -> Option<Box<Kind>> {
    if program.statements.iter().any(|statement| statement.is_unknown) {
        return None;
    }
    let ops = program.statements.iter().flat_map(|statement| &statement.ops);
    let tables: BTreeSet<u8> = ops.filter_map(table).collect();
    let id = KindId(tables.iter().fold(0, |kind, table| kind | 1 << table));
    let bytes = TABLE_BYTES + TABLE_BYTES * records as u64 / GROWTH_RECORDS;
    let tables = tables.into_iter().map(|table| (DATABASE.table(u32::from(table)), bytes)).collect();
    Some(Box::new(Kind { id, tables }))
}

/// The table that an op names.
pub(super) fn table(op: &Op) -> Option<u8> {
    match op {
        Op::Read(key)
        | Op::Update(key)
        | Op::Insert(key)
        | Op::Delete(key)
        | Op::Lock(key)
        | Op::Move(key, _)
        | Op::Put(key, ..) => Some(key.table),
        Op::LockTable(table) | Op::Scan(table) => Some(*table),
        Op::ReadView => Some(CATALOGUE),
        Op::Total => Some(ACCOUNTS),
        Op::Savepoint | Op::RollbackTo | Op::OwnSavepoint | Op::RollbackToOwn => None,
    }
}
