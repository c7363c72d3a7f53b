//! Changes the members of the cluster while it works: a replica joins, leaves, or is drained.
//!
//! A new replica gets its data as a rebuilt one does ([`super::resync`]): a copy of another replica, and the rest from
//! the log. The applied set of the copy says which version it has. The log is kept for it from the version at which the
//! donor stood before the copy began, so writes never stand still. The replica is a member at once, in the state of one
//! without data. A restart counts it as a member only when its data is complete.
//!
//! A replica leaves in four steps: drain it, strike it from the list that a restart reads, drop its state, stop its
//! server. After a crash in between it is a member or not, never half of one: the log and the other replicas have its
//! data.
//!
//! The anchor hands its role over before it is drained. That ends sessions that hold state there, such as a temporary
//! table. So the drain first waits for them, up to `drain_patience`. Then it waits a moment for open transactions.
//! Those that are still open are rolled back (40001), as if the anchor was lost.
//!
//! A server that Onecopy does not run comes with a copy of its own, or is empty and gets an initial copy
//! ([`super::initial_copy`]). Before it serves, Onecopy compares it with the anchor, row by row. If it differs it does
//! not join.
//!
//! The registry that takes the [`MemberRequest`]s knows the source of servers, and keeps the list.
//!
//! Invariant: the list on disk names a replica only while it has, or had, all data up to some version of the log.

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use cluster::parts::replica::State;
use cluster::placement::LastHolder;
use cluster::protocols::ReplicaStatus;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::check;
use super::initial_copy;
use super::initial_copy::ServerCondition;
use super::member_error::{MemberError, MemberFailure};
use super::resync;
use super::resync::{ResyncSummary, Underway};
use crate::config::Replica;
use crate::coordinator::QuarantineDuration;
use crate::coordinator::requests::{Data, Invited, Invitee, MemberRequest, RequestError};
use crate::coordinator::resync_progress::{ResyncStage, Transfer};
use crate::coordinator::{AgentOrder, Leader};
use crate::replica::driver::ReplicaDriver;

/// How long transactions may take to end before the anchor hands its role over.
const QUIET_MAX: Duration = Duration::from_secs(5);
/// How long sessions that hold state may take to end before that.
const LAST_WORDS_MAX: Duration = Duration::from_secs(10);
/// How long open transactions at a drained replica may take to end.
pub(crate) const EMPTY_MAX: Duration = Duration::from_mins(1);
/// How long other nodes may take to say which reads they have placed there. A node that is slower loses these, and runs them again.
const NODES_ANSWER_MAX: Duration = Duration::from_secs(2);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// A replica that joins.
#[derive(Debug)]
pub(crate) struct JoiningReplica {
    /// Its number.
    pub(crate) replica: ReplicaId,
    orders: mpsc::Receiver<AgentOrder>,
    data: Data,
}

/// Makes a member without data. [`furnish`] has to follow.
pub(crate) async fn invite(leader: &Leader, invitee: Invitee) -> Result<JoiningReplica, MemberError> {
    if !leader.replicas().iter().any(|status| status.state == State::Up) {
        return Err(MemberError::NoOther);
    }
    let (invited, answer) = oneshot::channel();
    let invitation = ask(leader, MemberRequest::Invite { invitee, invited }, answer).await?;
    let Invited { place, data } = invitation?;
    let replica = place.replica;
    Ok(JoiningReplica { replica, orders: leader.join(&place), data })
}

/// Gives a new member its data. Returns when it has all that was durable when its server ran. If the copy fails, the
/// replica is no longer a member.
pub(crate) async fn furnish(
    leader: Arc<Leader>,
    newcomer: JoiningReplica,
) -> Result<ResyncSummary, MemberError> {
    let JoiningReplica { replica, orders, data } = newcomer;
    let underway = Underway { leader: Arc::clone(&leader), replica };
    let transfer = Arc::new(Transfer::default());
    let donor = match give_data(&leader, replica, &data, &transfer).await {
        Ok(donor) => donor,
        Err(error) => {
            leader.leave(replica).await;
            return Err(error);
        }
    };
    let target = leader.view.durable();
    leader.set_stage(replica, Some(ResyncStage::CatchingUp { target }));
    let is_ours = matches!(data, Data::Copied);
    if !is_ours {
        leader.drain(replica, true);
    }
    leader.drivers.spawn(ReplicaDriver::run(Arc::clone(&leader), replica, orders, Duration::ZERO));
    leader.rebuilt(replica);
    if !is_ours {
        not_compared(&leader, replica);
    }
    let caught_up = resync::caught_up(&leader, replica, target).await;
    let version = caught_up.map_err(MemberError::Stuck)?;
    if !is_ours {
        compare(&leader, replica).await?;
    }
    drop(underway);
    let (bytes, _) = transfer.bytes();
    tracing::warn!(replica = %leader.seats[replica].name, %donor, bytes, %version, "a replica has joined");
    // If no bytes came, the server brought its own data and had no donor.
    let donor = if bytes > 0 { donor } else { String::new() };
    Ok(ResyncSummary { donor, bytes, version })
}

