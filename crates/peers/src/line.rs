//! The line to one peer: its connections, one after the other. All events of a peer come from its line, so they are in order.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use cluster::ids::{NodeId, Nonce};
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::events::{DownReason, NoConsumer, PeerEvent, Reports};
use crate::frame;
use crate::hello::{self, Hello, Refusal};
use crate::limits::{CLOSE_DEADLINE, CONNECT_DEADLINE, PAUSE_MAX, PAUSE_MIN, STEADY_AFTER};
use crate::outbox::Outbox;
use crate::switchboard::{Shared, next_link};

const READ_BYTES: usize = 64 << 10;
/// A buffer that grew beyond this for a long frame is given back when it is empty.
const KEPT_BYTES_MAX: usize = 1 << 20;
const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// A byte stream in both directions, encrypted or not.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}
pub(crate) type Stream = Box<dyn Duplex>;

/// A connection whose other end has proven who it is.
pub(crate) struct Connected {
    pub(crate) stream: Stream,
    pub(crate) run: Nonce,
}

/// What others know of a line.
pub(crate) struct Line {
    pub(crate) node: NodeId,
    pub(crate) name: String,
    pub(crate) address: String,
    present: Mutex<Option<Arc<Outbox>>>,
    /// The newest accepted connection that the line has not taken yet.
    arrived: Mutex<Option<Connected>>,
    has_arrived: Notify,
}

impl Line {
    pub(crate) fn new(node: NodeId, name: &str, address: &str) -> Self {
        Self {
            node,
            name: name.to_owned(),
            address: address.to_owned(),
            present: Mutex::new(None),
            arrived: Mutex::new(None),
            has_arrived: Notify::new(),
        }
    }

    /// The queue of the present link.
    pub(crate) fn present(&self) -> Option<Arc<Outbox>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, outbox: Option<Arc<Outbox>>) {
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = outbox;
    }

    /// A new connection of the peer. It replaces the present link.
    pub(crate) fn arrived(&self, connected: Connected) {
        *self.arrived.lock().unwrap_or_else(PoisonError::into_inner) = Some(connected);
        self.has_arrived.notify_one();
        if let Some(outbox) = self.present() {
            outbox.end(DownReason::Replaced);
        }
    }

    fn has_newer(&self) -> bool {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    async fn accepted(&self) -> Connected {
        loop {
            let arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(connected) = arrived {
                return connected;
            }
            self.has_arrived.notified().await;
        }
    }
}

