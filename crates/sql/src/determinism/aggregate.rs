//! Aggregates and window functions: whether the order of their input can be seen in the result.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, WindowDef};

use super::Why;
use super::scope::{Sight, Window};
use super::walk::{Walk, is_plain_constant};
use crate::ast_scan::names_in;
use crate::name::Name;

/// Aggregates that give the same for every order of values of every type.
const UNORDERED: [&str; 7] = ["bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "count", "every"];

/// Aggregates that add up: exact for integers and numerics.
const SUMS: [&str; 9] = [
    "avg",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "sum_of_squares",
    "var_pop",
    "var_samp",
    "variance",
];

/// Aggregates that keep one of their input values.
const EXTREMES: [&str; 2] = ["max", "min"];

/// Aggregates whose result shows the order of their input, or whose arithmetic is inexact.
const ORDERED: [&str; 38] = [
    "any_value",
    "array_agg",
    "corr",
    "covar_pop",
    "covar_samp",
    "json_agg",
    "json_agg_strict",
    "json_array_agg",
    "json_object_agg",
    "json_object_agg_strict",
    "json_object_agg_unique",
    "json_object_agg_unique_strict",
    "json_objectagg",
    "jsonb_agg",
    "jsonb_agg_strict",
    "jsonb_object_agg",
    "jsonb_object_agg_strict",
    "jsonb_object_agg_unique",
    "jsonb_object_agg_unique_strict",
    "mode",
    "percentile_cont",
    "percentile_disc",
    "range_agg",
    "range_intersect_agg",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "string_agg",
    "ts_stat",
    "tsvector_agg",
    "xmlagg",
    "json_arrayagg",
];

/// Window functions that treat rows of equal order alike.
const BY_PEERS: [&str; 4] = ["cume_dist", "dense_rank", "percent_rank", "rank"];

/// Window functions that tell rows of equal order apart.
const BY_ROW: [&str; 7] = ["first_value", "lag", "last_value", "lead", "nth_value", "ntile", "row_number"];

/// The option bit of a window that has a frame of its own.
pub(super) const FRAME_GIVEN: i32 = 1;

/// Whether a function of the server is an aggregate or a window function.
pub(super) fn is_any(name: &str) -> bool {
    let lists: [&[&str]; 6] = [&UNORDERED, &SUMS, &EXTREMES, &ORDERED, &BY_PEERS, &BY_ROW];
    lists.iter().any(|list| list.contains(&name))
}

impl Walk<'_> {
    /// Judges a call of an aggregate or window function; its parts are visited by the caller.
    pub(super) fn aggregate(&mut self, name: &Name, call: &FuncCall) {
        if call.over.is_none() {
            self.note_single_row(call);
        }
        let bare = name.name.as_str();
        let by_values = self.by_values_alone(bare, call);
        let Some(window) = &call.over else {
            if !by_values {
                self.note(why_not(name, call));
            }
            return;
        };
        let total = self.is_total(window);
        let framed = self.is_framed(window);
        let peers_alike = BY_PEERS.contains(&bare) || by_values && !framed;
        // A sum of floats runs through the rows of a total order one after another.
        let inexact = SUMS.contains(&bare) && !by_values && framed;
        if !(peers_alike || total && !inexact) {
            self.note(Why::WindowOrder(name.clone()));
        }
    }

    /// Without GROUP BY, an aggregate makes one row of all; but only one that belongs to this query and no outer one.
    fn note_single_row(&mut self, call: &FuncCall) {
        let Some(scope) = self.scopes.last_mut() else { return };
        let own = match call.args.first().map(|node| &node.node) {
            None => true,
            Some(Some(NodeEnum::ColumnRef(column))) => {
                matches!(scope.column(&names_in(&column.fields)), Sight::Column(_))
            }
            Some(_) => false,
        };
        scope.aggregated |= own;
    }

    /// Whether an aggregate's result depends on the values of its input and not on their order.
    fn by_values_alone(&self, bare: &str, call: &FuncCall) -> bool {
        if UNORDERED.contains(&bare) {
            return true;
        }
        let first = call.args.first().map(|node| self.kind(node));
        if SUMS.contains(&bare) {
            return first.is_some_and(|kind| kind.sums_exactly() && (!call.agg_distinct || kind.is_exact()));
        }
        if EXTREMES.contains(&bare) {
            return first.is_some_and(super::kind::Kind::is_exact);
        }
        let sorted = call.agg_order.iter().filter_map(sort_expression);
        if call.agg_within_group {
            return self.all_exact(sorted);
        }
        if BY_PEERS.contains(&bare)
            || BY_ROW.contains(&bare)
            || call.agg_order.is_empty() && !call.agg_distinct
        {
            return false;
        }
        let known = self.columns_of(sorted);
        let among = |node: &Node| self.innermost(node).is_some_and(|column| known.contains(&column));
        let arguments_sorted = call.args.iter().all(|node| {
            is_plain_constant(node) || self.kind(node).is_exact() && (call.agg_distinct || among(node))
        });
        let one_row = self.scopes.last().is_some_and(|scope| scope.is_one_row(&known));
        arguments_sorted || one_row && !call.agg_distinct
    }

    /// Whether no two rows of a partition are equal in a window's order.
    pub(super) fn is_total(&self, window: &WindowDef) -> bool {
        let named = |name: &str| {
            let windows = self.scopes.last().map_or(&[][..], |scope| scope.windows.as_slice());
            windows.iter().any(|window: &Window| window.name == name && window.total)
        };
        // OVER w names it; OVER (w ..) builds upon it.
        if !window.name.is_empty() && window.order_clause.is_empty() && window.partition_clause.is_empty() {
            return named(&window.name);
        }
        let parts =
            window.partition_clause.iter().chain(window.order_clause.iter().filter_map(sort_expression));
        let known = self.columns_of(parts);
        named(&window.refname) || self.scopes.last().is_some_and(|scope| scope.is_one_row(&known))
    }

    /// Whether a window has a frame other than the usual one; OVER w takes that of w.
    fn is_framed(&self, window: &WindowDef) -> bool {
        let windows = self.scopes.last().map_or(&[][..], |scope| scope.windows.as_slice());
        let named = [&window.name, &window.refname];
        let base = |other: &&Window| named.iter().any(|name| !name.is_empty() && **name == other.name);
        window.frame_options & FRAME_GIVEN != 0 || windows.iter().filter(base).any(|other| other.framed)
    }

    /// Visits the parts of a window's definition.
    pub(super) fn window_parts(&mut self, window: &WindowDef) {
        self.expressions(&window.partition_clause);
        self.expressions(&window.order_clause);
        self.optional(window.start_offset.as_deref());
        self.optional(window.end_offset.as_deref());
    }

    /// Those among some expressions that are columns of the innermost query.
    pub(super) fn columns_of<'n>(&self, nodes: impl Iterator<Item = &'n Node>) -> BTreeSet<(usize, usize)> {
        nodes.filter_map(|node| self.innermost(node)).collect()
    }

    /// A column of the innermost query.
    pub(super) fn innermost(&self, node: &Node) -> Option<(usize, usize)> {
        let Some(NodeEnum::ColumnRef(column)) = &node.node else { return None };
        match self.scopes.last()?.column(&names_in(&column.fields)) {
            Sight::Column(found) => Some((found.item, found.column)),
            Sight::Unclear | Sight::Nothing => None,
        }
    }
}

fn why_not(name: &Name, call: &FuncCall) -> Why {
    let bare = name.name.as_str();
    if EXTREMES.contains(&bare) {
        Why::Representative
    } else if SUMS.contains(&bare) && !call.args.is_empty() {
        Why::FloatSum(name.clone())
    } else {
        Why::AggregateOrder(name.clone())
    }
}

/// The expression of an ORDER BY item, if it sorts by the type's own order.
pub(super) fn sort_expression(node: &Node) -> Option<&Node> {
    match &node.node {
        Some(NodeEnum::SortBy(sort)) if sort.use_op.is_empty() => sort.node.as_deref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_function_is_in_two_lists() {
        let lists: [&[&str]; 6] = [&UNORDERED, &SUMS, &EXTREMES, &ORDERED, &BY_PEERS, &BY_ROW];
        let mut seen = BTreeSet::new();
        assert!(lists.iter().flat_map(|list| list.iter()).all(|name| seen.insert(name)));
    }
}
