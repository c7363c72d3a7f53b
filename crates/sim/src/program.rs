//! What a run is made of: the clients' programs, the faults and the pace of things; drawn from a seed, or cut down.

mod draw;
mod forks;
mod load;
mod show;

use cluster::placement::Placement;

use crate::history::Level;
use crate::server::Op;

/// One statement of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// What it does, in order.
    pub ops: Vec<Op>,
    /// The classifier cannot bound it.
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

/// The frame of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// One statement, no BEGIN.
    Autocommit,
    /// BEGIN READ ONLY.
    ReadOnly,
    /// BEGIN.
    Block,
}

/// What the client does at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// COMMIT.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// Is gone, so many microseconds after it began.
    Vanish(u64),
}

/// One transaction of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The level that the client asks for.
    pub level: Level,
    /// Its frame.
    pub frame: Frame,
    /// What it does.
    pub statements: Vec<Statement>,
    /// How it ends.
    pub ending: Ending,
    /// The client sends a cancel request so many microseconds after it began.
    pub cancel_us: Option<u64>,
    /// How often the client tries again when it is told 40001 or 40P01.
    pub retries: u32,
    /// It may have its home anywhere.
    pub roams: bool,
    /// What it writes is not foreseen.
    pub is_surprising: bool,
    /// It is known by tables only, not by rows.
    pub is_coarse: bool,
    /// Rows that belong to groups are known by those, unless it makes them; else nobody knows of which group they are
    /// before they are written.
    pub is_grouped: bool,
    /// It is known which columns it reads.
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

    /// Whether the server keeps one snapshot for it.
    pub fn keeps_snapshot(&self) -> bool {
        self.level != Level::ReadCommitted
    }
}

/// Something that goes wrong.
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
    /// Refreshes take long at a replica.
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
    /// The next fsync of the log fails, and the kernel forgets what it was about.
    DiskError {
        /// After how long the node is started again.
        down_us: u64,
    },
    /// Nothing passes between the node and a replica; then everything does, or all connections are reset.
    Partition {
        /// Which replica.
        replica: usize,
        /// For how long.
        for_us: u64,
        /// Whether they are reset.
        resets: bool,
    },
    /// One connection between the node and a replica loses its packets; it hangs, then it is reset.
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
    /// A replica gets the data of another one.
    Rebuild {
        /// Which.
        replica: usize,
        /// How long that takes.
        for_us: u64,
    },
    /// A replica leaves; a new one gets its number and its server.
    Leave {
        /// Which.
        replica: usize,
        /// After how long the new one joins, and how long it takes until it has data.
        for_us: u64,
    },
    /// A replica takes nothing new.
    Drain {
        /// Which.
        replica: usize,
        /// For how long.
        for_us: u64,
    },
    /// Somebody wants all replicas at one version for a moment, as `VERIFY` does.
    Hold {
        /// For how long.
        for_us: u64,
        /// After so long without an answer it is given up.
        patience_us: u64,
    },
}

/// Typical durations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// One way between any two.
    pub network_us: u64,
    /// One op at a server.
    pub op_us: u64,
    /// One fsync of the log.
    pub fsync_us: u64,
    /// From WAL to visible.
    pub show_us: u64,
    /// Of a client between two statements.
    pub think_us: u64,
    /// Between two flushes of a server's WAL.
    pub flush_us: u64,
    /// Until a lost connection is noticed.
    pub notice_us: u64,
    /// An extra wait before each refresh.
    pub refresh_us: u64,
    /// How long a lost anchor is waited for before another replica takes its place; `None` is for ever.
    pub takeover_us: Option<u64>,
    /// How long refreshes that nobody waits for are gathered.
    pub gathering_us: u64,
    /// A statement that only reads may need so much longer to its server.
    pub read_us: u64,
}

/// A whole run, but for the chances on the way.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many replicas.
    pub replicas: u16,
    /// Who holds what.
    pub placement: Placement,
    /// The programs of each client.
    pub sessions: Vec<Vec<Program>>,
    /// When what goes wrong.
    pub faults: Vec<(u64, Fault)>,
    /// How quick things are.
    pub pace: Pace,
    /// What the node's clock shows when the node starts; it has nothing to do with any other clock.
    pub clock_us: u64,
    /// What was not foreseen is asked for when it is written; else certification is all that there is.
    pub asks: bool,
    /// More changed rows of a transaction than this claim their tables.
    pub row_claims_max: usize,
    /// So many keys are remembered apart by the core.
    pub keys_max: usize,
    /// Most versions in one refresh.
    pub refresh_versions_max: u64,
}
