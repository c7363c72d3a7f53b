//! Preventive replication's experiments: replicas that order transactions by time stamps, each by itself.
//!
//! Pacitti, Coulon, Valduriez, Özsu, "Preventive replication in a database cluster" (Distributed and Parallel Databases 2005), section
//! 6: the prototype RepDB* on up to 64 nodes, with TPC-C. The order is the part that a live protocol can use,
//! [`cluster::parts::stamps`]. [`stated`] is the table of what the paper states, and [`calibration`] has the times that it does not
//! state; both were written before the first run. [`figures`] lists the runs, and compares them with the table.
//!
//! A node has a clock, an agent, and two stations: a disk, which updates use, and a processor, which queries use. Each serves one
//! request after the other.
//!
//! What the paper leaves open, or describes in two versions, is a field of [`experiment::Setting`], named in every output. One setting
//! and one calibration hold for all figures.
//!
//! Not here: failures, which the paper does not measure; figure 1's request router, user directory and application manager.

pub mod calibration;
pub mod experiment;
pub mod figures;
mod node;
pub mod outcome;
pub mod reasons;
pub mod stated;
pub mod workload;
mod world;

#[cfg(test)]
mod tests;
