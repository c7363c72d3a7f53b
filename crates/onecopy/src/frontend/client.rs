//! The client's side of a session: its socket, what it sent, what it will be sent.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use wire::frame;

use super::fault::Fault;
use crate::backend::Buffer;
use crate::tls::{Identity, Stream};

/// Replies are sent when so many bytes have come together, or when the batch ends.
pub(crate) const FLUSH_BYTES: usize = 16 * 1024;

/// How often it is looked whether the client is still there, while its statement runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: Stream<TcpStream>,
    /// The hash of the certificate that it has seen, for a log-in to be bound to.
    certificate: Option<Vec<u8>>,
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
    /// When it is looked next whether it is still there. One timer for all statements: to set one for each would wake the
    /// thread each time.
    look: Pin<Box<Sleep>>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream: Stream::Plain(stream),
            certificate: None,
            input: Buffer::default(),
            out: Vec::new(),
            shown: false,
            received: 0,
            sent: 0,
            look: Box::pin(tokio::time::sleep(LOOK_EVERY)),
        }
    }

    /// Comes back when it is time to look whether the client is still there, about once a second, if somebody waits for it.
    pub(crate) async fn time_to_look(&mut self) {
        self.look.as_mut().await;
        self.look.as_mut().reset(Instant::now() + LOOK_EVERY);
    }

    /// Where the client is.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.stream.socket().peer_addr().ok()
    }

    /// Where it came in.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.stream.socket().local_addr().ok()
    }

    /// Whether nobody in between can read along.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    /// What a log-in can be bound to.
    pub(crate) fn certificate(&self) -> Option<Vec<u8>> {
        self.certificate.clone()
    }

    /// Whether the client begins with a handshake. Nothing is taken off.
    pub(crate) async fn begins_with_handshake(&mut self) -> Result<bool, Fault> {
        const HANDSHAKE: u8 = 0x16;
        let Stream::Plain(stream) = &self.stream else { return Ok(false) };
        let mut first = [0];
        let count = stream.peek(&mut first).await.map_err(|_| Fault::Client)?;
        Ok(count == 1 && first[0] == HANDSHAKE)
    }

    /// From now on everything is encrypted.
    pub(crate) async fn encrypt(mut self, identity: &Identity, has_asked: bool) -> Result<Self, Fault> {
        let Stream::Plain(stream) = self.stream else { return Err(Fault::Client) };
        // What came before the handshake came from nobody knows whom.
        if !self.input.data().is_empty() {
            return Err(Fault::Client);
        }
        self.stream = identity.accept(stream, has_asked).await.map_err(|error| {
            tracing::debug!(%error, "no handshake with a client");
            Fault::Client
        })?;
        self.certificate = identity.hash();
        Ok(self)
    }

    /// Sends what is there.
    pub(crate) async fn flush(&mut self) -> Result<(), Fault> {
        if !self.out.is_empty() {
            self.shown = true;
            self.stream.write_all(&self.out).await.map_err(|_| Fault::Client)?;
            self.stream.flush().await.map_err(|_| Fault::Client)?;
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

    /// Whether the client has closed its side, and nothing is left to be read of what it sent.
    pub(crate) fn is_gone(&self) -> bool {
        let mut byte = [0];
        let looked = recv(self.stream.socket(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(looked, Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR))
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
