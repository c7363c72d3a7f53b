//! Reading a segment from a place on, record by record, trusting nothing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use cluster::ids::Version;
use cluster::record::{DecodeError, Envelope, HEADER_BYTES};

use super::segment::{MARK_BYTES, MARK_MAGIC, Mark, Place};
use crate::error::Damage;

/// How much is read at once.
const CHUNK_BYTES: usize = 256 << 10;
const ZEROS: [u8; 4096] = [0; 4096];

/// The bytes at the next place.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A complete record, the one that belongs there.
    Record { offset: u64, envelope: Envelope, bytes: &'a [u8] },
    /// Zero, or the end of the file.
    End,
    /// Something else.
    Bad(Damage),
}

/// Walks through a segment.
#[derive(Debug)]
pub(super) struct Scanner<'f> {
    file: &'f File,
    place: Place,
    offset: u64,
    expected: Version,
    /// The place behind the last mark that was seen, and its version.
    last_mark: Option<(u64, Version)>,
    buffer: Vec<u8>,
    /// Where in the file the buffer begins.
    buffer_at: u64,
}

impl<'f> Scanner<'f> {
    /// Begins at `offset`, where the record with version `expected` should be.
    pub(super) fn new(file: &'f File, place: Place, offset: u64, expected: Version) -> Self {
        Self { file, place, offset, expected, last_mark: None, buffer: Vec::new(), buffer_at: offset }
    }

    /// The place behind all that was read, which is the place of what could not be read.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The version that should come next.
    pub(super) fn expected(&self) -> Version {
        self.expected
    }

    /// The place behind the last mark that was seen, and its version.
    pub(super) fn last_mark(&self) -> Option<(u64, Version)> {
        self.last_mark
    }

    /// Goes one record further; stays where it is when there is none.
    pub(super) fn step(&mut self) -> io::Result<Step<'_>> {
        loop {
            let (offset, place) = (self.offset, self.place);
            let head = self.peek(HEADER_BYTES)?;
            let start = &head[..head.len().min(MARK_MAGIC.len())];
            if start.iter().all(|&byte| byte == 0) {
                return Ok(Step::End);
            }
            if start != MARK_MAGIC {
                break;
            }
            let Some(mark) = Mark::decode(head, place, offset) else {
                return Ok(Step::Bad(Damage::Mark));
            };
            self.offset += MARK_BYTES as u64;
            self.last_mark = Some((self.offset, mark.durable));
        }
        match self.envelope()? {
            Ok(envelope) => self.record(envelope),
            Err(damage) => Ok(Step::Bad(damage)),
        }
    }

    fn envelope(&mut self) -> io::Result<Result<Envelope, Damage>> {
        let (cluster, expected) = (self.place.cluster, self.expected);
        let header = match Envelope::decode(self.peek(HEADER_BYTES)?) {
            // A format that we do not know may have a longer header.
            Err(DecodeError::Truncated { needed_bytes, .. }) => Envelope::decode(self.peek(needed_bytes)?),
            other => other,
        };
        Ok(match header {
            Err(error) => Err(Damage::Record(error)),
            Ok(envelope) if envelope.header.cluster != cluster => {
                Err(Damage::Foreign { found: envelope.header.cluster })
            }
            Ok(envelope) if envelope.header.first != expected => {
                Err(Damage::OutOfOrder { found: envelope.header.first })
            }
            Ok(envelope) => Ok(envelope),
        })
    }

    fn record(&mut self, envelope: Envelope) -> io::Result<Step<'_>> {
        let offset = self.offset;
        let len = envelope.record_bytes();
        let have_bytes = self.peek(len)?.len();
        if have_bytes < len {
            return Ok(Step::Bad(Damage::Record(DecodeError::Truncated { needed_bytes: len, have_bytes })));
        }
        let at = (offset - self.buffer_at) as usize;
        if let Err(error) = envelope.check_body(&self.buffer[at + HEADER_BYTES..at + len]) {
            return Ok(Step::Bad(Damage::Record(error)));
        }
        self.offset += len as u64;
        self.expected = envelope.header.last.next();
        Ok(Step::Record { offset, envelope, bytes: &self.buffer[at..at + len] })
    }

    /// The next `len` bytes, fewer at the end of the file.
    fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        let at = (self.offset - self.buffer_at) as usize;
        if self.buffer.len() < at + len {
            self.buffer.drain(..at.min(self.buffer.len()));
            self.buffer_at = self.offset;
            // The buffer never grows beyond the file, whatever length the bytes claim.
            let file_bytes = self.file.metadata()?.len().saturating_sub(self.offset);
            let wanted = (len.max(CHUNK_BYTES) as u64).min(file_bytes) as usize;
            let have = self.buffer.len();
            if wanted > have {
                self.buffer.resize(wanted, 0);
                let read = read_up_to(self.file, &mut self.buffer[have..], self.offset + have as u64)?;
                self.buffer.truncate(have + read);
            }
        }
        let at = (self.offset - self.buffer_at) as usize;
        let end = self.buffer.len().min(at + len);
        Ok(&self.buffer[at..end])
    }
}

/// The bytes behind a place where the records end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tail {
    /// Nothing but zeros.
    Clean,
    /// Something that was never reported durable.
    Torn,
    /// The proof that `expected`, or a later version, was durable.
    Proven,
}

/// Looks through all that follows `offset`, where the record with version `expected` should be.
pub(super) fn tail(file: &File, place: Place, offset: u64, expected: Version) -> io::Result<Tail> {
    let end = file.metadata()?.len();
    let mut verdict = Tail::Clean;
    let mut at = offset;
    let mut buffer = Vec::new();
    while at < end {
        // Pieces overlap, so that a mark across their border is seen whole.
        let wanted = (end - at).min((CHUNK_BYTES + MARK_BYTES) as u64) as usize;
        buffer.resize(wanted, 0);
        file.read_exact_at(&mut buffer, at)?;
        for (page, bytes) in buffer.chunks(ZEROS.len()).enumerate() {
            if bytes == &ZEROS[..bytes.len()] {
                continue;
            }
            verdict = Tail::Torn;
            let base = page * ZEROS.len();
            for (inside, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == MARK_MAGIC[0]) {
                let start = base + inside;
                let mark = Mark::decode(&buffer[start..], place, at + start as u64);
                if mark.is_some_and(|mark| mark.durable >= expected) {
                    return Ok(Tail::Proven);
                }
            }
        }
        at += wanted.min(CHUNK_BYTES) as u64;
    }
    Ok(verdict)
}

/// Fills `buffer` as far as the file goes; the writer may shorten a segment while it is read.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
