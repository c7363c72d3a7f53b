//! Rebuilding a replica online: it gets the data of another one, and catches up from the log.
//!
//! The donor is a replica that is up and holds all that the target holds. The anchor is the donor only if there is no
//! other.
//!
//! The target leaves service first. The log is kept from the version at which the donor stood before the copy began.
//! When the server runs on the copy, the target is like a replica that was away for a while: its agent fences it and
//! reads the applied set. That came along with the data, and says exactly which version the copy has. So writes never
//! need to stand still. The target joins when the core finds it fresh enough for a transaction.
//!
//! If no replica is up there is no donor. But a replica that could not apply a record has all records before it, since
//! the failed one was rolled back. The log has the rest, because it is kept for the replica. So such replicas are tried
//! again then. One that gets or has every record serves, and is the donor for the others. So a cluster survives as long
//! as there is one complete copy, even in quarantine.
//!
//! Invariant: a replica leaves quarantine only after its server has started on a complete copy, or to be tried again as
//! above.
//!
//! A copy of files also brings the tables that the donor holds and the target does not. They are not kept up to date
//! there, and no statement reads them.
//!
//! Non-goal: servers that Onecopy does not run. They leave, are filled and join again ([`super::members`]).

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::placement::Holdings;
use cluster::protocols::ReplicaStatus;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::coordinator::requests::{CopySource, Replacement, RequestError, SupervisorOrder};
use crate::coordinator::resync_progress::{ResyncStage, Transfer};
use crate::coordinator::{Leader, QuarantineDuration};

/// How many donors may go down during one rebuild.
const DONORS_MAX: u32 = 3;
/// The pause between two looks at the progress of the replica.
const LOOK: Duration = Duration::from_millis(50);
/// How long another replica may take to become the home of updates.
const LEAVE_MAX: Duration = Duration::from_secs(30);
/// How long a replica that catches up may stand still before Onecopy stops waiting for it.
const STANDSTILL_MAX: Duration = Duration::from_mins(2);

/// Why a replica was not rebuilt.
#[derive(Debug)]
pub(crate) enum RebuildError {
    /// It is being rebuilt already.
    Underway,
    /// Its server is not one that we run.
    NotOurs,
    /// No other replica is up that holds all that this one holds.
    NoDonor,
    /// The server did not get other data. It is as it was, and in quarantine.
    Failed(CopyFailure),
    /// It has other data, and does not catch up with the others.
    Stuck(Standstill),
}

/// The server did not get other data.
#[derive(Debug)]
pub(crate) enum CopyFailure {
    /// Its supervisor could not replace the data.
    Supervisor(RequestError),
    /// The node is stopping, so the supervisor has ended.
    NodeStops,
}

/// Why a replica that catches up is no longer waited for.
#[derive(Debug)]
pub(crate) enum Standstill {
    /// It is not a member any more.
    Gone,
    /// It was quarantined.
    Quarantined { reason: String },
    /// It makes no progress.
    NoProgress { version: Version },
}

impl fmt::Display for CopyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Supervisor(error) => error.fmt(f),
            Self::NodeStops => f.write_str("the node is stopping"),
        }
    }
}

impl fmt::Display for Standstill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it is gone"),
            Self::Quarantined { reason } => f.write_str(reason),
            Self::NoProgress { version } => write!(
                f,
                "it runs on its copy, but has not come further than version {version} for {} s; it goes on catching up",
                STANDSTILL_MAX.as_secs()
            ),
        }
    }
}

impl std::error::Error for RebuildError {}

impl fmt::Display for RebuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Underway => f.write_str("it is being rebuilt already"),
            Self::NotOurs => f.write_str("its server was not started by this node"),
            Self::NoDonor => f.write_str("no other replica is up that could be copied"),
            Self::Failed(failure) => failure.fmt(f),
            Self::Stuck(standstill) => standstill.fmt(f),
        }
    }
}

/// The outcome of a resync.
#[derive(Clone, Debug)]
pub(crate) struct ResyncSummary {
    /// The name of the donor, or empty if there was none.
    pub(crate) donor: String,
    /// The bytes that were copied.
    pub(crate) bytes: u64,
    /// The version at which the replica joined.
    pub(crate) version: Version,
}

