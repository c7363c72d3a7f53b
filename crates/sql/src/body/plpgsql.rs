//! PL/pgSQL: from a function's source to the statements in it.
//!
//! The parser compiles a whole CREATE FUNCTION without a catalogue, so the head is made up here: names and uses of the
//! arguments are right, since the parser looks variables up, and all types are `int`. What does not compile that way
//! (assignments to fields of a composite argument, for one) is not understood. Of trigger functions the parser's output
//! is not even well-formed, so these are compiled as ordinary ones, within a block that declares NEW and OLD.

use std::fmt::Write;

use pg_query::NodeEnum;
use pg_query::protobuf::{CallStmt, Node, PlAssignStmt, ScanToken, Token};
use serde_json::Value;

use super::flow::{Counts, Passed};
use super::{
    Code, Flow, Given, MAX_STATEMENTS, Source, Words, is_understood, source as token_source, tokens_of,
};
use crate::accesses::{Expression, Form, Guard, MAX_LIST, Operand, Test, attach_in_body, declared_form};
use crate::ast_scan::{AstScan, names_in, strings_in};
use crate::catalogue::{Argument, ArgumentMode, Function, Returns};
use crate::classify::{classify, classify_expression};
use crate::parser;
use crate::statement::Statement;

/// Kinds of nodes whose SQL texts are all that they run; sorted.
const KNOWN: [&str; 37] = [
    "PLpgSQL_case_when",
    "PLpgSQL_condition",
    "PLpgSQL_diag_item",
    "PLpgSQL_exception",
    "PLpgSQL_exception_block",
    "PLpgSQL_function",
    "PLpgSQL_if_elsif",
    "PLpgSQL_raise_option",
    "PLpgSQL_rec",
    "PLpgSQL_recfield",
    "PLpgSQL_row",
    "PLpgSQL_stmt_assert",
    "PLpgSQL_stmt_assign",
    "PLpgSQL_stmt_block",
    "PLpgSQL_stmt_call",
    "PLpgSQL_stmt_case",
    "PLpgSQL_stmt_close",
    "PLpgSQL_stmt_execsql",
    "PLpgSQL_stmt_exit",
    "PLpgSQL_stmt_fetch",
    "PLpgSQL_stmt_forc",
    "PLpgSQL_stmt_foreach_a",
    "PLpgSQL_stmt_fori",
    "PLpgSQL_stmt_fors",
    "PLpgSQL_stmt_getdiag",
    "PLpgSQL_stmt_if",
    "PLpgSQL_stmt_loop",
    "PLpgSQL_stmt_open",
    "PLpgSQL_stmt_perform",
    "PLpgSQL_stmt_raise",
    "PLpgSQL_stmt_return",
    "PLpgSQL_stmt_return_next",
    "PLpgSQL_stmt_return_query",
    "PLpgSQL_stmt_while",
    "PLpgSQL_type",
    "PLpgSQL_var",
    "PLpgSQL_variable",
];

/// The variables of a trigger function beside NEW and OLD.
const TRIGGER_VARIABLES: [&str; 11] = [
    "tg_name",
    "tg_when",
    "tg_level",
    "tg_op",
    "tg_relid",
    "tg_relname",
    "tg_table_name",
    "tg_table_schema",
    "tg_nargs",
    "tg_argv",
    "tg_tag",
];

/// The code of a function with this source.
pub(super) fn code(function: &Function, source: &str) -> Option<Code> {
    let text = match function.returns {
        Returns::Trigger => definition(&variables(), &within_block(source)?)?,
        _ => definition(function, source)?,
    };
    let tree = parser::parse_plpgsql(&text)?;
    // Anything but one function would mean that the source got out of its quotes.
    let [function] = tree.as_array()?.as_slice() else { return None };
    Gatherer::code(function, source)
}

/// A function that has the variables of a trigger as arguments.
fn variables() -> Function {
    let argument = |name: &&str| Argument { name: (*name).to_owned(), mode: ArgumentMode::In, type_oid: 0 };
    Function { arguments: TRIGGER_VARIABLES.iter().map(argument).collect(), ..Function::default() }
}

