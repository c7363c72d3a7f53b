//! Stage *place*: where a transaction runs.
//!
//! [`home_choice`] says which replicas an update transaction may have as its home, [`read_first`] begins one that is
//! expected to read only at any replica, [`sequence_leases`] keeps those that draw from sequences where a range of
//! these is leased. [`own_settings`] holds the wishes of the client.
//!
//! Non-goal: to choose among several replicas. That is the core's, by conflicts and load.

pub(crate) mod home_choice;
pub(crate) mod opening;
pub(crate) mod own_settings;
pub(crate) mod read_first;
pub(crate) mod sequence_leases;

use crate::connect::Connector;
use crate::drive::Driver;
use crate::transaction::stage::stage;

stage! {
    /// Decides where the open transaction runs.
    Placer calls { connector: Connector, driver: Driver }
}
