//! Programs that insert many rows into a table at once, and others that use the same table meanwhile.
//!
//! Plans with these programs have a low limit of row claims, so a statement of three new rows stands for one of thousands.

use super::draw::known;
use super::{Frame, Statement};
use crate::dice::Dice;
use crate::history::Level;
use crate::schema::{self, Key, PARENTS, ROWS, STOCK, STOCK_ROWS, UNIQUE, VISITORS};
use crate::server::Op;

use Level::{ReadCommitted, RepeatableRead, Serializable};

/// Draws such a program.
pub(super) fn draw(dice: &mut Dice) -> (Frame, Level, Vec<Statement>) {
    let level = *dice.pick(&[ReadCommitted, ReadCommitted, RepeatableRead, Serializable]);
    match dice.below(14) {
        0..=2 => (Frame::Autocommit, ReadCommitted, vec![many(dice)]),
        3..=5 => (Frame::Block, level, around(dice)),
        6 => (Frame::Autocommit, ReadCommitted, vec![known(vec![Op::Scan(STOCK)])]),
        7 => (Frame::Block, ReadCommitted, under_lock(dice)),
        8 => (Frame::Block, level, vec![known(vec![Op::Scan(STOCK)]), known(vec![one(dice)])]),
        9 | 10 => (Frame::Autocommit, ReadCommitted, vec![all(dice)]),
        _ => (Frame::Autocommit, ReadCommitted, vec![known(vec![one(dice)])]),
    }
}

/// An INSERT of many rows, mostly into the stock table.
fn many(dice: &mut Dice) -> Statement {
    let table = *dice.pick(&[STOCK, STOCK, STOCK, STOCK, STOCK, PARENTS, VISITORS, UNIQUE]);
    let mut rows: Vec<u8> = schema::rows_of(table).map(|key| key.row).collect();
    let count = *dice.pick(&[2, 2, 3, 4]);
    let mut ops = Vec::new();
    for _ in 0..count {
        let row = rows.remove(dice.index(rows.len()));
        ops.push(Op::Insert(Key { table, row }));
    }
    known(ops)
}

/// The same with other statements before and after it.
fn around(dice: &mut Dice) -> Vec<Statement> {
    let mut statements = vec![many(dice)];
    if dice.percent(40) {
        statements.insert(0, beside(dice));
    }
    for _ in 0..dice.below(3) {
        statements.push(beside(dice));
    }
    statements
}

fn beside(dice: &mut Dice) -> Statement {
    let plain = Key { table: 1, row: dice.below(u64::from(ROWS)) as u8 };
    let op = match dice.below(5) {
        0 => Op::Update(plain),
        1 => Op::Read(plain),
        2 => Op::Scan(STOCK),
        _ => one(dice),
    };
    known(vec![op])
}

/// Another program: it writes one row of the table, or of a table that it refers to.
fn one(dice: &mut Dice) -> Op {
    let key = Key { table: STOCK, row: dice.below(u64::from(STOCK_ROWS)) as u8 };
    let parent = Key { table: PARENTS, row: dice.below(2) as u8 };
    match dice.below(10) {
        0..=3 => Op::Insert(key),
        4..=6 => Op::Delete(key),
        7 => (if dice.percent(50) { Op::Update } else { Op::Lock })(key),
        8 => Op::Delete(parent),
        _ => Op::Insert(parent),
    }
}

/// Every row of a table.
fn all(dice: &mut Dice) -> Statement {
    let ops: [fn(Key) -> Op; 5] = [Op::Update, Op::Lock, Op::Delete, Op::Delete, Op::Delete];
    let op = *dice.pick(&ops);
    let table = *dice.pick(&[STOCK, STOCK, STOCK, PARENTS]);
    known(schema::rows_of(table).map(op).collect())
}

/// Reads the table under a lock, and writes depending on the result.
fn under_lock(dice: &mut Dice) -> Vec<Statement> {
    let table = *dice.pick(&[STOCK, STOCK, PARENTS]);
    vec![known(vec![Op::LockTable(table)]), beside(dice), known(vec![Op::Update(Key { table: 2, row: 0 })])]
}
