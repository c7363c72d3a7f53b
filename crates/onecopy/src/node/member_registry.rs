//! The list of members of `onecopy serve`, while the node runs.
//!
//! Onecopy neither creates nor stops these servers. A server can join if it is a copy of a member (`pg_basebackup`,
//! or a former member) that the log can bring up to date. Its data says whether it is. An empty server can join, too,
//! and gets an initial copy ([`crate::membership::initial_copy`]). A server with other data is refused. A server that
//! leaves keeps its data and the guards, so that clients cannot write to it by mistake. Only a rebuild removes them.
//!
//! Invariant: a server is a member once, regardless of the names that reach it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::ReplicaId;
use cluster::placement::REPLICAS_MAX;
use tokio::sync::mpsc;

use crate::backend::{BackendError, OwnConnection};
use crate::config::{Replica, address_of};
use crate::coordinator::requests::{Data, InvitationError, Invited, Invitee, MemberRequest, RequestError};
use crate::coordinator::{Leader, ReplicaAddress};
use crate::membership::adoption::Places;
use crate::membership::cluster_file;
use crate::membership::cluster_file::{ClusterFileError, Member, Membership};
use crate::membership::initial_copy;
use crate::membership::initial_copy::ServerCondition;
use crate::membership::reach::reach;
use crate::node::NodeError;
use crate::replica::agent::applied_set::AppliedSet;

use super::add_replica_error::AddReplicaError;

/// Requests that can wait.
const REQUESTS: usize = 4;
/// Identifies a server and its run. Copies share the first value; a restart changes the second.
const RUN: &str = "SELECT system_identifier, pg_postmaster_start_time()::text FROM pg_control_system()";

/// The list, and the servers that are about to join it.
pub(super) struct MemberRegistry {
    leader: Arc<Leader>,
    membership: Membership,
    members: BTreeMap<ReplicaId, Replica>,
    invited: BTreeMap<ReplicaId, (Member, Replica)>,
    /// Servers that were members earlier in this run of the node.
    former: BTreeMap<ReplicaId, (Member, Replica)>,
    requests: mpsc::Receiver<MemberRequest>,
}