/// The source of a trigger function as a block within another; it may end with a semicolon or without.
fn within_block(source: &str) -> Option<String> {
    let tokens = tokens_of(source)?;
    let comment =
        |token: &&ScanToken| matches!(Token::try_from(token.token), Ok(Token::SqlComment | Token::CComment));
    let last = tokens.iter().rev().find(|token| !comment(token))?;
    let end = if token_source(source, last)? == ";" { "" } else { ";" };
    Some(format!("DECLARE new record; old record; BEGIN {source}\n{end} END"))
}

/// A statement that makes such a function.
fn definition(function: &Function, source: &str) -> Option<String> {
    let quoted = |name: &str| match name {
        "" => String::new(),
        name => format!("\"{}\" ", name.replace('"', "\"\"")),
    };
    let (mut taken, mut columns, mut results) = (Vec::new(), Vec::new(), 0);
    for argument in &function.arguments {
        let mode = match argument.mode {
            ArgumentMode::In | ArgumentMode::Variadic => "IN",
            ArgumentMode::Out => "OUT",
            ArgumentMode::InOut => "INOUT",
            ArgumentMode::Table => {
                columns.push(format!("{}int", quoted(&argument.name)));
                continue;
            }
        };
        results += usize::from(matches!(argument.mode, ArgumentMode::Out | ArgumentMode::InOut));
        taken.push(format!("{mode} {}int", quoted(&argument.name)));
    }
    let kind = if function.returns == Returns::Procedure { "PROCEDURE" } else { "FUNCTION" };
    let mut text = format!("CREATE {kind} f({})", taken.join(", "));
    let set = if function.returns_set { "SETOF " } else { "" };
    let written = match (function.returns, results) {
        (Returns::Procedure, _) => Ok(()),
        _ if !columns.is_empty() => write!(text, " RETURNS TABLE ({})", columns.join(", ")),
        (Returns::Void, _) => write!(text, " RETURNS {set}void"),
        (_, 0 | 1) => write!(text, " RETURNS {set}int"),
        _ => write!(text, " RETURNS {set}record"),
    };
    written.ok()?;
    let tag = (0..100).map(|n| format!("$body{n}$")).find(|tag| !source.contains(tag.as_str()))?;
    write!(text, " LANGUAGE plpgsql AS {tag}{source}{tag}").ok()?;
    Some(text)
}

/// A variable by its number.
struct Datum {
    name: String,
    form: Option<Form>,
    /// It is declared in the source, or by the head of a loop.
    is_declared: bool,
}

/// What is gathered from the tree of one function.
#[derive(Default)]
struct Gatherer {
    datums: Vec<Datum>,
    statements: Vec<Statement>,
    flow: Flow,
    /// The guards around the node at hand.
    guards: Vec<Guard>,
    /// Names whose places are accounted for.
    understood: Counts,
}

impl Gatherer {
    fn code(function: &Value, source: &str) -> Option<Code> {
        let mut gatherer = Self::default();
        let datums = function.get("PLpgSQL_function")?.get("datums").and_then(Value::as_array);
        for datum in datums.into_iter().flatten() {
            gatherer.declare(datum);
        }
        gatherer.gather(function)?;
        let mut counts = Counts::default();
        counts.add_source(source)?;
        gatherer.flow.count(&counts, &gatherer.understood);
        let Self { statements, flow, .. } = gatherer;
        Some(Code { statements, words: Words::of(source)?, flow })
    }

    /// Notes a variable, and the value that it begins with.
    fn declare(&mut self, datum: &Value) {
        let text = |value: &Value, field: &str| {
            value.get(field).and_then(Value::as_str).map(str::to_owned).unwrap_or_default()
        };
        let variable = datum.get("PLpgSQL_var");
        let name = variable.or_else(|| datum.get("PLpgSQL_rec")).map(|of| text(of, "refname"));
        let name = name.unwrap_or_default();
        let is_declared = variable.is_some_and(|of| of.get("lineno").is_some());
        let type_name =
            variable.and_then(|of| Some(text(of.get("datatype")?.get("PLpgSQL_type")?, "typname")));
        let form = type_name.filter(|_| is_declared).and_then(|name| declared_form(&name));
        if is_declared {
            self.understood.add(&name);
            let source = match variable.and_then(|of| of.get("default_val")) {
                Some(value) => expression_in(value).map_or(Source::Unknown, |tree| value_of(&tree)),
                None => Source::Value(Operand::Null),
            };
            self.give(&name, source, form);
        } else if datum.get("PLpgSQL_rec").is_some() {
            self.give(&name, Source::Unknown, None);
        }
        // What a cursor takes when it is opened.
        let row = datum.get("PLpgSQL_row").and_then(|row| row.get("fields")).and_then(Value::as_array);
        for field in row.into_iter().flatten() {
            self.give(&text(field, "name"), Source::Unknown, None);
        }
        self.datums.push(Datum { name, form, is_declared });
    }

