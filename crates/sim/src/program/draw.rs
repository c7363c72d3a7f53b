//! Draws a plan from a seed.

use cluster::claims::ROW_CLAIMS_MAX;
use cluster::protocols::rows::{KEYS_MAX, PATIENCE_US, REFRESH_VERSIONS_MAX};

use super::{Ending, Fault, Frame, Pace, Plan, Program, Statement, forks, load, repeats};
use crate::dice::Dice;
use crate::history::Level;
use crate::schema::{self, ACCOUNTS, CHILDREN, Key, PARENTS, ROWS, UNIQUE, VISITORS};
use crate::server::Op;

use Level::{ReadCommitted, RepeatableRead, Serializable};

/// The most programs of a client.
const PROGRAMS_MAX: u64 = 12;
/// The time of the latest fault.
const FAULTS_UNTIL_US: u64 = 30_000;

impl Plan {
    /// Draws a plan.
    pub fn draw(dice: &mut Dice) -> Self {
        let mut of_repeats = repeats::own_dice(dice);
        let replicas = dice.between(2, 4) as u16;
        let placement = schema::draw_placement(dice, replicas);
        let is_crowded = dice.percent(15);
        let flavour = Flavour {
            is_crowded,
            tied: dice.percent(40),
            only: *dice.pick(&[None, None, None, None, None, None, None, None, Some(UNIQUE), Some(CHILDREN)]),
            ddl: (dice.percent(15) && !schema::is_partial(&placement, replicas)).then(|| Ddl::draw(dice)),
            hot: if is_crowded { 1 } else { dice.between(1, u64::from(ROWS)) as u8 },
            unknown: if is_crowded || dice.percent(30) { 30 } else { 0 },
            vanishing: if dice.percent(40) { 8 } else { 0 },
            cancelling: if dice.percent(30) { 10 } else { 0 },
            savepoints: if dice.percent(30) { 40 } else { 0 },
            bank: if dice.percent(25) { 40 } else { 0 },
            visitors: if dice.percent(25) { 40 } else { 0 },
            registers: if dice.percent(25) { 30 } else { 0 },
            loads: 0,
            forks: None,
            any_home: *dice.pick(&[0, 80, 100, 100]),
            unpredicted: *dice.pick(&[0, 0, 20, 60]),
            coarse: *dice.pick(&[0, 20, 60]),
        };
        let clients = dice.between(2, 7);
        let sessions = flavour.sessions(clients, dice);
        let mut pace = draw_pace(dice, is_crowded);
        let faults = draw_faults(dice, replicas, is_crowded);
        let clock_us = if dice.percent(50) { 0 } else { dice.number() >> dice.between(1, 40) };
        pace.batching_us = *dice.pick(&[0, 0, 0, 0, 500, 3_000, 20_000]);
        let reserves_late = dice.percent(50);
        let (row_claims_max, keys_max, refresh_versions_max) =
            (ROW_CLAIMS_MAX, KEYS_MAX, REFRESH_VERSIONS_MAX);
        let mut plan = Self {
            replicas,
            placement,
            sessions,
            faults,
            pace,
            clock_us,
            reserves_late,
            row_claims_max,
            keys_max,
            refresh_versions_max,
            patience_us: PATIENCE_US,
            foresees_tables: dice.percent(60),
            keeps_answers: false,
            stays: repeats::own_dice(dice).percent(repeats::STAYS_PERCENT),
        };
        if dice.percent(25) {
            plan.load(&flavour, dice);
        }
        // With forgotten keys certification is coarse, so even a reserved row can be lost.
        if !plan.reserves_late && dice.percent(30) {
            plan.keys_max = *dice.pick(&[0, 0, 2, 8]);
        }
        if dice.percent(20) {
            let forks = Some(*dice.pick(&[ReadCommitted, RepeatableRead, Serializable]));
            let flavour =
                Flavour { forks, any_home: 100, unpredicted: *dice.pick(&[0, 90]), ddl: None, ..flavour };
            plan.sessions = flavour.sessions(dice.between(6, 9), dice);
            plan.crowd_the_way(dice);
        }
        plan.may_repeat_reads(&mut of_repeats);
        plan
    }

