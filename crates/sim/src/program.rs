//! The plan of a run: the clients' programs, the faults, and typical durations. A seed draws it, or shrinking leaves it.

mod draw;
mod forks;
mod known;
mod load;
mod repeats;
mod show;

use cluster::placement::Placement;

use crate::history::Level;
use crate::server::Op;

/// One statement of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Its operations, in order.
    pub ops: Vec<Op>,
    /// The analysis cannot bound its reads and writes.
    pub is_unknown: bool,
    /// It changes the definition of the view.
    pub is_ddl: bool,
}

impl Statement {
    /// Whether it does nothing but read.
    pub fn is_read(&self) -> bool {
        let reads = |op: &Op| matches!(op, Op::Read(_) | Op::ReadView | Op::Scan(_) | Op::Total);
        self.ops.iter().all(|op| reads(op) || op.is_control())
    }

    /// Whether it is SAVEPOINT or ROLLBACK TO.
    pub fn is_control(&self) -> bool {
        self.ops.iter().all(Op::is_control)
    }
}

/// How a transaction is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// One statement, no BEGIN.
    Autocommit,
    /// BEGIN READ ONLY.
    ReadOnly,
    /// BEGIN.
    Block,
}

/// How the client ends a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// The client vanishes, so many microseconds after the transaction began.
    Vanish(u64),
}

/// One transaction of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The level that the client asks for.
    pub level: Level,
    /// How it is opened.
    pub frame: Frame,
    /// Its statements.
    pub statements: Vec<Statement>,
    /// How it ends.
    pub ending: Ending,
    /// The client sends a cancel request so many microseconds after it began.
    pub cancel_us: Option<u64>,
    /// How often the client retries after 40001 or 40P01.
    pub retries: u32,
    /// Its home may be any replica; otherwise it is the anchor.
    pub has_any_home: bool,
    /// Its writes are not predicted.
    pub is_unpredicted: bool,
    /// Its reads and writes are known by tables, not by rows.
    pub is_coarse: bool,
    /// Rows of grouped tables are predicted by their group, except inserted ones. Otherwise they are predicted by key, and
    /// their group is known only when they are written.
    pub is_grouped: bool,
    /// The columns that it reads are known.
    pub knows_columns: bool,
}

impl Program {
    /// Whether it runs as an update transaction: it may write.
    pub fn is_update(&self) -> bool {
        match self.frame {
            Frame::Autocommit => !self.statements[0].is_read(),
            Frame::ReadOnly => false,
            Frame::Block => true,
        }
    }

    /// Whether all its statements share one snapshot.
    pub fn keeps_snapshot(&self) -> bool {
        self.level != Level::ReadCommitted
    }

