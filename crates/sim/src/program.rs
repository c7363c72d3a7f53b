//! What a run is made of: the clients' programs, the faults and the pace of things; drawn from a seed, or cut down.

use cluster::placement::Placement;

use crate::dice::Dice;
use crate::history::Level;
use crate::schema::{self, Key, PARENTS, ROWS, UNIQUE};
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
        self.ops.iter().all(|op| matches!(op, Op::Read(_) | Op::ReadView))
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
}

impl Program {
    /// Whether it runs as an update transaction: it may write, or SERIALIZABLE asks for its turn.
    pub fn is_update(&self) -> bool {
        match self.frame {
            Frame::Autocommit => !self.statements[0].is_read(),
            Frame::ReadOnly => self.level == Level::Serializable,
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
}

/// Most programs of a client.
const PROGRAMS_MAX: u64 = 12;
/// Faults happen up to this time.
const FAULTS_UNTIL_US: u64 = 30_000;

impl Plan {
    /// Draws a run.
    pub fn draw(dice: &mut Dice) -> Self {
        let replicas = dice.between(2, 4) as u16;
        let placement = schema::draw_placement(dice, replicas);
        let is_crowded = dice.percent(15);
        let flavour = Flavour {
            is_crowded,
            tied: dice.percent(40),
            only: *dice.pick(&[
                None,
                None,
                None,
                None,
                None,
                None,
                None,
                None,
                Some(UNIQUE),
                Some(schema::CHILDREN),
            ]),
            ddl: dice.percent(15) && !schema::is_partial(&placement, replicas),
            hot: if is_crowded { 1 } else { dice.between(1, u64::from(ROWS)) as u8 },
            unknown: if is_crowded || dice.percent(30) { 30 } else { 0 },
            vanishing: if dice.percent(40) { 8 } else { 0 },
        };
        let clients = dice.between(2, 7);
        let sessions = (0..clients)
            .map(|_| (0..dice.between(2, PROGRAMS_MAX)).map(|_| flavour.program(dice)).collect())
            .collect();
        let pace = Pace {
            network_us: dice.between(1, 100),
            op_us: dice.between(1, 100),
            fsync_us: *dice.pick(&[50, 300, 2_000]),
            show_us: dice.between(1, 100),
            think_us: *dice.pick(&[10, 200, 1_000]),
            flush_us: *dice.pick(&[500, 5_000, 50_000]),
            notice_us: if is_crowded { 5_000 } else { *dice.pick(&[20, 500, 3_000]) },
            refresh_us: *dice.pick(&[0, 0, 200, 3_000]),
        };
        let count = if dice.percent(30) { 0 } else { dice.between(1, 6) };
        let mut faults: Vec<_> = (0..count)
            .map(|_| match dice.below(2) {
                0 if is_crowded => (dice.below(1_000), Fault::KillAfterAppend { after_us: dice.below(50) }),
                1 if is_crowded => (dice.below(1_000), Fault::KillAfterIdentity { after_us: dice.below(20) }),
                _ => (dice.below(FAULTS_UNTIL_US), draw_fault(dice, replicas)),
            })
            .collect();
        faults.sort_by_key(|(at, _)| *at);
        Self { replicas, placement, sessions, faults, pace }
    }
}

fn draw_fault(dice: &mut Dice, replicas: u16) -> Fault {
    let replica = dice.index(usize::from(replicas));
    match dice.below(16) {
        0 | 1 => Fault::ServerCrash { replica, down_us: dice.delay(3_000) },
        2 => Fault::ServerCrash { replica: 0, down_us: dice.delay(1_000) },
        3 | 4 => Fault::BackendKill,
        5..=8 => Fault::KillAfterAppend { after_us: dice.delay(400) },
        9 => Fault::AgentKill { replica },
        10 => Fault::NodeCrash { down_us: dice.delay(3_000) },
        11..=13 => Fault::KillAfterIdentity { after_us: dice.delay(100) },
        14 => Fault::SlowRefresh { replica, for_us: dice.delay(10_000) },
        _ => Fault::SlowDisk { by_us: dice.delay(5_000) },
    }
}

/// What the clients of one run are like.
#[derive(Debug)]
struct Flavour {
    /// Everybody wants the same few rows, and losses are noticed late.
    is_crowded: bool,
    tied: bool,
    /// Everything happens in the tables tied to this one.
    only: Option<u8>,
    ddl: bool,
    hot: u8,
    unknown: u64,
    vanishing: u64,
}

impl Flavour {
    fn program(&self, dice: &mut Dice) -> Program {
        use Level::{ReadCommitted, RepeatableRead, Serializable};
        let frame = *dice.pick(&[
            Frame::Autocommit,
            Frame::Autocommit,
            Frame::Autocommit,
            Frame::Block,
            Frame::Block,
            Frame::ReadOnly,
        ]);
        let level = match frame {
            Frame::Autocommit if dice.percent(85) => ReadCommitted,
            _ => *dice.pick(&[ReadCommitted, ReadCommitted, RepeatableRead, Serializable]),
        };
        let count = if frame == Frame::Autocommit { 1 } else { dice.between(1, 4) };
        let statements = (0..count).map(|_| self.statement(dice, frame)).collect();
        let ending = if dice.percent(self.vanishing) {
            Ending::Vanish(dice.delay(3_000))
        } else if frame != Frame::Autocommit && dice.percent(8) {
            Ending::Rollback
        } else {
            Ending::Commit
        };
        Program { level, frame, statements, ending }
    }

    fn statement(&self, dice: &mut Dice, frame: Frame) -> Statement {
        if self.ddl && frame == Frame::Block && dice.percent(15) {
            return Statement { ops: vec![Op::Update(Key::VIEW)], is_unknown: true, is_ddl: true };
        }
        let mut ops = Vec::new();
        let writes = frame != Frame::ReadOnly && dice.percent(55);
        if writes {
            for _ in 0..*dice.pick(&[1, 1, 1, 2, 3]) {
                if dice.percent(25) {
                    ops.push(Op::Read(self.plain(dice)));
                }
                ops.push(self.write(dice));
            }
        } else if self.ddl && frame == Frame::Autocommit && dice.percent(50) {
            ops.push(Op::ReadView);
        } else {
            let table = self.plain(dice).table;
            match dice.below(4) {
                0 => ops.extend((0..ROWS).map(|row| Op::Read(Key { table, row }))),
                1 => ops.push(Op::Read(self.plain(dice))),
                _ => ops.extend((0..dice.between(2, 4)).map(|_| Op::Read(self.any(dice)))),
            }
        }
        Statement { ops, is_unknown: dice.percent(self.unknown), is_ddl: false }
    }

    fn plain(&self, dice: &mut Dice) -> Key {
        Key { table: dice.between(1, 3) as u8, row: dice.below(u64::from(self.hot)) as u8 }
    }

    fn any(&self, dice: &mut Dice) -> Key {
        match self.only {
            Some(UNIQUE) => Key { table: UNIQUE, row: dice.below(2) as u8 },
            Some(_) if dice.percent(40) => Key { table: PARENTS, row: 0 },
            Some(_) => Key { table: schema::CHILDREN, row: dice.below(2) as u8 },
            None if self.tied && dice.percent(40) => tied(dice),
            None => self.plain(dice),
        }
    }

    fn write(&self, dice: &mut Dice) -> Op {
        let key = self.any(dice);
        if key.table < UNIQUE {
            let locks = if self.is_crowded { 40 } else { 15 };
            return if dice.percent(locks) { Op::Lock(key) } else { Op::Update(key) };
        }
        match dice.below(10) {
            0..=4 => Op::Insert(key),
            5..=7 => Op::Delete(key),
            8 => Op::Update(key),
            _ => Op::Lock(key),
        }
    }
}

/// A row of the tables that are tied; parents without children are of no interest.
fn tied(dice: &mut Dice) -> Key {
    let table = dice.between(u64::from(UNIQUE), u64::from(schema::CHILDREN)) as u8;
    let rows = if table == PARENTS { ROWS / 2 } else { ROWS };
    Key { table, row: dice.below(u64::from(rows)) as u8 }
}
