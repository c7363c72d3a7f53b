//! Commands about all nodes: SHOW CLIENTS, SHOW NODES, KILL, PAUSE, RESUME. A node that is alone is all of them.
//!
//! For example, SHOW CLIENTS at node a asks b and c for theirs at the same time, and puts the rows of all below each other. A node
//! that does not answer is named in a warning.
//!
//! Invariant: PAUSE succeeds only if every node of the cluster has paused its clients. Otherwise those go on that were paused for it.

use std::time::Duration;

use cluster::ids::NodeId;
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::sqlstate;

use super::asker::Asker;
use super::bouncer;
use super::here::{Here, PAUSE_MAX, no_session};
use crate::coordinator::dispatch::{Addressee, Dispatch, Effect, ErrorReport, Scope, Trouble};
use crate::coordinator::mailboxes::node_of;
use crate::coordinator::{NodeRole, NodeStatus};
use crate::error::Refusal;

/// How long a node may take to tell what it knows. One that hangs must not keep the others' answers back.
const TELL_PATIENCE: Duration = Duration::from_millis(500);
/// How long a node may take to do something; a cancel request to a server takes up to twelve seconds.
const DO_PATIENCE: Duration = Duration::from_secs(15);
/// Rows that one node may tell.
const ROWS_MAX: usize = 100_000;

type Rows = Vec<Vec<String>>;

/// The nodes of the cluster, for a role that is connected to one of them.
#[derive(Clone, Copy)]
pub(super) struct Nodes<'a> {
    pub(super) here: &'a Here,
    pub(super) role: &'a str,
}

/// What another node has answered.
type Answer = (NodeStatus, Result<Rows, Trouble>);

