//! PLACE TABLE: other replicas hold some tables from now on, while clients go on.
//!
//! One replica after the other leaves service for a while: it is drained, and its agent ends. Where a table is no longer to be
//! held, that is noted then, and the agent empties the table before the replica serves again
//! ([`crate::replica::driver`]). Where a table is to be held that was not, its rows are copied from a snapshot of another replica
//! before that is noted. For the moment of the snapshot all replicas stand at one version, so the rows that follow come from the log.
//!
//! For example, `PLACE TABLE audit ON replica-1, replica-2` in a cluster of four drains replica-3, has it forget `audit`, lets it
//! serve, and does the same with replica-4. The command waits for
//! transactions that are open there; no client waits for the command.
//!
//! Invariants: a replica holds a table, for the core and in the file, only while it has every row of its versions. At least one
//! replica holds everything. Where a table is held, so are the tables that it refers to ([`closure`]). After a crash at any moment
//! each replica either holds a table or does not; PLACE again does the rest.
//!
//! Non-goal: parts of a table.

pub(crate) mod closure;
pub(crate) mod configured;
mod error;
mod fill;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, TableId};
use cluster::parts::replica::State;
use cluster::placement::ReplicaSet;
use sql::Name;
use tokio::sync::oneshot;

use super::members;
use super::resync;
use super::resync::Underway;
use super::verify::at_one_version;
use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::parking::ParkingState;
use crate::coordinator::resync_progress::{ResyncStage, Transfer};
use crate::coordinator::{AgentOrder, Coordinator};

pub(crate) use error::PlaceError;

/// How long an agent may take to make its records durable.
const DURABLE_MAX: Duration = Duration::from_mins(1);
/// How long the command waits for the catalogue after a schema change.
const CATALOGUE_PATIENCE: Duration = Duration::from_secs(2);
/// How often a copy begins anew because a table was rewritten.
const ATTEMPTS: u32 = 5;
/// The pause before that.
const PAUSE: Duration = Duration::from_secs(1);

/// The replicas that are to hold a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// All, those that have yet to join included.
    Everywhere,
    /// These, by name.
    On(BTreeSet<String>),
}

/// Tables with their holders after a change.
type Targets = BTreeMap<TableId, ReplicaSet>;

/// Has other replicas hold these tables. Returns the tables.
pub(crate) async fn run(
    coordinator: Arc<Coordinator>,
    names: Vec<Name>,
    wish: Wish,
) -> Result<Vec<TableId>, PlaceError> {
    let parking = &coordinator.lead.parking;
    let _turn = parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
    await_catalogue(&coordinator).await;
    let tables = tables_of(&coordinator, &names)?;
    let wished = match &wish {
        Wish::Everywhere => members(&coordinator),
        Wish::On(names) => names.iter().map(|name| member(&coordinator, name)).collect::<Result<_, _>>()?,
    };
    let targets: Targets = tables.iter().map(|table| (*table, wished)).collect();
    apply(&coordinator, &targets).await?;
    if wish == Wish::Everywhere {
        for table in &tables {
            if !coordinator.lift(*table).map_err(PlaceError::Unwritten)? {
                return Err(PlaceError::Joined);
            }
        }
    }
    Ok(tables.into_iter().collect())
}

/// Has a replica hold these tables, too, or every table if none are named. Returns those that it did not hold.
pub(crate) async fn give(
    coordinator: Arc<Coordinator>,
    replica: ReplicaId,
    names: Option<Vec<Name>>,
) -> Result<Vec<TableId>, PlaceError> {
    let parking = &coordinator.lead.parking;
    let _turn = parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
    await_catalogue(&coordinator).await;
    let named = names.map(|names| tables_of(&coordinator, &names)).transpose()?;
    let is_meant = |table: &TableId| named.as_ref().is_none_or(|named| named.contains(table));
    let restricted = coordinator.restricted().into_iter();
    let targets: Targets = restricted
        .filter(|(table, holders)| is_meant(table) && !holders.contains(replica))
        .map(|(table, holders)| (table, holders.with(replica)))
        .collect();
    apply(&coordinator, &targets).await?;
    Ok(targets.into_keys().collect())
}

/// Changes what the replicas hold, one after the other.
async fn apply(coordinator: &Arc<Coordinator>, targets: &Targets) -> Result<(), PlaceError> {
    check(coordinator, targets, members(coordinator)).await?;
    let anchor = coordinator.view.anchor();
    let mut order: Vec<ReplicaId> = members(coordinator).iter().collect();
    // The anchor is last: it hands its role over.
    order.sort_by_key(|replica| (*replica == anchor, *replica));
    for replica in order {
        let change = Change::at(coordinator, replica, targets);
        if !change.is_empty() {
            change.carry_out(coordinator).await?;
        }
    }
    Ok(())
}

