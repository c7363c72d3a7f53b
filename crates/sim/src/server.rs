//! A PostgreSQL server as a model: MVCC snapshots, row locks, constraints, a WAL that can lose its tail.
//!
//! The model keeps these properties of PostgreSQL:
//! - A snapshot is taken when a statement (READ COMMITTED) or the first one (REPEATABLE READ) *executes*, not when it is sent.
//! - A statement that waits for a row lock continues by itself, with the newest row, when the lock is released.
//! - A COMMIT is in the WAL before it is visible, and visible before it is answered. With `synchronous_commit=off` a crash
//!   loses the end of the WAL from any point that was not flushed.
//! - ROLLBACK TO releases the locks taken since the savepoint, and so does an error, at once.
//! - A cancel request that arrives when nothing runs may hit the next statement.
//!
//! Time passes between these steps in the world, not here. Not modelled: predicates on values, and checks of refreshes (`session_replication_role=replica`).

mod execute;
mod integrity;
mod locks;

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::Identity;
use cluster::placement::Holdings;

use crate::history::Element;
use crate::schema::{self, Key, Row, Rows};
use locks::{Locks, Mode};

/// The number of a connection; unique in a run.
pub type Connection = u64;

/// An operation of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// Reads a row.
    Read(Key),
    /// Reads all rows of the table that the view shows.
    ReadView,
    /// Appends to a row that exists.
    Update(Key),
    /// INSERT of a row.
    Insert(Key),
    /// DELETE of a row.
    Delete(Key),
    /// SELECT FOR UPDATE.
    Lock(Key),
    /// LOCK TABLE .. IN EXCLUSIVE MODE, and a read of its rows.
    LockTable(u8),
    /// UPDATE of an account by an amount.
    Move(Key, i64),
    /// Reads all rows of a table.
    Scan(u8),
    /// Reads the total of all accounts.
    Total,
    /// SAVEPOINT; the name is always the same.
    Savepoint,
    /// ROLLBACK TO the last savepoint.
    RollbackTo,
    /// A savepoint of the session, which replaces its last one.
    OwnSavepoint,
    /// ROLLBACK TO the session's savepoint.
    RollbackToOwn,
    /// A refresh of a row, from the first image to the second.
    Put(Key, Row, Row),
}

impl Op {
    /// Whether it controls the transaction only, and takes no snapshot.
    pub fn is_control(&self) -> bool {
        matches!(self, Self::Savepoint | Self::RollbackTo | Self::OwnSavepoint | Self::RollbackToOwn)
    }

    /// The row that it changes for a client.
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
    /// Cancelled for a refresh and rolled back to the session's savepoint.
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
    /// The row.
    pub key: Key,
    /// Before.
    pub old: Row,
    /// After.
    pub new: Row,
}

impl Change {
    /// Whether it inserts or deletes the row.
    pub fn comes_or_goes(&self) -> bool {
        self.old.present != self.new.present
    }
}

/// The reply to a statement.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Rows read at the snapshot, the transaction's own writes included.
    pub reads: Vec<(Key, Row)>,
    /// Rows read as of the moment of a check.
    pub latest: Vec<(Key, Row)>,
    /// Captured changes.
    pub changes: Vec<Change>,
    /// Rows that were locked without being changed.
    pub locked: Vec<(Key, Row)>,
    /// Locked tables with all their rows as of then, deleted rows included.
    pub locked_tables: Vec<(u8, Vec<(Key, Row)>)>,
    /// Scanned tables with their rows at the snapshot.
    pub scans: Vec<(u8, Vec<(Key, Row)>)>,
    /// The total of all accounts, at the snapshot.
    pub total: Option<i64>,
    /// The error, if it failed.
    pub error: Option<SqlError>,
}

/// The state of a statement after a step.
#[derive(Debug)]
pub enum Step {
    /// It has more operations.
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

/// A savepoint: the state that ROLLBACK TO restores.
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
    own_savepoint: Option<Savepoint>,
    /// An error has failed the transaction; it accepts only ROLLBACK and ROLLBACK TO.
    is_failed: bool,
    /// A cancel request came when nothing ran.
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
    /// Connections that got a lock by the last step and continue.
    woken: Vec<Connection>,
    /// It cannot apply any refresh: it is damaged, full, or was written by others.
    pub refuses: bool,
    /// What it holds. Constraints of other rows do not count.
    pub holdings: Holdings,
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
            holdings: Holdings::everything(),
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

    /// Whether the connection is open.
    pub fn has(&self, connection: Connection) -> bool {
        self.backends.contains_key(&connection)
    }

    /// The open connections.
    pub fn connections(&self) -> Vec<Connection> {
        self.backends.keys().copied().collect()
    }

    /// Inserts identities in the transaction and draws its number; `None` if the transaction has failed.
    pub fn insert_identities(&mut self, connection: Connection, identities: Vec<Identity>) -> Option<u64> {
        self.be_cancelled(connection);
        let backend = self.backends.get_mut(&connection).filter(|backend| !backend.is_failed)?;
        backend.identities.extend(identities);
        self.drawn += 1;
        Some(self.drawn)
    }

