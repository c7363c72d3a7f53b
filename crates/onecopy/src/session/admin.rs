//! The database `onecopy`: it reports on the node, and takes commands.
//!
//! It answers over the simple and the extended protocol, so that psql and every driver can query it. It has no
//! transactions and parses no SQL: a statement is a few words ([`command`]). The same database is also called
//! `pgbouncer`, for programs made for PgBouncer. Commands and columns of both exist under both names where they make
//! sense. `SHOW STATS` and `SHOW VERSION` differ, and follow the name.
//!
//! Where a cluster has several nodes, each answers for all: it has the leader carry out what only the leader can ([`carry`]), and asks
//! the others for what only they know ([`all_nodes`]).

mod all_nodes;
mod asker;
mod bouncer;
mod carry;
mod checkpoints;
mod command;
mod elastic;
mod hand_over;
mod here;
pub(crate) mod membership;
mod memory;
mod node_order;
mod placement;
mod placement_advice;
mod show;
mod table;
mod transactions;

use std::collections::BTreeMap;
use std::rc::Rc;

use wire::backend::{Status, tag as server_tag};
use wire::frontend::{Frontend, Target, tag};
use wire::{Frame, encode, sqlstate};

use crate::client::Client;
use crate::config::hba::Right;
use crate::coordinator::dispatch::{Addressee, Dispatch, ErrorReport, Part, Scope};
use crate::error::{Fault, Refusal};
use crate::link::Worker;
use all_nodes::Nodes;
use asker::Asker;
pub(crate) use carry::carry;
pub(crate) use command::Dialect;
use command::{ClusterSize, Command, Reach, View, command};
pub(crate) use hand_over::before_stop;
pub(crate) use here::Here;
use table::Table;

/// A role that has logged in to the admin database.
pub(crate) struct Admitted {
    pub(crate) role: String,
    pub(crate) right: Right,
}

/// A client of the admin database.
pub(crate) struct Admin {
    worker: Rc<Worker>,
    here: Here,
    client: Client,
    role: String,
    dialect: Dialect,
    right: Right,
    statements: BTreeMap<Vec<u8>, Vec<u8>>,
    portals: BTreeMap<Vec<u8>, Vec<u8>>,
    skipping: bool,
}

/// The longest command that another node carries out.
const COMMAND_BYTES_MAX: usize = 1 << 20;
/// The most prepared statements and portals of one client.
const NAMES_MAX: usize = 1_000;

impl Admin {
    pub(crate) fn new(worker: Rc<Worker>, client: Client, dialect: Dialect, admitted: Admitted) -> Self {
        Self {
            here: Here::new(&worker.leading, &worker.coordinator, &worker.keys),
            worker,
            client,
            role: admitted.role,
            dialect,
            right: admitted.right,
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

    fn fail(&mut self, result: Result<(), ErrorReport>, skip: bool) {
        if let Err(report) = result {
            report.write(&mut self.client.out);
            self.skipping = skip;
        }
    }

    async fn extended(&mut self, message: Frontend<'_>) -> Result<(), ErrorReport> {
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
                let columns = self.columns(&command(sql)?);
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
            _ => return Err(Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "unexpected message").into()),
        }
        Ok(())
    }

