//! Whatever is lost on the way or arrives twice: nothing acknowledged is lost, nothing is there twice, and the order holds.
//!
//! Two nodes take turns over an etcd in memory that loses messages and repeats them. A node that was superseded goes on appending for a while.
//! Then all that etcd ever took is judged. A judge that never fires proves nothing, so each [`Mutant`] must be noticed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::ids::{DatabaseId, Epoch, Identity, Nonce, ServiceId, Version};
use cluster::record::{Header, Record, RecordBuilder};
use proptest::prelude::*;

use super::fake::{Fake, Faults, Mutant};
use super::{Chair, Claimed, EtcdChair, EtcdKeys, EtcdLog, Folder, LogFailure, copy_in, etcd_of, options};
use crate::conformance::{CLUSTER, block_on};
use crate::etcd::batch::BatchHeader;
use crate::etcd::sequencer::Pace;
use crate::{LogEngine, Notices};

const HASTY: Pace = Pace {
    first_deadline: Duration::from_millis(1),
    longest_deadline: Duration::from_millis(1),
    pause: Duration::from_micros(100),
    confirm_after: Duration::from_millis(1),
    close_patience: Duration::from_secs(20),
    trim_every: Duration::from_micros(500),
};
/// A superseded node learns so from its next append, and not from a question before it, however slow the machine.
const UNASKED: Pace = Pace { confirm_after: Duration::from_secs(5), ..HASTY };
const PATIENCE: Duration = Duration::from_mins(1);

/// A node in its term.
struct Term {
    log: EtcdLog,
    failed: Receiver<LogFailure>,
    number: u64,
    next: u64,
    /// Everything that it was told is durable.
    acknowledged: Arc<Mutex<Version>>,
    appended: BTreeMap<Version, Arc<Record>>,
}

fn record(term: u64, version: u64) -> Arc<Record> {
    let mut body = RecordBuilder::new(DatabaseId::FIRST);
    let row = vec![version as u8 | 1; 20 + (version % 50) as usize];
    body.push_insert(DatabaseId::FIRST.table(3), &row).unwrap();
    let identity = Identity { epoch: Epoch(term as u32), n: version, nonce: Nonce(term) };
    let version = Version(version);
    let (database, service) = (DatabaseId::FIRST, ServiceId(0));
    Arc::new(body.finish(Header {
        cluster: CLUSTER,
        identity,
        first: version,
        last: version,
        database,
        service,
    }))
}

