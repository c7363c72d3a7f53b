//! Queries: what is in sight, and where the order of rows matters.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    LimitOption, LockWaitPolicy, Node, ResTarget, SelectStmt, SetOperation, WithClause, a_const,
};

use super::Why;
use super::aggregate::{FRAME_GIVEN, sort_expression};
use super::function::is_replaced;
use super::scope::{Item, Scope, Window};
use super::walk::{Walk, is_plain_constant};
use crate::ast_scan::names_in;

/// The use of a query's rows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// They are a set with duplicates.
    Rows,
    /// They are stored in the columns of a table, whatever their own names are.
    Stored,
    /// They are a set without duplicates, of which one of each kind is kept.
    Distinct,
    /// Only whether there are any matters.
    Existence,
    /// Their order matters.
    Sequence,
}

/// Functions that make several rows of one; a sort does not settle the order of these.
const SET_RETURNING: [&str; 34] = [
    "_pg_expandarray",
    "aclexplode",
    "generate_series",
    "generate_subscripts",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_each_text",
    "json_object_keys",
    "json_populate_recordset",
    "json_to_recordset",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_each_text",
    "jsonb_object_keys",
    "jsonb_path_query",
    "jsonb_path_query_tz",
    "jsonb_populate_recordset",
    "jsonb_to_recordset",
    "regexp_matches",
    "regexp_split_to_table",
    "string_to_table",
    "ts_debug",
    "ts_parse",
    "ts_stat",
    "ts_token_type",
    "txid_snapshot_xip",
    "pg_snapshot_xip",
    "unnest",
    "pg_get_keywords",
    "pg_timezone_names",
    "pg_timezone_abbrevs",
    "pg_options_to_table",
];

