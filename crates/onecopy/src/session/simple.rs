//! The simple query protocol: one string, any number of statements, one ReadyForQuery.
//!
//! Several statements in one string are one implicit transaction. Transaction control in the middle ends it or makes
//! it explicit, as in PostgreSQL. The parser splits the string, and positions in errors are corrected.

use std::sync::Arc;

use sql::{Part, Script, Statement, Verb};
use wire::backend::tag;
use wire::{encode, sqlstate};

use super::Session;
use crate::classify::requirements::Requirements;
use crate::client::sent::{KEPT_BYTES_MAX, Sent};
use crate::error::{Fault, Refusal};
use crate::execute::statement::refuse;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::open::Transaction;

/// A longer transaction in one query string is not known as a whole.
const TOGETHER_MAX: usize = 64;

impl Session {
    /// Handles the body of a Query. Returns only a fault that ends the session. As in PostgreSQL, the session survives
    /// a text that does not end where the message does.
    pub(crate) async fn query(&mut self, body: &[u8]) -> Result<(), Fault> {
        if let Some(sql) = body.strip_suffix(&[0]).filter(|sql| !sql.contains(&0)) {
            return self.simple_query(sql).await;
        }
        self.send_error(Refusal::plain(sqlstate::PROTOCOL_VIOLATION, "invalid message format").into())?;
        self.end_implicit(false).await?;
        self.ready();
        Ok(())
    }

    /// Handles the text of a Query. Returns only a fault that ends the session.
    pub(crate) async fn simple_query(&mut self, sql: &[u8]) -> Result<(), Fault> {
        if self.replay_text(sql) {
            self.ready();
            return Ok(());
        }
        let result = match self.link.script(sql).await {
            Ok(Some(script)) => self.run_script(&script, sql).await,
            Ok(None) => self.run_unparsed(sql).await,
            Err(fault) => Err(fault),
        };
        // The next transaction does not begin with what is left of this string.
        self.txn.txn_profile.together = Vec::new();
        if let Err(fault) = result {
            self.send_error(fault)?;
            self.end_implicit(false).await?;
        }
        self.ready();
        Ok(())
    }

    async fn run_script(&mut self, script: &Arc<Script>, sql: &[u8]) -> Result<(), Fault> {
        let several = script.statements.len() > 1;
        let kept: Option<Arc<[u8]>> = (sql.len() <= KEPT_BYTES_MAX).then(|| sql.into());
        let (mut from, mut counted, mut before) = (0, 0, 0);
        for (index, part) in script.statements.iter().enumerate() {
            let is_last = index + 1 == script.statements.len();
            if several {
                before += characters(&sql[counted..part.start]);
                counted = part.start;
            }
            let text = &sql[part.start..part.end];
            if self.link.client.has_notices() {
                // The statement may take long.
                self.link.flush().await?;
            }
            self.link.client.begin_statement();
            let ours = self.view().stand_ins(&part.statement, text);
            let stand_in_values = self.view().stand_in_values(&part.statement, ours.as_ref());
            if several || ours.is_some() {
                self.link.answers.asked = None;
            }
            let work = Work::Query {
                sql: ours.as_ref().map_or(if several { text } else { sql }, |ours| ours.text.as_bytes()),
                position_offset: before,
                stand_in_values: stand_in_values.as_deref(),
            };
            let sent = kept.clone().map(|text| Sent::Text { text, from, part: part.clone() });
            self.txn.txn_profile.together = match &kept {
                Some(text) if several && self.link.waits_in_chains() => {
                    self.rest(&script.statements[index..], text)
                }
                _ => Vec::new(),
            };
            from = part.end;
            let ended = self.run_statement(&part.statement, text, sent, work, is_last && !several).await?;
            self.executor().note_status(&ended);
            if ended.error.is_some() {
                return self.end_implicit(false).await;
            }
        }
        self.end_implicit(true).await
    }

    /// The statements up to the end of the transaction, if all of them are in the query string; otherwise none.
    fn rest(&self, parts: &[Part], text: &Arc<[u8]>) -> Vec<Sent> {
        if matches!(self.txn.state, Transaction::Update(_)) {
            return Vec::new();
        }
        let parts = &parts[..parts.len().min(TOGETHER_MAX + 1)];
        let ends = |part: &Part| matches!(part.statement.verb, Verb::Commit { .. } | Verb::Rollback { .. });
        let end = parts.iter().position(ends);
        let is_block = matches!(self.txn.state, Transaction::Begun(_));
        let rest = &parts[..end.unwrap_or(parts.len())];
        let is_known = rest.iter().all(|part| part.statement.verb.is_dml());
        if rest.len() > TOGETHER_MAX || !is_known || (end.is_none() && is_block) {
            return Vec::new();
        }
        let sent = |part: &Part| Sent::Text { text: Arc::clone(text), from: part.start, part: part.clone() };
        rest.iter().map(sent).collect()
    }

