//! Clients of protocols that ship statements, what they ask, and what the judge wants of their answers.

pub(crate) mod clients;
pub(crate) mod judge;
pub(crate) mod programs;
