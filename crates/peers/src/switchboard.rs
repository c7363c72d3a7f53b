//! The links of one node, as its user sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::ids::NodeId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::acceptor;
use crate::complaints::Complaints;
use crate::events::{DownReason, LinkId, PeerEvents, Reports};
use crate::frame::{self, EncodeError};
use crate::limits::{CLOSE_DEADLINE, Limits};
use crate::line::{self, Line};
use crate::options::{Options, PeersError, number};
use crate::outbox::NotSent;
use crate::tls::Security;

/// The number of the newest link in the process.
static LAST_LINK: AtomicU64 = AtomicU64::new(0);

/// A number for a new link.
pub(crate) fn next_link() -> LinkId {
    LinkId(LAST_LINK.fetch_add(1, Ordering::Relaxed) + 1)
}

/// What all tasks of a node share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) security: Option<Security>,
    pub(crate) complaints: Complaints,
    pub(crate) lines: BTreeMap<String, Arc<Line>>,
    is_stopping: watch::Sender<bool>,
}

impl Shared {
    /// Waits until the links are stopped.
    pub(crate) async fn stopping(&self) {
        let mut is_stopping = self.is_stopping.subscribe();
        // The sender is in this struct.
        let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
    }
}

/// The links of this node to all others. Dropping it closes them.
pub struct Peers<M> {
    shared: Arc<Shared>,
    nodes: Vec<String>,
    by_node: BTreeMap<NodeId, Arc<Line>>,
    tasks: Mutex<JoinSet<()>>,
    message: PhantomData<fn(M)>,
}

impl<M> fmt::Debug for Peers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peers").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl<M: Serialize + DeserializeOwned + Send + 'static> Peers<M> {
    /// Listens, and begins to dial. Needs a tokio runtime.
    pub async fn start(options: Options) -> Result<(Self, PeerEvents<M>), PeersError> {
        Self::start_within(options, Limits::default()).await
    }

    pub(crate) async fn start_within(
        options: Options,
        limits: Limits,
    ) -> Result<(Self, PeerEvents<M>), PeersError> {
        options.check()?;
        let security = options.tls.as_ref().map(|files| Security::load(files, &options.name)).transpose();
        let security = security.map_err(PeersError::Tls)?;
        let listener = TcpListener::bind(&options.listen).await;
        let listener =
            listener.map_err(|source| PeersError::Listen { address: options.listen.clone(), source })?;
        let nodes = options.nodes();
        let mut lines = BTreeMap::new();
        for (name, address) in &options.others {
            let node = number(&nodes, name).ok_or_else(|| PeersError::Name(name.clone()))?;
            lines.insert(name.clone(), Arc::new(Line::new(node, name, address)));
        }
        let by_node = lines.values().map(|line| (line.node, Arc::clone(line))).collect();
        let is_stopping = watch::Sender::new(false);
        let complaints = Complaints::default();
        let shared = Arc::new(Shared { options, limits, security, complaints, lines, is_stopping });
        let (reports, events) = Reports::new(&limits);
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&shared);
        tasks.spawn(async move {
            let stopping = Arc::clone(&accepting);
            tokio::select! {
                () = acceptor::run(accepting, listener) => {}
                () = stopping.stopping() => {}
            }
        });
        for line in shared.lines.values() {
            let (shared, line, reports) = (Arc::clone(&shared), Arc::clone(line), reports.clone());
            tasks.spawn(async move {
                // Without a consumer there is nothing left to do.
                let _ = line::run(shared, line, reports).await;
            });
        }
        Ok((Self { shared, nodes, by_node, tasks: Mutex::new(tasks), message: PhantomData }, events))
    }

    /// The names of all nodes. The place of a name is its node's number, the same at all nodes.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The number of a node by its name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        number(&self.nodes, name)
    }

    /// Why links are not there, as far as it is known: each reason once.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.complaints.all()
    }

    /// Queues a message on this link. Never waits: a full queue breaks the link.
    pub fn send(&self, node: NodeId, link: LinkId, message: &M) -> Result<(), NotSent> {
        let outbox = self.by_node.get(&node).and_then(|line| line.present());
        let outbox = outbox.filter(|outbox| outbox.link == link).ok_or(NotSent::Gone)?;
        let frame = frame::encode(message).map_err(|error| match error {
            EncodeError::TooLong => NotSent::TooLong,
            EncodeError::Unencodable(reason) => NotSent::Unencodable(reason),
        })?;
        outbox.push(frame)
    }

    /// Ends this link, if it is the present one. A consumer calls this when the peer has sent nonsense, or is silent for too long.
    pub fn break_link(&self, node: NodeId, link: LinkId) {
        let outbox = self.by_node.get(&node).and_then(|line| line.present());
        if let Some(outbox) = outbox.filter(|outbox| outbox.link == link) {
            outbox.end(DownReason::Broken);
        }
    }

    /// Writes what is queued, for half a second at most, then closes everything. The events end.
    pub async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let open: Vec<_> = self.by_node.values().filter_map(|line| line.present()).collect();
        for outbox in &open {
            outbox.close();
        }
        let written = async {
            for outbox in &open {
                outbox.ended().await;
            }
        };
        let _ = tokio::time::timeout(CLOSE_DEADLINE, written).await;
        self.shared.is_stopping.send_replace(true);
        tasks.shutdown().await;
    }
}