    fn columns(&self, command: &Command) -> Vec<&'static str> {
        let is_alone = self.here.leading.dispatcher().is_none();
        command.columns(self.dialect, if is_alone { ClusterSize::OneNode } else { ClusterSize::SeveralNodes })
    }

    async fn answer(&mut self, sql: &[u8], describe: bool) -> Result<(), ErrorReport> {
        let command = command(sql)?;
        if command.needs() > self.right {
            let text = "this role may only look at the admin database";
            let hint = "The setting admin_users of Onecopy's configuration lists the roles that may.";
            return Err(Refusal::new(sqlstate::INSUFFICIENT_PRIVILEGE, text, hint).into());
        }
        if let Some(feature) = command.feature() {
            self.worker.coordinator.kind.check(feature)?;
        }
        if command == Command::Empty {
            encode::bare(&mut self.client.out, server_tag::EMPTY_QUERY_RESPONSE);
            return Ok(());
        }
        let mut table = Table::new(self.columns(&command), describe);
        if command.is_of_leader()
            && self.here.leading.get().is_none()
            && self.here.leading.dispatcher().is_some()
        {
            self.forward(sql, &command, &mut table).await?;
        } else {
            let rows = self.rows(&command).await?;
            table.add(&rows, &mut self.client.out)?;
        }
        table.end(&mut self.client.out);
        encode::command_complete(&mut self.client.out, command.tag());
        Ok(())
    }

    /// Carries a command out, as far as this node can.
    async fn rows(&mut self, command: &Command) -> Result<Vec<Vec<String>>, ErrorReport> {
        let nodes = Nodes { here: &self.here, role: &self.role };
        let asker = &mut Asker::Client(&mut self.client);
        match command {
            Command::Show(View::Clients) => Ok(nodes.clients(asker).await),
            Command::Show(View::Nodes) => Ok(nodes.show().await),
            _ if command.is_of_leader() => Ok(carry::at_leader(&nodes, command, asker).await?),
            Command::Show(view) => Ok(show::of_node(&self.worker, *view, self.dialect)),
            Command::Pause(Reach::AllNodes) => nodes.pause(asker).await.map(|()| Vec::new()),
            Command::Resume(Reach::AllNodes) => nodes.resume(asker).await.map(|()| Vec::new()),
            Command::Pause(Reach::OwnNode) => Ok(self.here.pause().await.map(|()| Vec::new())?),
            Command::Resume(Reach::OwnNode) => Ok(self.here.resume().map(|()| Vec::new())?),
            Command::Kill(id) => nodes.kill(*id).await.map(|()| Vec::new()),
            Command::MoveLeader(to) => Ok(vec![vec![nodes.move_leader(to.as_deref()).await?]]),
            Command::Node(order) => nodes.order(order).await.map(|()| Vec::new()),
            Command::Reload => Ok(self.reload()?),
            _ => Ok(Vec::new()),
        }
    }

    /// Has the leader carry a command out, and passes its answer on. The command goes on if the client leaves.
    async fn forward(&mut self, sql: &[u8], command: &Command, table: &mut Table) -> Result<(), ErrorReport> {
        let Some(dispatcher) = self.here.leading.dispatcher() else { return Ok(()) };
        if sql.len() > COMMAND_BYTES_MAX {
            let text = format!("a command for another node may have {COMMAND_BYTES_MAX} bytes");
            let hint = "Say it at the node that leads, which SHOW NODES names.";
            return Err(Refusal::new(sqlstate::STATEMENT_TOO_COMPLEX, text, hint).into());
        }
        let text = String::from_utf8_lossy(sql).into_owned();
        let dispatch = Dispatch { scope: Scope::Leader, role: self.role.clone(), text };
        let mut talk = dispatcher.ask(Addressee::Leader, dispatch, command.effect()).await;
        let out = &mut self.client;
        while let Some(part) = talk.next().await? {
            match part {
                Part::Rows(rows) => table.add(&rows, &mut out.out)?,
                Part::Notice { severity, sqlstate, text } => {
                    encode::notice(&mut out.out, &severity, &sqlstate, &text, None);
                }
                Part::Done | Part::Failed(_) => {}
            }
            if out.flush().await.is_err() {
                tracing::debug!("the client that has said the command has gone");
                return Ok(());
            }
        }
        Ok(())
    }

    fn reload(&mut self) -> Result<Vec<Vec<String>>, Refusal> {
        let told = self.worker.local.reload();
        let notes = told.map_err(|error| Refusal::plain(sqlstate::CONFIG_FILE_ERROR, error.to_string()))?;
        for note in notes {
            encode::notice(&mut self.client.out, "NOTICE", sqlstate::SUCCESS, &note, None);
        }
        Ok(Vec::new())
    }
}

fn unknown(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).into_owned();
    Refusal::plain(sqlstate::INVALID_SQL_STATEMENT_NAME, format!("\"{name}\" does not exist"))
}