    /// Handles a text that our parser does not accept. A server parses it, so that the client gets the server's error.
    /// If the server accepts the text, it is rejected, because its effects are unknown.
    async fn run_unparsed(&mut self, sql: &[u8]) -> Result<(), Fault> {
        let refusal = Refusal::unsupported(
            "a statement that Onecopy's parser does not accept",
            "The statement may be of a newer PostgreSQL than Onecopy knows.",
        );
        let (anchor, patience) = (self.link.anchor(), self.link.local().timeouts.health_deadline);
        let parsed = tokio::time::timeout(patience, self.parse_only(sql)).await;
        let body = parsed.unwrap_or(Err(Fault::Lost(anchor)))?;
        Err(body.map_or(Fault::Refused(refusal), Fault::Server))
    }

    /// Has the anchor parse a text, outside of any transaction of the client. Returns the error, if any.
    async fn parse_only(&mut self, sql: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let mut output = Vec::new();
        encode::parse(&mut output, b"", sql, &[]);
        let seat = &self.link.worker.coordinator.seats[usize::from(self.link.anchor().0)];
        let options = self.link.settings.server_options();
        let parameters = self.link.settings.start_up(&options);
        let opened =
            crate::backend::Connection::open(&seat.address, self.link.servers.secret(), &parameters).await;
        let mut connection = opened.map_err(Fault::at(self.link.anchor()))?;
        encode::sync(&mut output);
        connection.output = output;
        let flushed = connection.flush().await;
        flushed.map_err(|_| Fault::Lost(self.link.anchor()))?;
        match connection.drain().await {
            Ok(_) => Ok(None),
            Err(crate::backend::BackendError::Server(body)) => Ok(Some(body)),
            Err(_) => Err(Fault::Lost(self.link.anchor())),
        }
    }

    /// Runs one statement of either protocol. `alone` says that the statement is a whole implicit transaction.
    pub(crate) async fn run_statement(
        &mut self,
        statement: &Arc<Statement>,
        text: &[u8],
        sent: Option<Sent>,
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        if std::mem::take(&mut self.txn.must_tell_loss) && !matches!(statement.verb, Verb::Rollback { .. }) {
            if matches!(statement.verb, Verb::Commit { .. }) {
                // A COMMIT that fails still ends the transaction.
                self.driver().end_local(false);
            }
            return Err(self.txn.loss());
        }
        if self.txn.failed && !ends_failure(&statement.verb) {
            return Err(Refusal::plain(
                sqlstate::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )
            .into());
        }
        if let Some(refusal) = refuse(&statement.verb) {
            return Err(refusal.into());
        }
        if matches!(statement.verb, Verb::Empty) {
            encode::bare(&mut self.link.client.out, tag::EMPTY_QUERY_RESPONSE);
            return Ok(Ended::default());
        }
        if statement.verb.is_dml() {
            // The statement is neither transaction control nor special, but a function in it may change a setting or a
            // seed.
            Self::check_settings(statement)?;
            self.connector().note_traces(statement, text)?;
        } else {
            if let Some(command) = self.control(&statement.verb).await? {
                if matches!((&statement.verb, &self.txn.state), (Verb::Begin(_), Transaction::Begun(_)))
                    && let Some(text) = sent.as_ref().and_then(Sent::with_comments)
                {
                    self.driver().take_declaration(text);
                }
                encode::command_complete(&mut self.link.client.out, command);
                return Ok(Ended::default());
            }
            if let Some(ended) = self.special(statement, text, work, alone).await? {
                return Ok(ended);
            }
        }
        let ended = self.executor().run(&Requirements::sent(statement, sent), work, alone).await?;
        self.remember(statement, text, &ended);
        Ok(ended)
    }

    /// Ends the implicit transaction of a query string or batch.
    pub(crate) async fn end_implicit(&mut self, commit: bool) -> Result<(), Fault> {
        if !self.txn.is_implicit() {
            return Ok(());
        }
        if commit && !self.txn.failed {
            self.committer().commit_home().await
        } else {
            self.driver().roll_back_home().await;
            Ok(())
        }
    }

    /// Sends the client an error that the session survives. Returns an error that ends the session.
    pub(crate) fn send_error(&mut self, fault: Fault) -> Result<(), Fault> {
        match fault {
            Fault::Client | Fault::Fatal(_) => return Err(fault),
            Fault::Server(body) => {
                encode::message(&mut self.link.client.out, tag::ERROR_RESPONSE, |b| {
                    b.extend_from_slice(&body);
                });
            }
            other => {
                if matches!(other, Fault::Lost(_) | Fault::Unplaced(_) | Fault::Evicted | Fault::Rival(_)) {
                    // The loss may concern more than the transaction.
                    self.link.keep_state()?;
                    crate::local::count(&self.link.local().stats.aborted);
                }
                if let Some(refusal) = other.into_refusal() {
                    refusal.write(&mut self.link.client.out, "ERROR");
                }
            }
        }
        self.txn.failed = !matches!(self.txn.state, Transaction::None);
        Ok(())
    }
}

/// Whether a failed transaction accepts the statement.
fn ends_failure(verb: &Verb) -> bool {
    matches!(verb, Verb::Commit { .. } | Verb::Rollback { .. } | Verb::RollbackTo(_) | Verb::Empty)
}

/// The number of characters of UTF-8 text, in which the server counts positions.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}
