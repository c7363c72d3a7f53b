//! Stage *propagate*: completes at the home what the record of a transaction has to say.
//!
//! Row changes arrive with the statements ([`crate::writeset`]). Before the commit [`subtransactions`] removes those
//! that the server has rolled back, [`uncaptured_writes`] refuses what no trigger saw, [`sequence_marks`] adds how far
//! sequences were moved, and [`table_rewrite`] the rows that schema changes have written.

pub(crate) mod sequence_marks;
pub(crate) mod subtransactions;
pub(crate) mod table_rewrite;
pub(crate) mod uncaptured_writes;

use crate::drive::Driver;
use crate::transaction::stage::stage;

stage! {
    /// Completes at the home what the record of the open transaction has to say.
    Recorder calls { driver: Driver }
}