fn members(coordinator: &Coordinator) -> ReplicaSet {
    coordinator.seats.iter().map(|seat| seat.replica).collect()
}

/// A table that was just made is in the next catalogue. While an open schema change holds that up, the present one has to do.
async fn await_catalogue(coordinator: &Coordinator) {
    if tokio::time::timeout(CATALOGUE_PATIENCE, coordinator.fresh_catalogue()).await.is_err() {
        tracing::debug!("the catalogue is not the newest");
    }
}

/// The tables of these names, with the tables below each.
fn tables_of(coordinator: &Coordinator, names: &[Name]) -> Result<BTreeSet<TableId>, PlaceError> {
    let catalogue = coordinator.database.catalogue();
    let mut all = BTreeSet::new();
    for name in names {
        let found = catalogue.tables_named(name).filter(|found| !found.is_empty());
        all.extend(found.ok_or_else(|| PlaceError::NoTable(name.to_string()))?);
    }
    Ok(all)
}

fn member(coordinator: &Coordinator, name: &str) -> Result<ReplicaId, PlaceError> {
    let seat = coordinator.seats.named(name);
    seat.map(|seat| seat.replica).ok_or_else(|| PlaceError::NoReplica(name.to_owned()))
}

/// Checks, before anything changes, that the placement may become this.
async fn check(coordinator: &Coordinator, targets: &Targets, members: ReplicaSet) -> Result<(), PlaceError> {
    if let Some(replica) = members.iter().find(|replica| coordinator.stage(*replica).is_some()) {
        return Err(PlaceError::Underway { replica: coordinator.seats[replica].name.clone() });
    }
    let mut holders: BTreeMap<TableId, ReplicaSet> = coordinator.restricted().into_iter().collect();
    holders.extend(targets);
    let holds_all = |replica: &ReplicaId| holders.values().all(|set| set.contains(*replica));
    let is_up = |replica: &ReplicaId| {
        let is_up = |status: &cluster::protocols::ReplicaStatus| {
            status.replica == *replica && status.state == State::Up && !status.is_drained
        };
        coordinator.replicas().iter().any(is_up)
    };
    if !members.iter().any(|replica| holds_all(&replica) && is_up(&replica)) {
        return Err(PlaceError::NoFullReplica);
    }
    let told = told(coordinator).await?;
    let holders = |table: TableId| holders.get(&table).copied().unwrap_or(members);
    let breach = closure::breach(told.as_bytes(), coordinator.database.served.id, members, holders)?;
    breach.map_or(Ok(()), |breach| Err(PlaceError::Breach(breach)))
}

/// What the anchor tells of what must be held together.
async fn told(coordinator: &Coordinator) -> Result<String, BackendError> {
    let address = &coordinator.seats[coordinator.view.anchor()].address;
    let own = [("application_name", "onecopy placement")];
    let mut connection = OwnConnection::open(address, &coordinator.database.served, &own).await?;
    let answer = connection.query(closure::HELD_TOGETHER_SQL).await?;
    Ok(answer.into_iter().flatten().flatten().next().unwrap_or_default())
}

/// What changes at one replica.
struct Change {
    replica: ReplicaId,
    gained: BTreeSet<TableId>,
    lost: BTreeSet<TableId>,
}

impl Change {
    fn at(coordinator: &Coordinator, replica: ReplicaId, targets: &Targets) -> Self {
        let holdings = coordinator.core.holdings(replica);
        let tables = |is_gained: bool| {
            let changes = |(table, holders): &(&TableId, &ReplicaSet)| {
                holders.contains(replica) == is_gained && holdings.holds(**table) != is_gained
            };
            targets.iter().filter(changes).map(|(table, _)| *table).collect()
        };
        Self { replica, gained: tables(true), lost: tables(false) }
    }

    fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }

    /// Takes the replica out of service, changes what it holds, and lets it serve again.
    async fn carry_out(&self, coordinator: &Arc<Coordinator>) -> Result<(), PlaceError> {
        let seat = &coordinator.seats[self.replica];
        let parking = &coordinator.lead.parking;
        let status = coordinator.replicas().into_iter().find(|status| status.replica == self.replica);
        let Some(status) = status else { return Ok(()) };
        if status.state != State::Up {
            return Err(PlaceError::NotUp { replica: seat.name.clone() });
        }
        if let Some(before) = coordinator.set_stage(self.replica, Some(ResyncStage::Preparing)) {
            coordinator.set_stage(self.replica, Some(before));
            return Err(PlaceError::Underway { replica: seat.name.clone() });
        }
        parking.set(self.replica, ParkingState::Parking);
        let underway = Underway { coordinator: Arc::clone(coordinator), replica: self.replica };
        let changed = self.change(coordinator).await;
        // Its agent is at work again, whatever has happened, and empties what is not held.
        seat.order(AgentOrder::Wake);
        parking.set(self.replica, ParkingState::Awake);
        let caught_up = resync::caught_up(coordinator, self.replica, coordinator.view.durable()).await;
        if !status.is_drained {
            coordinator.drain(self.replica, false);
        }
        drop(underway);
        changed?;
        caught_up.map_err(|standstill| PlaceError::Stuck { replica: seat.name.clone(), standstill })?;
        tracing::info!(replica = %seat.name, gained = self.gained.len(), lost = self.lost.len(), "the replica holds other tables");
        Ok(())
    }

    async fn change(&self, coordinator: &Arc<Coordinator>) -> Result<(), PlaceError> {
        let name = || coordinator.seats[self.replica].name.clone();
        let drained = members::drain(coordinator, self.replica).await;
        drained.map_err(|error| PlaceError::NotDrained { replica: name(), error })?;
        let emptied = members::await_empty(coordinator, self.replica).await;
        emptied.map_err(|error| PlaceError::NotEmpty { replica: name(), error })?;
        if self.gained.is_empty() {
            end_agent(coordinator, self.replica).await?;
        } else {
            self.fill(coordinator).await?;
        }
        for (tables, is_gained) in [(&self.gained, true), (&self.lost, false)] {
            for table in tables {
                let holders = coordinator.core.holders(*table);
                let holders =
                    if is_gained { holders.with(self.replica) } else { holders.without(self.replica) };
                coordinator.place(*table, holders).map_err(PlaceError::Unwritten)?;
            }
        }
        Ok(())
    }

    /// Copies the tables that the replica is to hold. Its agent has ended when this returns.
    async fn fill(&self, coordinator: &Arc<Coordinator>) -> Result<(), PlaceError> {
        let holds_them = |status: &&cluster::protocols::ReplicaStatus| {
            let holdings = coordinator.core.holdings(status.replica);
            status.state == State::Up
                && status.replica != self.replica
                && self.gained.iter().all(|table| holdings.holds(*table))
        };
        let anchor = coordinator.view.anchor();
        let replicas = coordinator.replicas();
        let donor =
            replicas.iter().filter(holds_them).min_by_key(|r| (r.replica == anchor, r.expected_wait_us));
        let donor = donor.ok_or(PlaceError::NoDonor)?.replica;
        let transfer = Arc::new(Transfer::default());
        let stage = ResyncStage::Copying {
            donor: coordinator.seats[donor].name.clone(),
            transfer: Arc::clone(&transfer),
        };
        let mut attempt = 1;
        loop {
            let snapshot = at_one_version(coordinator, async |version| {
                let snapshot = fill::open_snapshot(coordinator, donor).await?;
                end_agent(coordinator, self.replica).await?;
                Ok::<_, PlaceError>((version, snapshot))
            });
            let (version, snapshot) = snapshot.await.map_err(PlaceError::NoOneVersion)??;
            coordinator.set_stage(self.replica, Some(stage.clone()));
            let copied =
                fill::copy(coordinator, snapshot, self.replica, &self.gained, version, &transfer).await;
            match copied {
                Err(PlaceError::Rewritten) if attempt < ATTEMPTS => attempt += 1,
                copied => return copied,
            }
            coordinator.seats[self.replica].order(AgentOrder::Wake);
            tokio::time::sleep(PAUSE).await;
            let emptied = members::await_empty(coordinator, self.replica).await;
            emptied.map_err(|error| PlaceError::NotEmpty {
                replica: coordinator.seats[self.replica].name.clone(),
                error,
            })?;
        }
    }
}

/// Ends the agent of a drained replica, when its records are durable.
async fn end_agent(coordinator: &Coordinator, replica: ReplicaId) -> Result<(), PlaceError> {
    let seat = &coordinator.seats[replica];
    let (done, durable) = oneshot::channel();
    seat.order(AgentOrder::Park { done });
    match tokio::time::timeout(DURABLE_MAX, durable).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(PlaceError::Lost { replica: seat.name.clone() }),
    }
}
