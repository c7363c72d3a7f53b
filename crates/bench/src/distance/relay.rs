//! A relay between two processes of one machine that stands for a network: it delivers each byte a fixed time after it came.
//!
//! The delay is the same for everything that passes, so what came first is due first, on whatever connection, and one queue
//! in the order of arrival is all there is to keep. A round trip takes two delays and what the relay itself needs; bandwidth
//! is not limited. Tokio's timers count milliseconds, so the queue waits for a timer of the kernel.
//!
//! A side that does not read stops only what flows to it: each direction of each connection may have so many bytes
//! under way, and then its sender waits as before a full window. An end of file is delivered like a byte, so the last words
//! of either side arrive.
//!
//! All of a relay happens on one thread, to cost little of the processors that are measured.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use testbed::fault::Fault;
use testbed::postgres::free_port;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The most bytes under way in one direction of a connection.
const UNDER_WAY_BYTES_MAX: usize = 1 << 20;
/// The most bytes that are read at once.
const READ_BYTES: u32 = 16 << 10;
/// More connections wait to be accepted.
const CONNECTIONS_MAX: usize = 1000;
/// Bytes that a timer delivers. A reader that gets fewer bytes than it asked for knows that there are no more.
const RING_BYTES: usize = size_of::<u64>();
/// The pause after a connection that could not be accepted, for want of files above all.
const REST: Duration = Duration::from_millis(10);

/// A relay that runs until it is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    /// Where it listens, on the loopback.
    pub(super) port: u16,
    end: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Puts one before a port of the loopback.
    pub(super) fn start(target: u16, delay: Duration) -> Result<Self, Fault> {
        let failed = |error| Fault::system("start a relay")(error);
        let port = free_port()?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (listener, timer) = {
            let _inside = runtime.enter();
            (listen(port).map_err(failed)?, Timer::new().map_err(failed)?)
        };
        let (end, ended) = oneshot::channel();
        let relay = async move {
            let (sender, queue) = mpsc::unbounded_channel();
            tokio::select! {
                _ = ended => {}
                // Without its timer nothing passes any more, and both sides see an end of file.
                _ = deliver(queue, timer) => {}
                () = accept(listener, target, Line { sender, delay }) => {}
            }
        };
        // What is left of connections ends with the runtime.
        let thread = thread::Builder::new().name("relay".to_owned()).spawn(move || runtime.block_on(relay));
        Ok(Self { port, end: Some(end), thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        drop(self.end.take());
        // If its thread has panicked, that was said already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The way from here to there and back.
#[derive(Clone, Debug)]
struct Line {
    sender: UnboundedSender<Packet>,
    delay: Duration,
}

/// Something that is under way; an end of file if it has no bytes.
#[derive(Debug)]
struct Packet {
    due: Instant,
    load: Load,
    to: UnboundedSender<Load>,
}

#[derive(Debug)]
struct Load {
    bytes: Vec<u8>,
    /// Given back when the bytes have been taken.
    _room: OwnedSemaphorePermit,
}

fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Hands out what is due.
async fn deliver(mut queue: UnboundedReceiver<Packet>, mut timer: Timer) -> io::Result<()> {
    while let Some(Packet { due, load, to }) = queue.recv().await {
        timer.wait_until(due).await?;
        // A side that has closed takes nothing more.
        let _ = to.send(load);
    }
    Ok(())
}

async fn accept(listener: TcpListener, target: u16, line: Line) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let line = line.clone();
        tokio::spawn(async move {
            // A client whose server cannot be reached is closed, so it notices that.
            let _ = connect(client, target, &line).await;
            drop(place);
        });
    }
}

async fn connect(client: TcpStream, target: u16, line: &Line) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(pass(from_client, to_server, line), pass(from_server, to_client, line));
    Ok(())
}

/// One direction of a connection, until its end.
async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, line: &Line) {
    let room = Arc::new(Semaphore::new(UNDER_WAY_BYTES_MAX));
    let (near, mut far) = mpsc::unbounded_channel::<Load>();
    let take = async move {
        let mut buffer = vec![0; READ_BYTES as usize];
        while let Ok(mut free) = Arc::clone(&room).acquire_many_owned(READ_BYTES).await {
            let count = tokio::select! {
                read = from.read(&mut buffer) => read.unwrap_or(0),
                () = near.closed() => break,
            };
            let Some(taken) = free.split(count) else { break };
            let load = Load { bytes: buffer[..count].to_vec(), _room: taken };
            let packet = Packet { due: Instant::now() + line.delay, load, to: near.clone() };
            if line.sender.send(packet).is_err() || count == 0 {
                break;
            }
        }
    };
    let give = async move {
        while let Some(load) = far.recv().await {
            if to.write_all(&load.bytes).await.is_err() {
                break;
            }
        }
        // A side that is gone already needs no notice.
        let _ = to.shutdown().await;
    };
    tokio::join!(take, give);
}