/// Rebuilds a replica. Returns when it has all that was durable when its server ran again.
pub(crate) async fn run(leader: Arc<Leader>, replica: ReplicaId) -> Result<ResyncSummary, RebuildError> {
    if let Some(version) = revive(&leader, replica).await {
        return Ok(ResyncSummary { donor: String::new(), bytes: 0, version });
    }
    let seat = &leader.seats[replica];
    let errands = seat.supervisor.get().ok_or(RebuildError::NotOurs)?;
    let slowest = donors(&leader, replica).map(|donor| donor.applied).min().ok_or(RebuildError::NoDonor)?;
    if let Some(before) = leader.set_stage(replica, Some(ResyncStage::LeavingService)) {
        leader.set_stage(replica, Some(before));
        return Err(RebuildError::Underway);
    }
    let underway = Underway { leader: Arc::clone(&leader), replica };
    leader.retention.keep_from(replica, slowest);
    // After a restart a replica that does not know which records it lacks must not serve on half a copy.
    let lasting = if leader.kind.knows_lacking_records() {
        QuarantineDuration::UntilRestart
    } else {
        QuarantineDuration::UntilRebuilt
    };
    leader.quarantine(replica, "it is being rebuilt", lasting);
    let mut copied = copy(&leader, replica, errands).await;
    for _ in 0..DONORS_MAX {
        // Another donor may do.
        if !matches!(copied, Err(Copying::Abandoned(_))) || donors(&leader, replica).next().is_none() {
            break;
        }
        copied = copy(&leader, replica, errands).await;
    }
    let (donor, bytes) = match copied {
        Ok(copied) => copied,
        Err(Copying::Failed(reason) | Copying::Abandoned(reason)) => {
            let said = format!("its rebuild failed: {reason}");
            leader.quarantine(replica, &said, lasting);
            return Err(RebuildError::Failed(reason));
        }
        Err(Copying::NotBegun(error)) => return Err(error),
    };
    let target = leader.view.durable();
    leader.set_stage(replica, Some(ResyncStage::CatchingUp { target }));
    leader.rebuilt(replica);
    let version = caught_up(&leader, replica, target).await.map_err(RebuildError::Stuck)?;
    drop(underway);
    tracing::info!(replica = %seat.name, %donor, bytes, %version, "the replica was rebuilt");
    Ok(ResyncSummary { donor, bytes, version })
}

/// Why a copy was not made.
enum Copying {
    NotBegun(RebuildError),
    /// The donor went down.
    Abandoned(CopyFailure),
    Failed(CopyFailure),
}

/// Has the server take the data of a donor. Returns the donor's name and the number of bytes.
async fn copy(
    leader: &Leader,
    replica: ReplicaId,
    errands: &mpsc::Sender<SupervisorOrder>,
) -> Result<(String, u64), Copying> {
    let donor = donor(leader, replica).await.map_err(Copying::NotBegun)?;
    let seat = &leader.seats[donor];
    let transfer = Arc::new(Transfer::default());
    leader.set_stage(
        replica,
        Some(ResyncStage::Copying { donor: seat.name.clone(), transfer: Arc::clone(&transfer) }),
    );
    let (done, outcome) = oneshot::channel();
    let errand = SupervisorOrder::Replace(Replacement {
        source: CopySource::Server {
            donor: seat.address.clone(),
            superuser: leader.database.served.superuser.clone(),
        },
        transfer: Arc::clone(&transfer),
        done,
    });
    let ended = match errands.send(errand).await {
        Ok(()) => unless_donor_is_lost(leader, donor, &transfer, outcome)
            .await
            .map_or(Err(CopyFailure::NodeStops), |ended| ended.map_err(CopyFailure::Supervisor)),
        Err(_) => Err(CopyFailure::NodeStops),
    };
    match ended {
        Ok(()) => Ok((seat.name.clone(), transfer.bytes().0)),
        Err(reason) if transfer.is_abandoned() => {
            tracing::warn!(replica = %leader.seats[replica].name, donor = %seat.name, %reason, "the copy was abandoned");
            Err(Copying::Abandoned(reason))
        }
        Err(reason) => Err(Copying::Failed(reason)),
    }
}

/// Waits for the outcome of a copy, and abandons it when the donor is down. A donor that hangs would never end it.
pub(crate) async fn unless_donor_is_lost<T>(
    leader: &Leader,
    donor: ReplicaId,
    transfer: &Transfer,
    outcome: impl Future<Output = T>,
) -> T {
    let mut outcome = pin!(outcome);
    if let Some(done) = leader.unless_given_up(donor, outcome.as_mut()).await {
        return done;
    }
    transfer.abandon();
    outcome.await
}

/// If no other replica is up, tries replicas again that could not apply a record. Returns the present version of
/// `replica` if it serves again.
pub(crate) async fn revive(leader: &Leader, replica: ReplicaId) -> Option<Version> {
    if donors(leader, replica).next().is_some() {
        return None;
    }
    let mut own = None;
    for tried in leader.try_again() {
        match caught_up(leader, tried, leader.view.durable()).await {
            Ok(version) if tried == replica => own = Some(version),
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(replica = %leader.seats[tried].name, %error, "the replica was tried again in vain");
            }
        }
    }
    own
}

/// Ends the rebuild when dropped, even if the client that waited for it has gone.
pub(crate) struct Underway {
    /// The node.
    pub(crate) leader: Arc<Leader>,
    /// The replica that is rebuilt.
    pub(crate) replica: ReplicaId,
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.leader.end_rebuild(self.replica);
    }
}

