//! From servers that may be there to a node that serves: the replicas that can come are waited for, the others are not.
//!
//! A replica that is lost (its server does not start, or is another one) does not hold up the others: it is down, with its
//! reason, and comes back as one does that was lost while the node ran. If it is the home of updates, another replica takes
//! its place. The node waits for one that merely does not answer yet, as long as the operator allows.
//!
//! A replica that could not apply a record has everything before it, and the log has the rest. Where no other can serve it is
//! tried again, once: what was in its way may be gone.
//!
//! Invariant: clients are let in when the home of updates has everything that the log has, and the catalogue is known. A
//! replica that lacks something cannot become the home, so the node serves nothing while all that are there do.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::event::Event;
use cluster::ids::ReplicaId;
use cluster::parts::replica::State;
use cluster::protocols::ReplicaStatus;
use tokio::time::Instant;

use super::error::{AbsentReplica, NodeError};
use crate::coordinator::{Coordinator, Obstacle, QuarantineDuration};
use crate::membership::verify;
use crate::terminal::Progress;

/// How long replicas of a cluster that was served before are waited for that do not answer, if the operator does not say.
const PATIENCE: Duration = Duration::from_mins(1);

/// How long a replica may take to tell its schema.
const SCHEMA_PATIENCE: Duration = Duration::from_secs(30);

/// How often the replicas are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How a replica stands at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplicaCondition {
    /// It has everything that the log has.
    Ready,
    /// It is connected, and gets what it lacks.
    Coming,
    /// Nothing is heard of it, or only that it cannot be reached: why.
    Awaited(String),
    /// It will not come before somebody does something about it: why.
    Lost(String),
}

impl ReplicaCondition {
    fn of(coordinator: &Coordinator, status: &ReplicaStatus) -> Self {
        let seat = &coordinator.seats[status.replica];
        match status.state {
            State::Up if status.applied == coordinator.durable() => Self::Ready,
            State::Up => Self::Coming,
            State::Quarantined | State::Absent => {
                Self::Lost(coordinator.quarantined().remove(&status.replica).unwrap_or_default())
            }
            State::Down => match seat.absence.reason() {
                Some((Obstacle::Lasting, reason)) => Self::Lost(reason),
                _ if seat.is_catching_up.load(Ordering::Relaxed) => Self::Coming,
                Some((Obstacle::Passing, reason)) => Self::Awaited(reason),
                None => Self::Awaited("it did not come up in time".to_owned()),
            },
        }
    }

    /// Why it does not serve.
    fn reason(&self) -> Option<&str> {
        match self {
            Self::Awaited(reason) | Self::Lost(reason) => Some(reason),
            Self::Ready | Self::Coming => None,
        }
    }
}

/// Waits until every replica that can serve stands where the log ends, and one of them is the home of updates.
pub(super) async fn catch_up(
    coordinator: &Coordinator,
    patience: Option<Duration>,
    progress: &Progress,
) -> Result<(), NodeError> {
    let step = progress.step("replicas are brought up to date");
    let begun = Instant::now();
    let patience = patience.or_else(|| (!coordinator.term.is_founding()).then_some(PATIENCE));
    let mut has_tried_again = false;
    let all = loop {
        let all: Vec<(ReplicaStatus, ReplicaCondition)> = coordinator
            .replicas()
            .into_iter()
            .map(|status| (status, ReplicaCondition::of(coordinator, &status)))
            .collect();
        let is_late = patience.is_some_and(|patience| begun.elapsed() > patience);
        let is_over = |standing: &ReplicaCondition| match standing {
            ReplicaCondition::Ready | ReplicaCondition::Lost(_) => true,
            ReplicaCondition::Coming | ReplicaCondition::Awaited(_) => is_late,
        };
        let may_serve = all.iter().any(|(_, standing)| match standing {
            ReplicaCondition::Ready | ReplicaCondition::Coming => true,
            ReplicaCondition::Awaited(_) => !is_late,
            ReplicaCondition::Lost(_) => false,
        });
        // What a replica has that the log has not was acknowledged: one that does not have it must not serve in its place.
        if !may_serve && !has_tried_again && !coordinator.term.log_is_lost() {
            has_tried_again = true;
            let tried = coordinator.try_again();
            for replica in &tried {
                progress.say(format_args!(
                    "{} is tried again, as no other can serve",
                    coordinator.seats[*replica].name
                ));
            }
            if !tried.is_empty() {
                continue;
            }
        }
        if !may_serve || coordinator.term.log_is_lost() {
            return Err(explain(coordinator, &all));
        }
        if has_home(coordinator, &all, is_over) && all.iter().all(|(_, standing)| is_over(standing)) {
            break all;
        }
        tokio::time::sleep(LOOK).await;
    };
    let ready = all.iter().filter(|(_, standing)| *standing == ReplicaCondition::Ready).count();
    step.done(format_args!("{ready} replicas stand at version {}", coordinator.durable()));
    tell(coordinator, &all, progress);
    Ok(())
}

