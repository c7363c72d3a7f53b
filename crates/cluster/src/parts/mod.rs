//! The parts that protocols are composed of, one concept a file.

pub mod balancer;
pub mod in_flight;
pub mod replica;
pub mod sequences;
pub mod serial_queue;
pub mod tickets;
pub mod version_index;
pub mod waiting;
