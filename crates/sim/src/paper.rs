//! The papers' experiments: emulated browsers and many simulated databases around the schedulers and proxies of `cluster`.
//!
//! Three worlds are here. In the closed one, browsers wait for their answers: conflict-aware scheduling. In the open one
//! ([`open`]), transactions arrive at a rate, whatever becomes of earlier ones: Gargamel ([`gargamel`]). In that of preventive
//! replication ([`preventive`]), nodes with clocks of their own order transactions by themselves.
//!
//! The method of the closed world is that of conflict-aware scheduling, section 9.1: simulated front ends and databases drive the actual code
//! of scheduler and proxies. A browser sends its next query when the last one is answered, and thinks between
//! interactions. A database is a queue; a query takes the time that its template costs. The disks and the inside of a
//! database are not modelled. The disks and processors of several schedulers are, where an experiment asks for it. The
//! results are the throughput at the peak, how busy the replicas are, and the scheduler's own time.
//!
//! A seed determines a run, except for the measured time of our own code. This module starts no thread and reads no clock;
//! a caller that wants our own time measured passes a clock ([`run::Meter`]).
//!
//! Not here: faults and judges of histories, which are the rest of this crate.

mod browser;
mod database;
pub mod figures;
pub mod gargamel;
mod onecopy;
pub mod open;
pub mod peak;
pub mod preventive;
pub mod run;
pub mod scenario;
mod shipping;
mod system;
pub mod tpcw;

#[cfg(test)]
mod tests;
