//! A disk that fails, and a folder that is not as it should be.

use super::*;
use crate::error::Damage;

/// What a faulty disk refuses, from the n-th call on the writer's thread.
#[derive(Clone, Copy, PartialEq)]
enum Refuses {
    Write(usize),
    Sync(usize),
}

struct FaultyDisk {
    refuses: Refuses,
    writes: usize,
    syncs: usize,
}

impl FaultyDisk {
    fn new(refuses: Refuses) -> Self {
        Self { refuses, writes: 0, syncs: 0 }
    }
}

fn on_writer_thread() -> bool {
    std::thread::current().name() == Some("log-writer")
}

impl Disk for FaultyDisk {
    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        if on_writer_thread() {
            self.writes += 1;
            if self.refuses == Refuses::Write(self.writes) {
                return Err(io::Error::other("no such luck"));
            }
        }
        RealDisk.write(file, slices, offset)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        if on_writer_thread() {
            self.syncs += 1;
            // It fails once only: the next one would report success, as the kernel does.
            if self.refuses == Refuses::Sync(self.syncs) {
                return Err(io::Error::other("no such luck"));
            }
        }
        RealDisk.sync(file)
    }

    fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
        RealDisk.allocate(file, len_bytes)
    }
}

/// Appends until the log fails; returns the failure, and what was reported durable.
fn run_into(refuses: Refuses) -> (Folder, LogFailure, Version) {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, FaultyDisk::new(refuses)).unwrap();
    let mut version = 0;
    let failure = loop {
        version += 1;
        assert!(version < 100, "the log fails before that");
        running.log.append(record(version, 100));
        // Each by itself, however long the writer has to wait for the processor.
        let deadline = std::time::Instant::now() + PATIENCE;
        let failure = loop {
            match running.failed.recv_timeout(Duration::from_millis(1)) {
                Ok(failure) => break Some(failure),
                Err(_) if running.log.durable() >= Version(version) => break None,
                Err(_) => {
                    assert!(std::time::Instant::now() < deadline, "it is neither written nor does it fail");
                }
            }
        };
        if let Some(failure) = failure {
            break failure;
        }
    };
    let durable = running.log.durable();
    for _ in 0..20 {
        version += 1;
        running.log.append(record(version, 100));
    }
    running.log.close();
    assert_eq!(running.log.durable(), durable, "nothing is durable after a failure");
    assert!(running.durable.try_iter().all(|reported| reported <= durable));
    assert!(running.failed.try_recv().is_err(), "it fails once");
    assert!(running.read_from(durable.next(), 1000).unwrap().is_empty());
    (folder, failure, durable)
}

/// What was reported durable is there when the log is opened again.
fn opens_again(folder: &Folder, durable: Version) {
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    assert!(running.recovered.last >= durable);
    let next = running.recovered.last.next().0;
    running.append_and_wait(next, 10);
    assert_eq!(running.read_all(1, 1000).len() as u64, next);
}

#[test]
fn a_failed_synchronisation_is_final() {
    for n in 1..=20 {
        let (folder, failure, durable) = run_into(Refuses::Sync(n));
        assert!(failure.to_string().contains("no such luck"), "{failure}");
        assert!(durable.0 < n as u64);
        opens_again(&folder, durable);
    }
}

#[test]
fn a_failed_write_is_final() {
    for n in 1..=20 {
        let (folder, failure, durable) = run_into(Refuses::Write(n));
        assert!(failure.to_string().contains("no such luck"), "{failure}");
        opens_again(&folder, durable);
    }
}

/// A disk that is full while the switch is on.
pub(super) struct FullDisk(pub(super) Arc<AtomicBool>);

impl FullDisk {
    fn room(&self) -> io::Result<()> {
        if on_writer_thread() && self.0.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error()));
        }
        Ok(())
    }
}

impl Disk for FullDisk {
    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        if self.room().is_err() {
            // A part of it is written before the disk is full.
            let first = &slices[0][..slices[0].len() / 2];
            RealDisk.write(file, &[IoSlice::new(first)], offset)?;
        }
        self.room()?;
        RealDisk.write(file, slices, offset)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        RealDisk.sync(file)
    }

    fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
        self.room()?;
        RealDisk.allocate(file, len_bytes)
    }
}

