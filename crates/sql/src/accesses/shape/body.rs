//! Statements that stand in the body of a procedure: variables, array elements, conditions of IF, and calls.
//!
//! In a body `WHERE w_id = p_w_id` compares a column with a variable. The text does not say which of the two names is
//! the column, so a shape keeps names, and they are looked up when the tables are known.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, AExprKind, BoolExprType, FuncCall, Node, NullTestType, RangeFunction, SelectStmt,
};

use super::expression::{Builder, column_ref, type_form};
use super::query::strings;
use super::{Call, CallArgument, ColumnRef, Shape, Source, Unforeseen, Uses};
use crate::accesses::bind::{Operand, Place};
use crate::accesses::guard::{Compared, Test};
use crate::accesses::value::Form;
use crate::ast_scan::AstScan;
use crate::name::{Name, SYSTEM_SCHEMA};
use crate::parser;
use crate::statement::Statement;

/// Gives a statement of a body its shape.
pub(crate) fn attach_in_body(statement: &mut Statement, node: &NodeEnum) {
    let mut builder = body_builder();
    let root = builder.root(node).ok();
    let (named_once, parameters) = (builder.named_once(), builder.parameters());
    statement.shape = root.map(|root| Shape { root, parameters, named_once }.into());
}

fn body_builder() -> Builder<'static> {
    let mut builder = Builder::new("", None);
    builder.in_body = true;
    builder
}

/// An expression of a body, which PL/pgSQL evaluates as a SELECT without anything else.
pub(crate) struct Expression<'a>(&'a Node);

impl<'a> Expression<'a> {
    /// The only thing that a query selects.
    pub(crate) fn of(select: &'a SelectStmt) -> Option<Self> {
        let [Node { node: Some(NodeEnum::ResTarget(target)) }] = select.target_list.as_slice() else {
            return None;
        };
        let is_plain = select.from_clause.is_empty()
            && select.where_clause.is_none()
            && select.with_clause.is_none()
            && select.group_clause.is_empty()
            && select.having_clause.is_none()
            && select.limit_count.is_none()
            && select.limit_offset.is_none()
            && select.larg.is_none();
        target.val.as_deref().filter(|_| is_plain).map(Expression)
    }

    /// The value, if it is one.
    pub(crate) fn value(&self) -> Option<Operand> {
        body_builder().operand(self.0)
    }

    /// The array, if it is one: a list, or [`Operand::Array`].
    pub(crate) fn array(&self) -> Option<Operand> {
        body_builder().array(self.0)
    }

    /// The condition.
    pub(crate) fn test(&self) -> Test {
        body_builder().test(self.0)
    }
}

/// The form of a type by its name in a declaration; `None` with a modifier, or if it is not one of those known.
pub(crate) fn declared_form(type_name: &str) -> Option<Form> {
    let parser::Parsed::Trees(trees) = parser::parse(&format!("SELECT NULL::{type_name}"), true).ok()? else {
        return None;
    };
    let [tree] = trees.as_slice() else { return None };
    let Some(NodeEnum::SelectStmt(select)) = &tree.stmt.as_deref()?.node else { return None };
    match &Expression::of(select)?.0.node {
        Some(NodeEnum::TypeCast(cast)) => match type_form(cast.type_name.as_ref()?)? {
            (form, 0) => Some(form),
            _ => None,
        },
        _ => None,
    }
}

