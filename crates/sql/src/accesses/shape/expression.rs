//! Expressions: what they use, what they say about columns, and which of them are values.

use std::collections::{BTreeMap, BTreeSet};

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AConst, AExpr, AExprKind, BoolExprType, BoolTestType, FuncCall, Node, NullTestType, SubLink, TypeName,
    WindowDef, a_const,
};

use super::body::variable;
use super::query::strings;
use super::{ColumnRef, Condition, Given, GivenKind, Unforeseen, Uses};
use crate::accesses::bind::{MAX_LIST, Operand};
use crate::accesses::value::Form;
use crate::ast_scan::AstScan;
use crate::lexer::Span;
use crate::name::{Name, SYSTEM_SCHEMA};

/// Makes a shape of one tree.
pub(super) struct Builder<'a> {
    text: &'a str,
    constants: Option<&'a [Span]>,
    /// Every parameter seen so far; `None` once some could not be seen.
    parameters: Option<Vec<u32>>,
    /// A window function was seen in the SELECT at hand.
    pub(super) windowed: bool,
    /// How often FROM clauses name what has no schema.
    named: BTreeMap<String, usize>,
    /// The tree stands in a body: a name that is no column may be a variable, and parameters are the body's.
    pub(super) in_body: bool,
}

impl<'a> Builder<'a> {
    pub(super) fn new(text: &'a str, constants: Option<&'a [Span]>) -> Self {
        Self {
            text,
            constants,
            parameters: Some(Vec::new()),
            windowed: false,
            named: BTreeMap::new(),
            in_body: false,
        }
    }

    /// Notes that a FROM clause names something.
    pub(super) fn name(&mut self, name: &Name) {
        if name.schema.is_none() {
            *self.named.entry(name.name.clone()).or_default() += 1;
        }
    }

