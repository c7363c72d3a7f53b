//! Checkpoints of the recovery log: made, given to a replica, and removed (protocols that ship statements).
//!
//! Example: `CREATE CHECKPOINT nightly` waits until no transaction is open and every replica has everything, and gives
//! the last version of the log the name. Then it copies a replica's data, while clients go on. A replica that lost its
//! data a day later gets the copy by `REBUILD REPLICA replica-2 FROM CHECKPOINT nightly`, and runs the transactions of that
//! day from the log, also if no other replica is up.
//!
//! The copy has everything up to the checkpoint, and possibly more, because the server went on. Its `onecopy.applied` says
//! exactly which transactions it has, as for a replica that is rebuilt from another one ([`super::resync`]). The log and
//! the identities there are kept from the checkpoint on ([`crate::coordinator::checkpoints`]).
//!
//! Invariant: a checkpoint is complete or not there. Non-goals: levels at which a transaction cannot be run again from the
//! log, tables that only some replicas hold, and servers that Onecopy does not run.

mod error;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use pgserver::Account;
use tokio::sync::oneshot;

use super::base_backup;
use super::resync::{self, CopyFailure, RebuildError, ResyncSummary, Underway};
use super::verify::at_one_version;
use crate::coordinator::checkpoints::{Checkpoint, CheckpointCopy};
use crate::coordinator::node_kind::Feature;
use crate::coordinator::requests::{CopySource, Replacement, SupervisorOrder};
use crate::coordinator::resync_progress::{ResyncStage, Transfer};
use crate::coordinator::{Leader, QuarantineDuration};

pub(crate) use error::CheckpointError;

/// The most checkpoints. Each has a copy of all data.
pub(crate) const CHECKPOINTS_MAX: usize = 8;
/// The longest name. It is also that of a folder.
pub(crate) const NAME_BYTES_MAX: usize = 63;
/// Interval at which a copy checks whether its server is up.
const LOOK: Duration = Duration::from_millis(100);

/// Makes a checkpoint of this name.
pub(crate) async fn create(leader: Arc<Leader>, name: String) -> Result<Checkpoint, CheckpointError> {
    let _turn = leader.parking.change.try_lock().map_err(|_| CheckpointError::Busy)?;
    let checkpoints = &leader.checkpoints;
    if checkpoints.find(&name).is_some() {
        return Err(CheckpointError::Exists { name });
    }
    if checkpoints.all().len() >= CHECKPOINTS_MAX {
        return Err(CheckpointError::TooMany);
    }
    let source = source(&leader).await?;
    let begun = at_one_version(&leader, async |version| {
        leader.kind.check(Feature::Checkpoints).map_err(CheckpointError::Refused)?;
        checkpoints.begin(version);
        Ok(version)
    });
    let version = begun.await.map_err(CheckpointError::NoOneVersion)??;
    let made = make(&leader, source, &name, version).await;
    if made.is_ok() {
        tracing::info!(%name, %version, "a checkpoint was made");
        return made;
    }
    let unfinished = name.clone();
    if let Err(error) = checkpoints.on_disk(move |all| all.give_up(&unfinished)).await {
        tracing::warn!(%name, %error, "what a checkpoint has left is removed at the next start");
    }
    made
}

/// A replica to copy, and the account of its files.
struct Source {
    replica: ReplicaId,
    account: Account,
}

/// Copies the replica, and writes down that there is a checkpoint.
async fn make(
    leader: &Leader,
    source: Source,
    name: &str,
    version: Version,
) -> Result<Checkpoint, CheckpointError> {
    let bytes = copy(leader, &source, name).await?;
    let taken_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_secs());
    let replica = leader.seats[source.replica].name.clone();
    let copy = CheckpointCopy { replica, taken_s, bytes };
    let checkpoint = Checkpoint { name: name.to_owned(), version, copy };
    let complete = checkpoint.clone();
    let written = leader.checkpoints.on_disk(move |all| all.complete(complete)).await;
    written.map(|()| checkpoint).map_err(CheckpointError::Folder)
}

/// The replica to copy is the one with the least to do.
async fn source(leader: &Leader) -> Result<Source, CheckpointError> {
    let up = leader.replicas().into_iter().filter(|status| status.state == State::Up);
    let replica = up.min_by_key(|status| (status.open, std::cmp::Reverse(status.replica)));
    let replica = replica.map(|status| status.replica).ok_or(CheckpointError::NoneUp)?;
    let supervisor = leader.seats[replica].supervisor.get().ok_or(CheckpointError::NotOurs)?;
    let (account, told) = oneshot::channel();
    let order = SupervisorOrder::TellAccount { account };
    supervisor.send(order).await.map_err(|_| CheckpointError::NodeStops)?;
    let account = told.await.map_err(|_| CheckpointError::NodeStops)?;
    Ok(Source { replica, account })
}

