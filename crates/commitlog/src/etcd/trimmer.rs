//! The thread that keeps etcd small: reports how far this node's copy is on its disk, deletes batches that every node has there, and
//! refuses new commits before the quota is reached.
//!
//! With a quota of 8 GB the trimmer waits for nodes that are down until etcd holds 4 GB; then it deletes what they miss, and their
//! copies begin anew when they return. At 6.4 GB new commits are refused.
//!
//! The newest batch is always kept: the next append compares that it is there.
//!
//! Invariant: a batch is deleted only when the records in it are on the disk of this node, and of each node that has reported lately.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cluster::ids::{Identity, Version};

use super::keys;
use super::sequencer::Pace;
use super::shared::Shared;
use super::store::{Compare, Operation, Range, Revision, SpaceUsed, StoreError, Txn};

/// Past this share of the quota, nodes that do not report are not waited for.
const HARD_PERCENT: u64 = 50;
/// Past this share of the quota, new commits are refused.
const REFUSE_PERCENT: u64 = 80;
/// A node that has not reported for so long counts as down.
const SILENCE: Duration = Duration::from_secs(15);
/// Between two compactions. Etcd uses the space of deleted keys again after one.
const COMPACT_EVERY: Duration = Duration::from_secs(30);
/// How long a call may take.
const CALL_DEADLINE: Duration = Duration::from_secs(3);
/// So many nodes can report.
const NODES_LIMIT: usize = 100;
/// So many transactions' spilled rows are deleted in one step; etcd takes 128 operations at most.
const ROWS_AT_ONCE: usize = 64;

pub(super) struct Trimmer {
    shared: Arc<Shared>,
    pace: Pace,
    /// The last report of this node.
    reported: Version,
    /// When each node has reported last, by the revision of its report.
    heard: BTreeMap<String, (Revision, Instant)>,
    compacted_at: Instant,
    trimmed_since: bool,
}

impl Trimmer {
    pub(super) fn new(shared: Arc<Shared>, pace: Pace) -> Self {
        Self {
            shared,
            pace,
            reported: Version::ZERO,
            heard: BTreeMap::new(),
            compacted_at: Instant::now(),
            trimmed_since: false,
        }
    }

    pub(super) fn run(mut self) {
        while !self.shared.sleep_until_closed(self.pace.trim_every) {
            if let Err(error) = self.step() {
                tracing::debug!("etcd was not trimmed: {error}");
            }
        }
    }

    fn step(&mut self) -> Result<(), StoreError> {
        let space = self.shared.etcd.store.space()?;
        self.note_space(space);
        self.report()?;
        let revision = self.trim(is_past(space, HARD_PERCENT))?;
        if let Some(revision) = revision
            && self.trimmed_since
            && (self.compacted_at.elapsed() >= COMPACT_EVERY || is_past(space, HARD_PERCENT))
        {
            self.shared.etcd.store.compact(revision)?;
            self.compacted_at = Instant::now();
            self.trimmed_since = false;
        }
        Ok(())
    }

    fn note_space(&self, space: SpaceUsed) {
        let is_near = space.has_no_space || is_past(space, REFUSE_PERCENT);
        if is_near != self.shared.quota_is_near.swap(is_near, Ordering::Relaxed) {
            if is_near {
                tracing::error!(
                    used_mb = space.used_bytes >> 20,
                    quota_mb = space.quota_bytes >> 20,
                    "etcd is about to reach its quota: nothing is committed"
                );
            } else {
                tracing::warn!("etcd has room again");
            }
        }
    }

    /// Tells what is on the disk of this node.
    fn report(&mut self) -> Result<(), StoreError> {
        let synced = self.shared.copy.synced();
        if synced > self.reported {
            put_report(&self.shared.etcd, &self.shared.node, synced)?;
            self.reported = synced;
        }
        Ok(())
    }

    /// Deletes what no node needs. Returns a revision at which all of it was gone.
    fn trim(&mut self, is_scarce: bool) -> Result<Option<Revision>, StoreError> {
        let (from, to) = self.shared.etcd.keys.nodes();
        let read = Operation::Read(Range::between(from, to, NODES_LIMIT));
        let answer =
            self.shared.etcd.store.txn(&Txn { then: vec![read], ..Txn::default() }, CALL_DEADLINE)?;
        let mut upto = self.shared.copy.synced();
        for report in answer.found.first().into_iter().flatten() {
            let heard =
                self.heard.entry(report.key.clone()).or_insert_with(|| (report.written_at, Instant::now()));
            if heard.0 != report.written_at {
                *heard = (report.written_at, Instant::now());
            }
            let is_own = report.key == self.shared.etcd.keys.node(&self.shared.node);
            if is_own || (is_scarce && heard.1.elapsed() >= SILENCE) {
                continue;
            }
            upto = upto.min(keys::number(&report.value).map_or(Version::ZERO, Version));
        }
        let Some((base, rows)) = self.plan(upto) else { return Ok(Some(answer.revision)) };
        let keys = &self.shared.etcd.keys;
        let mut then = vec![
            Operation::Delete(keys.log(Version::ZERO), keys.log(base)),
            Operation::Delete(keys.parts(Version::ZERO), keys.parts(base)),
            Operation::Put(keys.base(), base.0.to_string().into_bytes()),
        ];
        then.extend(
            rows.iter()
                .map(|(_, identity)| Operation::Delete(keys.rows(*identity), keys.rows_end(*identity))),
        );
        let answer = self.shared.etcd.store.txn(
            &Txn {
                // Without the second one, a message that arrives late would put the base back.
                compares: vec![
                    Compare::WrittenAt(keys.lead(), self.shared.claim.revision),
                    Compare::Exists(keys.log(base)),
                ],
                then,
                otherwise: Vec::new(),
            },
            CALL_DEADLINE,
        )?;
        if !answer.succeeded {
            // Another node leads, which the sequencer will notice, or an earlier call was carried out after all.
            return Ok(None);
        }
        let mut window = self.shared.window();
        while window.firsts.front().is_some_and(|first| *first < base) {
            window.firsts.pop_front();
        }
        window.spilled.retain(|spilled| !rows.contains(spilled));
        self.trimmed_since = true;
        Ok(Some(answer.revision))
    }

    /// Where the window can begin, and whose spilled rows go; `None` if it begins there already.
    fn plan(&self, upto: Version) -> Option<(Version, Vec<(Version, Identity)>)> {
        let window = self.shared.window();
        let upto = upto.min(window.allowed);
        let count = window.firsts.partition_point(|first| *first <= upto.next());
        let base = *window.firsts.get(count.checked_sub(1)?)?;
        let rows: Vec<_> = window
            .spilled
            .iter()
            .filter(|(version, _)| *version < base)
            .take(ROWS_AT_ONCE)
            .copied()
            .collect();
        (window.firsts.front() != Some(&base) || !rows.is_empty()).then_some((base, rows))
    }
}

fn is_past(space: SpaceUsed, percent: u64) -> bool {
    space.used_bytes >= space.quota_bytes / 100 * percent
}

/// Tells what is on the disk of a node.
pub(super) fn put_report(
    etcd: &super::window::EtcdKeys,
    node: &str,
    synced: Version,
) -> Result<(), StoreError> {
    let put = Operation::Put(etcd.keys.node(node), synced.0.to_string().into_bytes());
    etcd.store.txn(&Txn { then: vec![put], ..Txn::default() }, CALL_DEADLINE).map(|_| ())
}