/// A log whose disk becomes full, with records that are not durable.
fn into_a_full_disk() -> (Folder, Running, Arc<AtomicBool>, u64) {
    let folder = Folder::new();
    let is_full = Arc::new(AtomicBool::new(false));
    let running = Running::open(&folder.0, TINY, FullDisk(Arc::clone(&is_full))).unwrap();
    running.append_and_wait(1, 100);
    is_full.store(true, Ordering::Relaxed);
    let last = 60;
    (2..=last).for_each(|version| running.log.append(record(version, 100)));
    let deadline = std::time::Instant::now() + PATIENCE;
    while running.log.refusal().is_none() {
        assert!(std::time::Instant::now() < deadline, "a full disk is never noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.log.durable(), Version(1), "nothing is durable that was not written");
    (folder, running, is_full, last)
}

#[test]
fn a_full_disk_is_waited_for() {
    let (folder, running, is_full, last) = into_a_full_disk();
    is_full.store(false, Ordering::Relaxed);
    running.wait_for(last);
    assert!(running.failed.try_recv().is_err(), "it is no failure");
    let deadline = std::time::Instant::now() + PATIENCE;
    while running.log.refusal().is_some() {
        assert!(std::time::Instant::now() < deadline, "that there is room again is never noticed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(folder.segments().len() > 1, "new segments were made as well");
    drop(running);
    opens_again(&folder, Version(last));
}

#[test]
fn a_log_is_closed_although_its_disk_is_full() {
    let (folder, running, _is_full, _last) = into_a_full_disk();
    running.log.close();
    let text = running.failed.recv_timeout(PATIENCE).unwrap().to_string();
    assert!(text.starts_with("no space left to"), "{text}");
    assert_eq!(running.log.durable(), Version(1));
    drop(running);
    opens_again(&folder, Version(1));
}

/// A log of several segments.
fn several_segments() -> Folder {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    for version in 1..=60 {
        running.log.append(record(version, 100));
    }
    drop(running);
    assert!(folder.segments().len() > 4);
    folder
}

#[test]
fn damage_in_an_earlier_segment_is_refused_even_at_its_very_end() {
    let folder = several_segments();
    let first = folder.segments()[1];
    let path = folder.segment(first);
    let image = fs::read(&path).unwrap();
    for at in (64..image.len() - 24).step_by(37).chain([image.len() - 25]) {
        let mut image = image.clone();
        image[at] ^= 4;
        fs::write(&path, image).unwrap();
        let error = FileLog::open(&folder.0, CLUSTER).err().expect("damage is refused");
        assert!(matches!(&error, LogError::Damaged { file, .. } if *file == path), "byte {at}: {error}");
    }
    fs::write(&path, &image[..image.len() - 30]).unwrap();
    let error = FileLog::open(&folder.0, CLUSTER).err().unwrap();
    assert!(matches!(error, LogError::Damaged { cause: Damage::Record(_) | Damage::Mark, .. }));
    fs::write(&path, &image).unwrap();
    FileLog::open(&folder.0, CLUSTER).unwrap();
}

#[test]
fn a_segment_that_is_gone_is_named() {
    let folder = several_segments();
    let segments = folder.segments();
    fs::remove_file(folder.segment(segments[2])).unwrap();
    let error = FileLog::open(&folder.0, CLUSTER).err().unwrap();
    assert!(
        matches!(error, LogError::MissingSegment { missing, next, .. }
            if missing.0 == segments[2] && next.0 == segments[3]),
        "{error}"
    );
}

#[test]
fn the_log_of_another_cluster_is_refused() {
    let folder = several_segments();
    let error = FileLog::open(&folder.0, ClusterId(9)).err().unwrap();
    assert!(matches!(error, LogError::ForeignCluster { found: CLUSTER, expected: ClusterId(9), .. }));
    // A segment of this cluster with a record of another one.
    let mut image = fs::read(folder.segment(1)).unwrap();
    let foreign = record_of(ClusterId(9), 1, 100);
    image[64..64 + foreign.bytes().len()].copy_from_slice(foreign.bytes());
    let folder = Folder::with_segment(&image);
    let error = FileLog::open(&folder.0, CLUSTER).err().unwrap();
    assert!(matches!(error, LogError::ForeignCluster { found: ClusterId(9), .. }));
}

#[test]
fn a_whole_record_at_the_wrong_place_is_damage_and_not_a_crash() {
    let folder = Folder::new();
    drop(Running::open(&folder.0, TINY, RealDisk).unwrap());
    let mut image = fs::read(folder.segment(1)).unwrap();
    let later = record(2, 100);
    image[64..64 + later.bytes().len()].copy_from_slice(later.bytes());
    fs::write(folder.segment(1), image).unwrap();
    let error = FileLog::open(&folder.0, CLUSTER).err().unwrap();
    assert!(matches!(
        error,
        LogError::Damaged { offset: 64, cause: Damage::OutOfOrder { found: Version(2) }, .. }
    ));
}

#[test]
fn a_second_process_is_kept_out() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    let error = FileLog::open(&folder.0, CLUSTER).err().unwrap();
    assert!(matches!(error, LogError::InUse { .. }), "{error}");
    drop(running);
    FileLog::open(&folder.0, CLUSTER).unwrap();
}

#[test]
fn damage_under_a_running_log_is_an_error_of_the_reader() {
    let folder = several_segments();
    let (log, _) = FileLog::open_with(&folder.0, BEGINNING, TINY, Box::new(RealDisk)).unwrap();
    let path = folder.segment(1);
    let mut image = fs::read(&path).unwrap();
    image[200] ^= 1;
    fs::write(&path, &image).unwrap();
    assert!(matches!(block_on(log.read_from(Version(1), 1 << 20)), Err(LogError::Damaged { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(block_on(log.read_from(Version(1), 1 << 20)), Err(LogError::Io { .. })));
}

#[test]
#[should_panic(expected = "without gaps")]
fn a_gap_in_the_versions_is_our_own_mistake() {
    let folder = Folder::new();
    let (log, _) = FileLog::open(&folder.0, CLUSTER).unwrap();
    log.append(record(2, 10));
}
