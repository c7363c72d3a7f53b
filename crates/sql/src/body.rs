//! The code of functions, procedures, DO blocks, views and policies as statements.
//!
//! SQL is read by the same analysis as a client's statements. PL/pgSQL is taken apart by the parser that comes with
//! `pg_query`: every SQL text inside it becomes a statement, and what is made up at run time (EXECUTE) or ends the
//! transaction makes the whole unknown. A CALL is a statement whose procedure is followed. That parser shows not everything: the initial value
//! and the type of a record variable are missing from its tree. So all words of the source are kept besides, and each
//! that is the name of something is taken for a use of it.
//!
//! Invariant: whatever a function can run stands in its statements or among its words; else there is no code at all.
//! Non-goal: the order in which the statements run.

mod flow;
mod plpgsql;

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, ScanToken, Token};

use crate::accesses::{attach, attach_in_body};
use crate::ast_scan::AstScan;
use crate::catalogue::{Body, Function, Returns};
use crate::classify::{classify, classify_expression};
use crate::parser::{self, Parsed};
use crate::statement::{Statement, Verb};
pub(crate) use flow::{Flow, Given, Source};

/// Longer code is not looked at.
const MAX_TEXT: usize = 64 << 10;

/// Code of more statements and expressions is not looked at.
const MAX_STATEMENTS: usize = 2_000;

/// Settings that a function may set for itself: none of them changes what a text means or which code runs.
const HARMLESS_SETTINGS: [&str; 12] = [
    "bytea_output",
    "client_min_messages",
    "datestyle",
    "extra_float_digits",
    "intervalstyle",
    "jit",
    "lock_timeout",
    "plan_cache_mode",
    "search_path",
    "statement_timeout",
    "timezone",
    "work_mem",
];

/// The statements that a function may run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Code {
    /// Queries and modifications, one for each that stands in it.
    pub(crate) statements: Vec<Statement>,
    /// Where the statements may not be all: the words of the source.
    pub(crate) words: Words,
    /// How values reach them.
    pub(crate) flow: Flow,
}

impl Code {
    fn of(statements: Vec<Statement>) -> Self {
        Self { statements, ..Self::default() }
    }
}

/// The words of a source text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Words {
    /// Everything that could be a name.
    pub(crate) names: BTreeSet<String>,
    /// Those that stand before an opening parenthesis.
    pub(crate) called: BTreeSet<String>,
    /// Everything that could be an operator.
    pub(crate) symbols: BTreeSet<String>,
}

/// The code of a function; `None` when it is not understood.
pub(crate) fn function(function: &Function) -> Option<Code> {
    let harmless = |name: &String| {
        let name = name.to_ascii_lowercase();
        HARMLESS_SETTINGS.contains(&name.as_str()) || name.starts_with("enable_")
    };
    if !function.settings.iter().all(harmless) {
        return None;
    }
    let mut code = match &function.body {
        Body::Unknown => return None,
        Body::Sql(text) => Code::of(as_text(text)?),
        Body::SqlStandard(text) => Code::of(standard(text)?),
        Body::PlPgSql(text) => {
            tokens_of(text)?;
            parser::with_deep_stack(|| plpgsql::code(function, text))?
        }
    };
    if !function.defaults.is_empty() {
        code.statements.extend(queries(&format!("SELECT {}", function.defaults))?);
    }
    Some(code)
}

/// The code of a DO block.
pub(crate) fn block(source: &str) -> Option<Code> {
    let body = Body::PlPgSql(source.to_owned());
    function(&Function { body, returns: Returns::Void, ..Function::default() })
}

/// The statements of a text; `None` unless there are some, and all are queries or modifications and are understood.
pub(crate) fn queries(text: &str) -> Option<Vec<Statement>> {
    statements(text, analysed)
}

fn statements(text: &str, analysed: impl Fn(&Node) -> Statement) -> Option<Vec<Statement>> {
    if text.len() > MAX_TEXT {
        return None;
    }
    parser::with_deep_stack(|| match parser::parse(text, true).ok()? {
        Parsed::Trees(trees) => trees
            .iter()
            .map(|raw| raw.stmt.as_deref().map(&analysed).filter(is_understood))
            .collect::<Option<Vec<_>>>()
            .filter(|statements| !statements.is_empty() && statements.len() <= MAX_STATEMENTS),
        Parsed::TooDeep => None,
    })
}

