//! Who leads: the one node that may append to the log.
//!
//! The chair is one key. A node takes it by a compare on the revision that it has read, so of two nodes that try at a time one
//! succeeds. The new value has a new revision, and each append compares that one: so nothing of an earlier leader can be added
//! after a claim. Leases of etcd play no part: their shortest life is too long, and none of them is needed for safety.
//!
//! ```text
//! a: read -> no leader, revision 0           b: read -> no leader, revision 0
//! a: claim(0) -> Won, epoch 1                b: claim(0) -> Lost to a
//! ```
//!
//! Invariant: a node that holds a claim of epoch e knows that no append of an epoch below e succeeds after
//! [`Claim::answered_at`]. The reverse does not hold: it may have lost the chair already.
//!
//! Not here: when a node should try, and what it may do for how long after a claim.

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cluster::ids::{Epoch, Nonce};
use serde_json::{Value, json};

use super::keys::Keys;
use super::store::{Compare, KeyValue, Operation, Range, Revision, Store, StoreError, Txn};

/// How long a call to the chair may take before it is tried at another member.
const CALL_DEADLINE: Duration = Duration::from_millis(800);
/// How often a call is tried. After that etcd counts as unreachable.
const ATTEMPTS: u32 = 6;
const PAUSE: Duration = Duration::from_millis(50);

/// The place of the leader. Calls wait for the network.
pub trait Chair: Send + Sync + fmt::Debug {
    /// Who leads now.
    fn read(&self) -> Result<Reading, ChairError>;

    /// Takes the chair, unless another node has taken it since that reading. The epoch is above that of the former leader, and above `above`.
    fn claim(&self, expected: &Reading, above: Epoch) -> Result<Claimed, ChairError>;

    /// Whether the claim is still in force. The answer was true at some moment after [`Confirmed::sent_at`].
    fn confirm(&self, claim: &Claim) -> Result<Confirmed, ChairError>;
}

/// What was read of the chair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The leader; `None` before the first claim.
    pub leader: Option<Leader>,
    /// The revision of the last claim.
    pub revision: Revision,
}

impl Reading {
    /// The epoch of the last claim.
    pub fn epoch(&self) -> Epoch {
        self.leader.as_ref().map_or_else(Epoch::default, |leader| leader.epoch)
    }
}

/// A node that has claimed the chair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Its name.
    pub node: String,
    /// The epoch of its term.
    pub epoch: Epoch,
    /// Distinguishes this claim from all others.
    pub nonce: Nonce,
    /// Where other nodes reach it; empty if they cannot.
    pub address: String,
}

/// The right to append, until another node claims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The epoch of the term.
    pub epoch: Epoch,
    /// Distinguishes the claim from all others.
    pub nonce: Nonce,
    /// Each append compares the revision of the claim.
    pub revision: Revision,
    /// When the claim was sent. A term lease counts from here.
    pub sent_at: Instant,
    /// When it was answered. Leases of the former leader are over when their length has passed since.
    pub answered_at: Instant,
    /// The leader before, which may have leases still.
    pub before: Option<Leader>,
}

/// The outcome of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Claimed {
    /// This node leads.
    Won(Claim),
    /// Another node was quicker.
    Lost(Reading),
}

/// The outcome of a confirmation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Confirmed {
    /// The claim was in force at some moment after this one.
    InForce {
        /// Just before the question was sent.
        sent_at: Instant,
    },
    /// Another node has claimed.
    Superseded(Option<Leader>),
}

/// Why the chair did not answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChairError {
    /// Etcd did not do what was asked.
    Store(StoreError),
    /// The key holds something else than a claim.
    Malformed {
        /// The key.
        key: String,
    },
    /// The system gives no random number.
    NoNonce,
}

impl fmt::Display for ChairError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Malformed { key } => {
                write!(f, "the key {key} of etcd holds no claim; something else has written to it")
            }
            Self::NoNonce => f.write_str("the system gives no random number"),
        }
    }
}

impl std::error::Error for ChairError {}

impl From<StoreError> for ChairError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The chair as a key of etcd.
#[derive(Debug)]
pub struct EtcdChair {
    store: Arc<dyn Store>,
    keys: Keys,
    node: String,
    address: String,
}

