//! What the log asks of etcd: transactions that compare before they write, and ranges of keys.
//!
//! [`super::Gateway`] asks a real etcd. Tests ask one in memory that loses and repeats messages.
//!
//! Invariant: a call that fails with [`StoreError::Unreachable`] may have been carried out, now or later. So the callers send
//! only what may be carried out twice: each write compares what it would change.
//!
//! ```text
//! if mod_revision(lead) = 7, created(log/5) = no, created(log/3) = yes
//! then put log/5   else get lead, log/5
//! ```

use std::fmt;
use std::time::Duration;

/// A position in the history of etcd. Each write has the next one; 0 is before the first.
pub type Revision = i64;

/// How long the first attempt at a call waits for its answer.
const FIRST_DEADLINE: Duration = Duration::from_millis(500);
/// How long later ones wait at most; each waits twice as long as the one before.
const LONGEST_DEADLINE: Duration = Duration::from_secs(3);

/// How long each attempt at a call waits for its answer, where the call may be made again. The first ones are short: while its members
/// elect a leader, etcd forgets what it was asked, and would be waited for in vain.
///
/// ```text
/// 0.5 s, 1 s, 2 s, 3 s, 3 s, ..
/// ```
pub(super) fn deadlines() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(FIRST_DEADLINE), |last| Some((*last * 2).min(LONGEST_DEADLINE)))
}

/// The keys and values of etcd, or of something that does the same.
pub trait Store: Send + Sync + fmt::Debug {
    /// Carries out one of two lists of operations, in one step. Waits for the answer until the deadline.
    fn txn(&self, txn: &Txn, deadline: Duration) -> Result<TxnAnswer, StoreError>;

    /// Makes the values before this revision unreadable, so that their space is used again.
    fn compact(&self, revision: Revision) -> Result<(), StoreError>;

    /// The space that etcd takes and may take.
    fn space(&self) -> Result<SpaceUsed, StoreError>;
}

/// A transaction: `then` if all compares hold, else `otherwise`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Txn {
    /// All of them must hold.
    pub compares: Vec<Compare>,
    /// Carried out if they do.
    pub then: Vec<Operation>,
    /// Carried out if one does not.
    pub otherwise: Vec<Operation>,
}

/// A condition on a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compare {
    /// The key was last written at this revision. Without the key that is 0.
    WrittenAt(String, Revision),
    /// The key exists.
    Exists(String),
    /// The key does not exist.
    Missing(String),
    /// The key has this value.
    Is(String, Vec<u8>),
}

/// An operation on one key, or on a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Writes a key.
    Put(String, Vec<u8>),
    /// Reads keys.
    Read(Range),
    /// Deletes all keys from the first, inclusively, to the second, exclusively.
    Delete(String, String),
}

/// The keys that are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first of them.
    pub from: String,
    /// The key after the last; `None` reads a single key.
    pub to: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// The last ones first.
    pub descending: bool,
    /// Without their values.
    pub keys_only: bool,
}

impl Range {
    /// One key.
    pub fn key(key: impl Into<String>) -> Self {
        Self { from: key.into(), to: None, limit: 1, descending: false, keys_only: false }
    }

    /// The first keys of a range.
    pub fn between(from: impl Into<String>, to: impl Into<String>, limit: usize) -> Self {
        Self { from: from.into(), to: Some(to.into()), limit, descending: false, keys_only: false }
    }
}

/// The answer to a [`Txn`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxnAnswer {
    /// Whether the compares held.
    pub succeeded: bool,
    /// The revision at which the answer was true; after a write, that of the write.
    pub revision: Revision,
    /// The keys that each [`Operation::Read`] of the chosen list has found, in order.
    pub found: Vec<Vec<KeyValue>>,
}

impl TxnAnswer {
    /// The single key that the operation with this number has read.
    pub fn key(&self, read: usize) -> Option<&KeyValue> {
        self.found.get(read)?.first()
    }
}

/// A key with its value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// Its value; empty where only keys were asked for.
    pub value: Vec<u8>,
    /// The revision of the last write to it.
    pub written_at: Revision,
}

/// The space that etcd takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceUsed {
    /// Bytes that keys and values take, without pages that are free to be used again.
    pub used_bytes: u64,
    /// The quota: etcd takes no writes beyond it.
    pub quota_bytes: u64,
    /// Etcd has raised the alarm that the quota is reached, and takes no writes.
    pub has_no_space: bool,
}

/// Why etcd did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreError {
    /// No answer came from any member, or none from a majority. The call may have been carried out, or may still be.
    Unreachable {
        /// The address that was asked.
        url: String,
        /// What went wrong there.
        reason: String,
    },
    /// Etcd has reached its quota. The call was not carried out.
    NoSpace,
    /// Etcd refuses the call: it is wrong, or not allowed. It was not carried out.
    Refused {
        /// The address that was asked.
        url: String,
        /// The answer.
        reason: String,
    },
    /// The answer is none that etcd gives. The call may have been carried out.
    Damaged {
        /// The address that was asked.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl StoreError {
    /// Whether the call may have been carried out all the same.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Damaged { .. })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { url, reason } => {
                write!(f, "etcd does not answer at {url}: {reason}; check that a majority of its members runs")
            }
            Self::NoSpace => f.write_str(
                "etcd has reached its quota and takes no writes; compact and defragment it, then disarm the alarm",
            ),
            Self::Refused { url, reason } => write!(f, "etcd at {url} refuses: {reason}"),
            Self::Damaged { url, reason } => {
                write!(f, "{url} does not answer as etcd does: {reason}; check the setting \"etcd\"")
            }
        }
    }
}

impl std::error::Error for StoreError {}
