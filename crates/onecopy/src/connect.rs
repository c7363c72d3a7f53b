//! Server connections of a session with regard to its open transaction: when it gets one, when it gives it back, and what
//! it has left there.

pub(crate) mod carried;
pub(crate) mod check_in;
pub(crate) mod leftovers;

use crate::transaction::stage::stage;

stage! {
    /// Gets server connections for the open transaction, and gives back those that nothing needs.
    Connector calls {}
}
