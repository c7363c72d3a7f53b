//! Programs that can show a long fork: small writes that commit at the same time, and reads of all their rows.
//!
//! A read may be sent before any of the writes is durable and execute between two of them. So it sees the order in which
//! the commits become visible at its replica, and another read sees the order at another replica.

use cluster::claims::ROW_CLAIMS_MAX;
use cluster::placement::Placement;
use cluster::protocols::rows::KEYS_MAX;

use super::draw::known;
use super::{Frame, Plan, Statement};
use crate::dice::Dice;
use crate::history::Level;
use crate::schema::{self, Key, ROWS};
use crate::server::Op;

/// The number of tables whose rows are not tied to others.
const TABLES: u8 = 2;

/// Draws such a program. In one run all have the same level.
pub(super) fn draw(level: Level, dice: &mut Dice) -> (Frame, Level, Vec<Statement>) {
    let mut any =
        || Key { table: dice.between(1, u64::from(TABLES)) as u8, row: dice.below(u64::from(ROWS)) as u8 };
    let (update, other) = (known(vec![Op::Update(any())]), any());
    let look = known((1..=TABLES).flat_map(schema::rows_of).map(Op::Read).collect());
    match dice.below(6) {
        0..=2 if level == Level::Serializable => {
            (Frame::Block, level, vec![known(vec![Op::Read(other)]), update])
        }
        0..=2 => (Frame::Autocommit, level, vec![update]),
        3 => (Frame::ReadOnly, level, vec![look.clone(), look]),
        _ => (Frame::Autocommit, level, vec![look]),
    }
}

impl Plan {
    /// Adjusts the plan so that many commits are under way at the same time.
    pub(super) fn crowd_the_way(&mut self, dice: &mut Dice) {
        let pace = &mut self.pace;
        (pace.network_us, pace.op_us, pace.think_us) = (dice.between(20, 200), dice.between(1, 20), 10);
        (pace.fsync_us, pace.show_us) = (dice.between(100, 1_000), dice.between(50, 1_000));
        pace.read_us = dice.between(500, 3_000);
        (pace.refresh_us, pace.batching_us) = (0, 0);
        if dice.percent(70) {
            self.faults.clear();
        }
        self.placement = Placement::full(self.replicas);
        self.refresh_versions_max = *dice.pick(&[1, 1, 2]);
        (self.reserves_late, self.keys_max, self.row_claims_max) =
            (dice.percent(50), KEYS_MAX, ROW_CLAIMS_MAX);
    }
}
