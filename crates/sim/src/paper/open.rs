//! An open-loop world: transactions arrive whether or not earlier ones are answered, and workers run them one at a time.
//!
//! Gargamel section IV: "In the first phase, clients submit transactions to the scheduler at the specified incoming rate.
//! During the second phase, no more transactions are submitted. It lasts until every transaction has finished executing."
//! The closed world of browsers beside this one ([`super::run`]) cannot show what a backlog does, because its clients wait.
//!
//! A [`Scheduler`] decides which worker runs which transaction, and what becomes of one that was overtaken. The world has the
//! agenda, the messages, the account of committed transactions by which overtaken ones are found, and the measures.
//!
//! Not here: what a transaction is, which is a workload's ([`super::gargamel`]); faults; the inside of a database.

pub mod arrivals;
pub mod outcome;
pub mod world;

pub use arrivals::Jittered;
pub use outcome::Outcome;
pub use world::{Scheduler, Verdict, Work, run};
