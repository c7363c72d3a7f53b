//! Programs in which sessions ask again what they or others have asked before, with writes of the same rows between, so that kept
//! answers are given again (`world/cache.rs`) and grow old.

use super::{Ending, Frame, Plan, Program, Statement};
use crate::dice::Dice;
use crate::history::Level;
use crate::schema::{self, Key, VIEW_TABLES};
use crate::server::Op;

/// Makes the random choices of this file independent of all others, so that the other plans stay as they are.
const OWN_SEED: u64 = 0x5245_5045_4154;

/// In so many of a hundred plans sessions keep answers.
const PERCENT: u64 = 20;

/// In so many of a hundred plans reads stay where their sessions were.
pub(super) const STAYS_PERCENT: u64 = 50;

/// The generator of this file's choices, from the one that draws the rest of the plan.
pub(super) fn own_dice(dice: &Dice) -> Dice {
    Dice::new(dice.clone().number() ^ OWN_SEED)
}

impl Plan {
    /// In some plans sessions keep answers, and ask a few questions again and again.
    pub(super) fn may_repeat_reads(&mut self, dice: &mut Dice) {
        if !dice.percent(PERCENT) {
            return;
        }
        self.keeps_answers = true;
        let questions = self.questions(dice);
        let (again, writes) = (*dice.pick(&[40, 70]), *dice.pick(&[5, 20, 40]));
        for programs in &mut self.sessions {
            for program in std::mem::take(programs) {
                programs.push(program);
                while dice.percent(again) {
                    programs.push(dice.pick(&questions).clone());
                }
                if dice.percent(writes) {
                    let question = &dice.pick(&questions).statements[0];
                    programs.extend(write_of(question, dice));
                }
            }
        }
    }

    /// Some reads that the plan has anyway, of one table, and of the view if its definition changes.
    fn questions(&self, dice: &mut Dice) -> Vec<Program> {
        let is_question = |program: &&Program| {
            let statement = &program.statements[0];
            program.frame == Frame::Autocommit && statement.is_read() && !statement.is_unknown
        };
        let asked: Vec<&Program> = self.sessions.iter().flatten().filter(is_question).collect();
        let mut questions = Vec::new();
        if !asked.is_empty() {
            questions.extend((0..dice.between(1, 3)).map(|_| (*dice.pick(&asked)).clone()));
        }
        let table = dice.between(1, 3) as u8;
        let rows: Vec<Key> = schema::rows_of(table).collect();
        let ops = if dice.percent(50) { rows } else { vec![*dice.pick(&rows)] };
        questions.push(alone(ops.into_iter().map(Op::Read).collect(), dice));
        if self.sessions.iter().flatten().any(Program::changes_view) {
            questions.push(alone(vec![Op::ReadView], dice));
        }
        for question in &mut questions {
            (question.ending, question.cancel_us) = (Ending::Commit, None);
        }
        questions
    }
}

/// A transaction of one statement.
fn alone(ops: Vec<Op>, dice: &mut Dice) -> Program {
    Program {
        level: Level::ReadCommitted,
        frame: Frame::Autocommit,
        statements: vec![Statement { ops, is_unknown: false, is_ddl: false }],
        ending: Ending::Commit,
        cancel_us: None,
        retries: 0,
        has_any_home: dice.percent(50),
        is_unpredicted: false,
        is_coarse: dice.percent(20),
        is_grouped: false,
        knows_columns: dice.percent(50),
    }
}

/// A write of a row that the question reads, if it is one that always exists.
fn write_of(question: &Statement, dice: &mut Dice) -> Option<Program> {
    let key = match dice.pick(&question.ops) {
        Op::Read(key) if key.is_present_at_start() && key.table < schema::ACCOUNTS => *key,
        Op::ReadView => {
            Key { table: *dice.pick(&VIEW_TABLES), row: dice.below(u64::from(schema::ROWS)) as u8 }
        }
        _ => return None,
    };
    Some(alone(vec![Op::Update(key)], dice))
}