/// A timer of the kernel. It is read like a pipe that gets a number when the timer rings, and as such tokio can wait for it.
#[derive(Debug)]
struct Timer(pipe::Receiver);

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        pipe::Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    async fn wait_until(&mut self, due: Instant) -> io::Result<()> {
        loop {
            let left = due.saturating_duration_since(Instant::now());
            // No time at all would put the timer off.
            if left.is_zero() {
                return Ok(());
            }
            let it_value = Timespec::try_from(left).map_err(io::Error::other)?;
            let once = Itimerspec { it_interval: Timespec::default(), it_value };
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
            if self.0.read(&mut [0; RING_BYTES + 1]).await? != RING_BYTES {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    /// However slow the machine is.
    const PATIENCE: Duration = Duration::from_mins(1);

    fn run<T>(test: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("it ends") })
    }

    /// A server without clients, and one end of a connection to it through a relay with that delay.
    async fn connected(delay: Duration) -> (Relay, TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let relay = Relay::start(listener.local_addr().unwrap().port(), delay).unwrap();
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        (relay, client, server)
    }

    #[test]
    fn a_byte_comes_after_the_delay_each_way() {
        for delay in [Duration::from_micros(300), Duration::from_millis(20)] {
            run(async {
                let (_relay, mut client, mut server) = connected(delay).await;
                for _ in 0..20 {
                    let begin = Instant::now();
                    client.write_all(b"?").await.unwrap();
                    assert_eq!(server.read_u8().await.unwrap(), b'?');
                    assert!(begin.elapsed() >= delay, "{:?}", begin.elapsed());
                    server.write_all(b"!").await.unwrap();
                    assert_eq!(client.read_u8().await.unwrap(), b'!');
                    assert!(begin.elapsed() >= 2 * delay, "{:?}", begin.elapsed());
                }
            });
        }
    }

    #[test]
    fn all_bytes_come_in_order_and_then_the_end() {
        run(async {
            let (_relay, client, server) = connected(Duration::from_millis(2)).await;
            let sent: Vec<u8> =
                (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let (mut from_server, mut to_server) = client.into_split();
            let (mut from_client, mut to_client) = server.into_split();
            let ask = async {
                for piece in sent.chunks(4_321) {
                    to_server.write_all(piece).await.unwrap();
                }
                to_server.shutdown().await.unwrap();
            };
            let echo = async {
                tokio::io::copy(&mut from_client, &mut to_client).await.unwrap();
                to_client.shutdown().await.unwrap();
            };
            let mut back = Vec::new();
            let (.., read) = tokio::join!(ask, echo, from_server.read_to_end(&mut back));
            assert_eq!(read.unwrap(), sent.len());
            assert!(back == sent, "other bytes came than were sent");
        });
    }

    #[test]
    fn when_one_side_closes_the_other_sees_it() {
        run(async {
            let (_relay, mut client, server) = connected(Duration::from_millis(1)).await;
            drop(server);
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
            let (_relay, client, mut server) = connected(Duration::from_millis(1)).await;
            drop(client);
            assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
            let (relay, mut client, mut server) = connected(Duration::from_millis(1)).await;
            drop(relay);
            // If something was under way, it may be a reset.
            assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
            assert_eq!(server.read(&mut [0]).await.unwrap_or(0), 0);
        });
    }

    #[test]
    fn a_server_that_is_not_there_closes_the_connection() {
        run(async {
            let relay = Relay::start(free_port().unwrap(), Duration::ZERO).unwrap();
            let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port)).await.unwrap();
            assert_eq!(client.read(&mut [0]).await.unwrap_or(0), 0);
        });
    }

    /// Has no end, and tells how much of it was read.
    struct Endless(Arc<AtomicUsize>);

    impl AsyncRead for Endless {
        fn poll_read(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.0.fetch_add(buffer.remaining(), Ordering::Relaxed);
            buffer.put_slice(&vec![7; buffer.remaining()]);
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn who_is_not_read_from_waits_when_so_much_is_under_way() {
        run(async {
            let read = Arc::new(AtomicUsize::new(0));
            let (sender, queue) = mpsc::unbounded_channel();
            let line = Line { sender, delay: Duration::from_millis(1) };
            // The other end does not read; this pipe holds a little.
            const PIPE_BYTES: usize = 64;
            let (to, mut out) = tokio::io::duplex(PIPE_BYTES);
            let (source, timer) = (Endless(Arc::clone(&read)), Timer::new().unwrap());
            tokio::spawn(async move { pass(source, to, &line).await });
            tokio::spawn(deliver(queue, timer));
            while read.load(Ordering::Relaxed) < UNDER_WAY_BYTES_MAX {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Time enough to read much more, if nothing prevented it.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(read.load(Ordering::Relaxed), UNDER_WAY_BYTES_MAX);
            // When something is taken it goes on.
            let mut taken = vec![0; 4 * UNDER_WAY_BYTES_MAX];
            out.read_exact(&mut taken).await.unwrap();
            assert!(read.load(Ordering::Relaxed) >= taken.len());
        });
    }
}
