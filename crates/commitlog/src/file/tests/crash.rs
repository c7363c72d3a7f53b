//! Crashes, simulated on copies of the files: at every byte of what was being written.

use super::*;
use crate::error::Damage;
use crate::file::segment::{MARK_BYTES, Mark, Place, SEGMENT_HEADER_BYTES};

const PAYLOAD_BYTES: usize = 20;

/// A segment as it is on the disk right after a batch of three records was written.
struct Scene {
    image: Vec<u8>,
    /// Where each of the records 1..=7 begins, and where the last ends.
    starts: Vec<usize>,
    /// Where the last batch begins, with its mark.
    batch_at: usize,
}

impl Scene {
    /// Versions 1 to 4 are batches of their own, 5 to 7 are one.
    fn new() -> Self {
        let folder = Folder::new();
        let gate = Gate::closed();
        let running = Running::open(&folder.0, TINY, GatedDisk(Arc::clone(&gate))).unwrap();
        gate.let_pass(3);
        for version in 1..=3 {
            running.append_and_wait(version, PAYLOAD_BYTES);
        }
        running.log.append(record(4, PAYLOAD_BYTES));
        gate.wait_for_arrival(4);
        for version in 5..=7 {
            running.log.append(record(version, PAYLOAD_BYTES));
        }
        gate.let_pass(2);
        running.wait_for(7);
        let image = gate.last_image();
        gate.let_all_pass();

        let len = record(1, PAYLOAD_BYTES).bytes().len();
        let mut starts = Vec::new();
        let mut at = SEGMENT_HEADER_BYTES as usize;
        for version in 1..=7 {
            // A mark stands before each batch but the first.
            at += if (2..=5).contains(&version) { MARK_BYTES } else { 0 };
            starts.push(at);
            at += len;
        }
        starts.push(at);
        let batch_at = starts[4] - MARK_BYTES;
        assert!(image[at..].iter().all(|byte| *byte == 0));
        assert!(image[at - 1] != 0);
        Self { image, starts, batch_at }
    }

    fn end(&self) -> usize {
        self.starts[7]
    }

    /// The last version that is whole in front of `offset`.
    fn last_before(&self, offset: usize) -> u64 {
        self.starts[1..].iter().filter(|end| **end <= offset).count() as u64
    }
}

/// Opens, checks what is there, appends, and checks that this is there as well when it is opened again.
fn opens_with(bytes: &[u8], last: u64, torn: bool) {
    let folder = Folder::with_segment(bytes);
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    assert_eq!(running.recovered.last, Version(last));
    assert_eq!(running.recovered.was_torn, torn);
    let identities: Vec<_> = (1..=last).map(|v| (identity(v), Version(v))).collect();
    assert_eq!(running.recovered.identities, identities);
    // Shorter than what was cut, so that a leftover would stand right behind it.
    running.append_and_wait(last + 1, 0);
    drop(running);
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    assert_eq!(running.recovered.last, Version(last + 1));
    assert!(!running.recovered.was_torn);
    let mut expected: Vec<_> = (1..=last).map(|v| record(v, PAYLOAD_BYTES)).collect();
    expected.push(record(last + 1, 0));
    assert_eq!(running.read_all(1, 1 << 20), expected);
}

#[test]
fn a_write_torn_at_any_byte_is_cut_off() {
    let scene = Scene::new();
    for at in scene.batch_at..=scene.end() {
        let mut image = scene.image.clone();
        image[at..].fill(0);
        let last = scene.last_before(at);
        let boundaries = [scene.batch_at, scene.starts[4], scene.starts[5], scene.starts[6], scene.end()];
        // A mark ends with zeros; where only those are lost, it is whole.
        let whole =
            boundaries.iter().any(|&end| end == at || (end > at && image[..end] == scene.image[..end]));
        opens_with(&image, last.max(4), !whole);
    }
}

#[test]
fn a_file_cut_short_at_any_byte_is_cut_off() {
    let scene = Scene::new();
    for at in scene.batch_at..=scene.end() {
        let folder = Folder::with_segment(&scene.image[..at]);
        let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
        let last = scene.last_before(at).max(4);
        assert_eq!(running.recovered.last, Version(last));
        running.append_and_wait(last + 1, 300);
        running.append_and_wait(last + 2, 300);
        drop(running);
        let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
        assert_eq!(running.recovered.last, Version(last + 2));
    }
}

#[test]
fn a_bad_byte_anywhere_in_the_last_batch_cuts_it_there() {
    let scene = Scene::new();
    for at in scene.batch_at..scene.end() {
        let mut image = scene.image.clone();
        image[at] ^= 0x10;
        opens_with(&image, scene.last_before(at).max(4), true);
    }
}