/// Keeps a new replica from serving until it is compared, even if the node restarts.
fn not_compared(leader: &Leader, replica: ReplicaId) {
    let name = &leader.seats[replica].name;
    let reason = "the node has ended before it was compared with the others; it must be rebuilt";
    if let Err(error) = leader.retention.quarantines.keep(name, reason, QuarantineDuration::UntilRebuilt) {
        tracing::warn!(replica = %name, %error, "if the node ends now, it will serve without having been compared");
    }
}

/// Compares a new replica with the anchor. If they agree it serves from now on. Otherwise it is no longer a member.
async fn compare(leader: &Arc<Leader>, replica: ReplicaId) -> Result<(), MemberError> {
    leader.set_stage(replica, Some(ResyncStage::Comparing));
    let found = check::compare_with_anchor(leader, replica).await;
    let failure = match found {
        Ok(None) => {
            let name = &leader.seats[replica].name;
            if let Err(error) = leader.retention.quarantines.lift(name) {
                tracing::warn!(replica = %name, %error, "after a restart it will begin in quarantine");
            }
            leader.drain(replica, false);
            return Ok(());
        }
        Ok(Some(difference)) => MemberFailure::Different(difference),
        Err(refusal) => MemberFailure::NotCompared(refusal),
    };
    let (done, answer) = oneshot::channel();
    let struck = ask(leader, MemberRequest::Strike { replica, done }, answer).await?;
    leader.leave(replica).await;
    struck?;
    Err(failure.into())
}

/// Copies a donor's data to the replica. Returns the donor's name.
async fn give_data(
    leader: &Leader,
    replica: ReplicaId,
    data: &Data,
    transfer: &Arc<Transfer>,
) -> Result<String, MemberError> {
    let slowest = resync::donors(leader, replica).map(|donor| donor.applied).min();
    leader.retention.keep_from(replica, slowest.ok_or(MemberError::NoOther)?);
    let donor = resync::donor(leader, replica).await.map_err(|_| MemberError::NoOther)?;
    let seat = &leader.seats[donor];
    let stage = ResyncStage::Copying { donor: seat.name.clone(), transfer: Arc::clone(transfer) };
    leader.set_stage(replica, Some(stage));
    if let Data::Filled { server, is_former } = data {
        let shares = leader.shares(replica);
        initial_copy::run(leader, donor, server, &shares, *is_former, transfer).await?;
    }
    let (done, answer) = oneshot::channel();
    let request = MemberRequest::Furnish { replica, donor, transfer: Arc::clone(transfer), done };
    let furnished =
        resync::unless_donor_is_lost(leader, donor, transfer, ask(leader, request, answer)).await?;
    furnished?;
    Ok(seat.name.clone())
}

/// Removes a member. The inner error is about the rest of its server.
pub(crate) async fn dismiss(
    leader: &Arc<Leader>,
    replica: ReplicaId,
) -> Result<Result<(), RequestError>, MemberError> {
    if leader.stage(replica).is_some() {
        return Err(MemberError::Underway);
    }
    if leader.registry.get().is_none() {
        return Err(UNSUPPORTED);
    }
    if let Some(LastHolder { table, part, .. }) = leader.core.last_held(replica) {
        let part = part.map_or_else(String::new, |part| format!("part {part} of "));
        let table = format!("{part}table {}", leader.table_name(table));
        return Err(MemberError::LastHolder { table });
    }
    let was_drained = status(leader, replica).is_some_and(|status| status.is_drained);
    drain(leader, replica).await?;
    let (done, answer) = oneshot::channel();
    let struck = ask(leader, MemberRequest::Strike { replica, done }, answer).await;
    if let Err(error) = struck.and_then(|struck| struck.map_err(MemberError::from)) {
        if !was_drained {
            leader.drain(replica, false);
        }
        return Err(error);
    }
    leader.leave(replica).await;
    let (done, answer) = oneshot::channel();
    ask(leader, MemberRequest::Dismiss { replica, done }, answer).await
}

/// Checks, before it leaves, that a member whose server is not ours can be filled anew.
pub(crate) async fn may_be_refilled(leader: &Leader, replica: ReplicaId) -> Result<(), MemberError> {
    if leader.registry.get().is_none() {
        return Err(UNSUPPORTED);
    }
    if resync::donors(leader, replica).next().is_none() {
        return Err(MemberError::NoOther);
    }
    let seat = &leader.seats[replica];
    let server = Replica { name: seat.name.clone(), address: seat.address.clone() };
    // The copy drops its contents, so they must be the cluster's.
    let address = server.address.to_string();
    let foreign = match initial_copy::standing(&leader.database.served, &server).await? {
        ServerCondition::Member(found) if found.cluster == Some(leader.term.cluster_id.to_string()) => None,
        ServerCondition::Empty => None,
        ServerCondition::Member(found) => {
            Some(MemberFailure::OtherCluster { address, cluster: found.cluster.unwrap_or_default() })
        }
        ServerCondition::Full(data) => Some(MemberFailure::ForeignData { address, data }),
    };
    if let Some(foreign) = foreign {
        return Err(foreign.into());
    }
    Ok(initial_copy::prepare(leader).await?)
}

