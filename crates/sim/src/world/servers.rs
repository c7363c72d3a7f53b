//! Connections to the servers, the messages on them, and statements executed one step at a time.

use super::{Cancel, Connection, Happening, Line, Message, Owner, Reply, World};
use crate::check::Anomaly;
use crate::server::Step;

impl World {
    pub(super) fn connect(&mut self, replica: usize, owner: Owner, keeps_snapshot: bool) -> Connection {
        self.connections += 1;
        let connection = self.connections;
        self.servers[replica].connect(connection, keeps_snapshot);
        self.lines.insert(connection, Line { owner });
        self.network.open(connection, replica);
        connection
    }

    /// Closes a connection; later replies on it are dropped.
    pub(super) fn close(&mut self, connection: Connection) {
        if self.lines.remove(&connection).is_some() {
            self.send(connection, Message::Terminate);
        }
    }

    pub(super) fn wake(&mut self, replica: usize, woken: Vec<Connection>) {
        for connection in woken {
            self.step_later(replica, connection);
        }
    }

    pub(super) fn step_later(&mut self, replica: usize, connection: Connection) {
        let after = self.dice.delay(self.plan.pace.op_us);
        let generation = self.servers[replica].generation;
        self.agenda.enter(after, Happening::Step { replica, generation, connection });
    }

    pub(super) fn at_server(&mut self, connection: Connection, message: Message) {
        let replica = self.network.replica(connection);
        let server = &mut self.servers[replica];
        if !server.is_up() || !server.has(connection) {
            let after = self.dice.delay(self.plan.pace.network_us);
            self.agenda.enter(after, Happening::Lost { connection });
            return;
        }
        match message {
            Message::Run(ops) => {
                server.begin(connection, ops);
                self.step_later(replica, connection);
            }
            Message::Identities(identities) => {
                let lsn = server.insert_identities(connection, identities);
                let owner = self.lines.get(&connection).map(|line| line.owner);
                if matches!(owner, Some(Owner::Session(_)))
                    && let Some(after_us) = self.kill_next_identity.take()
                {
                    self.agenda.enter(after_us, Happening::Kill { connection });
                }
                self.answer(connection, lsn.map_or(Reply::Failed, |lsn| Reply::Inserted { lsn }));
            }
            Message::Commit => {
                let is_committing = server.commit(connection);
                let generation = server.generation;
                if is_committing {
                    let after = self.dice.delay(self.plan.pace.show_us);
                    self.agenda.enter(after, Happening::Show { replica, generation, connection });
                } else {
                    self.answer(connection, Reply::RolledBack);
                }
            }
            Message::Rollback => {
                let woken = server.rollback(connection);
                self.wake(replica, woken);
                self.answer(connection, Reply::RolledBack);
            }
            Message::Terminate => self.terminate(connection),
        }
        let woken = self.servers[replica].take_woken();
        self.wake(replica, woken);
    }

    pub(super) fn cancel(&mut self, Cancel { replica, generation, connection }: Cancel) {
        if self.is_cut(replica) || self.servers[replica].generation != generation {
            return;
        }
        let is_late = self.dice.percent(30);
        let answer = self.servers[replica].cancel(connection, is_late);
        let woken = self.servers[replica].take_woken();
        self.wake(replica, woken);
        if let Some(answer) = answer {
            self.answer(connection, Reply::Answer(answer));
        }
    }

    pub(super) fn show(&mut self, replica: usize, connection: Connection) {
        let (woken, wrong) = self.servers[replica].show(connection);
        self.wake(replica, woken);
        if let Some(wrong) = wrong {
            self.find(Anomaly::Integrity, format!("replica {replica}: {wrong}"));
        }
        self.answer(connection, Reply::Committed);
    }

    pub(super) fn terminate(&mut self, connection: Connection) {
        let replica = self.network.replica(connection);
        if self.servers[replica].has(connection) {
            let woken = self.servers[replica].terminate(connection);
            self.wake(replica, woken);
            self.notice_loss(connection);
        }
    }

    pub(super) fn notice_loss(&mut self, connection: Connection) {
        if self.lines.contains_key(&connection) {
            let after = self.dice.delay(self.plan.pace.notice_us);
            self.agenda.enter(after, Happening::Lost { connection });
        }
    }

    pub(super) fn step(&mut self, replica: usize, connection: Connection) {
        let step = self.servers[replica].step(connection);
        let woken = self.servers[replica].take_woken();
        self.wake(replica, woken);
        match step {
            None => {}
            Some(Step::More) => self.step_later(replica, connection),
            Some(Step::Blocked) => {
                let generation = self.servers[replica].generation;
                if matches!(self.lines.get(&connection), Some(Line { owner: Owner::Agent(_) })) {
                    let after = self.dice.delay(self.plan.pace.notice_us);
                    self.agenda.enter(after, Happening::Blocked { replica, generation, connection });
                    return;
                }
                let after = 1_000 + self.dice.delay(2_000);
                self.agenda.enter(after, Happening::Deadlock { replica, generation, connection });
                self.agenda.enter(2 * after, Happening::ServerWaits);
            }
            Some(Step::Done(answer)) => self.answer(connection, Reply::Answer(answer)),
        }
    }
}
