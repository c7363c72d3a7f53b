//! Carries out the faults of the plan.

use cluster::ids::Identity;

use super::{Happening, Owner, World};
use crate::program::Fault;
use crate::server::Connection;

impl World {
    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::ServerCrash { replica, down_us } => self.crash_server(replica, down_us),
            Fault::BackendKill => {
                let lines: Vec<Connection> = self
                    .lines
                    .iter()
                    .filter(|(_, line)| !matches!(line.owner, Owner::Agent(_)))
                    .map(|(connection, _)| *connection)
                    .collect();
                if !lines.is_empty() {
                    let connection = *self.dice.pick(&lines);
                    self.terminate(connection);
                }
            }
            Fault::KillAfterAppend { after_us } => self.kill_next_append = Some(after_us),
            Fault::KillAfterIdentity { after_us } => self.kill_next_identity = Some(after_us),
            Fault::KillWhileItWaits { after_us } => self.kill_next_waiting = Some(after_us),
            Fault::AgentKill { replica } => {
                let agent = self.node.as_ref().and_then(|node| node.agents[replica].line);
                if let Some(connection) = agent {
                    self.terminate(connection);
                }
            }
            Fault::NodeCrash { down_us } => self.crash_node(down_us),
            Fault::SlowRefresh { replica, for_us } => {
                self.refresh_slow_until_us[replica] = self.agenda.now_us() + for_us;
            }
            Fault::SlowDisk { by_us } => self.disk.slow_us += by_us,
            Fault::DiskError { down_us } => self.disk.fails_for_us = Some(down_us),
            Fault::Partition { replica, for_us, resets } => self.cut(replica, for_us, resets),
            Fault::Stall { for_us } => self.stall(for_us),
            Fault::ClockJump { by_us } => self.clock_ahead_us = self.clock_ahead_us.saturating_add(by_us),
            // Else no donor might be left for a rebuild.
            Fault::Refuse { replica } => self.servers[replica].refuses |= self.membership.is_settled(),
            Fault::Rebuild { replica, for_us } => self.rebuild(replica, for_us),
            Fault::Leave { replica, for_us } => self.leave(replica, for_us),
            Fault::Drain { replica, for_us } => self.drain(replica, for_us),
            Fault::Place { replica, table, for_us } => self.place(replica, table, for_us),
            Fault::Hold { for_us, patience_us } => self.hold(for_us, patience_us),
        }
    }

    fn crash_server(&mut self, replica: usize, down_us: u64) {
        if !self.servers[replica].is_up() {
            return;
        }
        let lost = self.dice.index(self.servers[replica].unflushed() + 1);
        for connection in self.servers[replica].connections() {
            self.notice_loss(connection);
        }
        self.servers[replica].crash(lost);
        self.agenda.enter(down_us, Happening::ServerStart { replica });
    }

    /// Ends the backend of the transaction that was just appended.
    pub(super) fn kill_home_of(&mut self, identity: Identity, after_us: u64) {
        let home = self.sessions.iter().find_map(|session| session.line_of(identity));
        if let Some(connection) = home {
            self.agenda.enter(after_us, Happening::Kill { connection });
        }
    }
}
