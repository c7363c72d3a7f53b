//! Server connections of a session with regard to its open transaction: when it gets one, when it gives it back, and what
//! it has left there.

pub(crate) mod carried;
pub(crate) mod check_in;
pub(crate) mod leftovers;

use crate::link::Link;
use crate::transaction::open::OpenTransaction;
use crate::transaction::view::View;

/// Gets server connections for the open transaction, and gives back those that nothing needs.
pub(crate) struct Connector<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) txn: &'a mut OpenTransaction,
}

impl Connector<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View { link: self.link, txn: self.txn }
    }
}
