//! The tests that every engine has to pass. They see a log only through [`LogEngine`].
//!
//! An engine joins by a [`Subject`] and the line `conformance!(ItsSubject);` among its tests. An engine that is broken in one
//! way at a time ([`broken`]) shows that each test notices the fault that it is about.

mod broken;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use cluster::ids::{ClusterId, DatabaseId, Epoch, Identity, Nonce, ServiceId, Version};
use cluster::record::{Change, Header, Record, RecordBuilder};

use crate::{LogEngine, LogError, LogFailure, Notices, Recovered};

pub(crate) const CLUSTER: ClusterId = ClusterId(0x5eed);
/// Long enough that only a test which fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// Runs a future of an engine to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn identity(version: u64) -> Identity {
    Identity { epoch: Epoch(7), n: version * 10, nonce: Nonce(0xabc) }
}

fn header(cluster: ClusterId, version: u64) -> Header {
    Header {
        cluster,
        identity: identity(version),
        first: Version(version),
        last: Version(version),
        database: DatabaseId::FIRST,
        service: ServiceId(0),
    }
}

/// A record whose content follows from its version.
pub(crate) fn record_of(cluster: ClusterId, version: u64, payload_bytes: usize) -> Arc<Record> {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder
        .push_insert(DatabaseId::FIRST.table(0x0303_0303), &vec![version as u8 | 1; payload_bytes])
        .unwrap();
    Arc::new(builder.finish(header(cluster, version)))
}

pub(crate) fn record(version: u64, payload_bytes: usize) -> Arc<Record> {
    record_of(CLUSTER, version, payload_bytes)
}

/// Some kind of engine, and where one keeps its data.
pub(crate) trait Subject: Default {
    /// How long a test waits for what must happen.
    const PATIENCE: Duration;

    /// Opens the log, or opens it again after the former engine was dropped. It must keep a few records in memory at most, so
    /// that readers meet what is not.
    fn open(&self) -> (Box<dyn LogEngine>, Recovered);

    /// From now on the storage has no room for records, or has room again.
    fn set_full(&self, is_full: bool);
}

/// An engine that runs, and what it has reported.
struct Running {
    engine: Arc<dyn LogEngine>,
    recovered: Recovered,
    durable: Receiver<Version>,
    failed: Receiver<LogFailure>,
    patience: Duration,
}

impl Running {
    fn open<S: Subject>(subject: &S) -> Self {
        let (engine, recovered) = subject.open();
        let (durable_to, durable) = mpsc::channel();
        let (failed_to, failed) = mpsc::channel();
        engine
            .start(Notices {
                durable: Box::new(move |version| durable_to.send(version).unwrap_or(())),
                failed: Box::new(move |failure| failed_to.send(failure).unwrap_or(())),
            })
            .unwrap();
        Self { engine: engine.into(), recovered, durable, failed, patience: S::PATIENCE }
    }

    fn append(&self, versions: impl IntoIterator<Item = u64>) {
        versions.into_iter().for_each(|version| self.engine.append(record(version, payload_bytes(version))));
    }

