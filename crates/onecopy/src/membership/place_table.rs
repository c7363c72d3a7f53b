//! PLACE TABLE and PLACE PARTS: other replicas hold some tables, or parts of tables, from now on, while clients go on.
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
//! Invariants: a replica holds a table, for the core and in the register, only while it has every row of its versions. At least one
//! replica holds everything. Where a table is held, so are the tables that it refers to ([`closure`]). After a crash at any moment
//! each replica either holds a table or does not; PLACE again does the rest.
//!
//! A table is split, or whole again, at a moment when no replica holds more or less by that. The records of before do not tell the parts
//! of their rows, so the replicas apply all of these before the first of them holds less.

pub(crate) mod closure;
pub(crate) mod configured;
mod error;
mod fill;
pub(crate) mod parts;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{PartId, ReplicaId, TableId};
use cluster::parts::replica::State;
use cluster::placement::{Copies, Holdings, ReplicaSet};
use sql::Name;
use tokio::sync::oneshot;

use super::members;
use super::resync;
use super::resync::Underway;
use super::verify::at_one_version;
use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::parking::ParkingState;
use crate::coordinator::resync_progress::{ResyncStage, Transfer};
use crate::coordinator::{AgentOrder, Leader};

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
    /// Each row where its part is, by the value of this column. Tables that refer to the column are split with it.
    By(String),
}

/// Tables with their holders after a change.
type Targets = BTreeMap<TableId, Copies>;

/// A table, or a part of it.
type Piece = (TableId, Option<PartId>);

/// Has other replicas hold these tables, and updates of them begin at the masters if some are named. Returns the tables.
pub(crate) async fn run(
    leader: Arc<Leader>,
    names: Vec<Name>,
    wish: Wish,
    masters: BTreeSet<String>,
) -> Result<Vec<TableId>, PlaceError> {
    let parking = &leader.parking;
    let _turn = parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
    await_catalogue(&leader).await;
    let tables = tables_of(&leader, &names)?;
    let masters = masters_of(&leader, &wish, &masters)?;
    match &wish {
        Wish::Everywhere => everywhere(&leader, &tables).await?,
        Wish::On(names) => {
            let wished: ReplicaSet =
                names.iter().map(|name| member(&leader, name)).collect::<Result<_, _>>()?;
            let is_split = |table: &&TableId| leader.core.copies(**table).split().is_some();
            if let Some(table) = tables.iter().find(is_split) {
                return Err(PlaceError::IsSplit { table: leader.table_name(*table) });
            }
            let target = |table: &TableId| (*table, Copies::Whole(wished));
            apply(&leader, &tables.iter().map(target).collect()).await?;
        }
        Wish::By(column) => return parts::split(&leader, &tables, column).await,
    }
    for table in &tables {
        leader.set_masters(*table, masters).await.map_err(PlaceError::Unwritten)?;
    }
    Ok(tables.into_iter().collect())
}

/// The masters by name, which have to be among the holders.
fn masters_of(leader: &Leader, wish: &Wish, masters: &BTreeSet<String>) -> Result<ReplicaSet, PlaceError> {
    if let Wish::On(holders) = wish
        && let Some(other) = masters.difference(holders).next()
    {
        return Err(PlaceError::NoHolder { replica: other.clone() });
    }
    masters.iter().map(|name| member(leader, name)).collect()
}

/// Has every replica hold these tables, those that have yet to join included.
async fn everywhere(leader: &Arc<Leader>, tables: &BTreeSet<TableId>) -> Result<(), PlaceError> {
    let everyone = members(leader);
    let target = |table: &TableId| (*table, leader.core.copies(*table).map(|_, _| everyone));
    apply(leader, &tables.iter().map(target).collect()).await?;
    for table in tables {
        if leader.core.copies(*table).split().is_some() {
            leader.place(*table, &Copies::Whole(everyone)).await.map_err(PlaceError::Unwritten)?;
        }
        if !leader.lift(*table).await.map_err(PlaceError::Unwritten)? {
            return Err(PlaceError::Joined);
        }
    }
    Ok(())
}

