//! Spilled rows: kept exactly as long as their record, and damage of them is damage of the log.

use std::io::Write as _;

use cluster::record::Item;

use super::*;
use crate::error::Damage;
use cluster::ids::DatabaseId;

/// A record of which all rows but the last are in a file, one chunk each.
pub(super) fn spill(log: &FileLog, version: u64, rows: u64) -> Arc<Record> {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let mut file = None;
    for row in 0..rows {
        builder.push_insert(DatabaseId::FIRST.table(7), &[row as u8; 40]).unwrap();
        let chunk = builder.spill().unwrap();
        let file = file.get_or_insert_with(|| log.shared.spills.create_file(identity(version)).unwrap());
        file.append(&chunk).unwrap();
    }
    file.unwrap().finish().unwrap();
    builder.push_insert(DatabaseId::FIRST.table(7), b"last").unwrap();
    Arc::new(builder.finish(*record(version, 0).header()))
}

pub(super) fn files(folder: &Folder) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rows"));
    paths.sort();
    paths
}

pub(super) fn rows_of(log: &FileLog, record: &Record) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    let mut reader = log.shared.spills.open_file(record).unwrap();
    let mut take = |items: cluster::record::RowChanges<'_>| {
        rows.extend(items.map(|row| match row.change {
            cluster::record::Change::Insert { new } => new.to_vec(),
            other => panic!("{other:?}"),
        }));
    };
    while let Some(chunk) = reader.next_chunk().unwrap() {
        take(chunk.row_changes());
    }
    take(record.row_changes());
    rows
}

/// What [`spill`] has put into a record.
pub(super) fn spilled_rows(rows: u64) -> Vec<Vec<u8>> {
    (0..rows).map(|row| vec![row as u8; 40]).chain([b"last".to_vec()]).collect()
}

#[test]
fn a_file_lives_as_long_as_its_record() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    for version in 1..=4 {
        let record = spill(&running.log, version, version);
        running.log.append(record);
        running.wait_for(version);
    }
    running.append_and_wait(5, 10);
    assert_eq!(files(&folder).len(), 4);
    drop(running);
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    assert_eq!(running.recovered.last, Version(5));
    for record in running.read_all(1, 100).iter().take(4) {
        let version = record.header().last.0;
        assert_eq!(rows_of(&running.log, record), spilled_rows(version));
    }
    // Spilled rows go with their records, however little stands in the segments.
    running.trim(Version(2)).unwrap();
    assert_eq!(files(&folder).len(), 2);
    running.trim(Version(5)).unwrap();
    assert_eq!(files(&folder).len(), 0);
}

#[test]
fn what_no_record_names_is_deleted() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    let kept = spill(&running.log, 1, 3);
    running.log.append(kept);
    running.wait_for(1);
    // Finished, but killed before the append; and killed while it was written.
    spill(&running.log, 2, 3);
    let growing = running.log.shared.spills.create_file(identity(3)).unwrap();
    assert_eq!(files(&folder).len(), 3);
    drop(running);
    let copy = fs::read(&files(&folder)[2]).unwrap();
    // Its owner goes away: the file, too.
    drop(growing);
    assert_eq!(files(&folder).len(), 2);
    fs::write(folder.0.join("0000000007-00000000000000000030-0000000000000abc.rows"), copy).unwrap();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    assert_eq!(files(&folder).len(), 1);
    assert_eq!(running.read_all(1, 1000).len(), 1);
}

#[test]
fn damage_at_any_byte_of_a_file_is_refused() {
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    let spilled = spill(&running.log, 1, 3);
    running.log.append(Arc::clone(&spilled));
    running.wait_for(1);
    drop(running);
    let segment = fs::read(folder.segment(1)).unwrap();
    let path = files(&folder).pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let refused = || {
        let error = Running::open(&folder.0, TINY, QuickDisk).err().expect("damage is refused");
        assert!(
            matches!(&error, LogError::Damaged { file, version: Version(1), .. } if *file == path),
            "{error}"
        );
        assert_eq!(fs::read(folder.segment(1)).unwrap(), segment, "nothing was changed");
        error
    };
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        refused();
    }
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        refused();
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(refused(), LogError::Damaged { cause: Damage::SpillMissing, .. }));
    // The file of another transaction in its place.
    let other = Folder::new();
    let elsewhere = Running::open(&other.0, TINY, RealDisk).unwrap();
    let foreign = spill(&elsewhere.log, 1, 2);
    elsewhere.log.append(foreign);
    elsewhere.wait_for(1);
    fs::copy(files(&other).pop().unwrap(), &path).unwrap();
    refused();
    fs::write(&path, &whole).unwrap();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    assert_eq!(rows_of(&running.log, &spilled).len(), 4);
}

#[test]
fn a_disk_that_fails_leaves_nothing() {
    /// Writes so many times, then is full.
    struct Full(usize);
    impl Disk for Full {
        fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0 -= 1;
            RealDisk.write(file, slices, offset)
        }
        fn sync(&mut self, _file: &File) -> io::Result<()> {
            Err(io::Error::other("broken"))
        }
        fn allocate(&mut self, _file: &File, _len_bytes: u64) -> io::Result<()> {
            Ok(())
        }
    }
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    let spills = &running.log.shared.spills;
    assert!(spills.create_with(identity(1), Box::new(Full(0))).is_err());
    assert_eq!(files(&folder).len(), 0);
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_insert(DatabaseId::FIRST.table(1), b"row").unwrap();
    let chunk = builder.spill().unwrap();
    let mut file = spills.create_with(identity(1), Box::new(Full(1))).unwrap();
    assert_eq!(file.append(&chunk).unwrap_err().kind(), io::ErrorKind::StorageFull);
    drop(file);
    assert_eq!(files(&folder).len(), 0);
    // Nor does one whose end cannot be made durable.
    let mut file = spills.create_with(identity(1), Box::new(Full(2))).unwrap();
    file.append(&chunk).unwrap();
    assert!(file.finish().is_err());
    assert_eq!(files(&folder).len(), 0);
    running.append_and_wait(1, 10);
}

#[test]
fn logs_from_before_there_were_files_are_read() {
    // A segment as the first format has it: records that are whole keep that format.
    let whole = record(1, 30);
    assert_eq!(whole.bytes()[4..6], 1_u16.to_le_bytes());
    assert!(whole.items().all(|item| !matches!(item, Item::Spilled(_))));
    let folder = Folder::new();
    let running = Running::open(&folder.0, TINY, RealDisk).unwrap();
    running.log.append(whole);
    running.wait_for(1);
    drop(running);
    // Something that is none of ours stays.
    let mut note = File::create(folder.0.join("note.txt")).unwrap();
    note.write_all(b"by hand").unwrap();
    assert_eq!(Running::open(&folder.0, TINY, RealDisk).unwrap().recovered.last, Version(1));
    assert!(folder.0.join("note.txt").exists());
}
