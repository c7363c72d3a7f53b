//! FROM: what comes into sight, and what its conditions make equal.

use std::collections::BTreeSet;
use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, BoolExprType, JoinExpr, JoinType, Node, RangeFunction, RangeVar};

use super::Why;
use super::function::is_replaced;
use super::scope::{Equality, Item, Sight};
use super::walk::Walk;
use crate::ast_scan::names_in;
use crate::classify::relation_name;
use crate::name::Name;

/// A condition that holds for every row that is left, as far as the relations of the range are concerned.
type Condition<'n> = (&'n Node, Range<usize>);

impl<'a> Walk<'a> {
    /// FROM: brings relations into sight after the first `given`, and gathers what is equal to what.
    pub(super) fn from(&mut self, from: &[Node], condition: Option<&Node>, given: usize) {
        let mut conditions: Vec<Condition<'_>> = Vec::new();
        for node in from {
            self.bring_item(node, &mut conditions);
        }
        let all = self.scopes.last().map_or(given, |scope| scope.items.len());
        conditions.extend(condition.map(|condition| (condition, 0..all)));
        for (condition, range) in conditions {
            self.equalities(condition, &range);
        }
    }

    fn bring(&mut self, item: Item<'a>) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.items.push(item);
        }
    }

    fn bring_item<'n>(&mut self, node: &'n Node, conditions: &mut Vec<Condition<'n>>) {
        let Some(item) = &node.node else { return };
        self.count();
        match item {
            NodeEnum::RangeVar(relation) => self.bring_relation(relation),
            NodeEnum::RangeSubselect(query) => {
                if let Some(inner) = query.subquery.as_deref() {
                    self.query(inner);
                }
                let name = query.alias.as_ref().map_or_else(String::new, |alias| alias.aliasname.clone());
                self.bring(Item { name, table: None });
            }
            NodeEnum::RangeFunction(function) => self.bring_function(function),
            NodeEnum::JoinExpr(join) => self.join(join, conditions),
            NodeEnum::RangeTableSample(sample) => {
                self.note(Why::Sample);
                self.optional(sample.repeatable.as_deref());
                self.expressions(&sample.args);
                if let Some(relation) = sample.relation.as_deref() {
                    self.bring_item(relation, conditions);
                }
            }
            _ => self.note(Why::NotUnderstood("a part of FROM")),
        }
    }

    fn bring_relation(&mut self, relation: &RangeVar) {
        let table = self.relation(&relation_name(relation));
        let alias = relation.alias.as_ref();
        let renamed = alias.is_some_and(|alias| !alias.colnames.is_empty());
        let name = alias.map_or_else(|| relation.relname.clone(), |alias| alias.aliasname.clone());
        self.bring(Item { name, table: table.filter(|_| !renamed) });
    }

    fn bring_function(&mut self, function: &RangeFunction) {
        for list in &function.functions {
            if let Some(NodeEnum::List(list)) = &list.node
                && list.items.first().is_some_and(|call| is_replaced(call).is_some())
            {
                self.note(Why::CallInFrom);
            }
            self.expression(list);
        }
        if !function.coldeflist.is_empty() {
            self.note(Why::NotUnderstood("a list of column definitions"));
        }
        let name = function.alias.as_ref().map_or_else(String::new, |alias| alias.aliasname.clone());
        self.bring(Item { name, table: None });
    }

    fn join<'n>(&mut self, join: &'n JoinExpr, conditions: &mut Vec<Condition<'n>>) {
        let kind = JoinType::try_from(join.jointype);
        let count = |walk: &Self| walk.scopes.last().map_or(0, |scope| scope.items.len());
        let mut parts: Vec<Condition<'n>> = Vec::new();
        let start = count(self);
        for side in [&join.larg, &join.rarg].into_iter().flatten() {
            // Conditions inside a side that an outer join fills up with NULLs still hold for its own rows, since they
            // only ever tie one relation to others of that side.
            self.bring_item(side, &mut parts);
        }
        let end = count(self);
        let middle = join.larg.as_deref().map_or(start, |left| start + relations(left));
        if !join.using_clause.is_empty() || join.is_natural {
            self.expression_operator("=");
        }
        if let Some(condition) = join.quals.as_deref() {
            self.expression(condition);
            let range = match kind {
                Ok(JoinType::JoinInner) => start..end,
                Ok(JoinType::JoinLeft) => middle..end,
                Ok(JoinType::JoinRight) => start..middle,
                _ => start..start,
            };
            parts.push((condition, range));
        }
        if kind == Ok(JoinType::JoinFull) {
            // One row of each side may stay by itself, so what holds within a side counts its rows no longer.
            parts.clear();
        }
        if join.alias.is_some() {
            // The names inside are out of sight.
            if let Some(scope) = self.scopes.last_mut() {
                for item in &mut scope.items[start..end] {
                    item.table = None;
                }
            }
        } else {
            conditions.append(&mut parts);
        }
    }

    /// Notes what a condition makes equal, for relations of the range.
    fn equalities(&mut self, condition: &Node, range: &Range<usize>) {
        match &condition.node {
            Some(NodeEnum::BoolExpr(and)) if and.boolop == BoolExprType::AndExpr as i32 => {
                for part in &and.args {
                    self.equalities(part, range);
                }
            }
            Some(NodeEnum::AExpr(equal))
                if equal.kind == AExprKind::AexprOp as i32 && names_in(&equal.name) == ["="] =>
            {
                let (Some(left), Some(right)) = (equal.lexpr.as_deref(), equal.rexpr.as_deref()) else {
                    return;
                };
                self.equality(left, right, range);
                self.equality(right, left, range);
            }
            _ => {}
        }
    }

    fn equality(&mut self, column: &Node, other: &Node, range: &Range<usize>) {
        let Some(NodeEnum::ColumnRef(reference)) = &column.node else { return };
        let Some(scope) = self.scopes.last() else { return };
        let Sight::Column(found) = scope.column(&names_in(&reference.fields)) else { return };
        if !range.contains(&found.item) || !self.compares_plainly(found, other) {
            return;
        }
        let Some(needs) = self.needs(other) else { return };
        if let Some(scope) = self.scopes.last_mut() {
            scope.equalities.push(Equality { item: found.item, column: found.column, needs });
        }
    }

    /// The relations whose columns an expression is made of; `None` if that is not simple to say.
    fn needs(&self, node: &Node) -> Option<BTreeSet<usize>> {
        match &node.node {
            Some(NodeEnum::AConst(_) | NodeEnum::ParamRef(_)) => Some(BTreeSet::new()),
            Some(NodeEnum::TypeCast(cast)) => self.needs(cast.arg.as_deref()?),
            Some(NodeEnum::ColumnRef(column)) => {
                match self.scopes.last()?.column(&names_in(&column.fields)) {
                    Sight::Column(found) => Some(BTreeSet::from([found.item])),
                    Sight::Nothing => Some(BTreeSet::new()),
                    Sight::Unclear => None,
                }
            }
            _ => None,
        }
    }

    fn expression_operator(&mut self, name: &str) {
        if self.catalogue.is_user_operator(name) {
            self.note(Why::UserOperator(Name::bare(name)));
        }
    }
}

/// How many relations a part of FROM brings into sight.
fn relations(node: &Node) -> usize {
    match &node.node {
        Some(NodeEnum::JoinExpr(join)) => {
            [&join.larg, &join.rarg].into_iter().flatten().map(|side| relations(side)).sum()
        }
        _ => 1,
    }
}
