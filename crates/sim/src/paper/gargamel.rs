//! Gargamel's simulation: chains against Round-Robin, Tashkent+ and centralised writes, on TPC-C.
//!
//! Cincilla, Monnet, Shapiro, "Gargamel: boosting DBMS performance by parallelising write transactions" (ICPADS 2012), sections IV
//! and V. The schedulers are made of the parts that the live protocols use: [`cluster::parts::chains`],
//! [`cluster::parts::workers`], [`cluster::parts::groups`]. [`stated`] is the table of what the paper states, written before
//! the first run. [`figures`] lists the runs, and compares them with that table.
//!
//! What the paper leaves open is a field of [`experiment::Setting`], named in every output: which pairs conflict
//! ([`tpcc::Reading`]), what becomes of a transaction that was overtaken ([`experiment::Retry`]), and what the consensus
//! latency of Table I delays ([`experiment::Consensus`]). One setting holds for all figures.

mod certified;
mod chained;
pub mod experiment;
pub mod figures;
pub mod reasons;
pub mod stated;
pub mod tpcc;

#[cfg(test)]
mod tests;
