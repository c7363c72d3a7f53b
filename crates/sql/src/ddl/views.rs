//! Whether a query gives the same rows at replicas that hold the same: for materialized views.
//!
//! The answer is a set of rows, since nobody may rely on the order in which a materialized view holds them. Doubt means
//! no. Views that the query reads are looked at by the caller, one by one, as the server shows their definitions; so are
//! functions of users that are called unseen, by casts.

use pg_query::NodeEnum;

use crate::builtin::{self, Builtin};
use crate::catalogue::{Catalogue, Volatility};
use crate::census::Census;
use crate::name::Name;
use crate::parser::{self, Parsed, with_deep_stack};

/// Immutable all of them, but what they give depends on the order of the rows that come in.
const ORDER_DEPENDENT: [&str; 22] = [
    "any_value",
    "array_agg",
    "cume_dist",
    "dense_rank",
    "first_value",
    "json_agg",
    "json_object_agg",
    "jsonb_agg",
    "jsonb_object_agg",
    "lag",
    "last_value",
    "lead",
    "mode",
    "nth_value",
    "ntile",
    "percent_rank",
    "range_agg",
    "rank",
    "row_number",
    "string_agg",
    "xmlagg",
    "set_masklen",
];

/// Aggregates whose result depends on the order of the rows when these are of a floating type.
const ORDER_DEPENDENT_ON_FLOATS: [&str; 17] = [
    "avg",
    "corr",
    "covar_pop",
    "covar_samp",
    "regr_avgx",
    "regr_avgy",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "variance",
];
const FLOATS: [u32; 2] = [700, 701];

/// Aggregates and operators that give no value of a floating type unless they are given one.
const QUIET_AGGREGATES: [&str; 8] =
    ["bit_and", "bit_or", "bool_and", "bool_or", "count", "every", "max", "min"];
const QUIET_OPERATORS: [&str; 19] = [
    "!=", "!~", "!~*", "!~~", "!~~*", "%", "*", "+", "-", "/", "<", "<=", "<>", "=", ">", ">=", "||", "~~",
    "~~*",
];

/// Why a query, as the server shows it, may give each replica its own rows; `None` when it gives the same everywhere.
/// It must be shown under a search path of `pg_catalog` alone: a name without a schema is the server's own.
pub fn why_not_the_same(text: &str, catalogue: &Catalogue) -> Option<String> {
    with_deep_stack(|| match parser::parse(text, true) {
        Ok(Parsed::Trees(trees)) if trees.len() == 1 => {
            let node = trees.into_iter().next()?.stmt?.node?;
            doubt(&node, catalogue)
        }
        _ => Some("it cannot be understood".to_owned()),
    })
}

fn doubt(node: &NodeEnum, catalogue: &Catalogue) -> Option<String> {
    let census = Census::of(node);
    if let Some(stranger) = census.stranger {
        return Some(format!("it has {stranger}"));
    }
    if census.sql_values {
        return Some("it depends on the time or the user".to_owned());
    }
    if census.system_columns {
        return Some("it reads system columns".to_owned());
    }
    if let Some(operator) = census.operators.iter().find(|name| !name.may_be_built_in()) {
        return Some(format!("it uses the operator {operator}"));
    }
    if census.chooses {
        return Some("it chooses rows by the order in which they come".to_owned());
    }
    let floats = census.reads.iter().any(|name| reads_floats(name, catalogue)) || makes_floats(&census);
    if let Some(function) = census.functions.iter().find(|name| !gives_the_same(name, floats, catalogue)) {
        return Some(format!("it calls {function}"));
    }
    let type_ = census
        .types
        .iter()
        .find(|name| !name.may_be_built_in() || builtin::type_name(&name.name) != Builtin::Harmless);
    type_.map(|name| format!("it casts to {name}"))
}

fn gives_the_same(name: &Name, floats: bool, catalogue: &Catalogue) -> bool {
    name.may_be_built_in()
        && builtin::function(&name.name) == Builtin::Harmless
        && catalogue.builtin_volatility(&name.name) == Some(Volatility::Immutable)
        && !ORDER_DEPENDENT.contains(&name.name.as_str())
        && !(floats && ORDER_DEPENDENT_ON_FLOATS.contains(&name.name.as_str()))
}

/// Whether values of a floating type may come out of others.
fn makes_floats(census: &Census) -> bool {
    let quiet = |name: &Name| {
        let name = name.name.as_str();
        QUIET_AGGREGATES.contains(&name)
            || ORDER_DEPENDENT_ON_FLOATS.contains(&name)
            || super::values::IMMUTABLE_FUNCTIONS.binary_search(&name).is_ok()
    };
    !census.functions.iter().all(quiet)
        || !census.operators.iter().all(|name| QUIET_OPERATORS.contains(&name.name.as_str()))
        || census.types.iter().any(|name| name.name.starts_with("float"))
}

/// Whether a relation may have columns of a floating type; one that is not known may.
fn reads_floats(name: &Name, catalogue: &Catalogue) -> bool {
    let Some(tables) = catalogue.tables_named(name) else { return true };
    tables
        .iter()
        .filter_map(|id| catalogue.table(*id))
        .any(|table| table.user_types || table.columns.iter().any(|column| FLOATS.contains(&column.type_oid)))
}
