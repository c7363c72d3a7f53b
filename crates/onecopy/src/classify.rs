//! Stages *parse* and *classify*: from the text of a statement to its analysis before it runs.
//!
//! [`parsing`] turns a text into templates (by the crate `sql`). [`statement_analysis`] asks the catalogue for their
//! needs and possible effects. [`footprint`] names the rows concerned, and [`prediction`] says whether these are all.
//!
//! Example: `UPDATE t SET v = 1 WHERE id = 7` writes one row of `t`, known by its key before it runs.

pub(crate) mod effects;
pub(crate) mod footprint;
pub(crate) mod parsing;
pub(crate) mod prediction;
pub(crate) mod requirements;
pub(crate) mod statement_analysis;
