//! The parts that benchmarks and checks on real servers share: PostgreSQL servers and nodes of their own, programs,
//! folders, workloads.
//!
//! Everything is made in a temporary folder and on free ports, and is taken away again when its value is dropped, also after
//! Ctrl-C. A server that is compared with another one is started with the same settings ([`postgres::Likeness`]).
//!
//! Not here: what is measured or judged, and how.

pub mod account;
pub mod build;
pub mod endpoint;
pub mod fault;
pub mod interrupt;
pub mod machine;
pub mod node;
pub mod nodes;
pub mod postgres;
pub mod program;
pub mod refusal;
pub mod scratch;
pub mod wire;
pub mod workload;
