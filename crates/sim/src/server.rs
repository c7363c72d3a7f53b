//! A PostgreSQL server as a model: MVCC snapshots, row locks, constraints, a WAL that can lose its tail.
//!
//! What matters and is kept: a snapshot is taken when a statement (READ COMMITTED) or the first one (REPEATABLE READ)
//! *executes*, not when it is sent; who waits for a row lock runs on by itself when the lock falls, with the newest
//! row; a COMMIT is in the WAL before it is visible, and visible before it is answered; with `synchronous_commit=off` a
//! crash loses any part of the WAL that was not flushed. Time passes between these steps in the world, not here.
//! ROLLBACK TO gives back the locks that were taken after the savepoint, and so does an error, at once. A cancel that
//! comes when nothing runs may hit what comes next.
//!
//! Not modelled: predicates on values, and checks of refreshes (`session_replication_role=replica`).

mod execute;
mod locks;

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::Identity;

use crate::history::Element;
use crate::schema::{self, Key, Row, Rows};
use locks::{Locks, Mode};

/// One connection; never used twice in a run.
pub type Connection = u64;

/// A piece of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads a row.
    Read(Key),
    /// Reads all rows of the table that the view shows.
    ReadView,
    /// Appends to a row that exists.
    Update(Key),
    /// Brings a row into being.
    Insert(Key),
    /// Takes a row away.
    Delete(Key),
    /// SELECT FOR UPDATE.
    Lock(Key),
    /// LOCK TABLE .. IN EXCLUSIVE MODE, and a look at its rows.
    LockTable(u8),
    /// UPDATE of an account by an amount.
    Move(Key, i64),
    /// Reads the rows of a table that are there.
    Scan(u8),
    /// Reads what all accounts hold together.
    Total,
    /// SAVEPOINT, always of one name.
    Savepoint,
    /// ROLLBACK TO the last savepoint.
    RollbackTo,
    /// A savepoint of the session's own, in the place of its last one.
    Guard,
    /// Back to that.
    Undo,
    /// A refresh: this row, expected as the first, becomes the second.
    Put(Key, Row, Row),
}

impl Op {
    /// Whether it is about the transaction and not about data: it takes no snapshot.
    pub fn is_control(&self) -> bool {
        matches!(self, Self::Savepoint | Self::RollbackTo | Self::Guard | Self::Undo)
    }

    /// The row that a client changes by it.
    pub fn changes(&self) -> Option<Key> {
        match self {
            Self::Update(key) | Self::Insert(key) | Self::Delete(key) | Self::Move(key, _) => Some(*key),
            _ => None,
        }
    }

    /// The row that it changes or locks.
    fn writes(&self) -> Option<Key> {
        match self {
            Self::Lock(key) | Self::Put(key, ..) => Some(*key),
            other => other.changes(),
        }
    }
}

/// Why a statement failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SqlError {
    /// 23505
    Unique,
    /// 23503
    ForeignKey,
    /// 40001
    Serialization,
    /// 40P01
    Deadlock,
    /// 57014
    Cancelled,
    /// Cancelled for a refresh, and taken back.
    Evicted,
    /// 25P02, or 3B001
    Failed,
    /// A refresh found another row than it expected.
    Diverged,
}

impl SqlError {
    /// The SQLSTATE.
    pub fn code(self) -> &'static str {
        match self {
            Self::Unique => "23505",
            Self::ForeignKey => "23503",
            Self::Serialization => "40001",
            Self::Deadlock => "40P01",
            Self::Cancelled | Self::Evicted => "57014",
            Self::Failed => "25P02",
            Self::Diverged => "P0001",
        }
    }
}

/// A changed row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// Which.
    pub key: Key,
    /// Before.
    pub old: Row,
    /// After.
    pub new: Row,
}

impl Change {
    /// Whether the row was not there before, or is not after it.
    pub fn comes_or_goes(&self) -> bool {
        self.old.present != self.new.present
    }
}

