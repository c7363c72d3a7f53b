//! Network paths that a check can cut: small TCP proxies on the loopback.
//!
//! A cut path drops nothing, as TCP drops nothing: what was sent arrives late, when the cut is over. No connection is made
//! meanwhile. A path can also be cut in one direction only:
//!
//! ```no_run
//! # fn run() -> Result<(), testbed::fault::Fault> {
//! use testbed::wire::{Flow, Wires};
//! let wires = Wires::new()?;
//! let wire = wires.lay(2379)?;
//! wire.set(Flow::Cut); // whoever connects to wire.port hears nothing
//! wire.set(Flow::Open);
//! # Ok(())
//! # }
//! ```
//!
//! Network namespaces would need root, and certificates for each node, which are required off the loopback.
//!
//! Not here: delays ([`crate::node::Shape::message_us`]), lost connections.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};

use crate::fault::Fault;
use crate::postgres::free_port;

/// Bytes that are forwarded at a time.
const CHUNK: usize = 65_536;
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(20);

/// What a path lets through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flow {
    /// Everything.
    #[default]
    Open,
    /// Nothing.
    Cut,
    /// Only what the end that was dialed sends.
    OnlyBack,
    /// Only what the end that has dialed sends.
    OnlyForth,
}

/// A direction of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    /// From the end that has dialed.
    Forth,
    Back,
}

impl Flow {
    fn lets(self, direction: Direction) -> bool {
        match self {
            Self::Open => true,
            Self::Cut => false,
            Self::OnlyBack => direction == Direction::Back,
            Self::OnlyForth => direction == Direction::Forth,
        }
    }
}

/// Carries what goes over paths, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Wires {
    thread: Handle,
    _until: oneshot::Sender<()>,
}

/// A path to a port.
#[derive(Debug)]
pub struct Wire {
    /// Where to dial.
    pub port: u16,
    flow: watch::Sender<Flow>,
}

impl Wire {
    /// Cuts it, or lets it flow again.
    pub fn set(&self, flow: Flow) {
        self.flow.send_replace(flow);
    }
}

impl Wires {
    /// None yet.
    pub fn new() -> Result<Self, Fault> {
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(Fault::system("run proxies"))?;
        let thread = runtime.handle().clone();
        let (until, ends) = oneshot::channel();
        std::thread::spawn(move || runtime.block_on(ends));
        Ok(Self { thread, _until: until })
    }

    /// A path to a port of the loopback, which need not be in use yet.
    pub fn lay(&self, to: u16) -> Result<Wire, Fault> {
        let port = free_port()?;
        let (flow, is_open) = watch::channel(Flow::Open);
        let _inside = self.thread.enter();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).and_then(|listener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        });
        let listener = listener.map_err(Fault::system("listen for a proxy"))?;
        self.thread.spawn(accept(listener, to, is_open));
        Ok(Wire { port, flow })
    }
}

async fn accept(listener: TcpListener, to: u16, flow: watch::Receiver<Flow>) {
    loop {
        match listener.accept().await {
            Ok((near, _)) => drop(tokio::spawn(connect(near, to, flow.clone()))),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn connect(near: TcpStream, to: u16, mut flow: watch::Receiver<Flow>) {
    // A handshake needs both directions.
    if flow.wait_for(|flow| *flow == Flow::Open).await.is_err() {
        return;
    }
    // Without anything at the other end, this one is closed.
    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { return };
    if near.set_nodelay(true).is_err() || far.set_nodelay(true).is_err() {
        return;
    }
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::spawn(forward(near_read, far_write, flow.clone(), Direction::Forth));
    forward(far_read, near_write, flow, Direction::Back).await;
}

/// Forwards until the end of what is sent, and the end itself.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut flow: watch::Receiver<Flow>,
    direction: Direction,
) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = from.read(&mut chunk).await.unwrap_or(0);
        if flow.wait_for(|flow| flow.lets(direction)).await.is_err() {
            return;
        }
        // The other end may have closed; then this one is closed, too.
        if count == 0 || to.write_all(&chunk[..count]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(30);

    fn hears_nothing(end: &mut TcpStream) -> bool {
        end.set_read_timeout(Some(SHORT)).unwrap();
        let read = end.read(&mut [0; 8]);
        end.set_read_timeout(Some(LONG)).unwrap();
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    fn hears(end: &mut TcpStream, text: &[u8]) {
        let mut heard = vec![0; text.len()];
        end.read_exact(&mut heard).unwrap();
        assert_eq!(heard, text);
    }

    #[test]
    fn what_is_sent_over_a_cut_path_arrives_later_in_each_direction() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wires = Wires::new().unwrap();
        let wire = wires.lay(server.local_addr().unwrap().port()).unwrap();
        let mut near = TcpStream::connect((Ipv4Addr::LOCALHOST, wire.port)).unwrap();
        let (mut far, _) = server.accept().unwrap();
        for end in [&mut near, &mut far] {
            end.set_read_timeout(Some(LONG)).unwrap();
        }
        near.write_all(b"one").unwrap();
        hears(&mut far, b"one");

        wire.set(Flow::OnlyBack);
        near.write_all(b"two").unwrap();
        far.write_all(b"back").unwrap();
        hears(&mut near, b"back");
        assert!(hears_nothing(&mut far));
        wire.set(Flow::Cut);
        far.write_all(b"late").unwrap();
        assert!(hears_nothing(&mut near) && hears_nothing(&mut far));

        let mut new = TcpStream::connect((Ipv4Addr::LOCALHOST, wire.port)).unwrap();
        new.write_all(b"new").unwrap();
        server.set_nonblocking(true).unwrap();
        assert!(server.accept().is_err(), "a connection is made over a cut path");
        server.set_nonblocking(false).unwrap();
        wire.set(Flow::Open);
        hears(&mut near, b"late");
        hears(&mut far, b"two");
        let (mut other, _) = server.accept().unwrap();
        hears(&mut other, b"new");

        drop(near);
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0, "the end is forwarded");
    }
}
