//! A world in a box: clients, servers, disks and faults around the real cluster core, and judges of what happened.

pub mod agenda;
pub mod check;
pub mod dice;
pub mod hashes;
pub mod history;
pub mod mutants;
pub mod paper;
pub mod program;
mod record;
pub mod rules;
pub mod run;
pub mod schema;
pub mod server;
pub mod shrink;
pub mod trace;
pub mod world;
