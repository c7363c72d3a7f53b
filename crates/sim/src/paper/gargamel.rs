//! Gargamel's simulation: chains against Round-Robin, Tashkent+ and centralised writes, on TPC-C.
//!
//! Cincilla, Monnet, Shapiro, "Gargamel: boosting DBMS performance by parallelising write transactions" (ICPADS 2012), sections IV
//! and V. [`stated`] is the table of what the paper states.

pub mod stated;
