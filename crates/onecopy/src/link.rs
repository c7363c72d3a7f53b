//! The state that a session holds as long as its client is connected: both ends, and the settings of the client.
//!
//! A [`Link`] holds the client's connection, the connections to servers, and the settings and prepared statements that
//! follow the session from one server connection to the next. It does not know the open transaction: that is
//! [`crate::transaction::open::OpenTransaction`].

pub(crate) mod answers;
pub(crate) mod lost_state;
pub(crate) mod node_kind;
pub(crate) mod parsing;
pub(crate) mod performable;
pub(crate) mod prepared;
pub(crate) mod settling;
pub(crate) mod wait;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cluster::event::Event;
use cluster::ids::{ReplicaId, SessionId};
use cluster::protocols::rows::{Order, Perform, Retry, Rule};
use sql::{Analyzer, Isolation, TransactionOptions};
use wire::encode;

use crate::classify::parsing::Parsers;
use crate::client::Client;
use crate::client::cancel::{CancelKeys, CancelTarget};
use crate::client::credentials::Credentials;
use crate::client::own_settings::Severity;
use crate::client::prepared::Prepared;
use crate::client::settings::Settings;
use crate::coordinator::evictions::Tenancy;
use crate::coordinator::mailbox::{End, Mailbox};
use crate::coordinator::performances::PerformanceQueue;
use crate::coordinator::{Coordinator, Leading};
use crate::database::Database;
use crate::local::memory_budget::Progress;
use crate::local::session_registry::SessionEntry;
use crate::local::{LocalState, count};
use crate::pool::Pools;
use crate::pool::leftovers::Inquiry;
use crate::pool::request::Thread;
use crate::pool::servers::Servers;
use answers::Answers;
use node_kind::ServesClients;
use performable::Performables;

/// The state that all sessions of one thread share.
pub(crate) struct Worker {
    pub(crate) coordinator: Arc<Coordinator>,
    /// Who leads, for the admin database.
    pub(crate) leading: Arc<Leading>,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
    /// The server connections that sessions share.
    pub(crate) pools: Arc<Pools>,
    /// Serves the clients.
    pub(crate) kind: Arc<dyn ServesClients>,
    pub(crate) analyzer: RefCell<Analyzer>,
    pub(crate) parsers: Arc<Parsers>,
    pub(crate) keys: Arc<CancelKeys>,
    /// The number of the thread.
    pub(crate) thread: Thread,
    pub(crate) credentials: Credentials,
    /// The transactions that other replicas may perform.
    pub(crate) performables: Performables,
    /// Those that have to be performed.
    pub(crate) performances: Arc<PerformanceQueue>,
    /// The connections on which they are performed.
    pub(crate) performing_pools: Arc<Pools>,
}

/// Both ends of a session, and the settings of its client.
pub(crate) struct Link {
    pub(crate) worker: Rc<Worker>,
    pub(crate) id: SessionId,
    pub(crate) session_registration: SessionRegistration,
    pub(crate) client: Client,
    pub(crate) servers: Servers,
    pub(crate) settings: Settings,
    pub(crate) prepared: Prepared,
    pub(crate) leftovers: Leftovers,
    pub(crate) answers: Answers,
    /// The home where a record was handed to the log and the COMMIT is still to be sent.
    pub(crate) settling: Option<ReplicaId>,
    /// Registers the open update transaction at its backend, for evictions, until it has committed.
    pub(crate) tenancy: Option<Tenancy>,
}

/// How other tasks reach the session, and how the admin database shows it.
pub(crate) struct SessionRegistration {
    /// Effects of the core, and requests to end, arrive here.
    pub(crate) mailbox: Arc<Mailbox>,
    /// The target of cancel requests.
    pub(crate) cancel: Arc<CancelTarget>,
    /// The session's row of SHOW CLIENTS.
    pub(crate) entry: Arc<SessionEntry>,
    /// The session's row of SHOW TRANSACTIONS.
    pub(crate) progress: Arc<Progress>,
    /// A request to end that has arrived and was not followed yet.
    pub(crate) ending: Option<End>,
}

impl SessionRegistration {
    /// Remembers a request to end; the more urgent one counts.
    pub(crate) fn note_end(&mut self, end: End) {
        self.ending = self.ending.max(Some(end));
    }
}

/// State that the session may have left on its server connections ([`crate::connect::leftovers`]).
#[derive(Default)]
pub(crate) struct Leftovers {
    /// The questions to servers about such connections.
    pub(crate) inquiry: Inquiry,
    /// An object exists only on the home's connection (a temporary table, say), so statements may run only there.
    pub(crate) pinned: bool,
}

