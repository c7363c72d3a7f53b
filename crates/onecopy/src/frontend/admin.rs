//! The database `onecopy`: the node speaks for itself.
//!
//! `SHOW REPLICAS`, `SHOW TRANSACTIONS`, `SHOW STATS`, `SHOW VERSION` and `VERIFY`, over the simple and the extended protocol, so that psql
//! and every driver can ask. There is no transaction here and nothing is parsed as SQL: a statement is a few words.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::parts::replica::State;
use wire::backend::{Status, tag as server_tag};
use wire::frontend::{Frontend, Target, tag};
use wire::{Frame, encode, sqlstate};

use super::client::Client;
use super::fault::{Fault, Refusal};
use super::session::Worker;
use super::verify;
use crate::hub::Hub;

/// A replica that lacks more versions than this is called catching up.
const CATCHING_UP_VERSIONS: u64 = 1_000;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Replicas,
    Transactions,
    Stats,
    Version,
    Verify,
    /// Statements that drivers send by themselves and that mean nothing here.
    Set,
    Empty,
}

/// A table of text.
struct Answer {
    columns: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

/// A client of the admin database.
pub(crate) struct Admin {
    worker: Rc<Worker>,
    client: Client,
    statements: BTreeMap<Vec<u8>, Vec<u8>>,
    portals: BTreeMap<Vec<u8>, Vec<u8>>,
    skipping: bool,
}

/// Most prepared statements and portals of one client.
const NAMES_MAX: usize = 1_000;

impl Admin {
    pub(crate) fn new(worker: Rc<Worker>, client: Client) -> Self {
        Self { worker, client, statements: BTreeMap::new(), portals: BTreeMap::new(), skipping: false }
    }

    /// Serves until the client leaves.
    pub(crate) async fn serve(mut self) {
        encode::authentication_ok(&mut self.client.out);
        for (name, value) in [
            ("server_version", env!("CARGO_PKG_VERSION")),
            ("server_encoding", "UTF8"),
            ("client_encoding", "UTF8"),
            ("DateStyle", "ISO"),
            ("integer_datetimes", "on"),
            ("standard_conforming_strings", "on"),
        ] {
            encode::parameter_status(&mut self.client.out, name.as_bytes(), value.as_bytes());
        }
        encode::ready_for_query(&mut self.client.out, Status::Idle);
        while self.client.flush().await.is_ok() && self.message().await.is_ok() {}
    }

    async fn message(&mut self) -> Result<(), Fault> {
        loop {
            let (kind, total) = self.client.message().await?;
            let bytes = self.client.input.data()[..total].to_vec();
            self.client.input.consume(total);
            let frame = Frame { tag: kind, bytes: &bytes };
            let message = Frontend::parse(frame).map_err(|_| Fault::Client)?;
            if self.skipping && kind != tag::SYNC {
                continue;
            }
            match message {
                Frontend::Terminate => return Err(Fault::Client),
                Frontend::Query { sql } => {
                    let answered = self.answer(sql, true).await;
                    self.fail(answered, false);
                    encode::ready_for_query(&mut self.client.out, Status::Idle);
                    return Ok(());
                }
                Frontend::Sync => {
                    self.skipping = false;
                    encode::ready_for_query(&mut self.client.out, Status::Idle);
                    return Ok(());
                }
                Frontend::Flush => return Ok(()),
                other => {
                    let done = self.extended(other).await;
                    self.fail(done, true);
                }
            }
        }
    }

    fn fail(&mut self, result: Result<(), Refusal>, skip: bool) {
        if let Err(refusal) = result {
            refusal.write(&mut self.client.out, "ERROR");
            self.skipping = skip;
        }
    }

    async fn extended(&mut self, message: Frontend<'_>) -> Result<(), Refusal> {
        match message {
            Frontend::Parse { name, sql, .. } => {
                command(sql)?;
                if self.statements.len() >= NAMES_MAX || self.portals.len() >= NAMES_MAX {
                    self.statements.clear();
                    self.portals.clear();
                }
                self.statements.insert(name.to_vec(), sql.to_vec());
                encode::bare(&mut self.client.out, server_tag::PARSE_COMPLETE);
            }
            Frontend::Bind { portal, statement, .. } => {
                let sql = self.statements.get(statement).cloned().ok_or_else(|| unknown(statement))?;
                self.portals.insert(portal.to_vec(), sql);
                encode::bare(&mut self.client.out, server_tag::BIND_COMPLETE);
            }
            Frontend::Describe(target) => {
                let (sql, is_statement) = match target {
                    Target::Statement(name) => {
                        (self.statements.get(name).ok_or_else(|| unknown(name))?, true)
                    }
                    Target::Portal(name) => (self.portals.get(name).ok_or_else(|| unknown(name))?, false),
                };
                let columns = columns(command(sql)?);
                if is_statement {
                    encode::parameter_description_empty(&mut self.client.out);
                }
                if columns.is_empty() {
                    encode::bare(&mut self.client.out, server_tag::NO_DATA);
                } else {
                    encode::row_description(&mut self.client.out, columns);
                }
            }
            Frontend::Execute { portal, .. } => {
                let sql = self.portals.get(portal).cloned().ok_or_else(|| unknown(portal))?;
                self.answer(&sql, false).await?;
            }
            Frontend::Close(_) => encode::bare(&mut self.client.out, server_tag::CLOSE_COMPLETE),
            _ => return Err(Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "unexpected message")),
        }
        Ok(())
    }

