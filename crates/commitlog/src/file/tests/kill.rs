//! A process that writes, and reports what is durable, is killed at any moment, many times over.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::spilled::{files, rows_of, spill, spilled_rows};
use super::*;

const FOLDER_VARIABLE: &str = "ONECOPY_LOG_TEST_FOLDER";
const ROUNDS: u64 = 25;
const SIZES: Sizes = Sizes { segment_bytes: 64 << 10, ring_bytes: 10_000 };

/// Sizes of records, different from each other and the same in both processes.
fn payload_bytes(version: u64) -> usize {
    (version.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize
        * if version.is_multiple_of(97) { 50 } else { 1 }
}

/// How many rows of a version are in a file of their own, mostly none.
fn rows_in_file(version: u64) -> u64 {
    if version % 50 == 7 { 1 + version % 3 } else { 0 }
}

#[test]
#[ignore = "the writing half of the test below, which runs it as a process"]
fn write_until_killed() {
    let Ok(dir) = std::env::var(FOLDER_VARIABLE) else {
        return;
    };
    let (log, recovered) = FileLog::open_with(Path::new(&dir), BEGINNING, SIZES, Box::new(RealDisk)).unwrap();
    log.start(Notices {
        durable: Box::new(|version| {
            let mut out = io::stdout();
            // The parent may be gone already.
            let _ = writeln!(out, "acked {version}").and_then(|()| out.flush());
        }),
        failed: Box::new(|failure| panic!("{failure}")),
    })
    .unwrap();
    for version in recovered.last.0 + 1.. {
        while !log.has_room() || version > log.durable().0 + 64 {
            std::thread::yield_now();
        }
        log.append(match rows_in_file(version) {
            0 => record(version, payload_bytes(version)),
            rows => spill(&log, version, rows),
        });
        if version.is_multiple_of(1000) {
            block_on(log.trim(Version(version - 500))).unwrap();
        }
    }
}

#[test]
fn what_was_acknowledged_survives_being_killed() {
    let folder = Folder::new();
    let this_module = module_path!().split_once("::").expect("the crate comes first").1;
    let mut acked_before = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "--nocapture"])
            .arg(format!("{this_module}::write_until_killed"))
            .env(FOLDER_VARIABLE, &folder.0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acked = acked_before;
        let mut heard = 0;
        let mut hear = |line: io::Result<String>| {
            let line = line.unwrap();
            if let Some((_, version)) = line.rsplit_once("acked ") {
                acked = version.parse().unwrap();
                return true;
            }
            false
        };
        while heard < 5 + round * 7 {
            let line = lines.next().expect("the child writes until it is killed");
            heard += u64::from(hear(line));
        }
        std::thread::sleep(Duration::from_micros(round * 731 % 3000));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines {
            hear(line);
        }
        assert!(acked > acked_before);
        acked_before = check(&folder, acked);
    }
}

/// Every acknowledged version is there, whole; returns the last.
fn check(folder: &Folder, acked: u64) -> u64 {
    let running = Running::open(&folder.0, SIZES, RealDisk).unwrap();
    let last = running.recovered.last.0;
    assert!(last >= acked, "version {acked} was acknowledged, the log ends at {last}");
    let first = running.log.first_retained().0;
    let expected: Vec<_> = (first..=last).map(|v| (identity(v), Version(v))).collect();
    assert_eq!(running.recovered.identities, expected);
    let records = running.read_all(first, 100_000);
    assert_eq!(records.len() as u64, last + 1 - first);
    for (version, read) in (first..).zip(records) {
        match rows_in_file(version) {
            0 => assert_eq!(*read, *record(version, payload_bytes(version))),
            rows => assert_eq!(rows_of(&running.log, &read), spilled_rows(rows)),
        }
    }
    let with_files = (first..=last).filter(|version| rows_in_file(*version) > 0).count();
    assert_eq!(files(folder).len(), with_files, "a file for each record that needs one, and no other");
    last
}
