//! The state of a session's open transaction, and the stages that borrow it (`transaction/stage.rs`).
//!
//! Every statement that may write runs inside a BEGIN of ours, at the home, on a connection that defaults to read-only.
//! So capture sees every write, and PostgreSQL rejects statements that commit by themselves (VACUUM, for instance).

pub(crate) mod analysis;
pub(crate) mod anchor_reason;
pub(crate) mod conflict_detail;
pub(crate) mod definitions;
pub(crate) mod open;
pub(crate) mod profile;
pub(crate) mod read_set;
pub(crate) mod schema_state;
pub(crate) mod sequence_use;
pub(crate) mod stage;
pub(crate) mod update;
pub(crate) mod view;
pub(crate) mod wait_stats;

/// The expected run time of a statement of an update, until statistics exist.
pub(crate) const UPDATE_COST_US: u32 = 200;
