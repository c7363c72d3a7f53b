//! The extended query protocol: the messages up to a Sync are executed together.
//!
//! Several statements before one Sync are one implicit transaction, so all must be known before the first one runs.
//! The control connection describes statements without executing them. The connection that runs a statement parses
//! it, and parses a named one only once.

use std::sync::Arc;

use wire::backend::tag as server_tag;
use wire::frontend::{Frontend, Target, tag};
use wire::{encode, frame, sqlstate};

use super::batch::{BatchMessage, BatchPhase, Portal, Prepared, malformed};
use super::session::{ClientStatement, Session};
use super::shipment::Form;
use super::statement::refused;
use crate::backend::{BackendError, Connection};
use crate::client::prepared_statement::fresh_generation;
use crate::error::{Fault, Refusal};

/// Most bytes of messages before a Sync.
const BATCH_BYTES_MAX: usize = 256 << 20;
/// Most statements and portals of one session.
const NAMES_MAX: usize = 10_000;

impl Session {
    /// Takes a message of the extended protocol.
    pub(super) async fn take(&mut self, kind: u8, body: Vec<u8>) -> Result<(), Fault> {
        self.batch.bytes += body.len();
        if self.batch.bytes > BATCH_BYTES_MAX {
            let text = "too much was sent before a Sync";
            return Err(Fault::Fatal(Refusal::plain(sqlstate::PROGRAM_LIMIT_EXCEEDED, text)));
        }
        if !matches!(kind, tag::SYNC | tag::FLUSH) {
            self.batch.waiting.push_back(BatchMessage::new(kind, &body)?);
            return Ok(());
        }
        self.batch.is_at_sync = kind == tag::SYNC;
        let ran = match self.batch.phase {
            BatchPhase::Running => self.run_batch().await,
            BatchPhase::Skipping => Ok(()),
        };
        self.batch.waiting.clear();
        self.batch.bytes = 0;
        if let Err(fault) = ran {
            self.report(fault)?;
            self.batch.phase = BatchPhase::Skipping;
        }
        if kind == tag::SYNC {
            let phase = std::mem::take(&mut self.batch.phase);
            if let Err(fault) = self.end_implicit(phase == BatchPhase::Running).await {
                self.report(fault)?;
            }
            self.batch.portals.clear();
            self.ready();
        }
        Ok(())
    }

    async fn run_batch(&mut self) -> Result<(), Fault> {
        let mut is_first = true;
        while let Some(message) = self.batch.waiting.pop_front() {
            match message.parse()? {
                Frontend::Parse { name, sql, types } => self.parse(name, sql, types).await?,
                Frontend::Bind { portal, statement, rest } => self.bind(portal, statement, rest)?,
                Frontend::Describe(target) => self.describe(target).await?,
                Frontend::Execute { portal, rows_max } => {
                    if rows_max != 0 {
                        let hint = "Fetch all rows at once (no fetch size, no cursor).";
                        return Err(refused("a portal that is read in parts", hint).into());
                    }
                    if std::mem::take(&mut is_first) && self.transaction.is_none() {
                        self.open_batch(portal).await?;
                    }
                    self.execute_portal(portal).await?;
                }
                Frontend::Close(target) => {
                    match target {
                        Target::Statement(name) => drop(self.batch.statements.remove(name)),
                        Target::Portal(name) => drop(self.batch.portals.remove(name)),
                    }
                    encode::bare(&mut self.client.out, server_tag::CLOSE_COMPLETE);
                }
                _ => return Err(malformed().into()),
            }
        }
        Ok(())
    }