impl Walk<'_> {
    /// A query whose rows are a set.
    pub(super) fn query(&mut self, node: &Node) {
        self.query_for(node, Use::Rows);
    }

    /// A query of which only matters whether it has rows.
    pub(super) fn existence(&mut self, node: &Node) {
        self.query_for(node, Use::Existence);
    }

    /// A query whose rows become an array.
    pub(super) fn array(&mut self, node: &Node) {
        self.query_for(node, Use::Sequence);
    }

    fn query_for(&mut self, node: &Node, purpose: Use) {
        match &node.node {
            Some(NodeEnum::SelectStmt(select)) => {
                self.count();
                self.select(select, purpose);
            }
            _ => self.note(Why::NotUnderstood("a query")),
        }
    }

    /// One SELECT, VALUES or set operation.
    pub(super) fn select(&mut self, select: &SelectStmt, purpose: Use) {
        let outer_names = self.with_names.len();
        let once = std::mem::take(&mut self.once);
        self.with(select.with_clause.as_ref());
        let combined = SetOperation::try_from(select.op) != Ok(SetOperation::SetopNone);
        if combined || !select.values_lists.is_empty() {
            self.combined(select, purpose);
        } else {
            self.plain(select, purpose);
        }
        for locking in &select.locking_clause {
            self.count();
            let Some(NodeEnum::LockingClause(locking)) = &locking.node else { continue };
            if LockWaitPolicy::try_from(locking.wait_policy) != Ok(LockWaitPolicy::LockWaitBlock) {
                self.note(Why::SkipsLocked);
            }
        }
        self.once = once;
        self.with_names.truncate(outer_names);
    }

    /// WITH: queries and changes that stand before the statement.
    pub(super) fn with(&mut self, with: Option<&WithClause>) {
        let Some(with) = with else { return };
        let expressions = with.ctes.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::CommonTableExpr(expression)) => Some(expression),
            _ => None,
        });
        if with.recursive {
            self.with_names.extend(expressions.clone().map(|expression| expression.ctename.clone()));
        }
        for expression in expressions {
            self.count();
            if let Some(cycle) = &expression.cycle_clause {
                self.optional(cycle.cycle_mark_value.as_deref());
                self.optional(cycle.cycle_mark_default.as_deref());
            }
            match &expression.ctequery.as_deref().and_then(|query| query.node.as_ref()) {
                Some(NodeEnum::SelectStmt(select)) => {
                    self.count();
                    self.select(select, Use::Rows);
                }
                Some(change) => self.change(change),
                None => {}
            }
            self.with_names.push(expression.ctename.clone());
        }
    }

    /// A set operation or VALUES.
    fn combined(&mut self, select: &SelectStmt, purpose: Use) {
        let distinct = match SetOperation::try_from(select.op) {
            Ok(SetOperation::SetopNone) => false,
            Ok(SetOperation::SetopUnion) => !select.all,
            _ => true,
        };
        let of_arms = if distinct || purpose == Use::Distinct { Use::Distinct } else { Use::Rows };
        for arm in [&select.larg, &select.rarg].into_iter().flatten() {
            self.select(arm, of_arms);
        }
        self.expressions(&select.values_lists);
        // What a set operation is sorted by are its output columns.
        self.scopes
            .push(Scope { items: vec![Item { name: String::new(), table: None }], ..Scope::default() });
        self.expressions(&select.sort_clause);
        self.optional(select.limit_count.as_deref());
        self.optional(select.limit_offset.as_deref());
        self.scopes.pop();
        let rows_given = select.sort_clause.is_empty() && !select.values_lists.is_empty();
        if is_limited(select) && purpose != Use::Existence && !rows_given {
            self.note(Why::Limit);
        }
        if purpose == Use::Sequence && !rows_given {
            self.note(Why::ArrayOrder);
        }
        if purpose == Use::Distinct && !select.values_lists.is_empty() {
            self.note(Why::Representative);
        }
    }

    /// A SELECT by itself.
    fn plain(&mut self, select: &SelectStmt, purpose: Use) {
        self.scopes.push(Scope::default());
        self.from(&select.from_clause, select.where_clause.as_deref(), 0);
        self.windows(&select.window_clause);
        if matches!(purpose, Use::Stored | Use::Existence) {
            self.expressions(&select.target_list);
        } else {
            self.outputs(&select.target_list);
        }
        self.optional(select.where_clause.as_deref());
        self.expressions(&select.group_clause);
        self.optional(select.having_clause.as_deref());
        self.expressions(&select.sort_clause);
        self.expressions(&select.distinct_clause);
        self.optional(select.limit_count.as_deref());
        self.optional(select.limit_offset.as_deref());
        self.order(select, purpose);
        self.scopes.pop();
    }

    /// The rules about order, when everything is in sight.
    fn order(&mut self, select: &SelectStmt, purpose: Use) {
        let total = self.is_in_total_order(select);
        let distinct_on = select.distinct_clause.iter().any(|node| node.node.is_some());
        if distinct_on && !total {
            self.note(Why::DistinctOn);
        }
        if is_limited(select) && purpose != Use::Existence && !total {
            self.note(Why::Limit);
        }
        if purpose == Use::Sequence && !total {
            self.note(Why::ArrayOrder);
        }
        let groups: Vec<&Node> = grouped_by(&select.group_clause);
        if !self.all_exact(groups.iter().map(|node| grouped(node, select))) {
            self.note(Why::Representative);
        }
        let distinct = !distinct_on && !select.distinct_clause.is_empty();
        let among_others = purpose == Use::Distinct;
        if (distinct || among_others) && !self.outputs_are_exact(&select.target_list, among_others) {
            self.note(Why::Representative);
        }
    }

    fn is_in_total_order(&self, select: &SelectStmt) -> bool {
        let Some(scope) = self.scopes.last() else { return false };
        if select.target_list.iter().any(makes_rows) {
            return false;
        }
        if select.from_clause.is_empty() || scope.aggregated && select.group_clause.is_empty() {
            return true;
        }
        let sorted = select.sort_clause.iter().filter_map(sort_expression);
        let known: BTreeSet<(usize, usize)> =
            sorted.filter_map(|node| self.innermost(sorted_by(node, select)?)).collect();
        let groups: Option<BTreeSet<(usize, usize)>> =
            select.group_clause.iter().map(|node| self.innermost(node)).collect();
        let by_groups = groups.is_some_and(|groups| !groups.is_empty() && groups.is_subset(&known));
        by_groups || scope.is_one_row(&known)
    }

    fn outputs_are_exact(&self, targets: &[Node], among_others: bool) -> bool {
        let exact = |value: &Node| {
            let kind = self.kind(value);
            is_plain_constant(value) || if among_others { kind.stays_exact() } else { kind.is_exact() }
        };
        targets.iter().all(|target| match &target.node {
            Some(NodeEnum::ResTarget(target)) => target.val.as_deref().is_some_and(exact),
            _ => false,
        })
    }

    /// The items of a SELECT list or of RETURNING: what is put in place of a call must not change a column's name.
    pub(super) fn outputs(&mut self, targets: &[Node]) {
        for node in targets {
            if let Some(NodeEnum::ResTarget(target)) = &node.node
                && target.name.is_empty()
            {
                self.keep_name(target);
            }
            self.expression(node);
        }
    }

    fn keep_name(&mut self, target: &ResTarget) {
        let Some(value) = target.val.as_deref() else { return };
        if named_after(value).and_then(is_replaced).is_some() {
            self.note(Why::ColumnName);
        }
    }

    fn windows(&mut self, windows: &[Node]) {
        for node in windows {
            let Some(NodeEnum::WindowDef(window)) = &node.node else { continue };
            self.count();
            self.window_parts(window);
            let columns =
                window.partition_clause.iter().chain(window.order_clause.iter().filter_map(sort_expression));
            let known = self.columns_of(columns);
            if let Some(scope) = self.scopes.last_mut() {
                let base = scope.windows.iter().any(|base| base.name == window.refname && base.total);
                let total = base || scope.is_one_row(&known);
                let framed = window.frame_options & FRAME_GIVEN != 0;
                scope.windows.push(Window { name: window.name.clone(), total, framed });
            }
        }
    }
}

