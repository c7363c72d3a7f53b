//! A receive buffer: bytes come in at the tail, whole messages leave at the head.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes asked for in one read, at least.
const READ_BYTES: usize = 16 * 1024;

/// A buffer that grew beyond this for one large message is given back when it runs empty.
const KEEP_BYTES: usize = 256 * 1024;

/// Bytes received and not consumed yet.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    head: usize,
}

impl Buffer {
    /// What is there.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// What is there, to be changed in place.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.head..]
    }

    /// Drops the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.head += count;
        assert!(self.head <= self.bytes.len(), "no more is consumed than was there");
        if self.head == self.bytes.len() {
            self.head = 0;
            self.bytes.clear();
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    /// Reads once. End of stream is an error of kind `UnexpectedEof`. Cancel-safe.
    pub(crate) async fn fill(&mut self, source: &mut (impl AsyncRead + Unpin)) -> std::io::Result<()> {
        if self.head > 0 {
            self.bytes.drain(..self.head);
            self.head = 0;
        }
        self.bytes.reserve(READ_BYTES);
        match source.read_buf(&mut self.bytes).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
