//! The log on etcd as an engine: opened for a term, under a claim.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::ids::{Epoch, Identity, Version};
use cluster::record::Record;
use tokio::task::spawn_blocking;

use super::chair::{Claim, Leader};
use super::copy::LogCopy;
use super::error::EtcdError;
use super::rows::EtcdRows;
use super::sequencer::{Pace, Sequencer};
use super::shared::{Shared, Window};
use super::store::{self, Compare, Operation, Txn};
use super::trimmer::Trimmer;
use super::window::{self, EtcdKeys, Head, Progress};
use crate::engine::{BoxFuture, InMemory, LogEngine, LogRefusal, Notices, Recovered};
use crate::error::LogError;
use crate::spill::SpillStore;

/// How long trimming waits for the disk.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
/// How often a transaction of the opening is sent before etcd counts as unreachable.
const ATTEMPTS: usize = 7;

/// How a node opens the log.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The name of this node.
    pub node: String,
    /// How long etcd may be away before new commits are refused.
    pub patience: Duration,
}

/// The log of the node that leads.
pub struct EtcdLog {
    shared: Arc<Shared>,
    pace: Pace,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl EtcdLog {
    /// Opens the log for the term of this claim, and completes the copy. What it returns is durable on etcd, and nothing of an earlier
    /// term can be added to it. Blocks on the network and on the disk.
    ///
    /// Ordering duty: the claim was answered before.
    pub fn open(
        etcd: EtcdKeys,
        claim: Claim,
        copy: LogCopy,
        options: &EtcdOptions,
    ) -> Result<(Self, Recovered), LogError> {
        Self::open_with(etcd, claim, copy, options, Pace::default())
    }

    pub(super) fn open_with(
        etcd: EtcdKeys,
        claim: Claim,
        copy: LogCopy,
        options: &EtcdOptions,
        pace: Pace,
    ) -> Result<(Self, Recovered), LogError> {
        let head = etcd.head(copy.cluster)?;
        must_lead(&head, &claim)?;
        let copy = if head.base.is_some() {
            complete(&etcd, copy)?.of_a_known_log()
        } else {
            begin(&etcd, &claim, &copy)?;
            copy
        };
        let window = Window {
            firsts: etcd.batches()?.into(),
            spilled: keep_rows(&etcd, &claim, &copy)?,
            allowed: Version::ZERO,
        };
        let recovered = copy.recovered();
        let shared = Arc::new(Shared::new(etcd, claim, copy, options.node.clone(), options.patience, window));
        Ok((Self { shared, pace, threads: Mutex::default() }, recovered))
    }

    /// The claim under which the log is written.
    pub fn claim(&self) -> &Claim {
        &self.shared.claim
    }

    /// The last version that is on the disk of this node.
    pub fn synced(&self) -> Version {
        self.shared.copy.synced()
    }

    fn join(&self) {
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the log panicked");
            }
        }
    }
}

fn must_lead(head: &Head, claim: &Claim) -> Result<(), EtcdError> {
    if window::is_claim(head.lead.as_ref(), claim.revision) {
        return Ok(());
    }
    let leader = head.lead.as_ref().and_then(|kv| Leader::decode(&kv.value));
    let (by, node) = leader.map_or_else(|| (Epoch::default(), String::new()), |it| (it.epoch, it.node));
    Err(EtcdError::Fenced { by, node })
}

/// Puts the log on etcd: it begins behind the copy, which is the log that this node had before.
fn begin(etcd: &EtcdKeys, claim: &Claim, copy: &LogCopy) -> Result<(), EtcdError> {
    let base = copy.last().next();
    let txn = Txn {
        compares: vec![
            Compare::WrittenAt(etcd.keys.lead(), claim.revision),
            Compare::Missing(etcd.keys.base()),
        ],
        then: vec![
            Operation::Put(etcd.keys.base(), base.0.to_string().into_bytes()),
            Operation::Put(etcd.keys.cluster(), format!("{:032x}", copy.cluster.0).into_bytes()),
        ],
        otherwise: Vec::new(),
    };
    settle(etcd, &txn)?;
    // An earlier call may have done it.
    let head = etcd.head(copy.cluster)?;
    must_lead(&head, claim)?;
    if head.base == Some(base) { Ok(()) } else { Err(EtcdError::Malformed { key: etcd.keys.base() }) }
}

/// Sends a transaction, which may be carried out twice, until it is answered.
fn settle(etcd: &EtcdKeys, txn: &Txn) -> Result<(), EtcdError> {
    let mut left = ATTEMPTS;
    for deadline in store::deadlines() {
        left -= 1;
        match etcd.store.txn(txn, deadline) {
            Ok(_) => return Ok(()),
            Err(error) if error.is_ambiguous() && left > 0 => {}
            Err(error) => return Err(error.into()),
        }
    }
    unreachable!("the last attempt returns")
}

