//! The four workloads of the literature as data: a schema, and the statements of each interaction in order.
//!
//! The texts lie in `crates/testbed/workloads`, where README.md defines their format; they are the same that the golden
//! files of the crate `sql` classify. Nothing here knows how parameters are drawn or how often an interaction comes.

use std::collections::BTreeMap;
use std::fmt;

/// Name, schema and transactions of each workload.
const TEXTS: [(&str, &str, &str); 4] = [
    (
        "tpcw",
        include_str!("../workloads/tpcw/schema.sql"),
        include_str!("../workloads/tpcw/transactions.sql"),
    ),
    (
        "tpcc",
        include_str!("../workloads/tpcc/schema.sql"),
        include_str!("../workloads/tpcc/transactions.sql"),
    ),
    (
        "rubis",
        include_str!("../workloads/rubis/schema.sql"),
        include_str!("../workloads/rubis/transactions.sql"),
    ),
    (
        "rubbos",
        include_str!("../workloads/rubbos/schema.sql"),
        include_str!("../workloads/rubbos/transactions.sql"),
    ),
];

/// Values of every built-in type, most of them at its edges, each as text. The head of the file defines its format; the
/// test `values` of `crates/onecopy` reads the same file.
pub const BUILTIN_VALUES: &str = include_str!("../workloads/values/builtin.txt");

/// A workload.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// Its tables and indexes as DDL.
    pub schema: &'static str,
    /// Every distinct statement, by its name.
    pub queries: BTreeMap<&'static str, String>,
    /// Its interactions, in the order of the file.
    pub interactions: Vec<Interaction>,
}

/// The statements of a client for one interaction, when every branch is taken once.
#[derive(Debug, PartialEq, Eq)]
pub struct Interaction {
    /// Its name.
    pub name: &'static str,
    /// The statements, in order.
    pub steps: Vec<Step>,
}

/// One thing that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A transaction of this name begins.
    Begin(&'static str),
    /// The statement of this name.
    Query(&'static str),
    /// The transaction ends.
    Commit,
}

/// A file of transactions is not as its README says.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The line, counted from 1.
    line: usize,
    what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// All workloads.
pub fn all() -> Vec<Workload> {
    TEXTS.into_iter().map(|(name, schema, transactions)| read(name, schema, transactions)).collect()
}

/// A workload whose texts these are; they are built in, and a test reads them.
pub fn read(name: &'static str, schema: &'static str, transactions: &'static str) -> Workload {
    let read = transactions_of(transactions).expect("a test reads the files that are built in");
    Workload { name, schema, queries: read.queries, interactions: read.interactions }
}

/// The workload of that name among those of the literature.
pub fn named(name: &str) -> Option<Workload> {
    TEXTS
        .into_iter()
        .find(|(known, ..)| *known == name)
        .map(|(name, schema, transactions)| read(name, schema, transactions))
}

/// The part of a file that was read so far.
#[derive(Default)]
struct Reader {
    interactions: Vec<Interaction>,
    queries: BTreeMap<&'static str, String>,
    /// The query that a text may follow now, and its lines so far.
    open: Option<(&'static str, String)>,
    in_transaction: bool,
}

/// Reads a file of transactions.
fn transactions_of(text: &'static str) -> Result<Reader, Malformed> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        reader.line(line).map_err(|what| Malformed { line: number + 1, what })?;
    }
    reader.close().map_err(|what| Malformed { line: text.lines().count(), what })?;
    if reader.in_transaction {
        return Err(Malformed { line: text.lines().count(), what: "a transaction stays open" });
    }
    Ok(reader)
}

impl Reader {
    fn line(&mut self, line: &'static str) -> Result<(), &'static str> {
        let Some(comment) = line.strip_prefix("-- ") else { return self.sql(line) };
        self.close()?;
        if comment == "commit" {
            return self.step(Step::Commit);
        }
        let Some((key, rest)) = comment.split_once(": ") else { return Ok(()) };
        let name = rest.split(" (").next().unwrap_or_default();
        match key {
            "interaction" if self.in_transaction => Err("a transaction is open"),
            "interaction" => {
                self.interactions.push(Interaction { name, steps: Vec::new() });
                Ok(())
            }
            "begin" => self.step(Step::Begin(name)),
            "query" => {
                self.open = Some((name, String::new()));
                self.step(Step::Query(name))
            }
            _ => Ok(()),
        }
    }

    /// A line of a query's text; its last one ends in a semicolon, which is left out.
    fn sql(&mut self, line: &str) -> Result<(), &'static str> {
        if line.is_empty() {
            return Ok(());
        }
        let Some((name, mut sql)) = self.open.take() else { return Err("SQL that belongs to no query") };
        if !sql.is_empty() {
            sql.push('\n');
        }
        let Some(last) = line.strip_suffix(';') else {
            self.open = Some((name, sql + line));
            return Ok(());
        };
        match self.queries.insert(name, sql + last) {
            Some(_) => Err("a second text for this query"),
            None => Ok(()),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), &'static str> {
        let inside = self.in_transaction;
        self.in_transaction = match step {
            Step::Begin(_) if inside => return Err("a transaction is open"),
            Step::Commit if !inside => return Err("no transaction is open"),
            Step::Begin(_) => true,
            Step::Commit => false,
            Step::Query(_) => inside,
        };
        self.interactions.last_mut().ok_or("no interaction yet")?.steps.push(step);
        Ok(())
    }

    /// No more text can follow for the query before.
    fn close(&mut self) -> Result<(), &'static str> {
        match self.open.take() {
            Some((name, sql)) if !sql.is_empty() || !self.queries.contains_key(name) => {
                Err("the query before has no text, or no end")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
