//! What clients did and saw: the input of the checkers, from the simulator or from real servers.
//!
//! A history is a list of transactions over rows whose value is a list; a write appends an element that no other write
//! ever appends. As JSON lines each transaction is one line, and the last line holds the rows as they were at the end
//! (`{"final": [{"row": 1, "list": [7, 9]}]}`), and what all accounts
//! of the bank hold together, if there is one. Times are microseconds of one clock on the clients' side.

use serde::{Deserialize, Serialize};

/// What a write appends; no two writes append the same.
pub type Element = u64;

/// The level of isolation that the client asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Each statement has a snapshot of its own.
    ReadCommitted,
    /// One snapshot for the whole transaction.
    RepeatableRead,
    /// One after another.
    Serializable,
}

/// How it ended, as far as the client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client has the reply to COMMIT.
    Committed,
    /// The client was told that it failed, or rolled back.
    Aborted,
    /// The client was not told.
    Unknown,
}

/// A row as somebody saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// Which row.
    pub row: u32,
    /// Its list.
    pub list: Vec<Element>,
}

/// An append.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Write {
    /// To which row.
    pub row: u32,
    /// What.
    pub element: Element,
    /// The list that it was appended to, where the server told it.
    #[serde(default)]
    pub base: Option<Vec<Element>>,
    /// The row was deleted by this, for now.
    #[serde(default)]
    pub is_gone: bool,
}

/// A read by a predicate: of all these rows, those that were there.
///
/// Only for rows that are not there before they are first written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scan {
    /// Every row that it could have shown.
    pub of: Vec<u32>,
    /// Those that it showed.
    pub found: Vec<Seen>,
}

/// One statement whose reply the client has, or may have missed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Statement {
    /// When the client sent it.
    pub begin_us: u64,
    /// When the client had the reply; 0 if it never had one, and then nothing counts that it saw.
    pub end_us: u64,
    /// What it saw at its snapshot.
    #[serde(default)]
    pub reads: Vec<Seen>,
    /// What it saw as it was at that very moment, each by itself: the reasons of errors and of "0 rows".
    #[serde(default)]
    pub latest: Vec<Seen>,
    /// What it locked (SELECT FOR UPDATE), as it was under the lock.
    #[serde(default)]
    pub locked: Vec<Seen>,
    /// What it saw by predicates, at its snapshot.
    #[serde(default)]
    pub scans: Vec<Scan>,
    /// What all accounts of the bank hold together, as it saw them at its snapshot.
    #[serde(default)]
    pub total: Option<i64>,
    /// It moved money between accounts.
    #[serde(default)]
    pub moves: bool,
    /// SAVEPOINT or ROLLBACK TO: it takes no snapshot.
    #[serde(default)]
    pub is_control: bool,
    /// The statement of this transaction, counted from 0, that took it back: ROLLBACK TO.
    #[serde(default)]
    pub undone_by: Option<usize>,
    /// What it wrote.
    #[serde(default)]
    pub writes: Vec<Write>,
}

/// One transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// Of which client.
    pub session: u32,
    /// At which level.
    pub level: Level,
    /// How it ended.
    pub outcome: Outcome,
    /// When the client asked for the end: sent COMMIT, or the one statement of an autocommit transaction.
    pub finish_us: u64,
    /// When the client had the outcome; 0 if never.
    pub end_us: u64,
    /// What it did.
    pub statements: Vec<Statement>,
}

impl Transaction {
    /// The writes that its COMMIT makes visible.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.statements.iter().filter(|s| s.undone_by.is_none()).flat_map(|s| &s.writes)
    }

    /// Whether it asked for one snapshot.
    pub fn keeps_snapshot(&self) -> bool {
        self.level != Level::ReadCommitted
    }
}

/// An error that a client was sent. The judges need only the outcome of its transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientError {
    /// Index of the transaction in the history.
    pub transaction: usize,
    /// When it was sent.
    pub at_us: u64,
    /// The SQLSTATE.
    pub code: &'static str,
}

/// Everything that the clients of one run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// In the order of their beginning.
    pub transactions: Vec<Transaction>,
    /// The rows at the end, when everything was quiet.
    pub finals: Vec<Seen>,
    /// What all accounts of the bank hold together, always.
    pub total: Option<i64>,
}

/// A line that is no transaction.
#[derive(Debug)]
pub struct BadLine {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} is neither a transaction nor the final rows: {}", self.line, self.why)
    }
}

impl std::error::Error for BadLine {}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    Transaction(Transaction),
    Final {
        #[serde(rename = "final")]
        rows: Vec<Seen>,
        #[serde(default)]
        total: Option<i64>,
    },
}

impl History {
    /// Reads JSON lines.
    pub fn from_json_lines(text: &str) -> Result<Self, BadLine> {
        let mut history = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            match serde_json::from_str(line) {
                Ok(Line::Transaction(transaction)) => history.transactions.push(transaction),
                Ok(Line::Final { rows, total }) => {
                    history.finals.extend(rows);
                    history.total = history.total.or(total);
                }
                Err(error) => return Err(BadLine { line: number + 1, why: error.to_string() }),
            }
        }
        Ok(history)
    }

    /// Writes JSON lines.
    pub fn to_json_lines(&self) -> String {
        let mut lines: Vec<String> = Vec::new();
        let mut push = |line: &Line| {
            lines.push(serde_json::to_string(line).expect("numbers and lists have a JSON form"));
        };
        self.transactions.iter().for_each(|t| push(&Line::Transaction(t.clone())));
        push(&Line::Final { rows: self.finals.clone(), total: self.total });
        lines.join("\n") + "\n"
    }
}
