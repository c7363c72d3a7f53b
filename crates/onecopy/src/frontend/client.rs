//! The client's side of a session: its socket, what it sent, what it will be sent.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use wire::frame;

use super::fault::Fault;
use crate::backend::Buffer;

/// Replies are sent when so many bytes have come together, or when the batch ends.
pub(crate) const FLUSH_BYTES: usize = 16 * 1024;

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    /// Received and not looked at yet.
    pub(crate) input: Buffer,
    /// To be sent.
    pub(crate) out: Vec<u8>,
    /// Whether anything of the present statement has been sent, so that it cannot be run again unseen.
    pub(crate) shown: bool,
    /// Bytes that have come in all.
    pub(crate) received: u64,
    /// Bytes that have gone in all.
    pub(crate) sent: u64,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, input: Buffer::default(), out: Vec::new(), shown: false, received: 0, sent: 0 }
    }

    /// Sends what is there.
    pub(crate) async fn flush(&mut self) -> Result<(), Fault> {
        if !self.out.is_empty() {
            self.shown = true;
            self.stream.write_all(&self.out).await.map_err(|_| Fault::Client)?;
            self.sent += self.out.len() as u64;
            self.out.clear();
        }
        Ok(())
    }

    /// Receives more.
    pub(crate) async fn fill(&mut self) -> Result<(), Fault> {
        let before = self.input.data().len();
        self.input.fill(&mut self.stream).await.map_err(|_| Fault::Client)?;
        self.received += (self.input.data().len() - before) as u64;
        Ok(())
    }

    /// Waits for a whole message at the head of the input: its tag and length. It is left there.
    pub(crate) async fn message(&mut self) -> Result<(u8, usize), Fault> {
        loop {
            if let Some(found) = self.ready()? {
                return Ok(found);
            }
            self.fill().await?;
        }
    }

    /// The message at the head of the input, if it is complete.
    pub(crate) fn ready(&self) -> Result<Option<(u8, usize)>, Fault> {
        let header = frame::header(self.input.data()).map_err(|_| Fault::Client)?;
        Ok(header.filter(|(_, total)| self.input.data().len() >= *total))
    }
}
