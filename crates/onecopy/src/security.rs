//! How both sides of a connection prove who they are, and how secrets are kept.
//!
//! [`scram`] and [`tls`] speak to clients and to servers, [`seal`] proves that a transaction's identity in a server is
//! ours, [`owner_only`] makes files that only their owner can read.

pub(crate) mod scram;
pub(crate) mod seal;
pub(crate) mod tls;
