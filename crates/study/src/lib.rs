//! Simulated experiments on all cores. The simulator itself is pure; this crate has the threads, the clock and the files.
//!
//! `sim paper conflict-aware` simulates the first paper's experiments and compares them with its statements. `sim paper gargamel` and
//! `sim paper preventive` do so for Gargamel's and for those of preventive replication. `sim run` simulates a user's own scenario, to
//! find how many replicas a load needs. All are commands of the program `onecopy-sim`, which `onecopy sim` starts.
//!
//! The output does not depend on the number of threads: points are sorted, and each has its own seed.

mod command;
mod gargamel;
mod paper;
mod parallel;
mod plot;
mod preventive;
mod scenario_file;
mod user;

pub use command::{ConflictAware, Error, Gargamel, Paper, Preventive, Run, Sim, command};
