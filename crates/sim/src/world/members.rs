//! Replicas get the data of others, leave, join and are drained.
//!
//! As in the binary: what is to be rebuilt is in quarantine until its server runs on the copy; the copy is what the donor
//! had in its WAL at the end of copying, and says itself what that is. A rebuild that a crash of the node comes into is
//! given up, and the replica has its former data. Who is a member is remembered beside the node.

use cluster::event::Event;
use cluster::ids::ReplicaId;

use super::agent::RETRY_US;
use super::{Happening, World};
use crate::trace::Stage;

/// Who is a member, and what is under way.
#[derive(Debug)]
pub(super) struct Membership {
    members: Vec<bool>,
    /// Copies that are being made, and replicas that are to join again.
    underway: usize,
}

impl Membership {
    /// All are.
    pub(super) fn new(count: usize) -> Self {
        Self { members: vec![true; count], underway: 0 }
    }

    pub(super) fn has(&self, replica: usize) -> bool {
        self.members[replica]
    }

    /// All are, and nothing is under way.
    pub(super) fn is_settled(&self) -> bool {
        self.underway == 0 && self.members.iter().all(|member| *member)
    }
}

impl World {
    /// One that serves, but this one.
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

    /// Whether it is a member with data, and there is another one; where all hold everything.
    fn can_do_without(&mut self, replica: usize) -> bool {
        !self.is_partial
            && self.membership.has(replica)
            && self.other(replica).is_some()
            && !self.agent(replica).is_quarantined
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

    /// The core takes it for a member without data; what its server has from before counts for nothing.
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

    /// The copy is complete, if there is still somebody to copy; a node that came after knows nothing of it.
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

    /// Its agent keeps still, and everything that is open there ends.
    fn silence(&mut self, replica: usize) {
        let agent = self.agent(replica);
        agent.is_quarantined = true;
        agent.is_serving = false;
        agent.work = None;
        // What it has begun to connect is given up.
        agent.incarnation += 1;
        if let Some(line) = agent.line.take() {
            self.close(line);
        }
        for connection in self.servers[replica].connections() {
            self.terminate(connection);
        }
    }
}
