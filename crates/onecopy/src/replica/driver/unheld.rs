//! Empties the tables and parts of tables that a replica does not hold, before it serves.
//!
//! Such a table may have rows there: the replica held it before, or its data was copied from a replica that holds more. For
//! example, after `PLACE TABLE audit ON replica-1` the agents of the others connect anew, and `audit` is truncated there.
//!
//! Invariant: where a replica serves, it has no row that it does not hold. VERIFY looks for such rows.
//!
//! A table that is referenced is held wherever the tables are that refer to it, so those that are not held can be truncated together.

use std::collections::BTreeSet;

use cluster::ids::ReplicaId;
use cluster::placement::Share;

use crate::backend::{BackendError, OwnConnection};
use crate::capture;
use crate::capture::shares::{NUMBERED_TABLES, a_row_sql};
use crate::coordinator::Leader;

/// Nothing here is captured, and no trigger of a user's runs.
const OPTIONS: &str = "-c synchronous_commit=on -c session_replication_role=replica -c search_path=pg_catalog \
    -c row_security=off -c statement_timeout=0 -c lock_timeout=0";

/// Removes the rows that the replica does not hold. Its agent is connected, and nothing else runs there.
pub(super) async fn empty(leader: &Leader, replica: ReplicaId) -> Result<(), BackendError> {
    if leader.core.holdings(replica).is_everything() {
        return Ok(());
    }
    let token = capture::apply_token(leader.term.cluster_id);
    let options = format!("{OPTIONS} -c {}={token}", capture::VIA_SETTING);
    let seat = &leader.seats[replica];
    let own = [("options", options.as_str()), ("application_name", "onecopy placement")];
    let mut connection = OwnConnection::open(&seat.address, &leader.database.served, &own).await?;
    connection.query("BEGIN").await?;
    let numbered = connection.query(NUMBERED_TABLES).await?;
    let shared = leader.shares(replica).of(&numbered)?;
    let (whole, parts): (Vec<_>, Vec<_>) = shared.iter().partition(|table| table.share == Share::Nothing);
    let mut full = BTreeSet::new();
    for table in &whole {
        if !connection.query(&a_row_sql(&table.name, "true")).await?.is_empty() {
            full.insert(table.name.as_str());
        }
    }
    if !full.is_empty() {
        let all: Vec<String> = whole.iter().map(|table| format!("ONLY {}", table.name)).collect();
        connection.query(&format!("TRUNCATE {}", all.join(", "))).await?;
    }
    for table in parts {
        let Some(unheld) = table.unheld() else { continue };
        if !connection.query(&a_row_sql(&table.name, &unheld)).await?.is_empty() {
            connection.query(&format!("DELETE FROM ONLY {} WHERE {unheld}", table.name)).await?;
            full.insert(table.name.as_str());
        }
    }
    if !full.is_empty() {
        let names = full.into_iter().collect::<Vec<_>>().join(", ");
        tracing::info!(replica = %seat.name, tables = names, "rows that the replica does not hold were removed");
    }
    connection.query("COMMIT").await?;
    Ok(())
}
