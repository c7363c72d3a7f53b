//! All schedulers have failed, and start again from their logs (sections 5.3.1 and 5.3.3).

use std::collections::BTreeMap;

use cluster::protocols::shipping::{
    Decided, ProxyState, ReplicatedScheduler, SchedulerId, SequenceNumber, ToProxy, roll_forward,
};

use super::world::{Happening, Node, World};
use crate::trace::Stage;

impl World {
    /// All schedulers fail at once, and in some runs all replicas.
    pub(super) fn lose_all(&mut self, away_us: u64, loses_replicas: bool) {
        self.run += 1;
        self.cuts.clear();
        self.counts.restarts += 1;
        for node in &mut self.nodes {
            node.is_up = false;
            node.scheduler = None;
            node.logging.clear();
        }
        if loses_replicas {
            self.counts.restored += 1;
            for replica in &mut self.replicas {
                replica.restore();
                if !self.switches.checkpoints_tell_writes {
                    replica.forget_what_it_has();
                }
            }
        }
        self.say(Stage::Fault, || format!("all schedulers fail; all replicas: {loses_replicas}"));
        for client in 0..self.clients.len() {
            let after_us = self.message_us();
            self.agenda.enter(after_us, Happening::Cut(client, self.clients[client].session));
        }
        self.agenda.enter(away_us, Happening::Back(self.run));
    }

    /// "The state is reconstructed from the disk logs of all schedulers. All active transactions are aborted on all database
    /// replicas, the missing writes are applied on all databases" (section 5.3.1).
    pub(super) fn start_again(&mut self) {
        let read = if self.switches.all_logs_are_read { self.nodes.len() } else { 1 };
        let logs = self.nodes[..read].iter().flat_map(|node| node.log.clone());
        let logged: BTreeMap<SequenceNumber, Decided> = logs.collect();
        let heard = self.replicas.iter().map(|replica| replica.proxy.proxy().highest());
        let last = heard.chain(logged.last_key_value().map(|(number, _)| *number)).max().unwrap_or_default();
        self.say(Stage::Recover, || format!("all schedulers start again after number {}", last.0));
        for index in 0..self.replicas.len() {
            if self.replicas[index].is_lost {
                continue;
            }
            let state = ProxyState::of(self.replicas[index].proxy.proxy());
            for message in roll_forward(&state, &logged, last) {
                if matches!(message, ToProxy::Redo { .. }) || self.switches.lost_numbers_are_filled {
                    self.at_replica(index, SchedulerId(0), message);
                }
            }
        }
        let all: Vec<SchedulerId> = (0..self.nodes.len()).map(|index| SchedulerId(index as u8)).collect();
        for (node, id) in self.nodes.iter_mut().zip(&all) {
            let scheduler = ReplicatedScheduler::new(*id, &all, self.plan.choices, self.replicas.len(), last)
                .with_rules(self.switches.replication);
            *node = Node { scheduler: Some(scheduler), is_up: true, ..std::mem::take(node) };
        }
        for index in
            (0..self.replicas.len()).filter(|index| self.replicas[*index].is_lost).collect::<Vec<_>>()
        {
            (0..self.nodes.len()).for_each(|node| self.replica_is_lost(node, index));
        }
    }

    /// Drops from the logs what no replica needs any more.
    pub(super) fn trim_logs(&mut self) {
        let of_checkpoint = self.switches.log_is_kept_from_checkpoints;
        let needs = self.replicas.iter().map(|replica| {
            if of_checkpoint { replica.checkpoint.state.over } else { replica.proxy.proxy().over() }
        });
        let unneeded = needs.min().unwrap_or_default();
        for node in &mut self.nodes {
            node.log.retain(|number, _| *number > unneeded);
        }
    }
}