    async fn answer(&mut self, sql: &[u8], describe: bool) -> Result<(), Refusal> {
        let hub = &self.worker.hub;
        let answer = match command(sql)? {
            Command::Replicas => replicas(hub),
            Command::Transactions => transactions(hub),
            Command::Stats => stats(hub),
            Command::Version => version(hub),
            Command::Verify => Answer { columns: columns(Command::Verify), rows: verify::run(hub).await? },
            Command::Set => {
                encode::command_complete(&mut self.client.out, "SET");
                return Ok(());
            }
            Command::Empty => {
                encode::bare(&mut self.client.out, server_tag::EMPTY_QUERY_RESPONSE);
                return Ok(());
            }
        };
        let out = &mut self.client.out;
        if describe {
            encode::row_description(out, answer.columns);
        }
        for row in &answer.rows {
            let values: Vec<_> = row.iter().map(|value| Some(value.as_bytes())).collect();
            encode::data_row(out, &values);
        }
        encode::command_complete(out, "SHOW");
        Ok(())
    }
}

fn unknown(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).into_owned();
    Refusal::plain(sqlstate::INVALID_SQL_STATEMENT_NAME, format!("\"{name}\" does not exist"))
}

fn command(sql: &[u8]) -> Result<Command, Refusal> {
    let text = String::from_utf8_lossy(sql).to_ascii_uppercase();
    let words: Vec<&str> = text.trim_end_matches([';', ' ', '\n', '\t']).split_whitespace().collect();
    match words.as_slice() {
        [] => Ok(Command::Empty),
        ["SHOW", "REPLICAS"] => Ok(Command::Replicas),
        ["SHOW", "TRANSACTIONS"] => Ok(Command::Transactions),
        ["SHOW", "STATS"] => Ok(Command::Stats),
        ["SHOW", "VERSION"] => Ok(Command::Version),
        ["VERIFY"] => Ok(Command::Verify),
        ["SET", ..] => Ok(Command::Set),
        _ => Err(Refusal::new(
            sqlstate::SYNTAX_ERROR,
            "the admin database does not know this command",
            "It knows SHOW REPLICAS, SHOW TRANSACTIONS, SHOW STATS, SHOW VERSION and VERIFY.",
        )),
    }
}

fn columns(command: Command) -> &'static [&'static str] {
    match command {
        Command::Replicas => {
            &["name", "host", "port", "state", "applied", "lag_versions", "reads", "writes", "load", "role"]
        }
        Command::Transactions => {
            &["session", "home", "state", "since_s", "rows", "captured_bytes", "spilled_bytes"]
        }
        Command::Stats => &["name", "value"],
        Command::Version => &["version", "cluster", "durable"],
        Command::Verify => &["table", "version", "result"],
        Command::Set | Command::Empty => &[],
    }
}

fn replicas(hub: &Hub) -> Answer {
    let rows = hub
        .replicas()
        .iter()
        .zip(&hub.seats)
        .map(|(status, seat)| {
            let state = match status.state {
                State::Up if status.lag > CATCHING_UP_VERSIONS => "catching_up",
                State::Up => "up",
                State::Down => "down",
                State::Quarantined => "quarantined",
            };
            vec![
                seat.name.clone(),
                seat.host.clone(),
                seat.port.to_string(),
                state.to_owned(),
                status.applied.to_string(),
                status.lag.to_string(),
                status.reads.to_string(),
                status.writes.to_string(),
                format!("{:.3}", std::time::Duration::from_micros(status.outstanding_us).as_secs_f64() * 1e3),
                if status.replica == hub.anchor { "anchor" } else { "replica" }.to_owned(),
            ]
        })
        .collect();
    Answer { columns: columns(Command::Replicas), rows }
}

fn transactions(hub: &Hub) -> Answer {
    let home = &hub.seats[usize::from(hub.anchor.0)].name;
    let rows = hub
        .transactions
        .show()
        .into_iter()
        .map(|shown| {
            vec![
                shown.session.to_string(),
                home.clone(),
                shown.phase.word().to_owned(),
                format!("{:.1}", shown.age_s),
                shown.rows.to_string(),
                shown.bytes.to_string(),
                shown.spilled_bytes.to_string(),
            ]
        })
        .collect();
    Answer { columns: columns(Command::Transactions), rows }
}

fn stats(hub: &Hub) -> Answer {
    let stats = &hub.stats;
    let counters: [(&str, &AtomicU64); 9] = [
        ("reads_spread", &stats.reads),
        ("anchor_because.update", &stats.anchor_update),
        ("anchor_because.unknown", &stats.anchor_unknown),
        ("anchor_because.interactive", &stats.anchor_interactive),
        ("anchor_because.catalogue", &stats.anchor_catalogue),
        ("records", &stats.records),
        ("retried_unseen", &stats.retried),
        ("aborted_40001", &stats.aborted),
        ("sessions", &stats.sessions),
    ];
    let rows = counters
        .into_iter()
        .map(|(name, counter)| vec![name.to_owned(), counter.load(Ordering::Relaxed).to_string()])
        .collect();
    Answer { columns: columns(Command::Stats), rows }
}

fn version(hub: &Hub) -> Answer {
    let row = vec![
        format!("onecopy {}", env!("CARGO_PKG_VERSION")),
        hub.cluster_id.to_string(),
        hub.durable().to_string(),
    ];
    Answer { columns: columns(Command::Version), rows: vec![row] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words_in_any_case() {
        assert_eq!(command(b" show  replicas ;\n"), Ok(Command::Replicas));
        assert_eq!(command(b""), Ok(Command::Empty));
        assert_eq!(command(b"SET extra_float_digits = 3"), Ok(Command::Set));
        assert!(command(b"DROP TABLE x").is_err());
    }
}
