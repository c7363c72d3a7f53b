//! A node that follows a leader: its sessions reach the core over a link.
//!
//! The link carries events and questions to the leader, and brings effects, answers and what the node has to know
//! ([`super::node_link`]). One task at each end takes its messages in turn.
//!
//! Not here: how the messages cross a network.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ClusterId, ReplicaId};
use commitlog::SpillStore;
use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;

use super::core::{Core, News, RemoteCore};
use super::errands::Errands;
use super::etcd_log::timing;
use super::evictions::EvictionsByReplica;
use super::mailboxes::{Mailboxes, OWN_CREW};
use super::node_kind::NodeKind;
use super::node_link::{Backend, Intake, ToLeader, ToNode, ViewChange};
use super::performances::Performances;
use super::replica_address::{MemberSeat, ReplicaAddress};
use super::sequence_allocation::SequenceAllocation;
use super::splits::LastSplits;
use super::view::View;
use super::{Coordinator, MemberState, Seat, Seats};
use crate::config::AddressError;
use crate::database::Database;
use crate::local::LocalState;

/// The pause between two reports of what sessions have placed by themselves.
const REPORT_EVERY: Duration = Duration::from_millis(20);

/// The node's end of a link.
pub(crate) struct NodeEnd {
    pub(crate) out: mpsc::Sender<ToLeader>,
    pub(crate) news: mpsc::Receiver<ToNode>,
}

/// What sessions need from one leader to the next.
pub(crate) struct Following {
    pub(crate) cluster_id: ClusterId,
    /// How the node keeps its replicas equal.
    pub(crate) kind: Arc<dyn NodeKind>,
    /// The members as they are known now. A leader that is joined names them anew.
    pub(crate) members: Vec<ReplicaAddress>,
    /// The home of updates until a leader says otherwise.
    pub(crate) anchor: ReplicaId,
    /// The database that is served.
    pub(crate) database: Arc<Database>,
    /// Where rows go that are too many for records.
    pub(crate) spills: Arc<dyn SpillStore>,
    /// The state of this node.
    pub(crate) local: Arc<LocalState>,
    /// Who was evicted at servers.
    pub(crate) evictions: Arc<EvictionsByReplica>,
    /// What the leader wants this node to do at servers.
    pub(crate) errands: Errands,
    /// How long statements wait for a leader before they are refused.
    pub(crate) patience: Duration,
}

/// A member that this node cannot serve from. The node has to start anew.
#[derive(Debug)]
pub(crate) struct UnknownMember {
    name: String,
    cause: UnknownMemberCause,
}

#[derive(Debug)]
enum UnknownMemberCause {
    /// Its address cannot be used here.
    Address(Box<AddressError>),
    /// Another replica had its number while this node ran.
    NumberTaken,
}

impl fmt::Display for UnknownMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cause } = self;
        match cause {
            UnknownMemberCause::Address(error) => {
                write!(f, "the address of {name} cannot be used here: {error}")
            }
            UnknownMemberCause::NumberTaken => {
                write!(f, "{name} has the number of a former replica; the node has to start anew")
            }
        }
    }
}

impl std::error::Error for UnknownMember {}

impl Coordinator {
    /// The coordinator of sessions that reach the core over a link.
    pub(crate) fn following(parts: Following) -> Arc<Self> {
        let Following {
            cluster_id,
            kind,
            members,
            anchor,
            database,
            spills,
            local,
            evictions,
            errands,
            patience,
        } = parts;
        let mailboxes = Arc::new(Mailboxes::of(OWN_CREW));
        let view = Arc::new(View::following(anchor));
        let intake = Intake { has_room: true, refusal: None };
        let news = News { replicas: Vec::new(), placement: None, intake };
        let core = RemoteCore::new(Arc::clone(&view), Arc::clone(&mailboxes), news, errands, patience);
        let seats = members.into_iter().map(|at| Seat::of_session(at, &evictions)).collect();
        Arc::new(Self {
            cluster_id,
            core: Core::There(Box::new(core)),
            view,
            mailboxes,
            // Readers are shown out by the agents of the leader, which have seats of their own.
            seats: Arc::new(Seats::new(seats, Duration::ZERO, evictions)),
            kind,
            performances: Arc::<Performances>::default(),
            database,
            spills,
            sequences: SequenceAllocation::default(),
            deadlock_search: Notify::new(),
            last_splits: LastSplits::default(),
            local,
        })
    }

    /// Takes what the leader tells, until the link ends. [`Self::lose_link`] has to follow.
    pub(crate) async fn follow(&self, link: NodeEnd) -> Result<(), UnknownMember> {
        match &self.core {
            Core::There(core) => {
                core.join(link.out);
                core.tell_held(self.local.sessions.backends_with_state());
                // What waited for another leader has it.
                self.local.sessions.pauses.end_any_hold();
                self.hear_all(core, link.news).await
            }
            Core::Here(_) => Ok(()),
        }
    }

