//! The heart of Onecopy: order, placement, visibility and records. Pure: inputs and time go in, effects come out.
//!
//! [`Cluster`] is the one state machine; [`event`] is its language; [`protocols`] are its rules, composed of
//! [`parts`]; [`nodes`] is who leads, where there are several; [`record`] is what one update transaction leaves in the log; [`placement`] says who holds what.
//!
//! Nothing here knows a clock, a socket, a thread, a file or a random number, so the simulator runs this very code.

pub mod claims;
pub mod event;
pub mod ids;
pub mod nodes;
pub mod parts;
pub mod placement;
pub mod protocols;
pub mod record;
pub mod refresh;
mod service;
pub mod time;

pub use service::Cluster;