/// Serves the line until the node stops.
pub(crate) async fn run<M>(
    shared: Arc<Shared>,
    line: Arc<Line>,
    reports: Reports<M>,
) -> Result<(), NoConsumer>
where
    M: DeserializeOwned + Send + 'static,
{
    let mut pause = PAUSE_MIN;
    loop {
        let connected = if shared.options.name > line.name {
            match dial(&shared, &line).await {
                Ok(connected) => connected,
                Err(refusal) => {
                    shared.complaints.add(&line.name, &refusal.to_string());
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            }
        } else {
            line.accepted().await
        };
        shared.complaints.settle(&line.name);
        let since = Instant::now();
        let (node, link, run) = (line.node, next_link(), connected.run);
        let outbox = Arc::new(Outbox::new(link, &shared.limits));
        line.set(Some(Arc::clone(&outbox)));
        if line.has_newer() {
            // It came before the queue could be told.
            outbox.end(DownReason::Replaced);
        }
        let served = async {
            reports.send(PeerEvent::Up { node, link, run }, 0).await?;
            serve(&line, &outbox, connected.stream, &reports).await
        };
        let reason = tokio::select! {
            reason = served => reason?,
            () = shared.stopping() => return Ok(()),
        };
        line.set(None);
        outbox.end(reason.clone());
        tracing::info!(peer = line.name, link = link.0, "link down: {reason}");
        reports.send(PeerEvent::Down { node, link, reason }, 0).await?;
        if since.elapsed() >= STEADY_AFTER {
            pause = PAUSE_MIN;
        } else if shared.options.name > line.name {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

async fn dial(shared: &Shared, line: &Line) -> Result<Connected, Refusal> {
    let unreachable = |reason: String| {
        Refusal::Io(format!("cannot reach node \"{}\" at {}: {reason}", line.name, line.address))
    };
    let stream = tokio::time::timeout(CONNECT_DEADLINE, TcpStream::connect(&line.address)).await;
    let stream = stream.map_err(|_| unreachable("no answer in time".to_owned()))?;
    let stream = stream.map_err(|error| unreachable(error.to_string()))?;
    prepare(&stream).map_err(|error| hello::io(&error))?;
    let greeted = tokio::time::timeout(shared.limits.handshake, greet(shared, line, stream)).await;
    match greeted.map_err(|_| unreachable("it does not answer the hello in time".to_owned()))? {
        Err(Refusal::Io(reason)) => Err(unreachable(reason)),
        other => other,
    }
}

async fn greet(shared: &Shared, line: &Line, stream: TcpStream) -> Result<Connected, Refusal> {
    let mut stream: Stream = match &shared.security {
        None => Box::new(stream),
        Some(security) => {
            let name =
                ServerName::try_from(line.name.clone()).map_err(|_| Refusal::From(line.name.clone()))?;
            let stream = security.connector.connect(name, stream).await.map_err(|error| {
                Refusal::Io(format!(
                    "no TLS: {error}; its certificate must be of this cluster's authority, with its name as a DNS name"
                ))
            })?;
            Box::new(stream)
        }
    };
    Hello::new(&shared.options, &line.name, None).write(&mut stream).await?;
    let hello = Hello::read(&mut stream).await?;
    if let Some(reason) = hello.refusal {
        return Err(Refusal::ByPeer(reason));
    }
    hello.check(&shared.options)?;
    if hello.from != line.name {
        return Err(Refusal::To { wanted: line.name.clone(), ours: hello.from });
    }
    Ok(Connected { stream, run: hello.run })
}

/// Sends small frames at once, and finds out when the other machine is gone while nothing is sent.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_INTERVAL)?;
    Ok(())
}

async fn serve<M>(
    line: &Line,
    outbox: &Outbox,
    stream: Stream,
    reports: &Reports<M>,
) -> Result<DownReason, NoConsumer>
where
    M: DeserializeOwned,
{
    let (from_peer, to_peer) = tokio::io::split(stream);
    tokio::select! {
        // What has arrived is read first, also when writing has failed.
        biased;
        reason = outbox.ended() => Ok(reason),
        read = read(line, outbox, from_peer, reports) => read,
        reason = write(outbox, to_peer) => Ok(reason),
    }
}

async fn read<M>(
    line: &Line,
    outbox: &Outbox,
    mut from_peer: ReadHalf<Stream>,
    reports: &Reports<M>,
) -> Result<DownReason, NoConsumer>
where
    M: DeserializeOwned,
{
    let (node, link) = (line.node, outbox.link);
    let mut bytes = BytesMut::with_capacity(READ_BYTES);
    loop {
        match frame::decode(&mut bytes) {
            Ok(Some((message, length))) => {
                reports.send(PeerEvent::Message { node, link, message }, length).await?;
                continue;
            }
            Ok(None) => {}
            Err(reason) => return Ok(DownReason::BadFrame(reason)),
        }
        if bytes.is_empty() && bytes.capacity() > KEPT_BYTES_MAX {
            bytes = BytesMut::new();
        }
        bytes.reserve(READ_BYTES);
        match from_peer.read_buf(&mut bytes).await {
            Ok(0) => return Ok(DownReason::Closed),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(DownReason::Closed),
            Err(error) => return Ok(DownReason::Failed(error.to_string())),
        }
    }
}

async fn write(outbox: &Outbox, mut to_peer: WriteHalf<Stream>) -> DownReason {
    while let Some(batch) = outbox.next().await {
        let mut written = to_peer.write_all(&batch.bytes).await;
        if written.is_ok() && outbox.is_empty() {
            written = to_peer.flush().await;
        }
        outbox.written(&batch);
        if let Err(error) = written {
            return DownReason::Failed(error.to_string());
        }
    }
    // The node stops: the peer learns of it after the last message.
    let _ = tokio::time::timeout(CLOSE_DEADLINE, to_peer.shutdown()).await;
    DownReason::Closed
}
