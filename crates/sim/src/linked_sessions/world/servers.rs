//! Commands on their way to servers, and their replies.

use super::{Event, Happening, Process, World};
use crate::linked_sessions::messages::{Asker, Command, Connection};
use crate::linked_sessions::node::LaneConnection;
use crate::trace::Stage;

impl World {
    /// A lane of a node asks.
    pub(super) fn lane_asks(&mut self, owner: Process, replica: usize, at: LaneConnection, command: Command) {
        let LaneConnection { backend, crew, term } = at;
        self.asks(replica, Asker::Lane, Connection { owner, backend, term, crew: Some(crew) }, command);
    }

    /// The leader asks on a connection of its own.
    pub(super) fn own_asks(
        &mut self,
        owner: Process,
        replica: usize,
        asker: Asker,
        backend: u64,
        command: Command,
    ) {
        let (Asker::Orphan(term, _) | Asker::Rejoin(term)) = asker else { return };
        self.asks(replica, asker, Connection { owner, backend, term, crew: None }, command);
    }

    fn asks(&mut self, replica: usize, asker: Asker, at: Connection, command: Command) {
        let after_us = self.message_us() + self.dice.delay(self.plan.work_us);
        self.agenda.enter(after_us, Happening::Serves(replica, asker, at, command));
    }

    pub(super) fn serve(&mut self, replica: usize, asker: Asker, at: Connection, command: &Command) {
        let is_alive = self.is_alive(at.owner);
        if !is_alive && self.dice.percent(50) {
            return;
        }
        self.counts.redone += u64::from(matches!(command, Command::Redo(_)));
        let rules = self.server_rules();
        let reply = self.databases[replica].perform(at, command, &self.texts, rules);
        self.say(Stage::Execute, || format!("replica {replica}, {at:?}: {command:?} -> {reply:?}"));
        for identity in std::mem::take(&mut self.databases[replica].refused) {
            if identity.term() == self.log.claimed {
                self.findings.push(format!("twice: replica {replica} is to commit {identity:?} again"));
            }
        }
        let after_us = self.message_us();
        if is_alive {
            self.enter_at(after_us, at.owner, Event::Replied(replica, asker, at.backend, reply));
        } else {
            self.agenda.enter(after_us, Happening::BackendEnds(replica, at.backend));
        }
    }

    /// The connections of a process end: all, or those of Onecopy's own only.
    pub(super) fn end_backends(&mut self, owner: Process, only_own: bool) {
        for replica in 0..self.databases.len() {
            for backend in self.databases[replica].of(owner, only_own) {
                let after_us = self.notice_us();
                self.agenda.enter(after_us, Happening::BackendEnds(replica, backend));
            }
        }
    }
}