    pub(super) fn named_once(&self) -> BTreeSet<String> {
        self.named.iter().filter(|(_, count)| **count == 1).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn parameters(self) -> Option<Vec<u32>> {
        self.parameters
    }

    pub(super) fn optional(&mut self, node: Option<&Node>, uses: &mut Uses) -> Result<(), Unforeseen> {
        node.map_or(Ok(()), |node| self.expression(node, uses))
    }

    pub(super) fn expressions(&mut self, nodes: &[Node], uses: &mut Uses) -> Result<(), Unforeseen> {
        nodes.iter().try_for_each(|node| self.expression(node, uses))
    }

    /// A condition, what it uses included.
    pub(super) fn condition(
        &mut self,
        node: Option<&Node>,
        uses: &mut Uses,
    ) -> Result<Condition, Unforeseen> {
        let Some(node) = node else { return Ok(Condition::True) };
        self.expression(node, uses)?;
        Ok(self.judge(node))
    }

    /// Gathers what an expression uses.
    pub(super) fn expression(&mut self, node: &Node, uses: &mut Uses) -> Result<(), Unforeseen> {
        let Some(node) = &node.node else { return Ok(()) };
        match node {
            NodeEnum::ColumnRef(_) => uses.columns.push(column_ref(node).ok_or(Unforeseen)?),
            NodeEnum::ParamRef(parameter) => match (&mut self.parameters, u32::try_from(parameter.number)) {
                (Some(seen), Ok(number)) => seen.push(number),
                _ => return Err(Unforeseen),
            },
            NodeEnum::AConst(_)
            | NodeEnum::SetToDefault(_)
            | NodeEnum::SqlvalueFunction(_)
            | NodeEnum::CurrentOfExpr(_)
            | NodeEnum::MergeSupportFunc(_)
            | NodeEnum::String(_)
            | NodeEnum::Integer(_)
            | NodeEnum::AStar(_) => {}
            NodeEnum::TypeCast(cast) => self.optional(cast.arg.as_deref(), uses)?,
            NodeEnum::CollateClause(clause) => self.optional(clause.arg.as_deref(), uses)?,
            NodeEnum::NamedArgExpr(named) => self.optional(named.arg.as_deref(), uses)?,
            NodeEnum::NullTest(test) => self.optional(test.arg.as_deref(), uses)?,
            NodeEnum::BooleanTest(test) => self.optional(test.arg.as_deref(), uses)?,
            NodeEnum::AExpr(expression) => {
                self.optional(expression.lexpr.as_deref(), uses)?;
                self.optional(expression.rexpr.as_deref(), uses)?;
            }
            NodeEnum::BoolExpr(expression) => self.expressions(&expression.args, uses)?,
            NodeEnum::CoalesceExpr(expression) => self.expressions(&expression.args, uses)?,
            NodeEnum::MinMaxExpr(expression) => self.expressions(&expression.args, uses)?,
            NodeEnum::RowExpr(expression) => self.expressions(&expression.args, uses)?,
            NodeEnum::AArrayExpr(array) => self.expressions(&array.elements, uses)?,
            NodeEnum::List(list) => self.expressions(&list.items, uses)?,
            NodeEnum::GroupingFunc(grouping) => self.expressions(&grouping.args, uses)?,
            NodeEnum::GroupingSet(set) => self.expressions(&set.content, uses)?,
            NodeEnum::SortBy(sort) => self.optional(sort.node.as_deref(), uses)?,
            NodeEnum::ResTarget(target) => {
                self.expressions(&target.indirection, uses)?;
                self.optional(target.val.as_deref(), uses)?;
            }
            NodeEnum::MultiAssignRef(assign) => self.optional(assign.source.as_deref(), uses)?,
            NodeEnum::AIndirection(indirection) => {
                self.optional(indirection.arg.as_deref(), uses)?;
                self.expressions(&indirection.indirection, uses)?;
            }
            NodeEnum::AIndices(indices) => {
                self.optional(indices.lidx.as_deref(), uses)?;
                self.optional(indices.uidx.as_deref(), uses)?;
            }
            NodeEnum::CaseExpr(case) => {
                self.optional(case.arg.as_deref(), uses)?;
                self.expressions(&case.args, uses)?;
                self.optional(case.defresult.as_deref(), uses)?;
            }
            NodeEnum::CaseWhen(when) => {
                self.optional(when.expr.as_deref(), uses)?;
                self.optional(when.result.as_deref(), uses)?;
            }
            NodeEnum::FuncCall(call) => self.call(call, uses)?,
            NodeEnum::WindowDef(window) => self.window(window, uses)?,
            NodeEnum::SubLink(link) => self.sub_query(link, uses)?,
            _ => self.opaque(node, uses)?,
        }
        Ok(())
    }

    fn call(&mut self, call: &FuncCall, uses: &mut Uses) -> Result<(), Unforeseen> {
        self.expressions(&call.args, uses)?;
        self.expressions(&call.agg_order, uses)?;
        self.optional(call.agg_filter.as_deref(), uses)?;
        if let Some(window) = &call.over {
            self.window(window, uses)?;
        }
        Ok(())
    }

    fn window(&mut self, window: &WindowDef, uses: &mut Uses) -> Result<(), Unforeseen> {
        self.windowed = true;
        self.expressions(&window.partition_clause, uses)?;
        self.expressions(&window.order_clause, uses)?;
        self.optional(window.start_offset.as_deref(), uses)?;
        self.optional(window.end_offset.as_deref(), uses)
    }

    fn sub_query(&mut self, link: &SubLink, uses: &mut Uses) -> Result<(), Unforeseen> {
        self.optional(link.testexpr.as_deref(), uses)?;
        let query = link.subselect.as_deref().and_then(|node| node.node.as_ref()).ok_or(Unforeseen)?;
        let query = self.query(query)?;
        uses.queries.push(query);
        Ok(())
    }

    /// An expression of a rare kind: it may use every column in reach, but no relation of its own.
    fn opaque(&mut self, node: &NodeEnum, uses: &mut Uses) -> Result<(), Unforeseen> {
        let scan = AstScan::of(node);
        if !scan.reads.is_empty() || scan.modifies || scan.stranger.is_some() {
            return Err(Unforeseen);
        }
        uses.everything = true;
        self.parameters = None;
        Ok(())
    }

    /// What is true of the columns of every row that a condition accepts.
    fn judge(&self, node: &Node) -> Condition {
        match &node.node {
            Some(NodeEnum::BoolExpr(expression)) => match expression.boolop() {
                BoolExprType::AndExpr => Condition::And(self.judge_all(&expression.args)),
                BoolExprType::OrExpr => Condition::Or(self.judge_all(&expression.args)),
                BoolExprType::NotExpr => match expression.args.first().and_then(|arg| arg.node.as_ref()) {
                    Some(column @ NodeEnum::ColumnRef(_)) => truth(column, false),
                    _ => Condition::True,
                },
                BoolExprType::Undefined => Condition::True,
            },
            Some(NodeEnum::AConst(constant)) => match (&constant.val, constant.isnull) {
                (Some(a_const::Val::Boolval(truth)), false) if truth.boolval => Condition::True,
                (Some(a_const::Val::Boolval(_)), _) | (_, true) => Condition::Never,
                _ => Condition::True,
            },
            Some(column @ NodeEnum::ColumnRef(_)) => truth(column, true),
            Some(NodeEnum::BooleanTest(test)) => {
                let column = test.arg.as_deref().and_then(|arg| arg.node.as_ref());
                match (test.booltesttype(), column) {
                    (BoolTestType::IsTrue, Some(column)) => truth(column, true),
                    (BoolTestType::IsFalse, Some(column)) => truth(column, false),
                    _ => Condition::True,
                }
            }
            Some(NodeEnum::NullTest(test)) if test.nulltesttype() == NullTestType::IsNull => {
                let column = test.arg.as_deref().and_then(|arg| column_ref(arg.node.as_ref()?));
                column.map_or(Condition::True, |column| Condition::Is {
                    column,
                    operand: Operand::Null,
                    strict: false,
                })
            }
            Some(NodeEnum::AExpr(expression)) => self.comparison(expression),
            _ => Condition::True,
        }
    }

    fn judge_all(&self, nodes: &[Node]) -> Vec<Condition> {
        nodes.iter().map(|node| self.judge(node)).collect()
    }

    fn comparison(&self, expression: &AExpr) -> Condition {
        let by_equality = match strings(&expression.name).as_deref() {
            Ok([name]) => name == "=",
            Ok([schema, name]) => schema == SYSTEM_SCHEMA && name == "=",
            _ => false,
        };
        let (Some(left), Some(right)) = (&expression.lexpr, &expression.rexpr) else {
            return Condition::True;
        };
        if !by_equality {
            return Condition::True;
        }
        match expression.kind() {
            AExprKind::AexprOp => self.equal(left, right, true),
            AExprKind::AexprNotDistinct => self.equal(left, right, false),
            AExprKind::AexprOpAny => self.any_element(left, right),
            AExprKind::AexprIn => self.one_of(left, right),
            _ => Condition::True,
        }
    }

    /// `left = right`, or IS NOT DISTINCT FROM unless strict.
    fn equal(&self, left: &Node, right: &Node, strict: bool) -> Condition {
        if let (Some(NodeEnum::RowExpr(left)), Some(NodeEnum::RowExpr(right))) = (&left.node, &right.node) {
            if left.args.len() != right.args.len() || !strict {
                return Condition::True;
            }
            let pairs = left.args.iter().zip(&right.args);
            return Condition::And(pairs.map(|(left, right)| self.equal(left, right, true)).collect());
        }
        // With transform_null_equals on, `column = NULL` means IS NULL.
        let is_null = |node: &Node| matches!(&node.node, Some(NodeEnum::AConst(constant)) if constant.isnull);
        let strict = strict && !is_null(left) && !is_null(right);
        let column = |node: &Node| column_ref(node.node.as_ref()?).filter(|column| column.name.is_some());
        match (column(left), column(right)) {
            (Some(left), Some(right)) if strict => Condition::Equal(left, right),
            (Some(column), None) => self.is(column, self.operand(right), strict),
            (None, Some(column)) => self.is(column, self.operand(left), strict),
            _ => Condition::True,
        }
    }

    #[expect(clippy::unused_self, reason = "it reads with the others")]
    fn is(&self, column: ColumnRef, operand: Option<Operand>, strict: bool) -> Condition {
        operand.map_or(Condition::True, |operand| Condition::Is { column, operand, strict })
    }

    /// `left = ANY (right)`, the right side an array.
    fn any_element(&self, left: &Node, right: &Node) -> Condition {
        let Some(column) = left.node.as_ref().and_then(column_ref) else { return Condition::True };
        self.is(column, self.array(right), true)
    }

    /// `left IN (right, ..)`.
    fn one_of(&self, left: &Node, right: &Node) -> Condition {
        let Some(NodeEnum::List(list)) = &right.node else { return Condition::True };
        match &left.node {
            Some(NodeEnum::RowExpr(_)) if list.items.len() <= MAX_LIST => {
                Condition::Or(list.items.iter().map(|item| self.equal(left, item, true)).collect())
            }
            Some(node @ NodeEnum::ColumnRef(_)) if list.items.len() <= MAX_LIST => {
                let operands = list.items.iter().map(|item| self.operand(item)).collect::<Option<_>>();
                let Some(column) = column_ref(node) else { return Condition::True };
                self.is(column, operands.map(Operand::List), true)
            }
            _ => Condition::True,
        }
    }

    /// An array as a value: constructed, or given as one constant or parameter.
    pub(super) fn array(&self, node: &Node) -> Option<Operand> {
        match node.node.as_ref()? {
            NodeEnum::AArrayExpr(array) if array.elements.len() <= MAX_LIST => {
                let elements = array.elements.iter().map(|element| self.operand(element));
                Some(Operand::List(elements.collect::<Option<_>>()?))
            }
            NodeEnum::TypeCast(cast) => {
                let (form, dimensions) = type_form(cast.type_name.as_ref()?)?;
                let inner = cast.arg.as_deref()?;
                match self.array(inner)? {
                    _ if dimensions != 1 => None,
                    Operand::List(elements) => {
                        let cast = |element| Operand::Cast(Box::new(element), form);
                        Some(Operand::List(elements.into_iter().map(cast).collect()))
                    }
                    Operand::Array(operand) => {
                        Some(Operand::Array(Box::new(Operand::CastArray(operand, form))))
                    }
                    _ => None,
                }
            }
            NodeEnum::AConst(_) | NodeEnum::ParamRef(_) | NodeEnum::ColumnRef(_) => {
                self.operand(node).map(|operand| Operand::Array(Box::new(operand)))
            }
            _ => None,
        }
    }

    /// A value that is known when the statement is executed.
    pub(super) fn operand(&self, node: &Node) -> Option<Operand> {
        match node.node.as_ref()? {
            NodeEnum::AConst(constant) => self.constant(constant),
            NodeEnum::ParamRef(parameter) if self.in_body => {
                Some(Operand::Variable(format!("${}", parameter.number)))
            }
            NodeEnum::ParamRef(parameter) => Some(Operand::Parameter(u32::try_from(parameter.number).ok()?)),
            NodeEnum::ColumnRef(_) | NodeEnum::AIndirection(_) if self.in_body => variable(node),
            NodeEnum::TypeCast(cast) => {
                let (form, dimensions) = type_form(cast.type_name.as_ref()?)?;
                let operand = self.operand(cast.arg.as_deref()?)?;
                (dimensions == 0).then(|| Operand::Cast(Box::new(operand), form))
            }
            _ => None,
        }
    }

    /// A value that an item of a SELECT list gives to every row.
    pub(super) fn given(&self, node: &Node) -> Option<Given> {
        // A name may be that of a column.
        let operand = self.operand(node).filter(|operand| !matches!(operand, Operand::Variable(_)))?;
        let kind = match (node.node.as_ref()?, &operand) {
            (_, Operand::Null) => GivenKind::Null,
            (_, Operand::Parameter(_)) => GivenKind::Parameter,
            (_, Operand::Cast(_, form)) => GivenKind::Typed(*form),
            (NodeEnum::AConst(constant), _) => match constant.val {
                Some(a_const::Val::Sval(_)) => GivenKind::Text,
                Some(a_const::Val::Ival(_) | a_const::Val::Fval(_)) => GivenKind::Number,
                _ => GivenKind::Other,
            },
            _ => GivenKind::Other,
        };
        Some(Given { operand, kind, exact: true })
    }

    fn constant(&self, constant: &AConst) -> Option<Operand> {
        let known = match (constant.val.as_ref(), constant.isnull) {
            (_, true) => return Some(Operand::Null),
            (Some(a_const::Val::Boolval(truth)), _) => return Some(Operand::Bool(truth.boolval)),
            (Some(a_const::Val::Ival(number)), _) => Operand::Number(number.ival.to_string()),
            (Some(a_const::Val::Fval(number)), _) => Operand::Number(number.fval.clone()),
            (Some(a_const::Val::Sval(text)), _) => Operand::Text(text.sval.clone()),
            (Some(a_const::Val::Bsval(_)) | None, _) => return None,
        };
        let Some(constants) = self.constants else { return Some(known) };
        let at = usize::try_from(constant.location).ok()?;
        let index = constants.partition_point(|span| span.start < at);
        let place = constants.get(index)?;
        // A sign before a number is part of the constant to the parser, but not to the lexer.
        let between = self.text.as_bytes().get(at..place.start)?;
        let mut negative = false;
        let mut plain = !between.windows(2).any(|two| two == b"--");
        for byte in between {
            negative ^= *byte == b'-';
            plain &= *byte == b'-' || byte.is_ascii_whitespace();
        }
        let starts_here = between.is_empty() || between[0] == b'-';
        let index = u32::try_from(index).ok()?;
        (plain && starts_here).then_some(Operand::Constant { index, negative })
    }
}

/// A truth value that a column must have.
fn truth(node: &NodeEnum, truth: bool) -> Condition {
    column_ref(node).map_or(Condition::True, |column| Condition::Is {
        column,
        operand: Operand::Bool(truth),
        strict: true,
    })
}

pub(super) fn column_ref(node: &NodeEnum) -> Option<ColumnRef> {
    let NodeEnum::ColumnRef(column) = node else { return None };
    let mut qualifier = Vec::with_capacity(column.fields.len());
    let mut name = None;
    for (at, field) in column.fields.iter().enumerate() {
        let last = at + 1 == column.fields.len();
        match field.node.as_ref()? {
            NodeEnum::String(part) if last => name = Some(part.sval.clone()),
            NodeEnum::String(part) => qualifier.push(part.sval.clone()),
            NodeEnum::AStar(_) if last => {}
            _ => return None,
        }
    }
    Some(ColumnRef { qualifier, name })
}

/// The form of a type without modifiers, and the number of its dimensions.
pub(super) fn type_form(name: &TypeName) -> Option<(Form, usize)> {
    let plain = name.typmods.is_empty() && !name.setof && !name.pct_type;
    let names = strings(&name.names).ok().filter(|_| plain)?;
    let form = match names.as_slice() {
        [name] => Form::of_name(name),
        [schema, name] if schema == SYSTEM_SCHEMA => Form::of_name(name),
        _ => None,
    };
    Some((form?, name.array_bounds.len()))
}
