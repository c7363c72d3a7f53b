//! Protocol `tashkent+`: a kind of transactions runs at the replicas whose memory holds its tables, and those that conflict are
//! aborted (Elnikety, Dropsho, Zwaenepoel: Tashkent+: memory-aware load balancing and update filtering in replicated databases,
//! 2007, as Gargamel describes it).
//!
//! Gargamel, IV-B: "Like Round-Robin, Tashkent+ aims to maximise throughput, but optimises the assignment of transactions
//! to workers by ensuring that the working set of the transactions sent to a worker fits into the worker's main memory.
//! Workers are assembled in groups executing the same set of transaction types."
//!
//! A *kind* is a statement outside of a block, or the first statement of a block, whatever its constants; or a procedure
//! that is called. Its *working set* is the tables that it touches, with their indexes. Updates and reads of a kind go to
//! the replica of its group with the least expected wait ([`super::rows`], `memory_groups`). It is a rival for benchmarks,
//! not a protocol to serve with.
//!
//! Deviations:
//! - IV-B: "Tashkent+ estimates the working set of an incoming transaction by examining the database execution plan." Here
//!   it is the tables that our analysis finds: all that any plan could name, and those of triggers, references, functions
//!   and the body of a procedure. Tables count as a whole, as do rows of a table that is read by key.
//! - Of a transaction block only the first statement counts.
//! - IV-B: "Tashkent+ monitors each worker's CPU and disk usage". Here the load of a group is the transactions and reads
//!   that run or wait by replica, as in Gargamel's simulation ("the ratio of busy to available workers"), as a mean over
//!   some seconds.
//! - With more groups than replicas, the kinds of a group without a replica go by load to any replica. So do kinds without
//!   bounded tables, and those after the first 1,024. What needs the anchor runs there, whatever its kind.
//! - Update filtering, the other half of Tashkent+, is not here: every replica applies all write-sets.
//! - Gargamel's simulation takes 10 % off each duration. Here servers have the caches that they have.
//!
//! Guarantee: each transaction at the level that it asked for, as in [`super::round_robin`].

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, See};

/// The memory of one replica, unless the operator says otherwise.
pub const MEMORY_BYTES: u64 = 1 << 30;

/// No order beforehand, homes by memory.
pub const TASHKENT_PLUS: Choices = Choices {
    name: "tashkent+",
    order: Order::Nothing,
    home: HomePolicy::ByMemory { memory_bytes: MEMORY_BYTES },
    perform: Perform::Home,
    see: See::Fresh,
    retry: Retry::Tell,
    patience_us: PATIENCE_US,
};