    /// Takes the connections that continue since the last call.
    pub fn take_woken(&mut self) -> Vec<Connection> {
        std::mem::take(&mut self.woken)
    }

    /// A cancel request: it ends the statement, with this answer, or may hit the next one.
    pub fn cancel(&mut self, connection: Connection, is_late: bool) -> Option<Answer> {
        let backend = self.backends.get_mut(&connection)?;
        if backend.job.take().is_none() {
            backend.is_cancelled |= is_late && !backend.is_committing;
            return None;
        }
        self.fail(connection);
        Some(Answer { error: Some(SqlError::Cancelled), ..Answer::default() })
    }

    /// Ends a statement and rolls back to the session's savepoint before it. `None` if no such statement runs.
    pub fn evict(&mut self, connection: Connection) -> Option<Answer> {
        let backend = self.backends.get_mut(&connection).filter(|backend| backend.job.is_some())?;
        let Savepoint { own, locks } = backend.own_savepoint.take()?;
        backend.own = own;
        backend.job = None;
        let woken = self.locks.keep_only(connection, &locks);
        self.woken.extend(woken);
        Some(Answer { error: Some(SqlError::Evicted), ..Answer::default() })
    }

    /// Whether a cancel request that came too late for the previous statement hits this one.
    fn be_cancelled(&mut self, connection: Connection) -> bool {
        let Some(backend) = self.backends.get_mut(&connection) else { return false };
        let is_cancelled = std::mem::take(&mut backend.is_cancelled);
        if is_cancelled {
            self.fail(connection);
        }
        is_cancelled
    }

    /// An error rolls back to the last savepoint or fails the transaction: changes and locks are gone at once.
    fn fail(&mut self, connection: Connection) {
        let Some(backend) = self.backends.get_mut(&connection) else { return };
        backend.is_failed = true;
        self.go_back(connection);
    }

    /// Rolls back to the last savepoint, or to the beginning.
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

    /// Writes the COMMIT to the WAL. False if the connection is closed, or the transaction has failed and is rolled back.
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

    /// Makes a COMMIT visible. Returns the connections that continue, and constraints that are violated now.
    pub fn show(&mut self, connection: Connection) -> (Vec<Connection>, Option<String>) {
        let Some(record) = self.pending.remove(&connection) else { return (Vec::new(), None) };
        let wrong = self.make_visible(record);
        if let Some(backend) = self.backends.get_mut(&connection) {
            backend.is_committing = false;
            backend.snapshot = None;
        }
        (self.locks.release(connection), wrong)
    }

    /// Runs a transaction without any other open connection, and returns the constraints that it violates.
    pub fn write_at_once(&mut self, writes: Rows, identities: Vec<Identity>) -> Option<String> {
        let record = WalRecord { writes, identities };
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

    /// Rolls the transaction back, and returns the connections that continue.
    pub fn rollback(&mut self, connection: Connection) -> Vec<Connection> {
        let Some(backend) = self.backends.get_mut(&connection) else { return Vec::new() };
        if backend.is_committing {
            return Vec::new();
        }
        *backend = Backend { keeps_snapshot: backend.keeps_snapshot, ..Backend::default() };
        self.locks.release(connection)
    }

    /// Ends a backend, and returns the connections that continue. A COMMIT already in the WAL still becomes visible.
    pub fn terminate(&mut self, connection: Connection) -> Vec<Connection> {
        let woken = self.rollback(connection);
        self.backends.remove(&connection);
        woken
    }

    /// Whether every COMMIT in the WAL is visible.
    pub fn is_quiet(&self) -> bool {
        self.pending.is_empty()
    }

    /// Flushes the WAL: everything in it survives a crash.
    pub fn flush(&mut self) {
        self.flushed = self.wal.len();
    }

    /// How many commits a crash can lose.
    pub fn unflushed(&self) -> usize {
        self.wal.len() - self.flushed
    }

    /// Crashes and loses this many of the commits that were not flushed.
    pub fn crash(&mut self, lost: usize) {
        assert!(lost <= self.unflushed(), "what was flushed is not lost");
        self.wal.truncate(self.wal.len() - lost);
        self.flushed = self.wal.len();
        self.is_up = false;
        self.backends.clear();
        self.locks = Locks::default();
        self.pending.clear();
    }

    /// Restarts on a copy of another server, with the content of its WAL.
    pub fn take_copy(&mut self, donor: &Self) {
        self.crash(self.unflushed());
        self.wal.clone_from(&donor.wal);
        self.flushed = self.wal.len();
        self.drawn = donor.drawn;
        self.refuses = false;
        self.start();
    }

    /// Starts with the content of the WAL.
    pub fn start(&mut self) {
        // PostgreSQL does not always remember the last values of a sequence.
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

    /// The identities of its transactions.
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
}
