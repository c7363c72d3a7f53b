//! Asks the anchor for the sizes of the tables, for protocols that place transactions by memory.
//!
//! Example: under `--protocol tashkent+` a transaction that reads a table of 3 GB and one of 600 MB runs at a replica of
//! the group to which its kind belongs, and groups are made so that the tables of their kinds fit into memory. So the size
//! of each table counts with its indexes and its TOAST table.
//!
//! One task asks for the whole node, on a connection of its own. A server that does not answer, or on which a table is
//! locked for a schema change, is asked again after a moment; until then the former sizes count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, TableId};
use cluster::parts::replica::State;
use cluster::protocols::ReplicaStatus;

use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::Leader;

/// The pause between two questions.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The pause after a question without an answer.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How long the server may take. It cancels the question itself, since the size of a locked table has to wait.
const SETTINGS: &str = "-c statement_timeout=5s";
/// How long an answer may take on its way, too.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The tables under capture: our number, which is the first argument of the capture trigger, and their bytes.
const SIZES_SQL: &str = "SELECT pg_catalog.split_part(pg_catalog.encode(g.tgargs, 'escape'), '\\000', 1), \
    pg_catalog.pg_total_relation_size(g.tgrelid) FROM pg_catalog.pg_trigger g WHERE g.tgname = '!onecopy'";

/// A connection to the replica that was the anchor.
type AnchorConnection = (ReplicaId, OwnConnection);

/// Asks for as long as the node runs.
pub(crate) async fn run(leader: Arc<Leader>) {
    let mut kept: Option<AnchorConnection> = None;
    loop {
        if is_anchor_up(&leader) {
            match tokio::time::timeout(ANSWERS_WITHIN, ask(&leader, kept.take())).await {
                Ok(Ok(connection)) => kept = Some(connection),
                Ok(Err(error)) => tracing::debug!(%error, "the sizes of tables cannot be asked for"),
                Err(_) => tracing::debug!("the sizes of tables cannot be asked for in time"),
            }
        } else {
            kept = None;
        }
        tokio::time::sleep(if kept.is_some() { LOOK_EVERY } else { RETRY_AFTER }).await;
    }
}

fn is_anchor_up(leader: &Leader) -> bool {
    let anchor = leader.view.anchor();
    let is_it = |status: &ReplicaStatus| status.replica == anchor && status.state == State::Up;
    leader.replicas().iter().any(is_it)
}

/// Asks the anchor, on the kept connection if that leads there, and notes the answer.
async fn ask(leader: &Leader, kept: Option<AnchorConnection>) -> Result<AnchorConnection, BackendError> {
    let anchor = leader.view.anchor();
    let mut connection = match kept {
        Some((replica, connection)) if replica == anchor => connection,
        _ => {
            let own = [("application_name", "onecopy sizes"), ("options", SETTINGS)];
            let address = &leader.seats[anchor].address;
            OwnConnection::open(address, &leader.database.served, &own).await?
        }
    };
    let rows = connection.query(SIZES_SQL).await?;
    // A table that was dropped meanwhile has no size.
    let size = |row: &Vec<Option<String>>| {
        let [Some(number), Some(bytes)] = row.as_slice() else { return None };
        Some((leader.database.served.id.table(number.parse().ok()?), bytes.parse().ok()?))
    };
    let sizes: BTreeMap<TableId, u64> = rows.iter().filter_map(size).collect();
    tracing::debug!(tables = sizes.len(), "the sizes of tables are known");
    leader.database.table_sizes.set(sizes);
    Ok((anchor, connection))
}
