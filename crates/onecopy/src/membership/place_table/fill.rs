//! Copies tables and parts of tables into a replica that stands at the version of the snapshot.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{ReplicaId, TableId, Version};
use cluster::placement::PartSet;
use cluster::protocols::rows::COMMITS_TOGETHER_MAX;

use super::Piece;
use super::error::PlaceError;
use crate::backend::OwnConnection;
use crate::capture::shares::SplitSql;
use crate::coordinator::Leader;
use crate::coordinator::resync_progress::Transfer;
use crate::membership::initial_copy;
use crate::membership::initial_copy::TablesError;
use crate::replica::agent::identity;

/// A snapshot of a donor, with its connection.
pub(super) async fn open_snapshot(leader: &Leader, donor: ReplicaId) -> Result<OwnConnection, PlaceError> {
    Ok(initial_copy::open_snapshot(leader, donor).await?)
}

/// The tables by name, each with the condition on the rows that are copied.
fn wanted(leader: &Leader, pieces: &BTreeSet<Piece>) -> BTreeMap<String, Option<String>> {
    let mut parts: BTreeMap<TableId, PartSet> = BTreeMap::new();
    for (table, part) in pieces {
        let all = parts.entry(*table).or_default();
        *all = part.iter().fold(*all, |all, part| all.with(*part));
    }
    let condition = |table: TableId, parts: PartSet| {
        let copies = leader.core.copies(table);
        let (column, count) = copies.split()?;
        Some(SplitSql::by(column, count).condition(parts))
    };
    let wanted = |(table, parts)| (leader.table_name(table), condition(table, parts));
    parts.into_iter().map(wanted).collect()
}

/// Copies tables and parts. The replica stands at the same version as the snapshot, and has no agent.
///
/// Its set of applied records lacks those that only concerned the new tables. So the set becomes that of a copy: the last records up to
/// this version, without gaps, which say that all before them are there.
pub(super) async fn copy(
    leader: &Leader,
    snapshot: OwnConnection,
    replica: ReplicaId,
    pieces: &BTreeSet<Piece>,
    version: Version,
    transfer: &Transfer,
) -> Result<(), PlaceError> {
    let wanted = wanted(leader, pieces);
    let copied = initial_copy::copy_tables(leader, snapshot, replica, &wanted, transfer).await;
    let mut target = copied.map_err(|error| match error {
        TablesError::Rewritten => PlaceError::Rewritten,
        other => PlaceError::Copy(other),
    })?;
    let before = Version(version.0.saturating_sub(COMMITS_TOGETHER_MAX));
    let (found, upto) = leader.identities.range(before, version, &leader.log).await?;
    if upto != version {
        return Err(PlaceError::UnknownVersion(version));
    }
    let put: String = found.iter().map(|identity| identity::put_sql(*identity, &leader.local.seal)).collect();
    let sql = format!("BEGIN; SET LOCAL synchronous_commit = on; DELETE FROM onecopy.applied; {put} COMMIT");
    target.query(&sql).await?;
    Ok(())
}
