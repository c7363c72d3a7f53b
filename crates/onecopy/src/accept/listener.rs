//! Accepting clients: one listener, and one single-threaded runtime less than there are processors.
//!
//! The last processor is for the servers, the log and the agents: where all of them share two, a second thread makes each
//! read dearer by a fifth, since fewer of them are found ready at a time, and gains nothing.
//!
//! Sockets are handed out in turn (an operating system that spreads by hash does it unevenly for few connections, and
//! a work-stealing runtime wakes other threads for nothing). A session stays on its thread; what threads share is the
//! coordinator.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use sql::{Analyzer, Limits};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::LocalOptions;
use tokio::sync::mpsc;

use super::startup;
use crate::classify::parsing::Parsers;
use crate::client::cancel::CancelKeys;
use crate::client::credentials::Credentials;
use crate::coordinator::Coordinator;
use crate::link::Worker;
use crate::link::node_kind::ServesClients;
use crate::local::half_open::HalfOpen;
use crate::pool::Pools;
use crate::pool::pools::REAP_EVERY;
use crate::pool::request::Thread;

/// Sockets that can wait for one thread.
const HANDED_MAX: usize = 256;
/// So many clients that have not logged in are cut where descriptors are used up.
const CUT_AT_ONCE: usize = 16;
/// Most threads.
const THREADS_MAX: usize = 64;
/// Says how many there are, for tests.
const THREADS_VARIABLE: &str = "ONECOPY_TEST_THREADS";

/// The threads on which sessions live. Sessions end with them, listeners do not.
#[derive(Debug)]
pub(crate) struct Workers {
    senders: Vec<mpsc::Sender<std::net::TcpStream>>,
    half_open: Arc<HalfOpen>,
    turn: AtomicUsize,
}

impl Workers {
    /// Starts the threads.
    pub(crate) fn start(
        coordinator: &Arc<Coordinator>,
        pools: &Arc<Pools>,
        kind: &Arc<dyn ServesClients>,
    ) -> std::io::Result<Self> {
        let keys = Arc::new(CancelKeys::default());
        let parsers = Arc::new(Parsers::default());
        let threads = threads();
        let mut senders = Vec::new();
        let reaped = Arc::clone(pools);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REAP_EVERY).await;
                reaped.reap();
            }
        });
        for index in 0..threads {
            let (sender, receiver) = mpsc::channel(HANDED_MAX);
            let worker = Worker {
                coordinator: Arc::clone(coordinator),
                local: Arc::clone(&coordinator.local),
                pools: Arc::clone(pools),
                kind: Arc::clone(kind),
                analyzer: RefCell::new(Analyzer::new(Limits::default())),
                parsers: Arc::clone(&parsers),
                keys: Arc::clone(&keys),
                thread: Thread(index),
                credentials: Credentials::default(),
            };
            std::thread::Builder::new()
                .name(format!("sessions-{index}"))
                .spawn(move || work(worker, receiver))?;
            senders.push(sender);
        }
        Ok(Self { senders, half_open: Arc::clone(&coordinator.local.half_open), turn: AtomicUsize::new(0) })
    }

    /// Accepts clients until the task is dropped.
    pub(crate) async fn accept(&self, listeners: &[TcpListener]) -> std::io::Result<()> {
        loop {
            // Any of them; whoever is not first is asked again.
            let accepted = std::future::poll_fn(|context| {
                let mut each = listeners.iter().map(|listener| listener.poll_accept(context));
                each.find(Poll::is_ready).unwrap_or(Poll::Pending)
            });
            let stream = match accepted.await {
                Ok((stream, _)) => stream.into_std()?,
                Err(error) => {
                    // Out of descriptors, mostly: it passes when a client leaves, or is cut.
                    tracing::warn!(%error, "a client could not be accepted");
                    self.half_open.make_room(CUT_AT_ONCE);
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.senders.len();
            if self.senders[turn].send(stream).await.is_err() {
                return Err(std::io::Error::other("a session thread has ended"));
            }
        }
    }
}

fn threads() -> usize {
    let asked = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.parse().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(|| processors.saturating_sub(1)).clamp(1, THREADS_MAX)
}

fn work(worker: Worker, mut sockets: mpsc::Receiver<std::net::TcpStream>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "a session thread has no runtime"),
    };
    let worker = Rc::new(worker);
    runtime.block_on(async {
        while let Some(socket) = sockets.recv().await {
            match TcpStream::from_std(socket) {
                Ok(stream) => {
                    tokio::task::spawn_local(startup::serve(Rc::clone(&worker), stream));
                }
                Err(error) => tracing::warn!(%error, "a client's socket is of no use"),
            }
        }
    });
}