/// Whether the home of updates is there and its catalogue is known. One that does not come loses its place.
fn has_home(
    coordinator: &Coordinator,
    all: &[(ReplicaStatus, ReplicaCondition)],
    is_over: impl Fn(&ReplicaCondition) -> bool,
) -> bool {
    let has_catalogue = coordinator.database.catalogue().generation() == coordinator.durable().0;
    if !coordinator.kind.needs_anchor() {
        return has_catalogue && all.iter().any(|(_, standing)| *standing == ReplicaCondition::Ready);
    }
    let anchor = coordinator.view.anchor();
    let Some((_, standing)) = all.iter().find(|(status, _)| status.replica == anchor) else { return false };
    if standing.reason().is_some() && is_over(standing) {
        coordinator.core.tell(Event::TakeOver { from: anchor });
        return false;
    }
    *standing == ReplicaCondition::Ready && has_catalogue
}

fn explain(coordinator: &Coordinator, all: &[(ReplicaStatus, ReplicaCondition)]) -> NodeError {
    let absent = |(status, condition): &(ReplicaStatus, ReplicaCondition)| AbsentReplica {
        name: coordinator.seats[status.replica].name.clone(),
        reason: condition.reason().unwrap_or_default().to_owned(),
    };
    NodeError::NoReplica(all.iter().map(absent).collect())
}

fn tell(coordinator: &Coordinator, all: &[(ReplicaStatus, ReplicaCondition)], progress: &Progress) {
    for (status, standing) in all {
        let name = &coordinator.seats[status.replica].name;
        match standing {
            ReplicaCondition::Ready => {}
            ReplicaCondition::Coming => {
                progress.say(format_args!("{name} is still brought up to date; the others serve"));
            }
            _ if status.state == State::Quarantined => {
                progress
                    .say(format_args!("{name} is quarantined: {}", standing.reason().unwrap_or_default()));
            }
            ReplicaCondition::Awaited(reason) => {
                progress.say(format_args!(
                    "{name} is down: {reason}; the others serve, and it follows when it is back"
                ));
            }
            ReplicaCondition::Lost(reason) => {
                progress.say(format_args!("{name} is down: {reason}; the others serve"));
            }
        }
    }
    for seat in coordinator.seats.iter() {
        progress.say(format_args!("{} listens on {}:{}", seat.name, seat.host, seat.port));
    }
}

/// A replica whose schema is not that of the home serves nothing: somebody has changed it behind our back. Nor does one
/// whose schema cannot be read.
pub(super) async fn check_schemas(coordinator: &Coordinator, progress: &Progress) -> Result<(), NodeError> {
    let deadline = Instant::now() + SCHEMA_PATIENCE;
    let mut schemas: BTreeMap<ReplicaId, BTreeMap<String, String>> = BTreeMap::new();
    let shut_out = |replica: ReplicaId, reason: String| {
        progress.say(format_args!("{} is quarantined: {reason}", coordinator.seats[replica].name));
        coordinator.quarantine(replica, &reason, QuarantineDuration::UntilRestart);
    };
    loop {
        let up: Vec<ReplicaId> = coordinator
            .replicas()
            .iter()
            .filter(|status| status.state == State::Up)
            .map(|s| s.replica)
            .collect();
        for replica in up.iter().filter(|replica| !schemas.contains_key(replica)).copied().collect::<Vec<_>>()
        {
            match verify::schema(coordinator, replica).await {
                Ok(schema) => drop(schemas.insert(replica, schema)),
                // A server that is lost is found to be so by its agent.
                Err(error) if error.is_of_the_connection() && Instant::now() < deadline => {}
                Err(error) => shut_out(replica, format!("its schema cannot be read: {error}")),
            }
        }
        let is_known = up.iter().all(|replica| schemas.contains_key(replica));
        let reference = if coordinator.kind.needs_anchor() {
            Some(coordinator.view.anchor())
        } else {
            up.first().copied()
        };
        let reference = reference.and_then(|replica| schemas.get(&replica));
        if let Some(home) = reference.filter(|_| is_known) {
            for replica in up {
                let kinds = differing(home, &schemas[&replica]);
                if !kinds.is_empty() {
                    let kinds = kinds.join(", ");
                    shut_out(
                        replica,
                        format!("its schema is not that of the home: {kinds}; it must be rebuilt"),
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