    fn wait_until(&self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + self.patience;
        while !is_so() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn wait_for(&self, version: u64) {
        self.wait_until("the version becomes durable", || self.engine.durable() >= Version(version));
    }

    fn read_from(&self, version: u64, max_bytes: usize) -> Result<Vec<Arc<Record>>, LogError> {
        block_on(self.engine.read_from(Version(version), max_bytes))
    }

    /// Reads piece by piece, and checks that these are exactly the records `from..=last`.
    fn must_read(&self, from: u64, last: u64) {
        let mut next = from;
        while next <= last {
            let piece = self.read_from(next, PIECE_BYTES).unwrap();
            assert!(!piece.is_empty(), "version {next} can be read");
            for read in &piece {
                assert_eq!(
                    **read,
                    *record(next, payload_bytes(next)),
                    "version {next} is as it was appended"
                );
                next += 1;
            }
            let bytes: usize = piece.iter().map(|record| record.bytes().len()).sum();
            assert!(bytes <= PIECE_BYTES || piece.len() == 1, "{bytes} bytes at once");
        }
        assert_eq!(next, last + 1, "nothing is read that is not durable");
        assert_eq!(self.read_from(next, PIECE_BYTES).unwrap(), vec![]);
    }

    fn close(self) {
        self.engine.close();
        assert!(self.failed.try_recv().is_err(), "the log has not failed");
    }
}

const PIECE_BYTES: usize = 700;

/// Different from record to record; now and then a large one.
fn payload_bytes(version: u64) -> usize {
    if version.is_multiple_of(20) { 5_000 } else { 40 + version as usize * 7 % 200 }
}

/// Records come back in version order, as they were appended, in pieces of the size that is asked for.
pub(crate) fn records_are_read_in_order<S: Subject>() {
    let subject = S::default();
    let running = Running::open(&subject);
    assert!(running.recovered.begun);
    assert_eq!((running.recovered.last, running.engine.durable()), (Version::ZERO, Version::ZERO));
    assert_eq!(running.engine.first_retained(), Version(1));
    assert_eq!(running.read_from(1, PIECE_BYTES).unwrap(), vec![]);
    running.append(1..=60);
    running.wait_for(60);
    for from in [1, 2, 19, 20, 21, 59, 60, 61] {
        running.must_read(from, 60);
    }
    assert_eq!(
        running.read_from(20, 1).unwrap().len(),
        1,
        "a record that is larger than asked for comes alone"
    );
    // A version can be read before it is reported.
    let mut reported = Vec::new();
    while reported.last() != Some(&Version(60)) {
        reported.push(running.durable.recv_timeout(running.patience).unwrap());
    }
    assert!(reported.is_sorted(), "{reported:?}");
    running.close();
}

/// What was durable, or queued at the close, is there when the log is opened again.
pub(crate) fn records_outlive_the_engine<S: Subject>() {
    let subject = S::default();
    let running = Running::open(&subject);
    running.append(1..=50);
    running.close();
    for last in [50, 51, 52] {
        let running = Running::open(&subject);
        let recovered = &running.recovered;
        assert_eq!((recovered.last, recovered.last_epoch), (Version(last), Epoch(7)));
        assert!(!recovered.begun && !recovered.was_torn);
        let identities: Vec<_> = (1..=last).map(|v| (identity(v), Version(v))).collect();
        assert_eq!(recovered.identities, identities);
        assert_eq!(running.engine.durable(), Version(last));
        running.must_read(1, last);
        running.append([last + 1]);
        running.wait_for(last + 1);
        running.close();
    }
}

/// After the close a record is dropped: it is neither durable then nor later.
pub(crate) fn a_closed_log_takes_nothing<S: Subject>() {
    let subject = S::default();
    let running = Running::open(&subject);
    running.append(1..=3);
    running.engine.close();
    running.append([4]);
    assert_eq!(running.engine.durable(), Version(3));
    running.must_read(1, 3);
    running.close();
    assert_eq!(Running::open(&subject).recovered.last, Version(3));
}

/// A reader that follows the writer sees each version once it is durable, and none before; trimming behind it does no harm.
pub(crate) fn readers_follow_the_writer<S: Subject>() {
    const LAST: u64 = 2_000;
    let subject = S::default();
    let running = Running::open(&subject);
    let (engine, has_ended) = (Arc::clone(&running.engine), Arc::new(AtomicBool::new(false)));
    let (ended, patience) = (Arc::clone(&has_ended), running.patience);
    let reader = std::thread::spawn(move || {
        let deadline = Instant::now() + patience;
        let mut next = 1;
        while next <= LAST && Instant::now() < deadline {
            let durable = engine.durable().0;
            let piece = block_on(engine.read_from(Version(next), PIECE_BYTES)).unwrap();
            assert!(!piece.is_empty() || durable < next, "version {next} is durable and cannot be read");
            for read in piece {
                assert_eq!(*read, *record(next, payload_bytes(next)));
                assert!(
                    read.header().last <= engine.durable(),
                    "version {next} is read before it is durable"
                );
                next += 1;
            }
            block_on(engine.trim(Version(next.saturating_sub(200)))).unwrap();
        }
        ended.store(true, Ordering::Release);
        next - 1
    });
    for version in 1..=LAST {
        running.append([version]);
        // The reader ends early only where it fails.
        if has_ended.load(Ordering::Acquire) || reader.is_finished() {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(reader.join().unwrap(), LAST);
    running.close();
}

/// Trimming deletes nothing that is needed, and says what is left; what is gone is not taken for the end of the log.
pub(crate) fn trimming_keeps_what_is_needed<S: Subject>() {
    let subject = S::default();
    let running = Running::open(&subject);
    running.append(1..=60);
    running.wait_for(60);
    // Trimming waits until the files are complete.
    assert_eq!(block_on(running.engine.trim(Version::ZERO)).unwrap(), Version(1), "version 1 is needed");
    let bytes = running.engine.bytes();
    let first = block_on(running.engine.trim(Version(30))).unwrap();
    assert!(first > Version(1), "something is trimmed");
    assert!(first <= Version(31), "version 31 is not kept");
    assert_eq!(running.engine.first_retained(), first);
    assert!(running.engine.bytes() < bytes);
    running.must_read(first.0, 60);
    let error = running.read_from(first.0 - 1, PIECE_BYTES).unwrap_err();
    assert!(matches!(error, LogError::Trimmed { first_retained, .. } if first_retained == first), "{error}");
    // Small enough already.
    let limit = running.engine.bytes();
    assert_eq!(block_on(running.engine.shrink(Version(60), limit)).unwrap(), first);
    let shrunk = block_on(running.engine.shrink(Version(60), limit - 1)).unwrap();
    assert!(shrunk > first, "{shrunk}");
    running.close();
    let running = Running::open(&subject);
    assert_eq!((running.recovered.last, running.engine.first_retained()), (Version(60), shrunk));
    running.must_read(shrunk.0, 60);
    running.append([61]);
    running.wait_for(61);
    running.close();
}

/// A log without room refuses, keeps what was appended waiting, and goes on when there is room.
pub(crate) fn a_full_log_refuses_until_there_is_room<S: Subject>() {
    let subject = S::default();
    let running = Running::open(&subject);
    running.append([1]);
    running.wait_for(1);
    assert_eq!(running.engine.refusal(), None);
    subject.set_full(true);
    running.append(2..=40);
    running.wait_until("a full log refuses", || running.engine.refusal().is_some());
    assert_eq!(running.engine.durable(), Version(1), "nothing is durable that found no room");
    running.must_read(1, 1);
    subject.set_full(false);
    running.wait_for(40);
    running.wait_until("the refusal ends", || running.engine.refusal().is_none());
    running.must_read(1, 40);
    assert!(running.failed.try_recv().is_err(), "a full log has not failed");
    running.close();
}

/// The rows that [`spill`] puts beside a record, one chunk each, and the last one in the record.
pub(crate) const SPILLED_ROWS: [&[u8]; 4] = [b"first", b"second", b"third", b"last"];

/// A record with spilled rows.
pub(crate) fn spill(engine: &dyn LogEngine, version: u64) -> Arc<Record> {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let mut writer = block_on(engine.spills().create(identity(version))).unwrap();
    let (last, others) = SPILLED_ROWS.split_last().unwrap();
    for row in others {
        builder.push_insert(DatabaseId::FIRST.table(7), row).unwrap();
        block_on(writer.append(builder.spill().unwrap())).unwrap();
    }
    block_on(writer.finish()).unwrap();
    builder.push_insert(DatabaseId::FIRST.table(7), last).unwrap();
    Arc::new(builder.finish(header(CLUSTER, version)))
}

pub(crate) fn rows_of(engine: &dyn LogEngine, record: &Arc<Record>) -> Result<Vec<Vec<u8>>, LogError> {
    block_on(async {
        let mut rows = Vec::new();
        let mut take = |changes: cluster::record::RowChanges<'_>| {
            rows.extend(changes.map(|row| match row.change {
                Change::Insert { new } => new.to_vec(),
                other => panic!("{other:?}"),
            }));
        };
        let mut reader = engine.spills().open(Arc::clone(record)).await?;
        while let Some(chunk) = reader.next_chunk().await? {
            take(chunk.row_changes());
        }
        take(record.row_changes());
        Ok(rows)
    })
}

/// Spilled rows live as long as their record, and no longer.
pub(crate) fn spilled_rows_live_as_long_as_their_record<S: Subject>() {
    let subject = S::default();
    let running = Running::open(&subject);
    let kept = spill(&*running.engine, 1);
    running.engine.append(Arc::clone(&kept));
    running.append([2]);
    running.wait_for(2);
    // One transaction is rolled back after it was finished, one before; a third has no time for either.
    let rolled_back = spill(&*running.engine, 3);
    block_on(running.engine.spills().remove(identity(3))).unwrap();
    drop(block_on(running.engine.spills().create(identity(4))).unwrap());
    let orphan = spill(&*running.engine, 5);
    running.close();
    let running = Running::open(&subject);
    assert_eq!(running.recovered.last, Version(2));
    let read = running.read_from(1, 1).unwrap();
    assert_eq!(rows_of(&*running.engine, &read[0]).unwrap(), SPILLED_ROWS);
    for gone in [rolled_back, orphan] {
        assert!(matches!(rows_of(&*running.engine, &gone), Err(LogError::Damaged { .. })));
    }
    running.append(3..=60);
    running.wait_for(60);
    block_on(running.engine.trim(Version(59))).unwrap();
    assert!(rows_of(&*running.engine, &kept).is_err(), "they go with their record");
    running.close();
}

/// Makes a test of each of the checks above for a subject.
macro_rules! conformance {
    ($subject:ty) => {
        $crate::conformance::conformance!(
            $subject: records_are_read_in_order, records_outlive_the_engine, a_closed_log_takes_nothing,
            readers_follow_the_writer, trimming_keeps_what_is_needed, a_full_log_refuses_until_there_is_room,
            spilled_rows_live_as_long_as_their_record,
        );
    };
    ($subject:ty: $($check:ident),+ $(,)?) => {
        $(
            #[test]
            fn $check() {
                $crate::conformance::$check::<$subject>();
            }
        )+
    };
}
pub(crate) use conformance;
