//! Conducts a node among the others: feeds the machine of take-over, and passes on what crosses the links.
//!
//! It has a thread of its own, so that beats are in time whatever the servers and the log are doing. The machine
//! ([`cluster::nodes::term`]) decides who leads; the office ([`super::office`]) does the leading and the following. Between them
//! go [`Order`]s and [`News`].
//!
//! ```text
//! links  --Parcel-->  conductor  --Order: Lead, Serve, StepDown, Joined, Admit-->  office
//! chair  --Answer-->             <--News: Opened, Serving, Lost---------------
//! admin sessions  <--Outgoing, Incoming-->  (commands for other nodes)
//! ```
//!
//! Invariant: a message of an attempt to join reaches only the two ends of that attempt ([`super::parcel`]).

mod dispatching;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ids::{Epoch, NodeId};
use cluster::nodes::term::{Input, Output, Term, Why};
use cluster::time::Time;
use commitlog::{Claim, LogEngine};
use peers::{LinkId, PeerEvent, PeerEvents, Peers};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::board::Board;
use super::desk::{Answer, Desk, time_of};
use super::dispatches::Dispatches;
use super::links::Links;
use super::orders::{News, Order};
use super::parcel::{self, JoinId, Parcel};
use crate::coordinator::dispatch::Outgoing;
use crate::coordinator::following::NodeEnd;
use crate::coordinator::node_link::{QUEUE_MAX, ToLeader, ToNode};

/// A quarter of a beat.
const TICK: Duration = Duration::from_millis(25);

/// The leader that is followed.
struct Followed {
    leader: NodeId,
    epoch: Epoch,
    join: JoinId,
    /// Takes what the leader says, once this node has joined.
    news: Option<mpsc::Sender<ToNode>>,
}

/// A node that has joined the term of this one.
struct Crew {
    join: JoinId,
    events: mpsc::Sender<ToLeader>,
}

/// The queue from one end of an attempt has ended, or its link takes nothing.
struct Ended {
    node: NodeId,
    join: JoinId,
}

/// What has ended, on its way from the tasks that notice it.
struct Ends {
    tell: mpsc::Sender<Ended>,
    /// `None` while the conductor runs.
    told: Option<mpsc::Receiver<Ended>>,
}

/// An attempt to join, and the link of its messages.
#[derive(Clone, Copy)]
struct Attempt {
    node: NodeId,
    link: LinkId,
    join: JoinId,
}

/// The queues that the conductor reads.
pub(super) struct Queues {
    pub(super) events: PeerEvents<Parcel>,
    pub(super) answers: mpsc::Receiver<Answer>,
    pub(super) news: mpsc::Receiver<News>,
    /// What admin sessions of this process have for other nodes.
    pub(super) outgoing: mpsc::Receiver<Outgoing>,
}

/// The queues that it fills.
pub(super) struct Outputs {
    pub(super) office: mpsc::Sender<Order>,
    /// The other end of [`Queues::outgoing`].
    pub(super) replies: mpsc::Sender<Outgoing>,
}

/// The conductor of one node.
pub(super) struct Conductor {
    began: Instant,
    term: Term,
    desk: Desk,
    peers: Arc<Peers<Parcel>>,
    links: Links,
    followed: Option<Followed>,
    joins: JoinId,
    crews: BTreeMap<NodeId, Crew>,
    /// The term in which nodes can join.
    serving: Option<Epoch>,
    /// The claim of the own term.
    claim: Option<Claim>,
    /// The log of the own term.
    log: Option<Arc<dyn LogEngine>>,
    board: Board,
    dispatches: Dispatches,
    office: mpsc::Sender<Order>,
    ends: Ends,
}

impl Conductor {
    pub(super) fn new(
        began: Instant,
        term: Term,
        desk: Desk,
        peers: Peers<Parcel>,
        outputs: Outputs,
        board: Board,
    ) -> Self {
        let Outputs { office, replies } = outputs;
        let (tell, told) = mpsc::channel(QUEUE_MAX);
        Self {
            began,
            term,
            desk,
            peers: Arc::new(peers),
            links: Links::default(),
            followed: None,
            joins: JoinId::default(),
            crews: BTreeMap::new(),
            serving: None,
            claim: None,
            log: None,
            board,
            dispatches: Dispatches::new(replies),
            office,
            ends: Ends { tell, told: Some(told) },
        }
    }

