//! A receive buffer: bytes come in at the tail, whole messages leave at the head.

use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes asked for in one read, at first: most connections are silent, and their replies are short.
const READ_BYTES_MIN: usize = 1024;
/// The same where the room was filled again and again.
const READ_BYTES_MAX: usize = 16 * 1024;

/// A buffer that grew beyond this for one large message is given back when it runs empty.
const KEEP_BYTES: usize = 256 * 1024;

/// Bytes received and not consumed yet.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    head: usize,
    /// Bytes to be asked for; 0 before the first read.
    asked: usize,
}

impl Buffer {
    /// Bytes that were received elsewhere.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::default() }
    }

    /// The bytes that were received and not consumed.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.head..]
    }

    /// The same bytes, to be changed in place.
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
        let asked = self.asked.max(READ_BYTES_MIN);
        self.bytes.reserve(asked);
        let room = self.bytes.capacity() - self.bytes.len();
        let count = source.read_buf(&mut self.bytes).await?;
        self.asked = if count < room { asked } else { READ_BYTES_MAX.min(asked * 2) };
        if count == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_is_sent_little_has_little_room_and_who_is_sent_much_reads_much() {
        let mut buffer = Buffer::default();
        for _ in 0..100 {
            buffer.fill(&mut [7; 200].as_slice()).await.unwrap();
            buffer.consume(200);
        }
        assert!(buffer.bytes.capacity() < 2 * READ_BYTES_MIN, "{}", buffer.bytes.capacity());
        let much = vec![9; 1 << 20];
        let mut source = much.as_slice();
        let mut reads = 0;
        while !source.is_empty() {
            buffer.fill(&mut source).await.unwrap();
            let count = buffer.data().len();
            assert!(buffer.data().iter().all(|byte| *byte == 9));
            buffer.consume(count);
            reads += 1;
        }
        assert!(reads < (1 << 20) / READ_BYTES_MAX + 10, "{reads}");
        let end = buffer.fill(&mut [].as_slice()).await.unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
