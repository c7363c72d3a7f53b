//! What a statement reads and writes, column by column, and which of that decides its answer.
//!
//! `SELECT i_title FROM item WHERE i_subject = $1` *puts out* `i_title` and is *decided* by `i_subject`: a server
//! with `i_subject` can tell which rows belong to the answer, and one with `i_title` can complete them. The planner of data
//! services needs that difference (`crates/planner`); routing does not, so this is not made of `accesses::Shape`.
//!
//! Invariant: every relation and every column that a statement names is in its anatomy. A construct whose columns would
//! be missed makes [`anatomy`] fail with the name of the construct. A column may be called deciding without need (all of
//! a sub-query's are), never the other way round. Non-goals: views, users' functions, privileges, search paths (a name
//! without a schema has to stand for one table).

mod expression;
mod model;
mod modify;
mod reader;
mod select;

use pg_query::NodeEnum;

use crate::catalogue::Catalogue;
use crate::parser::{self, Parsed};
pub use expression::{Expression, parameters, renumbered};
pub use model::{
    Anatomy, Change, ColumnPlace, Conjunct, Equal, Equality, Limit, Mention, NoAnatomy, PlainSelect, Says,
    SortBy, SortKey, StatementKind, Target, Written,
};
use reader::Reader;

/// The anatomy of the one statement that a text holds.
///
/// # Errors
/// If the statement is not valid, names what the catalogue has not, or uses what is not understood.
pub fn anatomy(text: &str, catalogue: &Catalogue) -> Result<Anatomy, NoAnatomy> {
    parser::with_deep_stack(|| {
        let trees = match parser::parse(text, true) {
            Ok(Parsed::Trees(trees)) => trees,
            Ok(Parsed::TooDeep) => return Err(NoAnatomy::Construct("so deep a nesting".to_owned())),
            Err(error) => return Err(NoAnatomy::Syntax(error.to_string())),
        };
        let [tree] = trees.as_slice() else { return Err(NoAnatomy::NotOne) };
        let node = tree.stmt.as_deref().and_then(|node| node.node.as_ref()).ok_or(NoAnatomy::NotOne)?;
        let mut reader = Reader::new(catalogue);
        match node {
            NodeEnum::SelectStmt(select) => reader.outermost(select),
            NodeEnum::InsertStmt(insert) => modify::insert(&mut reader, insert),
            NodeEnum::UpdateStmt(update) => modify::update(&mut reader, update),
            NodeEnum::DeleteStmt(delete) => modify::delete(&mut reader, delete),
            _ => Err(NoAnatomy::Construct(
                "a statement other than SELECT, INSERT, UPDATE and DELETE".to_owned(),
            )),
        }
    })
}

#[cfg(test)]
mod tests;
