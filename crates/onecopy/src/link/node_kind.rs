//! How each kind of node serves clients: the half of a kind that knows clients and threads.
//!
//! The other half, [`NodeKind`], belongs to the coordinator, which knows neither clients nor threads.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use cluster::ids::ReplicaId;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::Worker;
use crate::client::Client;
use crate::client::passed::{PassedDraws, PassedStatement};
use crate::client::settings::Settings;
use crate::coordinator::node_kind::NodeKind;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::{AgentOrder, Leader};
use crate::error::Fault;
use crate::local::session_registry::ClientInfo;
use crate::security::scram::Secret;

/// A client that has proven its role and has a place among the sessions.
pub(crate) struct LoggedIn {
    /// Its connection.
    pub(crate) client: Client,
    /// The settings of its start-up message.
    pub(crate) settings: Settings,
    /// Its entry in SHOW CLIENTS.
    pub(crate) client_info: ClientInfo,
    /// Opens the servers to its role.
    pub(crate) secret: Secret,
    pub(crate) origin: Origin,
}

/// Where a session comes from.
pub(crate) enum Origin {
    /// Its client has just logged in.
    LogIn,
    /// It began in the process before this one.
    Predecessor(Box<Begun>),
}

/// What a session of the process before this one has, beside what every client has.
pub(crate) struct Begun {
    pub(crate) number: u64,
    /// The secret in the client's cancel key.
    pub(crate) key: [u8; 4],
    pub(crate) statements: Vec<PassedStatement>,
    pub(crate) prepares: Vec<(String, String)>,
    pub(crate) draws: PassedDraws,
    pub(crate) greeting: Vec<u8>,
}

/// A session that ended with an error that its client has yet to receive.
pub(crate) struct Unserved {
    /// The connection of the client.
    pub(crate) client: Client,
    /// The error.
    pub(crate) fault: Fault,
}

/// A kind of node: how it starts, and serves clients.
pub(crate) trait ServesClients: NodeKind {
    /// Starts the tasks that bring replicas up and keep them up. `orders` has the queue of each replica's agent; a kind
    /// without agents drops it.
    fn start(
        self: Arc<Self>,
        leader: &Arc<Leader>,
        orders: Vec<(ReplicaId, mpsc::Receiver<AgentOrder>)>,
    ) -> Result<Vec<JoinHandle<()>>, OpenError>;

    /// Whether its sessions can go on in another process.
    fn passes_sessions(&self) -> bool {
        false
    }

    /// Serves one client until its session ends.
    fn serve(
        self: Arc<Self>,
        worker: Rc<Worker>,
        client: LoggedIn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Box<Unserved>>>>>;
}
