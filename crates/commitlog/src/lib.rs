//! The log of committed transactions.

mod error;
mod file;

pub use error::{Damage, LogError, LogFailure};
pub use file::{
    Contents, FileLog, Found, Inspected, NEWEST_IDENTITIES, Notices, Recovered, RowCounts, SpillFile,
    SpillFolder, SpillReader, TornTail, inspect,
};
