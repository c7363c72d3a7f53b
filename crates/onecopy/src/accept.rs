//! Stage *accept*: from a new connection to a session that has logged in.
//!
//! [`listener`] takes connections and gives each to a thread, [`startup`] reads the start-up message, [`login`] proves who
//! the client is. [`crate::local::half_open`] bounds how many have not proven it yet.
//!
//! Invariant: nothing of a client reaches a server before its log-in is complete.

pub(crate) mod listener;
pub(crate) mod login;
pub(crate) mod startup;