/// Copies a replica's data. Returns the number of bytes.
async fn copy(leader: &Leader, source: &Source, name: &str) -> Result<u64, CheckpointError> {
    let Source { replica, account } = source;
    let into = leader.checkpoints.make_folder(name).map_err(CheckpointError::Folder)?;
    let transfer = Transfer::default();
    let (seat, superuser) = (&leader.seats[*replica], &leader.database.served.superuser);
    let receiving = base_backup::receive(&seat.address, superuser, &into, account, &transfer);
    let mut receiving = std::pin::pin!(receiving);
    let is_up = || leader.replicas().iter().any(|one| one.replica == *replica && one.state == State::Up);
    let received = loop {
        tokio::select! {
            received = &mut receiving => break received,
            () = tokio::time::sleep(LOOK) => if !is_up() {
                // A server that hangs would never end it.
                transfer.abandon();
            },
        }
    };
    received.map_err(CheckpointError::Copy)?;
    Ok(transfer.bytes().0)
}

/// Removes a checkpoint. The log is no longer kept for it.
pub(crate) async fn remove(leader: Arc<Leader>, name: String) -> Result<(), CheckpointError> {
    let _turn = leader.parking.change.try_lock().map_err(|_| CheckpointError::Busy)?;
    if leader.checkpoints.find(&name).is_none() {
        return Err(CheckpointError::Unknown { name });
    }
    let removed = leader.checkpoints.on_disk(move |all| all.remove(&name)).await;
    removed.map_err(CheckpointError::Folder)
}

/// Puts a replica's data back to a checkpoint. Returns when it has run everything that was durable then from the log.
pub(crate) async fn restore(
    leader: Arc<Leader>,
    replica: ReplicaId,
    name: String,
) -> Result<ResyncSummary, CheckpointError> {
    let turn = leader.parking.change.try_lock().map_err(|_| CheckpointError::Busy)?;
    let checkpoint =
        leader.checkpoints.find(&name).ok_or_else(|| CheckpointError::Unknown { name: name.clone() })?;
    let seat = &leader.seats[replica];
    let supervisor = seat.supervisor.get().ok_or(CheckpointError::NotOurs)?;
    if let Some(before) = leader.set_stage(replica, Some(ResyncStage::LeavingService)) {
        leader.set_stage(replica, Some(before));
        return Err(CheckpointError::Rebuild(RebuildError::Underway));
    }
    let underway = Underway { leader: Arc::clone(&leader), replica };
    // A record is kept that the copy has: so the log shows later that the copy lacks none before the first one.
    leader.retention.keep_from(replica, checkpoint.version);
    leader.quarantine(replica, "it is being put back to a checkpoint", QuarantineDuration::UntilRebuilt);
    let transfer = Arc::new(Transfer::default());
    transfer.expect(checkpoint.copy.bytes);
    let donor = format!("checkpoint {name}");
    let stage = ResyncStage::Copying { donor: donor.clone(), transfer: Arc::clone(&transfer) };
    leader.set_stage(replica, Some(stage));
    let (done, outcome) = oneshot::channel();
    let (folder, bytes) = (leader.checkpoints.data(&name), checkpoint.copy.bytes);
    let source = CopySource::Folder { folder, bytes };
    let order = SupervisorOrder::Replace(Replacement { source, transfer: Arc::clone(&transfer), done });
    let ended = match supervisor.send(order).await {
        Ok(()) => {
            outcome.await.map_or(Err(CopyFailure::NodeStops), |ended| ended.map_err(CopyFailure::Supervisor))
        }
        Err(_) => Err(CopyFailure::NodeStops),
    };
    drop(turn);
    if let Err(reason) = ended {
        leader.quarantine(
            replica,
            &format!("its rebuild failed: {reason}"),
            QuarantineDuration::UntilRebuilt,
        );
        return Err(CheckpointError::Rebuild(RebuildError::Failed(reason)));
    }
    let target = leader.view.durable();
    leader.set_stage(replica, Some(ResyncStage::CatchingUp { target }));
    leader.rebuilt(replica);
    let caught_up = resync::caught_up(&leader, replica, target).await;
    let version = caught_up.map_err(|error| CheckpointError::Rebuild(RebuildError::Stuck(error)))?;
    drop(underway);
    tracing::info!(replica = %seat.name, %name, %version, "the replica came back from a checkpoint");
    Ok(ResyncSummary { donor, bytes: transfer.bytes().0, version })
}

/// The number of records in the log after a version.
pub(crate) fn records_after(leader: &Leader, version: Version) -> u64 {
    leader.log.durable().0.saturating_sub(version.0)
}