    /// The node stops: it places no more reads by itself, and the leader does not wait for it.
    pub(crate) fn end_lease(&self) {
        if let Core::There(core) = &self.core {
            core.end_lease();
        }
    }

    /// The link to the leader has ended.
    pub(crate) fn lose_link(&self) {
        if let Core::There(core) = &self.core {
            core.lose_link();
        }
        if let Some(link_end) = Arc::clone(&self.kind).scheduler_link() {
            link_end.link_lost();
        }
    }

    async fn hear_all(
        &self,
        core: &RemoteCore,
        mut news: mpsc::Receiver<ToNode>,
    ) -> Result<(), UnknownMember> {
        let mut reports = tokio::time::interval(REPORT_EVERY);
        let mut requests = tokio::time::interval(Duration::from_micros(timing().beat_us));
        for interval in [&mut reports, &mut requests] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut told = Vec::new();
        loop {
            tokio::select! {
                message = news.recv() => match message {
                    Some(message) => self.hear(core, message)?,
                    None => return Ok(()),
                },
                _ = requests.tick() => core.ask_for_lease(),
                _ = reports.tick() => told = core.tell_outside(&told),
                () = self.deadlock_search.notified() => core.search_deadlocks(),
            }
        }
    }

    fn hear(&self, core: &RemoteCore, message: ToNode) -> Result<(), UnknownMember> {
        match message {
            ToNode::Heard(heard) => core.hear(heard),
            ToNode::Answer { number, answer } => core.answered(number, answer),
            ToNode::View(change) => {
                let moves = matches!(change, ViewChange::Anchor(_));
                core.show(change);
                if moves {
                    self.forget_oids();
                }
            }
            ToNode::Run { replica, incarnation, proof } => {
                self.seats[replica].run.begin(incarnation, proof);
                self.forget_oids();
            }
            ToNode::GaveUp { replica } => {
                core.withdraw(replica);
                self.seats[replica].give_up();
            }
            ToNode::Members(members) => self.take_members(&members)?,
            ToNode::Joined(member) => self.take_member(&member)?,
            ToNode::Left { replica } => self.leave(replica),
            ToNode::Leaving { anchor } => self.note_leaving(anchor),
            ToNode::Drained { replica, is_drained } => {
                if is_drained {
                    core.withdraw(replica);
                }
                self.note_drain(replica, is_drained);
            }
            ToNode::Granted { sent, granted, last_ddl } => core.granted(sent, granted, last_ddl),
            ToNode::Assigned { version, may_change_schema } => core.assigned(version, may_change_schema),
            ToNode::Offers(offers) => core.take_offers(&offers),
            ToNode::Schema { version } => core.errands.read_catalogue(version),
            ToNode::GiveWay(obstruction) => core.errands.give_way(obstruction),
            ToNode::Evicted { replica, pid } => self.seats[replica].evictions.note(pid),
            ToNode::TellBackends { round } => core.tell_backends(round, self.backends()),
            ToNode::Scheduler(message) => {
                if let Some(link_end) = Arc::clone(&self.kind).scheduler_link() {
                    link_end.hear_leader(*message);
                }
            }
        }
        Ok(())
    }

    /// Where sessions of this node are.
    fn backends(&self) -> Vec<Backend> {
        let all = self.local.sessions.backends().into_iter();
        all.map(|((replica, pid), session)| Backend { replica, pid, session }).collect()
    }

    /// These are the members, and no others.
    fn take_members(&self, members: &[MemberSeat]) -> Result<(), UnknownMember> {
        for member in members {
            self.take_member(member)?;
        }
        let is_known = |replica| members.iter().any(|member| member.replica == replica);
        let gone = self.seats.iter().map(|seat| seat.replica).filter(|replica| !is_known(*replica));
        for replica in gone.collect::<Vec<_>>() {
            self.leave(replica);
        }
        Ok(())
    }

    fn take_member(&self, member: &MemberSeat) -> Result<(), UnknownMember> {
        let unknown = |cause| UnknownMember { name: member.name.clone(), cause };
        let address = member.address(&self.database.served);
        let at = address.map_err(|source| unknown(UnknownMemberCause::Address(Box::new(source))))?;
        if !self.seats.is_free(member.replica) {
            let seat = &self.seats[member.replica];
            let is_same = seat.member_state() != MemberState::Left && seat.address == at.address;
            return if is_same { Ok(()) } else { Err(unknown(UnknownMemberCause::NumberTaken)) };
        }
        self.seats.take(Seat::of_session(at, &self.seats.evictions));
        self.forget_oids();
        Ok(())
    }

    fn leave(&self, replica: ReplicaId) {
        self.seats[replica].leave();
        self.seats[replica].give_up();
    }
}
