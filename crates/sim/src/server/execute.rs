//! Executes a statement one operation at a time, to its end or until it waits for a lock.

use super::locks::Mode;
use super::{Answer, Change, Connection, Job, Op, Savepoint, Server, SqlError, Step};
use crate::history::Element;
use crate::schema::{self, ACCOUNTS, Key, Row};

/// The result of one operation.
enum Came {
    Done,
    Blocked,
    Failed(SqlError),
}

impl Server {
    /// Begins a statement and takes its snapshot. False if the connection is closed.
    pub fn begin(&mut self, connection: Connection, ops: Vec<(Op, Element)>) -> bool {
        let visible = self.visible;
        let is_cancelled = self.be_cancelled(connection);
        let Some(backend) = self.backends.get_mut(&connection) else { return false };
        let goes_back = matches!(ops.first(), Some((Op::RollbackTo, _))) && !backend.savepoints.is_empty();
        let error = match (is_cancelled, backend.is_failed && !goes_back) {
            (true, _) => Some(SqlError::Cancelled),
            (false, true) => Some(SqlError::Failed),
            (false, false) => None,
        };
        let answer = Answer { error, ..Answer::default() };
        if error.is_some() {
            backend.job = Some(Job { ops: Vec::new(), at: 0, snapshot: visible, answer });
            return true;
        }
        let snapshot = if backend.keeps_snapshot && !ops.iter().all(|(op, _)| op.is_control()) {
            *backend.snapshot.get_or_insert(visible)
        } else {
            visible
        };
        backend.job = Some(Job { ops, at: 0, snapshot, answer });
        true
    }

    /// Executes the next operation of the statement.
    pub fn step(&mut self, connection: Connection) -> Option<Step> {
        let backend = self.backends.get_mut(&connection)?;
        let mut job = backend.job.take()?;
        let came = match job.ops.get(job.at).cloned() {
            None => return Some(Step::Done(job.answer)),
            Some((op, element)) => self.run(connection, &op, element, &mut job),
        };
        match came {
            Came::Failed(error) => {
                // An error shows only its reason.
                let own = |key: &Key| backend_writes(self, connection, *key);
                let reason = job.answer.latest.pop().filter(|(key, _)| !own(key));
                job.answer = Answer { error: Some(error), ..Answer::default() };
                job.answer.latest.extend(reason);
                self.fail(connection);
                return Some(Step::Done(job.answer));
            }
            Came::Done => job.at += 1,
            Came::Blocked => {}
        }
        let ended = job.at == job.ops.len();
        if ended {
            return Some(Step::Done(job.answer));
        }
        self.backends.get_mut(&connection)?.job = Some(job);
        Some(if matches!(came, Came::Blocked) { Step::Blocked } else { Step::More })
    }

    /// The connections that it waits for.
    pub fn blockers(&self, connection: Connection) -> Vec<Connection> {
        self.locks.blockers(connection)
    }

    /// If the connection is part of a deadlock, fails its statement; returns the answer and the connections that continue.
    pub fn break_deadlock(&mut self, connection: Connection) -> Option<(Answer, Vec<Connection>)> {
        if !self.locks.is_deadlocked(connection) {
            return None;
        }
        let answer = Answer { error: Some(SqlError::Deadlock), ..Answer::default() };
        if let Some(backend) = self.backends.get_mut(&connection) {
            backend.job = None;
        }
        self.fail(connection);
        Some((answer, self.take_woken()))
    }

    /// Handles savepoints of the client and of the session.
    fn mark(&mut self, connection: Connection, op: &Op) -> Came {
        let held = self.locks.held_by(connection);
        let Some(backend) = self.backends.get_mut(&connection) else { return Came::Done };
        let here = Savepoint { own: backend.own.clone(), locks: held };
        if *op == Op::Savepoint {
            backend.savepoints.push(here);
        } else if *op == Op::OwnSavepoint {
            backend.own_savepoint = Some(here);
        } else if let Some(Savepoint { own, locks }) = backend.own_savepoint.take() {
            backend.own = own;
            let woken = self.locks.keep_only(connection, &locks);
            self.woken.extend(woken);
        } else {
            return Came::Failed(SqlError::Failed);
        }
        Came::Done
    }