/// Has a replica hold these tables, too, or every table if none are named. Returns those that it did not hold.
pub(crate) async fn give(
    leader: Arc<Leader>,
    replica: ReplicaId,
    names: Option<Vec<Name>>,
) -> Result<Vec<TableId>, PlaceError> {
    let parking = &leader.parking;
    let _turn = parking.change.try_lock().map_err(|_| PlaceError::Busy)?;
    await_catalogue(&leader).await;
    let named = names.map(|names| tables_of(&leader, &names)).transpose()?;
    let is_meant = |table: &TableId| named.as_ref().is_none_or(|named| named.contains(table));
    // A table that was dropped has no rows.
    let catalogue = leader.database.catalogue();
    let is_there = |(table, _): &(TableId, Copies)| catalogue.table(*table).is_some();
    let restricted = leader.core.restricted().into_iter().filter(is_there);
    let lacks = |copies: &Copies| copies.sets().any(|(_, holders)| !holders.contains(replica));
    let targets: Targets = restricted
        .filter(|(table, copies)| is_meant(table) && lacks(copies))
        .map(|(table, copies)| (table, copies.map(|_, holders| holders.with(replica))))
        .collect();
    apply(&leader, &targets).await?;
    Ok(targets.into_keys().collect())
}

/// Changes what the replicas hold, one after the other.
async fn apply(leader: &Arc<Leader>, targets: &Targets) -> Result<(), PlaceError> {
    check(leader, targets, members(leader)).await?;
    change(leader, targets).await
}

/// Changes what the replicas hold, after the check.
async fn change(leader: &Arc<Leader>, targets: &Targets) -> Result<(), PlaceError> {
    let anchor = leader.view.anchor();
    let mut order: Vec<ReplicaId> = members(leader).iter().collect();
    // The anchor is last: it hands its role over.
    order.sort_by_key(|replica| (*replica == anchor, *replica));
    for replica in order {
        let change = Change::at(leader, replica, targets);
        if !change.is_empty() {
            change.carry_out(leader).await?;
        }
    }
    Ok(())
}

pub(crate) fn members(leader: &Leader) -> ReplicaSet {
    leader.seats.iter().map(|seat| seat.replica).collect()
}

/// A table that was just made is in the next catalogue. While an open schema change holds that up, the present one has to do.
async fn await_catalogue(leader: &Leader) {
    if tokio::time::timeout(CATALOGUE_PATIENCE, leader.fresh_catalogue()).await.is_err() {
        tracing::debug!("the catalogue is not the newest");
    }
}

/// The tables of these names, with the tables below each.
pub(crate) fn tables_of(leader: &Leader, names: &[Name]) -> Result<BTreeSet<TableId>, PlaceError> {
    let catalogue = leader.database.catalogue();
    let mut all = BTreeSet::new();
    for name in names {
        let found = catalogue.tables_named(name).filter(|found| !found.is_empty());
        all.extend(found.ok_or_else(|| PlaceError::NoTable(name.to_string()))?);
    }
    Ok(all)
}

pub(crate) fn member(leader: &Leader, name: &str) -> Result<ReplicaId, PlaceError> {
    let seat = leader.seats.named(name);
    seat.map(|seat| seat.replica).ok_or_else(|| PlaceError::NoReplica(name.to_owned()))
}