#[test]
fn records_behind_a_hole_of_the_last_batch_do_not_come_back() {
    let scene = Scene::new();
    // The kernel wrote the later pages of the batch first.
    for hole in [4, 5] {
        let mut image = scene.image.clone();
        image[scene.starts[hole]..scene.starts[hole + 1]].fill(0);
        opens_with(&image, hole as u64, true);
    }
}

#[test]
fn damage_at_any_byte_of_what_was_durable_is_refused() {
    let scene = Scene::new();
    for at in 0..scene.batch_at {
        let mut image = scene.image.clone();
        image[at] ^= 0x10;
        let folder = Folder::with_segment(&image);
        let error = Running::open(&folder.0, TINY, QuickDisk).err().expect("damage is refused");
        let place = if at < SEGMENT_HEADER_BYTES as usize {
            0
        } else {
            let piece_starts = scene.starts[..5].iter().flat_map(|&s| [s, s.saturating_sub(MARK_BYTES)]);
            piece_starts.filter(|start| *start <= at && *start != 40).max().unwrap() as u64
        };
        assert!(matches!(&error, LogError::Damaged { offset, .. } if *offset == place), "byte {at}: {error}");
        assert_eq!(fs::read(folder.segment(1)).unwrap(), image, "nothing was changed");
    }
    let mut image = scene.image.clone();
    image[scene.starts[1]..scene.starts[2]].fill(0);
    let folder = Folder::with_segment(&image);
    let error = Running::open(&folder.0, TINY, QuickDisk).err().unwrap();
    assert!(matches!(error, LogError::Damaged { version: Version(2), cause: Damage::EndsEarly, .. }));
}

#[test]
fn damage_in_the_last_batch_is_refused_once_the_writer_was_idle() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    for version in 1..=3 {
        running.append_and_wait(version, PAYLOAD_BYTES);
    }
    let record_bytes = record(1, PAYLOAD_BYTES).bytes().len();
    let end = SEGMENT_HEADER_BYTES as usize + 3 * record_bytes + 2 * MARK_BYTES;
    // The process is not asked to close the log: it could be killed now.
    let begun = std::time::Instant::now();
    let image = loop {
        let image = fs::read(folder.segment(1)).unwrap();
        if image[end..end + MARK_BYTES] != [0; MARK_BYTES] {
            break image;
        }
        assert!(begun.elapsed() < PATIENCE, "an idle writer leaves a mark");
        std::thread::yield_now();
    };
    for at in end - record_bytes..end {
        let mut image = image.clone();
        image[at] ^= 1;
        let folder = Folder::with_segment(&image);
        let error = Running::open(&folder.0, TINY, QuickDisk).err().expect("damage is refused");
        assert!(matches!(error, LogError::Damaged { version: Version(3), .. }), "byte {at}: {error}");
    }
}

#[test]
fn a_mark_that_a_client_stored_in_a_row_proves_nothing() {
    let scene = Scene::new();
    let at = scene.starts[4] + 200;
    let with_mark = |cluster, made_for: usize| {
        let place = Place { cluster, first: Version(1) };
        let mut image = scene.image.clone();
        image[scene.starts[4]..].fill(0);
        image[at..at + MARK_BYTES]
            .copy_from_slice(&Mark { durable: Version(9) }.encode(place, made_for as u64));
        image
    };
    opens_with(&with_mark(CLUSTER, at - 1), 4, true);
    opens_with(&with_mark(ClusterId(9), at), 4, true);
    // Only one that was made for this very place does.
    let folder = Folder::with_segment(&with_mark(CLUSTER, at));
    let error = Running::open(&folder.0, TINY, QuickDisk).err().unwrap();
    assert!(matches!(error, LogError::Damaged { version: Version(5), .. }), "{error}");
}

#[test]
fn a_segment_that_was_not_finished_is_deleted() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    running.append_and_wait(1, 10);
    drop(running);
    let unfinished = folder.segment(2).with_extension("log.new");
    fs::write(&unfinished, b"half a head").unwrap();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    assert_eq!(running.recovered.last, Version(1));
    assert!(!unfinished.exists());
}

#[test]
fn the_epoch_outlives_the_records_that_carried_it() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    running.append_and_wait(1, 1800);
    running.append_and_wait(2, 1800);
    assert_eq!(running.trim(Version(2)).unwrap(), Version(2));
    drop(running);
    // As after a crash between the making of the segment and its first record.
    let mut image = fs::read(folder.segment(2)).unwrap();
    image[SEGMENT_HEADER_BYTES as usize..].fill(0);
    fs::write(folder.segment(2), image).unwrap();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    assert_eq!(running.recovered.last, Version(1));
    assert_eq!(running.recovered.last_epoch, Epoch(7));
    assert_eq!(running.recovered.identities, vec![]);
}