    /// Turns the plan into one with statements of many new rows, most of them unpredicted. In half of these plans, backends
    /// die after their last reply, and the node notices late.
    fn load(&mut self, flavour: &Flavour, dice: &mut Dice) {
        let flavour = Flavour {
            bank: 0,
            visitors: 0,
            loads: *dice.pick(&[60, 90]),
            unknown: flavour.unknown / 10,
            any_home: flavour.any_home.max(*dice.pick(&[0, 90])),
            unpredicted: *dice.pick(&[20, 60, 90, 90]),
            ..*flavour
        };
        self.reserves_late &= dice.percent(50);
        self.pace.refresh_us = *dice.pick(&[0, 200, 3_000, 3_000]);
        self.pace.think_us = *dice.pick(&[10, 10, 200]);
        self.sessions = flavour.sessions(dice.between(3, 8), dice);
        self.row_claims_max = dice.below(3) as usize;
        if dice.percent(50) {
            self.pace.notice_us = 5_000;
            for _ in 0..dice.between(4, 16) {
                let after_us = dice.delay(100);
                let kill = if dice.percent(25) {
                    Fault::KillAfterIdentity { after_us }
                } else {
                    Fault::KillWhileItWaits { after_us }
                };
                self.faults.push((dice.below(20_000), kill));
            }
            self.faults.sort_by_key(|(at, _)| *at);
        }
    }
}

fn draw_pace(dice: &mut Dice, is_crowded: bool) -> Pace {
    Pace {
        network_us: dice.between(1, 100),
        op_us: dice.between(1, 100),
        fsync_us: *dice.pick(&[50, 300, 2_000]),
        show_us: dice.between(1, 100),
        think_us: *dice.pick(&[10, 200, 1_000]),
        flush_us: *dice.pick(&[500, 5_000, 50_000]),
        notice_us: if is_crowded { 5_000 } else { *dice.pick(&[20, 500, 3_000]) },
        refresh_us: *dice.pick(&[0, 0, 200, 3_000]),
        batching_us: 0,
        read_us: 0,
        takeover_us: *dice.pick(&[None, Some(1), Some(500), Some(3_000)]),
    }
}

fn draw_faults(dice: &mut Dice, replicas: u16, is_crowded: bool) -> Vec<(u64, Fault)> {
    let count = if dice.percent(30) { 0 } else { dice.between(1, 6) };
    let mut faults: Vec<_> = (0..count)
        .map(|_| match dice.below(2) {
            0 if is_crowded => (dice.below(1_000), Fault::KillAfterAppend { after_us: dice.below(50) }),
            1 if is_crowded => (dice.below(1_000), Fault::KillAfterIdentity { after_us: dice.below(20) }),
            _ => (dice.below(FAULTS_UNTIL_US), draw_fault(dice, replicas)),
        })
        .collect();
    faults.sort_by_key(|(at, _)| *at);
    faults
}

fn draw_fault(dice: &mut Dice, replicas: u16) -> Fault {
    let replica = dice.index(usize::from(replicas));
    match dice.below(32) {
        0 | 1 => Fault::ServerCrash { replica, down_us: dice.delay(3_000) },
        2 => Fault::ServerCrash { replica: 0, down_us: dice.delay(1_000) },
        3 | 4 => Fault::BackendKill,
        5..=8 => Fault::KillAfterAppend { after_us: dice.delay(400) },
        9 => Fault::AgentKill { replica },
        10 => Fault::NodeCrash { down_us: dice.delay(3_000) },
        11..=13 => Fault::KillAfterIdentity { after_us: dice.delay(100) },
        14 => Fault::SlowRefresh { replica, for_us: dice.delay(10_000) },
        15 | 16 => Fault::DiskError { down_us: dice.delay(3_000) },
        17 | 18 => Fault::Partition { replica, for_us: dice.delay(3_000), resets: dice.percent(50) },
        19 | 20 => Fault::Stall { for_us: dice.delay(2_000) },
        21 => Fault::ClockJump { by_us: dice.number() >> dice.between(2, 60) },
        22 => Fault::Refuse { replica: usize::from(replicas - 1) },
        23 | 24 => Fault::Hold { for_us: dice.delay(1_000), patience_us: dice.delay(5_000) },
        25 | 26 => Fault::Rebuild { replica, for_us: dice.delay(3_000) },
        27 => Fault::Leave { replica, for_us: dice.delay(3_000) },
        28 => Fault::Drain { replica, for_us: dice.delay(5_000) },
        29 | 30 => {
            let table = dice.between(1, u64::from(schema::STOCK)) as u8;
            Fault::Place { replica, table, for_us: dice.delay(2_000) }
        }
        _ => Fault::SlowDisk { by_us: dice.delay(5_000) },
    }
}