    fn give(&mut self, name: &str, source: Source, form: Option<Form>) {
        self.flow.give(name, Given { guards: self.guards.clone(), source, form });
    }

    /// Gathers the statements below a node; `None` when something is not understood.
    fn gather(&mut self, node: &Value) -> Option<()> {
        match node {
            Value::Array(items) => items.iter().try_for_each(|item| self.gather(item)),
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match name.as_str() {
                "PLpgSQL_expr" => self.expression(value),
                "dynquery" => None,
                "PLpgSQL_stmt_if" => self.branches(value),
                name if name.starts_with("PLpgSQL_") && KNOWN.binary_search(&name).is_err() => None,
                name => {
                    self.note_given(name, value);
                    self.gather(value)
                }
            }),
            _ => Some(()),
        }
    }

    /// IF: each branch under the outcomes of the conditions that lead to it.
    fn branches(&mut self, node: &Value) -> Option<()> {
        let around = self.guards.len();
        let mut branch = |condition: Option<&Value>, body: Option<&Value>| {
            let test = condition.and_then(expression_in).map_or(Test::Unknown, |tree| test_of(&tree));
            condition.map_or(Some(()), |condition| self.gather(condition))?;
            if condition.is_some() {
                self.guards.push(Guard { test: test.clone(), if_true: true });
            }
            body.map_or(Some(()), |body| self.gather(body))?;
            if condition.is_some() {
                self.guards.pop();
                self.guards.push(Guard { test, if_true: false });
            }
            Some(())
        };
        branch(node.get("cond"), node.get("then_body"))?;
        for other in node.get("elsif_list").and_then(Value::as_array).into_iter().flatten() {
            let other = other.get("PLpgSQL_if_elsif")?;
            branch(other.get("cond"), other.get("stmts"))?;
        }
        branch(None, node.get("else_body"))?;
        self.guards.truncate(around);
        Some(())
    }

    /// The values that the head of a loop, or INTO, gives to variables.
    fn note_given(&mut self, kind: &str, node: &Value) {
        match kind {
            "PLpgSQL_stmt_execsql" => {
                let row = node.get("target").and_then(|target| target.get("PLpgSQL_row"));
                let fields = row.and_then(|row| row.get("fields")).and_then(Value::as_array);
                for field in fields.into_iter().flatten() {
                    if let Some(name) = field.get("name").and_then(Value::as_str) {
                        self.understood.add(name);
                        self.give(name, Source::Unknown, None);
                    }
                }
            }
            "PLpgSQL_stmt_fori" => {
                let variable = node.get("var").and_then(|var| var.get("PLpgSQL_var"));
                let Some(name) = variable.and_then(|var| var.get("refname")).and_then(Value::as_str) else {
                    return;
                };
                let number = |field: &str| {
                    let tree = expression_in(node.get(field)?)?;
                    match value_of(&tree) {
                        Source::Value(Operand::Number(digits)) => digits.parse::<i64>().ok(),
                        _ => None,
                    }
                };
                let bounds = number("lower").zip(number("upper"));
                let source = bounds.map_or(Source::Unknown, |(one, other)| {
                    let (from, to) = (one.min(other), one.max(other));
                    let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
                    if count >= MAX_LIST {
                        return Source::Unknown;
                    }
                    let all = (from..=to).map(|number| Operand::Number(number.to_string()));
                    Source::Value(Operand::List(all.collect()))
                });
                self.give(name, source, Some(Form::Int));
            }
            "PLpgSQL_stmt_foreach_a" => {
                let number = node.get("varno").and_then(Value::as_u64).unwrap_or(0);
                let Some(datum) = usize::try_from(number).ok().and_then(|at| self.datums.get(at)) else {
                    return;
                };
                let (name, form) = (datum.name.clone(), datum.form.filter(|_| datum.is_declared));
                let array = node.get("expr").and_then(expression_in).and_then(|tree| array_of(&tree));
                let is_sliced = node.get("slice").is_some();
                let source = array.filter(|_| !is_sliced).map_or(Source::Unknown, Source::ElementOf);
                self.understood.add(&name);
                self.give(&name, source, form);
            }
            _ => {}
        }
    }

    /// An SQL text: a statement, an expression, or an assignment.
    fn expression(&mut self, node: &Value) -> Option<()> {
        let tree = tree_of(node)?;
        self.understood.add_expression(node.get("query")?.as_str()?)?;
        let statement = match tree.node.as_ref()? {
            NodeEnum::PlassignStmt(assignment) => {
                self.assign(assignment);
                let mut scan = AstScan::of(&assignment.val);
                scan.add(&assignment.indirection);
                let mut statement = classify_expression(scan);
                if let Some(value) = assignment.val.as_deref().filter(|_| assignment.indirection.is_empty()) {
                    attach_in_body(&mut statement, &NodeEnum::SelectStmt(Box::new(value.clone())));
                }
                statement
            }
            node => {
                let mut statement = classify(&tree);
                attach_in_body(&mut statement, node);
                if let NodeEnum::CallStmt(call) = node {
                    self.pass(call);
                }
                statement
            }
        };
        self.statements.push(Some(statement).filter(is_understood)?);
        self.flow.guards.push(self.guards.clone());
        (self.statements.len() <= MAX_STATEMENTS).then_some(())
    }

    /// `variable := value`. Of a name with several parts each may be the variable's.
    fn assign(&mut self, assignment: &PlAssignStmt) {
        let source = match assignment.val.as_deref() {
            Some(value) if assignment.indirection.is_empty() => {
                Expression::of(value).and_then(|value| value.value()).map_or(Source::Unknown, Source::Value)
            }
            _ => Source::Unknown,
        };
        let parts = assignment.indirection.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::String(part)) => Some(part.sval.as_str()),
            _ => None,
        });
        for name in parts {
            self.give(name, Source::Unknown, None);
        }
        // Variables of one name may have several types.
        let mut forms = self.datums.iter().filter(|datum| datum.name == assignment.name);
        let form = match (forms.next(), forms.next()) {
            (Some(Datum { form, is_declared: true, .. }), None) => *form,
            _ => None,
        };
        self.give(&assignment.name, source, form);
    }

    /// A procedure may give the variables that are passed to it other values.
    fn pass(&mut self, call: &CallStmt) {
        let Some(call) = call.funccall.as_deref() else { return };
        let mut names = Vec::new();
        for argument in &call.args {
            let argument = match &argument.node {
                Some(NodeEnum::NamedArgExpr(named)) => named.arg.as_deref(),
                _ => Some(argument),
            };
            let variable = match argument.map(|argument| &argument.node) {
                Some(Some(NodeEnum::AIndirection(element))) => element.arg.as_deref(),
                _ => argument,
            };
            match variable.and_then(|variable| variable.node.as_ref()) {
                Some(NodeEnum::ColumnRef(column)) => names.extend(strings_in(&column.fields)),
                Some(NodeEnum::ParamRef(parameter)) => names.push(format!("${}", parameter.number)),
                _ => {}
            }
        }
        let procedure = names_in(&call.funcname).pop().unwrap_or_default();
        self.flow.passed.push(Passed { procedure, names });
    }
}

fn tree_of(node: &Value) -> Option<Box<Node>> {
    let text = node.get("query")?.as_str()?;
    let mode = node.get("parseMode").and_then(Value::as_i64)?;
    parser::parse_within(text, i32::try_from(mode).ok()?)?.stmt
}

/// The tree of an expression.
fn expression_in(node: &Value) -> Option<Box<Node>> {
    tree_of(node.get("PLpgSQL_expr")?)
}

fn selected(tree: &Node) -> Option<Expression<'_>> {
    match tree.node.as_ref()? {
        NodeEnum::SelectStmt(select) => Expression::of(select),
        _ => None,
    }
}

fn value_of(tree: &Node) -> Source {
    selected(tree).and_then(|value| value.value()).map_or(Source::Unknown, Source::Value)
}

fn array_of(tree: &Node) -> Option<Operand> {
    selected(tree)?.array()
}

fn test_of(tree: &Node) -> Test {
    selected(tree).map_or(Test::Unknown, |condition| condition.test())
}
