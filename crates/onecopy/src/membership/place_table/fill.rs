//! Copies tables into a replica that stands at the version of the snapshot.

use std::collections::BTreeSet;

use cluster::ids::{ReplicaId, TableId, Version};
use cluster::protocols::rows::COMMITS_TOGETHER_MAX;

use super::error::PlaceError;
use crate::backend::OwnConnection;
use crate::coordinator::Coordinator;

use crate::coordinator::resync_progress::Transfer;
use crate::membership::initial_copy;
use crate::membership::initial_copy::TablesError;
use crate::replica::agent::identity;

/// A snapshot of a donor, with its connection.
pub(super) async fn open_snapshot(
    coordinator: &Coordinator,
    donor: ReplicaId,
) -> Result<OwnConnection, PlaceError> {
    Ok(initial_copy::open_snapshot(coordinator, donor).await?)
}

/// Copies the tables. The replica stands at the same version as the snapshot, and has no agent.
///
/// Its set of applied records lacks those that only concerned the new tables. So the set becomes that of a copy: the last records up to
/// this version, without gaps, which say that all before them are there.
pub(super) async fn copy(
    coordinator: &Coordinator,
    snapshot: OwnConnection,
    replica: ReplicaId,
    tables: &BTreeSet<TableId>,
    version: Version,
    transfer: &Transfer,
) -> Result<(), PlaceError> {
    let names: BTreeSet<String> = tables.iter().map(|table| coordinator.table_name(*table)).collect();
    let copied = initial_copy::copy_tables(coordinator, snapshot, replica, &names, transfer).await;
    let mut target = copied.map_err(|error| match error {
        TablesError::Rewritten => PlaceError::Rewritten,
        other => PlaceError::Copy(other),
    })?;
    let before = Version(version.0.saturating_sub(COMMITS_TOGETHER_MAX));
    let (found, upto) = coordinator.identities.range(before, version, &coordinator.log).await?;
    if upto != version {
        return Err(PlaceError::UnknownVersion(version));
    }
    let put: String =
        found.iter().map(|identity| identity::put_sql(*identity, &coordinator.local.seal)).collect();
    let sql = format!("BEGIN; SET LOCAL synchronous_commit = on; DELETE FROM onecopy.applied; {put} COMMIT");
    target.query(&sql).await?;
    Ok(())
}
