//! Stage *accept*: from a new connection to a session that has logged in.
//!
//! [`listener`] takes connections and gives each to a thread. [`startup`] reads the start-up message. [`login`]
//! authenticates the client. [`discovery`] tells clients beforehand where nodes are, and how busy. [`crate::local::half_open`] bounds the connections that have not authenticated.
//!
//! Invariant: no byte of a client reaches a server before its log-in is complete.

pub(crate) mod discovery;
pub(crate) mod inherited;
pub(crate) mod listener;
pub(crate) mod login;
pub(crate) mod startup;
