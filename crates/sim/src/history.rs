//! The operations of clients and their results: the input of the judges, from the simulator or from real servers.
//!
//! A history is a list of transactions. The value of a row is a list, and each write appends an element of its own. As JSON
//! lines each transaction is one line; the last line holds the rows at the end (`{"final": [{"row": 1, "list": [7, 9]}]}`)
//! and the total of the bank's accounts, if there is a bank. Times are microseconds of one clock on the clients' side.

use serde::{Deserialize, Serialize};

/// The element that a write appends. No two writes append the same.
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

/// The outcome of a transaction, as far as the client knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The client has the reply to COMMIT.
    Committed,
    /// The client got an error, or rolled back.
    Aborted,
    /// The client got no answer.
    Unknown,
}

/// A row as a transaction saw it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// The row.
    pub row: u32,
    /// The elements in it.
    pub list: Vec<Element>,
}

/// An append.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Write {
    /// The row.
    pub row: u32,
    /// The appended element.
    pub element: Element,
    /// The list before the append, if the server returned it.
    #[serde(default)]
    pub base: Option<Vec<Element>>,
    /// The write deleted the row.
    #[serde(default)]
    pub is_gone: bool,
}

/// A read by a predicate: which of these rows existed.
///
/// Only for rows that do not exist before their first write.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Scan {
    /// Every row that it could have found.
    pub of: Vec<u32>,
    /// The rows that it found.
    pub found: Vec<Seen>,
}

/// One statement, with or without a reply.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Statement {
    /// When the client sent it.
    pub begin_us: u64,
    /// When the client had the reply. 0 if it had none; then its reads do not count.
    pub end_us: u64,
    /// Rows as of its snapshot.
    #[serde(default)]
    pub reads: Vec<Seen>,
    /// Rows as of the moment of the check, each by itself: the reasons of errors and of "0 rows".
    #[serde(default)]
    pub latest: Vec<Seen>,
    /// Rows locked by SELECT FOR UPDATE, as they were under the lock.
    #[serde(default)]
    pub locked: Vec<Seen>,
    /// Reads by predicates, as of its snapshot.
    #[serde(default)]
    pub scans: Vec<Scan>,
    /// The total of all accounts of the bank, as of its snapshot.
    #[serde(default)]
    pub total: Option<i64>,
    /// It moved money between accounts.
    #[serde(default)]
    pub moves: bool,
    /// SAVEPOINT or ROLLBACK TO: it takes no snapshot.
    #[serde(default)]
    pub is_control: bool,
    /// The index of the ROLLBACK TO in this transaction that undid the statement.
    #[serde(default)]
    pub undone_by: Option<usize>,
    /// Its writes.
    #[serde(default)]
    pub writes: Vec<Write>,
}

/// One transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transaction {
    /// The number of the client.
    pub session: u32,
    /// The isolation level.
    pub level: Level,
    /// The outcome.
    pub outcome: Outcome,
    /// When the client sent COMMIT, or the single statement of an autocommit transaction.
    pub finish_us: u64,
    /// When the client had the outcome; 0 if never.
    pub end_us: u64,
    /// Its statements.
    pub statements: Vec<Statement>,
}

impl Transaction {
    /// The writes that its COMMIT makes visible.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.statements.iter().filter(|s| s.undone_by.is_none()).flat_map(|s| &s.writes)
    }

    /// Whether all its statements share one snapshot.
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
    /// All transactions in the order of their beginning.
    pub transactions: Vec<Transaction>,
    /// The rows at the end, after all transactions.
    pub finals: Vec<Seen>,
    /// The total of all accounts of the bank; transfers keep it constant.
    pub total: Option<i64>,
}

/// A line that could not be read.
#[derive(Debug)]
pub struct BadLine {
    /// The number of the line, from 1.
    pub line: usize,
    /// The reason.
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
