//! The network between the node and the replicas.
//!
//! Like TCP, each connection delivers its messages in order; messages of different connections overtake each other. A
//! partition delays everything between the node and one replica; a stalled connection delays its own messages. Afterwards
//! they arrive, or the connections are reset and the messages are lost. Each end notices a reset by itself and late, so
//! a server keeps running a transaction, with its locks, that the node already counts as lost.

use std::collections::{BTreeMap, VecDeque};

use super::{Happening, Message, Reply, World};
use crate::history::Element;
use crate::server::{Connection, Op};

/// Both directions of one connection.
#[derive(Debug)]
struct Path {
    replica: usize,
    there: VecDeque<Message>,
    back: VecDeque<Reply>,
    held_until_us: u64,
    is_reset: bool,
}

/// All connections, also closed ones, and the partitions.
#[derive(Debug)]
pub(super) struct Network {
    paths: BTreeMap<Connection, Path>,
    /// Per replica: until when it is cut off.
    cut_until_us: Vec<u64>,
}

impl Network {
    pub(super) fn new(replicas: usize) -> Self {
        Self { paths: BTreeMap::new(), cut_until_us: vec![0; replicas] }
    }

    /// A new connection to a replica.
    pub(super) fn open(&mut self, connection: Connection, replica: usize) {
        let (there, back) = (VecDeque::new(), VecDeque::new());
        let path = Path { replica, there, back, held_until_us: 0, is_reset: false };
        self.paths.insert(connection, path);
    }

    /// The replica at its other end.
    pub(super) fn replica(&self, connection: Connection) -> usize {
        self.paths[&connection].replica
    }

    fn held_until_us(&self, connection: Connection) -> u64 {
        let path = &self.paths[&connection];
        path.held_until_us.max(self.cut_until_us[path.replica])
    }
}

impl World {
    /// Whether a partition separates the node and the replica now.
    pub(super) fn is_cut(&self, replica: usize) -> bool {
        self.network.cut_until_us[replica] > self.agenda.now_us()
    }

    pub(super) fn send(&mut self, connection: Connection, message: Message) {
        let Some(path) = self.network.paths.get_mut(&connection).filter(|path| !path.is_reset) else {
            return;
        };
        let reads = |ops: &[(Op, Element)]| ops.iter().all(|(op, _)| matches!(op, Op::Read(_)));
        let read_us = self.plan.pace.read_us;
        let is_late = read_us > 0 && matches!(&message, Message::Run(ops) if reads(ops));
        path.there.push_back(message);
        let late_us = if is_late { self.dice.below(read_us) } else { 0 };
        let after = self.dice.delay(self.plan.pace.network_us) + late_us;
        self.agenda.enter(after, Happening::ToServer { connection });
    }

    pub(super) fn answer(&mut self, connection: Connection, reply: Reply) {
        let Some(path) = self.network.paths.get_mut(&connection).filter(|path| !path.is_reset) else {
            return;
        };
        path.back.push_back(reply);
        let after = self.dice.delay(self.plan.pace.network_us);
        self.agenda.enter(after, Happening::FromServer { connection });
    }

    /// The next message of a connection arrives, unless a partition or a stall delays it.
    pub(super) fn arrive_there(&mut self, connection: Connection) {
        if self.is_delayed(connection, Happening::ToServer { connection }) {
            return;
        }
        let message = self.network.paths.get_mut(&connection).and_then(|path| path.there.pop_front());
        if let Some(message) = message {
            self.at_server(connection, message);
        }
    }

    pub(super) fn arrive_back(&mut self, connection: Connection) {
        if self.is_delayed(connection, Happening::FromServer { connection }) {
            return;
        }
        let reply = self.network.paths.get_mut(&connection).and_then(|path| path.back.pop_front());
        if let Some(reply) = reply {
            self.heard(connection, reply);
        }
    }

    /// A reset may overtake earlier messages of its connection, since it drops what was not read.
    pub(super) fn lose(&mut self, connection: Connection) {
        if !self.is_delayed(connection, Happening::Lost { connection }) {
            self.heard(connection, Reply::Lost);
        }
    }

    fn is_delayed(&mut self, connection: Connection, what: Happening) -> bool {
        let left = self.network.held_until_us(connection).saturating_sub(self.agenda.now_us());
        if left > 0 {
            let after = left + self.dice.delay(self.plan.pace.network_us);
            self.agenda.enter(after, what);
        }
        left > 0
    }

    /// Partitions a replica from the node for a time.
    pub(super) fn cut(&mut self, replica: usize, for_us: u64, resets: bool) {
        let until = self.agenda.now_us() + for_us;
        let cut = &mut self.network.cut_until_us[replica];
        *cut = (*cut).max(until);
        if resets {
            let of_replica = self.network.paths.iter().filter(|(_, path)| path.replica == replica);
            let connections: Vec<Connection> = of_replica.map(|(connection, _)| *connection).collect();
            for connection in connections.into_iter().filter(|c| self.servers[replica].has(*c)) {
                self.agenda.enter(for_us, Happening::Snap { connection });
            }
        }
    }

    /// A random connection loses its packets for a time, then it is reset.
    pub(super) fn stall(&mut self, for_us: u64) {
        let lines: Vec<Connection> = self.lines.keys().copied().collect();
        if lines.is_empty() {
            return;
        }
        let connection = *self.dice.pick(&lines);
        let until = self.agenda.now_us() + for_us;
        if let Some(path) = self.network.paths.get_mut(&connection) {
            path.held_until_us = until;
        }
        self.agenda.enter(for_us, Happening::Snap { connection });
    }

    /// Resets a connection: its messages under way are lost, and both ends notice.
    pub(super) fn snap(&mut self, connection: Connection) {
        let Some(path) = self.network.paths.get_mut(&connection).filter(|path| !path.is_reset) else {
            return;
        };
        path.is_reset = true;
        path.there.clear();
        path.back.clear();
        self.notice_loss(connection);
        let after = self.dice.delay(self.plan.pace.notice_us);
        self.agenda.enter(after, Happening::Kill { connection });
    }
}
