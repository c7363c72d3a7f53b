//! Parks a replica, and wakes it.
//!
//! Parking drains the replica as DRAIN does, so an anchor hands its role over first. When nothing is open there, the
//! agent makes the applied records durable and ends, the server is stopped, and the register says so
//! ([`crate::coordinator::parking`]). If anything fails before that, the replica serves again.
//!
//! Waking removes that entry, starts the server, and lets the agent catch up from the log as after any absence. The
//! replica stays drained until it has every version that was durable when its server ran. If the log no longer has what
//! it lacks, a server of ours gets the data of another replica instead.
//!
//! Invariant: a replica is parked only while another one serves everything that it holds.
//!
//! Non-goal: servers that Onecopy does not run. Parking ends the connections to them, and the operator may stop them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::protocols::ReplicaStatus;
use commitlog::RegisterError;
use tokio::sync::oneshot;

use crate::coordinator::parking::ParkingState;
use crate::coordinator::requests::{RequestError, SupervisorOrder};
use crate::coordinator::{AgentOrder, Leader};
use crate::membership::member_error::MemberError;
use crate::membership::members;
use crate::membership::members::{EMPTY_MAX, NotEmpty};
use crate::membership::resync;
use crate::membership::resync::{RebuildError, ResyncSummary, Standstill};

/// How long an agent may take to make its records durable.
const DURABLE_MAX: Duration = Duration::from_mins(1);

/// Why a replica was not parked or woken.
#[derive(Debug)]
pub(crate) enum ParkError {
    /// Another replica is being parked or woken.
    Busy,
    /// The replica is parked already.
    IsParked,
    /// The replica is not parked.
    NotParked,
    /// The replica is not up, so what it has is not known.
    NotUp,
    /// The replica is being rebuilt, or is joining.
    Underway,
    /// No other replica serves that holds all that this one holds.
    NoOther,
    /// Fewer replicas than the lower bound would serve.
    BelowLeast { least: u16 },
    /// It could not be drained.
    NotDrained(MemberError),
    /// Transactions stayed open there. The replica serves again.
    InUse { users: usize },
    /// The replica was lost while it was parked.
    Lost,
    /// That it is parked, or not any more, cannot be written.
    Unwritten(RegisterError),
    /// Its server did not start. It is a member, and its server is tried again.
    NotStarted(RequestError),
    /// It is a member, and does not catch up.
    Stuck(Standstill),
    /// The log no longer has what it lacks, and it could not be rebuilt.
    NotRebuilt(RebuildError),
}

impl fmt::Display for ParkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("another replica is being parked or woken"),
            Self::IsParked => f.write_str("it is parked"),
            Self::NotParked => f.write_str("it is not parked"),
            Self::NotUp => f.write_str("it is not up"),
            Self::Underway => f.write_str("it is being given data just now"),
            Self::NoOther => f.write_str("no other replica is up that serves all that it holds"),
            Self::BelowLeast { least } => {
                write!(f, "fewer than {least} replicas would serve, the lower bound of elastic.replicas")
            }
            Self::NotDrained(error) => error.fmt(f),
            Self::InUse { users } => {
                let patience_s = EMPTY_MAX.as_secs();
                write!(f, "{users} sessions were still in a transaction there after {patience_s} s")
            }
            Self::Lost => f.write_str("it was lost meanwhile"),
            Self::Unwritten(error) => {
                write!(f, "whether it is parked cannot be written: {error}")
            }
            Self::NotStarted(error) => error.fmt(f),
            Self::Stuck(Standstill::NoProgress { version }) => {
                write!(f, "its server does not run, or it comes no further than version {version}")
            }
            Self::Stuck(standstill) => standstill.fmt(f),
            Self::NotRebuilt(error) => {
                write!(f, "the log no longer has what it lacks, and {error}")
            }
        }
    }
}

impl std::error::Error for ParkError {}

impl From<NotEmpty> for ParkError {
    fn from(error: NotEmpty) -> Self {
        match error {
            NotEmpty::InUse { users } => Self::InUse { users },
            NotEmpty::Lost => Self::Lost,
        }
    }
}

/// A replica was woken.
#[derive(Clone, Debug)]
pub(crate) struct Woken {
    /// The version at which it serves.
    pub(crate) version: Version,
    /// The name of the replica whose data it got, if the log was not enough.
    pub(crate) donor: Option<String>,
}

/// Parks a replica. Returns the version that is durable there. At least `least` others must go on serving.
pub(crate) async fn park(leader: Arc<Leader>, replica: ReplicaId, least: u16) -> Result<Version, ParkError> {
    let parking = &leader.parking;
    let _turn = parking.change.try_lock().map_err(|_| ParkError::Busy)?;
    let status = may_be_parked(&leader, replica, least)?;
    parking.set(replica, ParkingState::Parking);
    let parked = drain_and_stop(&leader, replica).await;
    if let Ok(version) = &parked {
        tracing::warn!(replica = %leader.seats[replica].name, %version, "the replica is parked");
    } else {
        parking.set(replica, ParkingState::Awake);
        if !status.is_drained {
            leader.drain(replica, false);
        }
    }
    parked
}

