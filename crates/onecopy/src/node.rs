//! One node over servers that run: log, core, agents and front end, put together and taken apart again.
//!
//! [`up`] runs servers of its own, [`serve`] is given servers that run already. Both open a node over them ([`open`]), which
//! then serves clients ([`running`]). The order matters: the log is fenced with a record of the new epoch before anything
//! can read its end.

mod error;
pub(crate) mod metrics;
mod open;
mod running;
pub(crate) mod serve;
mod signals;
mod start;
pub(crate) mod systemd;
pub(crate) mod up;

pub(crate) use error::NodeError;
