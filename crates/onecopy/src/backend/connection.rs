//! One connection to one PostgreSQL server, over its Unix socket or TCP.
//!
//! Sessions and agents use the same type. It frames messages and writes in batches; its owner interprets the messages.
//! [`Connection::simple`] runs the few queries that Onecopy asks on its own account.
//!
//! Invariant: a connection never waits to send without receiving. A server whose replies fill the socket stops reading, so a
//! writer that only writes would wait for ever.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::backend::{Authentication, Status, tag};
use wire::{encode, frame};

use super::address::{Address, Stream};
use super::auth_exchange::AuthExchange;
use super::buffer::Buffer;
use super::error::BackendError;
use super::pending_replies::PendingReplies;
use super::process::Process;
use crate::security::scram::Secret;

/// How long a server may take to pass a cancel request on.
const CANCEL_DEADLINE: Duration = Duration::from_secs(10);

/// Notifications beyond so many bytes are dropped.
const NOTIFICATIONS_BYTES_MAX: usize = 1 << 20;

/// Limit of the replies that a server sends before it has read all of a request of ours. Sessions relay replies instead.
const REPLIES_BYTES_MAX: usize = 64 << 20;

/// A larger output buffer is freed once its content is sent.
const KEEP_BYTES: usize = 256 << 10;

/// Rows of a simple query, as text; `None` is NULL.
pub(crate) type Rows = Vec<Vec<Option<String>>>;

/// A connection that is logged in.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    /// Bytes received and not looked at yet.
    pub(crate) input: Buffer,
    /// Messages to be sent with the next [`Connection::flush`] or [`Connection::fill`].
    pub(crate) output: Vec<u8>,
    /// Bytes of `output` that are sent already.
    sent: usize,
    /// Notifications that came during a query of our own, as they came.
    pub(crate) notifications: Vec<u8>,
    /// The server process at the other end.
    pub(crate) process: Process,
    replies: PendingReplies,
}

impl Connection {
    /// Connects and logs in with these start-up parameters (`user`, `database`, `options`, ...), and with the secret
    /// if the server asks for it.
    pub(crate) async fn open(
        address: &Address,
        secret: &Secret,
        parameters: &[(&str, &str)],
    ) -> Result<Self, BackendError> {
        let mut connection = Self::of(Stream::connect(address).await?);
        encode::startup(&mut connection.output, parameters);
        connection.flush().await?;
        let mut exchange = AuthExchange::new(secret);
        loop {
            let (tag, total) = connection.message().await?;
            let body = &connection.input.data()[frame::HEADER_BYTES..total];
            match tag {
                tag::AUTHENTICATION => exchange.step(Authentication::parse(body)?, &mut connection.output)?,
                tag::BACKEND_KEY_DATA => {
                    let (pid, secret) = wire::backend::backend_key_data(body)?;
                    (connection.process.pid, connection.process.secret) = (pid, secret.to_vec());
                }
                tag::PARAMETER_STATUS => {
                    let (name, value) = wire::backend::parameter_status(body)?;
                    connection.process.parameters.push((name.to_vec(), value.to_vec()));
                }
                tag::ERROR_RESPONSE => return Err(BackendError::Server(body.to_vec())),
                _ => {}
            }
            connection.input.consume(total);
            connection.flush().await?;
            if tag == tag::READY_FOR_QUERY {
                connection.replies = PendingReplies::none();
                return Ok(connection);
            }
        }
    }

    /// A connection before its log-in.
    pub(super) fn of(stream: Stream) -> Self {
        Self {
            stream,
            input: Buffer::default(),
            output: Vec::new(),
            sent: 0,
            notifications: Vec::new(),
            process: Process::default(),
            replies: PendingReplies::unknown(),
        }
    }

