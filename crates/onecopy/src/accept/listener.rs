//! Accepts clients and spreads them over session threads, one fewer than there are processors.
//!
//! The last processor is for the servers, the log and the agents. On two processors a second session thread makes
//! each read a fifth more expensive, because each wake-up finds fewer sessions ready.
//!
//! The listener hands out sockets in turn. (An operating system that spreads by hash is uneven for few connections,
//! and a work-stealing runtime wakes other threads needlessly.) A session stays on its thread. Threads share only the
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

use super::inherited::{self, Inherited};
use super::startup;
use crate::classify::parsing::Parsers;
use crate::client::cancel::CancelKeys;
use crate::client::credentials::Credentials;
use crate::coordinator::{Coordinator, Leading};
use crate::link::Worker;
use crate::link::node_kind::ServesClients;
use crate::link::performable::Performables;
use crate::local::half_open::HalfOpen;
use crate::local::limits::Pooling;
use crate::perform;
use crate::pool::Pools;
use crate::pool::pools::REAP_EVERY;
use crate::pool::request::Thread;

/// Sockets that can wait for one thread.
const HANDED_MAX: usize = 256;
/// When descriptors run out, this many clients that have not logged in are cut.
const CUT_AT_ONCE: usize = 16;
/// Most threads.
const THREADS_MAX: usize = 64;
/// Overrides the number of threads, for tests.
const THREADS_VARIABLE: &str = "ONECOPY_TEST_THREADS";

/// What a session thread is to serve.
#[derive(Debug)]
enum Arrival {
    /// A new connection.
    Connection(std::net::TcpStream),
    /// A client of the process before this one.
    Inherited(Box<Inherited>),
}

/// The session threads. Sessions end with them, listeners do not.
#[derive(Debug)]
pub(crate) struct Workers {
    senders: Vec<mpsc::Sender<Arrival>>,
    half_open: Arc<HalfOpen>,
    turn: AtomicUsize,
}

impl Workers {
    pub(crate) fn start(
        leading: &Arc<Leading>,
        coordinator: &Arc<Coordinator>,
        pools: &Arc<Pools>,
        kind: &Arc<dyn ServesClients>,
        keys: &Arc<CancelKeys>,
    ) -> std::io::Result<Self> {
        let parsers = Arc::new(Parsers::default());
        let threads = threads();
        let mut senders = Vec::new();
        let performing_pools = Pools::new(Pooling { is_shared: true, ..pools.pooling });
        let reaped = [Arc::clone(pools), Arc::clone(&performing_pools)];
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(REAP_EVERY).await;
                for pools in &reaped {
                    pools.reap();
                }
            }
        });
        for index in 0..threads {
            let (sender, receiver) = mpsc::channel(HANDED_MAX);
            let (leading, coordinator) = (Arc::clone(leading), Arc::clone(coordinator));
            let (pools, kind) = (Arc::clone(pools), Arc::clone(kind));
            let (parsers, keys) = (Arc::clone(&parsers), Arc::clone(keys));
            let performing_pools = Arc::clone(&performing_pools);
            // Made on its thread, where some of it stays.
            let worker = move || Worker {
                local: Arc::clone(&coordinator.local),
                coordinator,
                leading,
                pools,
                kind,
                analyzer: RefCell::new(Analyzer::new(Limits::default())),
                parsers,
                keys,
                thread: Thread(index),
                credentials: Credentials::default(),
                performables: Performables::default(),
                performances: Arc::default(),
                performing_pools,
            };
            std::thread::Builder::new()
                .name(format!("sessions-{index}"))
                .spawn(move || work(worker(), receiver))?;
            senders.push(sender);
        }
        Ok(Self { senders, half_open: Arc::clone(&coordinator.local.half_open), turn: AtomicUsize::new(0) })
    }

    /// Accepts clients until the task is dropped.
    pub(crate) async fn accept(&self, listeners: &[TcpListener]) -> std::io::Result<()> {
        loop {
            // Take the first listener that is ready. The others stay ready until the next turn.
            let accepted = std::future::poll_fn(|context| {
                let mut each = listeners.iter().map(|listener| listener.poll_accept(context));
                each.find(Poll::is_ready).unwrap_or(Poll::Pending)
            });
            let stream = match accepted.await {
                Ok((stream, _)) => stream.into_std()?,
                Err(error) => {
                    // Usually descriptors ran out. That passes when a client leaves or is cut.
                    tracing::warn!(%error, "a client could not be accepted");
                    self.half_open.make_room(CUT_AT_ONCE);
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            self.hand(Arrival::Connection(stream)).await?;
        }
    }

    /// Serves the clients of the process before this one.
    pub(crate) async fn adopt(&self, inherited: Vec<Inherited>) -> std::io::Result<()> {
        for one in inherited {
            self.hand(Arrival::Inherited(Box::new(one))).await?;
        }
        Ok(())
    }

    async fn hand(&self, arrival: Arrival) -> std::io::Result<()> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.senders.len();
        let handed = self.senders[turn].send(arrival).await;
        handed.map_err(|_| std::io::Error::other("a session thread has ended"))
    }
}

fn threads() -> usize {
    let asked = std::env::var(THREADS_VARIABLE).ok().and_then(|text| text.parse().ok());
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    asked.unwrap_or_else(|| processors.saturating_sub(1)).clamp(1, THREADS_MAX)
}

fn work(worker: Worker, mut arrivals: mpsc::Receiver<Arrival>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => return tracing::error!(%error, "a session thread has no runtime"),
    };
    let worker = Rc::new(worker);
    runtime.block_on(async {
        tokio::task::spawn_local(perform::serve(Rc::clone(&worker)));
        while let Some(arrival) = arrivals.recv().await {
            match arrival {
                Arrival::Connection(socket) => match TcpStream::from_std(socket) {
                    Ok(stream) => {
                        tokio::task::spawn_local(startup::serve(Rc::clone(&worker), stream));
                    }
                    Err(error) => tracing::warn!(%error, "cannot use the socket of a client"),
                },
                Arrival::Inherited(inherited) => {
                    tokio::task::spawn_local(inherited::serve(Rc::clone(&worker), *inherited));
                }
            }
        }
    });
}
