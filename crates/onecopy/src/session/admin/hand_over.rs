//! MOVE LEADER: hands the lead over to another node, on command or because this one stops.
//!
//! ```text
//! leader a            a, b, c: sessions end their transactions, and begin none (a hold)
//! a: its term ends    b: claims, fences, leads
//! a, c: join b        a, b, c: sessions begin again; what waited runs under b
//! ```
//!
//! A take-over ends open updates and every connection to a server. So sessions that are between transactions notice a pause and nothing else,
//! unless they have state on a connection (temporary tables, cursors, locks): such a session ends with 57P01.
//!
//! Invariant: the leader leads on, and every node goes on, if some session does not come to rest.

use std::time::Duration;

use cluster::ids::NodeId;
use tokio::time::timeout;
use wire::sqlstate;

use super::all_nodes::Nodes;
use super::command::{HOLD, RELEASE};
use super::here::{HOLD_MAX, HOLD_PATIENCE, Here};
use crate::coordinator::dispatch::{Effect, ErrorReport};
use crate::coordinator::{NodeRole, NodeStatus};
use crate::error::Refusal;

/// How long another node may take to begin and end a hold, beside what its sessions take.
const ANSWER: Duration = Duration::from_secs(5);
/// The same of a command that is carried out at the leader.
const DONE: Duration = Duration::from_secs(45);

/// What happens if sessions do not come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unrest {
    /// The lead stays where it is.
    Keeps,
    /// The lead goes all the same, and open updates end with 40001.
    GoesOn,
}

impl Nodes<'_> {
    /// MOVE LEADER, said at any node. Returns the node that leads then.
    pub(super) async fn move_leader(&self, to: Option<&str>) -> Result<String, ErrorReport> {
        let all = self.all();
        let leader = (0..).map(NodeId).zip(&all).find(|(_, status)| status.role == NodeRole::Leader);
        match leader {
            Some((node, status)) if !status.is_own => {
                let text = to.map_or_else(|| "MOVE LEADER".to_owned(), |to| format!("MOVE LEADER TO {to}"));
                let rows = self.ask(node, &status.name, &text, Effect::Changes, DONE).await?;
                Ok(rows.into_iter().flatten().next().unwrap_or_default())
            }
            _ => Ok(run(self, to).await?),
        }
    }

    /// Lets the sessions of all linked nodes come to rest. Those that do not are told.
    async fn hold(&self) -> Result<(), Refusal> {
        let others = self.ask_others(HOLD, Effect::Changes, HOLD_PATIENCE + ANSWER);
        let (own, others) = tokio::join!(self.here.hold(), others);
        let mut linked = others.into_iter().filter(|(status, _)| status.role != NodeRole::Unlinked);
        let failed = linked.find_map(|(status, answer)| Some((status, answer.err()?)));
        own?;
        match failed {
            None => Ok(()),
            Some((status, trouble)) => {
                let ErrorReport { message, .. } = trouble.into();
                Err(Refusal::new(
                    sqlstate::LOCK_NOT_AVAILABLE,
                    format!("node {}: {message}", status.name),
                    "SHOW CLIENTS names the sessions, and KILL ends one.",
                ))
            }
        }
    }

    async fn release(&self) {
        self.here.release();
        self.ask_others(RELEASE, Effect::Changes, ANSWER).await;
    }
}

/// Hands the lead over. Returns the node that leads then.
pub(super) async fn run(nodes: &Nodes<'_>, to: Option<&str>) -> Result<String, Refusal> {
    hand_over(nodes, to, Unrest::Keeps).await
}

/// Hands the lead over, if this node leads and is about to stop. If that fails, the others notice the stop.
pub(crate) async fn before_stop(here: &Here) {
    if here.leading.get().is_none() || here.leading.nodes().iter().all(|node| node.role != NodeRole::Follower)
    {
        return;
    }
    match hand_over(&Nodes { here, role: "" }, None, Unrest::GoesOn).await {
        Ok(leader) => tracing::info!(leader, "the lead is handed over before the stop"),
        Err(refusal) => {
            tracing::warn!(reason = refusal.message, "the lead is not handed over before the stop");
        }
    }
}

