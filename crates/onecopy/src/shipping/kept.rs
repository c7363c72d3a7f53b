//! The statements that are kept until nobody can need them any more, and how much of them there may be.
//!
//! A statement that writes is kept until its transaction is over at every replica that takes part, and while one returns
//! that may have to do it again. A replica that stands still, or comes back slowly, would so make the node's memory grow
//! without end. Past the limit whoever keeps most of it from being forgotten is given up (it is rolled forward from the
//! log when it comes back, which needs no memory); where nobody is to blame, what would write more is refused.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cluster::protocols::shipping::StatementId;

use super::inside::Inside;
use super::shipment::Shipment;

/// How much of statements is kept for all transactions together.
const KEPT_BYTES_MAX: usize = 512 << 20;
/// More bytes than this are not kept of one reply.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Other limits, for tests: of what is kept and of a reply, in bytes.
const LIMITS_VARIABLE: &str = "ONECOPY_TEST_SHIPPING_BYTES";

/// How much a node of this kind keeps in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Of statements.
    pub(super) kept_bytes: usize,
    /// Of what one statement returns.
    pub(super) reply_bytes: usize,
}

impl Limits {
    /// The usual ones, if the environment does not say `KEPT,REPLY`.
    pub(super) fn usual() -> Self {
        let said = std::env::var(LIMITS_VARIABLE).ok();
        let other = said.as_deref().and_then(|text| {
            let (kept, reply) = text.split_once(',')?;
            Some(Self { kept_bytes: kept.parse().ok()?, reply_bytes: reply.parse().ok()? })
        });
        other.unwrap_or(Self { kept_bytes: KEPT_BYTES_MAX, reply_bytes: REPLY_BYTES_MAX })
    }
}

/// Statements by name.
#[derive(Debug, Default)]
pub(super) struct Kept {
    shipments: BTreeMap<StatementId, Arc<Shipment>>,
    bytes: usize,
}

impl Kept {
    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// One of them.
    pub(super) fn get(&self, statement: StatementId) -> Option<&Arc<Shipment>> {
        self.shipments.get(&statement)
    }

    /// One more.
    pub(super) fn insert(&mut self, statement: StatementId, shipment: Arc<Shipment>) {
        self.bytes += shipment.bytes();
        if let Some(before) = self.shipments.insert(statement, shipment) {
            self.bytes -= before.bytes();
        }
    }

    /// Nobody needs it any more.
    pub(super) fn remove(&mut self, statement: StatementId) {
        if let Some(gone) = self.shipments.remove(&statement) {
            self.bytes -= gone.bytes();
        }
    }
}

impl Inside {
    /// The replicas that keep more than half of what may be kept, in bytes or in transactions, from being forgotten: they
    /// lack what another one has done, or return while it waits for them.
    pub(super) fn laggards(&self, bytes_max: usize, transactions_max: usize) -> VecDeque<usize> {
        let is_past = |number: &cluster::protocols::shipping::SequenceNumber| self.past.contains_key(number);
        let has = |index: usize, version| !self.sides[index].undone.contains(&version);
        let takes_part = |index: &usize| self.scheduler.is_up(super::replica(*index));
        let mut laggards = VecDeque::new();
        for (index, side) in self.sides.iter().enumerate() {
            let returns = side.tail.is_some() || !side.again.is_empty();
            let (mut bytes, mut count) = (0, 0);
            for (number, owner) in self.owners.iter().chain(&self.past) {
                let lacks = || {
                    let Some(version) = owner.version else { return false };
                    let others = (0..self.sides.len()).filter(|other| *other != index);
                    takes_part(&index)
                        && !has(index, version)
                        && others.filter(takes_part).any(|other| has(other, version))
                };
                if is_past(number) && returns || lacks() {
                    count += 1;
                    let of =
                        |write: &cluster::protocols::shipping::Operation| self.shipments.get(write.statement);
                    bytes += owner.writes.iter().filter_map(of).map(|one| one.bytes()).sum::<usize>();
                }
            }
            if bytes > bytes_max / 2 || count > transactions_max / 2 {
                laggards.push_back(index);
            }
        }
        laggards
    }
}
