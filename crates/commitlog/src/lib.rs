//! The log of committed transactions: here an acknowledged transaction is safe.
//!
//! [`LogEngine`] is what a node needs of a log. [`FileLog`] keeps one in files; [`inspect`] reads such files while no node is
//! needed. [`EtcdLog`] keeps one on etcd, for several nodes. Rows that are too many for a record are spilled beside the log ([`SpillStore`]).
//! [`Register`] holds what else a leader has to know of its cluster.

#[cfg(test)]
mod conformance;
mod engine;
mod error;
mod etcd;
mod file;
mod register;
mod spill;

pub use engine::{BoxFuture, InMemory, LogEngine, LogRefusal, NEWEST_IDENTITIES, Notices, Recovered};
pub use error::{Damage, LogError, LogFailure};
pub use etcd::{
    BatchError, Chair, ChairError, Claim, Claimed, ClientIdentity, Compare, Confirmed, Ending, EtcdChair,
    EtcdError, EtcdKeys, EtcdLog, EtcdOptions, EtcdRegister, Follower, Gateway, KeyValue, Keys, Leader,
    LogCopy, MemberStatus, Operation, Range, Reading, Revision, SpaceUsed, Store, StoreError, TlsError,
    TlsFiles, Txn, TxnAnswer,
};
pub use file::{Contents, FileLog, FileRegister, Found, Inspected, RowCounts, SpillFolder, inspect};
pub use register::{ENTRY_BYTES_MAX, Entry, Register, RegisterError};
pub use spill::{SpillReader, SpillStore, SpillWriter};
