//! Stage *place*: where a transaction runs.
//!
//! [`home_choice`] says which replicas an update transaction may have as its home, [`read_first`] begins one that is
//! expected to read only at any replica, [`sequence_leases`] keeps those that draw from sequences where a range of
//! these is leased.
//!
//! Non-goal: to choose among several replicas. That is the core's, by conflicts and load.

pub(crate) mod home_choice;
pub(crate) mod opening;
pub(crate) mod read_first;
pub(crate) mod sequence_leases;

use crate::connect::Connector;
use crate::drive::Driver;
use crate::link::Link;
use crate::transaction::open::OpenTransaction;
use crate::transaction::view::View;

/// Decides where the open transaction runs.
pub(crate) struct Placer<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) txn: &'a mut OpenTransaction,
}

impl Placer<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View { link: self.link, txn: self.txn }
    }

    pub(crate) fn connector(&mut self) -> Connector<'_> {
        Connector { link: self.link, txn: self.txn }
    }

    pub(crate) fn driver(&mut self) -> Driver<'_> {
        Driver { link: self.link, txn: self.txn }
    }
}
