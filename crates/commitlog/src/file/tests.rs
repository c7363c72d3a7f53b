//! The file engine passes the conformance tests; these are the tests of what is its own.

mod crash;
mod faults;
mod inspect;
mod kill;
mod spilled;

use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cluster::ids::{ClusterId, Epoch, Version};
use cluster::record::{Record, RecordBuilder};

use faults::FullDisk;

use super::disk::{Disk, RealDisk};
use super::{FileLog, Origin, Sizes};
use crate::conformance::{CLUSTER, PATIENCE, Subject, block_on, conformance, identity, record, record_of};
use crate::{LogEngine, LogError, LogFailure, Notices, Recovered};

/// A new log of the tests' cluster begins here.
const BEGINNING: Origin = Origin { cluster: CLUSTER, first: Version(1) };
pub(crate) const TINY: Sizes = Sizes { segment_bytes: 2048, ring_bytes: 0 };

/// A folder that goes away with the test.
pub(crate) struct Folder(PathBuf);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

/// A log in files with tiny segments, whose notices are dropped.
pub(crate) fn open_file_log(dir: &Path) -> (FileLog, Recovered) {
    let (log, recovered) = FileLog::open_at(dir, BEGINNING, TINY).unwrap();
    log.start(Notices { durable: Box::new(|_| {}), failed: Box::new(|failure| panic!("{failure}")) })
        .unwrap();
    (log, recovered)
}

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("onecopy-log-{}-{n}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Holds one segment with these bytes, which begins with version 1.
    fn with_segment(bytes: &[u8]) -> Self {
        let folder = Self::new();
        fs::write(folder.segment(1), bytes).unwrap();
        folder
    }

    fn segment(&self, first: u64) -> PathBuf {
        super::segment::path_of(&self.0, Version(first))
    }

    fn segments(&self) -> Vec<u64> {
        super::segment::list(&self.0).unwrap().into_iter().map(|v| v.0).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A log that runs, and what it has reported.
struct Running {
    log: Arc<FileLog>,
    recovered: Recovered,
    durable: Receiver<Version>,
    failed: Receiver<LogFailure>,
}

impl Running {
    fn open(dir: &Path, sizes: Sizes, disk: impl Disk + 'static) -> Result<Self, LogError> {
        let (log, recovered) = FileLog::open_with(dir, BEGINNING, sizes, Box::new(disk))?;
        let (durable_to, durable) = mpsc::channel();
        let (failed_to, failed) = mpsc::channel();
        log.start(Notices {
            durable: Box::new(move |version| durable_to.send(version).unwrap_or(())),
            failed: Box::new(move |failure| failed_to.send(failure).unwrap_or(())),
        })?;
        Ok(Self { log: Arc::new(log), recovered, durable, failed })
    }

    fn wait_for(&self, version: u64) {
        while self.log.durable() < Version(version) {
            self.durable.recv_timeout(PATIENCE).expect("the version becomes durable");
        }
    }

    fn read_from(&self, version: Version, max_bytes: usize) -> Result<Vec<Arc<Record>>, LogError> {
        block_on(self.log.read_from(version, max_bytes))
    }

    fn trim(&self, upto: Version) -> Result<Version, LogError> {
        block_on(self.log.trim(upto))
    }

    /// Appends and waits, so that each record is a batch of its own.
    fn append_and_wait(&self, version: u64, payload_bytes: usize) {
        self.log.append(record(version, payload_bytes));
        self.wait_for(version);
    }

    /// Everything from `from` on, read in many small steps and checked.
    fn read_all(&self, from: u64, max_bytes: usize) -> Vec<Arc<Record>> {
        let mut all: Vec<Arc<Record>> = Vec::new();
        loop {
            let next = all.last().map_or(Version(from), |record| record.header().last.next());
            let records = self.read_from(next, max_bytes).unwrap();
            if records.is_empty() {
                return all;
            }
            all.extend(records);
        }
    }
}

/// For what is about the files alone: a simulated crash needs no disk that keeps its word.
struct QuickDisk;

impl Disk for QuickDisk {
    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        RealDisk.write(file, slices, offset)
    }

    fn sync(&mut self, _file: &File) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
        RealDisk.allocate(file, len_bytes)
    }
}

/// What a gated disk has seen, and when it lets a synchronisation pass.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    moved: Condvar,
}

#[derive(Default)]
struct GateState {
    /// How many more synchronisations may pass; None means all.
    passes: Option<usize>,
    arrived: usize,
    /// The file as it was at each synchronisation.
    images: Vec<Vec<u8>>,
}

impl Gate {
    fn closed() -> Arc<Self> {
        let gate = Self::default();
        gate.state.lock().unwrap().passes = Some(0);
        Arc::new(gate)
    }

