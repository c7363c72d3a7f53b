//! What others see of the replicas: SHOW REPLICAS, the metrics, and whoever waits for a node to come up.
//!
//! The coordinator asks its core for that, and in a node of this kind this is its core. It orders nothing;
//! it passes on who is in quarantine.

use std::sync::Arc;

use cluster::event::{Effect, Event};
use cluster::ids::Version;
use cluster::parts::conflicts::Count;
use cluster::parts::replica::State;
use cluster::protocols::{Protocol, ReplicaStatus, Waiting};
use cluster::time::Time;

use super::{Shipping, replica};

/// The core that only shows.
pub(super) struct Board(pub(super) Arc<Shipping>);

impl std::fmt::Debug for Board {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Board").field(&self.0.name()).finish()
    }
}

impl Protocol for Board {
    fn handle(&mut self, _: Time, event: Event, _: &mut Vec<Effect>) {
        match event {
            Event::Diverged { replica } => self.0.shut_out(replica),
            Event::Rebuilt { replica } => self.0.let_in(replica),
            _ => {}
        }
    }

    fn replicas(&self) -> Vec<ReplicaStatus> {
        let inside = self.0.lock();
        let all = inside.sides.iter().enumerate();
        all.map(|(index, side)| {
            let state = match () {
                () if side.is_diverged => State::Quarantined,
                () if inside.scheduler.is_up(replica(index)) => State::Up,
                () => State::Down,
            };
            let applied = inside.over_at(index);
            ReplicaStatus {
                replica: replica(index),
                state,
                is_suspect: false,
                is_drained: false,
                is_forgotten: false,
                incarnation: side.incarnation,
                applied,
                lag: inside.appended.0 - applied.0,
                reads: side.reads,
                writes: side.writes,
                expected_wait_us: 0,
                waiting: 0,
                open: side.lanes.len(),
            }
        })
        .collect()
    }

    fn durable(&self) -> Version {
        self.0.coordinator.get().map_or(self.0.lock().appended, |coordinator| coordinator.log.durable())
    }

    fn last_ddl(&self) -> Version {
        Version::ZERO
    }

    fn conflicts(&self) -> Vec<Count> {
        Vec::new()
    }

    fn waiting(&self) -> Vec<Waiting> {
        Vec::new()
    }
}
