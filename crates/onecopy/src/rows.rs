//! A node that propagates rows: the core orders transactions, and agents apply their rows at the other replicas.
//!
//! This is one of the kinds of node ([`crate::coordinator::node_kind::NodeKind`]). The core lives in the coordinator,
//! behind its lock, because sessions and agents give it their events directly.

mod new_tables;
mod serve;

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use cluster::event::{Effect, Event};
use cluster::ids::{ReplicaId, Version};
use cluster::placement::{Placement, REPLICAS_MAX, ReplicaSet};
use cluster::protocols::rows::{
    Choices, KEYS_MAX, Options, Perform, REFRESH_PAUSE_US, REFRESH_VERSIONS_MAX, Rules,
};
use cluster::protocols::{ReplicaStatus, rows};
use cluster::time::Time;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::placement::PlacementRules;
use crate::coordinator::mailbox::Note;
use crate::coordinator::node_kind::{Feature, HoldingSession, NewTable, NodeKind, no_checkpoints};
use crate::coordinator::open_error::OpenError;
use crate::coordinator::plan::Term;
use crate::coordinator::{AgentOrder, Coordinator, Leader};
use crate::error::Refusal;
use crate::link::Worker;
use crate::link::node_kind::{LoggedIn, ServesClients, Unserved};
use crate::replica::driver::ReplicaDriver;
use crate::replica::{lock_wait_probe, sequence_allocator, table_size_probe};
use new_tables::NewTables;

/// Switches one consistency rule off, for tests that the checkers notice.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";
/// Delays each batch at the last replica by this many milliseconds, for the same tests.
const SLOW_REFRESH: &str = "ONECOPY_TEST_SLOW_REFRESH_MS";

/// The kind of node that propagates rows.
#[derive(Debug)]
pub(crate) struct Rows {
    choices: Choices,
    rules: Rules,
    slow_refresh: Duration,
    new_tables: NewTables,
}

impl Rows {
    /// All rules are on, unless a test's environment variable says otherwise.
    pub(crate) fn from_environment(choices: Choices, placement: PlacementRules) -> Result<Self, OpenError> {
        let (slow_refresh, new_tables) = (slow_refresh()?, NewTables::of(placement)?);
        Ok(Self { choices, rules: rules()?, slow_refresh, new_tables })
    }

    /// The core of a new term, in whose log no schema change comes after `schema`. It knows the unused replica numbers from the start.
    pub(crate) fn core(
        &self,
        members: &[ReplicaId],
        anchor: ReplicaId,
        placement: Placement,
        term: Term,
        schema: Version,
    ) -> Result<Cluster, OpenError> {
        let highest = members.iter().max().ok_or(OpenError::NoReplicas)?;
        if highest.0 >= REPLICAS_MAX {
            return Err(OpenError::HighNumber { number: highest.0 + 1 });
        }
        let replicas = highest.0 + 1;
        let refresh_pause_us = REFRESH_PAUSE_US;
        let (keys_max, refresh_versions_max) = (KEYS_MAX, REFRESH_VERSIONS_MAX);
        let options = Options {
            replicas,
            anchor,
            placement,
            epoch: term.epoch,
            last: term.last,
            schema,
            refresh_pause_us,
            keys_max,
            refresh_versions_max,
            rules: self.rules,
            choices: self.choices,
        };
        let rows = rows::Rows::new(options).map_err(OpenError::kind)?;
        let mut core = Cluster::new(Box::new(rows));
        for absent in (0..replicas).map(ReplicaId).filter(|replica| !members.contains(replica)) {
            core.handle(Time::default(), Event::Left { replica: absent }, &mut Vec::new());
        }
        Ok(core)
    }
}

impl NodeKind for Rows {
    fn choices(&self) -> Option<Choices> {
        Some(self.choices)
    }

    fn replicas(&self, coordinator: &Coordinator) -> Vec<ReplicaStatus> {
        coordinator.core.replicas()
    }

    fn logged(self: Arc<Self>, coordinator: &Coordinator, upto: Version) {
        coordinator.core.tell(Event::Logged { upto });
    }

    fn shut_out(self: Arc<Self>, coordinator: &Coordinator, replica: ReplicaId) {
        coordinator.core.tell(Event::Diverged { replica });
        // Also ends what runs there now.
        coordinator.seats[replica].order(AgentOrder::Reset);
        // The replica does not come back by itself, so waiting is pointless.
        coordinator.core.tell(Event::TakeOver { from: replica });
    }

