//! Commands about one node: RESTART NODE, DRAIN NODE, UNDRAIN NODE. Each is said at any node, and carried out by the one that is named.
//!
//! - *Restart*: another process takes the place of the node's ([`crate::local::succession`]). The command returns when it is
//!   certain that the program would start, so just before the sessions pass over.
//! - *Drain*: the node lets no new clients in, and its sessions end between two transactions, so that they connect elsewhere. A leader hands
//!   the lead over first. The node is drained until UNDRAIN NODE, or until it is started again.
//!
//! Non-goal: who leads when the leader is lost. A drained node may.

use std::time::{Duration, Instant};

use cluster::ids::NodeId;
use wire::sqlstate;

use super::all_nodes::Nodes;
use super::hand_over;
use super::here::Here;
use crate::coordinator::NodeRole;
use crate::coordinator::dispatch::{Effect, ErrorReport};
use crate::coordinator::mailbox::End;
use crate::error::Refusal;

/// How long another node may take. Longer than that, it is not said how it ended.
const ANSWER: Duration = Duration::from_mins(2);
/// How often it is looked whether sessions are left.
const LOOK: Duration = Duration::from_millis(20);

/// What a node is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Restart,
    Drain,
    Undrain,
}

/// A command about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeOrder {
    verb: Verb,
    /// `None` means the node where it is said.
    node: Option<String>,
}

impl NodeOrder {
    /// Reads a command in capital letters. `last` is its last word as it was written.
    pub(super) fn parse(words: &[&str], last: Option<String>) -> Option<Self> {
        let (word, node) = match words {
            [word, "NODE"] => (word, None),
            [word, "NODE", _] => (word, last),
            _ => return None,
        };
        let verb =
            [Verb::Restart, Verb::Drain, Verb::Undrain].into_iter().find(|verb| verb.tag() == *word)?;
        Some(Self { verb, node })
    }

    /// Whether it is about the node where it is said.
    pub(super) fn is_own(&self) -> bool {
        self.node.is_none()
    }

    /// The command tag.
    pub(super) fn tag(&self) -> &'static str {
        self.verb.tag()
    }
}

impl Verb {
    fn tag(self) -> &'static str {
        match self {
            Self::Restart => "RESTART",
            Self::Drain => "DRAIN",
            Self::Undrain => "UNDRAIN",
        }
    }
}

impl Nodes<'_> {
    /// Has the node do it that is named.
    pub(super) async fn order(&self, order: &NodeOrder) -> Result<(), ErrorReport> {
        let Some(name) = &order.node else { return Ok(self.order_own(order).await?) };
        let all = self.all();
        match (0..).map(NodeId).zip(&all).find(|(_, status)| status.name == *name) {
            Some((_, status)) if status.is_own => Ok(self.order_own(order).await?),
            Some((_, status)) if status.role == NodeRole::Unlinked => Err(Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                format!("node {name} is not linked"),
                "Start it; SHOW NODES shows the links.",
            )
            .into()),
            Some((node, _)) => {
                let text = format!("{} NODE", order.tag());
                self.ask(node, name, &text, Effect::Changes, ANSWER).await?;
                Ok(())
            }
            None => {
                let names: Vec<&str> = all.iter().map(|status| status.name.as_str()).collect();
                let hint = match names.as_slice() {
                    [] => format!("It is alone: say {} NODE.", order.tag()),
                    names => format!("The nodes are {}.", names.join(", ")),
                };
                Err(Refusal::new(sqlstate::UNDEFINED_OBJECT, format!("there is no node {name}"), hint).into())
            }
        }
    }

    /// Carries it out at this node.
    pub(super) async fn order_own(&self, order: &NodeOrder) -> Result<(), Refusal> {
        match order.verb {
            Verb::Restart => self.here.coordinator.local.succession.ask().await,
            Verb::Drain => {
                let is_alone = self.here.leading.dispatcher().is_none();
                if !is_alone && self.here.leading.get().is_some() {
                    hand_over::run(self, None).await?;
                }
                self.here.drain().await
            }
            Verb::Undrain => {
                self.here.coordinator.local.sessions.set_drained(false);
                Ok(())
            }
        }
    }
}

impl Here {
    /// Lets no client in from now on. Returns when no session is left.
    async fn drain(&self) -> Result<(), Refusal> {
        let local = &self.coordinator.local;
        local.sessions.set_drained(true);
        let deadline = Instant::now() + local.runtime_config.stop_patience();
        loop {
            // Again and again, because a client that was logging in may have become a session.
            self.coordinator.mailboxes.end(End::AfterTransaction);
            let left = local.sessions.entries().len();
            if left == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(Refusal::new(
                    sqlstate::LOCK_NOT_AVAILABLE,
                    format!("{left} sessions have not ended their transactions; the node stays drained"),
                    "They end with their transactions. SHOW CLIENTS names them, and KILL ends one. UNDRAIN NODE lets clients in again.",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
