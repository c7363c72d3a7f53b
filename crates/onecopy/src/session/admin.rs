//! The database `onecopy`: it reports on the node, and takes commands.
//!
//! It answers over the simple and the extended protocol, so that psql and every driver can query it. It has no
//! transactions and parses no SQL: a statement is a few words ([`command`]). The same database is also called
//! `pgbouncer`, for programs made for PgBouncer. Commands and columns of both exist under both names where they make
//! sense. `SHOW STATS` and `SHOW VERSION` differ, and follow the name.

mod bouncer;
mod checkpoints;
mod command;
mod elastic;
pub(crate) mod membership;
mod memory;
mod placement;
mod placement_advice;
mod show;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use wire::backend::{Status, tag as server_tag};
use wire::frontend::{Frontend, Target, tag};
use wire::{Frame, encode, sqlstate};

use crate::client::Client;
use crate::config::hba::Right;
use crate::error::{Fault, Refusal};
use crate::link::Worker;
use crate::membership::verify;
pub(crate) use command::Dialect;
use command::{Command, command};

/// How long PAUSE waits for sessions to end their transactions.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// How often PAUSE checks.
const PAUSE_LOOK: Duration = Duration::from_millis(5);

/// A table of text.
struct Answer {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// A client of the admin database.
pub(crate) struct Admin {
    worker: Rc<Worker>,
    client: Client,
    dialect: Dialect,
    right: Right,
    statements: BTreeMap<Vec<u8>, Vec<u8>>,
    portals: BTreeMap<Vec<u8>, Vec<u8>>,
    skipping: bool,
}

/// The most prepared statements and portals of one client.
const NAMES_MAX: usize = 1_000;

impl Admin {
    pub(crate) fn new(worker: Rc<Worker>, client: Client, dialect: Dialect, right: Right) -> Self {
        Self {
            worker,
            client,
            dialect,
            right,
            statements: BTreeMap::new(),
            portals: BTreeMap::new(),
            skipping: false,
        }
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
        let end = loop {
            if let Err(fault) = self.client.flush().await {
                break fault;
            }
            if let Err(fault) = self.message().await {
                break fault;
            }
        };
        if let Fault::Fatal(refusal) = end {
            self.client.say_last(&[], &refusal).await;
        }
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
                let columns = command(sql)?.columns(self.dialect);
                if is_statement {
                    encode::parameter_description_empty(&mut self.client.out);
                }
                if columns.is_empty() {
                    encode::bare(&mut self.client.out, server_tag::NO_DATA);
                } else {
                    encode::row_description(&mut self.client.out, &columns);
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
        let command = command(sql)?;
        if command.needs() > self.right {
            let text = "this role may only look at the admin database";
            let hint = "The setting admin_users of Onecopy's configuration lists the roles that may.";
            return Err(Refusal::new(sqlstate::INSUFFICIENT_PRIVILEGE, text, hint));
        }
        if let Some(feature) = command.feature() {
            self.worker.coordinator.kind.check(feature)?;
        }
        let rows = match &command {
            Command::Show(view) => show::rows(&self.worker, *view, self.dialect)?,
            Command::Verify | Command::Replica(_) | Command::Place(_) | Command::Checkpoint(_) => {
                self.at_leader(&command).await?
            }
            Command::Pause => self.pause().await?,
            Command::Resume => self.resume()?,
            Command::Kill(id) => self.kill(*id).await?,
            Command::Reload => self.reload()?,
            Command::Set => Vec::new(),
            Command::Empty => {
                encode::bare(&mut self.client.out, server_tag::EMPTY_QUERY_RESPONSE);
                return Ok(());
            }
        };
        let answer = Answer { columns: command.columns(self.dialect), rows };
        let out = &mut self.client.out;
        if describe && !answer.columns.is_empty() {
            encode::row_description(out, &answer.columns);
        }
        for row in &answer.rows {
            let values: Vec<_> = row.iter().map(|value| Some(value.as_bytes())).collect();
            encode::data_row(out, &values);
        }
        encode::command_complete(out, command.tag());
        Ok(())
    }

    /// What only the leader can carry out. It ends with the term.
    async fn at_leader(&mut self, command: &Command) -> Result<Vec<Vec<String>>, Refusal> {
        let leader = &self.worker.leading.must_lead()?;
        let client = &mut self.client;
        let work = async {
            match command {
                Command::Verify => verify::run(leader).await,
                Command::Replica(order) => membership::run(leader, order, client).await,
                Command::Place(placing) => placement::run(leader, placing, client).await,
                Command::Checkpoint(order) => checkpoints::run(leader, order, client).await,
                _ => unreachable!("each node carries it out"),
            }
        };
        tokio::select! {
            done = work => done,
            () = leader.term.ended() => Err(Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                "this node has lost the lead meanwhile",
                "Look at the new leader how far the command came, and repeat it there.",
            )),
        }
    }

    /// Returns once no session has work in progress and no session begins any before RESUME.
    async fn pause(&self) -> Result<Vec<Vec<String>>, Refusal> {
        let clients = &self.worker.local.sessions;
        if clients.is_paused() {
            return Err(Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "everything is paused already",
                "RESUME ends that.",
            ));
        }
        clients.pause(true);
        let deadline = Instant::now() + PAUSE_MAX;
        while clients.busy() > 0 {
            if Instant::now() > deadline {
                let busy = clients.busy();
                clients.pause(false);
                return Err(Refusal::new(
                    sqlstate::LOCK_NOT_AVAILABLE,
                    format!(
                        "{busy} sessions did not end their transactions within {} seconds; everything goes on",
                        PAUSE_MAX.as_secs()
                    ),
                    "SHOW CLIENTS names them, and KILL ends one.",
                ));
            }
            tokio::time::sleep(PAUSE_LOOK).await;
        }
        Ok(Vec::new())
    }

    fn resume(&self) -> Result<Vec<Vec<String>>, Refusal> {
        if !self.worker.local.sessions.is_paused() {
            return Err(Refusal::plain(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "nothing is paused"));
        }
        self.worker.local.sessions.pause(false);
        Ok(Vec::new())
    }

    fn reload(&mut self) -> Result<Vec<Vec<String>>, Refusal> {
        let told = self.worker.local.reload();
        let notes = told.map_err(|error| Refusal::plain(sqlstate::CONFIG_FILE_ERROR, error.to_string()))?;
        for note in notes {
            encode::notice(&mut self.client.out, "NOTICE", sqlstate::SUCCESS, &note, None);
        }
        Ok(Vec::new())
    }

    async fn kill(&self, id: i32) -> Result<Vec<Vec<String>>, Refusal> {
        if self.worker.keys.kill(id).await {
            return Ok(Vec::new());
        }
        Err(Refusal::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("there is no session {id}"),
            "SHOW CLIENTS lists them in its column id.",
        ))
    }
}

fn unknown(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).into_owned();
    Refusal::plain(sqlstate::INVALID_SQL_STATEMENT_NAME, format!("\"{name}\" does not exist"))
}
