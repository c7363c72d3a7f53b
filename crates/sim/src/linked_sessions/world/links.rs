//! The links between the sessions of nodes and the leader of a term. Messages of a link keep their order.

use cluster::ids::CrewId;

use super::{Event, Happening, Process, World};
use crate::linked_sessions::Rule;
use crate::linked_sessions::messages::{Parcel, ToLeader, ToNode};
use crate::linked_sessions::node::Output;
use crate::trace::Stage;

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// When the last message arrives.
    last_us: u64,
    /// When the last message has arrived that outlives the break, if it is broken.
    cut_us: Option<u64>,
}

/// A link; its name is the crew of its sessions.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) node: Process,
    pub(super) leader: Process,
    pub(super) term: u64,
    to_leader: Way,
    to_node: Way,
    /// The leader has found out that it has ended.
    has_left: bool,
}

impl World {
    /// A node that has no link connects to the leader that it knows.
    pub(super) fn connect(&mut self, node: Process) {
        let at = &mut self.nodes[node.node];
        let Some((leader, term)) = at.roster.filter(|_| at.sessions.link.is_none()) else { return };
        self.names.crew += 1;
        let crew = CrewId(self.names.crew);
        at.sessions.connect(crew, term);
        let (to_leader, to_node) = (Way::default(), Way::default());
        self.links.insert(crew, Link { node, leader, term, to_leader, to_node, has_left: false });
        self.say(Stage::Recover, || format!("node {} links crew {}", node.node, crew.0));
        let after_us = self.message_us();
        self.enter_at(after_us, leader, Event::Hello(crew));
        if !self.is_alive(leader) {
            self.break_link(crew);
        }
    }

    /// A node wants to join, which it can when its former crew has left.
    pub(super) fn admit(&mut self, leader: Process, crew: CrewId) {
        let Some(link) = self.links.get(&crew).filter(|link| !link.has_left) else { return };
        let (node, term) = (link.node.node, link.term);
        let leads = self.nodes[leader.node].leading.as_mut().filter(|leading| leading.term == term);
        let Some(leading) = leads else { return self.break_link(crew) };
        let is_former = |(other, link): (&CrewId, &Link)| {
            *other < crew && link.node.node == node && leading.has_crew(*other)
        };
        if self.switches.has(Rule::OutcomesWait) && self.links.iter().any(is_former) {
            return self.enter_at(100, leader, Event::Hello(crew));
        }
        leading.join(crew);
        self.leader_goes_on(leader);
    }

    pub(super) fn send(&mut self, crew: CrewId, parcel: Parcel) {
        let now_us = self.agenda.now_us();
        let arrival_us = now_us + self.message_us();
        let Some(link) = self.links.get_mut(&crew) else { return };
        let way = match parcel {
            Parcel::ToLeader(_) => &mut link.to_leader,
            Parcel::ToNode(_) => &mut link.to_node,
        };
        if way.cut_us.is_none() {
            way.last_us = way.last_us.max(arrival_us);
            let after_us = way.last_us - now_us;
            self.agenda.enter(after_us, Happening::Arrives(crew, parcel));
        }
    }

    pub(super) fn arrives(&mut self, crew: CrewId, parcel: Parcel) {
        let now_us = self.agenda.now_us();
        let Some(link) = self.links.get(&crew) else { return };
        let (way, to) = match parcel {
            Parcel::ToLeader(_) => (&link.to_leader, link.leader),
            Parcel::ToNode(_) => (&link.to_node, link.node),
        };
        if way.cut_us.is_none_or(|cut_us| now_us <= cut_us) {
            self.at(to, Event::Parcel(crew, parcel));
        }
    }