/// The kind of schema changes in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ddl {
    /// The analysis cannot bound them.
    Unknown,
    /// They are known to concern the view, which writing transactions use.
    Bounded,
}

impl Ddl {
    fn draw(dice: &mut Dice) -> Self {
        *dice.pick(&[Self::Unknown, Self::Bounded, Self::Bounded])
    }
}

/// The mix of programs in one run.
#[derive(Debug)]
struct Flavour {
    /// All programs use the same few rows, and losses are noticed late.
    is_crowded: bool,
    tied: bool,
    /// All programs use the tables tied to this one.
    only: Option<u8>,
    ddl: Option<Ddl>,
    hot: u8,
    unknown: u64,
    vanishing: u64,
    cancelling: u64,
    savepoints: u64,
    /// Per cent of the programs: transfers, visitors, registers, inserts of many rows.
    bank: u64,
    visitors: u64,
    registers: u64,
    loads: u64,
    /// All programs are small, use few rows, and have this level.
    forks: Option<Level>,
    /// Per cent of the programs: with any home, with unpredicted writes, known by tables only.
    any_home: u64,
    unpredicted: u64,
    coarse: u64,
}

/// A statement that the analysis can bound.
pub(super) fn known(ops: Vec<Op>) -> Statement {
    Statement { ops, is_unknown: false, is_ddl: false }
}

impl Flavour {
    fn sessions(&self, clients: u64, dice: &mut Dice) -> Vec<Vec<Program>> {
        let programs = |dice: &mut Dice| {
            let count = dice.between(2, PROGRAMS_MAX);
            (0..count).map(|_| self.program(dice)).collect()
        };
        (0..clients).map(|_| programs(dice)).collect()
    }

    fn program(&self, dice: &mut Dice) -> Program {
        let part = dice.below(100);
        let (frame, level, mut statements) = match part {
            _ if let Some(level) = self.forks => forks::draw(level, dice),
            _ if part < self.bank => bank(dice),
            _ if part < self.bank + self.visitors / 2 => visitors(dice),
            _ if part < self.bank + self.visitors / 2 + self.registers / 2 => self.register(dice),
            _ if part < self.loads => load::draw(dice),
            _ => self.lists(dice),
        };
        if frame == Frame::Block && dice.percent(self.savepoints) {
            let first = dice.index(statements.len());
            statements.insert(first, known(vec![Op::Savepoint]));
            // Rolling back half a transfer would break the total by the client's own doing.
            if part >= self.bank && dice.percent(70) {
                let back = dice.between(first as u64 + 1, statements.len() as u64) as usize;
                statements.insert(back, known(vec![Op::RollbackTo]));
            }
        }
        let ending = if dice.percent(self.vanishing) {
            Ending::Vanish(dice.delay(3_000))
        } else if frame != Frame::Autocommit && dice.percent(8) {
            Ending::Rollback
        } else {
            Ending::Commit
        };
        let cancel_us = dice.percent(self.cancelling).then(|| dice.delay(2_000));
        let retries = dice.below(3) as u32;
        let has_ddl = statements.iter().any(|statement| statement.is_ddl);
        Program {
            level,
            frame,
            statements,
            ending,
            cancel_us,
            retries,
            has_any_home: !has_ddl && dice.percent(self.any_home),
            is_unpredicted: dice.percent(self.unpredicted),
            is_coarse: dice.percent(self.coarse),
            is_grouped: dice.percent(50),
            knows_columns: dice.percent(50),
        }
    }

    fn lists(&self, dice: &mut Dice) -> (Frame, Level, Vec<Statement>) {
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
        (frame, level, (0..count).map(|_| self.statement(dice, frame)).collect())
    }

