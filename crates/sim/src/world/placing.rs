//! A replica gains or loses a table while the cluster works.
//!
//! As in the binary, it happens while the replica is out of service: nothing runs there, and its agent has ended. A table that is lost
//! keeps its rows here, which grow old, so that any answer from them is found. One that is gained gets the rows of the version that the
//! replica has, together with the identities of the records that it had not to apply. The placement survives the node.
//!
//! Not here: the wait for open transactions. They are cut off, which the core treats like the loss of the replica.

use cluster::event::Event;
use cluster::ids::{FragmentId, ReplicaId, Version};
use cluster::placement::ReplicaSet;

use super::agent::RETRY_US;
use super::{Happening, World};
use crate::schema::{self, DATABASE};
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
        let (table_id, everyone) = (DATABASE.table(u32::from(table)), ReplicaSet::first(self.plan.replicas));
        let fragment = FragmentId::whole(table_id);
        let before = self.placement.holders(fragment);
        let holders = if before.contains(id) { before.without(id) } else { before.with(id) };
        if before.contains(id) || self.fill(replica, table) {
            let listed = (holders != everyone).then_some(holders);
            match listed {
                Some(holders) => self.placement.restrict(fragment, holders),
                None => self.placement.lift(fragment),
            }
            self.trace.say(self.agenda.now_us(), Stage::Recover, || {
                format!("table {table} is held by {holders:?}")
            });
            self.tell(Event::Placed { table: table_id, holders: listed });
        }
        self.agent(replica).is_quarantined = false;
        self.tell(Event::Rebuilt { replica: id });
        self.begin_reset(replica);
    }

    /// Gives the replica the rows of a table, as of the version that it has. Not if it has a later version and lacks one before.
    fn fill(&mut self, replica: usize, table: u8) -> bool {
        let has = self.disk.records.iter().take_while(|record| self.has(replica, record)).count();
        let applied = self.servers[replica].applied();
        let is_later = |record: &cluster::record::Record| applied.contains(&record.header().identity);
        if has > self.disk.durable || self.disk.records[has..].iter().any(is_later) {
            return false;
        }
        if !self.rules.gained_table_has_rows {
            return true;
        }
        let rows = self.disk.replay_until(Version(has as u64));
        let rows: schema::Rows = rows.into_iter().filter(|(key, _)| key.table == table).collect();
        let identities = self.disk.records[..has].iter().map(|record| record.header().identity);
        let missing = identities.filter(|identity| !applied.contains(identity)).collect();
        // Tables that these refer to may be missing here.
        let _ = self.servers[replica].write_at_once(rows, missing);
        self.servers[replica].flush();
        true
    }
}
