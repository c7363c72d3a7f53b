//! The start of a node: waits for the replicas that can come up, and serves without the others.
//!
//! A lost replica (its server does not start, or is another one) does not delay the others. It is down, with its
//! reason, and returns like one that was lost at run time. If it is the anchor, another replica takes over. For a
//! replica that merely does not answer yet, the node waits as long as the operator allows.
//!
//! A replica that could not apply a record has all records before it, and the log has the rest. If no other replica
//! can serve, the node retries it once, because the cause may be gone.
//!
//! A parked replica stays parked, and nothing waits for it. If no other replica can serve, it is woken.
//!
//! Invariant: the node admits clients when the anchor has every record of the log and its catalogue is known. A
//! replica that lacks a record cannot become the anchor. So the node serves nothing while all present replicas lack
//! one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::event::Event;
use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use cluster::protocols::ReplicaStatus;
use tokio::time::Instant;

use super::error::{AbsentReplica, NodeError};
use crate::coordinator::{Leader, Obstacle, QuarantineDuration};
use crate::elastic::park;
use crate::membership::verify;
use crate::terminal::Progress;

/// Default time to wait for replicas that do not answer, if the cluster has served before.
const PATIENCE: Duration = Duration::from_mins(1);

/// Time limit for reading a replica's schema.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(30);

/// Interval at which the replicas are checked.
const LOOK: Duration = Duration::from_millis(20);

/// The condition of a replica at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplicaCondition {
    /// It has all records of the log.
    Ready,
    /// It is connected and catching up.
    Coming,
    /// It may still come up. The text is the reason for the delay.
    Awaited(String),
    /// It needs an operator. The text is the reason.
    Lost(String),
    /// It is stopped on purpose.
    Parked,
}

impl ReplicaCondition {
    fn of(leader: &Leader, status: &ReplicaStatus) -> Self {
        let seat = &leader.seats[status.replica];
        if leader.parking.state(status.replica).is_parked() {
            return Self::Parked;
        }
        match status.state {
            State::Up if status.applied == leader.view.durable() => Self::Ready,
            State::Up => Self::Coming,
            State::Quarantined | State::Absent => {
                Self::Lost(leader.quarantined().remove(&status.replica).unwrap_or_default())
            }
            State::Down => match seat.absence.reason() {
                Some((Obstacle::Lasting, reason)) => Self::Lost(reason),
                _ if seat.absence.is_catching_up() => Self::Coming,
                Some((Obstacle::Passing, reason)) => Self::Awaited(reason),
                None => Self::Awaited("the server did not come up in time".to_owned()),
            },
        }
    }

    /// The reason why it does not serve.
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Awaited(reason) | Self::Lost(reason) => Some(reason),
            Self::Parked => Some("it is parked"),
            Self::Ready | Self::Coming => None,
        }
    }
}

/// Waits until every replica that can serve has reached the end of the log, and one of them is the anchor.
pub(super) async fn catch_up(
    leader: &Arc<Leader>,
    patience: Option<Duration>,
    progress: &Progress,
) -> Result<(), NodeError> {
    let step = progress.step("bringing replicas up to date");
    let begun = Instant::now();
    let patience = patience.or_else(|| (!leader.term.is_founding()).then_some(PATIENCE));
    let mut has_tried_again = false;
    let all = loop {
        let all: Vec<(ReplicaStatus, ReplicaCondition)> = leader
            .replicas()
            .into_iter()
            .map(|status| (status, ReplicaCondition::of(leader, &status)))
            .collect();
        let is_late = patience.is_some_and(|patience| begun.elapsed() > patience);
        let is_over = |standing: &ReplicaCondition| match standing {
            ReplicaCondition::Ready | ReplicaCondition::Lost(_) | ReplicaCondition::Parked => true,
            ReplicaCondition::Coming | ReplicaCondition::Awaited(_) => is_late,
        };
        let may_serve = all.iter().any(|(_, standing)| match standing {
            ReplicaCondition::Ready | ReplicaCondition::Coming => true,
            ReplicaCondition::Awaited(_) => !is_late,
            ReplicaCondition::Lost(_) | ReplicaCondition::Parked => false,
        });
        // A replica with a record that the log lacks proves that the record was acknowledged. Another replica without
        // that record must not take its place.
        if !may_serve && !has_tried_again && !leader.term.log_is_lost() {
            has_tried_again = true;
            let woken = wake_parked(leader, progress).await;
            let tried = leader.try_again();
            for replica in &tried {
                progress.say(format_args!(
                    "retrying {}, because no other replica can serve",
                    leader.seats[*replica].name
                ));
            }
            if woken > 0 || !tried.is_empty() {
                continue;
            }
        }
        if !may_serve || leader.term.log_is_lost() {
            return Err(explain(leader, &all));
        }
        if has_home(leader, &all, is_over) && all.iter().all(|(_, standing)| is_over(standing)) {
            break all;
        }
        tokio::time::sleep(LOOK).await;
    };
    let ready = all.iter().filter(|(_, standing)| *standing == ReplicaCondition::Ready).count();
    step.done(format_args!("{ready} replicas are at version {}", leader.view.durable()));
    tell(leader, &all, progress);
    Ok(())
}

