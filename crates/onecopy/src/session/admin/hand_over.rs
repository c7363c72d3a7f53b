//! MOVE LEADER: hands the lead over to another node, on command or because this one stops.
//!
//! ```text
//! leader a            a, b, c: sessions end their transactions, and begin none (a hold)
//! a: its term ends    b: claims, fences, leads
//! a, c: join b        a, b, c: sessions begin again; what waited runs under b
//! ```
//!
//! A take-over ends open updates, and the connections to the servers, except those on which sessions have left state (temporary tables,
//! cursors, locks) and rest ([`crate::coordinator::held_backends`]). So sessions that are between transactions notice a pause and nothing else.
//!
//! Invariant: the leader leads on, and every node goes on, if some session does not come to rest.

use std::time::Duration;

use cluster::ids::NodeId;
use tokio::time::timeout;
use wire::sqlstate;

use super::all_nodes::Nodes;
use super::command::{HOLD, RELEASE};
use super::here::{HOLD_MAX, HOLD_PATIENCE, Here};
use crate::coordinator::dispatch::{Effect, ErrorReport, Trouble};
use crate::coordinator::{NodeRole, NodeStatus};
use crate::error::Refusal;

/// How long another node may take to begin and end a hold, beside what its sessions take.
const ANSWER: Duration = Duration::from_secs(5);
/// The same of a command that is carried out at the leader.
const DONE: Duration = Duration::from_secs(45);

/// How long a node that stops waits for the other one to lead. If all nodes stop at the same time, none will.
const BEFORE_STOP: Duration = Duration::from_secs(2);
/// The pause between two looks whether the other node leads.
const LOOK: Duration = Duration::from_millis(5);

/// What happens if sessions do not come to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unrest {
    /// The lead stays where it is.
    Keeps,
    /// The lead goes all the same, and open updates end with 40001.
    GoesOn,
}

/// How the sessions of all nodes have come to rest.
struct Rest {
    /// Why some have not.
    refusal: Option<Refusal>,
    /// The nodes that are lost, start or stop: none of them can lead.
    unfit: Vec<String>,
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

    /// Lets the sessions of all linked nodes come to rest.
    async fn hold(&self) -> Rest {
        let others = self.ask_others(HOLD, Effect::Changes, HOLD_PATIENCE + ANSWER);
        let (own, others) = tokio::join!(self.here.hold(), others);
        let mut rest = Rest { refusal: own.err(), unfit: Vec::new() };
        for (status, answer) in others.into_iter().filter(|(status, _)| status.role != NodeRole::Unlinked) {
            let Err(trouble) = answer else { continue };
            let is_lost = matches!(trouble, Trouble::Lost(_));
            let ErrorReport { message, sqlstate, .. } = trouble.into();
            let serves_nobody = sqlstate == sqlstate::CANNOT_CONNECT_NOW && !is_lost;
            if !serves_nobody {
                rest.refusal.get_or_insert_with(|| unrest(&status.name, &message));
            }
            if serves_nobody || is_lost {
                rest.unfit.push(status.name);
            }
        }
        rest
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
    let Some(dispatcher) = leading.dispatcher() else { return Err(alone()) };
    if successor(&leading.nodes(), to, &[])?.is_none() {
        return Ok(nodes.own_name());
    }
    let Rest { refusal, unfit } = nodes.hold().await;
    let successor = match refusal.filter(|_| unrest == Unrest::Keeps) {
        Some(refusal) => Err(refusal),
        None => successor(&leading.nodes(), to, &unfit),
    };
    let (node, name) = match successor {
        Ok(Some(successor)) => successor,
        Ok(None) => {
            nodes.release().await;
            return Ok(nodes.own_name());
        }
        Err(refusal) => {
            nodes.release().await;
            return Err(refusal);
        }
    };
    tracing::info!(to = name, "the lead is handed over");
    let core = &nodes.here.coordinator.core;
    let joins = core.joins();
    if !dispatcher.hand_over(node).await {
        nodes.release().await;
        return Err(unlinked(&name));
    }
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
    let patience = if unrest == Unrest::Keeps { HOLD_MAX } else { BEFORE_STOP };
    let handed = timeout(patience, handed).await;
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

/// The node that is to lead, which is none of these; `None` if this one is named.
fn successor(
    all: &[NodeStatus],
    to: Option<&str>,
    unfit: &[String],
) -> Result<Option<(NodeId, String)>, Refusal> {
    let mut numbered = (0..).map(NodeId).zip(all);
    let can_lead = |status: &NodeStatus| status.role == NodeRole::Follower && !unfit.contains(&status.name);
    let Some(to) = to else {
        let next = numbered.find(|(_, status)| can_lead(status));
        return match next {
            Some((node, status)) => Ok(Some((node, status.name.clone()))),
            None => Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "no other node is linked and serves clients, so none can lead",
                "Start one, or mend the network; SHOW NODES shows the links.",
            )),
        };
    };
    let names = || all.iter().map(|status| status.name.as_str()).collect::<Vec<_>>().join(", ");
    match numbered.find(|(_, status)| status.name == to) {
        Some((_, status)) if status.is_own => Ok(None),
        Some((node, status)) if can_lead(status) => Ok(Some((node, status.name.clone()))),
        Some((_, status)) if status.role == NodeRole::Follower => Err(Refusal::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("node {to} starts or stops, so it cannot lead"),
            "Repeat it when /ready of that node reports 200.",
        )),
        Some(_) => Err(unlinked(to)),
        None => Err(Refusal::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("there is no node {to}"),
            format!("The nodes are {}.", names()),
        )),
    }
}

fn unrest(node: &str, message: &str) -> Refusal {
    Refusal::new(
        sqlstate::LOCK_NOT_AVAILABLE,
        format!("node {node}: {message}"),
        "SHOW CLIENTS names the sessions, and KILL ends one.",
    )
}

fn unlinked(node: &str) -> Refusal {
    Refusal::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("there is no link to node {node}, so it cannot lead"),
        "Start it, or mend the network to it; SHOW NODES shows the links.",
    )
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
        assert_eq!(successor(&all(), None, &[]).unwrap(), c);
        assert_eq!(successor(&all(), Some("c"), &[]).unwrap(), c);
        assert_eq!(successor(&all(), Some("b"), &[]).unwrap(), None, "it leads");
    }

    #[test]
    fn a_node_that_cannot_lead_is_refused() {
        let refused = |to| successor(&all(), Some(to), &[]).unwrap_err();
        assert_eq!(refused("a").sqlstate, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE);
        let unknown = refused("d");
        assert_eq!(
            (unknown.sqlstate, unknown.message.as_str()),
            (sqlstate::UNDEFINED_OBJECT, "there is no node d")
        );
        assert_eq!(unknown.hint.as_deref(), Some("The nodes are a, b, c."));
        let alone = successor(&all()[..2], None, &[]).unwrap_err();
        assert_eq!(alone.sqlstate, sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE);
        let unfit = ["c".to_owned()];
        assert!(successor(&all(), None, &unfit).is_err());
        let stops = successor(&all(), Some("c"), &unfit).unwrap_err();
        assert_eq!(stops.message, "node c starts or stops, so it cannot lead");
    }
}