impl Builder<'_> {
    fn test(&self, node: &Node) -> Test {
        match &node.node {
            Some(NodeEnum::BoolExpr(expression)) => {
                let tests = expression.args.iter().map(|node| self.test(node)).collect();
                match (expression.boolop(), expression.args.first()) {
                    (BoolExprType::AndExpr, _) => Test::All(tests),
                    (BoolExprType::OrExpr, _) => Test::Any(tests),
                    (BoolExprType::NotExpr, Some(inner)) => Test::Not(Box::new(self.test(inner))),
                    _ => Test::Unknown,
                }
            }
            Some(NodeEnum::NullTest(test)) => {
                let operand = test.arg.as_deref().and_then(|node| self.operand(node));
                match (operand, test.nulltesttype()) {
                    (Some(operand), NullTestType::IsNull) => Test::IsNull(operand),
                    (Some(operand), NullTestType::IsNotNull) => Test::Not(Box::new(Test::IsNull(operand))),
                    _ => Test::Unknown,
                }
            }
            Some(NodeEnum::AExpr(expression)) if expression.kind() == AExprKind::AexprOp => {
                self.compared(expression).unwrap_or(Test::Unknown)
            }
            _ => Test::Unknown,
        }
    }

    fn compared(&self, expression: &AExpr) -> Option<Test> {
        let one = self.operand(expression.lexpr.as_deref()?)?;
        let other = self.operand(expression.rexpr.as_deref()?)?;
        let names = strings(&expression.name).ok()?;
        let [name] = names.as_slice() else { return None };
        Some(match name.as_str() {
            "=" => Test::Compare(Compared::Equal, one, other),
            "<>" => Test::Not(Box::new(Test::Compare(Compared::Equal, one, other))),
            "<" => Test::Compare(Compared::Less, one, other),
            "<=" => Test::Compare(Compared::LessOrEqual, one, other),
            ">" => Test::Compare(Compared::Less, other, one),
            ">=" => Test::Compare(Compared::LessOrEqual, other, one),
            _ => return None,
        })
    }

    /// CALL. What its arguments are made of is among the names of the statement.
    pub(super) fn call_of(&mut self, call: &FuncCall) -> Result<Call, Unforeseen> {
        let name = Name::from_parts(strings(&call.funcname)?).ok_or(Unforeseen)?;
        let mut uses = Uses::default();
        self.expressions(&call.args, &mut uses)?;
        // A function of the same name takes other arguments.
        let is_called_inside = AstScan::of(&call.args).functions.iter().any(|one| one.name == name.name);
        if !uses.queries.is_empty() || uses.everything || is_called_inside {
            return Err(Unforeseen);
        }
        let argument = |node: &Node| {
            let (name, node) = match &node.node {
                Some(NodeEnum::NamedArgExpr(named)) => {
                    (Some(named.name.clone()), named.arg.as_deref().ok_or(Unforeseen)?)
                }
                _ => (None, node),
            };
            Ok(CallArgument { name, value: self.operand(node), array: self.array(node) })
        };
        let arguments = call.args.iter().map(argument).collect::<Result<_, _>>()?;
        Ok(Call { name, arguments, variadic: call.func_variadic })
    }

    /// `unnest(a, b) AS u(x, y)`; `None` for any other function.
    pub(super) fn unnest(&mut self, function: &RangeFunction) -> Result<Option<Source>, Unforeseen> {
        const UNNEST: &str = "unnest";
        let [Node { node: Some(NodeEnum::List(list)) }] = function.functions.as_slice() else {
            return Ok(None);
        };
        let Some(Node { node: Some(NodeEnum::FuncCall(call)) }) = list.items.first() else { return Ok(None) };
        let names = strings(&call.funcname)?;
        let is_unnest = match names.as_slice() {
            [name] => name == UNNEST,
            [schema, name] => schema == SYSTEM_SCHEMA && name == UNNEST,
            _ => false,
        };
        let arrays: Option<Vec<Operand>> = call.args.iter().map(|node| self.array(node)).collect();
        let Some(arrays) = arrays.filter(|arrays| is_unnest && !arrays.is_empty()) else { return Ok(None) };
        if !function.coldeflist.is_empty() || call.func_variadic {
            return Ok(None);
        }
        let mut uses = Uses::default();
        self.expressions(&call.args, &mut uses)?;
        let (alias, mut columns) = match &function.alias {
            Some(alias) => (alias.aliasname.clone(), strings(&alias.colnames)?),
            None => (UNNEST.to_owned(), Vec::new()),
        };
        // A single column without a name of its own has the alias.
        let others = if arrays.len() == 1 { alias.clone() } else { UNNEST.to_owned() };
        while columns.len() < arrays.len() {
            columns.push(others.clone());
        }
        if function.ordinality && columns.len() == arrays.len() {
            columns.push("ordinality".to_owned());
        }
        Ok(Some(Source::Unnest { arrays, alias, columns, uses }))
    }
}

/// A name without anything before it.
fn bare(node: &NodeEnum) -> Option<String> {
    column_ref(node).and_then(|ColumnRef { qualifier, name }| name.filter(|_| qualifier.is_empty()))
}

/// A name that may be a variable's, or an element of an array that may be one, by a place that may be one.
pub(super) fn variable(node: &Node) -> Option<Operand> {
    match node.node.as_ref()? {
        column @ NodeEnum::ColumnRef(_) => bare(column).map(Operand::Variable),
        NodeEnum::AIndirection(element) => {
            let array = bare(element.arg.as_deref()?.node.as_ref()?)?;
            let [Node { node: Some(NodeEnum::AIndices(at)) }] = element.indirection.as_slice() else {
                return None;
            };
            let place = bare(at.uidx.as_deref()?.node.as_ref()?).filter(|_| !at.is_slice)?;
            let (array, place) = (Box::new(Operand::Variable(array)), Place::Named(place));
            Some(Operand::Element { array, place })
        }
        _ => None,
    }
}