/// Checks that the others can do without the replica.
fn may_be_parked(leader: &Leader, replica: ReplicaId, least: u16) -> Result<ReplicaStatus, ParkError> {
    if leader.parking.state(replica).is_parked() {
        return Err(ParkError::IsParked);
    }
    if leader.stage(replica).is_some() {
        return Err(ParkError::Underway);
    }
    let status = status(leader, replica).filter(|status| status.state == State::Up);
    let status = status.ok_or(ParkError::NotUp)?;
    if !resync::donors(leader, replica).any(|other| !other.is_drained) {
        return Err(ParkError::NoOther);
    }
    let serves = |other: &ReplicaStatus| other.state == State::Up && !other.is_drained;
    let serving = leader.replicas().iter().filter(|other| other.replica != replica && serves(other)).count();
    // A replica that is drained already does not serve, so parking it takes nothing away.
    if !status.is_drained && serving < usize::from(least) {
        return Err(ParkError::BelowLeast { least });
    }
    Ok(status)
}

async fn drain_and_stop(leader: &Leader, replica: ReplicaId) -> Result<Version, ParkError> {
    members::drain(leader, replica).await.map_err(ParkError::NotDrained)?;
    members::await_empty(leader, replica).await?;
    let seat = &leader.seats[replica];
    let (done, durable) = oneshot::channel();
    seat.order(AgentOrder::Park { done });
    let durable = tokio::time::timeout(DURABLE_MAX, durable).await;
    let Ok(Ok(durable)) = durable else { return Err(ParkError::Lost) };
    if let Some(supervisor) = seat.supervisor.get() {
        let (done, stopped) = oneshot::channel();
        // Without a supervisor the node stops, and the server with it.
        supervisor.send(SupervisorOrder::Park { done }).await.map_err(|_| ParkError::Lost)?;
        stopped.await.map_err(|_| ParkError::Lost)?;
    }
    if let Err(error) = leader.parking.park(replica, &seat.name, durable).await {
        if let Err(error) = start(leader, replica).await {
            tracing::warn!(replica = %seat.name, %error, "the server of a replica that was not parked does not start");
        }
        return Err(ParkError::Unwritten(error));
    }
    Ok(durable)
}

/// Wakes a parked replica. Returns when it has all that was durable when its server ran, and serves.
pub(crate) async fn wake(leader: Arc<Leader>, replica: ReplicaId) -> Result<Woken, ParkError> {
    let parking = &leader.parking;
    let _turn = parking.change.try_lock().map_err(|_| ParkError::Busy)?;
    let ParkingState::Parked { durable } = parking.state(replica) else { return Err(ParkError::NotParked) };
    let seat = &leader.seats[replica];
    parking.lift(replica, &seat.name, ParkingState::Waking).await.map_err(ParkError::Unwritten)?;
    let woken = catch_up(&leader, replica, durable).await;
    // Also after an error it is an ordinary member, which serves when the core finds it fresh enough.
    parking.set(replica, ParkingState::Awake);
    leader.drain(replica, false);
    if let Ok(Woken { version, donor }) = &woken {
        let donor = donor.as_deref().unwrap_or_default();
        tracing::warn!(replica = %seat.name, %version, donor, "the replica is awake");
    }
    woken
}

async fn catch_up(leader: &Arc<Leader>, replica: ReplicaId, durable: Version) -> Result<Woken, ParkError> {
    let is_ours = leader.seats[replica].supervisor.get().is_some();
    if is_ours && leader.is_left_behind(durable) {
        return rebuild(leader, replica).await;
    }
    start(leader, replica).await?;
    match resync::caught_up(leader, replica, leader.view.durable()).await {
        Ok(version) => Ok(Woken { version, donor: None }),
        // The log was trimmed while the server started.
        Err(Standstill::Quarantined { .. }) if is_ours && leader.is_left_behind(durable) => {
            rebuild(leader, replica).await
        }
        Err(standstill) => Err(ParkError::Stuck(standstill)),
    }
}

/// Starts the server and its agent.
async fn start(leader: &Leader, replica: ReplicaId) -> Result<(), ParkError> {
    let seat = &leader.seats[replica];
    let mut started = Ok(());
    if let Some(supervisor) = seat.supervisor.get() {
        let (done, answer) = oneshot::channel();
        let gone = || ParkError::NotStarted(RequestError::NoSupervisor);
        supervisor.send(SupervisorOrder::Wake { done }).await.map_err(|_| gone())?;
        started = answer.await.map_err(|_| gone())?.map_err(ParkError::NotStarted);
    }
    seat.order(AgentOrder::Wake);
    started
}

async fn rebuild(leader: &Arc<Leader>, replica: ReplicaId) -> Result<Woken, ParkError> {
    leader.seats[replica].order(AgentOrder::Wake);
    match resync::run(Arc::clone(leader), replica).await {
        Ok(ResyncSummary { donor, version, .. }) => Ok(Woken { version, donor: Some(donor) }),
        Err(error) => {
            // Its server runs like that of any other member that has to be rebuilt.
            if let Err(error) = start(leader, replica).await {
                tracing::warn!(replica = %leader.seats[replica].name, %error, "its server does not start");
            }
            Err(ParkError::NotRebuilt(error))
        }
    }
}

fn status(leader: &Leader, replica: ReplicaId) -> Option<ReplicaStatus> {
    leader.replicas().into_iter().find(|status| status.replica == replica)
}
