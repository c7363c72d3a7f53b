//! Values that a schema change gives to rows that are there.
//!
//! Adding a column, or changing its type, writes every row of a table without a captured change. Plain constants of
//! plain types are the same everywhere, and need no second look. Of anything else only the catalogue can say
//! whether every replica computes the same: see [`crate::determinism`]. If not, the values are computed at the home
//! alone and travel (see `frontend::rewritten` of the binary).

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, Node, TypeName,
};

use crate::ast_scan::strings_in;
use crate::builtin::{self, Builtin};
use crate::classify::relation_name;
use crate::name::Name;
use crate::statement::RowEffect;

/// Pseudo-types that make a sequence.
const SERIAL_TYPES: [&str; 6] = ["serial", "serial2", "serial4", "serial8", "bigserial", "smallserial"];

/// The effect of ALTER TABLE on the values of rows.
pub(super) fn altered(statement: &AlterTableStmt) -> RowEffect {
    let Some(relation) = &statement.relation else { return RowEffect::Same };
    let mut added = Vec::new();
    let (mut computes, mut only_adds) = (false, true);
    for command in &statement.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { continue };
        let is_plain = gives_constants(command);
        computes |= !is_plain;
        match AlterTableType::try_from(command.subtype) {
            Ok(AlterTableType::AtAddColumn) if !is_plain => {
                added.extend(defined(command).map(|column| column.colname.clone()));
            }
            Ok(AlterTableType::AtAlterColumnType) => only_adds = false,
            _ => {}
        }
    }
    if computes {
        RowEffect::Computed { table: relation_name(relation), added, only_adds }
    } else {
        RowEffect::Same
    }
}

/// Whether a command gives no values but constants.
fn gives_constants(command: &AlterTableCmd) -> bool {
    match AlterTableType::try_from(command.subtype) {
        Ok(AlterTableType::AtAddColumn) => defined(command).is_some_and(adds_constant),
        // The old values are cast, whatever casts there are.
        Ok(AlterTableType::AtAlterColumnType) => false,
        _ => true,
    }
}

fn defined(command: &AlterTableCmd) -> Option<&ColumnDef> {
    match command.def.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnDef(column) => Some(column),
        _ => None,
    }
}

fn adds_constant(column: &ColumnDef) -> bool {
    let plain = |node: &Node| match &node.node {
        Some(NodeEnum::Constraint(constraint)) => is_plain(constraint),
        _ => false,
    };
    // A column of a domain takes the domain's default.
    is_harmless(column.type_name.as_ref())
        && column.raw_default.as_deref().is_none_or(is_constant)
        && column.constraints.iter().all(plain)
}

fn is_plain(constraint: &Constraint) -> bool {
    match ConstrType::try_from(constraint.contype) {
        Ok(ConstrType::ConstrIdentity) | Err(_) => false,
        Ok(ConstrType::ConstrDefault) => constraint.raw_expr.as_deref().is_none_or(is_constant),
        Ok(_) => true,
    }
}

/// Whether the input of a type is the same everywhere: the word `now` becomes each replica's own time, a name becomes an
/// OID of its own, and the code of other types is not known.
fn is_harmless(name: Option<&TypeName>) -> bool {
    let parts = name.map(|name| strings_in(&name.names)).unwrap_or_default();
    let serial = parts.last().is_some_and(|name| SERIAL_TYPES.contains(&name.as_str()));
    !serial
        && Name::from_parts(parts).is_some_and(|name| {
            name.may_be_built_in()
                && builtin::type_name(&name.name) == Builtin::Harmless
                && !builtin::reads_clock(&name.name)
        })
}

fn is_constant(value: &Node) -> bool {
    matches!(value.node, Some(NodeEnum::AConst(_)))
}