/// Checks, before anything changes, that the placement may become this.
async fn check(leader: &Leader, targets: &Targets, members: ReplicaSet) -> Result<(), PlaceError> {
    if let Some(replica) = members.iter().find(|replica| leader.stage(*replica).is_some()) {
        return Err(PlaceError::Underway { replica: leader.seats[replica].name.clone() });
    }
    let mut copies: BTreeMap<TableId, Copies> = leader.core.restricted().into_iter().collect();
    copies.extend(targets.iter().map(|(table, copies)| (*table, copies.clone())));
    let holds_all =
        |replica: &ReplicaId| copies.values().all(|copies| copies.of_all_rows(members).contains(*replica));
    let is_up = |replica: &ReplicaId| {
        let is_up = |status: &cluster::protocols::ReplicaStatus| {
            status.replica == *replica && status.state == State::Up && !status.is_drained
        };
        leader.replicas().iter().any(is_up)
    };
    if !members.iter().any(|replica| holds_all(&replica) && is_up(&replica)) {
        return Err(PlaceError::NoFullReplica);
    }
    let told = told(leader).await?;
    let copies = |table: TableId| copies.get(&table).cloned().unwrap_or(Copies::Whole(members));
    let breach = closure::breach(told.as_bytes(), leader.database.served.id, members, copies)?;
    breach.map_or(Ok(()), |breach| Err(PlaceError::Breach(breach)))
}

/// What the anchor tells of what must be held together.
async fn told(leader: &Leader) -> Result<String, BackendError> {
    let address = &leader.seats[leader.view.anchor()].address;
    let own = [("application_name", "onecopy placement")];
    let mut connection = OwnConnection::open(address, &leader.database.served, &own).await?;
    let answer = connection.query(closure::HELD_TOGETHER_SQL).await?;
    Ok(answer.into_iter().flatten().flatten().next().unwrap_or_default())
}

/// What changes at one replica.
struct Change {
    replica: ReplicaId,
    gained: BTreeSet<Piece>,
    lost: BTreeSet<Piece>,
}

impl Change {
    fn at(leader: &Leader, replica: ReplicaId, targets: &Targets) -> Self {
        let holdings = leader.core.holdings(replica);
        let pieces = targets.iter().flat_map(|(table, copies)| {
            copies.sets().map(|(part, holders)| ((*table, part), holders.contains(replica)))
        });
        let changes = pieces.filter(|(piece, is_to_hold)| holds(&holdings, *piece) != *is_to_hold);
        let (gained, lost): (Vec<_>, Vec<_>) = changes.partition(|(_, is_to_hold)| *is_to_hold);
        let [gained, lost] =
            [gained, lost].map(|pieces| pieces.into_iter().map(|(piece, _)| piece).collect());
        Self { replica, gained, lost }
    }

    fn is_empty(&self) -> bool {
        self.gained.is_empty() && self.lost.is_empty()
    }

    /// Takes the replica out of service, changes what it holds, and lets it serve again.
    async fn carry_out(&self, leader: &Arc<Leader>) -> Result<(), PlaceError> {
        let seat = &leader.seats[self.replica];
        let parking = &leader.parking;
        let status = leader.replicas().into_iter().find(|status| status.replica == self.replica);
        let Some(status) = status else { return Ok(()) };
        if status.state != State::Up {
            return Err(PlaceError::NotUp { replica: seat.name.clone() });
        }
        if let Some(before) = leader.set_stage(self.replica, Some(ResyncStage::Preparing)) {
            leader.set_stage(self.replica, Some(before));
            return Err(PlaceError::Underway { replica: seat.name.clone() });
        }
        parking.set(self.replica, ParkingState::Parking);
        let underway = Underway { leader: Arc::clone(leader), replica: self.replica };
        let changed = self.change(leader).await;
        // Its agent is at work again, whatever has happened, and empties what is not held.
        seat.order(AgentOrder::Wake);
        parking.set(self.replica, ParkingState::Awake);
        let caught_up = resync::caught_up(leader, self.replica, leader.view.durable()).await;
        if !status.is_drained {
            leader.drain(self.replica, false);
        }
        drop(underway);
        changed?;
        caught_up.map_err(|standstill| PlaceError::Stuck { replica: seat.name.clone(), standstill })?;
        tracing::info!(replica = %seat.name, gained = self.gained.len(), lost = self.lost.len(), "the replica holds other tables");
        Ok(())
    }