/// The reply to a statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Seen at the snapshot; the transaction's own writes included.
    pub reads: Vec<(Key, Row)>,
    /// Seen as it was at that moment.
    pub latest: Vec<(Key, Row)>,
    /// Captured changes.
    pub changes: Vec<Change>,
    /// Rows that were locked without being changed.
    pub locked: Vec<(Key, Row)>,
    /// Tables that were locked, and all their rows as they were then, also those that are not there.
    pub locked_tables: Vec<(u8, Vec<(Key, Row)>)>,
    /// Tables, and the rows there at the snapshot.
    pub scans: Vec<(u8, Vec<(Key, Row)>)>,
    /// All accounts together, at the snapshot.
    pub total: Option<i64>,
    /// How it ended.
    pub error: Option<SqlError>,
}

/// What came of running a statement a step further.
#[derive(Debug)]
pub enum Step {
    /// There is more to do.
    More,
    /// It waits for a row lock.
    Blocked,
    /// It has ended.
    Done(Answer),
}

#[derive(Debug)]
struct Job {
    ops: Vec<(Op, Element)>,
    at: usize,
    snapshot: u64,
    answer: Answer,
}

/// What ROLLBACK TO goes back to.
#[derive(Clone, Debug)]
struct Savepoint {
    own: Rows,
    locks: Vec<(Key, Mode)>,
}

#[derive(Debug, Default)]
struct Backend {
    keeps_snapshot: bool,
    snapshot: Option<u64>,
    own: Rows,
    identities: Vec<Identity>,
    job: Option<Job>,
    is_committing: bool,
    savepoints: Vec<Savepoint>,
    guard: Option<Savepoint>,
    /// An error has ended it; only ROLLBACK helps, or ROLLBACK TO.
    is_failed: bool,
    /// A cancel came when nothing ran.
    is_cancelled: bool,
}

#[derive(Clone, Debug, Default)]
struct WalRecord {
    writes: Rows,
    identities: Vec<Identity>,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    is_up: bool,
    /// Grows with each start.
    pub generation: u32,
    rows: BTreeMap<Key, Vec<(u64, Row)>>,
    visible: u64,
    wal: Vec<WalRecord>,
    flushed: usize,
    /// Commits in the WAL that are not visible yet.
    pending: BTreeMap<Connection, WalRecord>,
    applied: BTreeSet<Identity>,
    /// The last number of the sequence.
    drawn: u64,
    locks: Locks,
    backends: BTreeMap<Connection, Backend>,
    /// Who got a lock by what was done last, and runs on.
    woken: Vec<Connection>,
    /// It cannot apply any refresh: damaged, full, or written behind our back.
    pub refuses: bool,
}

impl Default for Server {
    fn default() -> Self {
        let mut server = Self {
            is_up: true,
            generation: 1,
            rows: BTreeMap::new(),
            visible: 0,
            wal: Vec::new(),
            flushed: 0,
            pending: BTreeMap::new(),
            applied: BTreeSet::new(),
            drawn: 0,
            locks: Locks::default(),
            backends: BTreeMap::new(),
            woken: Vec::new(),
            refuses: false,
        };
        server.rebuild();
        server
    }
}

impl Server {
    /// Whether it accepts connections.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// A new connection; `keeps_snapshot` at REPEATABLE READ.
    pub fn connect(&mut self, connection: Connection, keeps_snapshot: bool) {
        assert!(self.is_up, "only a server that is up accepts connections");
        self.backends.insert(connection, Backend { keeps_snapshot, ..Backend::default() });
    }

    /// Whether the connection is there.
    pub fn has(&self, connection: Connection) -> bool {
        self.backends.contains_key(&connection)
    }

    /// The connections that are there.
    pub fn connections(&self) -> Vec<Connection> {
        self.backends.keys().copied().collect()
    }

    /// Puts the identities into the transaction, and draws a number; none if the transaction has failed.
    pub fn insert_identities(&mut self, connection: Connection, identities: Vec<Identity>) -> Option<u64> {
        self.be_cancelled(connection);
        let backend = self.backends.get_mut(&connection).filter(|backend| !backend.is_failed)?;
        backend.identities.extend(identities);
        self.drawn += 1;
        Some(self.drawn)
    }

