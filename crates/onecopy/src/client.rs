//! The client's side of a session: its socket, its input, its output.
//!
//! Invariant: a call to end the session ([`Call`]) ends every wait for its client.

pub(crate) mod cancel;
pub(crate) mod credentials;
pub(crate) mod ending;
pub(crate) mod forbidden;
pub(crate) mod notices;
pub(crate) mod own_settings;
pub(crate) mod passed;
pub(crate) mod prepared;
pub(crate) mod prepared_statement;
pub(crate) mod sent;
pub(crate) mod settings;
pub(crate) mod signals;
pub(crate) mod timeouts;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::AsyncWrite;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use wire::frontend::tag;
use wire::{encode, sqlstate};

use crate::backend::{Buffer, Connection};
use crate::client::cancel::CancelTarget;
use crate::coordinator::mailbox::{Call, End, Mailbox};
use crate::error::{Fault, Refusal};
use crate::security::tls::{Identity, Stream};
use ending::ended;
use notices::{Notices, PAUSE};
use signals::Signals;

/// Replies are sent when this many bytes have accumulated, or at the end of the batch.
pub(crate) const FLUSH_BYTES: usize = 16 * 1024;

/// Interval at which we check, while a statement runs, whether the client is still connected.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A larger output buffer is freed after it was sent.
const KEEP_BYTES: usize = 256 << 10;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) stream: Stream<TcpStream>,
    /// Hash of the certificate that the client has seen, for channel binding.
    certificate: Option<Vec<u8>>,
    /// Received bytes that were not read yet.
    pub(crate) input: Buffer,
    /// Bytes to send.
    pub(crate) out: Vec<u8>,
    /// Number of bytes of `out` that were sent.
    written: usize,
    /// Notices taken out of `out`, to be sent before it.
    ahead: Vec<u8>,
    /// Number of bytes of `ahead` that were sent.
    ahead_written: usize,
    /// The notices of the present statement.
    notices: Notices,
    /// Whether the client has received anything of the present statement. Then it cannot be retried.
    pub(crate) shown: bool,
    /// Bytes received in all.
    pub(crate) received: u64,
    /// Bytes sent in all.
    pub(crate) sent: u64,
    /// Time of the next check. One timer serves all statements, because a new timer for each would wake the thread
    /// each time.
    look: Pin<Box<Sleep>>,
    /// Calls the session to its end, and recalls its transaction.
    pub(crate) call: Arc<Call>,
    /// By its protocol the core may recall a transaction that is open.
    pub(crate) may_be_recalled: bool,
    /// Requests of this session to end other sessions, where it may.
    pub(crate) signals: Option<Signals>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream: Stream::Plain(stream),
            certificate: None,
            input: Buffer::default(),
            out: Vec::new(),
            written: 0,
            ahead: Vec::new(),
            ahead_written: 0,
            notices: Notices::default(),
            shown: false,
            received: 0,
            sent: 0,
            look: Box::pin(tokio::time::sleep(LOOK_EVERY)),
            call: Arc::default(),
            may_be_recalled: false,
            signals: None,
        }
    }

    /// A client that was served by the process before this one, with the bytes that it had received.
    pub(crate) fn resumed(stream: TcpStream, input: &[u8]) -> Self {
        Self { input: Buffer::of(input), ..Self::new(stream) }
    }

    /// Returns about once a second, when the check of the client is due.
    pub(crate) async fn time_to_look(&mut self) {
        self.look.as_mut().await;
        self.look.as_mut().reset(Instant::now() + LOOK_EVERY);
    }

    /// The client of a session. A call to end the session ends its waits.
    pub(crate) fn of_session(mut self, mailbox: &Mailbox) -> Self {
        self.call = Arc::clone(&mailbox.call);
        self
    }

    /// The same, where the session may end others.
    pub(crate) fn with_signals(mut self, signals: Signals) -> Self {
        self.signals = Some(signals);
        self
    }

    /// Why the session must stop waiting for anything else: it was killed, or the client has disconnected. Otherwise
    /// sends the waiting notices.
    pub(crate) fn leaves(&mut self) -> Option<Fault> {
        if self.call.is_made(End::Killed) {
            return Some(Fault::Fatal(ended(End::Killed)));
        }
        if self.is_gone() {
            return Some(Fault::Client);
        }
        self.tell_notices().err()
    }

    /// The same, checked at most once a second, for loops that wake up more often.
    pub(crate) fn leaves_by_now(&mut self) -> Option<Fault> {
        if self.look.deadline() > Instant::now() {
            return None;
        }
        self.look.as_mut().reset(Instant::now() + LOOK_EVERY);
        self.leaves()
    }

    /// The client's address.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.stream.socket().peer_addr().ok()
    }

    /// The local address at which it connected.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        self.stream.socket().local_addr().ok()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.stream.is_encrypted()
    }

    /// Hash of the certificate, for channel binding.
    pub(crate) fn certificate(&self) -> Option<Vec<u8>> {
        self.certificate.clone()
    }

    /// Whether the client starts with a TLS handshake. Consumes nothing.
    pub(crate) async fn begins_with_handshake(&mut self) -> Result<bool, Fault> {
        const HANDSHAKE: u8 = 0x16;
        let Stream::Plain(stream) = &self.stream else { return Ok(false) };
        let mut first = [0];
        let count = stream.peek(&mut first).await.map_err(|_| Fault::Client)?;
        Ok(count == 1 && first[0] == HANDSHAKE)
    }

    pub(crate) async fn encrypt(mut self, identity: &Identity, has_asked: bool) -> Result<Self, Fault> {
        let Stream::Plain(stream) = self.stream else { return Err(Fault::Client) };
        // Bytes from before the handshake may come from an attacker in between.
        if !self.input.data().is_empty() {
            return Err(Fault::Client);
        }
        self.stream = identity.accept(stream, has_asked).await.map_err(|error| {
            tracing::debug!(%error, "a TLS handshake with a client failed");
            Fault::Client
        })?;
        self.certificate = identity.hash();
        Ok(self)
    }

    /// Starts a statement. The client has received nothing of it yet.
    pub(crate) fn begin_statement(&mut self) {
        self.shown = false;
        self.notices.begin();
    }

    /// Starts a run of the statement, perhaps not the first.
    pub(crate) fn run_statement(&mut self) {
        self.notices.run(self.out.len());
    }

    /// Truncates the output to this length.
    pub(crate) fn take_back(&mut self, mark: usize) {
        self.out.truncate(mark);
        self.notices.cut(mark);
    }

    /// Whether notices wait to be sent.
    pub(crate) fn has_notices(&self) -> bool {
        self.notices.is_waiting()
    }

    /// Whether a notice of the present run was sent ahead of its reply.
    pub(crate) fn has_told_notices(&self) -> bool {
        self.notices.has_told()
    }

    /// Takes a notice of a server; `true` if it goes into the output. The next check sends it, which comes soon.
    pub(crate) fn hear_notice(&mut self, message: &[u8]) -> bool {
        let had_notices = self.has_notices();
        let is_new = self.notices.hear(message);
        let at = Instant::now() + PAUSE;
        if is_new && !had_notices && self.look.deadline() > at {
            self.look.as_mut().reset(at);
        }
        is_new
    }

    /// Sends the waiting notices, as far as the socket takes them at once.
    pub(crate) fn tell_notices(&mut self) -> Result<(), Fault> {
        if self.has_notices() && self.written == 0 {
            // A notice that cannot be recognised would be sent twice if the statement ran again.
            self.shown |= !self.notices.take(&mut self.out, &mut self.ahead);
        }
        match self.poll_ahead(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        if self.ahead.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.ahead_written < self.ahead.len() {
            let rest = &self.ahead[self.ahead_written..];
            let Ok(count @ 1..) = ready!(Pin::new(&mut self.stream).poll_write(cx, rest)) else {
                return Poll::Ready(Err(Fault::Client));
            };
            self.ahead_written += count;
            self.sent += count as u64;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(|_| Fault::Client)?;
        (self.ahead, self.ahead_written) = (Vec::new(), 0);
        Poll::Ready(Ok(()))
    }

    /// Sends as much as the socket takes; ready when all is sent.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        ready!(self.poll_ahead(cx))?;
        while self.written < self.out.len() {
            let written = Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]);
            let Ok(count @ 1..) = ready!(written) else { return Poll::Ready(Err(Fault::Client)) };
            self.written += count;
            self.sent += count as u64;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx)).map_err(|_| Fault::Client)?;
        self.written = 0;
        self.out.clear();
        self.notices.sent();
        if self.out.capacity() > KEEP_BYTES {
            self.out = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what the socket takes without waiting; `true` if that is all.
    pub(crate) async fn try_flush(&mut self) -> Result<bool, Fault> {
        if self.out.is_empty() && self.ahead.is_empty() {
            return Ok(true);
        }
        self.shown = true;
        poll_fn(|cx| match self.poll_flush(cx) {
            Poll::Ready(flushed) => Poll::Ready(flushed.map(|()| true)),
            Poll::Pending => Poll::Ready(Ok(false)),
        })
        .await
    }

    pub(crate) async fn flush(&mut self) -> Result<(), Fault> {
        if self.try_flush().await? {
            return Ok(());
        }
        let call = Arc::clone(&self.call);
        tokio::select! {
            biased;
            () = call.made(End::Now) => Err(called(&call)),
            flushed = poll_fn(|cx| self.poll_flush(cx)) => flushed,
        }
    }

    /// Tells the client why its session ends, unless the socket is full or a message is half sent.
    pub(crate) async fn say_last(&mut self, news: &[u8], refusal: &Refusal) {
        if self.written == 0 {
            self.take_back(0);
            self.out.extend_from_slice(news);
            refusal.write(&mut self.out, "FATAL");
            let _ = self.try_flush().await;
        }
    }

    /// Receives more. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> Result<(), Fault> {
        let before = self.input.data().len();
        if let Some(filled) = self.try_fill().await {
            filled?;
        } else {
            let call = Arc::clone(&self.call);
            tokio::select! {
                biased;
                () = call.made(End::Now) => return Err(called(&call)),
                filled = self.input.fill(&mut self.stream) => filled.map_err(|_| Fault::Client)?,
            }
        }
        self.received += (self.input.data().len() - before) as u64;
        Ok(())
    }

    /// Receives without waiting; `None` if nothing has arrived.
    async fn try_fill(&mut self) -> Option<Result<(), Fault>> {
        let Self { input, stream, .. } = self;
        poll_fn(|cx| match pin!(input.fill(stream)).poll(cx) {
            Poll::Ready(filled) => Poll::Ready(Some(filled.map_err(|_| Fault::Client))),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// Whether the client has closed its side. After a Terminate the running statement still finishes, as in
    /// PostgreSQL.
    fn is_gone(&mut self) -> bool {
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        let found = {
            let mut fds = [PollFd::new(self.stream.socket(), PollFlags::RDHUP)];
            match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Ok(_) => fds[0].revents() & closed,
                Err(_) => return false,
            }
        };
        if found.is_empty() {
            return false;
        }
        if self.input.data().is_empty() {
            let mut context = Context::from_waker(Waker::noop());
            let _ = pin!(self.input.fill(&mut self.stream)).poll(&mut context);
        }
        found.intersects(PollFlags::HUP | PollFlags::ERR)
            || self.input.data().first() != Some(&tag::TERMINATE)
    }

    /// Waits for a whole message at the head of the input, and returns its tag and length. Consumes nothing.
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
        let header = wire::frontend::header(self.input.data())
            .map_err(|error| Fault::Fatal(Refusal::plain(sqlstate::PROTOCOL_VIOLATION, error.to_string())))?;
        Ok(header.filter(|(_, total)| self.input.data().len() >= *total))
    }
}

