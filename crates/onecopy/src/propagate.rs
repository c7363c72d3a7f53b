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
use crate::link::Link;
use crate::transaction::open::OpenTransaction;
use crate::transaction::view::View;

/// Completes at the home what the record of the open transaction has to say.
pub(crate) struct Recorder<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) txn: &'a mut OpenTransaction,
}

impl Recorder<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View { link: self.link, txn: self.txn }
    }

    pub(crate) fn driver(&mut self) -> Driver<'_> {
        Driver { link: self.link, txn: self.txn }
    }
}