impl Nodes<'_> {
    pub(super) fn all(&self) -> Vec<NodeStatus> {
        self.here.leading.nodes()
    }

    /// The name of this node; empty if it is alone.
    pub(super) fn own_name(&self) -> String {
        self.all().into_iter().find(|node| node.is_own).map_or_else(String::new, |node| node.name)
    }

    /// Asks all other nodes at the same time. The answers are in the order of the nodes.
    pub(super) async fn ask_others(&self, text: &str, effect: Effect, patience: Duration) -> Vec<Answer> {
        let mut asking = JoinSet::new();
        for (node, status) in (0..).map(NodeId).zip(self.all()).filter(|(_, status)| !status.is_own) {
            let (here, role, text) = (self.here.clone(), self.role.to_owned(), text.to_owned());
            asking.spawn(async move {
                let nodes = Nodes { here: &here, role: &role };
                let answer = nodes.ask(node, &status.name, &text, effect, patience).await;
                (node, (status, answer))
            });
        }
        let mut answers = asking.join_all().await;
        answers.sort_by_key(|(node, _)| *node);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// Asks one node.
    pub(super) async fn ask(
        &self,
        node: NodeId,
        name: &str,
        text: &str,
        effect: Effect,
        patience: Duration,
    ) -> Result<Rows, Trouble> {
        let Some(dispatcher) = self.here.leading.dispatcher() else { return Ok(Vec::new()) };
        let dispatch = Dispatch { scope: Scope::Node, role: self.role.to_owned(), text: text.to_owned() };
        let answer =
            async { dispatcher.ask(Addressee::Node(node), dispatch, effect).await.rows(ROWS_MAX).await };
        timeout(patience, answer).await.unwrap_or_else(|_| {
            let text = match effect {
                Effect::Looks => format!("node {name} has not answered within {} ms", patience.as_millis()),
                Effect::Changes => format!(
                    "node {name} has not answered within {} s, and may do it later",
                    patience.as_secs()
                ),
            };
            let hint = "Look whether it hangs; SHOW NODES shows which nodes answer.";
            Err(Trouble::Lost(Refusal::new(sqlstate::CANNOT_CONNECT_NOW, text, hint).into()))
        })
    }

    /// Rows that each node has, with the node's name behind each. Nodes that do not tell theirs are named in a warning.
    pub(super) async fn gather(&self, text: &str, own: Rows, columns: usize, asker: &mut Asker<'_>) -> Rows {
        let named = |rows: Rows, name: &str| {
            rows.into_iter().map(|row| row.into_iter().chain([name.to_owned()]).collect()).collect::<Rows>()
        };
        let mut all = named(own, &self.own_name());
        for (status, answer) in self.ask_others(text, Effect::Looks, TELL_PATIENCE).await {
            match answer {
                Ok(rows) if rows.iter().all(|row| row.len() == columns) => {
                    all.extend(named(rows, &status.name));
                }
                Ok(_) => {
                    let NodeStatus { name, .. } = status;
                    asker
                        .warn(&format!(
                            "node {name} is left out: it runs another release, which answers otherwise"
                        ))
                        .await;
                }
                Err(trouble) => {
                    let ErrorReport { message, .. } = trouble.into();
                    asker.warn(&format!("node {} is left out: {message}", status.name)).await;
                }
            }
        }
        all
    }

    /// SHOW CLIENTS.
    pub(super) async fn clients(&self, asker: &mut Asker<'_>) -> Rows {
        let own = bouncer::clients(&self.here.coordinator);
        if self.here.leading.dispatcher().is_none() {
            return own;
        }
        self.gather("SHOW CLIENTS", own, bouncer::CLIENT_COLUMNS, asker).await
    }

    /// SHOW NODES. What a node does not tell of itself is empty.
    pub(super) async fn show(&self) -> Rows {
        let facts = self.here.facts();
        if self.here.leading.dispatcher().is_none() {
            let alone = ["", "", NodeRole::Leader.word(), "yes"].map(str::to_owned);
            return vec![alone.into_iter().chain(facts).collect()];
        }
        let told = self.ask_others("SHOW NODES", Effect::Looks, TELL_PATIENCE).await;
        let row = |status: NodeStatus| {
            let of_node = told.iter().find(|(other, _)| other.name == status.name);
            let told = match of_node.map(|(_, answer)| answer) {
                None => facts.clone(),
                Some(Ok(rows)) if rows.first().is_some_and(|row| row.len() == facts.len()) => rows[0].clone(),
                Some(_) => vec![String::new(); facts.len()],
            };
            let NodeStatus { name, address, role, is_own } = status;
            let seen = [name, address, role.word().to_owned(), if is_own { "yes" } else { "no" }.to_owned()];
            seen.into_iter().chain(told).collect()
        };
        self.all().into_iter().map(row).collect()
    }

    /// KILL: the number of a session tells its node.
    pub(super) async fn kill(&self, id: u64) -> Result<(), ErrorReport> {
        let nodes = self.all();
        let node = node_of(id);
        match nodes.get(usize::from(node.0)) {
            _ if nodes.is_empty() => Ok(self.here.kill(id).await?),
            Some(status) if status.is_own => Ok(self.here.kill(id).await?),
            Some(status) => {
                self.ask(node, &status.name, &format!("KILL {id}"), Effect::Changes, DO_PATIENCE).await?;
                Ok(())
            }
            None => Err(no_session(id).into()),
        }
    }

    /// PAUSE.
    pub(super) async fn pause(&self, asker: &mut Asker<'_>) -> Result<(), ErrorReport> {
        let all = self.all();
        if all.is_empty() {
            return Ok(self.here.pause().await?);
        }
        let unlinked = all.iter().filter(|node| node.role == NodeRole::Unlinked);
        let unlinked: Vec<&str> = unlinked.map(|node| node.name.as_str()).collect();
        if !unlinked.is_empty() {
            return Err(not_all_linked(&unlinked).into());
        }
        let patience = PAUSE_MAX + DO_PATIENCE;
        let others = self.ask_others("PAUSE NODE", Effect::Changes, patience);
        let (own, others) = tokio::join!(self.here.pause(), others);
        let own_name = self.own_name();
        let mut failed = own.clone().err().map(|refusal| ErrorReport::from(refusal).at(&own_name));
        let mut doubtful = Vec::new();
        for (status, answer) in &others {
            let Err(trouble) = answer else { continue };
            if matches!(trouble, Trouble::Lost(_)) {
                doubtful.push(status.name.clone());
            }
            failed.get_or_insert_with(|| ErrorReport::from(trouble.clone()).at(&status.name));
        }
        let Some(failed) = failed else {
            let names: Vec<&str> = all.iter().map(|node| node.name.as_str()).collect();
            asker.notice(&format!("the clients of nodes {} are paused", names.join(", "))).await;
            return Ok(());
        };
        if own.is_ok() {
            self.here.resume()?;
        }
        doubtful.extend(self.resume_paused(&others).await);
        if !doubtful.is_empty() {
            let text =
                format!("the clients of nodes {} may be paused; RESUME ends that", doubtful.join(", "));
            asker.warn(&text).await;
        }
        Err(failed)
    }

    /// Has those nodes go on that have paused. Returns the names of those that may not.
    async fn resume_paused(&self, others: &[Answer]) -> Vec<String> {
        let mut doubtful = Vec::new();
        for (status, answer) in others {
            let node = (0..).map(NodeId).zip(self.all()).find(|(_, other)| other.name == status.name);
            let (Some((node, _)), Ok(_)) = (node, answer) else { continue };
            let resumed = self.ask(node, &status.name, "RESUME NODE", Effect::Changes, DO_PATIENCE).await;
            // One that is resumed already goes on.
            if matches!(resumed, Err(Trouble::Lost(_))) {
                doubtful.push(status.name.clone());
            }
        }
        doubtful
    }

    /// RESUME. Nodes that are not paused are left as they are.
    pub(super) async fn resume(&self, asker: &mut Asker<'_>) -> Result<(), ErrorReport> {
        let own = self.here.resume();
        let others = self.ask_others("RESUME NODE", Effect::Changes, DO_PATIENCE).await;
        let mut has_resumed = own.is_ok();
        for (status, answer) in others {
            match answer {
                Ok(_) => has_resumed = true,
                Err(Trouble::Failed(_)) => {}
                Err(Trouble::Lost(report)) => {
                    let NodeStatus { name, .. } = status;
                    let text =
                        format!("node {name} was not reached, and is paused if it was: {}", report.message);
                    asker.warn(&text).await;
                }
            }
        }
        if has_resumed { Ok(()) } else { Ok(own?) }
    }
}

fn not_all_linked(unlinked: &[&str]) -> Refusal {
    Refusal::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("nothing is paused, because there is no link to node {}", unlinked.join(", ")),
        "Start it, or mend the network to it. PAUSE NODE pauses the clients of the node where it is said, and no others.",
    )
}