/// A statement whose constants stay as they are.
fn analysed(node: &Node) -> Statement {
    let mut statement = classify(node);
    attach(&mut statement, node, "", None);
    statement
}

/// A statement of a body.
fn analysed_in_body(node: &Node) -> Statement {
    let mut statement = classify(node);
    if let Some(node) = &node.node {
        attach_in_body(&mut statement, node);
    }
    statement
}

/// The body of an SQL function that is a text.
fn as_text(text: &str) -> Option<Vec<Statement>> {
    tokens_of(text)?;
    statements(text, analysed_in_body)
}

/// Whether a statement is one of those that a function may have for its effects to be known.
fn is_understood(statement: &Statement) -> bool {
    (statement.verb.is_dml() || statement.verb == Verb::Call) && statement.opaque.is_none()
}

/// The tokens of a text that is read anew whenever it runs, under the settings of that moment: `None` when a setting
/// could change what it means, which is when a plain string has a backslash in it.
fn tokens_of(text: &str) -> Option<Vec<ScanToken>> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let tokens = parser::scan(text)?;
    let doubtful = |token: &ScanToken| {
        let source = source(text, token);
        source.is_none_or(|source| source.starts_with('\'') && source.contains('\\'))
    };
    (!tokens.iter().any(doubtful)).then_some(tokens)
}

fn source<'a>(text: &'a str, token: &ScanToken) -> Option<&'a str> {
    text.get(usize::try_from(token.start).ok()?..usize::try_from(token.end).ok()?)
}

impl Words {
    /// All words of a text.
    fn of(text: &str) -> Option<Self> {
        let tokens = tokens_of(text)?;
        let mut words = Self::default();
        let mut last: Option<String> = None;
        for token in &tokens {
            let source = source(text, token)?;
            if source == "("
                && let Some(name) = &last
            {
                words.called.insert(name.clone());
            }
            last = None;
            match Token::try_from(token.token) {
                Ok(Token::Uident) | Err(_) => return None,
                Ok(Token::SqlComment | Token::CComment) => {}
                Ok(_) if source.starts_with(|first: char| first == '_' || first.is_alphabetic()) => {
                    // Constants such as E'..' and B'..' begin with a letter as well.
                    if !source.contains('\'') {
                        let name = source.to_ascii_lowercase();
                        words.names.insert(name.clone());
                        last = Some(name);
                    }
                }
                Ok(_) if source.starts_with('"') => {
                    let name = source.trim_matches('"').replace("\"\"", "\"");
                    words.names.insert(name.clone());
                    last = Some(name);
                }
                Ok(_) => {
                    words.symbols.insert(source.to_owned());
                }
            }
        }
        Some(words)
    }
}

/// The statements of a standard SQL body.
fn standard(body: &str) -> Option<Vec<Statement>> {
    if body.len() > MAX_TEXT {
        return None;
    }
    let text = format!("CREATE FUNCTION f() RETURNS int LANGUAGE sql {body}");
    parser::with_deep_stack(|| {
        let Parsed::Trees(trees) = parser::parse(&text, true).ok()? else { return None };
        let [raw] = trees.as_slice() else { return None };
        let Some(NodeEnum::CreateFunctionStmt(made)) = &raw.stmt.as_deref()?.node else { return None };
        let mut statements = Vec::new();
        gather(made.sql_body.as_deref()?, &mut statements)?;
        (statements.len() <= MAX_STATEMENTS).then_some(statements)
    })
}

/// BEGIN ATOMIC is a list in a list.
fn gather(node: &Node, statements: &mut Vec<Statement>) -> Option<()> {
    match node.node.as_ref()? {
        NodeEnum::List(list) => list.items.iter().try_for_each(|item| gather(item, statements)),
        NodeEnum::ReturnStmt(result) => {
            let statement = classify_expression(AstScan::of(&result.returnval));
            is_understood(&statement).then(|| statements.push(statement))
        }
        _ => {
            let statement = analysed_in_body(node);
            is_understood(&statement).then(|| statements.push(statement))
        }
    }
}