    /// A message of a link is read.
    pub(super) fn hear(&mut self, process: Process, crew: CrewId, parcel: Parcel) {
        match parcel {
            Parcel::ToLeader(message) => {
                self.say(Stage::Order, || format!("crew {} says {message:?}", crew.0));
                let term = self.links[&crew].term;
                let leading = self.nodes[process.node].leading.as_mut();
                if let Some(leading) = leading.filter(|leading| leading.term == term) {
                    leading.hear(crew, message);
                    self.leader_goes_on(process);
                }
            }
            Parcel::ToNode(message) => {
                self.counts.outcomes += u64::from(matches!(message, ToNode::Outcome(..)));
                let sessions = &mut self.nodes[process.node].sessions;
                if sessions.link.is_some_and(|link| link.crew == crew) {
                    let mut out = Vec::new();
                    sessions.hear(message.clone(), &mut self.names.backend, self.switches, &mut out);
                    self.say(Stage::Place, || format!("crew {} hears {message:?}", crew.0));
                    self.carry_out(process, out);
                }
            }
        }
    }

    /// What the sessions of a node have to say.
    pub(super) fn carry_out(&mut self, process: Process, out: Vec<Output>) {
        for output in out {
            match output {
                Output::Give(caller, given) => {
                    let after_us = self.message_us();
                    self.agenda.enter(after_us, Happening::Told(caller, given));
                }
                Output::Say(message) => {
                    if let Some(link) = self.nodes[process.node].sessions.link {
                        self.send(link.crew, Parcel::ToLeader(message));
                    }
                }
                Output::Ask(replica, at, command) => self.lane_asks(process, replica, at, command),
                Output::Close(replica, backend) => {
                    let after_us = self.message_us();
                    self.agenda.enter(after_us, Happening::BackendEnds(replica, backend));
                }
            }
        }
    }

    /// A link breaks. Part of what was said arrives, and each end finds out after that.
    pub(super) fn break_link(&mut self, crew: CrewId) {
        let now_us = self.agenda.now_us();
        let cuts = [0; 2].map(|_| self.dice.below(2 * self.plan.message_us + 1));
        let notices = [0; 2].map(|_| self.notice_us());
        let Some(link) = self.links.get_mut(&crew) else { return };
        if link.to_leader.cut_us.is_some() {
            return;
        }
        link.to_leader.cut_us = Some(now_us + cuts[0]);
        link.to_node.cut_us = Some(now_us + cuts[1]);
        let (leader, node) = (link.leader, link.node);
        self.enter_at(notices[0].max(cuts[0] + 1), leader, Event::LinkEnds(crew));
        self.enter_at(notices[1].max(cuts[1] + 1), node, Event::LinkEnds(crew));
    }

    /// An end finds out that its link has ended.
    pub(super) fn link_ends(&mut self, process: Process, crew: CrewId) {
        let Some(link) = self.links.get_mut(&crew) else { return };
        let (is_leader, is_node) = (link.leader == process, link.node == process);
        link.has_left |= is_leader;
        let term = link.term;
        if is_leader
            && let Some(leading) = self.nodes[process.node].leading.as_mut()
            && leading.term == term
        {
            self.trace.say(self.agenda.now_us(), Stage::Fault, || format!("crew {} is lost", crew.0));
            leading.hear(crew, ToLeader::Gone);
            self.leader_goes_on(process);
        }
        if is_node {
            self.lose_link(process, crew);
        }
    }

    /// The sessions of a node lose their link.
    pub(super) fn lose_link(&mut self, process: Process, crew: CrewId) {
        let sessions = &mut self.nodes[process.node].sessions;
        if sessions.link.is_some_and(|link| link.crew == crew) {
            let mut out = Vec::new();
            sessions.lose_link(&mut out);
            self.say(Stage::Fault, || format!("node {} has lost its link {}", process.node, crew.0));
            self.carry_out(process, out);
        }
        self.break_link(crew);
    }

    /// An end that does nothing for long counts as lost.
    pub(super) fn time_out(&mut self, crew: CrewId) {
        let Some(link) = self.links.get(&crew) else { return };
        let is_asleep = |process: Process| self.is_alive(process) && self.nodes[process.node].is_asleep;
        if is_asleep(link.node) || is_asleep(link.leader) {
            self.break_link(crew);
        }
    }
}
