//! Running a statement, one op at a time, to its end or to a row lock.

use super::locks::Mode;
use super::{Answer, Change, Connection, Job, Op, Server, SqlError, Step};
use crate::history::Element;
use crate::schema::{self, Key, Row};

/// What one op came to.
enum Came {
    Done,
    Blocked,
    Failed(SqlError),
}

impl Server {
    /// Begins a statement: its snapshot is taken now. False if the connection is gone.
    pub fn begin(&mut self, connection: Connection, ops: Vec<(Op, Element)>) -> bool {
        let visible = self.visible;
        let Some(backend) = self.backends.get_mut(&connection) else { return false };
        let snapshot =
            if backend.keeps_snapshot { *backend.snapshot.get_or_insert(visible) } else { visible };
        backend.job = Some(Job { ops, at: 0, snapshot, answer: Answer::default() });
        true
    }

    /// Runs the statement one op further.
    pub fn step(&mut self, connection: Connection) -> Option<Step> {
        let backend = self.backends.get_mut(&connection)?;
        let mut job = backend.job.take()?;
        let came = match job.ops.get(job.at).cloned() {
            None => return Some(Step::Done(job.answer)),
            Some((op, element)) => self.run(connection, &op, element, &mut job),
        };
        match came {
            Came::Failed(error) => {
                // An error shows its reason and nothing else.
                let own = |key: &Key| backend_writes(self, connection, *key);
                let reason = job.answer.latest.pop().filter(|(key, _)| !own(key));
                job.answer = Answer { error: Some(error), ..Answer::default() };
                job.answer.latest.extend(reason);
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

    /// If the connection is part of a deadlock, its statement fails; the answer then, and who runs on.
    pub fn break_deadlock(&mut self, connection: Connection) -> Option<(Answer, Vec<Connection>)> {
        if !self.locks.is_deadlocked(connection) {
            return None;
        }
        let answer = Answer { error: Some(SqlError::Deadlock), ..Answer::default() };
        Some((answer, self.rollback(connection)))
    }

    fn run(&mut self, connection: Connection, op: &Op, element: Element, job: &mut Job) -> Came {
        match op {
            Op::Read(key) => {
                job.answer.reads.push((*key, self.seen(connection, *key, job.snapshot)));
                Came::Done
            }
            Op::ReadView => {
                let view = self.seen(connection, Key::VIEW, job.snapshot);
                let table = schema::view_target(view.list.len());
                job.answer.reads.push((Key::VIEW, view));
                for row in 0..schema::ROWS {
                    let key = Key { table, row };
                    job.answer.reads.push((key, self.seen(connection, key, job.snapshot)));
                }
                Came::Done
            }
            Op::Update(key) => self.update(connection, *key, Some((element, true)), Mode::Change, job),
            Op::Delete(key) => self.update(connection, *key, Some((element, false)), Mode::Whole, job),
            Op::Lock(key) => self.update(connection, *key, None, Mode::Whole, job),
            Op::Insert(key) => self.insert(connection, *key, element, job),
            Op::Put(key, old, new) => {
                if !self.locks.take(connection, *key, Mode::Change) {
                    return Came::Blocked;
                }
                if self.latest(connection, *key) != old {
                    return Came::Failed(SqlError::Diverged);
                }
                self.write(connection, *key, new.clone(), job);
                Came::Done
            }
        }
    }

    fn seen(&self, connection: Connection, key: Key, snapshot: u64) -> Row {
        let own = self.backends.get(&connection).and_then(|backend| backend.own.get(&key));
        own.unwrap_or_else(|| self.at(key, snapshot)).clone()
    }

    /// The row as it is now, the transaction's own writes included.
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
        write: Option<(Element, bool)>,
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
        let is_delete = matches!(write, Some((_, false)));
        if let Some(value) = key.unique_value().filter(|_| is_delete)
            && !self.locks.take(connection, value, Mode::Whole)
        {
            return Came::Blocked;
        }
        let latest = self.latest(connection, key).clone();
        if self.keeps_snapshot(connection) {
            let own = self.backends.get(&connection).is_some_and(|backend| backend.own.contains_key(&key));
            if !own && self.changed_since(key, job.snapshot) {
                return Came::Failed(SqlError::Serialization);
            }
            job.answer.reads.push((key, at_snapshot));
        } else if !latest.present {
            job.answer.latest.push((key, latest.clone()));
        }
        if !latest.present {
            return Came::Done;
        }
        if let Some(child) = key.children().find(|c| is_delete && self.latest(connection, *c).present) {
            job.answer.latest.push((child, self.latest(connection, child).clone()));
            return Came::Failed(SqlError::ForeignKey);
        }
        match write {
            Some((element, present)) => self.write(connection, key, latest.then(element, present), job),
            None => job.answer.locked.push((key, latest)),
        }
        Came::Done
    }

    fn insert(&mut self, connection: Connection, key: Key, element: Element, job: &mut Job) -> Came {
        let value = key.unique_value().map(|value| (value, Mode::Whole));
        let parent = key.parent().map(|parent| (parent, Mode::KeyShare));
        let needed = [Some((key, Mode::Whole)), value, parent];
        if needed.into_iter().flatten().any(|(key, mode)| !self.locks.take(connection, key, mode)) {
            return Came::Blocked;
        }
        let double = [Some(key), key.twin()].into_iter().flatten();
        if let Some(there) = double.into_iter().find(|k| self.latest(connection, *k).present) {
            job.answer.latest.push((there, self.latest(connection, there).clone()));
            return Came::Failed(SqlError::Unique);
        }
        if let Some(gone) = key.parent().filter(|parent| !self.latest(connection, *parent).present) {
            job.answer.latest.push((gone, self.latest(connection, gone).clone()));
            return Came::Failed(SqlError::ForeignKey);
        }
        let new = self.latest(connection, key).then(element, true);
        self.write(connection, key, new, job);
        Came::Done
    }
}

fn backend_writes(server: &Server, connection: Connection, key: Key) -> bool {
    server.backends.get(&connection).is_some_and(|backend| backend.own.contains_key(&key))
}