    /// Whether it changes the definition of the view.
    pub fn changes_view(&self) -> bool {
        self.statements.iter().any(|statement| statement.is_ddl)
    }
}

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A server goes down, loses part of what was not flushed, and comes back.
    ServerCrash {
        /// Which.
        replica: usize,
        /// For how long.
        down_us: u64,
    },
    /// A backend of some session is terminated.
    BackendKill,
    /// The backend of the next transaction that is appended is terminated so long after.
    KillAfterAppend {
        /// The time.
        after_us: u64,
    },
    /// The backend of the next transaction that inserts its identity is terminated so long after.
    KillAfterIdentity {
        /// The time.
        after_us: u64,
    },
    /// The backend of the next transaction that finishes and is not appended at once is terminated so long after.
    KillWhileItWaits {
        /// The time.
        after_us: u64,
    },
    /// The connection of an agent is terminated.
    AgentKill {
        /// Whose.
        replica: usize,
    },
    /// The node dies and is started again.
    NodeCrash {
        /// After how long.
        down_us: u64,
    },
    /// Refreshes are slow at a replica.
    SlowRefresh {
        /// Where.
        replica: usize,
        /// For how long.
        for_us: u64,
    },
    /// The next fsync of the log takes this much longer.
    SlowDisk {
        /// How much.
        by_us: u64,
    },
    /// The next fsync of the log fails, and the kernel drops the data.
    DiskError {
        /// After how long the node is started again.
        down_us: u64,
    },
    /// A partition between the node and a replica. It heals, or all connections are reset.
    Partition {
        /// Which replica.
        replica: usize,
        /// For how long.
        for_us: u64,
        /// Whether they are reset.
        resets: bool,
    },
    /// One connection between the node and a replica hangs, then it is reset.
    Stall {
        /// For how long it hangs.
        for_us: u64,
    },
    /// The node's clock jumps ahead.
    ClockJump {
        /// How far.
        by_us: u64,
    },
    /// From now on a replica cannot apply any refresh.
    Refuse {
        /// Which; not the home.
        replica: usize,
    },
    /// A replica is rebuilt from another one.
    Rebuild {
        /// Which.
        replica: usize,
        /// How long that takes.
        for_us: u64,
    },
    /// A replica leaves; a new one joins with its number and its server.
    Leave {
        /// Which.
        replica: usize,
        /// After how long the new one joins, and how long it takes until it has data.
        for_us: u64,
    },
    /// A replica leaves service, loses a table or gets it, and serves again.
    Place {
        /// Which.
        replica: usize,
        /// The table.
        table: u8,
        /// For how long it is out of service.
        for_us: u64,
    },
    /// A replica is drained: it gets no new statements.
    Drain {
        /// Which.
        replica: usize,
        /// For how long.
        for_us: u64,
    },
    /// All replicas are held at one version for a moment, as `VERIFY` does.
    Hold {
        /// For how long.
        for_us: u64,
        /// The request is withdrawn after so long without an answer.
        patience_us: u64,
    },
}

/// Typical durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// A message, one way.
    pub network_us: u64,
    /// An operation at a server.
    pub op_us: u64,
    /// One fsync of the log.
    pub fsync_us: u64,
    /// From the commit record in the WAL until the commit is visible.
    pub show_us: u64,
    /// A client's pause between two statements.
    pub think_us: u64,
    /// Between two flushes of a server's WAL.
    pub flush_us: u64,
    /// Until a lost connection is noticed.
    pub notice_us: u64,
    /// An extra wait before each refresh.
    pub refresh_us: u64,
    /// How long a lost anchor may stay away before another replica replaces it; `None` is for ever.
    pub takeover_us: Option<u64>,
    /// How long refreshes without a waiting statement are delayed for batching.
    pub batching_us: u64,
    /// The extra delay of a read-only statement on its way to the server.
    pub read_us: u64,
}

/// Everything about a run except the random choices on the way.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many replicas.
    pub replicas: u16,
    /// The tables of each replica.
    pub placement: Placement,
    /// The programs of each client.
    pub sessions: Vec<Vec<Program>>,
    /// The faults and their times.
    pub faults: Vec<(u64, Fault)>,
    /// Typical durations.
    pub pace: Pace,
    /// The node's clock when it starts; it is independent of every other clock.
    pub clock_us: u64,
    /// Sessions reserve unpredicted rows when they are written. Otherwise only certification decides.
    pub reserves_late: bool,
    /// Changed rows of a transaction beyond this number claim their tables.
    pub row_claims_max: usize,
    /// How many single keys the core remembers.
    pub keys_max: usize,
    /// The most versions in one refresh.
    pub refresh_versions_max: u64,
    /// Transactions begin where all their tables are. Otherwise they know only the tables of their first statement, and may fail.
    pub foresees_tables: bool,
    /// Sessions keep answers of reads and give them again.
    pub keeps_answers: bool,
    /// Reads run without a question to the core where a replica has every durable version.
    pub stays: bool,
    /// How long a transaction that is known as a whole waits before it fails.
    pub patience_us: u64,
}
