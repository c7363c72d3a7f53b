//! Version leases in the world of several nodes: who asks, grants and notes, and reads that a node places by itself.

use cluster::event::Event;
use cluster::ids::{CrewId, Incarnation, Version};
use cluster::nodes::version_leases::Granted;
use cluster::time::Time;

use super::world::{Message, TIMING, World};

impl World {
    /// A node that has joined asks for a lease now and then.
    pub(super) fn keep_lease(&mut self, node: usize) {
        let now = self.now(node);
        let this = &mut self.nodes[node];
        let Some((leader, _)) = this.joined else { return };
        if now.since_us(this.asked_at) < TIMING.beat_us {
            return;
        }
        this.asked_at = now;
        let join = this.join;
        self.post(node, leader, Message::Lease { join, sent: now });
    }

    /// The crew of an attempt to join.
    fn crew_of(&self, node: usize, from: usize, join: u64) -> Option<CrewId> {
        let lead = self.nodes[node].lead.as_ref()?;
        lead.crews.get(&from).copied().filter(|_| lead.joins.get(&from) == Some(&join))
    }

    /// A node asks the leader for a lease.
    pub(super) fn grant(&mut self, node: usize, from: usize, join: u64, sent: Time) {
        if !self.switches.protocol.places_reads_by_load() {
            return;
        }
        let (now, crew) = (self.now(node), self.crew_of(node, from, join));
        let Some(lead) = self.nodes[node].lead.as_mut().filter(|lead| lead.serves) else { return };
        let ends = lead.grants.ends();
        let granted = crew.and_then(|crew| lead.leases.as_mut()?.grant(crew, ends, now));
        if let Some(granted) = granted {
            self.post(node, from, Message::Granted { join, sent, granted });
        }
    }

    /// The leader has granted a lease.
    pub(super) fn granted(&mut self, node: usize, (from, join): (usize, u64), sent: Time, granted: Granted) {
        let this = &mut self.nodes[node];
        if this.joined.is_some() && this.join == join {
            this.lease.granted(sent, granted);
            self.post(node, from, Message::Noted { join, upto: granted.noted });
        }
    }

    /// The leader has assigned a version.
    pub(super) fn note(&mut self, node: usize, from: usize, join: u64, upto: Version) {
        let this = &mut self.nodes[node];
        if this.joined.is_some() && this.join == join {
            this.lease.note(upto);
            self.post(node, from, Message::Noted { join, upto });
        }
    }

    /// A node has noted versions.
    pub(super) fn noted(&mut self, node: usize, from: usize, join: u64, upto: Version) {
        let crew = self.crew_of(node, from, join);
        let lead = self.nodes[node].lead.as_mut();
        if let (Some(crew), Some(leases)) = (crew, lead.and_then(|lead| lead.leases.as_mut())) {
            leases.noted(crew, upto);
        }
        self.release(node);
    }

    /// The core hears what is durable and noted.
    pub(super) fn release(&mut self, node: usize) {
        let now = self.now(node);
        let leases = self.nodes[node].lead.as_mut().and_then(|lead| lead.leases.as_mut());
        if let Some(upto) = leases.and_then(|leases| leases.logged(now)) {
            self.feed(node, Event::Logged { upto });
        }
    }

    /// Tells the nodes with a lease that a version is assigned.
    pub(super) fn tell_assigned(&mut self, node: usize, version: Version) {
        let now = self.now(node);
        let Some(lead) = &mut self.nodes[node].lead else { return };
        let crews = lead.leases.as_mut().map(|leases| leases.assigned(version, now)).unwrap_or_default();
        let of: Vec<(usize, u64)> = lead
            .crews
            .iter()
            .filter(|(_, crew)| crews.contains(crew))
            .filter_map(|(of, _)| Some((*of, *lead.joins.get(of)?)))
            .collect();
        for (of, join) in of {
            self.post(node, of, Message::Assigned { join, upto: version });
        }
    }

    /// The incarnation of the replica where a session was last, if its node lets a read run there without asking.
    pub(super) fn stays(&self, node: usize, replica: usize) -> Option<Incarnation> {
        let needs = self.nodes[node].lease.needs(self.now(node))?;
        let (incarnation, applied) = self.nodes[node].known.get(&replica)?;
        (*applied >= needs).then_some(*incarnation)
    }

    /// A statement that the leader let run tells what its replica has.
    pub(super) fn learn(&mut self, node: usize, replica: usize, incarnation: Incarnation, applied: Version) {
        let known = self.nodes[node].known.entry(replica).or_insert((incarnation, applied));
        if incarnation > known.0 {
            *known = (incarnation, applied);
        } else if incarnation == known.0 {
            known.1 = known.1.max(applied);
        }
    }
}