/// Adds to the copy all that etcd has.
pub(super) fn complete(etcd: &EtcdKeys, mut copy: LogCopy) -> Result<LogCopy, LogError> {
    let mut with_last = true;
    loop {
        let page = etcd.page(copy.last(), with_last)?;
        with_last = false;
        match etcd.add(&copy, &page, &|| true)? {
            Progress::Added => {}
            Progress::Complete => break,
            Progress::Behind { base } => copy = copy.begin_anew(base)?,
        }
    }
    let last = match etcd.batches()?.last() {
        // Batches that the copy has already were compared; these end where the copy does.
        Some(first) if *first <= copy.last() => etcd.last_of(*first, copy.cluster)?,
        // A leader has gone on meanwhile.
        Some(_) => copy.last(),
        None => etcd.head(copy.cluster)?.base.map_or_else(|| copy.last(), |base| Version(base.0 - 1)),
    };
    if copy.last() > last {
        return Err(EtcdError::CopyIsAhead { dir: copy.dir.clone(), copied: copy.last(), last }.into());
    }
    Ok(copy)
}

/// Deletes the spilled rows of transactions of earlier terms that are not in the log. Returns those that are.
fn keep_rows(etcd: &EtcdKeys, claim: &Claim, copy: &LogCopy) -> Result<Vec<(Version, Identity)>, EtcdError> {
    let known = copy.recovered().identities;
    let oldest = known.front().map(|(_, version)| *version);
    let mut kept = Vec::new();
    let mut from = etcd.keys.rows_of(Epoch::default());
    let to = etcd.keys.rows_of(claim.epoch);
    loop {
        let page = etcd.row_keys(from.clone(), to.clone())?;
        let Some(first) = page.first() else { return Ok(kept) };
        let identity = etcd.keys.identity_of(&first.key);
        let identity = identity.ok_or_else(|| EtcdError::Malformed { key: first.key.clone() })?;
        from = etcd.keys.rows_end(identity);
        match known.iter().find(|(known, _)| *known == identity) {
            Some((_, version)) => kept.push((*version, identity)),
            // Older than all that are known: it may be in the log.
            None if oldest.is_some_and(|oldest| oldest > copy.file.first_retained()) => {}
            None => {
                let txn = Txn {
                    compares: vec![Compare::WrittenAt(etcd.keys.lead(), claim.revision)],
                    then: vec![Operation::Delete(etcd.keys.rows(identity), from.clone())],
                    otherwise: Vec::new(),
                };
                settle(etcd, &txn)?;
            }
        }
    }
}

impl LogEngine for EtcdLog {
    fn start(&self, notices: Notices) -> Result<(), LogError> {
        let told = Arc::downgrade(&self.shared);
        self.shared.copy.on_failure(Box::new(move |failure| {
            if let Some(shared) = told.upgrade() {
                shared.note_copy_failure(failure);
            }
        }));
        let sequencer = Sequencer::new(Arc::clone(&self.shared), self.pace, notices);
        let trimmer = Trimmer::new(Arc::clone(&self.shared), self.pace);
        let refused = |source| LogError::io("start a thread for the log in", &self.shared.copy.dir, source);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |name: &str| thread::Builder::new().name(name.into());
        threads.push(named("log-sequencer").spawn(move || sequencer.run()).map_err(refused)?);
        threads.push(named("log-trimmer").spawn(move || trimmer.run()).map_err(refused)?);
        Ok(())
    }

    fn append(&self, record: Arc<Record>) {
        self.shared.append(record);
    }

    fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    fn refusal(&self) -> Option<LogRefusal> {
        self.shared.refusal()
    }

    fn durable(&self) -> Version {
        self.shared.copy.last()
    }

    fn first_retained(&self) -> Version {
        self.shared.copy.file.first_retained()
    }

    fn read_from(
        &self,
        version: Version,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>> {
        Box::pin(self.shared.copy.read_from(version, max_bytes))
    }

    fn spills(&self) -> Arc<dyn SpillStore> {
        Arc::new(EtcdRows::new(Arc::clone(&self.shared)))
    }

    fn shrink(&self, upto: Version, max_bytes: u64) -> BoxFuture<'_, Result<Version, LogError>> {
        let mut window = self.shared.window();
        window.allowed = window.allowed.max(upto);
        drop(window);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            // Only files that the disk has are complete.
            spawn_blocking(move || shared.copy.wait_until_synced(SYNC_PATIENCE)).await?;
            self.shared.copy.file.shrink(upto, max_bytes).await
        })
    }

    fn bytes(&self) -> u64 {
        self.shared.copy.file.bytes()
    }

    fn in_memory(&self) -> InMemory {
        self.shared.copy.file.in_memory()
    }

    fn confirmed_at(&self) -> Option<Instant> {
        Some(self.shared.confirmed_at())
    }

    fn close(&self) {
        self.shared.close();
        self.join();
        self.shared.copy.file.close();
    }
}

impl Drop for EtcdLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for EtcdLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdLog").field("claim", &self.shared.claim).finish_non_exhaustive()
    }
}