fn is_limited(select: &SelectStmt) -> bool {
    let all = select.limit_count.as_deref().is_none_or(|count| match &count.node {
        Some(NodeEnum::AConst(constant)) => constant.isnull,
        _ => false,
    });
    !all || select.limit_offset.is_some() || select.limit_option == LimitOption::WithTies as i32
}

/// The expressions of GROUP BY, those in grouping sets included.
fn grouped_by(clause: &[Node]) -> Vec<&Node> {
    let mut found = Vec::new();
    for node in clause {
        match &node.node {
            Some(NodeEnum::GroupingSet(set)) => found.extend(grouped_by(&set.content)),
            Some(NodeEnum::List(list)) => found.extend(grouped_by(&list.items)),
            Some(NodeEnum::RowExpr(row)) => found.extend(grouped_by(&row.args)),
            Some(_) => found.push(node),
            None => {}
        }
    }
    found
}

/// The meaning of an item of GROUP BY: the number of an output column is that column.
fn grouped<'n>(node: &'n Node, select: &'n SelectStmt) -> &'n Node {
    by_number(node, select).unwrap_or(node)
}

/// The meaning of an item of ORDER BY: an output column by number or name comes first. `None` if that is not clear.
fn sorted_by<'n>(node: &'n Node, select: &'n SelectStmt) -> Option<&'n Node> {
    if let Some(NodeEnum::AConst(_)) = &node.node {
        return by_number(node, select);
    }
    let Some(NodeEnum::ColumnRef(column)) = &node.node else { return None };
    let fields = names_in(&column.fields);
    let [name] = fields.as_slice() else { return Some(node) };
    let mut named = select.target_list.iter().filter_map(|target| match &target.node {
        Some(NodeEnum::ResTarget(target)) if target.name == *name => target.val.as_deref(),
        _ => None,
    });
    match named.next() {
        Some(value) => Some(value),
        // An unnamed output column has the name of what it is made of, which is unlikely to be anything else.
        None => plain_targets(select, name).then_some(node),
    }
}

/// Whether no unnamed output column of this name is anything but a column of that name.
fn plain_targets(select: &SelectStmt, name: &str) -> bool {
    select.target_list.iter().all(|target| match &target.node {
        Some(NodeEnum::ResTarget(target)) if target.name.is_empty() => match target.val.as_deref() {
            Some(Node { node: Some(NodeEnum::ColumnRef(_)) }) | None => true,
            Some(value) => !crate::ast_scan::strings_in(value).iter().any(|text| text == name),
        },
        _ => true,
    })
}

fn by_number<'n>(node: &'n Node, select: &'n SelectStmt) -> Option<&'n Node> {
    let Some(NodeEnum::AConst(constant)) = &node.node else { return None };
    let Some(a_const::Val::Ival(number)) = &constant.val else { return None };
    let index = usize::try_from(number.ival).ok()?.checked_sub(1)?;
    let before = select.target_list.get(..=index)?;
    let values = before.iter().map(|target| match &target.node {
        Some(NodeEnum::ResTarget(target)) => target.val.as_deref().filter(|value| !is_star(value)),
        _ => None,
    });
    values.collect::<Option<Vec<&Node>>>()?.pop()
}

fn is_star(node: &Node) -> bool {
    match &node.node {
        Some(NodeEnum::ColumnRef(column)) => {
            column.fields.iter().any(|field| matches!(field.node, Some(NodeEnum::AStar(_))))
        }
        _ => false,
    }
}

/// The expression that names an unnamed output column.
fn named_after(node: &Node) -> Option<&Node> {
    match &node.node {
        Some(NodeEnum::TypeCast(cast)) => named_after(cast.arg.as_deref()?),
        Some(NodeEnum::CollateClause(collate)) => named_after(collate.arg.as_deref()?),
        Some(NodeEnum::AIndirection(indirection)) => named_after(indirection.arg.as_deref()?),
        Some(NodeEnum::CaseExpr(case)) => named_after(case.defresult.as_deref()?),
        _ => Some(node),
    }
}

/// Whether a function that makes several rows is called anywhere in an output column.
fn makes_rows(target: &Node) -> bool {
    let scan = crate::ast_scan::AstScan::of(target);
    scan.functions.iter().any(|name| SET_RETURNING.contains(&name.name.as_str()))
}