    /// Reads a value and writes one computed from it, under a lock or in one snapshot.
    fn register(&self, dice: &mut Dice) -> (Frame, Level, Vec<Statement>) {
        let key = self.plain(dice);
        let level = *dice.pick(&[ReadCommitted, RepeatableRead, Serializable]);
        let look = if level == ReadCommitted { Op::Lock(key) } else { Op::Read(key) };
        let mut statements = vec![known(vec![look]), known(vec![Op::Update(key)])];
        if dice.percent(30) {
            statements.insert(1, self.statement(dice, Frame::Block));
        }
        (Frame::Block, level, statements)
    }

    fn statement(&self, dice: &mut Dice, frame: Frame) -> Statement {
        let in_block = self.ddl.filter(|_| frame == Frame::Block);
        if let Some(ddl) = in_block.filter(|_| dice.percent(15)) {
            return Statement {
                ops: vec![Op::Update(Key::VIEW)],
                is_unknown: ddl == Ddl::Unknown,
                is_ddl: true,
            };
        }
        let mut ops = Vec::new();
        if in_block == Some(Ddl::Bounded) && dice.percent(25) {
            ops.push(Op::ReadView);
        }
        let writes = frame != Frame::ReadOnly && dice.percent(55);
        if writes {
            for _ in 0..*dice.pick(&[1, 1, 1, 2, 3]) {
                if dice.percent(25) {
                    ops.push(Op::Read(self.plain(dice)));
                }
                ops.push(self.write(dice));
            }
        } else if self.ddl.is_some() && frame == Frame::Autocommit && dice.percent(50) {
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
            Some(_) => Key { table: CHILDREN, row: dice.below(2) as u8 },
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

/// A row of the tied tables, without parents that have no children.
fn tied(dice: &mut Dice) -> Key {
    let table = dice.between(u64::from(UNIQUE), u64::from(CHILDREN)) as u8;
    let rows = if table == PARENTS { ROWS / 2 } else { ROWS };
    Key { table, row: dice.below(u64::from(rows)) as u8 }
}

/// Transfers money between two accounts, or reads all of them.
fn bank(dice: &mut Dice) -> (Frame, Level, Vec<Statement>) {
    let level = *dice.pick(&[ReadCommitted, RepeatableRead, Serializable]);
    let amount = dice.between(1, 9).cast_signed();
    let from = dice.below(u64::from(ROWS)) as u8;
    let to = (from + dice.between(1, u64::from(ROWS) - 1) as u8) % ROWS;
    let [take, give] =
        [(from, -amount), (to, amount)].map(|(row, amount)| Op::Move(Key { table: ACCOUNTS, row }, amount));
    let look = || known(vec![Op::Total]);
    match dice.below(6) {
        0 => (Frame::Autocommit, ReadCommitted, vec![known(vec![take, give])]),
        1 | 2 => (Frame::Block, level, vec![known(vec![take]), known(vec![give])]),
        3 => (Frame::Block, level, vec![look(), known(vec![take]), known(vec![give])]),
        4 => (Frame::Autocommit, ReadCommitted, vec![look()]),
        _ => (Frame::ReadOnly, level, vec![look(), look()]),
    }
}

/// Inserts and deletes visitors, or reads them by a predicate and writes depending on the result.
fn visitors(dice: &mut Dice) -> (Frame, Level, Vec<Statement>) {
    let level = *dice.pick(&[ReadCommitted, RepeatableRead, Serializable, Serializable]);
    let key = Key { table: VISITORS, row: dice.below(u64::from(ROWS)) as u8 };
    let look = || known(vec![Op::Scan(VISITORS)]);
    let change = match dice.below(4) {
        0 | 1 => known(vec![Op::Insert(key)]),
        2 => known(vec![Op::Delete(key)]),
        // A write by a predicate: all rows that exist.
        _ => known(schema::rows_of(VISITORS).map(Op::Update).collect()),
    };
    match dice.below(6) {
        0 => (Frame::Autocommit, ReadCommitted, vec![look()]),
        1 => (Frame::ReadOnly, level, vec![look(), look()]),
        2 | 3 => (Frame::Autocommit, ReadCommitted, vec![change]),
        _ => (Frame::Block, level, vec![look(), change]),
    }
}
