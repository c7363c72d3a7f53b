//! `onecopy node`: the nodes of a running cluster.

use super::error::CommandError;
use super::replica::{aligned, ask};
use super::{Node, NodeAction};
use crate::terminal::Progress;

/// Carries out `onecopy node`.
pub(crate) async fn command(node: &Node, progress: &Progress) -> Result<(), CommandError> {
    let sql = match &node.action {
        NodeAction::List => "SHOW NODES".to_owned(),
        NodeAction::MoveLeader { to: None } => "MOVE LEADER".to_owned(),
        NodeAction::MoveLeader { to: Some(to) } => format!("MOVE LEADER TO {to}"),
        NodeAction::Drain { node } => format!("DRAIN NODE {node}"),
        NodeAction::Undrain { node } => format!("UNDRAIN NODE {node}"),
        NodeAction::Restart { node: None } => "RESTART NODE".to_owned(),
        NodeAction::Restart { node: Some(node) } => format!("RESTART NODE {node}"),
    };
    for line in aligned(&ask(node.port, &sql, progress).await?) {
        progress.result(line);
    }
    Ok(())
}