/// The replicas that are up and hold all that this one holds.
pub(crate) fn donors(leader: &Leader, replica: ReplicaId) -> impl Iterator<Item = ReplicaStatus> {
    let able = able_donors(leader.replicas(), replica, |id| leader.core.holdings(id));
    able.into_iter()
}

fn able_donors(
    mut replicas: Vec<ReplicaStatus>,
    target: ReplicaId,
    holdings: impl Fn(ReplicaId) -> Holdings,
) -> Vec<ReplicaStatus> {
    let wanted = holdings(target);
    replicas.retain(|other| {
        other.state == State::Up && other.replica != target && holdings(other.replica).cover(&wanted)
    });
    replicas
}

/// Chooses the donor, once the replica itself is no longer the anchor. The anchor has the most to do, so it is the last
/// choice. Among the others it is the replica with the least to do.
pub(crate) async fn donor(leader: &Leader, replica: ReplicaId) -> Result<ReplicaId, RebuildError> {
    let deadline = Instant::now() + LEAVE_MAX;
    while leader.view.anchor() == replica && leader.kind.needs_anchor() {
        if Instant::now() > deadline {
            return Err(RebuildError::NoDonor);
        }
        tokio::time::sleep(LOOK).await;
    }
    let best = donors(leader, replica)
        .min_by_key(|r| (r.replica == leader.view.anchor(), r.expected_wait_us, r.replica));
    best.map(|donor| donor.replica).ok_or(RebuildError::NoDonor)
}

/// Waits until the replica has this version, for as long as it makes progress.
pub(crate) async fn caught_up(
    leader: &Leader,
    replica: ReplicaId,
    target: Version,
) -> Result<Version, Standstill> {
    let (mut seen, mut moved) = (Version::ZERO, Instant::now());
    loop {
        let status = leader.replicas().into_iter().find(|status| status.replica == replica);
        let Some(status) = status else { return Err(Standstill::Gone) };
        match status.state {
            State::Up if status.applied >= target => return Ok(status.applied),
            State::Up if status.applied > seen => (seen, moved) = (status.applied, Instant::now()),
            State::Quarantined | State::Absent => {
                let reason = leader.quarantined().remove(&replica).unwrap_or_default();
                return Err(Standstill::Quarantined { reason });
            }
            State::Up | State::Down => {}
        }
        if moved.elapsed() > STANDSTILL_MAX {
            return Err(Standstill::NoProgress { version: seen });
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use cluster::Cluster;
    use cluster::event::Event;
    use cluster::ids::{DatabaseId, Epoch, Incarnation};
    use cluster::placement::{Copies, Placement, ReplicaSet};
    use cluster::protocols::onecopy::ONECOPY;
    use cluster::protocols::rows;
    use cluster::time::Time;

    use super::*;

    /// Three replicas, of which the first two are up. Only replica 0 holds table 1, and only 0 and 2 hold table 2.
    fn cluster() -> Cluster {
        let mut placement = Placement::full(3);
        let zero = ReplicaSet::first(1);
        for (number, holders) in [(1, zero), (2, zero.with(ReplicaId(2)))] {
            placement.restrict(DatabaseId::FIRST.table(number), Copies::Whole(holders));
        }
        let options = rows::Options {
            choices: ONECOPY,
            replicas: 3,
            anchor: ReplicaId(0),
            placement,
            epoch: Epoch(1),
            last: Version::ZERO,
            schema: Version::ZERO,
            refresh_pause_us: rows::REFRESH_PAUSE_US,
            keys_max: rows::KEYS_MAX,
            refresh_versions_max: rows::REFRESH_VERSIONS_MAX,
            rules: rows::Rules::default(),
        };
        let mut cluster = Cluster::new(Box::new(rows::Rows::new(options).unwrap()));
        for replica in [0, 1].map(ReplicaId) {
            let up = Event::ReplicaUp { replica, incarnation: Incarnation(1), applied: Version::ZERO };
            cluster.handle(Time::default(), up, &mut Vec::new());
        }
        cluster
    }

    #[test]
    fn a_donor_is_up_and_holds_all_that_the_target_holds() {
        let cluster = cluster();
        let donors_of = |target| {
            let able = able_donors(cluster.replicas(), ReplicaId(target), |id| cluster.holdings(id));
            able.iter().map(|donor| donor.replica.0).collect::<Vec<_>>()
        };
        assert_eq!(donors_of(0), [0_u16; 0]);
        assert_eq!(donors_of(1), [0]);
        assert_eq!(donors_of(2), [0], "replica 1 lacks table 2");
        assert_eq!(donors_of(3), [0, 1], "a new replica holds what every replica holds");
    }
}