    fn run(&mut self, connection: Connection, op: &Op, element: Element, job: &mut Job) -> Came {
        if let Some(key) = op.writes()
            && !self.locks.take(connection, key.whole_table(), Mode::KeyShare)
        {
            return Came::Blocked;
        }
        match op {
            Op::Read(key) => {
                job.answer.reads.push((*key, self.seen(connection, *key, job.snapshot)));
                Came::Done
            }
            Op::ReadView => {
                let seen = self.seen(connection, Key::VIEW, job.snapshot);
                // A snapshot covers rows; definitions are looked up as they are now.
                let keeps = self.keeps_snapshot(connection);
                let view = if keeps { self.latest(connection, Key::VIEW).clone() } else { seen.clone() };
                let table = schema::view_target(view.list.len());
                if view == seen {
                    job.answer.reads.push((Key::VIEW, view));
                }
                for row in 0..schema::ROWS {
                    let key = Key { table, row };
                    job.answer.reads.push((key, self.seen(connection, key, job.snapshot)));
                }
                Came::Done
            }
            Op::Scan(table) => {
                let rows = schema::rows_of(*table).map(|key| (key, self.seen(connection, key, job.snapshot)));
                job.answer.scans.push((*table, rows.filter(|(_, row)| row.present).collect()));
                Came::Done
            }
            Op::Total => {
                let accounts = schema::rows_of(ACCOUNTS);
                let held = accounts.map(|key| self.seen(connection, key, job.snapshot).balance);
                job.answer.total = Some(held.sum());
                Came::Done
            }
            Op::Savepoint | Op::OwnSavepoint | Op::RollbackToOwn => self.mark(connection, op),
            Op::RollbackTo => {
                let backend = self.backends.get_mut(&connection);
                if backend.as_ref().is_none_or(|backend| backend.savepoints.is_empty()) {
                    return Came::Failed(SqlError::Failed);
                }
                self.go_back(connection);
                if let Some(backend) = self.backends.get_mut(&connection) {
                    backend.is_failed = false;
                }
                Came::Done
            }
            Op::Update(key) => self.update(connection, *key, Some((element, true, 0)), Mode::Change, job),
            Op::Move(key, amount) => {
                self.update(connection, *key, Some((element, true, *amount)), Mode::Change, job)
            }
            Op::Delete(key) => self.update(connection, *key, Some((element, false, 0)), Mode::Whole, job),
            Op::Lock(key) => self.update(connection, *key, None, Mode::Whole, job),
            Op::LockTable(table) => self.lock_table(connection, *table, job),
            Op::Insert(key) => self.insert(connection, *key, element, job),
            Op::Put(key, old, new) => self.put(connection, *key, (old, new), job),
        }
    }

    /// Applies a row of a refresh.
    fn put(&mut self, connection: Connection, key: Key, (old, new): (&Row, &Row), job: &mut Job) -> Came {
        let mode = if old.present == new.present { Mode::Change } else { Mode::Whole };
        if !self.locks.take(connection, key, mode) {
            return Came::Blocked;
        }
        if let Some(value) = key.unique_value().filter(|_| mode == Mode::Whole)
            && !self.locks.take(connection, value, Mode::Whole)
        {
            return Came::Blocked;
        }
        if self.refuses || self.latest(connection, key) != old {
            return Came::Failed(SqlError::Diverged);
        }
        self.write(connection, key, new.clone(), job);
        Came::Done
    }

    fn lock_table(&mut self, connection: Connection, table: u8, job: &mut Job) -> Came {
        if !self.locks.take(connection, Key { table, row: 0 }.whole_table(), Mode::Whole) {
            return Came::Blocked;
        }
        let rows = schema::rows_of(table).map(|key| (key, self.latest(connection, key).clone()));
        job.answer.locked_tables.push((table, rows.collect()));
        Came::Done
    }

    fn seen(&self, connection: Connection, key: Key, snapshot: u64) -> Row {
        let own = self.backends.get(&connection).and_then(|backend| backend.own.get(&key));
        own.unwrap_or_else(|| self.at(key, snapshot)).clone()
    }

    /// The newest row, the transaction's own writes included.
    fn latest(&self, connection: Connection, key: Key) -> &Row {
        let own = self.backends.get(&connection).and_then(|backend| backend.own.get(&key));
        own.unwrap_or_else(|| self.newest(key))
    }

    fn keeps_snapshot(&self, connection: Connection) -> bool {
        self.backends.get(&connection).is_some_and(|backend| backend.keeps_snapshot)
    }

    fn changed_since(&self, key: Key, snapshot: u64) -> bool {
        self.rows[&key].last().is_some_and(|(seq, _)| *seq > snapshot)
    }

