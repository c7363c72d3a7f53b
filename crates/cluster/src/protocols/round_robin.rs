//! Protocol `round-robin`: replicas take transactions in turn, and those that conflict are aborted (Gargamel IV-B: "Transactions
//! are assigned to each worker in equal portions and in circular order. Because concurrent transactions proceed in parallel,
//! Round-Robin suffers from a lot of abort-restarts, i.e., wasted work").
//!
//! No transaction waits for another one beforehand: at one home PostgreSQL's locks order them, between homes certification
//! aborts the later one (40001), and its client has to send it again. It is a rival for benchmarks, not a protocol to serve with.
//!
//! Guarantee: each transaction at the level that it asked for, as in [`super::onecopy`]; it fails more often.

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, See};

/// No order beforehand, homes in turn.
pub const ROUND_ROBIN: Choices = Choices {
    name: "round-robin",
    order: Order::Nothing,
    home: HomePolicy::InTurn,
    perform: Perform::Home,
    see: See::Fresh,
    retry: Retry::Tell,
    patience_us: PATIENCE_US,
};
