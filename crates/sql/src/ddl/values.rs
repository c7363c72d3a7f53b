//! Values that a schema change gives to rows that are there.
//!
//! Adding a column, or changing its type, writes every row of a table without a captured change. Where the expressions
//! are of constants, columns and what comes with the server and is immutable, every replica computes the same; else the
//! values are computed at the home alone and travel (see `frontend::rewritten` of the binary). A generated column counts
//! as the same everywhere: PostgreSQL takes immutable expressions only, and computes them wherever a row is written.
//!
//! There is no catalogue here: names are all that is known, and a name that could be anything is not trusted.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, Node, TypeName,
};

use crate::builtin::{self, Builtin};
use crate::census::{Census, strings_in};
use crate::classify::relation_name;
use crate::name::Name;
use crate::statement::RowEffect;

/// Pseudo-types that make a sequence.
const SERIAL_TYPES: [&str; 6] = ["serial", "serial2", "serial4", "serial8", "bigserial", "smallserial"];

/// Functions that give the same everywhere in all their forms that an expression here may use; sorted.
pub(super) const IMMUTABLE_FUNCTIONS: [&str; 38] = [
    "abs",
    "ascii",
    "bit_length",
    "btrim",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "chr",
    "div",
    "floor",
    "initcap",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "mod",
    "octet_length",
    "overlay",
    "position",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "rtrim",
    "setweight",
    "split_part",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "translate",
    "trunc",
    "upper",
];

/// How alike the values are that a part of a schema change gives at different replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Alike {
    /// It computes nothing, or from constants.
    Surely,
    /// If every function, operator and cast of it is the server's own.
    IfBuiltIn,
    /// Nobody can say.
    Unknown,
}

/// What ALTER TABLE does to the values of rows.
pub(super) fn altered(statement: &AlterTableStmt) -> RowEffect {
    let Some(relation) = &statement.relation else { return RowEffect::Same };
    let mut worst = Alike::Surely;
    let mut added = Vec::new();
    let mut only_adds = true;
    for command in &statement.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { continue };
        let alike = command_values(command);
        worst = worst.max(alike);
        match AlterTableType::try_from(command.subtype) {
            Ok(AlterTableType::AtAddColumn) if alike > Alike::Surely => {
                added.extend(defined(command).map(|column| column.colname.clone()));
            }
            Ok(AlterTableType::AtAlterColumnType) => only_adds = false,
            _ => {}
        }
    }
    let table = relation_name(relation);
    match worst {
        Alike::Surely => RowEffect::Same,
        Alike::IfBuiltIn => RowEffect::Computed { table, added, only_adds, unless_built_in: true },
        Alike::Unknown => RowEffect::Computed { table, added, only_adds, unless_built_in: false },
    }
}

fn command_values(command: &AlterTableCmd) -> Alike {
    match AlterTableType::try_from(command.subtype) {
        Ok(AlterTableType::AtAddColumn) => defined(command).map_or(Alike::Unknown, added_column),
        Ok(AlterTableType::AtAlterColumnType) => defined(command).map_or(Alike::Unknown, retyped),
        _ => Alike::Surely,
    }
}

fn defined(command: &AlterTableCmd) -> Option<&ColumnDef> {
    match command.def.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnDef(column) => Some(column),
        _ => None,
    }
}

fn added_column(column: &ColumnDef) -> Alike {
    let defaults = column.constraints.iter().map(|node| match &node.node {
        Some(NodeEnum::Constraint(constraint)) => constraint_values(constraint),
        _ => Alike::Unknown,
    });
    let own = column.raw_default.as_ref().map_or(Alike::Surely, |default| expression(default));
    // A column of a domain takes the domain's default.
    defaults.fold(own.max(type_values(column.type_name.as_ref())), Alike::max)
}

fn constraint_values(constraint: &Constraint) -> Alike {
    match ConstrType::try_from(constraint.contype) {
        Ok(ConstrType::ConstrIdentity) | Err(_) => Alike::Unknown,
        Ok(ConstrType::ConstrDefault) => {
            constraint.raw_expr.as_ref().map_or(Alike::Surely, |default| expression(default))
        }
        Ok(_) => Alike::Surely,
    }
}

fn retyped(column: &ColumnDef) -> Alike {
    let cast = type_values(column.type_name.as_ref());
    column.raw_default.as_ref().map_or(cast, |using| cast.max(expression(using)))
}

/// What a cast to a type does: the word `now` in a row becomes each replica's own time, a name becomes an OID of its own,
/// and the code of other types is not known.
fn type_values(name: Option<&TypeName>) -> Alike {
    let parts = name.map(|name| strings_in(&name.names)).unwrap_or_default();
    let serial = parts.last().is_some_and(|name| SERIAL_TYPES.contains(&name.as_str()));
    match Name::from_parts(parts) {
        Some(name) if !serial && is_harmless(&name) => Alike::Surely,
        _ => Alike::Unknown,
    }
}

fn is_harmless(name: &Name) -> bool {
    name.may_be_built_in()
        && builtin::type_name(&name.name) == Builtin::Harmless
        && !builtin::reads_clock(&name.name)
}

fn expression(expression: &Node) -> Alike {
    let census = Census::of(expression);
    let immutable = |name: &Name| {
        name.may_be_built_in() && IMMUTABLE_FUNCTIONS.binary_search(&name.name.as_str()).is_ok()
    };
    let sound = census.functions.iter().all(immutable)
        && census.types.iter().all(is_harmless)
        && !census.sql_values
        && census.stranger.is_none();
    match sound {
        false => Alike::Unknown,
        true if census.functions.is_empty() && census.operators.is_empty() && census.types.is_empty() => {
            Alike::Surely
        }
        true => Alike::IfBuiltIn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(IMMUTABLE_FUNCTIONS.is_sorted());
    }
}