impl Term {
    /// Tries until it leads; messages may be lost here as well.
    fn begin(etcd: &EtcdKeys, folder: &Folder, number: u64, pace: Pace) -> Result<Self, String> {
        let node = if number.is_multiple_of(2) { "a" } else { "b" };
        let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), node, "");
        let deadline = Instant::now() + PATIENCE;
        let (log, recovered) = loop {
            if Instant::now() > deadline {
                return Err("no term begins".into());
            }
            let Ok(reading) = chair.read() else { continue };
            let Ok(Claimed::Won(claim)) = chair.claim(&reading, Epoch(0)) else { continue };
            let copy = copy_in(folder.path()).map_err(|error| error.to_string())?;
            match EtcdLog::open_with(etcd.clone(), claim, copy, &options(node), pace) {
                Ok(opened) => break opened,
                Err(error) if error.is_of_the_network() => {}
                Err(error) => return Err(format!("term {number} does not open: {error}")),
            }
        };
        let acknowledged = Arc::new(Mutex::new(recovered.last));
        let told = Arc::clone(&acknowledged);
        let (failed_to, failed) = mpsc::channel();
        let notices = Notices {
            durable: Box::new(move |upto| *told.lock().unwrap() = upto),
            failed: Box::new(move |failure| failed_to.send(failure).unwrap_or(())),
        };
        log.start(notices).map_err(|error| error.to_string())?;
        let next = recovered.last.0 + 1;
        Ok(Self { log, failed, number, next, acknowledged, appended: BTreeMap::new() })
    }

    fn append(&mut self, count: u64) {
        for _ in 0..count {
            let record = record(self.number, self.next);
            self.appended.insert(Version(self.next), Arc::clone(&record));
            self.log.append(record);
            self.next += 1;
        }
    }

    fn wait(&self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        while self.log.durable().next() < Version(self.next) {
            if let Ok(failure) = self.failed.try_recv() {
                return Err(format!("term {} fails while it leads: {failure}", self.number));
            }
            if Instant::now() > deadline {
                return Err("what was appended is never durable".into());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// The records that were acknowledged.
    fn acknowledged(&self) -> Vec<(Version, Arc<Record>)> {
        let upto = *self.acknowledged.lock().unwrap();
        self.appended.range(..=upto).map(|(version, record)| (*version, Arc::clone(record))).collect()
    }
}

/// The steps of one term.
#[derive(Clone, Debug)]
struct Course {
    batches: Vec<u64>,
    trims: bool,
    /// What it appends after it was superseded.
    afterwards: u64,
}

fn course() -> impl Strategy<Value = Course> {
    (proptest::collection::vec(1_u64..6, 1..6), any::<bool>(), 0_u64..4)
        .prop_map(|(batches, trims, afterwards)| Course { batches, trims, afterwards })
}

fn play(seed: u64, mutant: Option<Mutant>, pace: Pace, courses: &[Course]) -> Result<(), String> {
    let fake = Arc::new(Fake::with(seed, FAULTS, mutant));
    let etcd = etcd_of(Arc::clone(&fake) as Arc<_>);
    let folders = [Folder::new(), Folder::new()];
    let mut acknowledged: BTreeMap<Version, Arc<Record>> = BTreeMap::new();
    let mut before: Option<(Term, u64)> = None;
    for (number, course) in (0..).zip(courses) {
        // The files of the superseded node belong to the other folder.
        let mut term = Term::begin(&etcd, &folders[number as usize % 2], number, pace)?;
        if let Some((mut old, afterwards)) = before.take() {
            old.append(afterwards);
            term.append(1);
            term.wait()?;
            match old.failed.recv_timeout(PATIENCE) {
                Ok(LogFailure::Fenced { .. }) => {}
                other => return Err(format!("the old leader does not end as fenced: {other:?}")),
            }
            take(&mut acknowledged, old.acknowledged())?;
        }
        for count in &course.batches {
            term.append(*count);
            term.wait()?;
            if course.trims {
                let _ = block_on(term.log.trim(Version(term.next - 1)));
                // A node that reports nothing for a while does not hold it up here.
                let other = if number % 2 == 0 { "b" } else { "a" };
                fake.set(&etcd.keys.node(other), term.log.durable().0.to_string().as_bytes());
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        before = Some((term, course.afterwards));
    }
    let (last, _) = before.ok_or("no course")?;
    take(&mut acknowledged, last.acknowledged())?;
    fake.set_faults(Faults::default());
    drop(last);
    judge(&fake, &acknowledged)
}

fn take(all: &mut BTreeMap<Version, Arc<Record>>, new: Vec<(Version, Arc<Record>)>) -> Result<(), String> {
    for (version, record) in new {
        if let Some(other) = all.insert(version, Arc::clone(&record)).filter(|other| *other != record) {
            return Err(format!("version {version} was acknowledged twice: {other:?}"));
        }
    }
    Ok(())
}

/// All that etcd ever took: dense, nothing twice, and every acknowledged record in its place.
fn judge(fake: &Fake, acknowledged: &BTreeMap<Version, Arc<Record>>) -> Result<(), String> {
    let (mut log, mut identities) = (BTreeMap::new(), BTreeSet::new());
    let mut next = Version(1);
    for (key, value) in fake.history() {
        let header = BatchHeader::decode(&value).map_err(|error| error.to_string())?;
        for record in header.records(CLUSTER, &value, &[]).map_err(|error| error.to_string())? {
            if record.header().first != next {
                return Err(format!("{key} follows where version {next} should"));
            }
            next = record.header().last.next();
            if !identities.insert(record.header().identity) {
                return Err(format!("{} is there twice", record.header().identity));
            }
            log.insert(record.header().first, record);
        }
    }
    for (version, record) in acknowledged {
        if log.get(version) != Some(record) {
            return Err(format!("version {version} was acknowledged and is lost"));
        }
    }
    Ok(())
}

const FAULTS: Faults = Faults { lost_requests: 100, lost_answers: 150, late_duplicates: 250 };

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn nothing_acknowledged_is_lost_and_nothing_is_there_twice(
        seed: u64,
        courses in proptest::collection::vec(course(), 1..5),
    ) {
        if let Err(wrong) = play(seed, None, HASTY, &courses) {
            prop_assert!(false, "{}", wrong);
        }
    }
}

/// The first seed at which the judge notices the mutant.
fn must_be_noticed(mutant: Mutant) {
    let course = Course { batches: vec![3, 1, 2, 4], trims: true, afterwards: 3 };
    let courses = [course.clone(), course.clone(), course];
    let noticed = (1..200).find_map(|seed: u64| {
        play(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), Some(mutant), UNASKED, &courses).err()
    });
    assert!(noticed.is_some(), "{mutant:?} is not noticed");
}

#[test]
fn an_append_without_the_compare_of_the_claim_is_noticed() {
    must_be_noticed(Mutant::NoLead);
}

#[test]
fn an_append_without_the_compare_of_the_batch_before_is_noticed() {
    must_be_noticed(Mutant::NoPrevious);
}

#[test]
fn a_new_key_for_a_repeated_append_is_noticed() {
    must_be_noticed(Mutant::NewKey);
}
