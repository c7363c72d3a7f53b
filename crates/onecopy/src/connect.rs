//! Server connections of a session and its open transaction: when the session gets one, when it gives it back, and
//! which state it has left there.

pub(crate) mod carried;
pub(crate) mod check_in;
pub(crate) mod leftovers;

use crate::transaction::stage::stage;

stage! {
    /// Gets server connections for the open transaction, and gives back those that are not needed.
    Connector calls {}
}
