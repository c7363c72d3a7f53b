//! Tables that are split by the value of a column, and the replicas that hold the parts.
//!
//! All split tables have the same parts ([`cluster::placement`]), so that rows with the same value are held together. PLACE PARTS says how
//! many there are, and deals them to replicas. PLACE TABLE .. BY splits a table, and with it those that refer to its column.
//!
//! Example: `PLACE PARTS 16 COPIES 2 ON b, c, d, e` in a cluster of a to e: a holds all parts, each other part is at two of the four. Then
//! `PLACE TABLE warehouse BY w_id` splits `warehouse`, `district` by `d_w_id`, and so on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::ids::{ReplicaId, TableId};
use cluster::parts::replica::State;
use cluster::placement::{Copies, PARTS_MAX, ReplicaSet, spread};

use super::{PlaceError, Targets, await_catalogue, change, check, closure, member, members, told};
use crate::coordinator::Leader;
use crate::membership::verify::at_one_version;

/// The parts of tables that are to be dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dealing {
    /// The number of parts.
    pub(crate) count: u8,
    /// Each is held by so many of these replicas, and by all others.
    pub(crate) copies: u16,
    /// The replicas, by name; if none are named, all but the anchor.
    pub(crate) among: BTreeSet<String>,
}

/// Deals the parts, and moves those of tables that are split already. Returns the holders of each part.
pub(crate) async fn deal(leader: Arc<Leader>, dealing: Dealing) -> Result<Vec<ReplicaSet>, PlaceError> {
    let parking = &leader.parking;
    let _turn = parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
    await_catalogue(&leader).await;
    let everyone = members(&leader);
    let among: ReplicaSet = if dealing.among.is_empty() {
        everyone.without(leader.view.anchor())
    } else {
        dealing.among.iter().map(|name| member(&leader, name)).collect::<Result<_, _>>()?
    };
    let others = everyone.iter().filter(|replica| !among.contains(*replica));
    let others = others.fold(ReplicaSet::EMPTY, ReplicaSet::with);
    if others == ReplicaSet::EMPTY {
        return Err(PlaceError::NoFullReplica);
    }
    if !(1..=PARTS_MAX).contains(&dealing.count) {
        return Err(PlaceError::PartsOutOfRange { count: dealing.count });
    }
    let dealt: Vec<ReplicaSet> =
        spread(dealing.count, dealing.copies, among).into_iter().map(|holders| holders.or(others)).collect();
    let mut targets = Targets::new();
    let catalogue = leader.database.catalogue();
    // A table that was dropped has no rows.
    let is_there = |(table, _): &(TableId, Copies)| catalogue.table(*table).is_some();
    for (table, copies) in leader.core.restricted().into_iter().filter(is_there) {
        let Copies::Parts { column, holders } = copies else { continue };
        if holders.len() != dealt.len() {
            let table = leader.table_name(table);
            return Err(PlaceError::OtherParts { table, count: holders.len() });
        }
        targets.insert(table, Copies::Parts { column, holders: dealt.clone().into() });
    }
    check(&leader, &targets, everyone).await?;
    leader.set_parts(&dealt).await.map_err(PlaceError::Unwritten)?;
    change(&leader, &targets).await?;
    Ok(dealt)
}

/// Splits tables by a column, and those that refer to it. Returns all of them.
pub(super) async fn split(
    leader: &Arc<Leader>,
    tables: &BTreeSet<TableId>,
    column: &str,
) -> Result<Vec<TableId>, PlaceError> {
    let dealt: Arc<[ReplicaSet]> = leader.parts().await.map_err(PlaceError::Unwritten)?.into();
    if dealt.is_empty() {
        return Err(PlaceError::NoParts);
    }
    let columns = columns(leader, tables, column).await?;
    let mut targets = Targets::new();
    for (table, column) in &columns {
        let target = Copies::Parts { column: column.as_str().into(), holders: Arc::clone(&dealt) };
        let present = leader.core.copies(*table);
        if present.split().is_some() && present.split() != target.split() {
            return Err(PlaceError::IsSplit { table: leader.table_name(*table) });
        }
        targets.insert(*table, target);
    }
    check(leader, &targets, members(leader)).await?;
    let new: Vec<TableId> =
        columns.into_keys().filter(|table| leader.core.copies(*table).split().is_none()).collect();
    if !new.is_empty() {
        check_all_up(leader)?;
        for table in new {
            let holders = leader.core.copies(table).of_all_rows(members(leader));
            let parts = targets[&table].map(|_, _| holders);
            leader.place(table, &parts).await.map_err(PlaceError::Unwritten)?;
        }
        // From here on records tell the parts of rows. The replicas apply those that do not.
        at_one_version(leader, async |_| ()).await.map_err(PlaceError::NoOneVersion)?;
    }
    change(leader, &targets).await?;
    Ok(targets.into_keys().collect())
}

/// The column of each table that is to be split.
async fn columns(
    leader: &Leader,
    tables: &BTreeSet<TableId>,
    column: &str,
) -> Result<BTreeMap<TableId, String>, PlaceError> {
    let told = told(leader).await?;
    let is_split = |table| leader.core.copies(table).split().is_some();
    let mut all = BTreeMap::new();
    for table in tables {
        let database = leader.database.served.id;
        all.extend(closure::following(told.as_bytes(), database, *table, column, is_split)?);
    }
    Ok(all)
}

/// A replica that is not up would have to apply records later that do not tell the parts of their rows.
fn check_all_up(leader: &Leader) -> Result<(), PlaceError> {
    let replicas = leader.replicas();
    let is_up =
        |id: ReplicaId| replicas.iter().any(|status| status.replica == id && status.state == State::Up);
    match members(leader).iter().find(|replica| !is_up(*replica)) {
        Some(replica) => Err(PlaceError::NotUp { replica: leader.seats[replica].name.clone() }),
        None => Ok(()),
    }
}
