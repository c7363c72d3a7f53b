//! What is decided is in the log before any replica is told to commit it (section 5.3).
//!
//! A record holds the write statements of one transaction, and stands in the log under its identity: this node's term and
//! the sequence number. Records are in the order of decisions, which is not that of the numbers: whoever rolls a replica
//! forward sorts them by number, since that is the order of whatever conflicts.

use std::sync::Arc;

use cluster::ids::{DatabaseId, ServiceId, Version};
use cluster::protocols::shipping::SequenceNumber;
use cluster::record::{Header, RecordBuilder};

use super::inside::Inside;
use super::{Next, Shipping};

/// The most bytes of statements that one transaction may ship, checked before each of them is taken.
pub(super) const TRANSACTION_BYTES_MAX: usize = 256 << 20;

impl Shipping {
    /// Puts the writes of a transaction into the log.
    pub(super) fn decide(&self, inside: &mut Inside, number: SequenceNumber) {
        let Some(owner) = inside.owners.get_mut(&number) else { return };
        let mut body = RecordBuilder::new();
        for write in &owner.writes {
            let shipment =
                inside.shipments.get(write.statement).expect("what is not over keeps its statements");
            for shipped in shipment.logged() {
                body.push_shipped(&shipped).expect("it was measured when it was taken");
            }
        }
        let version = inside.appended.next();
        owner.version = Some(version);
        let header = Header {
            cluster: self.coordinator().cluster_id,
            identity: self.identity(number),
            first: version,
            last: version,
            database: DatabaseId(0),
            service: ServiceId(0),
        };
        for side in &mut inside.sides {
            side.undone.insert(version);
            if let Some(tail) = &mut side.tail {
                tail.insert(number, (owner.locks.clone(), owner.writes.clone()));
            }
        }
        inside.appended = version;
        inside.numbers.insert(version, number);
        inside.pending.push_back((version, number));
        crate::local::count(&self.coordinator().local.stats.records);
        self.coordinator().log.append(Arc::new(body.finish(header)));
    }

    /// The log has everything up to this version on disk.
    pub(super) fn durable(self: &Arc<Self>, upto: Version) {
        let mut inside = self.lock();
        let mut out = Vec::new();
        while let Some((_, number)) = inside.pending.pop_front_if(|(version, _)| *version <= upto) {
            inside.scheduler.logged(number, &mut out);
        }
        self.carry_out(inside, out.into_iter().map(Next::Scheduler).collect());
    }
}
