//! The log of committed transactions: here an acknowledged transaction is safe.
//!
//! [`LogEngine`] is what a node needs of a log. [`FileLog`] keeps one in files; [`inspect`] reads such files while no node is
//! needed. Rows that are too many for a record are spilled beside the log ([`SpillStore`]).

#[cfg(test)]
mod conformance;
mod engine;
mod error;
mod file;
mod spill;

pub use engine::{BoxFuture, InMemory, LogEngine, LogRefusal, NEWEST_IDENTITIES, Notices, Recovered};
pub use error::{Damage, LogError, LogFailure};
pub use file::{Contents, FileLog, Found, Inspected, RowCounts, SpillFolder, inspect};
pub use spill::{SpillReader, SpillStore, SpillWriter};