/// Keeps new transactions off a replica. Open ones may still be there.
pub(crate) async fn drain(leader: &Leader, replica: ReplicaId) -> Result<(), MemberError> {
    if status(leader, replica).is_some_and(|status| status.is_drained) {
        return Ok(());
    }
    if leader.view.anchor() == replica {
        await_holders(leader).await;
    }
    let quiet = if leader.view.anchor() == replica { Some(SessionPause::begin(leader).await) } else { None };
    if quiet.is_some() && has_successor(leader, replica) {
        end_holders(leader, replica).await;
    }
    leader.drain(replica, true);
    leader.tell_leaving(None);
    drop(quiet);
    match status(leader, replica) {
        Some(status) if status.is_drained => Ok(()),
        _ => Err(MemberError::NoOther),
    }
}

/// Waits a while for sessions to let go of their state. They hold it on connections to the anchor, and end when it
/// hands its role over.
async fn await_holders(leader: &Leader) {
    let deadline = Instant::now() + leader.local.timeouts.drain;
    while leader.local.sessions.holders() > 0 && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends the sessions that hold state at the anchor, before it hands its role over and its connections are cut. A
/// listener has to receive earlier notifications before that.
async fn end_holders(leader: &Leader, anchor: ReplicaId) {
    leader.tell_leaving(Some(anchor));
    let deadline = Instant::now() + LAST_WORDS_MAX;
    while leader.local.sessions.holders() > 0 && Instant::now() < deadline {
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether another replica can take the place of the anchor.
fn has_successor(leader: &Leader, anchor: ReplicaId) -> bool {
    let can = |status: &ReplicaStatus| {
        let serves = status.state == State::Up && !status.is_drained && !status.is_forgotten;
        status.replica != anchor && serves && leader.core.holdings(status.replica).is_everything()
    };
    leader.replicas().iter().any(can)
}

/// Waits until nothing is open at a drained replica and it is up. A former anchor connects anew first.
pub(crate) async fn await_empty(leader: &Leader, replica: ReplicaId) -> Result<(), NotEmpty> {
    let deadline = Instant::now() + EMPTY_MAX;
    // A node that has answered knows of the drain, and has told of its reads there.
    leader.crews.backends(NODES_ANSWER_MAX).await;
    loop {
        let users = users(leader, replica);
        let is_up = status(leader, replica).is_some_and(|status| status.state == State::Up);
        if users == 0 && is_up {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(if is_up { NotEmpty::InUse { users } } else { NotEmpty::Lost });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Why something is still open at a drained replica.
#[derive(Debug)]
pub(crate) enum NotEmpty {
    /// Sessions have not ended their transactions there in time.
    InUse { users: usize },
    /// It is not up, so what is open there is not known.
    Lost,
}

/// The number of sessions that may still use a drained replica.
pub(crate) fn users(leader: &Leader, replica: ReplicaId) -> usize {
    status(leader, replica).map_or(0, |status| leader.users_of(&status))
}

const UNSUPPORTED: MemberError = MemberError::Unsupported {
    what: "the members cannot be changed here",
    instead: "Stop the node, and make a cluster of other servers.",
};

fn status(leader: &Leader, replica: ReplicaId) -> Option<ReplicaStatus> {
    leader.replicas().into_iter().find(|status| status.replica == replica)
}

async fn ask<T>(
    leader: &Leader,
    request: MemberRequest,
    answer: oneshot::Receiver<T>,
) -> Result<T, MemberError> {
    let registry = leader.registry.get().ok_or(UNSUPPORTED)?;
    let stopping = || MemberError::Failed(MemberFailure::NodeStops);
    registry.send(request).await.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())
}

/// Keeps sessions from beginning any work while it lives. At first it waits for work under way, but not for long.
struct SessionPause<'a> {
    leader: &'a Leader,
    /// A PAUSE was in force before.
    was_paused: bool,
}

impl<'a> SessionPause<'a> {
    async fn begin(leader: &'a Leader) -> Self {
        let quiet = Self { leader, was_paused: leader.local.sessions.pauses.is_by_command() };
        leader.local.sessions.pauses.pause(true);
        let deadline = Instant::now() + QUIET_MAX;
        while leader.local.sessions.busy() > 0 && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
        quiet
    }
}

impl Drop for SessionPause<'_> {
    fn drop(&mut self) {
        if !self.was_paused {
            self.leader.local.sessions.pauses.pause(false);
        }
    }
}
