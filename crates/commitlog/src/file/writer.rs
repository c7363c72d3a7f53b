//! The thread that writes.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use cluster::ids::{Epoch, Version};
use cluster::record::Record;

use super::disk::{self, Disk};
use super::segment::{self, MARK_BYTES, Mark, Place, SEGMENT_HEADER_BYTES, Segment, SegmentHeader};
use super::shared::Shared;
use crate::engine::Notices;
use crate::error::{LogFailure, SYNCHRONISE};

/// Between two attempts to write to a full disk.
const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// The segment that is written.
pub(super) struct Active {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) place: Place,
    /// The last version in it, or the one before its first.
    pub(super) last: Version,
    /// The highest epoch of all records so far.
    pub(super) epoch: Epoch,
    /// Behind the last record or mark.
    pub(super) end: u64,
    /// Length of the file.
    pub(super) len: u64,
    /// Whether a record in it has spilled rows. Then it takes no further records, so that it is trimmed, and the rows with it,
    /// soon after replicas have applied them, however little stands in the segments.
    pub(super) has_spilled: bool,
    /// Whether a mark, or the segment's header, stands right before `end` and proves all before it.
    pub(super) marked: bool,
}

impl Active {
    /// Where the next record would begin; a mark stands before it, if there is none.
    fn record_at(&self) -> u64 {
        self.end + if self.marked { 0 } else { MARK_BYTES as u64 }
    }

    fn mark(&self) -> [u8; MARK_BYTES] {
        Mark { durable: self.last }.encode(self.place, self.end)
    }
}

/// Owns the file that is written; a log has one writer.
pub(super) struct Writer {
    shared: Arc<Shared>,
    active: Active,
    disk: Box<dyn Disk>,
    notices: Notices,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, active: Active, disk: Box<dyn Disk>, notices: Notices) -> Self {
        Self { shared, active, disk, notices }
    }

    pub(super) fn run(mut self) {
        if let Err(failure) = self.write_until_closed() {
            tracing::error!("{failure}");
            self.shared.give_up();
            (self.notices.failed)(failure);
        }
    }

    fn write_until_closed(&mut self) -> Result<(), LogFailure> {
        // The opening has made all records durable.
        self.write_mark()?;
        while let Some(mut batch) = self.shared.take_batch() {
            while !batch.is_empty() {
                let n = self.count_fitting(&batch);
                if n == 0 {
                    let record_bytes = batch[0].bytes().len();
                    self.retry_while_full(|writer| writer.roll(record_bytes))?;
                    continue;
                }
                let records: Vec<Arc<Record>> = batch.drain(..n).collect();
                self.retry_while_full(|writer| writer.write(&records))?;
                self.make_durable(records)?;
            }
            if self.shared.is_idle() {
                self.write_mark()?;
            }
        }
        self.write_mark()?;
        self.sync()
    }

    fn count_fitting(&self, batch: &VecDeque<Arc<Record>>) -> usize {
        let room = self.active.len.saturating_sub(self.active.record_at());
        let (mut need, mut is_closed) = (0, self.active.has_spilled);
        batch
            .iter()
            .take_while(|record| {
                need += record.bytes().len() as u64;
                let fits = need <= room && !is_closed;
                is_closed |= record.is_spilled();
                fits
            })
            .count()
    }

    /// Repeats a step as long as the disk is full. Each attempt writes the same bytes at the same place.
    fn retry_while_full(
        &mut self,
        step: impl Fn(&mut Self) -> Result<(), LogFailure>,
    ) -> Result<(), LogFailure> {
        let mut is_logged = false;
        loop {
            let ended = step(self);
            match ended {
                Err(failure) if failure.is_full_disk() && !self.shared.is_closed() => {
                    if !is_logged {
                        tracing::error!("{failure}");
                    }
                    is_logged = true;
                    self.shared.space.set_writer_waits(true);
                    thread::sleep(ROOM_PAUSE);
                }
                ended => {
                    self.shared.space.set_writer_waits(false);
                    return ended;
                }
            }
        }
    }

    /// One write.
    fn write(&mut self, records: &[Arc<Record>]) -> Result<(), LogFailure> {
        let mark = self.active.mark();
        let mut slices = Vec::with_capacity(records.len() + 1);
        if !self.active.marked {
            slices.push(IoSlice::new(&mark));
        }
        slices.extend(records.iter().map(|record| IoSlice::new(record.bytes())));
        disk::write_all(self.disk.as_mut(), &self.active.file, &mut slices, self.active.end)
            .map_err(|source| self.failure("write", source))
    }

    /// Synchronises what was written last, and reports it durable.
    fn make_durable(&mut self, records: Vec<Arc<Record>>) -> Result<(), LogFailure> {
        let first_at = self.active.record_at();
        self.sync()?;
        let mut end = first_at;
        for record in &records {
            end += record.bytes().len() as u64;
            self.active.last = record.header().last;
            self.active.has_spilled |= record.is_spilled();
            self.active.epoch = self.active.epoch.max(record.header().identity.epoch);
        }
        self.active.end = end;
        self.active.marked = false;
        let mut at = first_at;
        self.shared.publish(records.into_iter().map(|record| {
            let offset = at;
            at += record.bytes().len() as u64;
            (record, offset)
        }));
        (self.notices.durable)(self.active.last);
        Ok(())
    }

    /// Marks what is durable, without waiting for the disk: the next opening after a crash of the process relies on it.
    fn write_mark(&mut self) -> Result<(), LogFailure> {
        let active = &mut self.active;
        let behind = active.end + MARK_BYTES as u64;
        if active.marked || behind > active.len {
            return Ok(());
        }
        let mark = active.mark();
        disk::write_all(self.disk.as_mut(), &active.file, &mut [IoSlice::new(&mark)], active.end)
            .map_err(|source| self.failure("write", source))?;
        self.active.end = behind;
        self.active.marked = true;
        Ok(())
    }

    /// Begins a new segment with room for a record of `record_bytes`.
    fn roll(&mut self, record_bytes: usize) -> Result<(), LogFailure> {
        let active = &self.active;
        active.file.set_len(active.end).map_err(|source| self.failure("give back the rest of", source))?;
        let first = active.last.next();
        let header = SegmentHeader { cluster: self.shared.cluster, first, epoch: active.epoch };
        let needed = SEGMENT_HEADER_BYTES + (record_bytes + MARK_BYTES) as u64;
        let len = self.shared.sizes.segment_bytes.max(needed);
        let segment = Segment::new(&self.shared.dir, first);
        let file = segment::create(&self.shared.dir, header, len, self.disk.as_mut())
            .map_err(|source| failure("make the log file", &segment.path, source))?;
        self.active = Active {
            file,
            path: segment.path.clone(),
            place: Place { cluster: header.cluster, first },
            last: active.last,
            epoch: active.epoch,
            end: SEGMENT_HEADER_BYTES,
            len,
            has_spilled: false,
            marked: true,
        };
        self.shared.begin_segment(segment);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), LogFailure> {
        self.disk.sync(&self.active.file).map_err(|source| self.failure(SYNCHRONISE, source))
    }

    fn failure(&self, doing: &'static str, source: io::Error) -> LogFailure {
        failure(doing, &self.active.path, source)
    }
}

fn failure(doing: &'static str, path: &Path, source: io::Error) -> LogFailure {
    LogFailure::Disk { doing, path: path.to_owned(), source }
}