/// The error for a session that was called to its end while it waited for its client.
fn called(call: &Call) -> Fault {
    Fault::Fatal(ended(if call.is_made(End::Killed) { End::Killed } else { End::Now }))
}

/// Reads the defaults of ALTER ROLE and ALTER DATABASE, weakest first. Then reads the present values of the settings
/// that Onecopy must know, which may come from the server's files, too.
pub(crate) const DEFAULTS_SQL: &str = "SELECT pg_catalog.unnest(setconfig) FROM pg_catalog.pg_db_role_setting \
     WHERE setrole OPERATOR(pg_catalog.=) ANY (ARRAY['0', \
         (SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) session_user)]) \
     AND setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY['0', (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())]) \
     ORDER BY setrole OPERATOR(pg_catalog.<>) '0', setdatabase OPERATOR(pg_catalog.<>) '0'; \
     SELECT pg_catalog.concat(name, '=', pg_catalog.current_setting(name, true)) FROM pg_catalog.unnest(\
         '{statement_timeout,lock_timeout,idle_in_transaction_session_timeout,transaction_timeout,client_min_messages,\
           standard_conforming_strings}'::pg_catalog.text[]) AS name WHERE pg_catalog.current_setting(name, true) IS NOT NULL";

/// Completes the log-in: sends the settings that the server reports and the cancel key, but not yet ReadyForQuery.
/// The default of READ ONLY is the session's, because connections for reads have another one.
pub(crate) fn welcome(client: &mut Client, connection: &Connection, read_only: bool, cancel: &CancelTarget) {
    let out = &mut client.out;
    encode::authentication_ok(out);
    for (name, value) in &connection.process.parameters {
        let shown: &[u8] = match (name == b"default_transaction_read_only", read_only) {
            (false, _) => value,
            (true, true) => b"on",
            (true, false) => b"off",
        };
        encode::parameter_status(out, name, shown);
    }
    encode::backend_key_data(out, cancel.pid, &cancel.secret);
}