    async fn change(&self, leader: &Arc<Leader>) -> Result<(), PlaceError> {
        let name = || leader.seats[self.replica].name.clone();
        let drained = members::drain(leader, self.replica).await;
        drained.map_err(|error| PlaceError::NotDrained { replica: name(), error })?;
        let emptied = members::await_empty(leader, self.replica).await;
        emptied.map_err(|error| PlaceError::NotEmpty { replica: name(), error })?;
        if self.gained.is_empty() {
            end_agent(leader, self.replica).await?;
        } else {
            self.fill(leader).await?;
        }
        let tables: BTreeSet<TableId> =
            self.gained.iter().chain(&self.lost).map(|(table, _)| *table).collect();
        for table in tables {
            let copies = leader.core.copies(table).map(|part, holders| match (table, part) {
                piece if self.gained.contains(&piece) => holders.with(self.replica),
                piece if self.lost.contains(&piece) => holders.without(self.replica),
                _ => holders,
            });
            leader.place(table, &copies).await.map_err(PlaceError::Unwritten)?;
        }
        Ok(())
    }

    /// Copies the rows that the replica is to hold. Its agent has ended when this returns.
    async fn fill(&self, leader: &Arc<Leader>) -> Result<(), PlaceError> {
        let holds_them = |status: &&cluster::protocols::ReplicaStatus| {
            let holdings = leader.core.holdings(status.replica);
            status.state == State::Up
                && status.replica != self.replica
                && self.gained.iter().all(|piece| holds(&holdings, *piece))
        };
        let anchor = leader.view.anchor();
        let replicas = leader.replicas();
        let donor =
            replicas.iter().filter(holds_them).min_by_key(|r| (r.replica == anchor, r.expected_wait_us));
        let donor = donor.ok_or(PlaceError::NoDonor)?.replica;
        let transfer = Arc::new(Transfer::default());
        let stage =
            ResyncStage::Copying { donor: leader.seats[donor].name.clone(), transfer: Arc::clone(&transfer) };
        let mut attempt = 1;
        loop {
            let snapshot = at_one_version(leader, async |version| {
                let snapshot = fill::open_snapshot(leader, donor).await?;
                end_agent(leader, self.replica).await?;
                Ok::<_, PlaceError>((version, snapshot))
            });
            let (version, snapshot) = snapshot.await.map_err(PlaceError::NoOneVersion)??;
            leader.set_stage(self.replica, Some(stage.clone()));
            let copied = fill::copy(leader, snapshot, self.replica, &self.gained, version, &transfer).await;
            match copied {
                Err(PlaceError::Rewritten) if attempt < ATTEMPTS => attempt += 1,
                copied => return copied,
            }
            leader.seats[self.replica].order(AgentOrder::Wake);
            tokio::time::sleep(PAUSE).await;
            let emptied = members::await_empty(leader, self.replica).await;
            emptied.map_err(|error| PlaceError::NotEmpty {
                replica: leader.seats[self.replica].name.clone(),
                error,
            })?;
        }
    }
}

/// Whether a table, or a part of it, is among holdings.
fn holds(holdings: &Holdings, (table, part): Piece) -> bool {
    match part {
        Some(_) => holdings.holds_row(table, part),
        None => holdings.holds(table),
    }
}

/// Ends the agent of a drained replica, when its records are durable.
async fn end_agent(leader: &Leader, replica: ReplicaId) -> Result<(), PlaceError> {
    let seat = &leader.seats[replica];
    let (done, durable) = oneshot::channel();
    seat.order(AgentOrder::Park { done });
    match tokio::time::timeout(DURABLE_MAX, durable).await {
        Ok(Ok(_)) => Ok(()),
        _ => Err(PlaceError::Lost { replica: seat.name.clone() }),
    }
}
