//! What goes wrong in the world of several nodes.

use cluster::ids::NodeId;
use cluster::nodes::term::Input;

use super::world::{Happening, TIMING, Watched, World};

/// A leader that is cut off from the chair and nothing else is replaced within this time: the deadline by a slow clock, a beat, a round of
/// votes, the stagger and two requests.
const HEALTHY_LOOKS_US: u64 = 13_500;

impl World {
    pub(super) fn fault(&mut self) {
        if self.faults_left == 0 {
            return;
        }
        self.faults_left -= 1;
        self.watched = None;
        let node = self.dice.index(self.nodes.len());
        // Mostly the one that leads.
        let leader = self.nodes.iter().position(|node| node.lead.is_some()).filter(|_| self.dice.percent(70));
        let node = leader.unwrap_or(node);
        let other = (node + 1 + self.dice.index(self.nodes.len() - 1)) % self.nodes.len();
        let until_us = self.agenda.now_us() + self.dice.between(500, 25_000);
        let kind = self.dice.below(13);
        self.say(|| format!("fault {kind} at node {node}, other {other}, until {until_us}"));
        match kind {
            0 => self.nodes[node].paused_until_us = until_us,
            1 => self.kill(node, until_us),
            2 => self.nodes[node].chair_cut_until_us = until_us,
            // The same, and only this node reaches a server: what a lease is for.
            3 => self.isolate(node, until_us),
            11 if self.nodes.len() == 3 => self.part(node, other, until_us),
            // The others notice at once, so the lease is young when they claim.
            8 | 10 => {
                for other in (0..self.nodes.len()).filter(|other| *other != node) {
                    self.reset_link(node, other);
                }
                self.isolate(node, until_us);
            }
            // Cut off from the chair for long, while everything else works.
            9 => {
                let until_us = self.agenda.now_us() + HEALTHY_LOOKS_US + 5_000;
                self.nodes[node].chair_cut_until_us = until_us;
                self.watch(node);
            }
            4 => self.paths.entry((node, other)).or_default().cut_until_us = until_us,
            5 => {
                for pair in [(node, other), (other, node)] {
                    self.paths.entry(pair).or_default().cut_until_us = until_us;
                }
            }
            6 => self.reset_link(node, other),
            // No fault, but the end of a term all the same.
            12 if self.nodes[node].is_up => self.hear(node, Input::HandOver { to: NodeId(other as u16) }),
            _ if self.dice.percent(50) => self.leaderless_until_us = self.agenda.now_us() + 3_000,
            _ => {
                let server = self.dice.index(self.servers.len());
                self.servers[server].cut.insert(node, until_us);
            }
        }
        let after = self.dice.between(1_000, 30_000);
        self.agenda.enter(after, Happening::Fault);
    }

    /// A node reaches neither the chair nor a node, and it alone reaches a server: what a lease is for.
    fn isolate(&mut self, node: usize, until_us: u64) {
        self.nodes[node].chair_cut_until_us = until_us;
        let server = self.dice.index(self.servers.len());
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.servers[server].cut.insert(other, until_us);
            for pair in [(node, other), (other, node)] {
                self.paths.entry(pair).or_default().cut_until_us = until_us;
            }
        }
    }

    /// A node and a follower of it are parted from the third node, from the chair, and with a server of their own. The third one notices at
    /// once, and the first one soon hangs: what ends the lease of the follower then is its own clock.
    fn part(&mut self, node: usize, follower: usize, until_us: u64) {
        let third = 3 - node - follower;
        // The third one needs the anchor.
        let server = 1 + self.dice.index(self.servers.len() - 1);
        self.servers[server].cut.insert(third, until_us);
        for one in [node, follower] {
            self.reset_link(one, third);
            self.nodes[one].chair_cut_until_us = until_us;
            // A version that can never be durable would keep the follower from reading.
            self.nodes[one].quiet_until_us = until_us;
            for pair in [(one, third), (third, one)] {
                self.paths.entry(pair).or_default().cut_until_us = until_us;
            }
        }
        let hangs_after = self.dice.between(TIMING.lease_us / 2, TIMING.lease_us);
        self.agenda.enter(hangs_after, Happening::Hang { node, until_us });
        if self.dice.percent(50) {
            // What it has granted arrives late.
            self.paths.entry((node, follower)).or_default().cut_until_us = self.agenda.now_us() + hangs_after;
        }
    }

    /// A leader is cut off from the chair alone: another node has to claim the chair in time, if nothing else hinders it.
    fn watch(&mut self, node: usize) {
        let now_us = self.agenda.now_us();
        let leads = self.nodes[node].term.leads();
        let is_held = self.chair.reading.holder.map(|holder| holder.epoch) == leads && leads.is_some();
        let are_well = self.nodes.iter().enumerate().all(|(at, one)| {
            let follows = one.term.follows().map(|(leader, _)| usize::from(leader.0)) == Some(node);
            one.is_up
                && one.paused_until_us <= now_us
                && (at == node || follows && one.chair_cut_until_us <= now_us)
        });
        let are_linked = self.paths.values().all(|path| path.cut_until_us <= now_us);
        if is_held && are_well && are_linked && self.leaderless_until_us <= now_us {
            let watched = Watched { revision: self.chair.reading.revision, since_us: now_us };
            self.watched = Some(watched);
            self.agenda.enter(HEALTHY_LOOKS_US, Happening::Watched(watched));
        }
    }

    /// The time of a watch is over; a later one may have taken its place.
    pub(super) fn watched(&mut self, watched: Watched) {
        if self.watched != Some(watched) {
            return;
        }
        self.watched = None;
        if self.chair.reading.revision == watched.revision {
            self.judge
                .find(format!("a leader without the chair is not replaced within {HEALTHY_LOOKS_US} us"));
        }
    }

    fn kill(&mut self, node: usize, until_us: u64) {
        self.nodes[node].is_up = false;
        self.nodes[node].lead = None;
        self.nodes[node].joined = None;
        let resets = self.dice.percent(50);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            for pair in [(node, other), (other, node)] {
                self.paths.entry(pair).or_default().messages.clear();
            }
            // A machine that dies sends no FIN.
            if resets && self.nodes[other].is_up {
                self.reset_link(node, other);
            }
        }
        self.agenda.enter(until_us - self.agenda.now_us(), Happening::Start { node });
    }
}