    fn let_pass(&self, more: usize) {
        let mut state = self.state.lock().unwrap();
        state.passes = state.passes.map(|passes| passes + more);
        self.moved.notify_all();
    }

    fn let_all_pass(&self) {
        self.state.lock().unwrap().passes = None;
        self.moved.notify_all();
    }

    fn wait_for_arrival(&self, n: usize) {
        let state = self.state.lock().unwrap();
        let (_state, timeout) = self.moved.wait_timeout_while(state, PATIENCE, |s| s.arrived < n).unwrap();
        assert!(!timeout.timed_out(), "synchronisation {n} is asked for");
    }

    fn last_image(&self) -> Vec<u8> {
        self.state.lock().unwrap().images.last().unwrap().clone()
    }
}

/// A disk whose synchronisations wait at a gate, except those of opening.
struct GatedDisk(Arc<Gate>);

impl Disk for GatedDisk {
    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        RealDisk.write(file, slices, offset)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        if std::thread::current().name() == Some("log-writer") {
            let mut state = self.0.state.lock().unwrap();
            state.arrived += 1;
            self.0.moved.notify_all();
            while state.passes == Some(0) {
                state = self.0.moved.wait(state).unwrap();
            }
            state.passes = state.passes.map(|passes| passes - 1);
            let len = file.metadata()?.len() as usize;
            let mut image = vec![0; len];
            std::os::unix::fs::FileExt::read_exact_at(file, &mut image, 0)?;
            state.images.push(image);
        }
        RealDisk.sync(file)
    }

    fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
        RealDisk.allocate(file, len_bytes)
    }
}

/// The file engine as a subject of the conformance tests: small segments, and a disk that can be full.
#[derive(Default)]
pub(crate) struct Files {
    folder: Folder,
    is_full: Arc<AtomicBool>,
}

impl Files {
    /// As if a file had been deleted by hand.
    pub(crate) fn lose_spilled_rows(&self) {
        for path in spilled::files(&self.folder) {
            fs::remove_file(path).unwrap();
        }
    }
}

impl Subject for Files {
    const PATIENCE: Duration = PATIENCE;

    fn open(&self) -> (Box<dyn LogEngine>, Recovered) {
        let (sizes, disk) =
            (Sizes { segment_bytes: 2048, ring_bytes: 1000 }, FullDisk(Arc::clone(&self.is_full)));
        let (log, recovered) = FileLog::open_with(&self.folder.0, BEGINNING, sizes, Box::new(disk)).unwrap();
        (Box::new(log), recovered)
    }

    fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}

conformance!(Files);

#[test]
fn what_was_appended_is_there_after_opening_again() {
    let folder = Folder::new();
    let dir = folder.0.join("made");
    {
        let running = Running::open(&dir, Sizes::default(), RealDisk).unwrap();
        assert_eq!(running.recovered.last, Version::ZERO);
        assert!(running.recovered.begun);
        assert_eq!(running.log.first_retained(), Version(1));
        assert_eq!(running.read_from(Version(1), 1000).unwrap(), vec![]);
        for version in 1..=50 {
            running.log.append(record(version, 40));
        }
        running.wait_for(50);
    }
    let running = Running::open(&dir, Sizes::default(), RealDisk).unwrap();
    let recovered = &running.recovered;
    assert_eq!(recovered.last, Version(50));
    assert_eq!(recovered.last_epoch, Epoch(7));
    assert!(!recovered.was_torn);
    assert!(!recovered.begun);
    let expected: Vec<_> = (1..=50).map(|v| (identity(v), Version(v))).collect();
    assert_eq!(recovered.identities, expected);
    running.append_and_wait(51, 0);
    let all = running.read_all(1, 300);
    let expected: Vec<_> = (1..=50).map(|v| record(v, 40)).chain([record(51, 0)]).collect();
    assert_eq!(all, expected);
}

#[test]
fn queued_records_are_written_when_the_log_is_closed() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    for version in 1..=200 {
        running.log.append(record(version, 30));
    }
    running.log.close();
    assert_eq!(running.log.durable(), Version(200));
    running.log.append(record(201, 30));
    drop(running);
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    assert_eq!(running.recovered.last, Version(200));
}

