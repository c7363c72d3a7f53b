//! The engine that keeps the log on etcd: several nodes share it, and one appends.
//!
//! Etcd is the sequencer and the fence, not the archive. A batch of records is one key; appending it is a transaction that compares
//! the leader's claim, so after another node's claim nothing can be added ([`chair`], [`sequencer`]). The history lies in
//! each node's own files, as a copy ([`copy`]), and etcd is trimmed behind what all copies have on their disks ([`trimmer`]).
//!
//! ```text
//! chair.read() -> chair.claim(..) -> EtcdLog::open(etcd, claim, copy) -> append ..       the node that leads
//! Follower::start(etcd, copy) .. stop() -> copy                                          the others
//! ```
//!
//! Invariants:
//!
//! - What was reported durable is on a majority of etcd's members, whatever becomes of this node.
//! - Of two nodes that believe to lead, only the last one that claimed can make anything durable.
//! - No answer of etcd is taken for a refusal: a call without one is repeated as it was until it is answered.
//! - The copy holds nothing that is not on etcd or was trimmed there.
//!
//! Not here: when a node claims, and what a leader may let its replicas do.

mod batch;
mod chair;
mod copy;
mod engine;
mod error;
mod follower;
mod gateway;
mod keys;
mod register;
mod rows;
mod sequencer;
mod shared;
mod store;
#[cfg(test)]
mod tests;
mod trimmer;
mod window;

pub use batch::BatchError;
pub use chair::{Chair, ChairError, Claim, Claimed, Confirmed, EtcdChair, Leader, Reading};
pub use copy::LogCopy;
pub use engine::{EtcdLog, EtcdOptions};
pub use error::EtcdError;
pub use follower::{Ending, Follower};
pub use gateway::{ClientIdentity, Gateway, MemberStatus, TlsError, TlsFiles};
pub use keys::Keys;
pub use register::EtcdRegister;
pub use store::{
    Compare, KeyValue, Operation, Range, Revision, SpaceUsed, Store, StoreError, Txn, TxnAnswer,
};
pub use window::EtcdKeys;
