//! Stages *parse* and *classify*: from the text of a statement to what is known of it before it runs.
//!
//! [`parsing`] turns a text into templates (by the crate `sql`), [`statement_analysis`] asks the catalogue what these
//! need and may do, [`footprint`] says which rows that concerns, and [`prediction`] whether these are all.
//!
//! Example: `UPDATE t SET v = 1 WHERE id = 7` writes one row of `t`, known by its key before it runs.

pub(crate) mod effects;
pub(crate) mod footprint;
pub(crate) mod parsing;
pub(crate) mod prediction;
pub(crate) mod requirements;
pub(crate) mod statement_analysis;