async fn hand_over(nodes: &Nodes<'_>, to: Option<&str>, unrest: Unrest) -> Result<String, Refusal> {
    let leading = &nodes.here.leading;
    leading.must_lead()?;
    let core = &nodes.here.coordinator.core;
    let joins = core.joins();
    let Some(dispatcher) = leading.dispatcher() else { return Err(alone()) };
    let Some((node, name)) = successor(&leading.nodes(), to)? else { return Ok(nodes.own_name()) };
    match (nodes.hold().await, unrest) {
        (Err(refusal), Unrest::Keeps) => {
            nodes.release().await;
            return Err(refusal);
        }
        (Err(_), Unrest::GoesOn) | (Ok(()), _) => {}
    }
    tracing::info!(to = name, "the lead is handed over");
    dispatcher.hand_over(node).await;
    let handed = async {
        // Sessions join once the next leader serves.
        while core.joins() == joins || leading.get().is_some() {
            tokio::time::sleep(LOOK).await;
        }
        loop {
            let leads =
                leading.nodes().into_iter().find(|node| node.role == NodeRole::Leader && !node.is_own);
            match leads {
                Some(status) => return status.name,
                None => tokio::time::sleep(LOOK).await,
            }
        }
    };
    let handed = timeout(HOLD_MAX, handed).await;
    nodes.release().await;
    match handed {
        Ok(leads) => Ok(leads),
        Err(_) => Err(Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            format!("node {name} does not lead yet"),
            "SHOW NODES says which node leads. If none does, look whether a majority of etcd's members is up.",
        )),
    }
}

/// The pause between two looks whether the other node leads.
const LOOK: Duration = Duration::from_millis(5);

/// The node that is to lead; `None` if this one is named.
fn successor(all: &[NodeStatus], to: Option<&str>) -> Result<Option<(NodeId, String)>, Refusal> {
    let mut numbered = (0..).map(NodeId).zip(all);
    let Some(to) = to else {
        let next = numbered.find(|(_, status)| status.role == NodeRole::Follower);
        return match next {
            Some((node, status)) => Ok(Some((node, status.name.clone()))),
            None => Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "no other node is linked, so none can lead",
                "Start one, or mend the network; SHOW NODES shows the links.",
            )),
        };
    };
    let names = || all.iter().map(|status| status.name.as_str()).collect::<Vec<_>>().join(", ");
    match numbered.find(|(_, status)| status.name == to) {
        Some((_, status)) if status.is_own => Ok(None),
        Some((node, status)) if status.role == NodeRole::Follower => Ok(Some((node, status.name.clone()))),
        Some(_) => Err(Refusal::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("there is no link to node {to}, so it cannot lead"),
            "Start it, or mend the network to it; SHOW NODES shows the links.",
        )),
        None => Err(Refusal::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("there is no node {to}"),
            format!("The nodes are {}.", names()),
        )),
    }
}

fn alone() -> Refusal {
    Refusal::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "this node is the only one of its cluster",
        "With the log on etcd there can be several: see \"Run several nodes\" in the manual.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, role: NodeRole, is_own: bool) -> NodeStatus {
        NodeStatus { name: name.to_owned(), address: String::new(), role, is_own }
    }

    fn all() -> [NodeStatus; 3] {
        [
            node("a", NodeRole::Unlinked, false),
            node("b", NodeRole::Leader, true),
            node("c", NodeRole::Follower, false),
        ]
    }

    #[test]
    fn a_linked_node_leads_next() {
        let c = Some((NodeId(2), "c".to_owned()));
        assert_eq!(successor(&all(), None).unwrap(), c);
        assert_eq!(successor(&all(), Some("c")).unwrap(), c);
        assert_eq!(successor(&all(), Some("b")).unwrap(), None, "it leads");
    }

    #[test]
    fn a_node_that_cannot_lead_is_refused() {
        let refused = |to| successor(&all(), Some(to)).unwrap_err();
        assert_eq!(refused("a").sqlstate, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE);
        let unknown = refused("d");
        assert_eq!(
            (unknown.sqlstate, unknown.message.as_str()),
            (sqlstate::UNDEFINED_OBJECT, "there is no node d")
        );
        assert_eq!(unknown.hint.as_deref(), Some("The nodes are a, b, c."));
        let alone = successor(&all()[..2], None).unwrap_err();
        assert_eq!(alone.sqlstate, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE);
    }
}
