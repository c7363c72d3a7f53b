//! Formats a plan for a person, mostly after shrinking.

use std::fmt;

use cluster::claims::ROW_CLAIMS_MAX;
use cluster::protocols::rows::{KEYS_MAX, PATIENCE_US, REFRESH_VERSIONS_MAX};

use super::{Ending, Frame, Plan, Program, Statement};
use crate::schema::{self, Key};
use crate::server::Op;

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} replicas", self.replicas)?;
        for replica in 0..usize::from(self.replicas) {
            let lacks = |table: &u8| !schema::holds(&self.placement, replica, Key { table: *table, row: 0 });
            let missing: Vec<u8> = (0..=schema::STOCK).filter(lacks).collect();
            if !missing.is_empty() {
                writeln!(f, "replica {replica} does not hold the tables {missing:?}")?;
            }
        }
        for (client, programs) in self.sessions.iter().enumerate() {
            for program in programs {
                writeln!(f, "client {client}: {program}")?;
            }
        }
        for (at_us, fault) in &self.faults {
            writeln!(f, "at {at_us} us: {fault:?}")?;
        }
        let decision = if self.reserves_late { "reserved late" } else { "certified only" };
        writeln!(f, "{:?}, the node's clock begins at {} us", self.pace, self.clock_us)?;
        writeln!(f, "unpredicted rows are {decision}")?;
        if self.row_claims_max != ROW_CLAIMS_MAX {
            writeln!(f, "more than {} rows claim their table", self.row_claims_max)?;
        }
        if !self.foresees_tables {
            writeln!(f, "transactions know the tables of their first statement only")?;
        }
        if self.keeps_answers {
            writeln!(f, "sessions keep answers")?;
        }
        if self.stays {
            writeln!(f, "reads stay where all versions are")?;
        }
        if self.patience_us != PATIENCE_US {
            writeln!(f, "transactions wait in chains for {} us", self.patience_us)?;
        }
        if self.refresh_versions_max != REFRESH_VERSIONS_MAX {
            writeln!(f, "{} versions are refreshed at a time", self.refresh_versions_max)?;
        }
        if self.keys_max != KEYS_MAX {
            writeln!(f, "{} keys are remembered", self.keys_max)?;
        }
        Ok(())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = match self.frame {
            Frame::Autocommit => "autocommit",
            Frame::ReadOnly => "begin read only",
            Frame::Block => "begin",
        };
        write!(f, "{:?}, {frame}", self.level)?;
        for statement in &self.statements {
            write!(f, "; {statement}")?;
        }
        match self.ending {
            Ending::Commit if self.frame == Frame::Autocommit => {}
            Ending::Commit => write!(f, "; commit")?,
            Ending::Rollback => write!(f, "; rollback")?,
            Ending::Vanish(after_us) => write!(f, "; vanishes after {after_us} us")?,
        }
        if let Some(after_us) = self.cancel_us {
            write!(f, "; cancels after {after_us} us")?;
        }
        if self.retries > 0 {
            write!(f, "; tries again {} times", self.retries)?;
        }
        Ok(())
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.ops.iter().map(word).collect();
        let unknown = if self.is_unknown { "unknown: " } else { "" };
        write!(f, "{unknown}{}", words.join(", "))
    }
}

fn word(op: &Op) -> String {
    let at = |key: &Key| format!("{}/{}", key.table, key.row);
    match op {
        Op::Read(key) => format!("read {}", at(key)),
        Op::ReadView => "read the view".to_owned(),
        Op::Update(key) => format!("update {}", at(key)),
        Op::Insert(key) => format!("insert {}", at(key)),
        Op::Delete(key) => format!("delete {}", at(key)),
        Op::Lock(key) => format!("lock {}", at(key)),
        Op::LockTable(table) => format!("lock table {table}"),
        Op::Move(key, amount) => format!("move {amount} to {}", at(key)),
        Op::Scan(table) => format!("scan {table}"),
        Op::Total => "total".to_owned(),
        Op::Savepoint => "savepoint".to_owned(),
        Op::RollbackTo => "rollback to".to_owned(),
        Op::OwnSavepoint => "own savepoint".to_owned(),
        Op::RollbackToOwn => "rollback to own savepoint".to_owned(),
        Op::Put(key, ..) => format!("refresh {}", at(key)),
    }
}