impl MemberRegistry {
    /// The members of a node that was just opened.
    pub(super) fn open(
        leader: &Arc<Leader>,
        membership: Membership,
        places: Places,
    ) -> Result<Self, NodeError> {
        let (registry, requests) = mpsc::channel(REQUESTS);
        leader.registry.set(registry).map_err(|_| NodeError::Twice("the list of members was made"))?;
        let (members, invited, former) = (places.into_iter().collect(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { leader: Arc::clone(leader), membership, members, invited, former, requests })
    }

    /// Carries out requests until the task is dropped. The client that asked may have gone by the end.
    pub(super) async fn run(&mut self) {
        while let Some(request) = self.requests.recv().await {
            match request {
                MemberRequest::Invite { invitee, invited } => {
                    let answer = self.invite(invitee).await;
                    let _ = invited.send(answer);
                }
                MemberRequest::Furnish { replica, done, .. } => {
                    let _ = done.send(self.admit(replica).await);
                }
                MemberRequest::Strike { replica, done } => {
                    let _ = done.send(self.strike(replica).await);
                }
                MemberRequest::Dismiss { done, .. } => {
                    let _ = done.send(Ok(()));
                }
            }
        }
        std::future::pending::<()>().await;
    }

    async fn invite(&mut self, invitee: Invitee) -> Result<Invited, InvitationError> {
        let number = (0..REPLICAS_MAX)
            .find(|number| self.leader.seats.is_free(ReplicaId(*number)))
            .ok_or_else(|| InvitationError::rejected(AddReplicaError::NoNumber))?;
        let (member, newcomer, data) = match invitee {
            Invitee::Made => {
                return Err(InvitationError::Unsupported {
                    what: "`onecopy serve` makes no servers",
                    instead: "ADD REPLICA 'postgresql://host:port' names one that is there.",
                });
            }
            Invitee::At(url) => self.at(number, url).await.map_err(InvitationError::rejected)?,
            Invitee::Former(replica) => {
                self.again(number, replica).await.map_err(InvitationError::rejected)?
            }
        };
        let replica = ReplicaId(number);
        let place = ReplicaAddress::of(replica, &newcomer);
        self.invited.insert(replica, (member, newcomer));
        Ok(Invited { place, data })
    }

    async fn at(&self, number: u16, url: String) -> Result<(Member, Replica, Data), AddReplicaError> {
        let served = &self.leader.database.served;
        let address =
            address_of(&url, &served.database, &served.superuser).map_err(AddReplicaError::Address)?;
        if let Some(twin) = self.members.values().find(|member| member.address == address) {
            return Err(AddReplicaError::IsMember { name: twin.name.clone() });
        }
        let is_taken = |name: &String| self.members.values().any(|member| member.name == *name);
        let named = (u32::from(number) + 1..).map(|number| format!("replica-{number}"));
        let name = named.into_iter().find(|name| !is_taken(name)).unwrap_or_default();
        let newcomer = Replica { name, address };
        let data = self.look_at(&newcomer, ReplicaId(number)).await?;
        let member = Member { number, name: newcomer.name.clone(), url: Some(url) };
        Ok((member, newcomer, data))
    }

    /// A former member under its former name. It was inspected before it left.
    async fn again(
        &self,
        number: u16,
        former: ReplicaId,
    ) -> Result<(Member, Replica, Data), AddReplicaError> {
        let known = self.former.get(&former).cloned();
        let (member, server) = known.ok_or(AddReplicaError::NotFormer)?;
        initial_copy::prepare(&self.leader).await?;
        let data = Data::Filled { server: server.clone(), is_former: true };
        Ok((Member { number, ..member }, server, data))
    }

    /// Whether the server is a copy of a member that can be brought up to date, or empty, and not a member itself.
    async fn look_at(&self, newcomer: &Replica, replica: ReplicaId) -> Result<Data, AddReplicaError> {
        let address = || newcomer.address.to_string();
        let mut found = match initial_copy::standing(&self.leader.database.served, newcomer).await? {
            ServerCondition::Member(found) => *found,
            ServerCondition::Empty => {
                initial_copy::prepare(&self.leader).await?;
                return Ok(Data::Filled { server: newcomer.clone(), is_former: false });
            }
            ServerCondition::Full(data) => {
                return Err(AddReplicaError::ForeignData { address: address(), data });
            }
        };
        let expected = self.leader.term.cluster_id.to_string();
        if let Some(found) = found.cluster.take_if(|id| *id != expected) {
            return Err(AddReplicaError::OtherCluster { address: address(), found, expected });
        }
        let unreadable = |source: BackendError| AddReplicaError::Unreadable { address: address(), source };
        let applied = AppliedSet::at(&mut found.connection, &self.leader.local.seal)
            .read()
            .await
            .map_err(unreadable)?;
        let judged = self.leader.judge(applied, self.leader.core.holdings(replica)).await;
        judged.map_err(|source| AddReplicaError::Outdated { address: address(), source })?;
        let run = run(&mut found.connection).await.map_err(unreadable)?;
        for member in self.members.values() {
            // A member that cannot be reached is down, so it is not this server.
            let Ok(mut other) = reach(&self.leader.database.served, member).await else { continue };
            if self::run(&mut other.connection).await.is_ok_and(|other| other == run) {
                return Err(AddReplicaError::IsMember { name: member.name.clone() });
            }
        }
        Ok(Data::Brought)
    }

    async fn admit(&mut self, replica: ReplicaId) -> Result<(), RequestError> {
        let (member, newcomer) = self.invited.remove(&replica).ok_or(RequestError::NotInvited)?;
        let changed = self.membership.with(member);
        self.keep(&changed).await?;
        self.membership = changed;
        self.members.insert(replica, newcomer);
        Ok(())
    }

    async fn keep(&self, changed: &Membership) -> Result<(), RequestError> {
        match cluster_file::keep(&self.leader.term.register, changed).await {
            Err(ClusterFileError::Register(error)) => Err(RequestError::Register(error)),
            kept => kept.map_err(RequestError::failed),
        }
    }

    async fn strike(&mut self, replica: ReplicaId) -> Result<(), RequestError> {
        let member = self.members.get(&replica).ok_or(RequestError::NotAMember)?;
        let written = self.membership.members().into_iter().find(|written| written.name == member.name);
        let changed = self.membership.without(&member.name);
        self.keep(&changed).await?;
        self.membership = changed;
        let member = self.members.remove(&replica);
        if let (Some(written), Some(member)) = (written, member) {
            self.former.insert(replica, (written, member));
        }
        Ok(())
    }
}

async fn run(connection: &mut OwnConnection) -> Result<Vec<Option<String>>, BackendError> {
    let rows = connection.query(RUN).await?;
    rows.into_iter().next().ok_or(BackendError::Protocol("a server gives no account of itself"))
}