    fn let_in(&self, coordinator: &Coordinator, replica: ReplicaId) {
        coordinator.core.tell(Event::Rebuilt { replica });
        coordinator.seats[replica].order(AgentOrder::Reset);
    }

    fn hold<'a>(
        &'a self,
        coordinator: &'a Coordinator,
        session: &'a HoldingSession,
    ) -> Pin<Box<dyn Future<Output = Version> + Send + 'a>> {
        Box::pin(async move {
            coordinator.core.tell(Event::Hold { session: session.id });
            loop {
                if let Note::Effect(Effect::Held { version, .. }) = session.mailbox.next().await {
                    return version;
                }
            }
        })
    }

    fn end_hold(&self, _: &HoldingSession) {
        // The core ends the hold when the session is closed.
    }

    fn needs_anchor(&self) -> bool {
        true
    }

    fn gives_up_servers(&self) -> bool {
        true
    }

    fn knows_lacking_records(&self) -> bool {
        true
    }

    fn check(&self, feature: Feature) -> Result<(), Refusal> {
        if feature == Feature::Checkpoints { Err(no_checkpoints()) } else { Ok(()) }
    }

    fn places_new(&self) -> bool {
        !self.new_tables.is_everywhere()
    }

    fn holders_of_new(&self, coordinator: &Coordinator, table: NewTable<'_>) -> Option<ReplicaSet> {
        let members = coordinator.seats.iter().map(|seat| seat.replica).collect();
        let named = |name: &str| coordinator.seats.named(name).map(|seat| seat.replica);
        self.new_tables.holders(table, members, named)
    }
}

impl ServesClients for Rows {
    fn start(
        self: Arc<Self>,
        leader: &Arc<Leader>,
        orders: Vec<(ReplicaId, mpsc::Receiver<AgentOrder>)>,
    ) -> Result<Vec<JoinHandle<()>>, OpenError> {
        let last = orders.last().map(|(replica, _)| *replica);
        for (replica, orders) in orders {
            let delay = if last == Some(replica) { self.slow_refresh } else { Duration::ZERO };
            leader.drivers.spawn(ReplicaDriver::run(Arc::clone(leader), replica, orders, delay));
        }
        let waking = Arc::clone(leader);
        let mut tasks = vec![
            tokio::spawn(sequence_allocator::run(Arc::clone(leader))),
            tokio::spawn(lock_wait_probe::run(Arc::clone(leader))),
            tokio::spawn(async move { waking.core.wake_up_in_time().await }),
        ];
        if leader.log.confirmed_at().is_some() {
            let keeping = Arc::clone(leader);
            tasks.push(tokio::spawn(async move { keeping.core.keep_lease().await }));
        }
        if self.choices.perform == Perform::AllHolders {
            let bringing = Arc::clone(leader);
            tasks.push(tokio::spawn(async move { bringing.core.bring_messages().await }));
        }
        if self.choices.home.asks_kinds() {
            tasks.push(tokio::spawn(table_size_probe::run(Arc::clone(leader))));
        }
        Ok(tasks)
    }

    fn passes_sessions(&self) -> bool {
        true
    }

    fn serve(
        self: Arc<Self>,
        worker: Rc<Worker>,
        client: LoggedIn,
    ) -> Pin<Box<dyn Future<Output = Result<(), Box<Unserved>>>>> {
        Box::pin(serve::serve(worker, client))
    }
}

fn rules() -> Result<Rules, OpenError> {
    let mut rules = Rules::default();
    match std::env::var(RULE_OFF).ok().as_deref() {
        None | Some("") => {}
        Some("reads_wait") => rules.reads_wait = false,
        Some("homes_hold_all") => rules.homes_hold_all = false,
        Some("reads_stay_local") => rules.reads_stay_local = false,
        Some("certifies_writes") => rules.certifies_writes = false,
        Some(other) => {
            let (name, value, wanted) = (RULE_OFF, other.to_owned(), "there is no such rule");
            return Err(OpenError::TestVariable { name, value, wanted });
        }
    }
    Ok(rules)
}

fn slow_refresh() -> Result<Duration, OpenError> {
    match std::env::var(SLOW_REFRESH) {
        Ok(value) => value.parse().map(Duration::from_millis).map_err(|_| OpenError::TestVariable {
            name: SLOW_REFRESH,
            value,
            wanted: "expected a number of milliseconds",
        }),
        Err(_) => Ok(Duration::ZERO),
    }
}
