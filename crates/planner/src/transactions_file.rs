//! Reads `transactions.sql`: what the interactions of an application send, in order.
//!
//! `crates/testbed/workloads/README.md` defines the format. `testbed` has a reader of its own, for files that are built in
//! and never wrong; this one takes people's files and says what is wrong with them.

use std::collections::BTreeMap;
use std::fmt;

/// What the interactions of an application send.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transactions {
    /// Every distinct statement, by its name.
    pub queries: BTreeMap<String, String>,
    /// The interactions, in the order of the file.
    pub interactions: Vec<Interaction>,
}

/// What a client sends for one interaction, when every branch is taken once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interaction {
    /// Its name.
    pub name: String,
    /// What is sent, in order.
    pub sent: Vec<Sent>,
}

/// One thing that is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// A transaction of this name begins.
    Begin(String),
    /// The statement of this name.
    Query(String),
    /// The transaction ends.
    Commit,
}

/// A file of transactions is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Malformed {}

impl Transactions {
    /// Reads a file's text.
    ///
    /// # Errors
    /// With the line that is not as the format says.
    pub fn read(text: &str) -> Result<Self, Malformed> {
        let mut reader = Reader::default();
        for (number, line) in text.lines().enumerate() {
            reader.line(line.trim_end()).map_err(|what| Malformed { line: number + 1, what })?;
        }
        let end = |what| Malformed { line: text.lines().count(), what };
        reader.close().map_err(end)?;
        if reader.in_transaction {
            return Err(end("a transaction stays open: add `-- commit`"));
        }
        Ok(reader.read)
    }
}

#[derive(Default)]
struct Reader {
    read: Transactions,
    /// The query that a text may follow now, and its lines so far.
    open: Option<Open>,
    in_transaction: bool,
}

struct Open {
    name: String,
    sql: String,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), &'static str> {
        let Some(comment) = line.strip_prefix("-- ") else { return self.sql(line) };
        self.close()?;
        if comment == "commit" {
            return self.send(Sent::Commit);
        }
        let Some((key, rest)) = comment.split_once(": ") else { return Ok(()) };
        let name = rest.split(" (").next().unwrap_or_default().trim().to_owned();
        match key {
            "interaction" if self.in_transaction => Err("a transaction is open: add `-- commit`"),
            "interaction" => {
                self.read.interactions.push(Interaction { name, sent: Vec::new() });
                Ok(())
            }
            "begin" => self.send(Sent::Begin(name)),
            "query" => {
                self.open = Some(Open { name: name.clone(), sql: String::new() });
                self.send(Sent::Query(name))
            }
            _ => Ok(()),
        }
    }

    /// A line of a query's text; its last one ends in a semicolon, which is left out.
    fn sql(&mut self, line: &str) -> Result<(), &'static str> {
        if line.is_empty() {
            return Ok(());
        }
        let Some(mut open) = self.open.take() else { return Err("SQL that belongs to no query") };
        if !open.sql.is_empty() {
            open.sql.push('\n');
        }
        let Some(last) = line.strip_suffix(';') else {
            open.sql.push_str(line);
            self.open = Some(open);
            return Ok(());
        };
        match self.read.queries.insert(open.name, open.sql + last) {
            Some(_) => Err("a second text for this query"),
            None => Ok(()),
        }
    }

    fn send(&mut self, sent: Sent) -> Result<(), &'static str> {
        let inside = self.in_transaction;
        self.in_transaction = match &sent {
            Sent::Begin(_) if inside => return Err("a transaction is open: add `-- commit`"),
            Sent::Commit if !inside => return Err("no transaction is open"),
            Sent::Begin(_) => true,
            Sent::Commit => false,
            Sent::Query(_) => inside,
        };
        self.read.interactions.last_mut().ok_or("no interaction yet")?.sent.push(sent);
        Ok(())
    }

    /// No more text can follow for the query before.
    fn close(&mut self) -> Result<(), &'static str> {
        match self.open.take() {
            Some(open) if !open.sql.is_empty() || !self.read.queries.contains_key(&open.name) => {
                Err("the query before has no text, or no semicolon at its end")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_in_its_order() {
        let text =
            "-- interaction: A\n-- begin: t\n-- query: q (often)\nSELECT 1\n  + 1;\n-- commit\n-- query: q\n";
        let read = Transactions::read(text).unwrap();
        assert_eq!(read.queries["q"], "SELECT 1\n  + 1");
        let query = || Sent::Query("q".to_owned());
        assert_eq!(read.interactions[0].sent, [Sent::Begin("t".to_owned()), query(), Sent::Commit, query()]);
    }

    #[test]
    fn mistakes_have_their_line() {
        for (text, line) in [
            ("SELECT 1;", 1),
            ("-- interaction: A\n-- query: q\n-- commit", 3),
            ("-- interaction: A\n-- begin: t\n-- query: q\nSELECT 1;", 4),
            ("-- interaction: A\n-- query: q\nSELECT 1;\n-- query: q\nSELECT 2;", 5),
            ("-- query: q\nSELECT 1;", 1),
        ] {
            assert_eq!(Transactions::read(text).unwrap_err().line, line, "{text}");
        }
    }
}
