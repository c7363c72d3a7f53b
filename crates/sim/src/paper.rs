//! The papers' experiments: many replicas, emulated browsers, and the schedulers and proxies of `cluster` in between.
//!
//! Conflict-aware scheduling, section 9.1: simulators of the front ends and of the databases drive the actual code of
//! scheduler and proxies. The front end sends queries as fast as they are answered and thinks between interactions; a
//! database is a queue, and a query takes there what its template costs. Disks, and what happens inside a database, are
//! not modelled. What is measured is throughput at the peak, how busy replicas are, and the scheduler's own time.
//!
//! One seed is one run: the same scenario gives the same bytes, but for the measured time of our own code. Nothing here
//! starts a thread or looks at a clock: whoever wants our own time measured brings a clock ([`run::Meter`]).
//!
//! Not here: faults and judges of histories, which are the rest of this crate.

mod browser;
mod database;
pub mod figures;
mod onecopy;
pub mod peak;
pub mod run;
pub mod scenario;
mod shipping;
mod system;
pub mod tpcw;

#[cfg(test)]
mod tests;
