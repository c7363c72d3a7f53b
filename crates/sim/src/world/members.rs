//! Replicas are rebuilt from other replicas, leave, join and are drained.
//!
//! As in the binary, a replica that is rebuilt stays in quarantine until its server runs on the copy. The copy has what
//! the donor had in its WAL when copying ended, and its applied set is read from the copy. If the node crashes during
//! a rebuild, the rebuild is abandoned and the replica keeps its former data. The list of members survives the node.

use cluster::event::Event;
use cluster::ids::ReplicaId;

use super::agent::RETRY_US;
use super::{Happening, World};
use crate::trace::Stage;

/// The members, and the changes of membership under way.
#[derive(Debug)]
pub(super) struct Membership {
    members: Vec<bool>,
    /// Copies being made, and replicas that will join again.
    underway: usize,
}

impl Membership {
    /// Every replica is a member.
    pub(super) fn new(count: usize) -> Self {
        Self { members: vec![true; count], underway: 0 }
    }

    pub(super) fn has(&self, replica: usize) -> bool {
        self.members[replica]
    }

    /// A change begins.
    pub(super) fn begins(&mut self) {
        self.underway += 1;
    }

    /// A change has ended, or was abandoned.
    pub(super) fn ends(&mut self) {
        self.underway -= 1;
    }

    /// Whether every replica is a member and no change is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.underway == 0 && self.members.iter().all(|member| *member)
    }
}

impl World {
    /// A donor: a replica that serves, other than this one.
    fn other(&self, replica: usize) -> Option<usize> {
        let node = self.node.as_ref()?;
        let serves = |other: &usize| {
            let agent = &node.agents[*other];
            let server = &self.servers[*other];
            let is_known = server.is_up() && server.generation == agent.generation && !server.refuses;
            *other != replica && agent.is_serving && !agent.is_quarantined && is_known
        };
        (0..self.servers.len()).find(serves)
    }

    /// Whether the replica can be rebuilt: it is a member, another one serves, and all hold everything.
    fn can_do_without(&mut self, replica: usize) -> bool {
        !self.is_partial && self.is_spare(replica)
    }

    /// Whether another replica serves, so that this one can be out of service.
    pub(super) fn is_spare(&mut self, replica: usize) -> bool {
        self.membership.has(replica) && self.other(replica).is_some() && !self.agent(replica).is_quarantined
    }

    pub(super) fn rebuild(&mut self, replica: usize, for_us: u64) {
        if self.can_do_without(replica) {
            self.silence(replica);
            self.tell(Event::Diverged { replica: ReplicaId(replica as u16) });
            self.copy_later(replica, for_us);
        }
    }

    pub(super) fn leave(&mut self, replica: usize, for_us: u64) {
        if self.can_do_without(replica) {
            self.membership.members[replica] = false;
            self.silence(replica);
            self.tell(Event::Left { replica: ReplicaId(replica as u16) });
            self.agenda.enter(for_us, Happening::Join { replica, for_us });
        }
    }

    /// The core counts it as a member without data and ignores what its server still has.
    pub(super) fn join(&mut self, replica: usize, for_us: u64) {
        if self.node.is_none() {
            self.agenda.enter(RETRY_US, Happening::Join { replica, for_us });
            return;
        }
        self.tell(Event::Joined { replica: ReplicaId(replica as u16) });
        self.copy_later(replica, for_us);
    }

    pub(super) fn drain(&mut self, replica: usize, for_us: u64) {
        if self.node.is_some() && !self.is_partial {
            self.tell(Event::Drained { replica: ReplicaId(replica as u16), is_drained: true });
            let epoch = self.epoch;
            self.agenda.enter(for_us, Happening::Undrain { epoch, replica });
        }
    }

    fn copy_later(&mut self, replica: usize, for_us: u64) {
        self.membership.underway += 1;
        let epoch = self.epoch;
        self.agenda.enter(for_us, Happening::Copied { epoch, replica });
    }

    /// Ends copying. It succeeds if the donor still serves and the same node still runs.
    pub(super) fn copied(&mut self, epoch: u32, replica: usize) {
        if epoch != self.epoch {
            self.membership.underway -= 1;
            if !self.membership.has(replica) {
                self.agenda.enter(RETRY_US, Happening::Join { replica, for_us: RETRY_US });
            }
            return;
        }
        let Some(donor) = self.other(replica).filter(|donor| !self.is_cut(*donor)) else {
            self.agenda.enter(RETRY_US, Happening::Copied { epoch, replica });
            return;
        };
        self.membership.underway -= 1;
        self.membership.members[replica] = true;
        for connection in self.servers[replica].connections() {
            self.notice_loss(connection);
        }
        let [server, donor_server] =
            self.servers.get_disjoint_mut([replica, donor]).expect("a replica is not its own donor");
        server.take_copy(donor_server);
        let believed = (!self.rules.copy_is_read).then_some(self.disk.durable as u64);
        let agent = self.agent(replica);
        agent.is_quarantined = false;
        agent.believed = believed;
        self.trace.say(self.agenda.now_us(), Stage::Recover, || {
            format!("replica {replica} runs on a copy of {donor}")
        });
        self.tell(Event::Rebuilt { replica: ReplicaId(replica as u16) });
        self.begin_reset(replica);
    }

    /// Stops the replica's agent and ends every open transaction there.
    pub(super) fn silence(&mut self, replica: usize) {
        let agent = self.agent(replica);
        agent.is_quarantined = true;
        agent.is_serving = false;
        agent.work = None;
        // Abandons the connection set that is being made.
        agent.incarnation = agent.incarnation.next();
        if let Some(line) = agent.line.take() {
            self.close(line);
        }
        for connection in self.servers[replica].connections() {
            self.terminate(connection);
        }
    }
}