impl Link {
    /// The options of a transaction: those of its BEGIN, and the session's defaults for the rest.
    pub(crate) fn resolve(&self, said: TransactionOptions) -> TransactionOptions {
        let isolation = said.isolation.unwrap_or(self.settings.defaults.isolation);
        TransactionOptions {
            isolation: Some(self.raised(isolation)),
            read_only: said.read_only.or(Some(self.settings.defaults.read_only)),
            deferrable: said.deferrable,
        }
    }

    /// The level at which a transaction runs that asks for this one. Where chains order reads, too, a transaction with one
    /// snapshot is serializable.
    fn raised(&self, isolation: Isolation) -> Isolation {
        let choices = self.coordinator().kind.choices();
        let is_raised = choices.is_some_and(|choices| choices.order == Order::Chains(Rule::ReadWrite));
        if is_raised && isolation == Isolation::RepeatableRead { Isolation::Serializable } else { isolation }
    }

    /// Whether a transaction that is known as a whole waits in a chain before it begins.
    pub(crate) fn waits_in_chains(&self) -> bool {
        let by_protocol =
            || self.coordinator().kind.choices().is_some_and(|choices| choices.order.chains_all());
        self.settings.noted.chains.unwrap_or_else(by_protocol)
    }

    /// Whether replicas other than its home perform a transaction that is known as a whole.
    pub(crate) fn performs_elsewhere(&self) -> bool {
        self.coordinator().kind.choices().is_some_and(|choices| choices.perform == Perform::AllHolders)
    }

    /// Whether the core has to know the kind of what begins.
    pub(crate) fn tells_kinds(&self) -> bool {
        self.coordinator().kind.choices().is_some_and(|choices| choices.home.asks_kinds())
    }

    /// Whether the session is connected to a replica, where its transactions begin.
    pub(crate) fn has_local_replica(&self) -> bool {
        self.coordinator().kind.choices().is_some_and(|choices| choices.home.connects_sessions())
    }

    /// Whether a statement that lost a conflict is run again, unseen by its client.
    pub(crate) fn retries_unseen(&self) -> bool {
        self.coordinator().kind.choices().is_none_or(|choices| choices.retry == Retry::Unseen)
    }

    pub(crate) fn forget_update(&mut self) {
        self.end_exchange(Event::End { session: self.id });
    }

    /// Hands over the event that ends an exchange with the core.
    pub(crate) fn end_exchange(&self, event: Event) {
        self.worker.coordinator.core.end_exchange(&self.session_registration.mailbox, event);
    }

    /// The coordinator.
    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.worker.coordinator
    }

    /// The state of this node.
    pub(crate) fn local(&self) -> &LocalState {
        &self.worker.local
    }

    /// The database.
    pub(crate) fn database(&self) -> &Database {
        &self.worker.coordinator.database
    }

    /// The anchor.
    pub(crate) fn anchor(&self) -> ReplicaId {
        self.worker.coordinator.view.anchor()
    }

    /// Passes notifications on that arrived with replies to queries of our own.
    pub(crate) fn take_notifications(&mut self) {
        let Self { client, servers, .. } = self;
        servers.iter_mut().for_each(|server| client.out.append(&mut server.connection.notifications));
    }

    /// Tells the coordinator that the statement at the replica has ended.
    pub(crate) fn executed(&self) {
        self.worker.coordinator.core.tell(Event::Executed { session: self.id });
    }

    /// Increments a counter of the node.
    pub(crate) fn count(&self, counter: impl Fn(&crate::local::Stats) -> &AtomicU64) {
        count(counter(&self.worker.local.stats));
    }

    pub(crate) fn warn(&mut self, code: &str, text: &str) {
        self.tell_client(Severity::Warning, code, text, None);
    }

    /// Sends a message of our own, if `client_min_messages` lets it through.
    pub(crate) fn tell_client(&mut self, severity: Severity, code: &str, text: &str, hint: Option<&str>) {
        let word = if severity == Severity::Notice { "NOTICE" } else { "WARNING" };
        if severity >= self.settings.noted.least {
            encode::notice(&mut self.client.out, word, code, text, hint);
        }
    }

    pub(crate) fn show_value(&mut self, name: &str, value: &str) {
        encode::row_description(&mut self.client.out, &[name]);
        encode::data_row(&mut self.client.out, &[Some(value.as_bytes())]);
        encode::command_complete(&mut self.client.out, "SHOW");
    }
}
