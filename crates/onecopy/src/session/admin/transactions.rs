//! SHOW TRANSACTIONS: each node knows what its sessions have open, and the leader which of them wait.

use std::collections::BTreeMap;

use cluster::ids::{NodeId, ReplicaId, SessionId};
use cluster::protocols::Waiting;

use super::all_nodes::Nodes;
use super::asker::Asker;
use crate::coordinator::mailboxes::node_of;
use crate::coordinator::{Coordinator, Leader};
use crate::transaction::conflict_detail::key_of;

/// The state of a transaction that waits for others.
const WAITING: &str = "waiting";
/// Columns of what a node knows.
const NODE_COLUMNS: usize = 7;

/// What a node knows of a transaction, in the order of its columns.
struct Open {
    session: String,
    home: String,
    state: String,
    age: String,
    sizes: [String; 3],
    /// Empty if there is one node.
    node: Option<String>,
}

impl Open {
    fn of(row: Vec<String>) -> Option<Self> {
        let mut row = row.into_iter();
        let mut next = || row.next();
        let (session, home, state, age) = (next()?, next()?, next()?, next()?);
        let sizes = [next()?, next()?, next()?];
        Some(Self { session, home, state, age, sizes, node: row.next() })
    }
}

/// The open update transactions of this node's sessions.
pub(super) fn of_node(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let row = |shown: crate::local::memory_budget::OpenUpdate| {
        let sizes = [shown.rows, shown.bytes, shown.spilled_bytes].map(|size| size.to_string());
        let home = home(coordinator, shown.home);
        let state = shown.phase.word().to_owned();
        [number(shown.session), home, state, age(shown.age_s)].into_iter().chain(sizes).collect()
    };
    coordinator.local.memory_budget.show().into_iter().map(row).collect()
}

/// The rows of all nodes.
pub(super) async fn rows(leader: &Leader, nodes: &Nodes<'_>, asker: &mut Asker<'_>) -> Vec<Vec<String>> {
    let own = of_node(leader);
    let is_alone = nodes.here.leading.dispatcher().is_none();
    let open = if is_alone { own } else { nodes.gather("SHOW TRANSACTIONS", own, NODE_COLUMNS, asker).await };
    let mut waiting: BTreeMap<String, Waiting> =
        leader.core.waiting().into_iter().map(|waits| (number(waits.session), waits)).collect();
    let snapshots = leader.core.snapshots().into_iter();
    let snapshots: BTreeMap<String, String> =
        snapshots.map(|(session, version)| (number(session), version.to_string())).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for open in open.into_iter().filter_map(Open::of) {
        let waits = waiting.remove(&open.session);
        let state = if waits.is_some() { WAITING.to_owned() } else { open.state };
        let snapshot = snapshots.get(&open.session).cloned().unwrap_or_default();
        let row = [open.session, open.home, state, open.age, snapshot].into_iter().chain(open.sizes);
        rows.push(row.chain(waits_for(leader, waits.as_ref())).chain(open.node).collect());
    }
    // Transactions that wait with their first statement are open nowhere yet.
    for waits in waiting.values() {
        let (home, snapshot) = (home(leader, waits.home), String::new());
        let age = age(leader.core.age_s(waits.since));
        let row = [number(waits.session), home, WAITING.to_owned(), age, snapshot];
        let sizes = [0; 3].map(|size: u64| size.to_string());
        let node = (!is_alone).then(|| node_name(nodes, waits.session));
        rows.push(row.into_iter().chain(sizes).chain(waits_for(leader, Some(waits))).chain(node).collect());
    }
    rows
}

/// The session's number as SHOW CLIENTS of its node has it.
pub(super) fn number(session: SessionId) -> String {
    session.counter().to_string()
}

fn node_name(nodes: &Nodes<'_>, session: SessionId) -> String {
    let node: NodeId = node_of(session.counter());
    nodes.here.leading.name_of(node).unwrap_or_default()
}

fn home(coordinator: &Coordinator, replica: ReplicaId) -> String {
    coordinator.seats[replica].name.clone()
}

fn age(seconds: f64) -> String {
    format!("{seconds:.1}")
}

/// The sessions that block a transaction, and the table and key where they conflict. Only the node of a session knows the key.
fn waits_for(leader: &Leader, waits: Option<&Waiting>) -> [String; 3] {
    let rivals = waits.iter().flat_map(|waits| &waits.rivals).map(|rival| number(*rival));
    let catalogue = leader.database.catalogue();
    let table = waits.and_then(|waits| catalogue.table(waits.meeting?.table));
    let wanted = waits.and_then(|waits| leader.local.memory_budget.wanted(waits.session));
    let key = waits.and_then(|waits| key_of(waits.meeting?, wanted.iter(), &catalogue));
    let table = table.map_or_else(String::new, |table| table.name.clone());
    [rivals.collect::<Vec<_>>().join(", "), table, key.unwrap_or_default()]
}
