//! Whether the disk of the log has room.
//!
//! A transaction that was appended can no longer be refused. So new ones are refused earlier: when less space is free than
//! the queue can hold at most, with the segments for it. Then the writer meets a full disk only if another process fills it
//! within a moment. In that case it waits, and new transactions are refused as well.
//!
//! Every commit asks here, so the file system is asked only every so often.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Space that is left for records in the queue.
const RESERVE_BYTES: u64 = 256 << 20;
/// How old an answer of the file system may be.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Names a file with another reserve, in megabytes, read at every look: for tests of a full disk.
const RESERVE_FILE_VARIABLE: &str = "ONECOPY_TEST_LOG_RESERVE_FILE";

/// The last answers about room on the disk.
#[derive(Debug)]
pub(super) struct Space {
    dir: PathBuf,
    reserve_file: Option<PathBuf>,
    begun: Instant,
    looked_us: AtomicU64,
    is_scarce: AtomicBool,
    writer_waits: AtomicBool,
}

impl Space {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            reserve_file: std::env::var_os(RESERVE_FILE_VARIABLE).map(PathBuf::from),
            begun: Instant::now(),
            looked_us: AtomicU64::new(0),
            is_scarce: AtomicBool::new(false),
            writer_waits: AtomicBool::new(false),
        }
    }

    /// Whether new transactions have to be refused. Takes a call to the system now and then.
    pub(super) fn is_full(&self) -> bool {
        let now_us = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX).max(1);
        let looked_us = self.looked_us.load(Ordering::Relaxed);
        let is_due = looked_us == 0 || now_us.saturating_sub(looked_us) >= LOOK_EVERY.as_micros() as u64;
        if is_due {
            self.looked_us.store(now_us, Ordering::Relaxed);
            self.look();
        }
        self.is_scarce.load(Ordering::Relaxed) || self.writer_waits.load(Ordering::Relaxed)
    }

    /// The writer waits for room, or goes on.
    pub(super) fn set_writer_waits(&self, waits: bool) {
        self.writer_waits.store(waits, Ordering::Relaxed);
    }

    fn look(&self) {
        // Without an answer nothing is refused; if the disk has failed, the writer gets the error.
        let Ok(disk) = rustix::fs::statvfs(&self.dir) else { return };
        let is_scarce = disk.f_bavail.saturating_mul(disk.f_frsize) < self.reserve_bytes();
        if is_scarce != self.is_scarce.swap(is_scarce, Ordering::Relaxed) {
            if is_scarce {
                tracing::error!(dir = %self.dir.display(), "the disk of the log is full: nothing is committed");
            } else {
                tracing::warn!(dir = %self.dir.display(), "the disk of the log has room again");
            }
        }
    }

    fn reserve_bytes(&self) -> u64 {
        let Some(file) = &self.reserve_file else { return RESERVE_BYTES };
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.trim().parse::<u64>().map_or(RESERVE_BYTES, |mb| mb << 20)
    }
}
