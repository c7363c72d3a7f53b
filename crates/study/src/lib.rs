//! Simulated experiments, with what a pure simulator must not have: threads, a clock, files, a terminal.
//!
//! `sim paper conflict-aware` simulates the first paper's experiments and holds them against what it states; `sim run`
//! simulates a user's own scenario, to see how many replicas a load needs. Both are the program `onecopy-sim`, which
//! `onecopy sim` becomes.
//!
//! What is written does not depend on the number of threads: points are sorted, and each has its own seed.

mod command;
mod paper;
mod parallel;
mod plot;
mod scenario_file;
mod user;

pub use command::{Error, Paper, Run, Sim, command};
