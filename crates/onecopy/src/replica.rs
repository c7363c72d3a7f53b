//! One replica as a follower of the log.
//!
//! [`agent`] applies records in version order, [`driver`] stands between it and the coordinator,
//! [`errands`] does what the leader wants of another node, [`lock_wait_probe`] reports waits inside the server, [`sequence_allocator`] leases it ranges of sequences,
//! [`table_size_probe`] asks for the sizes of tables.

pub(crate) mod agent;
pub(crate) mod driver;
pub(crate) mod errands;
pub(crate) mod lock_wait_probe;
pub(crate) mod sequence_allocator;
pub(crate) mod table_size_probe;
