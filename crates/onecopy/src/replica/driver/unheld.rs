//! Empties the tables that a replica does not hold, before it serves.
//!
//! Such a table may have rows there: the replica held it before, or its data was copied from a replica that holds more. For
//! example, after `PLACE TABLE audit ON replica-1` the agents of the others connect anew, and `audit` is truncated there.
//!
//! Invariant: where a replica serves, a table that it does not hold is empty. VERIFY looks for rows in it.
//!
//! A table that is referenced is held wherever the tables are that refer to it, so those that are not held can be truncated together.

use std::collections::BTreeSet;

use cluster::ids::ReplicaId;

use crate::backend::{BackendError, OwnConnection};
use crate::capture;
use crate::capture::not_held::{NUMBERED_TABLES, a_row_sql, not_held};
use crate::coordinator::Coordinator;

/// Nothing here is captured, and no trigger of a user's runs.
const OPTIONS: &str = "-c synchronous_commit=on -c session_replication_role=replica -c search_path=pg_catalog \
    -c row_security=off -c statement_timeout=0 -c lock_timeout=0";

/// Truncates the tables that the replica does not hold, if any has rows. Its agent is connected, and nothing else runs there.
pub(super) async fn empty(coordinator: &Coordinator, replica: ReplicaId) -> Result<(), BackendError> {
    if coordinator.core.holdings(replica).is_everything() {
        return Ok(());
    }
    let token = capture::apply_token(coordinator.term.cluster_id);
    let options = format!("{OPTIONS} -c {}={token}", capture::VIA_SETTING);
    let seat = &coordinator.seats[replica];
    let own = [("options", options.as_str()), ("application_name", "onecopy placement")];
    let mut connection = OwnConnection::open(&seat.address, &coordinator.database.served, &own).await?;
    connection.query("BEGIN").await?;
    let numbered = connection.query(NUMBERED_TABLES).await?;
    let unheld = not_held(&numbered, coordinator.holds(replica))?;
    let mut full = BTreeSet::new();
    for table in &unheld {
        if !connection.query(&a_row_sql(table)).await?.is_empty() {
            full.insert(table.as_str());
        }
    }
    if !full.is_empty() {
        let all: Vec<String> = unheld.iter().map(|table| format!("ONLY {table}")).collect();
        connection.query(&format!("TRUNCATE {}", all.join(", "))).await?;
        let names = full.into_iter().collect::<Vec<_>>().join(", ");
        tracing::info!(replica = %seat.name, tables = names, "tables that the replica does not hold were emptied");
    }
    connection.query("COMMIT").await?;
    Ok(())
}