impl EtcdChair {
    /// The chair of a cluster, for this node. `address`: where other nodes reach it.
    pub fn new(store: Arc<dyn Store>, keys: Keys, node: &str, address: &str) -> Self {
        Self { store, keys, node: node.to_owned(), address: address.to_owned() }
    }

    /// A transaction that may be sent any number of times, until it is answered.
    fn settle(&self, txn: &Txn) -> Result<(super::store::TxnAnswer, Instant), ChairError> {
        let mut attempt = 1;
        loop {
            let sent_at = Instant::now();
            match self.store.txn(txn, CALL_DEADLINE) {
                Ok(answer) => return Ok((answer, sent_at)),
                Err(error) if error.is_ambiguous() && attempt < ATTEMPTS => thread::sleep(PAUSE * attempt),
                Err(error) => return Err(error.into()),
            }
            attempt += 1;
        }
    }

    fn reading(&self, found: Option<&KeyValue>) -> Result<Reading, ChairError> {
        let Some(kv) = found else { return Ok(Reading { leader: None, revision: 0 }) };
        let leader =
            Leader::decode(&kv.value).ok_or_else(|| ChairError::Malformed { key: self.keys.lead() })?;
        Ok(Reading { leader: Some(leader), revision: kv.written_at })
    }
}

impl Chair for EtcdChair {
    fn read(&self) -> Result<Reading, ChairError> {
        let read = Operation::Read(Range::key(self.keys.lead()));
        let (answer, _) = self.settle(&Txn { then: vec![read], ..Txn::default() })?;
        self.reading(answer.key(0))
    }

    fn claim(&self, expected: &Reading, above: Epoch) -> Result<Claimed, ChairError> {
        let leader = Leader {
            node: self.node.clone(),
            epoch: expected.epoch().max(above).next(),
            nonce: Nonce(getrandom::u64().map_err(|_| ChairError::NoNonce)?),
            address: self.address.clone(),
        };
        let lead = self.keys.lead();
        let (answer, sent_at) = self.settle(&Txn {
            compares: vec![Compare::WrittenAt(lead.clone(), expected.revision)],
            then: vec![Operation::Put(lead.clone(), leader.encode())],
            otherwise: vec![Operation::Read(Range::key(lead))],
        })?;
        let claim = |revision| Claim {
            epoch: leader.epoch,
            nonce: leader.nonce,
            revision,
            sent_at,
            answered_at: Instant::now(),
            before: expected.leader.clone(),
        };
        if answer.succeeded {
            return Ok(Claimed::Won(claim(answer.revision)));
        }
        let reading = self.reading(answer.key(0))?;
        // An attempt whose answer was lost has succeeded.
        let is_ours = reading.leader.as_ref() == Some(&leader);
        Ok(if is_ours { Claimed::Won(claim(reading.revision)) } else { Claimed::Lost(reading) })
    }

    fn confirm(&self, claim: &Claim) -> Result<Confirmed, ChairError> {
        let read = Operation::Read(Range::key(self.keys.lead()));
        let (answer, sent_at) = self.settle(&Txn { then: vec![read], ..Txn::default() })?;
        let reading = self.reading(answer.key(0))?;
        let is_ours = reading.revision == claim.revision;
        Ok(if is_ours { Confirmed::InForce { sent_at } } else { Confirmed::Superseded(reading.leader) })
    }
}

impl Leader {
    fn encode(&self) -> Vec<u8> {
        let Self { node, epoch, nonce, address } = self;
        let nonce = format!("{:016x}", nonce.0);
        json!({ "node": node, "epoch": epoch.0, "nonce": nonce, "address": address }).to_string().into_bytes()
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(value).ok()?;
        let text = |name: &str| value.get(name)?.as_str();
        Some(Self {
            node: text("node")?.to_owned(),
            epoch: Epoch(u32::try_from(value.get("epoch")?.as_u64()?).ok()?),
            nonce: Nonce(u64::from_str_radix(text("nonce")?, 16).ok()?),
            address: text("address")?.to_owned(),
        })
    }
}
