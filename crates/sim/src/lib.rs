//! A deterministic simulator: clients, PostgreSQL servers, networks, a disk and faults around the real cluster core.
//!
//! A seed determines a run. [`program`] draws the plan, [`world`] runs it, and [`check`] judges what clients saw.
//!
//! It alone finds errors of the core's code that take a certain order of messages and faults. It samples schedules, so a rare
//! order takes many seeds; `spec/` searches every schedule, but of a model.

pub mod agenda;
pub mod c_jdbc;
pub mod check;
pub mod dice;
pub mod hashes;
pub mod history;
mod interactions;
pub mod linked_sessions;
pub mod mutants;
pub mod nodes;
pub mod paper;
pub mod program;
mod record;
pub mod rules;
pub mod run;
pub mod schedulers;
pub mod schema;
pub mod server;
pub mod shrink;
pub mod trace;
pub mod world;
