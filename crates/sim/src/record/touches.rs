//! The tables of which a statement needs rows at its home: those that it names, those of the view, and those of constraint checks.

use std::collections::BTreeSet;

use cluster::placement::Touches;

use super::kinds::table;
use crate::program::{Program, Statement};
use crate::rules::Rules;
use crate::schema::{DATABASE, Key, VIEW_TABLES};
use crate::server::Op;

/// The tables of the statement at this place. With foresight, those of all statements: a transaction begins where it can end.
pub(crate) fn touches(program: &Program, at: usize, foresees: bool, rules: &Rules) -> Touches {
    let statements = if foresees { &program.statements[..] } else { &program.statements[at..=at] };
    if statements.iter().any(is_unbounded) {
        return Touches::Anything;
    }
    let mut tables: BTreeSet<u8> = BTreeSet::new();
    for op in statements.iter().flat_map(|statement| &statement.ops) {
        tables.extend(table(op));
        match op {
            Op::ReadView => tables.extend(VIEW_TABLES),
            Op::Insert(key) | Op::Delete(key) if rules.checks_are_touched => tables.extend(checked(*key)),
            _ => {}
        }
    }
    Touches::Tables(tables.into_iter().map(|table| DATABASE.table(u32::from(table))).collect())
}

/// The tables of rows that refer to this one, and of the row that it refers to.
fn checked(key: Key) -> impl Iterator<Item = u8> {
    key.parent().into_iter().chain(key.children()).map(|related| related.table)
}

fn is_unbounded(statement: &Statement) -> bool {
    statement.is_unknown || statement.is_ddl
}
