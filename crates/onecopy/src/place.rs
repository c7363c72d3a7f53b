//! Stage *place*: decides where a transaction runs.
//!
//! [`home_choice`] says which replicas an update transaction may have as its home. [`read_first`] begins a transaction that
//! probably only reads at any replica. `kind` and `holdings` tell the core what a transaction is like, and
//! which tables it touches. [`sequence_leases`] keeps
//! transactions that draw from sequences where a range of these is leased. [`own_settings`] holds the client's wishes.
//!
//! Non-goal: the choice among several replicas. The core makes it, by conflicts and load.

pub(crate) mod holdings;
pub(crate) mod home_choice;
mod kind;
pub(crate) mod opening;
pub(crate) mod own_settings;
pub(crate) mod read_first;
pub(crate) mod sequence_leases;
mod whole;

use crate::connect::Connector;
use crate::drive::Driver;
use crate::transaction::stage::stage;

stage! {
    /// Decides where the open transaction runs.
    Placer calls { connector: Connector, driver: Driver }
}
