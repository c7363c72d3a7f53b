//! Expressions with their columns resolved, and their texts with other names and parameters.
//!
//! One list of children, [`children`], says which nodes are known; every walk uses it, so none sees more than another.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{ColumnRef, Node, String as Text};

use super::model::{ColumnPlace, NoAnatomy};
use crate::parser;

/// An expression of a statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Expression {
    pub(super) node: Node,
    /// The columns outside of sub-queries, in the order in which a walk meets them.
    pub(super) places: Vec<ColumnPlace>,
    /// The columns within sub-queries.
    pub(super) inner: BTreeSet<ColumnPlace>,
    /// It holds a sub-query.
    pub(super) has_query: bool,
    /// It holds an aggregate.
    pub(super) has_aggregate: bool,
}

impl Expression {
    /// All columns, those of sub-queries too.
    pub fn columns(&self) -> BTreeSet<ColumnPlace> {
        self.places.iter().chain(&self.inner).copied().collect()
    }

    /// Whether rows are reckoned together.
    pub fn has_aggregate(&self) -> bool {
        self.has_aggregate
    }

    /// Whether it holds a query of its own, whose columns keep their names in [`Self::text`].
    pub fn has_query(&self) -> bool {
        self.has_query
    }

    /// The only column, if the expression is nothing else.
    pub fn column(&self) -> Option<ColumnPlace> {
        match (&self.node.node, self.places.as_slice()) {
            (Some(NodeEnum::ColumnRef(_)), [place]) => Some(*place),
            _ => None,
        }
    }

    /// The text, with each column outside of sub-queries as `qualifier.name` by `named`.
    pub fn text(&self, named: &dyn Fn(ColumnPlace) -> (String, String)) -> String {
        let mut node = self.node.clone();
        let mut places = self.places.iter();
        rename(&mut node, &mut places, named);
        parser::expression_text(&node).unwrap_or_default()
    }
}

fn rename(
    node: &mut Node,
    places: &mut std::slice::Iter<'_, ColumnPlace>,
    named: &dyn Fn(ColumnPlace) -> (String, String),
) {
    let Some(inner) = &mut node.node else { return };
    if let NodeEnum::ColumnRef(column) = inner {
        if let Some(place) = places.next() {
            let (qualifier, name) = named(*place);
            *column = column_ref(&[qualifier, name]);
        }
        return;
    }
    for child in children(inner).unwrap_or_default() {
        rename(child, places, named);
    }
}

fn column_ref(parts: &[String]) -> ColumnRef {
    let field = |part: &String| Node { node: Some(NodeEnum::String(Text { sval: part.clone() })) };
    ColumnRef { fields: parts.iter().map(field).collect(), location: 0 }
}

/// The text with its parameters numbered anew: `numbers[i]` is the old number of what becomes `$i+1`.
pub fn renumbered(text: &str, numbers: &[u32]) -> String {
    let Some(tokens) = parser::tokens(text) else { return text.to_owned() };
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for token in tokens {
        let old = text[token.start..token.end].strip_prefix('$').and_then(|digits| digits.parse().ok());
        if let Some(new) = old.and_then(|old: u32| numbers.iter().position(|&number| number == old)) {
            out.push_str(&text[done..token.start]);
            out.push_str(&format!("${}", new + 1));
            done = token.end;
        }
    }
    out + &text[done..]
}

/// The numbers of a text's parameters, in the order in which they first occur.
pub fn parameters(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    for token in parser::tokens(text).unwrap_or_default() {
        let number = text[token.start..token.end].strip_prefix('$').and_then(|digits| digits.parse().ok());
        if let Some(number) = number.filter(|number| !numbers.contains(number)) {
            numbers.push(number);
        }
    }
    numbers
}

/// The expressions within a node, in the order of all walks; those in a sub-query are not among them.
///
/// # Errors
/// With a kind of node that is not known.
pub(super) fn children(node: &mut NodeEnum) -> Result<Vec<&mut Node>, NoAnatomy> {
    Ok(match node {
        NodeEnum::ColumnRef(_)
        | NodeEnum::ParamRef(_)
        | NodeEnum::AConst(_)
        | NodeEnum::SqlvalueFunction(_)
        | NodeEnum::SetToDefault(_)
        | NodeEnum::String(_)
        | NodeEnum::Integer(_) => Vec::new(),
        NodeEnum::AExpr(e) => e.lexpr.iter_mut().chain(&mut e.rexpr).map(AsMut::as_mut).collect(),
        NodeEnum::BoolExpr(e) => e.args.iter_mut().collect(),
        NodeEnum::List(e) => e.items.iter_mut().collect(),
        NodeEnum::AArrayExpr(e) => e.elements.iter_mut().collect(),
        NodeEnum::RowExpr(e) => e.args.iter_mut().collect(),
        NodeEnum::CoalesceExpr(e) => e.args.iter_mut().collect(),
        NodeEnum::MinMaxExpr(e) => e.args.iter_mut().collect(),
        NodeEnum::TypeCast(e) => e.arg.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::CollateClause(e) => e.arg.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::NamedArgExpr(e) => e.arg.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::NullTest(e) => e.arg.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::BooleanTest(e) => e.arg.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::SortBy(e) => e.node.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::SubLink(e) => e.testexpr.iter_mut().map(AsMut::as_mut).collect(),
        NodeEnum::CaseExpr(e) => {
            let arg = e.arg.iter_mut().map(AsMut::as_mut);
            arg.chain(&mut e.args).chain(e.defresult.iter_mut().map(AsMut::as_mut)).collect()
        }
        NodeEnum::CaseWhen(e) => e.expr.iter_mut().chain(&mut e.result).map(AsMut::as_mut).collect(),
        NodeEnum::FuncCall(e) => {
            if e.over.is_some() || e.agg_within_group {
                let what = if e.over.is_some() { "a window function" } else { "WITHIN GROUP" };
                return Err(NoAnatomy::Construct(what.to_owned()));
            }
            let filter = e.agg_filter.iter_mut().map(AsMut::as_mut);
            e.args.iter_mut().chain(&mut e.agg_order).chain(filter).collect()
        }
        other => return Err(NoAnatomy::Construct(kind(other))),
    })
}

/// The name of a kind of node, for a message.
pub(super) fn kind(node: &NodeEnum) -> String {
    let debug = format!("{node:?}");
    let name = debug.split(['(', ' ', '{']).next().unwrap_or_default();
    format!("the construct {name}")
}

/// The names among the fields of a column; a star is none.
pub(super) fn names(fields: &[Node]) -> Vec<String> {
    let name = |field: &Node| match &field.node {
        Some(NodeEnum::String(text)) => Some(text.sval.clone()),
        _ => None,
    };
    fields.iter().filter_map(name).collect()
}