/// Wakes parked replicas, because no other replica can serve. Returns how many came up.
async fn wake_parked(leader: &Arc<Leader>, progress: &Progress) -> usize {
    let mut woken = 0;
    for status in leader.replicas() {
        if !leader.parking.state(status.replica).is_parked() {
            continue;
        }
        let name = &leader.seats[status.replica].name;
        progress.say(format_args!("waking {name}, because no other replica can serve"));
        match park::wake(Arc::clone(leader), status.replica).await {
            Ok(_) => woken += 1,
            Err(error) => progress.say(format_args!("{name} cannot be woken: {error}")),
        }
    }
    woken
}

/// Whether the anchor is up and its catalogue is known. An anchor that does not come up is replaced.
fn has_home(
    leader: &Leader,
    all: &[(ReplicaStatus, ReplicaCondition)],
    is_over: impl Fn(&ReplicaCondition) -> bool,
) -> bool {
    let generation = Version(leader.database.catalogue().generation());
    let has_catalogue = !leader.view.is_outdated(generation);
    if !leader.kind.needs_anchor() {
        return has_catalogue && all.iter().any(|(_, standing)| *standing == ReplicaCondition::Ready);
    }
    let anchor = leader.view.anchor();
    let Some((_, standing)) = all.iter().find(|(status, _)| status.replica == anchor) else { return false };
    if standing.reason().is_some() && is_over(standing) {
        leader.core.tell(Event::TakeOver { from: anchor });
        return false;
    }
    *standing == ReplicaCondition::Ready && has_catalogue
}

fn explain(leader: &Leader, all: &[(ReplicaStatus, ReplicaCondition)]) -> NodeError {
    let absent = |(status, condition): &(ReplicaStatus, ReplicaCondition)| AbsentReplica {
        name: leader.seats[status.replica].name.clone(),
        reason: condition.reason().unwrap_or_default().to_owned(),
    };
    NodeError::NoReplica(all.iter().map(absent).collect())
}

fn tell(leader: &Leader, all: &[(ReplicaStatus, ReplicaCondition)], progress: &Progress) {
    for (status, standing) in all {
        let name = &leader.seats[status.replica].name;
        match standing {
            ReplicaCondition::Ready => {}
            ReplicaCondition::Parked => progress.say(format_args!("{name} is parked")),
            ReplicaCondition::Coming => {
                progress.say(format_args!("{name} is still catching up; the others serve"));
            }
            _ if status.state == State::Quarantined => {
                progress
                    .say(format_args!("{name} is quarantined: {}", standing.reason().unwrap_or_default()));
            }
            ReplicaCondition::Awaited(reason) => {
                progress.say(format_args!(
                    "{name} is down: {reason}; the others serve, and it catches up when it is back"
                ));
            }
            ReplicaCondition::Lost(reason) => {
                progress.say(format_args!("{name} is down: {reason}; the others serve"));
            }
        }
    }
    for seat in leader.seats.iter() {
        progress.say(format_args!("{} listens on {}:{}", seat.name, seat.host, seat.port));
    }
}

/// Shuts out replicas whose schema cannot be read or differs from the anchor's. A difference means that a client has
/// changed the schema past Onecopy.
pub(super) async fn check_schemas(leader: &Leader, progress: &Progress) -> Result<(), NodeError> {
    let deadline = Instant::now() + SCHEMA_PATIENCE;
    let mut schemas: BTreeMap<ReplicaId, BTreeMap<String, String>> = BTreeMap::new();
    let shut_out = |replica: ReplicaId, reason: String| {
        progress.say(format_args!("{} is quarantined: {reason}", leader.seats[replica].name));
        leader.quarantine(replica, &reason, QuarantineDuration::UntilRestart);
    };
    loop {
        let up: Vec<ReplicaId> =
            leader.replicas().iter().filter(|status| status.state == State::Up).map(|s| s.replica).collect();
        for replica in up.iter().filter(|replica| !schemas.contains_key(replica)).copied().collect::<Vec<_>>()
        {
            match verify::schema(leader, replica).await {
                Ok(schema) => drop(schemas.insert(replica, schema)),
                // The agent notices a lost server.
                Err(error) if error.is_of_the_connection() && Instant::now() < deadline => {}
                Err(error) => shut_out(replica, format!("cannot read its schema: {error}")),
            }
        }
        let is_known = up.iter().all(|replica| schemas.contains_key(replica));
        let reference =
            if leader.kind.needs_anchor() { Some(leader.view.anchor()) } else { up.first().copied() };
        let reference = reference.and_then(|replica| schemas.get(&replica));
        if let Some(home) = reference.filter(|_| is_known) {
            for replica in up {
                let kinds = differing(home, &schemas[&replica]);
                if !kinds.is_empty() {
                    let kinds = kinds.join(", ");
                    shut_out(
                        replica,
                        format!("its schema differs from the anchor's: {kinds}; it must be rebuilt"),
                    );
                }
            }
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(NodeError::NoSchema);
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn differing(home: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> Vec<String> {
    let kinds = home.iter().filter(|(kind, sum)| other.get(*kind) != Some(*sum));
    kinds.map(|(kind, _)| kind.clone()).collect()
}
