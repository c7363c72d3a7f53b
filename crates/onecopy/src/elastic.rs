//! Replicas that come and go with the load.
//!
//! A replica can be *parked*: it is drained, its server is stopped, and its data is kept ([`park`]). Waking it costs
//! seconds, because it only applies the records that it lacks.
//!
//! With `elastic.replicas = "2..6"`, a task looks at the load of all replicas ([`load`]), asks the policy
//! ([`cluster::parts::elastic`]) and carries its decision out: it wakes a parked replica, parks one, or adds one. A new
//! one is made by `onecopy up` itself, or is provided by the operator's command ([`provision`]). The task counts
//! what the servers cost, too ([`meter`]).
//!
//! Invariant: at each moment one replica at most is being parked or woken. A change that failed is not tried again before
//! a pause, which doubles with each failure.
//!
//! Non-goal: the servers of `onecopy serve`, which the operator starts and stops. A parked one may be stopped, and has to
//! run again before it is woken.

pub(crate) mod load;
mod meter;
pub(crate) mod park;
pub(crate) mod provision;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cluster::ids::ReplicaId;
use cluster::parts::elastic::{Cause, Decision, Elastic, Purpose, Settings};
use cluster::time::Time;
use tokio::time::Instant;

use crate::config::ElasticConfig;
use crate::coordinator::Leader;
use crate::coordinator::elasticity::{Change, Decided, ElasticSettings};
use crate::coordinator::requests::Invitee;
use crate::membership::member_error::MemberError;
use crate::membership::members;
use park::ParkError;
use provision::ProvisionError;

/// `grow_after` is divided into so many periods of measurement.
const PERIODS: u32 = 10;
/// The shortest and the longest period.
const PERIOD_MIN: Duration = Duration::from_millis(100);
const PERIOD_MAX: Duration = Duration::from_secs(5);
/// The pause after the first failed change. Each further failure doubles it.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const FAILED_PAUSE_MAX: Duration = Duration::from_mins(10);

/// Where a server for a new replica comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerSource {
    /// The node makes its servers.
    Node,
    /// The operator's command provides them, if there is one.
    Operator,
}

/// Why a decision was not carried out.
#[derive(Debug)]
enum ChangeError {
    Park(ParkError),
    Member(MemberError),
    Provision(ProvisionError),
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Park(error) => error.fmt(f),
            Self::Member(error) => error.fmt(f),
            Self::Provision(error) => error.fmt(f),
        }
    }
}

/// The settings as the coordinator keeps them.
fn settings(config: ElasticConfig) -> ElasticSettings {
    let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let ElasticConfig { replicas, busy_permille, statements, grow_after, shrink_after, spares, .. } = config;
    let policy = replicas.map(|(least, most)| Settings {
        least,
        most,
        busy_permille,
        grow_after_us: us(grow_after),
        shrink_after_us: us(shrink_after),
        spares,
    });
    let ElasticConfig { price_per_hour, provision, .. } = config;
    ElasticSettings { policy, statements, price_per_hour, provision }
}

/// Counts the cost of the servers and, if the settings say so, lets replicas come and go, until the task is dropped.
pub(crate) async fn run(leader: Arc<Leader>, config: ElasticConfig, source: ServerSource) {
    let settings = settings(config);
    leader.elasticity.set(settings.clone());
    tokio::join!(meter::run(&leader), follow(&leader, &settings, source));
}

/// Lets replicas come and go with the load.
async fn follow(leader: &Arc<Leader>, settings: &ElasticSettings, source: ServerSource) {
    let Some(wishes) = settings.policy else { return };
    let period = (Duration::from_micros(wishes.grow_after_us) / PERIODS).clamp(PERIOD_MIN, PERIOD_MAX);
    let (begun, mut policy, mut pause) = (Instant::now(), Elastic::new(wishes), FAILED_PAUSE);
    loop {
        let samples = load::sample(leader, settings.statements, period).await;
        leader.elasticity.note_loads(&samples);
        if !leader.local.sessions.is_open() {
            continue;
        }
        let now = Time { us: u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX) };
        let (change, replica, cause) = match policy.observe(now, &samples) {
            Decision::Nothing => continue,
            // Nobody provides a server.
            Decision::Provision(..) if !may_provide(settings, source) => continue,
            Decision::Provision(purpose, cause) => (Intent::Provision(purpose), None, cause),
            Decision::Wake(replica, cause) => (Intent::Wake(replica), Some(replica), cause),
            Decision::Park(replica, cause) => (Intent::Park(replica), Some(replica), cause),
        };
        announce(leader, change, replica, cause);
        let changing = Instant::now();
        let changed = carry_out(leader, settings, &wishes, source, change).await;
        let elasticity = &leader.elasticity;
        policy.changed();
        match changed {
            Ok(replica) => {
                pause = FAILED_PAUSE;
                let outcome = format!("done in {:.1} s", changing.elapsed().as_secs_f64());
                elasticity.ended(Some(replica), outcome, false);
            }
            Err(error) => {
                tracing::warn!(change = change.kind().word(), %error, ?pause, "the number of replicas did not change");
                elasticity.ended(None, error.to_string(), true);
                tokio::time::sleep(pause).await;
                pause = FAILED_PAUSE_MAX.min(pause * 2);
            }
        }
    }
}

/// A change that the task carries out.
#[derive(Clone, Copy, Debug)]
enum Intent {
    Wake(ReplicaId),
    Park(ReplicaId),
    Provision(Purpose),
}

impl Intent {
    fn kind(self) -> Change {
        match self {
            Self::Wake(_) => Change::Wake,
            Self::Park(_) => Change::Park,
            Self::Provision(_) => Change::Provision,
        }
    }
}

fn may_provide(settings: &ElasticSettings, source: ServerSource) -> bool {
    source == ServerSource::Node || settings.provision.is_some()
}

fn announce(leader: &Leader, change: Intent, replica: Option<ReplicaId>, cause: Cause) {
    let (change, reason) = (change.kind(), cause.to_string());
    let name = replica.map(|replica| leader.seats[replica].name.as_str()).unwrap_or_default();
    tracing::warn!(change = change.word(), replica = name, reason, "the number of replicas changes");
    let decided = Decided { at: SystemTime::now(), change, replica, reason, outcome: String::new() };
    leader.elasticity.decided(decided);
}

/// Carries a change out. Returns the replica that it was about.
async fn carry_out(
    leader: &Arc<Leader>,
    settings: &ElasticSettings,
    wishes: &Settings,
    source: ServerSource,
    change: Intent,
) -> Result<ReplicaId, ChangeError> {
    let purpose = match change {
        Intent::Wake(replica) => {
            let woken = park::wake(Arc::clone(leader), replica).await;
            return woken.map(|_| replica).map_err(ChangeError::Park);
        }
        Intent::Park(replica) => {
            let parked = park::park(Arc::clone(leader), replica, wishes.least).await;
            return parked.map(|_| replica).map_err(ChangeError::Park);
        }
        Intent::Provision(purpose) => purpose,
    };
    let invitee = match (&settings.provision, source) {
        (Some(command), ServerSource::Operator) => {
            Invitee::At(provision::address(command).await.map_err(ChangeError::Provision)?)
        }
        _ => Invitee::Made,
    };
    let newcomer = members::invite(leader, invitee).await.map_err(ChangeError::Member)?;
    let replica = newcomer.replica;
    members::furnish(Arc::clone(leader), newcomer).await.map_err(ChangeError::Member)?;
    if purpose == Purpose::Spare {
        park::park(Arc::clone(leader), replica, wishes.least).await.map_err(ChangeError::Park)?;
    }
    Ok(replica)
}