    /// Whether the server has answered everything and no transaction is open on it, so that another session may use it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.replies.are_at_rest() && self.input.data().is_empty() && self.output.is_empty()
    }

    /// Whether every reply was read. A transaction may be open.
    pub(crate) fn is_in_step(&self) -> bool {
        self.replies.are_read() && self.input.data().is_empty()
    }

    /// Whether the socket is open and has nothing to read. What arrives unasked may be the error that ends the connection.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        matches!(
            recv(self.stream.borrow(), &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT),
            Err(Errno::AGAIN)
        )
    }

    /// A ReadyForQuery was read by the caller.
    pub(crate) fn note_ready(&mut self, status: Option<Status>) {
        self.replies.note_ready(status);
    }

    /// The same, which wakes the thread of the caller from now on.
    pub(crate) fn brought_here(self) -> std::io::Result<Self> {
        let stream = self.stream.brought_here()?;
        Ok(Self { stream, ..self })
    }

    /// The socket, which can be cut from outside.
    pub(super) fn socket(&self) -> std::io::Result<OwnedFd> {
        self.stream.socket()
    }

    /// Whether `output` has unsent bytes.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Drops `output` before any of it is sent.
    pub(crate) fn take_back(&mut self) {
        debug_assert_eq!(self.sent, 0, "what was sent cannot be taken back");
        self.clear_output();
    }

    fn clear_output(&mut self) {
        self.sent = 0;
        self.replies.forget_output();
        self.output.clear();
        if self.output.capacity() > KEEP_BYTES {
            self.output = Vec::new();
        }
    }

    /// Sends as much of `output` as the socket takes; ready when all of it is sent.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.replies.count(&self.output);
        while self.sent < self.output.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &self.output[self.sent..]))? {
                0 => return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.clear_output();
        Poll::Ready(Ok(()))
    }

    /// The same, but drops `output` when sending fails: the server's last message says why, and the next read returns it.
    fn poll_send_or_drop(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.output.is_empty() {
            return Poll::Ready(());
        }
        if ready!(self.poll_send(cx)).is_err() {
            self.replies.lose_count();
            self.clear_output();
        }
        Poll::Ready(())
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        pin!(self.input.fill(&mut self.stream)).poll(cx)
    }

    /// Sends `output`. Replies that arrive meanwhile go into `input`.
    pub(crate) async fn flush(&mut self) -> std::io::Result<()> {
        poll_fn(|cx| {
            if self.output.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if let Poll::Ready(sent) = self.poll_send(cx) {
                return Poll::Ready(sent);
            }
            loop {
                ready!(self.poll_receive(cx))?;
                if self.input.data().len() > REPLIES_BYTES_MAX {
                    let text = "the server replies without end to what it was only sent in part";
                    return Poll::Ready(Err(std::io::Error::other(text)));
                }
            }
        })
        .await
    }

    /// Receives more into `input`, and sends `output` meanwhile. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> std::io::Result<()> {
        poll_fn(|cx| {
            // The reply can come before all is sent.
            let _ = self.poll_send_or_drop(cx);
            self.poll_receive(cx)
        })
        .await
    }

    /// The same, but also returns when all of `output` is sent, so that the caller can add more. Cancel-safe.
    pub(crate) async fn advance(&mut self) -> std::io::Result<()> {
        poll_fn(|cx| {
            if self.has_output() && self.poll_send_or_drop(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            self.poll_receive(cx)
        })
        .await
    }

    /// Receives without sending: for notifications while the session is idle. Cancel-safe.
    pub(crate) async fn listen(&mut self) -> std::io::Result<()> {
        self.input.fill(&mut self.stream).await
    }

    /// Waits for a whole message at the head of `input`: its tag and whole length. It is left there.
    pub(crate) async fn message(&mut self) -> Result<(u8, usize), BackendError> {
        loop {
            if let Some((tag, total)) = frame::header(self.input.data())?
                && self.input.data().len() >= total
            {
                return Ok((tag, total));
            }
            self.fill().await?;
        }
    }

    /// Runs a simple query to its end and returns all rows of all its statements. The first error is returned, after
    /// ReadyForQuery was seen.
    pub(crate) async fn simple(&mut self, sql: &str) -> Result<Rows, BackendError> {
        encode::query(&mut self.output, sql.as_bytes());
        self.flush().await?;
        self.drain().await
    }

    /// Reads up to the next ReadyForQuery; rows are taken as text.
    pub(crate) async fn drain(&mut self) -> Result<Rows, BackendError> {
        let mut rows = Rows::new();
        let mut error = None;
        loop {
            let (tag, total) = self.message().await?;
            let body = &self.input.data()[frame::HEADER_BYTES..total];
            let ready = (tag == tag::READY_FOR_QUERY).then(|| Status::parse(body).ok());
            match tag {
                tag::DATA_ROW => rows.push(
                    wire::backend::data_row(body)?
                        .into_iter()
                        .map(|value| value.map(|v| String::from_utf8_lossy(v).into_owned()))
                        .collect(),
                ),
                tag::ERROR_RESPONSE if error.is_none() => error = Some(BackendError::Server(body.to_vec())),
                tag::NOTIFICATION_RESPONSE if self.notifications.len() < NOTIFICATIONS_BYTES_MAX => {
                    self.notifications.extend_from_slice(&self.input.data()[..total]);
                }
                _ => {}
            }
            self.input.consume(total);
            if let Some(status) = ready {
                self.note_ready(status);
                return error.map_or(Ok(rows), Err);
            }
        }
    }
}

/// Asks the server to cancel what the process `pid` is running. The server closes the connection once it has passed that
/// on, which is all that can be known.
pub(crate) async fn cancel(address: &Address, pid: i32, secret: &[u8]) -> std::io::Result<()> {
    let mut stream = Stream::connect(address).await?;
    let mut request = Vec::new();
    encode::cancel_request(&mut request, pid, secret);
    stream.write_all(&request).await?;
    stream.flush().await?;
    let passed_on = async {
        let mut byte = [0];
        // Nothing is ever answered: it is the end of the stream, or an error that ends it as well.
        while matches!(stream.read(&mut byte).await, Ok(1..)) {}
    };
    tokio::time::timeout(CANCEL_DEADLINE, passed_on).await.map_err(std::io::Error::from)
}
