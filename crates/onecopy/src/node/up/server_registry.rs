//! The servers of `onecopy up`, each with its supervisor, and the list of them. Servers can be added and removed
//! while the node runs.
//!
//! One request is carried out at a time, so the list has one writer. A server is entered when its data is complete
//! and before it starts. It is struck out before its data is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::ReplicaId;
use cluster::placement::REPLICAS_MAX;
use pgserver::{Home, Server, ServerError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::backend::Address;
use crate::coordinator::requests::{
    Data, InvitationError, Invited, Invitee, MemberRequest, RequestError, SupervisorOrder,
};
use crate::coordinator::resync_progress::Transfer;
use crate::coordinator::{Leader, ReplicaAddress};
use crate::membership::base_backup;
use crate::membership::supervisor;
use crate::membership::supervisor::SupervisorContext;
use crate::node::NodeError;
use crate::terminal::Progress;

use super::auto_rebuild;

/// Requests that can wait.
const REQUESTS: usize = 4;

/// All servers, each with its supervisor.
pub(super) struct ServerRegistry {
    leader: Arc<Leader>,
    home: Home,
    requests: mpsc::Receiver<MemberRequest>,
    /// Servers that are about to join and have no data yet.
    invited: BTreeMap<ReplicaId, Server>,
    stop: watch::Sender<()>,
    supervisors: JoinSet<()>,
    damaged: mpsc::Sender<ReplicaId>,
    auto_rebuild: JoinHandle<()>,
    progress: Progress,
}

impl ServerRegistry {
    /// Starts supervisors for all servers, also for those that have not started.
    pub(super) fn open(
        leader: &Arc<Leader>,
        home: Home,
        mut failed: BTreeMap<u16, ServerError>,
        progress: &Progress,
    ) -> Result<Self, NodeError> {
        let (registry, requests) = mpsc::channel(REQUESTS);
        let (damaged, queue) = mpsc::channel(REPLICAS_MAX.into());
        leader.registry.set(registry).map_err(|_| NodeError::Twice("the list of members was made"))?;
        let mut server_registry = Self {
            leader: Arc::clone(leader),
            home,
            requests,
            invited: BTreeMap::new(),
            stop: watch::channel(()).0,
            supervisors: JoinSet::new(),
            damaged,
            auto_rebuild: tokio::spawn(auto_rebuild::run(Arc::clone(leader), queue, progress.clone())),
            progress: progress.clone(),
        };
        for server in std::mem::take(&mut server_registry.home.servers) {
            let failure = failed.remove(&server.number());
            server_registry.watch(server, failure)?;
        }
        Ok(server_registry)
    }

    /// Carries out requests until the task is dropped.
    pub(super) async fn run(&mut self) {
        while let Some(request) = self.requests.recv().await {
            match request {
                MemberRequest::Invite { invitee, invited } => {
                    // The requester may have gone. Then nothing has changed.
                    let _ = invited.send(self.invite(&invitee));
                }
                MemberRequest::Furnish { replica, donor, transfer, done } => {
                    let donor = self.leader.seats[donor].address.clone();
                    let furnished = self.furnish(replica, &donor, &transfer).await;
                    let _ = done.send(furnished);
                }
                MemberRequest::Strike { replica, done } => {
                    let _ = done.send(self.home.strike(number(replica)).map_err(RequestError::failed));
                }
                MemberRequest::Dismiss { replica, done } => {
                    let dismissed = self.dismiss(replica).await;
                    let _ = done.send(dismissed);
                }
            }
        }
        std::future::pending::<()>().await;
    }

    /// Stops all servers.
    pub(super) async fn close(self) {
        let Self { mut home, stop, mut supervisors, auto_rebuild, .. } = self;
        auto_rebuild.abort();
        drop(stop);
        while supervisors.join_next().await.is_some() {}
        home.stop().await;
    }

    fn invite(&mut self, invitee: &Invitee) -> Result<Invited, InvitationError> {
        if *invitee != Invitee::Made {
            return Err(InvitationError::Unsupported {
                what: "a server that Onecopy did not make cannot join servers of `onecopy up`",
                instead: "ADD REPLICA without an address makes one more server here; `onecopy serve` serves servers that exist.",
            });
        }
        let is_free = |number: u16| self.leader.seats.is_free(replica(number));
        let further = self.home.further(is_free);
        let mut server = further.map_err(InvitationError::rejected)?;
        server.keep_port();
        let place = place(&server);
        self.invited.insert(place.replica, server);
        Ok(Invited { place, data: Data::Copied })
    }

    async fn furnish(
        &mut self,
        replica: ReplicaId,
        donor: &Address,
        transfer: &Transfer,
    ) -> Result<(), RequestError> {
        let mut server = self.invited.remove(&replica).ok_or(RequestError::NotInvited)?;
        match self.bring_up(&mut server, donor, transfer).await {
            Ok(()) => self.watch(server, None).map_err(RequestError::failed),
            Err(error) => {
                self.give_up(server.number());
                Err(error)
            }
        }
    }

    /// Copies the donor's data to the server, enters it as a member, and starts it.
    async fn bring_up(
        &mut self,
        server: &mut Server,
        donor: &Address,
        transfer: &Transfer,
    ) -> Result<(), RequestError> {
        let copied = base_backup::copy(server, donor, &self.leader.database.served.superuser, transfer).await;
        copied.map_err(RequestError::failed)?;
        server.take_copy().await.map_err(RequestError::failed)?;
        self.home.admit(server.number()).map_err(RequestError::failed)?;
        server.start().await.map_err(RequestError::failed)
    }

    /// Removes what is left of a server that could not be added.
    fn give_up(&mut self, number: u16) {
        let struck = if self.home.members().contains(&number) { self.home.strike(number) } else { Ok(()) };
        if let Err(error) = struck.and_then(|()| self.home.remove(number)) {
            self.progress.say(format_args!("cannot remove the folder of server {number}: {error}"));
        }
    }

    async fn dismiss(&mut self, replica: ReplicaId) -> Result<(), RequestError> {
        let (done, stopped) = oneshot::channel();
        if let Some(errands) = self.leader.seats[replica].supervisor.get() {
            let order = SupervisorOrder::Leave { done };
            errands.send(order).await.map_err(|_| RequestError::NoSupervisor)?;
            stopped.await.map_err(|_| RequestError::NoSupervisor)?;
        }
        self.progress.say(format_args!("{} was stopped and removed", self.leader.seats[replica].name));
        self.home.remove(number(replica)).map_err(RequestError::failed)
    }

    fn watch(&mut self, mut server: Server, failure: Option<ServerError>) -> Result<(), NodeError> {
        server.keep_port();
        let (errands, queue) = supervisor::errands();
        let replica = replica(server.number());
        let seat = &self.leader.seats[replica];
        seat.supervisor
            .set(errands)
            .map_err(|_| NodeError::Twice("the supervisor of a server was started"))?;
        let (leader, damaged) = (Arc::clone(&self.leader), self.damaged.clone());
        let post = SupervisorContext { leader, replica, damaged, progress: self.progress.clone() };
        self.supervisors.spawn(supervisor::run(server, failure, queue, self.stop.subscribe(), post));
        Ok(())
    }
}

/// Folder and port of a server.
pub(super) fn place(server: &Server) -> ReplicaAddress {
    ReplicaAddress {
        replica: replica(server.number()),
        name: server.name.clone(),
        host: server.host.clone(),
        port: server.port,
        address: Address::Unix { socket_dir: server.socket_dir.clone(), port: server.port },
    }
}

/// Servers count from 1, replicas from 0.
fn replica(number: u16) -> ReplicaId {
    ReplicaId(number - 1)
}

fn number(replica: ReplicaId) -> u16 {
    replica.0 + 1
}