    async fn parse(&mut self, name: &[u8], sql: &[u8], types: &[u8]) -> Result<(), Fault> {
        let script = self.script(sql).await?;
        let [part] = script.statements.as_slice() else {
            let text = "cannot insert multiple commands into a prepared statement";
            return Err(Refusal::plain(sqlstate::SYNTAX_ERROR, text).into());
        };
        if !name.is_empty() && self.batch.statements.contains_key(name) {
            let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name));
            return Err(Refusal::plain(sqlstate::DUPLICATE_PREPARED_STATEMENT, text).into());
        }
        if self.batch.statements.len() >= NAMES_MAX {
            let text = "the session has too many prepared statements";
            return Err(Refusal::plain(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text).into());
        }
        let number = (!name.is_empty()).then(fresh_generation);
        let statement = Arc::clone(&part.statement);
        let prepared = Prepared { statement, text: sql.into(), types: types.into(), number };
        self.batch.statements.insert(name.to_vec(), prepared);
        encode::bare(&mut self.client.out, server_tag::PARSE_COMPLETE);
        Ok(())
    }

    fn bind(&mut self, portal: &[u8], statement: &[u8], rest: &[u8]) -> Result<(), Fault> {
        let prepared = self.batch.statements.get(statement).cloned().ok_or_else(|| unknown(statement))?;
        if self.batch.portals.len() >= NAMES_MAX {
            let text = "the session has too many portals";
            return Err(Refusal::plain(sqlstate::CONFIGURATION_LIMIT_EXCEEDED, text).into());
        }
        self.batch
            .portals
            .insert(portal.to_vec(), Portal { prepared, values: rest.into(), describes: false });
        encode::bare(&mut self.client.out, server_tag::BIND_COMPLETE);
        Ok(())
    }

    /// Asks a server for a description, unless the portal is executed next: that reply has it.
    async fn describe(&mut self, target: Target<'_>) -> Result<(), Fault> {
        let (prepared, values) = match target {
            Target::Statement(name) => {
                (self.batch.statements.get(name).cloned().ok_or_else(|| unknown(name))?, None)
            }
            Target::Portal(name) => {
                let is_next = self.batch.waiting.front().is_some_and(|message| {
                    message.kind == tag::EXECUTE
                        && message.body().strip_prefix(name).is_some_and(|rest| rest.first() == Some(&0))
                });
                let portal = self.batch.portals.get_mut(name).ok_or_else(|| unknown(name))?;
                portal.describes = is_next;
                if is_next {
                    return Ok(());
                }
                (portal.prepared.clone(), Some(Arc::clone(&portal.values)))
            }
        };
        let connection = self.control.get(&self.settings).await?;
        let out = &mut connection.output;
        encode::parse_raw(out, b"", &prepared.text, &prepared.types);
        if let Some(values) = &values {
            encode::message(out, tag::BIND, |body| {
                body.extend_from_slice(&[0, 0]);
                body.extend_from_slice(values);
            });
            encode::describe(out, Target::Portal(b""));
        } else {
            encode::describe(out, Target::Statement(b""));
        }
        encode::sync(out);
        let described = described(connection).await.map_err(Fault::at(cluster::ids::ReplicaId(0)))?;
        self.client.out.extend_from_slice(&described);
        Ok(())
    }

    /// Several statements before this Sync are one transaction. Begins it with the locks of all.
    async fn open_batch(&mut self, first: &[u8]) -> Result<(), Fault> {
        let mut portals = self.batch.portals.clone();
        let mut statements = self.batch.statements.clone();
        let mut executed: Vec<Prepared> =
            portals.get(first).map(|portal| portal.prepared.clone()).into_iter().collect();
        let waiting = std::mem::take(&mut self.batch.waiting);
        for message in &waiting {
            match message.parse() {
                Ok(Frontend::Parse { name, sql, types }) => {
                    let Ok(script) = self.script(sql).await else { break };
                    let Some(part) = script.statements.first() else { break };
                    let statement = Arc::clone(&part.statement);
                    let (text, types) = (sql.into(), types.into());
                    statements.insert(name.to_vec(), Prepared { statement, text, types, number: None });
                }
                Ok(Frontend::Bind { portal, statement, rest }) => {
                    let Some(prepared) = statements.get(statement).cloned() else { break };
                    portals
                        .insert(portal.to_vec(), Portal { prepared, values: rest.into(), describes: false });
                }
                Ok(Frontend::Execute { portal, .. }) => {
                    let Some(portal) = portals.get(portal) else { break };
                    executed.push(portal.prepared.clone());
                }
                _ => {}
            }
        }
        self.batch.waiting = waiting;
        if executed.len() < 2 {
            return Ok(());
        }
        let sent: Vec<ClientStatement<'_>> = executed
            .iter()
            .map(|one| ClientStatement {
                statement: &one.statement,
                text: &one.text,
                commented: &one.text,
                form: Form::Simple,
            })
            .collect();
        self.open_implicit(&sent).await
    }

    async fn execute_portal(&mut self, portal: &[u8]) -> Result<(), Fault> {
        let found = self.batch.portals.remove(portal).ok_or_else(|| {
            let name = String::from_utf8_lossy(portal).into_owned();
            Refusal::plain(sqlstate::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist"))
        })?;
        let Portal { prepared, values, describes } = found;
        let (types, number) = (Arc::clone(&prepared.types), prepared.number);
        let form = Form::Extended { types, values, describes, number };
        let text = &*prepared.text;
        let sent = ClientStatement { statement: &prepared.statement, text, commented: text, form };
        let before = self.client.out.len();
        self.run(&sent).await?;
        // An answer of Onecopy's own has no description.
        if describes
            && self.client.out.len() > before
            && self.client.out[before] == server_tag::COMMAND_COMPLETE
        {
            let mut no_data = Vec::new();
            encode::bare(&mut no_data, server_tag::NO_DATA);
            self.client.out.splice(before..before, no_data);
        }
        Ok(())
    }
}

/// Reads the answers to a description, without those that the client has received before.
async fn described(connection: &mut Connection) -> Result<Vec<u8>, BackendError> {
    connection.flush().await?;
    let (mut kept, mut error) = (Vec::new(), None);
    loop {
        let (kind, total) = connection.message().await?;
        let whole = &connection.input.data()[..total];
        match kind {
            server_tag::PARAMETER_DESCRIPTION | server_tag::ROW_DESCRIPTION | server_tag::NO_DATA => {
                kept.extend_from_slice(whole);
            }
            server_tag::ERROR_RESPONSE if error.is_none() => {
                error = Some(BackendError::Server(whole[frame::HEADER_BYTES..].to_vec()));
            }
            _ => {}
        }
        connection.input.consume(total);
        if kind == server_tag::READY_FOR_QUERY {
            return error.map_or(Ok(kept), Err);
        }
    }
}

fn unknown(name: &[u8]) -> Refusal {
    let name = String::from_utf8_lossy(name).into_owned();
    Refusal::plain(
        sqlstate::INVALID_SQL_STATEMENT_NAME,
        format!("prepared statement \"{name}\" does not exist"),
    )
}
