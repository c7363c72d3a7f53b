//! Values that a schema change would compute, each replica for itself.
//!
//! Adding a column, or changing its type, writes every row of a table without a captured change. So its expressions may
//! be of constants, columns and operators only. A domain's default would be evaluated by whatever adds a column of that
//! type later, so it is held to the same here, where it can be seen.
//!
//! There is no catalogue here: names are all that is known, and a name that could be anything is refused.

use pg_query::NodeEnum;
use pg_query::protobuf::{AlterDomainStmt, ColumnDef, ConstrType, Constraint, CreateDomainStmt, Node};

use crate::builtin::{self, Builtin};
use crate::census::{Census, strings_in};
use crate::name::Name;
use crate::refusal::{self, Refusal};

/// Pseudo-types that make a sequence.
const SERIAL_TYPES: [&str; 6] = ["serial", "serial2", "serial4", "serial8", "bigserial", "smallserial"];

/// Functions that a generated column may call; sorted. PostgreSQL itself refuses those of their forms that are not
/// immutable, such as `to_tsvector` without a configuration.
const IMMUTABLE_FUNCTIONS: [&str; 39] = [
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
    "to_tsvector",
    "translate",
    "trunc",
    "upper",
];

/// What ALTER DOMAIN calls SET DEFAULT and DROP DEFAULT.
const DOMAIN_DEFAULT: &str = "T";

/// Whether adding a column would compute values for the rows that are there.
pub(super) fn added_column(column: &ColumnDef) -> Option<Refusal> {
    let serial = column.type_name.as_ref().is_some_and(|name| {
        strings_in(&name.names).last().is_some_and(|name| SERIAL_TYPES.contains(&name.as_str()))
    });
    let by_default = column.raw_default.as_ref().is_some_and(|default| computes(default));
    if serial || by_default {
        return Some(refusal::ADD_COLUMN);
    }
    column.constraints.iter().find_map(|node| match &node.node {
        Some(NodeEnum::Constraint(constraint)) => constraint_computes(constraint),
        _ => Some(refusal::ADD_COLUMN),
    })
}

fn constraint_computes(constraint: &Constraint) -> Option<Refusal> {
    match ConstrType::try_from(constraint.contype) {
        Ok(ConstrType::ConstrIdentity) | Err(_) => Some(refusal::ADD_COLUMN),
        Ok(ConstrType::ConstrDefault) => default_computes(constraint).then_some(refusal::ADD_COLUMN),
        Ok(ConstrType::ConstrGenerated) => match &constraint.raw_expr {
            Some(expression) => generated(expression),
            None => Some(refusal::GENERATED),
        },
        Ok(_) => None,
    }
}

/// Whether a generated column may compute something else on each replica: PostgreSQL demands functions that say of
/// themselves that they are immutable, which a user's function may say without being it.
pub(super) fn generated(expression: &Node) -> Option<Refusal> {
    let census = Census::of(expression);
    let immutable = |name: &Name| {
        name.may_be_built_in() && IMMUTABLE_FUNCTIONS.binary_search(&name.name.as_str()).is_ok()
    };
    let sound = census.functions.iter().all(immutable) && !census.sql_values && census.stranger.is_none();
    (!sound).then_some(refusal::GENERATED)
}

fn default_computes(constraint: &Constraint) -> bool {
    constraint.raw_expr.as_ref().is_some_and(|default| computes(default))
}

/// Whether changing a column's type would compute values.
pub(super) fn retyped(column: &ColumnDef) -> Option<Refusal> {
    let using = column.raw_default.as_ref();
    using.is_some_and(|using| computes(using) || casts_beyond_the_data(using)).then_some(refusal::USING)
}

/// Whether a cast in an expression may look at more than the data: the word `now` in a row becomes each replica's own
/// time, a name becomes an OID of its own, and the code of other types is not known.
fn casts_beyond_the_data(expression: &Node) -> bool {
    let harmless = |name: &Name| {
        name.may_be_built_in()
            && builtin::type_name(&name.name) == Builtin::Harmless
            && !builtin::reads_clock(&name.name)
    };
    !Census::of(expression).types.iter().all(harmless)
}

/// Whether a new domain has a default that a column of its type would compute.
pub(super) fn domain(statement: &CreateDomainStmt) -> Option<Refusal> {
    let computed = statement.constraints.iter().any(|node| match &node.node {
        Some(NodeEnum::Constraint(constraint)) => {
            constraint.contype == ConstrType::ConstrDefault as i32 && default_computes(constraint)
        }
        _ => false,
    });
    computed.then_some(refusal::DOMAIN_DEFAULT)
}

/// Whether a domain gets such a default.
pub(super) fn altered_domain(statement: &AlterDomainStmt) -> Option<Refusal> {
    let default = statement.def.as_ref().filter(|_| statement.subtype == DOMAIN_DEFAULT);
    default.is_some_and(|default| computes(default)).then_some(refusal::DOMAIN_DEFAULT)
}

/// Whether an expression calls anything that could give each replica its own value.
fn computes(expression: &Node) -> bool {
    let census = Census::of(expression);
    !census.functions.is_empty() || census.sql_values || census.stranger.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(IMMUTABLE_FUNCTIONS.is_sorted());
    }
}
