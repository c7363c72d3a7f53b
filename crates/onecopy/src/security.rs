//! Authentication and encryption of both sides, and how secrets are kept.
//!
//! [`scram`] and [`tls`] work toward clients and servers. [`seal`] proves that a transaction's identity in a server
//! is Onecopy's. [`owner_only`] makes files that only their owner can read.

pub(crate) mod scram;
pub(crate) mod seal;
pub(crate) mod tls;
