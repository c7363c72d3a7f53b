//! A replica gains or loses a table, or a part of it, while the cluster works.
//!
//! As in the binary, it happens while the replica is out of service: nothing runs there, and its agent has ended. A table that is lost
//! keeps its rows here, which grow old, so that any answer from them is found. One that is gained gets the rows of the version that the
//! replica has, together with the identities of the records that it had not to apply. The placement survives the node.
//!
//! Not here: the wait for open transactions. They are cut off, which the core treats like the loss of the replica.

use cluster::event::Event;
use cluster::ids::{PartId, ReplicaId, TableId, Version};
use cluster::placement::{Copies, ReplicaSet};

use super::agent::RETRY_US;
use super::{Happening, World};
use crate::schema::{self, COLUMNS, DATABASE, PARTS};
use crate::trace::Stage;

impl World {
    /// Takes the replica out of service, if it can be spared. Replica 0 holds everything, and stays so.
    pub(super) fn place(&mut self, replica: usize, table: u8, for_us: u64) {
        let is_anchor = self.node.as_ref().is_some_and(|node| node.anchor == replica);
        if self.is_partial && replica != 0 && !is_anchor && self.is_spare(replica) {
            self.silence(replica);
            self.tell(Event::Diverged { replica: ReplicaId(replica as u16) });
            self.membership.begins();
            let epoch = self.epoch;
            self.agenda.enter(for_us, Happening::Placed { epoch, replica, table });
        }
    }

    /// Changes what the replica holds, and lets it serve again.
    pub(super) fn placed(&mut self, epoch: u32, replica: usize, table: u8) {
        if epoch != self.epoch {
            self.membership.ends();
            return;
        }
        let server = &self.servers[replica];
        if !server.is_up() || !server.is_quiet() {
            self.agenda.enter(RETRY_US, Happening::Placed { epoch, replica, table });
            return;
        }
        self.membership.ends();
        let id = ReplicaId(replica as u16);
        let table_id = DATABASE.table(u32::from(table));
        if self.dice.percent(30) {
            self.split_or_join(table_id);
        }
        let before = self.placement.copies(table_id);
        let part = before.split().is_some().then(|| PartId(*self.dice.pick(&[0, PARTS - 1])));
        let is_holder = self.placement.holdings(id).holds_row(table_id, part);
        if is_holder || self.fill(replica, table, part) {
            let toggled = |of, holders: ReplicaSet| match is_holder {
                _ if of != part => holders,
                true => holders.without(id),
                false => holders.with(id),
            };
            self.change_copies(table_id, &before.map(toggled));
        }
        self.agent(replica).is_quarantined = false;
        self.tell(Event::Rebuilt { replica: id });
        self.begin_reset(replica);
    }

    /// Splits a table by a column, with the holders that it has, or joins parts that have the same holders. No replica holds more or
    /// less, so none has to leave service for it.
    fn split_or_join(&mut self, table: TableId) {
        match self.placement.copies(table) {
            Copies::Whole(holders) => {
                let column = *self.dice.pick(&COLUMNS);
                self.split_at.insert(table.number as u8, self.disk.records.len());
                self.change_copies(table, &schema::split(column, [holders; PARTS as usize]));
            }
            Copies::Parts { holders, .. } if holders.iter().all(|set| *set == holders[0]) => {
                self.change_copies(table, &Copies::Whole(holders[0]));
            }
            Copies::Parts { .. } => {}
        }
    }

    fn change_copies(&mut self, table: TableId, copies: &Copies) {
        let is_everywhere = *copies == Copies::Whole(ReplicaSet::first(self.plan.replicas));
        self.placement.restrict(table, copies.clone());
        if is_everywhere {
            self.placement.lift(table);
        }
        self.tell_holdings();
        self.trace.say(self.agenda.now_us(), Stage::Recover, || {
            format!("table {} is held by {copies:?}", table.number)
        });
        self.tell(Event::Placed { table, copies: Some(copies.clone()) });
        if is_everywhere {
            self.tell(Event::Placed { table, copies: None });
        }
    }

    /// Each server checks constraints of what it holds.
    pub(super) fn tell_holdings(&mut self) {
        for (replica, server) in (0..).map(ReplicaId).zip(&mut self.servers) {
            server.holdings = self.placement.holdings(replica);
        }
    }

    /// Gives the replica the rows of a table or part, as of the version that it has. Not if it has a later version and lacks one
    /// before.
    fn fill(&mut self, replica: usize, table: u8, part: Option<PartId>) -> bool {
        let has = self.disk.records.iter().take_while(|record| self.has(replica, record)).count();
        let applied = self.servers[replica].applied();
        let is_later = |record: &cluster::record::Record| applied.contains(&record.header().identity);
        if has > self.disk.durable || self.disk.records[has..].iter().any(is_later) {
            return false;
        }
        // A record of before the split does not say in which part a row is. A replica that holds only some parts cannot apply it.
        let split_at = self.split_at.get(&table).copied().unwrap_or_default();
        if part.is_some() && has < split_at {
            return false;
        }
        if !self.rules.gained_table_has_rows {
            return true;
        }
        let rows = self.disk.replay_until(Version(has as u64));
        let own = |key: &schema::Key| schema::part(&self.placement, *key);
        let is_meant = |key: &schema::Key| key.table == table && (part.is_none() || part == own(key));
        let rows: schema::Rows = rows.into_iter().filter(|(key, _)| is_meant(key)).collect();
        let identities = self.disk.records[..has].iter().map(|record| record.header().identity);
        let missing = identities.filter(|identity| !applied.contains(identity)).collect();
        // Tables that these refer to may be missing here.
        let _ = self.servers[replica].write_at_once(rows, missing);
        self.servers[replica].flush();
        true
    }
}
