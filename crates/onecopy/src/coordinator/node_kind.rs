//! The questions that kinds of node answer differently, and the trait through which the rest of a node asks them.
//!
//! A node keeps its replicas equal in one way for as long as its log exists: it propagates rows, or it ships
//! statements. The coordinator, the admin database and the tasks that rebuild or compare replicas serve every kind, so
//! none of them may ask which kind it is. A new kind implements [`NodeKind`] and
//! [`crate::link::node_kind::ServesClients`], and is named once, where `node` opens a node.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use cluster::ids::{CrewId, ReplicaId, SessionId, TableId, Version};
use cluster::placement::{Placement, ReplicaSet};
use cluster::protocols::ReplicaStatus;
use cluster::protocols::rows::Choices;
use sql::Name;
use wire::sqlstate;

use super::Coordinator;
use super::mailbox::Mailbox;
use crate::config::placement::TableName;
use crate::coordinator::scheduler_messages::{ToCrew, ToScheduler};
use crate::error::Refusal;

/// A group of commands that a kind of node may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Replicas join, leave, and are drained while the node runs.
    ChangeMembers,
    /// Tables that only some replicas hold.
    Placement,
    /// PAUSE: transactions end, and none begins.
    Pause,
    /// REBUILD of a replica with the data of another one.
    Rebuild,
    /// REBUILD of a replica whose server this node did not start.
    Refill,
    /// Checkpoints of the recovery log.
    Checkpoints,
}

/// Where tables are to be held.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) tables: Vec<Name>,
    /// The names of the holders; all replicas if there are none.
    pub(crate) holders: Option<BTreeSet<String>>,
}

/// A placement of tables that goes on.
pub(crate) type Placing = Pin<Box<dyn Future<Output = Result<Vec<TableId>, Refusal>> + Send>>;

/// A table that a transaction has made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTable<'a> {
    pub(crate) id: TableId,
    /// Its name, and those of the tables that it is a partition of.
    pub(crate) names: &'a [TableName],
}

/// The session for which a node holds all transactions.
#[derive(Clone, Debug)]
pub(crate) struct HoldingSession {
    /// Its number.
    pub(crate) id: SessionId,
    /// Receives the effects of the core.
    pub(crate) mailbox: Arc<Mailbox>,
}

/// The tasks and replicas of a kind of node, as the rest of the node sees them.
pub(crate) trait NodeKind: Send + Sync {
    /// The members, in the order of their numbers.
    fn replicas(&self, coordinator: &Coordinator) -> Vec<ReplicaStatus>;

    /// The log has every version up to this one on disk. The view shows that before any consequence of it.
    fn logged(self: Arc<Self>, coordinator: &Coordinator, upto: Version);

    /// A replica is in quarantine: it serves nothing, and its running work ends.
    fn shut_out(self: Arc<Self>, coordinator: &Coordinator, replica: ReplicaId);

    /// A replica has left quarantine and may come up again.
    fn let_in(&self, coordinator: &Coordinator, replica: ReplicaId);

    /// Lets no transaction commit until every replica has all durable versions. Returns the version that all replicas
    /// have then.
    fn hold<'a>(
        &'a self,
        coordinator: &'a Coordinator,
        session: &'a HoldingSession,
    ) -> Pin<Box<dyn Future<Output = Version> + Send + 'a>>;

    /// Ends the hold that [`NodeKind::hold`] began, even if the hold was given up early.
    fn end_hold(&self, session: &HoldingSession);

    /// The choices of its protocol, if it propagates rows.
    fn choices(&self) -> Option<Choices> {
        None
    }

    /// Whether one replica, the anchor, must be up before clients are served.
    fn needs_anchor(&self) -> bool;

    /// Whether a server that does not answer is given up by an agent, so that waits for the server end.
    fn gives_up_servers(&self) -> bool;

    /// Whether the applied set of a replica shows which records it lacks. If not, a replica that the log has left
    /// behind does not find that out by itself.
    fn knows_lacking_records(&self) -> bool;

    /// Whether some new tables are to be held by some members only.
    fn places_new(&self) -> bool {
        false
    }

    /// The replicas that are to hold a new table, if these are not all members.
    fn holders_of_new(&self, _coordinator: &Coordinator, _table: NewTable<'_>) -> Option<ReplicaSet> {
        None
    }

    /// Who holds what; `None` if every replica holds everything.
    fn placement(&self, coordinator: &Coordinator) -> Option<Placement> {
        coordinator.core.placement()
    }

    /// Places tables, if this kind of node has a way of its own.
    fn place(self: Arc<Self>, _: Order) -> Option<Placing> {
        None
    }

    /// Its own part of the links between nodes, if it orders transactions by itself.
    fn scheduler_link(self: Arc<Self>) -> Option<Arc<dyn SchedulerLink>> {
        None
    }

    /// Refuses a group of commands that this kind of node does not have.
    fn check(&self, feature: Feature) -> Result<(), Refusal>;
}

/// Both ends of the links of a kind of node that orders transactions by itself.
pub(crate) trait SchedulerLink: Send + Sync {
    /// At the leader: the sessions of a node have joined.
    fn crew_joined(&self, crew: CrewId);

    /// At the leader: the link of a crew has ended.
    fn crew_left(&self, crew: CrewId);

    /// At the leader: a crew says something.
    fn hear_crew<'a>(
        &'a self,
        crew: CrewId,
        message: ToScheduler,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// At any node: the leader says something.
    fn hear_leader(&self, message: ToCrew);

    /// At any node: the link to the leader has ended.
    fn link_lost(&self);
}

/// The refusal of checkpoints by a kind of node that has none.
pub(crate) fn no_checkpoints() -> Refusal {
    Refusal::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        "checkpoints are not offered by this protocol",
        "Protocols that ship statements have them. Here REBUILD REPLICA gives a replica the data of another one.",
    )
}
