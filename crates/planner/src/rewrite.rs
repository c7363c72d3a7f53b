//! Rewriting a read into sub-queries, each of which runs in one service (section 4.2).
//!
//! The paper's example: `SELECT o_id FROM customer, orders WHERE c_id = o_c_id AND c_uname = $1` becomes `SELECT c_id FROM
//! customer WHERE c_uname = $1` and `SELECT o_id FROM orders WHERE o_c_id = ANY($1)`, fed with the first one's answer.
//!
//! A read's tables are grouped: the parts of its tables that one service holds and that the service can join. The groups
//! are put in an order in which each fetches few rows: its own conditions leave few (a key, or a column that refers to
//! one), or an earlier group's rows do. ORDER BY with LIMIT and aggregates run in the one group that can decide them;
//! it may then start from any number of rows. At the end the original SELECT list runs over what was fetched.
//!
//! Invariant: the groups fetch every row that the answer is made of, and the last step applies every condition again that
//! no group applies, so the rewritten read gives the original's answer at one state of the data. LIMIT is never applied
//! before a condition that could drop a row, or before a join that could repeat one. Non-goals: outer joins, DISTINCT,
//! HAVING, sub-queries that span services.

use std::fmt;

use sql::anatomy::Target;

use crate::application::{Application, Query};
use crate::decision::Decision;
use crate::draft::Draft;
use crate::layout::Layout;
use crate::step_text;

/// A read as several: steps in order, and what is made of their answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rewritten {
    /// The steps.
    pub steps: Vec<Step>,
    /// The answer, over relations `step1`, `step2`, ... that hold the steps' answers.
    pub combine: String,
    /// The parameters of the original read that the last text's parameters are, from `$1` on.
    pub parameters: Vec<u32>,
}

/// A sub-query that runs in one service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The service, by its place among the plan's.
    pub service: usize,
    /// The text.
    pub text: String,
    /// What each parameter is, from `$1` on.
    pub parameters: Vec<Feed>,
}

/// The value of a parameter of a step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Feed {
    /// A parameter of the original read.
    Parameter(u32),
    /// All values of these columns of an earlier step's answer, as one array.
    Columns {
        /// The step, counted from 1.
        step: usize,
        /// Names of its columns.
        columns: Vec<String>,
    },
}

/// A read cannot be rewritten.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unsplit {
    /// It writes.
    Writes,
    /// It is not a SELECT over inner joins of tables, or has DISTINCT, HAVING or FOR UPDATE.
    NotPlain,
    /// The tables of one condition with a sub-query lie in several services.
    SubQuery,
    /// Nothing bounds the rows that the service would have to give.
    Unbounded(usize),
}

impl fmt::Display for Unsplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writes => f.write_str("it writes"),
            Self::NotPlain => f.write_str(
                "it is more than a SELECT over inner joins, without DISTINCT, HAVING and FOR UPDATE",
            ),
            Self::SubQuery => f.write_str("a condition with a sub-query spans services"),
            Self::Unbounded(_) => f.write_str("a service would have to give any number of rows"),
        }
    }
}

/// Rewrites a read, with as much as possible in one service.
pub(crate) fn rewrite(
    application: &Application,
    query: &Query,
    layout: &Layout,
    target: usize,
) -> Result<Rewritten, Unsplit> {
    if query.writes() {
        return Err(Unsplit::Writes);
    }
    let plain = query.anatomy.plain.as_ref().ok_or(Unsplit::NotPlain)?;
    let used = |item: &&Target| {
        let column = item.expression.column().map(|place| application.column(&query.anatomy, place));
        !item.from_star
            || query.uses.as_ref().is_none_or(|uses| column.is_some_and(|column| uses.contains(&column)))
    };
    let mut draft = Draft {
        application,
        query,
        plain,
        layout,
        decision: Decision::of(application, query),
        targets: plain.targets.iter().filter(used).collect(),
        parts: Vec::new(),
        local: Vec::new(),
        bridges: Vec::new(),
        placed: Vec::new(),
        pushed: None,
    };
    draft.order(target)?;
    Ok(step_text::write(&draft))
}
