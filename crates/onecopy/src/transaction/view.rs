//! Read-only questions about a session: about its open transaction and the settings of its client.

use crate::link::Link;
use crate::transaction::open::OpenTransaction;

/// Read access to a session.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) link: &'a Link,
    pub(crate) txn: &'a OpenTransaction,
}
