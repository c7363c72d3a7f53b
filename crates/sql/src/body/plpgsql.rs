//! PL/pgSQL: from a function's source to the statements in it.
//!
//! The parser compiles a whole CREATE FUNCTION without a catalogue, so the head is made up here: names and uses of the
//! arguments are right, since the parser looks variables up, and all types are `int`. What does not compile that way
//! (assignments to fields of a composite argument, for one) is not understood. Of trigger functions the parser's output
//! is not even well-formed, so these are compiled as ordinary ones, within a block that declares NEW and OLD.

use std::fmt::Write;

use pg_query::NodeEnum;
use pg_query::protobuf::{ScanToken, Token};
use serde_json::Value;

use super::{Code, MAX_STATEMENTS, Words, is_understood, source as token_source, tokens_of};
use crate::ast_scan::AstScan;
use crate::catalogue::{Argument, ArgumentMode, Function, Returns};
use crate::classify::{classify, classify_expression};
use crate::parser;
use crate::statement::Statement;

/// Kinds of nodes whose SQL texts are all that they run; sorted.
const KNOWN: [&str; 36] = [
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
    let mut statements = Vec::new();
    gather(function, &mut statements)?;
    Some(Code { statements, words: Words::of(source)? })
}

/// A function that has the variables of a trigger as arguments.
fn variables() -> Function {
    let argument = |name: &&str| Argument { name: (*name).to_owned(), mode: ArgumentMode::In };
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
            ArgumentMode::In => "IN",
            ArgumentMode::Out => "OUT",
            ArgumentMode::InOut => "INOUT",
            ArgumentMode::Table => {
                columns.push(format!("{}int", quoted(&argument.name)));
                continue;
            }
        };
        results += usize::from(argument.mode != ArgumentMode::In);
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

/// Gathers the statements below a node; `None` when something is not understood.
fn gather(node: &Value, statements: &mut Vec<Statement>) -> Option<()> {
    match node {
        Value::Array(items) => items.iter().try_for_each(|item| gather(item, statements)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| match name.as_str() {
            "PLpgSQL_expr" => expression(value, statements),
            "dynquery" => None,
            name if name.starts_with("PLpgSQL_") && KNOWN.binary_search(&name).is_err() => None,
            _ => gather(value, statements),
        }),
        _ => Some(()),
    }
}

/// An SQL text: a statement, an expression, or an assignment.
fn expression(node: &Value, statements: &mut Vec<Statement>) -> Option<()> {
    let text = node.get("query")?.as_str()?;
    let mode = node.get("parseMode").and_then(Value::as_i64)?;
    let raw = parser::parse_within(text, i32::try_from(mode).ok()?)?;
    let tree = raw.stmt?;
    let statement = match tree.node.as_ref()? {
        NodeEnum::PlassignStmt(assignment) => {
            let mut scan = AstScan::of(&assignment.val);
            scan.add(&assignment.indirection);
            classify_expression(scan)
        }
        _ => classify(&tree),
    };
    statements.push(Some(statement).filter(is_understood)?);
    (statements.len() <= MAX_STATEMENTS).then_some(())
}
