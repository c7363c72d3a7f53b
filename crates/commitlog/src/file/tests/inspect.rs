//! Promise: whatever is wrong with a log, a reader names the file and the place, reads all the rest, and changes nothing.

use super::*;
use crate::error::Damage;
use crate::{Found, inspect};
use cluster::ids::DatabaseId;

/// The findings, in a form that is easy to compare.
#[derive(Default, Debug)]
struct Report {
    versions: Vec<u64>,
    segments: Vec<(u64, u64, bool)>,
    damages: Vec<String>,
}

fn report(dir: &Path) -> Report {
    let mut report = Report::default();
    let inspected = inspect(dir, &mut |found| match found {
        Found::Record { record, contents, .. } => {
            assert_eq!(contents.rows[&DatabaseId::FIRST.table(0x0303_0303)].inserted, 1);
            report.versions.push(record.header().last.0);
        }
        Found::Damage(damage) => report.damages.push(damage.to_string()),
        Found::Segment { first, last, is_torn, .. } => report.segments.push((first.0, last.0, is_torn)),
    })
    .unwrap();
    assert_eq!(inspected.damages, report.damages.len() as u64);
    report
}

/// Eight records of a size of which two fit into a segment.
fn four_segments() -> Folder {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    (1..=8).for_each(|version| running.append_and_wait(version, 700));
    running.log.close();
    assert_eq!(folder.segments(), [1, 3, 5, 7]);
    folder
}

fn bytes_of_all(folder: &Folder) -> Vec<Vec<u8>> {
    folder.segments().iter().map(|&first| fs::read(folder.segment(first)).unwrap()).collect()
}

#[test]
fn a_whole_log_is_read_to_its_end() {
    let folder = four_segments();
    let before = bytes_of_all(&folder);
    let report = report(&folder.0);
    assert_eq!(report.versions, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(report.segments, [(1, 2, false), (3, 4, false), (5, 6, false), (7, 8, false)]);
    assert!(report.damages.is_empty(), "{report:?}");
    assert_eq!(bytes_of_all(&folder), before, "nothing is changed");
}

#[test]
fn damage_is_named_and_the_rest_is_read() {
    let folder = four_segments();
    let path = folder.segment(3);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.len() - 100;
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = report(&folder.0);
    assert_eq!(report.versions, [1, 2, 3, 5, 6, 7, 8]);
    let [damage] = report.damages.as_slice() else { panic!("{report:?}") };
    // The place that a person is told is the one at which opening the log is refused.
    let refused = FileLog::open_with(&folder.0, BEGINNING, TINY, Box::new(QuickDisk)).err().unwrap();
    assert_eq!(*damage, refused.to_string());
    assert!(damage.contains(&path.display().to_string()) && damage.contains("version 4"), "{damage}");
}

#[test]
fn a_missing_segment_and_a_torn_end_are_told_apart_from_damage() {
    let folder = four_segments();
    let path = folder.segment(7);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    bytes.resize(end.max(1900) + 40, 0);
    // Behind the last mark lies the beginning of a record that was never durable.
    bytes[end..end + 20].copy_from_slice(&record(9, 700).bytes()[..20]);
    fs::write(&path, bytes).unwrap();
    fs::remove_file(folder.segment(5)).unwrap();
    let report = report(&folder.0);
    assert_eq!(report.versions, [1, 2, 3, 4, 7, 8]);
    assert_eq!(report.segments.last(), Some(&(7, 8, true)));
    let [damage] = report.damages.as_slice() else { panic!("{report:?}") };
    assert!(damage.contains("segment with version 5 is missing"), "{damage}");
}

#[test]
fn a_log_in_use_is_read_and_said_to_be() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    running.append_and_wait(1, 10);
    let mut seen = 0;
    let inspected = inspect(&folder.0, &mut |found| {
        seen += u32::from(matches!(found, Found::Record { .. }));
    })
    .unwrap();
    assert_eq!((seen, inspected.is_in_use, inspected.cluster), (1, true, Some(CLUSTER)));
    drop(running);
    let inspected = inspect(&folder.0, &mut |_| {}).unwrap();
    assert!(!inspected.is_in_use);
}

#[test]
fn a_damaged_file_of_rows_is_named() {
    let folder = Folder::new();
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_insert(DatabaseId::FIRST.table(0x0303_0303), &[1; 200]).unwrap();
    let chunk = builder.spill().unwrap();
    let header = *record(1, 1).header();
    let running = Running::open(&folder.0, TINY, QuickDisk).unwrap();
    let mut file = running.log.shared.spills.create_file(header.identity).unwrap();
    file.append(&chunk).unwrap();
    file.finish().unwrap();
    running.log.append(Arc::new(builder.finish(header)));
    running.wait_for(1);
    running.append_and_wait(2, 10);
    running.log.close();
    assert_eq!(report(&folder.0).versions, [1, 2]);
    let path = running.log.shared.spills.path(header.identity);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = report(&folder.0);
    assert_eq!(report.versions, [2]);
    assert!(report.damages[0].contains(&path.display().to_string()), "{report:?}");
    assert!(!report.damages[0].contains(&Damage::SpillMissing.to_string()));
}