#[test]
fn segments_roll_are_read_across_and_are_trimmed() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    for version in 1..=60 {
        // Now and then a record that needs a segment of its own.
        running.log.append(record(version, if version % 20 == 0 { 5000 } else { 100 }));
    }
    running.wait_for(60);
    let segments = folder.segments();
    assert!(segments.len() > 6, "{segments:?}");
    for from in [1, 2, 19, 20, 21, 59, 60] {
        let read = running.read_all(from, 700);
        let versions: Vec<_> = read.iter().map(|record| record.header().first.0).collect();
        assert_eq!(versions, (from..=60).collect::<Vec<_>>());
    }
    assert_eq!(running.read_from(Version(61), 700).unwrap(), vec![]);
    assert_eq!(running.read_from(Version(20), 1).unwrap(), vec![record(20, 5000)]);

    assert_eq!(running.trim(Version(segments[2] - 2)).unwrap(), Version(segments[1]));
    assert_eq!(running.trim(Version(segments[2] - 1)).unwrap(), Version(segments[2]));
    assert_eq!(folder.segments(), segments[2..]);
    let error = running.read_from(Version(segments[2] - 1), 700).unwrap_err();
    assert!(matches!(error, LogError::Trimmed { first_retained, .. } if first_retained.0 == segments[2]));
    assert_eq!(running.trim(Version(60)).unwrap(), Version(*segments.last().unwrap()));
    drop(running);
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    assert_eq!(running.recovered.last, Version(60));
    assert_eq!(running.log.first_retained(), Version(*segments.last().unwrap()));
    assert_eq!(folder.segments(), segments[segments.len() - 1..]);
}

#[test]
fn one_synchronisation_serves_all_that_wait() {
    struct SlowDisk(Arc<AtomicUsize>);
    impl Disk for SlowDisk {
        fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
            RealDisk.write(file, slices, offset)
        }
        fn sync(&mut self, file: &File) -> io::Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
            RealDisk.sync(file)
        }
        fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
            RealDisk.allocate(file, len_bytes)
        }
    }
    let folder = Folder::new();
    let syncs = Arc::new(AtomicUsize::new(0));
    let running = Running::open(&folder.0, Sizes::default(), SlowDisk(Arc::clone(&syncs))).unwrap();
    let before = syncs.load(Ordering::Relaxed);
    let begun = std::time::Instant::now();
    for version in 1..=5000 {
        running.log.append(record(version, 200));
    }
    running.wait_for(5000);
    let used = syncs.load(Ordering::Relaxed) - before;
    // One can begin every 5 ms while the records are being made; then one or two are left.
    let most = begun.elapsed().as_millis() as usize / 5 + 2;
    assert!(used <= most && used < 1000, "{used} synchronisations for 5000 records");
}

#[test]
fn a_batch_is_what_waited_during_the_synchronisation() {
    let folder = Folder::new();
    let gate = Gate::closed();
    let running = Running::open(&folder.0, Sizes::default(), GatedDisk(Arc::clone(&gate))).unwrap();
    running.log.append(record(1, 10));
    gate.wait_for_arrival(1);
    for version in 2..=3000 {
        running.log.append(record(version, 10));
    }
    assert_eq!(running.log.durable(), Version::ZERO, "nothing is durable before the disk says so");
    assert!(matches!(running.durable.try_recv(), Err(mpsc::TryRecvError::Empty)));
    gate.let_pass(2);
    running.wait_for(3000);
    assert_eq!(gate.state.lock().unwrap().arrived, 2);
    gate.let_all_pass();
    drop(running);
}

#[test]
fn the_queue_says_when_it_is_full() {
    let folder = Folder::new();
    let gate = Gate::closed();
    let running = Running::open(&folder.0, Sizes::default(), GatedDisk(Arc::clone(&gate))).unwrap();
    running.log.append(record(1, 10));
    gate.wait_for_arrival(1);
    let mut version = 1;
    while running.log.has_room() {
        version += 1;
        running.log.append(record(version, 4 << 20));
        assert!(version < 30, "the limit is 64 MiB");
    }
    assert_eq!(version, 17);
    gate.let_all_pass();
    running.wait_for(version);
    assert!(running.log.has_room());
}

#[test]
fn readers_follow_the_writer_from_memory_and_from_the_file() {
    for ring_bytes in [0, 3000, 64 << 20] {
        let folder = Folder::new();
        let sizes = Sizes { segment_bytes: 16 << 10, ring_bytes };
        let running = Running::open(&folder.0, sizes, RealDisk).unwrap();
        let log = Arc::clone(&running.log);
        let reader = std::thread::spawn(move || {
            let mut next = 1;
            while next <= 3000 {
                for read in block_on(log.read_from(Version(next), 5000)).unwrap() {
                    assert_eq!(*read, *record(next, (next % 300) as usize));
                    next += 1;
                }
                block_on(log.trim(Version(next.saturating_sub(200)))).unwrap();
            }
        });
        for version in 1..=3000 {
            running.log.append(record(version, (version % 300) as usize));
        }
        reader.join().unwrap();
    }
}

#[test]
fn other_accounts_cannot_read_the_log() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o755)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let dir = folder.0.join("log");
    let (log, _) = FileLog::open(&dir, CLUSTER).unwrap();
    drop(log);
    assert_eq!(mode(&dir), 0o700);
    for entry in fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    drop(FileLog::open(&dir, CLUSTER).unwrap());
    assert_eq!(mode(&dir), 0o700, "an older version made it readable");
}
