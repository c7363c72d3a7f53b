//! Holds all replicas at one version for a moment, as the binary's `VERIFY` does, and checks that they are there.
//!
//! The core names the version. From then until the release, each replica that was up and stayed up must have exactly
//! the rows that the log has at that version.

use cluster::event::Event;
use cluster::ids::{Incarnation, SessionId, Version};
use cluster::parts::replica::State;

use super::{Happening, World};
use crate::check::Anomaly;
use crate::schema;
use crate::trace::Stage;

/// Sessions of clients are numbered below this.
const FIRST_HOLDER: u64 = 1 << 32;

/// A replica with its incarnation and the generation of its server.
type Standing = (usize, Incarnation, u32);

/// One hold: a request to the core, then checks of the held replicas.
#[derive(Debug)]
pub(super) struct Holder {
    epoch: u32,
    for_us: u64,
    /// The replicas that were up when the core reported them level.
    held: Option<(Version, Vec<Standing>)>,
    is_over: bool,
}

impl World {
    pub(super) fn hold(&mut self, for_us: u64, patience_us: u64) {
        if self.node.is_none() {
            return;
        }
        let holder = self.holders.len();
        self.holders.push(Holder { epoch: self.epoch, for_us, held: None, is_over: false });
        self.agenda.enter(patience_us + for_us, Happening::Release { holder });
        self.tell(Event::Hold { session: SessionId(FIRST_HOLDER + holder as u64) });
    }

    /// The core reports that all replicas that are up stand at this version.
    pub(super) fn held(&mut self, session: SessionId, version: Version) {
        let replicas = self.node.as_ref().map(|node| node.cluster.replicas()).unwrap_or_default();
        let up = replicas.iter().filter(|status| status.state == State::Up);
        let up = up.map(|status| {
            let replica = usize::from(status.replica.0);
            (replica, status.incarnation, self.servers[replica].generation)
        });
        let up: Vec<Standing> = up.collect();
        let number = (session.0 - FIRST_HOLDER) as usize;
        let holder = &mut self.holders[number];
        holder.held = Some((version, up));
        let for_us = holder.for_us;
        for after in [for_us / 2, for_us] {
            self.agenda.enter(after, Happening::Inspect { holder: number });
        }
    }

    /// Checks the held replicas once.
    pub(super) fn inspect(&mut self, number: usize) {
        let holder = &self.holders[number];
        if holder.epoch != self.epoch || holder.is_over {
            return;
        }
        let Some((version, up)) = holder.held.clone() else { return };
        let rows = self.disk.replay_until(version);
        for (replica, incarnation, generation) in up {
            let agent = self.agent(replica);
            let is_same = agent.incarnation == incarnation && agent.generation == generation;
            let server = &self.servers[replica];
            if !is_same || !server.is_up() || server.generation != generation {
                continue;
            }
            let held = schema::keys().filter(|key| schema::holds(&self.placement, replica, *key));
            let other = held.into_iter().find(|key| *server.newest(*key) != rows[key]);
            if let Some(key) = other {
                let there = server.newest(key).clone();
                let text = format!("replica {replica} is held at {version} and shows {there:?} at {key:?}");
                self.find(Anomaly::Order, text);
                return;
            }
        }
        self.trace.say(self.agenda.now_us(), Stage::Order, || format!("all held at {version}"));
    }

    pub(super) fn release(&mut self, number: usize) {
        let holder = &mut self.holders[number];
        holder.is_over = true;
        if holder.epoch == self.epoch {
            let session = SessionId(FIRST_HOLDER + number as u64);
            self.tell(Event::GiveUp { session });
            self.tell(Event::Release { session });
        }
    }
}
