//! RESTART NODE: another process takes the place of a node's ([`crate::local::succession`]).
//!
//! The command returns when it is certain that the program would start, so just before the sessions pass over.

use std::time::Duration;

use cluster::ids::NodeId;
use wire::sqlstate;

use super::all_nodes::Nodes;
use super::command::RESTART;
use crate::coordinator::NodeRole;
use crate::coordinator::dispatch::{Effect, ErrorReport};
use crate::error::Refusal;

/// How long a node may take to find out whether the program would start.
const ANSWER: Duration = Duration::from_secs(35);

impl Nodes<'_> {
    /// Restarts this node, or the one that is named.
    pub(super) async fn restart(&self, name: Option<&str>) -> Result<(), ErrorReport> {
        let all = self.all();
        let named = |name: &str| (0..).map(NodeId).zip(&all).find(|(_, status)| status.name == name);
        let Some(name) = name else { return Ok(self.here.coordinator.local.succession.ask().await?) };
        match named(name) {
            Some((_, status)) if status.is_own => Ok(self.here.coordinator.local.succession.ask().await?),
            Some((_, status)) if status.role == NodeRole::Unlinked => Err(Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                format!("node {name} is not linked"),
                "Start it; SHOW NODES shows the links.",
            )
            .into()),
            Some((node, _)) => {
                self.ask(node, name, RESTART, Effect::Changes, ANSWER).await?;
                Ok(())
            }
            None => {
                let names: Vec<&str> = all.iter().map(|status| status.name.as_str()).collect();
                let hint = match names.as_slice() {
                    [] => "It is alone: say RESTART NODE.".to_owned(),
                    names => format!("The nodes are {}.", names.join(", ")),
                };
                Err(Refusal::new(sqlstate::UNDEFINED_OBJECT, format!("there is no node {name}"), hint).into())
            }
        }
    }
}
