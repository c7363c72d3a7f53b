//! Whether a statement does the same wherever it runs.
//!
//! A statement that travels as a statement (the protocols that ship statements, and schema changes that write rows) is
//! run by every replica for itself. That is sound only if its effect is a function of the rows it reads, of its
//! constants and parameters, and of what is sent along: the role and the settings of [`SHIPPED_SETTINGS`]. Time and
//! chance are the known offenders, and C-JDBC (the seeds, "SQL request handling") replaces the calls in the text
//! by constants before it sends a statement on. So does this module, where a call gives one value for the whole
//! statement or is evaluated exactly once. The offenders that are easily missed are those of *order*: a LIMIT, an
//! `array_agg`, a sum of floating-point numbers, an UPDATE .. FROM with several matches give what the physical order of
//! rows, or a plan, makes of them; equal tables on two servers have neither in common.
//!
//! The proof is by a walk through the syntax tree with the catalogue at hand. Soundness: a node that the walk has not
//! visited, a name that could be something else, a type that is not known, all give [`Determinism::No`]. A count of
//! the tree's nodes that knows nothing of its structure is compared with the count of visited ones.
//!
//! Non-goals: which of several errors a statement raises, and whether one plan avoids an error that another runs into;
//! the last digits of the C library's mathematics on different machines; collations that differ between servers. All
//! replicas are taken to run one version of the server on one kind of machine.

mod aggregate;
mod change;
mod clock;
mod expression;
mod from;
mod function;
mod insert;
mod kind;
mod query;
mod rewrite;
mod schema_change;
mod scope;
mod target;
mod tokens;
mod walk;
mod why;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node, RawStmt};

use crate::catalogue::Catalogue;
use crate::parser::{self, Parsed};
use crate::script::SyntaxError;
pub use clock::may_read_clock;
pub use rewrite::{Bind, Clock, Evaluate, Rewrite, RewriteError};
use walk::Walk;
pub use why::Why;

/// Settings that the effect of a statement may depend on, through the input and output of values, operators between
/// types and the names it uses. A protocol that ships statements ships their values, or has the same ones everywhere.
/// Beside them `gin_fuzzy_search_limit` must be zero, since any other value leaves results to chance.
pub const SHIPPED_SETTINGS: [&str; 19] = [
    "array_nulls",
    "backslash_quote",
    "bytea_output",
    "datestyle",
    "default_text_search_config",
    "extra_float_digits",
    "intervalstyle",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "quote_all_identifiers",
    "role",
    "search_path",
    "standard_conforming_strings",
    "timezone",
    "timezone_abbreviations",
    "transform_null_equals",
    "xmlbinary",
    "xmloption",
];

/// Texts longer than this are not looked into.
const MAX_TEXT: usize = 1 << 20;

/// The statement in question, as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The text, without the semicolon. Constants matter: what is found for one text does not hold for others that
    /// share its template.
    pub text: &'a str,
    /// The session's setting of that name.
    pub standard_conforming_strings: bool,
    /// Type OIDs of parameters as the client declared them, 0 (or nothing) for those that the server is to infer.
    pub parameter_types: &'a [u32],
}

impl<'a> Subject<'a> {
    /// A text under the usual settings, without declared parameters.
    pub fn new(text: &'a str) -> Self {
        Self { text, standard_conforming_strings: true, parameter_types: &[] }
    }
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Determinism {
    /// It does the same on every replica that has the same rows in the tables it reads, under the same role and
    /// [`SHIPPED_SETTINGS`]. Text parameters must be looked at by [`may_read_clock`], and sequences that the statement
    /// names in neither case advance alike.
    Deterministic,
    /// The same holds of the text that the rewrite makes, and of nothing else.
    AfterRewrite(Rewrite),
    /// It may do something else on each replica, or that could not be excluded: the reasons that were found.
    No(Vec<Why>),
}

impl Determinism {
    /// Whether nothing has to be done before the statement travels.
    pub fn is_deterministic(&self) -> bool {
        matches!(self, Self::Deterministic)
    }
}

/// Whether the effect of one statement is a function of the rows it reads and its constants. Of a plain query the
/// "effect" is its result as a set of rows with duplicates.
///
/// Statements about rows (SELECT, INSERT, UPDATE, DELETE, MERGE, COPY FROM, TRUNCATE), the queries of CREATE TABLE
/// AS, SELECT INTO and CREATE MATERIALIZED VIEW, and the values that ALTER TABLE gives to rows are looked into; all
/// others are [`Why::Kind`]. A view is none of the relations that may be read: of a statement that reads one, ask about
/// the view's query, under a catalogue that has its columns ([`Catalogue::of_relations`]).
///
/// # Errors
/// If the text is not one statement that PostgreSQL's parser accepts.
pub fn determinism(subject: &Subject<'_>, catalogue: &Catalogue) -> Result<Determinism, SyntaxError> {
    parser::with_deep_stack(|| {
        let Some(tree) = parsed(subject)? else { return Ok(Determinism::No(vec![Why::TooLarge])) };
        let Some(root) = &tree.node else { return Ok(Determinism::No(vec![Why::Kind])) };
        let mut walk = Walk::new(subject, catalogue);
        walk.statement(root);
        Ok(walk.verdict(&tree))
    })
}

/// The same for the default of a column, which is evaluated once for a row that is given, so that volatile calls can be
/// evaluated in advance.
fn default_determinism(expression: &str, catalogue: &Catalogue) -> Result<Determinism, SyntaxError> {
    const PREFIX: &str = "SELECT ";
    let text = format!("{PREFIX}{expression}");
    let subject = Subject::new(&text);
    parser::with_deep_stack(|| {
        let Some(tree) = parsed(&subject)? else { return Ok(Determinism::No(vec![Why::TooLarge])) };
        let Some(value) = only_value(&tree) else {
            return Err(SyntaxError::new("this is not one expression"));
        };
        let mut walk = Walk::new(&subject, catalogue);
        walk.default_value(value);
        Ok(match walk.verdict(value) {
            Determinism::AfterRewrite(rewrite) => Determinism::AfterRewrite(rewrite.without(PREFIX.len())),
            other => other,
        })
    })
}

/// The one tree of a text; `None` if it is too large or too deep to be looked at.
fn parsed(subject: &Subject<'_>) -> Result<Option<Node>, SyntaxError> {
    if subject.text.len() > MAX_TEXT {
        return Ok(None);
    }
    match parser::parse(subject.text, subject.standard_conforming_strings)? {
        Parsed::TooDeep => Ok(None),
        Parsed::Trees(trees) => match <[RawStmt; 1]>::try_from(trees) {
            Ok([RawStmt { stmt: Some(tree), .. }]) => Ok(Some(*tree)),
            _ => Err(SyntaxError::new("this is not one statement")),
        },
    }
}

/// The one value of a SELECT that has nothing else.
fn only_value(tree: &Node) -> Option<&Node> {
    let Some(NodeEnum::SelectStmt(select)) = &tree.node else { return None };
    let [target] = select.target_list.as_slice() else { return None };
    let Some(NodeEnum::ResTarget(target)) = &target.node else { return None };
    let bare = pg_query::protobuf::SelectStmt {
        target_list: select.target_list.clone(),
        limit_option: select.limit_option,
        op: select.op,
        ..Default::default()
    };
    let nothing_else = **select == bare && target.name.is_empty();
    target.val.as_deref().filter(|_| nothing_else)
}