    /// Conducts until the node stops, then closes the links.
    pub(super) async fn run(mut self, queues: Queues) {
        let Queues { mut events, mut answers, mut news, mut outgoing } = queues;
        let Some(mut ends) = self.ends.told.take() else { return };
        let mut ticks = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.tick(),
                Some(event) = events.recv() => self.peer(event),
                Some(answer) = answers.recv() => self.answer(answer),
                Some(end) = ends.recv() => self.end(&end),
                Some(message) = outgoing.recv() => self.outgoing(message),
                said = news.recv() => match said {
                    Some(News::Stop) | None => break,
                    Some(said) => self.news(said),
                },
            }
        }
        self.peers.stop().await;
    }

    fn now(&self) -> Time {
        time_of(Instant::now(), self.began)
    }

    fn tick(&mut self) {
        // Each append confirms the term, too.
        if let Some(at) = self.log.as_ref().and_then(|log| log.confirmed_at()) {
            self.hear(Input::Confirmed { sent: time_of(at, self.began), is_ours: Some(true) });
        }
        self.hear(Input::Tick);
        let followed = self.followed.as_ref().map(|followed| (followed.leader, followed.epoch));
        let leader = self.term.leads().map(|epoch| (self.board.own, epoch)).or(followed);
        self.board.show(leader, &self.links);
    }

    fn answer(&mut self, answer: Answer) {
        let (input, claim) = self.desk.take(answer);
        if claim.is_some() {
            self.claim = claim;
        }
        self.hear(input);
    }

    fn news(&mut self, news: News) {
        match news {
            News::Opened(epoch, log) if self.term.leads() == Some(epoch) => {
                self.log = Some(log);
                self.hear(Input::Opened);
            }
            News::Serving(epoch) if self.term.leads() == Some(epoch) => {
                self.serving = Some(epoch);
                // Nodes answer a beat, so they need not wait for the next one.
                self.tell_others(&Parcel::Beat { epoch, unconfirmed_us: 0 });
            }
            News::Lost(epoch) if self.term.leads() == Some(epoch) => {
                self.hear(Input::Confirmed { sent: self.now(), is_ours: Some(false) });
            }
            News::Cancel { node, pid, secret } => self.send(node, &Parcel::Cancel { pid, secret }),
            // The term ended meanwhile, or the conductor is about to.
            News::Opened(..) | News::Serving(_) | News::Lost(_) | News::Stop => {}
        }
    }

    /// Gives the machine an input, and does what it says.
    fn hear(&mut self, input: Input) {
        for output in self.term.handle(self.now(), input) {
            self.carry_out(output);
        }
    }

    fn carry_out(&mut self, output: Output) {
        if let Some((to, parcel)) = parcel::parcel(&output) {
            match to {
                Some(node) => self.send(node, &parcel),
                None => self.tell_others(&parcel),
            }
            if matches!(parcel, Parcel::Beat { .. }) {
                self.break_deaf_links();
            }
            return;
        }
        match output {
            Output::ReadChair { sent } => self.desk.read(sent),
            Output::Claim { sent, expected, epoch } => {
                self.desk.claim(sent, expected, Epoch(epoch.0.saturating_sub(1)));
            }
            Output::Confirm { sent } => {
                if let Some(claim) = self.claim.clone() {
                    self.desk.confirm(sent, claim);
                }
            }
            Output::Lead { epoch } => self.lead(epoch),
            Output::Serve { .. } => self.order(Order::Serve),
            Output::Follow { leader, epoch } => self.follow(leader, epoch),
            Output::Leave => {
                tracing::warn!("the leader is not heard any more");
                self.leave();
                self.order(Order::Unled);
            }
            Output::StepDown(why) => self.step_down(why),
            Output::Beat { .. } | Output::Ask { .. } | Output::Vote { .. } | Output::Yield { .. } => {}
        }
    }

    fn lead(&mut self, epoch: Epoch) {
        self.leave();
        match self.claim.clone().filter(|claim| claim.epoch == epoch) {
            Some(claim) => {
                tracing::warn!(epoch = epoch.0, "this node has the lead");
                self.order(Order::Lead(claim));
            }
            None => self.hear(Input::Confirmed { sent: self.now(), is_ours: Some(false) }),
        }
    }

    fn step_down(&mut self, why: Why) {
        match why {
            Why::Replaced => tracing::warn!("another node has taken the lead"),
            Why::Unconfirmed => {
                tracing::warn!("etcd does not confirm that this node leads, so it leads no more");
            }
            Why::HandedOver => tracing::warn!("this node hands the lead over"),
        }
        (self.log, self.claim, self.serving) = (None, None, None);
        for (node, crew) in std::mem::take(&mut self.crews) {
            self.send(node, &Parcel::Bye { join: crew.join });
        }
        self.order(Order::StepDown);
    }

    fn follow(&mut self, leader: NodeId, epoch: Epoch) {
        self.leave();
        let name = self.name(leader);
        tracing::warn!(epoch = epoch.0, leader = name, "this node follows");
        self.joins.0 += 1;
        self.followed = Some(Followed { leader, epoch, join: self.joins, news: None });
        self.order(Order::Follow(name));
        self.greet();
    }

    /// Asks to join the leader, unless that has happened.
    fn greet(&self) {
        if let Some(Followed { leader, epoch, join, news: None }) = &self.followed {
            self.send(*leader, &Parcel::Hello { epoch: *epoch, join: *join });
        }
    }

    /// The attempt to join a leader is over, or this node leaves it.
    fn leave(&mut self) {
        if let Some(Followed { leader, join, .. }) = self.followed.take() {
            self.send(leader, &Parcel::Bye { join });
            let name = self.name(leader);
            self.dispatches.leave(leader, &name);
        }
    }

    /// The same leader has to be joined anew.
    fn join_anew(&mut self) {
        self.joins.0 += 1;
        if let Some(followed) = &mut self.followed {
            (followed.join, followed.news) = (self.joins, None);
        }
    }

    fn peer(&mut self, event: PeerEvent<Parcel>) {
        match event {
            PeerEvent::Up { node, link, .. } => {
                tracing::info!(node = self.name(node), "linked");
                self.links.up(node, link);
                self.greet();
            }
            PeerEvent::Down { node, link, reason } => {
                tracing::info!(node = self.name(node), %reason, "the link is gone");
                self.links.down(node, link);
                self.crews.remove(&node);
                let name = self.name(node);
                self.dispatches.unlink(node, &name);
                if self.followed.as_ref().is_some_and(|followed| followed.leader == node) {
                    self.join_anew();
                }
                self.hear(Input::Unlinked(node));
            }
            PeerEvent::Message { node, message, .. } => self.message(node, message),
        }
    }

    fn message(&mut self, node: NodeId, message: Parcel) {
        self.links.hear(node);
        if let Some(input) = parcel::input(node, &message) {
            self.hear(input);
            if matches!(input, Input::Beat { .. }) {
                self.send(node, &Parcel::Heard);
                self.greet();
            }
            return;
        }
        match message {
            Parcel::Hello { epoch, join } if self.serving == Some(epoch) => self.admit(node, join),
            Parcel::Hello { epoch, .. } if self.term.leads() == Some(epoch) => self.hear(Input::Joined(node)),
            Parcel::Welcome { join } => self.welcome(node, join),
            Parcel::Bye { join } => {
                if self.crews.get(&node).is_some_and(|crew| crew.join == join) {
                    self.crews.remove(&node);
                }
                if self.followed.as_ref().is_some_and(|to| (to.leader, to.join) == (node, join)) {
                    self.join_anew();
                }
            }
            Parcel::ToLeader { join, message } => {
                let crew = self.crews.get(&node).filter(|crew| crew.join == join);
                if crew.is_some_and(|crew| crew.events.try_send(message).is_err()) {
                    self.end(&Ended { node, join });
                }
            }
            Parcel::ToNode { join, message } => {
                let followed = self.followed.as_ref().filter(|to| (to.leader, to.join) == (node, join));
                let news = followed.and_then(|followed| followed.news.as_ref());
                if news.is_some_and(|news| news.try_send(message).is_err()) {
                    self.end(&Ended { node, join });
                }
            }
            Parcel::Cancel { pid, secret } => self.order(Order::Cancel { pid, secret }),
            Parcel::Dispatch { .. } | Parcel::Part { .. } | Parcel::More { .. } | Parcel::Forget { .. } => {
                self.hear_dispatch(node, message);
            }
            Parcel::Heard
            | Parcel::Hello { .. }
            | Parcel::Beat { .. }
            | Parcel::Ask { .. }
            | Parcel::Vote { .. }
            | Parcel::Yield { .. } => {}
        }
    }

    /// A node joins the term of this one.
    fn admit(&mut self, node: NodeId, join: JoinId) {
        if self.crews.get(&node).is_some_and(|crew| crew.join >= join) {
            return;
        }
        let Some(link) = self.links.get(node) else { return };
        let (events, said) = mpsc::channel(QUEUE_MAX);
        let (queue, told) = mpsc::channel(QUEUE_MAX);
        // With the former crew's sender its link ends at the office, before this one is admitted there.
        self.crews.insert(node, Crew { join, events });
        self.send(node, &Parcel::Welcome { join });
        let wrap = move |message| Parcel::ToNode { join, message };
        self.pump(told, Attempt { node, link, join }, wrap);
        self.order(Order::Admit { node, queue, events: said });
    }

    /// The leader takes what sessions of this node say.
    fn welcome(&mut self, node: NodeId, join: JoinId) {
        let Some(link) = self.links.get(node) else { return };
        let Some(followed) = self.followed.as_mut().filter(|to| (to.leader, to.join) == (node, join)) else {
            return;
        };
        let (out, said) = mpsc::channel(QUEUE_MAX);
        let (news, told) = mpsc::channel(QUEUE_MAX);
        followed.news = Some(news);
        let wrap = move |message| Parcel::ToLeader { join, message };
        self.pump(said, Attempt { node, link, join }, wrap);
        self.order(Order::Joined(NodeEnd { out, news: told }));
    }

    /// Sends what a queue gives over a link, until either ends.
    fn pump<M: Send + 'static>(
        &self,
        mut queue: mpsc::Receiver<M>,
        to: Attempt,
        wrap: impl Fn(M) -> Parcel + Send + 'static,
    ) {
        let Attempt { node, link, join } = to;
        let (peers, ended) = (Arc::clone(&self.peers), self.ends.tell.clone());
        tokio::spawn(async move {
            while let Some(message) = queue.recv().await {
                if let Err(error) = peers.send(node, link, &wrap(message)) {
                    tracing::warn!(%error, "what sessions say does not reach the other node");
                    break;
                }
            }
            // If the conductor has gone, so have its crews.
            let _ = ended.send(Ended { node, join }).await;
        });
    }

    /// One end of an attempt to join takes nothing more, so the attempt is over.
    fn end(&mut self, Ended { node, join }: &Ended) {
        let is_crew = self.crews.get(node).is_some_and(|crew| crew.join == *join);
        let is_followed = self.followed.as_ref().is_some_and(|to| (to.leader, to.join) == (*node, *join));
        if is_crew {
            self.crews.remove(node);
        }
        if is_crew || is_followed {
            self.send(*node, &Parcel::Bye { join: *join });
        }
        if is_followed {
            self.join_anew();
        }
    }

    fn tell_others(&self, parcel: &Parcel) {
        self.links.nodes().for_each(|node| self.send(node, parcel));
    }

    /// A beat has gone out.
    fn break_deaf_links(&mut self) {
        for (node, link) in self.links.beat() {
            tracing::warn!(node = self.name(node), "beats are not answered, so the link is broken");
            self.peers.break_link(node, link);
        }
    }

    /// What cannot be sent is as if it were lost with the link; the machine says it again.
    fn send(&self, node: NodeId, parcel: &Parcel) {
        let Some(link) = self.links.get(node) else { return };
        if let Err(error) = self.peers.send(node, link, parcel) {
            tracing::debug!(%error, node = self.name(node), "not sent");
        }
    }

    fn order(&self, order: Order) {
        // Without an office the node is about to stop.
        if let Err(TrySendError::Full(_)) = self.office.try_send(order) {
            tracing::error!("the office does not take its orders");
        }
    }

    fn name(&self, node: NodeId) -> String {
        self.peers.nodes().get(usize::from(node.0)).cloned().unwrap_or_else(|| "of no name".to_owned())
    }
}
