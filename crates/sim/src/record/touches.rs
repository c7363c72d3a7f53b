//! The tables and parts of which a statement needs rows at its home: those that it names, those of the view, and those of constraint
//! checks.

use std::collections::BTreeSet;

use cluster::placement::{PartSet, Placement, Touches};

use super::kinds::table;
use crate::program::{Program, Statement};
use crate::rules::Rules;
use crate::schema::{self, DATABASE, Key, VIEW_TABLES};
use crate::server::Op;

/// The tables, and parts, of the statement at this place. With foresight, those of all statements: a transaction begins where it can
/// end.
pub(crate) fn touches(
    program: &Program,
    at: usize,
    foresees: bool,
    placement: &Placement,
    rules: &Rules,
) -> Touches {
    let statements = if foresees { &program.statements[..] } else { &program.statements[at..=at] };
    if statements.iter().any(is_unbounded) {
        return Touches::Anything;
    }
    let mut tables: BTreeSet<u8> = BTreeSet::new();
    let mut parts = Some(PartSet::EMPTY);
    for op in statements.iter().flat_map(|statement| &statement.ops) {
        tables.extend(table(op));
        parts = parts.zip(parts_of(op, placement)).map(|(parts, more)| parts.union(more));
        match op {
            Op::ReadView => tables.extend(VIEW_TABLES),
            Op::Insert(key) | Op::Delete(key) if rules.checks_are_touched => tables.extend(checked(*key)),
            _ => {}
        }
    }
    let tables = tables.into_iter().map(|table| DATABASE.table(u32::from(table))).collect();
    let parts = if rules.parts_are_touched { parts } else { Some(PartSet::EMPTY) };
    match parts {
        Some(parts) => Touches::Parts { tables, parts, edition: placement.edition() },
        None => Touches::Tables(tables),
    }
}

/// The parts of the rows that an op touches, with those that constraints tie to them; `None` if it touches any.
fn parts_of(op: &Op, placement: &Placement) -> Option<PartSet> {
    match op {
        Op::Read(key)
        | Op::Update(key)
        | Op::Insert(key)
        | Op::Delete(key)
        | Op::Lock(key)
        | Op::Move(key, _)
        | Op::Put(key, ..) => {
            let tied = key.parent().into_iter().chain(key.children()).chain([*key]);
            Some(tied.filter_map(|key| schema::part(placement, key)).collect())
        }
        Op::LockTable(_) | Op::Scan(_) | Op::ReadView | Op::Total => None,
        Op::Savepoint | Op::RollbackTo | Op::OwnSavepoint | Op::RollbackToOwn => Some(PartSet::EMPTY),
    }
}

/// The tables of rows that refer to this one, and of the row that it refers to.
fn checked(key: Key) -> impl Iterator<Item = u8> {
    key.parent().into_iter().chain(key.children()).map(|related| related.table)
}

fn is_unbounded(statement: &Statement) -> bool {
    statement.is_unknown || statement.is_ddl
}
