//! The sessions of other nodes in a term of this one.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::NodeId;
use tokio::sync::mpsc;

use super::orders::{Admission, WAITING_MAX};
use crate::coordinator::Leader;

/// Takes the crews of other nodes, each node's one after the other, until the term ends.
pub(super) async fn serve_crews(leader: Arc<Leader>, mut admissions: mpsc::Receiver<Admission>) {
    let mut nodes: BTreeMap<NodeId, mpsc::Sender<Admission>> = BTreeMap::new();
    let mut crews = tokio::task::JoinSet::new();
    while let Some(admission) = admissions.recv().await {
        let of_node = nodes.entry(admission.node).or_insert_with(|| {
            let (sender, queue) = mpsc::channel(WAITING_MAX);
            crews.spawn(serve_node(Arc::clone(&leader), queue));
            sender
        });
        if of_node.try_send(admission).is_err() {
            tracing::warn!("a node joins faster than its former links end");
        }
    }
}

async fn serve_node(leader: Arc<Leader>, mut admissions: mpsc::Receiver<Admission>) {
    while let Some(Admission { queue, events, .. }) = admissions.recv().await {
        match leader.admit(queue) {
            Ok(crew) => leader.serve_crew(crew, events).await,
            Err(refused) => tracing::error!(?refused, "a node cannot join"),
        }
    }
}