    /// Who runs on because of what was done since this was asked last.
    pub fn take_woken(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.woken)
    }

    /// A cancel request: ends the statement, with this answer, or may hit the next one.
    pub fn cancel(&mut self, connection: Connection, is_late: bool) -> Option<Answer> {
        let backend = self.backends.get_mut(&connection)?;
        if backend.job.take().is_none() {
            backend.is_cancelled |= is_late && !backend.is_committing;
            return None;
        }
        self.fail(connection);
        Some(Answer { error: Some(SqlError::Cancelled), ..Answer::default() })
    }

    /// Ends a statement that runs behind a savepoint of the session's own, and goes back to that. `None` if none runs.
    pub fn evict(&mut self, connection: Connection) -> Option<Answer> {
        let backend = self.backends.get_mut(&connection).filter(|backend| backend.job.is_some())?;
        let Savepoint { own, locks } = backend.guard.take()?;
        backend.own = own;
        backend.job = None;
        let woken = self.locks.keep_only(connection, &locks);
        self.woken.extend(woken);
        Some(Answer { error: Some(SqlError::Evicted), ..Answer::default() })
    }

    /// A cancel that came too late for the statement before hits this one; whether it did.
    fn be_cancelled(&mut self, connection: Connection) -> bool {
        let Some(backend) = self.backends.get_mut(&connection) else { return false };
        let is_cancelled = std::mem::take(&mut backend.is_cancelled);
        if is_cancelled {
            self.fail(connection);
        }
        is_cancelled
    }

    /// An error ends the transaction, or what was done since the last savepoint: changes and locks are gone at once.
    fn fail(&mut self, connection: Connection) {
        let Some(backend) = self.backends.get_mut(&connection) else { return };
        backend.is_failed = true;
        self.go_back(connection);
    }

    /// Back to the last savepoint, or to the beginning.
    fn go_back(&mut self, connection: Connection) {
        let Some(backend) = self.backends.get_mut(&connection) else { return };
        let mut kept = Vec::new();
        if let Some(savepoint) = backend.savepoints.last().cloned() {
            backend.own = savepoint.own;
            kept = savepoint.locks;
        } else {
            backend.own.clear();
            backend.identities.clear();
        }
        let woken = self.locks.keep_only(connection, &kept);
        self.woken.extend(woken);
    }

    /// A COMMIT reaches the WAL. False if the connection is gone, or the transaction has failed and is rolled back.
    pub fn commit(&mut self, connection: Connection) -> bool {
        self.be_cancelled(connection);
        let Some(backend) = self.backends.get_mut(&connection) else { return false };
        if backend.is_failed {
            let woken = self.rollback(connection);
            self.woken.extend(woken);
            return false;
        }
        backend.is_committing = true;
        backend.savepoints.clear();
        let record = WalRecord {
            writes: std::mem::take(&mut backend.own),
            identities: std::mem::take(&mut backend.identities),
        };
        if !record.writes.is_empty() || !record.identities.is_empty() {
            self.wal.push(record.clone());
        }
        self.pending.insert(connection, record);
        true
    }

    /// What a COMMIT wrote becomes visible; who runs on, and what is wrong with the rows now.
    pub fn show(&mut self, connection: Connection) -> (Vec<Connection>, Option<String>) {
        let Some(record) = self.pending.remove(&connection) else { return (Vec::new(), None) };
        let wrong = self.make_visible(record);
        if let Some(backend) = self.backends.get_mut(&connection) {
            backend.is_committing = false;
            backend.snapshot = None;
        }
        (self.locks.release(connection), wrong)
    }

    /// A transaction of somebody who is alone here; what is wrong with the rows then.
    pub fn write_at_once(&mut self, writes: Rows, identity: Identity) -> Option<String> {
        let record = WalRecord { writes, identities: vec![identity] };
        self.wal.push(record.clone());
        self.make_visible(record)
    }

    fn make_visible(&mut self, record: WalRecord) -> Option<String> {
        self.visible += 1;
        for (key, row) in record.writes {
            self.rows.get_mut(&key).expect("every key has a first row").push((self.visible, row));
        }
        for identity in record.identities {
            if !self.applied.insert(identity) {
                return Some(format!("applied twice: {identity}"));
            }
        }
        self.integrity()
    }

    /// Ends the transaction without a trace; who runs on.
    pub fn rollback(&mut self, connection: Connection) -> Vec<Connection> {
        let Some(backend) = self.backends.get_mut(&connection) else { return Vec::new() };
        if backend.is_committing {
            return Vec::new();
        }
        *backend = Backend { keeps_snapshot: backend.keeps_snapshot, ..Backend::default() };
        self.locks.release(connection)
    }

    /// Ends a backend. One that has its COMMIT in the WAL becomes visible all the same. Who runs on.
    pub fn terminate(&mut self, connection: Connection) -> Vec<Connection> {
        let woken = self.rollback(connection);
        self.backends.remove(&connection);
        woken
    }

    /// Whether no COMMIT is on its way to being visible.
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// Everything in the WAL so far survives a crash.
    pub fn flush(&mut self) {
        self.flushed = self.wal.len();
    }

    /// How many commits a crash can lose.
    pub fn unflushed(&self) -> usize {
        self.wal.len() - self.flushed
    }

    /// Goes down and loses this many of the commits that were not flushed.
    pub fn crash(&mut self, lost: usize) {
        assert!(lost <= self.unflushed(), "what was flushed is not lost");
        self.wal.truncate(self.wal.len() - lost);
        self.flushed = self.wal.len();
        self.is_up = false;
        self.backends.clear();
        self.locks = Locks::default();
        self.pending.clear();
    }

    /// Takes the place of what was here: runs on a copy of another server, which has what was in its WAL then.
    pub fn take_copy(&mut self, donor: &Self) {
        self.crash(self.unflushed());
        self.wal.clone_from(&donor.wal);
        self.flushed = self.wal.len();
        self.drawn = donor.drawn;
        self.refuses = false;
        self.start();
    }

    /// Comes up with what is in the WAL.
    pub fn start(&mut self) {
        // What a sequence gave out is not always remembered.
        self.drawn /= 2;
        self.is_up = true;
        self.generation += 1;
        self.rebuild();
    }

    fn rebuild(&mut self) {
        self.rows = schema::first_rows().into_iter().map(|(key, row)| (key, vec![(0, row)])).collect();
        self.visible = 0;
        self.applied.clear();
        for record in self.wal.clone() {
            self.make_visible(record);
        }
    }

    /// The identities of what it has.
    pub fn applied(&self) -> &BTreeSet<Identity> {
        &self.applied
    }

    /// The newest visible row.
    pub fn newest(&self, key: Key) -> &Row {
        &self.rows[&key].last().expect("every key has a first row").1
    }

    fn at(&self, key: Key, snapshot: u64) -> &Row {
        let versions = &self.rows[&key];
        &versions.iter().rev().find(|(seq, _)| *seq <= snapshot).expect("the first row has number 0").1
    }

    /// Constraints as they stand in what is visible.
    fn integrity(&self) -> Option<String> {
        let total: i64 = schema::rows_of(schema::ACCOUNTS).map(|key| self.newest(key).balance).sum();
        if total != 0 {
            return Some(format!("the accounts hold {total} together"));
        }
        let is_there = |key: &Key| self.newest(*key).present;
        for key in schema::keys().filter(is_there) {
            if let Some(twin) = key.twin().filter(is_there) {
                return Some(format!("duplicate unique value: {key:?} and {twin:?}"));
            }
            if let Some(parent) = key.parent().filter(|parent| !is_there(parent)) {
                return Some(format!("orphan: {key:?} without {parent:?}"));
            }
        }
        None
    }
}
