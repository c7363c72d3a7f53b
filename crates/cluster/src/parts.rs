//! The parts that protocols are composed of, one concept a file.

pub mod alarms;
pub mod balancer;
pub mod chains;
pub mod claim_index;
pub mod conflicts;
pub mod drawing;
pub mod elastic;
pub mod groups;
pub mod in_flight;
pub mod loads;
pub mod local_replicas;
pub mod lock_lsns;
pub mod lock_queues;
pub mod numbered;
pub mod order;
pub mod replica;
pub mod schema_changes;
pub mod sequence_gate;
pub mod sequences;
pub mod server_waits;
pub mod stamps;
pub mod unfinished_writers;
pub mod version_index;
pub mod waiting;
pub mod workers;