    fn write(&mut self, connection: Connection, key: Key, new: Row, job: &mut Job) {
        let old = self.latest(connection, key).clone();
        if let Some(backend) = self.backends.get_mut(&connection) {
            backend.own.insert(key, new.clone());
        }
        job.answer.changes.push(Change { key, old, new });
    }

    /// UPDATE, DELETE and SELECT FOR UPDATE of one row.
    fn update(
        &mut self,
        connection: Connection,
        key: Key,
        write: Option<(Element, bool, i64)>,
        mode: Mode,
        job: &mut Job,
    ) -> Came {
        let at_snapshot = self.seen(connection, key, job.snapshot);
        if !at_snapshot.present {
            job.answer.reads.push((key, at_snapshot));
            return Came::Done;
        }
        if !self.locks.take(connection, key, mode) {
            return Came::Blocked;
        }
        let own = self.backends.get(&connection).is_some_and(|backend| backend.own.contains_key(&key));
        let latest = self.latest(connection, key).clone();
        if self.keeps_snapshot(connection) {
            if !own && self.changed_since(key, job.snapshot) {
                return Came::Failed(SqlError::Serialization);
            }
            job.answer.reads.push((key, at_snapshot));
        } else if !latest.present {
            job.answer.latest.push((key, latest.clone()));
        }
        if !latest.present {
            // A row that was deleted meanwhile has nothing to lock. Its own deletion stays locked.
            if !own {
                let woken = self.locks.free(connection, key);
                self.woken.extend(woken);
            }
            return Came::Done;
        }
        let is_delete = matches!(write, Some((_, false, _)));
        if let Some(value) = key.unique_value().filter(|_| is_delete)
            && !self.locks.take(connection, value, Mode::Whole)
        {
            return Came::Blocked;
        }
        // The foreign key check locks the children, so it waits for a transaction that deletes one.
        let mut children = key.children().filter(|_| is_delete);
        if let Some(child) = children.find(|child| self.latest(connection, *child).present) {
            if [child.whole_table(), child]
                .into_iter()
                .any(|key| !self.locks.take(connection, key, Mode::KeyShare))
            {
                return Came::Blocked;
            }
            job.answer.latest.push((child, self.latest(connection, child).clone()));
            return Came::Failed(SqlError::ForeignKey);
        }
        match write {
            Some((element, present, amount)) => {
                self.write(connection, key, latest.then(element, present, amount), job);
            }
            None => job.answer.locked.push((key, latest)),
        }
        Came::Done
    }

    fn insert(&mut self, connection: Connection, key: Key, element: Element, job: &mut Job) -> Came {
        let value = key.unique_value().map(|value| (value, Mode::Whole));
        let parent = key.parent().map(|parent| (parent, Mode::KeyShare));
        let parents = key.parent().map(|parent| (parent.whole_table(), Mode::KeyShare));
        let needed = [Some((key, Mode::Whole)), value, parents, parent];
        if needed.into_iter().flatten().any(|(key, mode)| !self.locks.take(connection, key, mode)) {
            return Came::Blocked;
        }
        let double = [Some(key), key.twin()].into_iter().flatten();
        if let Some(there) = double.into_iter().find(|k| self.latest(connection, *k).present) {
            job.answer.latest.push((there, self.latest(connection, there).clone()));
            return Came::Failed(SqlError::Unique);
        }
        if let Some(parent) = key.parent()
            && let Some(error) = self.refers_to_nothing(connection, parent, job)
        {
            return Came::Failed(error);
        }
        let new = self.latest(connection, key).then(element, true, 0);
        self.write(connection, key, new, job);
        Came::Done
    }

    /// A foreign key check sees committed rows, or the transaction's snapshot. If the row was deleted since the snapshot,
    /// the error is 40001.
    fn refers_to_nothing(&self, connection: Connection, parent: Key, job: &mut Job) -> Option<SqlError> {
        let latest = self.latest(connection, parent);
        if !self.keeps_snapshot(connection) {
            if !latest.present {
                job.answer.latest.push((parent, latest.clone()));
            }
            return (!latest.present).then_some(SqlError::ForeignKey);
        }
        let was_there = self.seen(connection, parent, job.snapshot).present;
        match (was_there, latest.present) {
            (true, true) => None,
            (true, false) => Some(SqlError::Serialization),
            (false, _) => Some(SqlError::ForeignKey),
        }
    }
}

fn backend_writes(server: &Server, connection: Connection, key: Key) -> bool {
    server.backends.get(&connection).is_some_and(|backend| backend.own.contains_key(&key))
}
