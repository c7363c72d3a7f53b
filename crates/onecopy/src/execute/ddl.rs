//! Schema changes.
//!
//! A schema change runs at the home inside the client's transaction, with the token that lets it pass our event
//! trigger. Then new tables get their capture triggers, and the statement goes into the record with its role, search
//! path and settings. Every other replica runs it from the record, in version order.

use std::pin::pin;
use std::sync::Arc;

use cluster::claims::Claims;
use cluster::event::Reads;
use cluster::ids::Version;
use cluster::placement::Touches;
use cluster::record::{KEEPS_LENT, NUMBERS};
use sql::{
    DdlFacts, Isolation, Name, RowEffect, SHIPPED_SETTINGS, Statement, Subject, TransactionOptions, Verb,
};
use wire::{encode, sqlstate};

use super::explain_routing::ROUTING_COLUMN;
use crate::capture;
use crate::classify::requirements::Requirements;
use crate::client::own_settings::Severity;
use crate::error::{Fault, Refusal, broken};
use crate::execute::Executor;
use crate::logging::{in_stage, stage_span};
use crate::place::home_choice::PlaceDecision;
use crate::propagate::table_rewrite::oid_of;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::definitions::SchemaChangeReport;
use crate::transaction::open::Transaction;
use crate::transaction::update::Boundary;
use crate::transaction::view::View;

/// Settings that can change the meaning of a schema change, in addition to those that can affect any statement.
const DEFINING_SETTINGS: [&str; 5] = [
    "check_function_bodies",
    "createrole_self_grant",
    "default_table_access_method",
    "default_tablespace",
    "default_toast_compression",
];

/// Statements that may change the bounds of a sequence.
const BOUNDS_SEQUENCES: [&str; 2] = ["AlterSeqStmt", "AlterTableStmt"];

/// Statements that may change roles, or other things that all databases share.
const CHANGES_SHARED: [&str; 13] = [
    "AlterDatabaseSetStmt",
    "AlterOwnerStmt",
    "AlterRoleSetStmt",
    "AlterRoleStmt",
    "CommentStmt",
    "CreateExtensionStmt",
    "CreateRoleStmt",
    "DropOwnedStmt",
    "DropRoleStmt",
    "GrantRoleStmt",
    "GrantStmt",
    "RenameStmt",
    "SecLabelStmt",
];

impl View<'_> {
    /// The effect of the statement on rows, by the catalogue if that is up to date about the relations in it.
    fn row_effect(self, facts: &DdlFacts, text: &[u8]) -> RowEffect {
        let catalogue = self.link.database().catalogue();
        let is_present = !self.link.coordinator().view.is_outdated(Version(catalogue.generation()));
        let knows = match &self.txn.state {
            Transaction::Update(update) => update.schema.leaves_known(&facts.relations),
            _ => true,
        };
        match std::str::from_utf8(text) {
            Ok(text) if is_present && knows => {
                let subject = Subject {
                    text,
                    standard_conforming_strings: self.link.settings.noted.conforming,
                    parameter_types: &[],
                };
                facts.effect(&subject, &catalogue).clone()
            }
            _ => facts.rows.clone(),
        }
    }

    /// Replaces `SESSION_USER` by its value. Other replicas run the statement under the role that the session has set,
    /// where it would mean another role.
    fn with_user_named(self, text: String, user: &str) -> Result<String, Fault> {
        if !text.to_ascii_lowercase().contains("session_user") {
            return Ok(text);
        }
        let conforming = self.link.settings.noted.conforming;
        sql::name_session_user(&text, conforming, user).ok_or_else(|| {
            let what = "SESSION_USER in this statement";
            Refusal::unsupported(what, "Give the name of the role.").into()
        })
    }
}

impl Executor<'_> {
    /// Runs a statement that changes the schema; `None` if it is about temporary objects, and so an ordinary one.
    pub(crate) async fn schema_change(
        &mut self,
        statement: &Arc<Statement>,
        facts: &DdlFacts,
        text: &[u8],
        work: Work<'_>,
        alone: bool,
    ) -> Result<Option<Ended>, Fault> {
        let stage = pin!(async move {
            if facts.concurrently {
                return self.ddl_plainly(statement, facts, work, alone).await.map(Some);
            }
            if facts.temporary || self.names_temporary(&facts.relations).await? {
                return Ok(None);
            }
            if alone && facts.rearranges() && matches!(self.txn.state, Transaction::None) {
                return self.maintenance(&[], text, work).await.map(Some);
            }
            self.ddl_without_passwords(statement, text, work, alone).await.map(Some)
        });
        in_stage(stage_span!("execute"), stage).await
    }

    /// Runs one schema change in the open transaction, or in one of its own.
    pub(crate) async fn ddl(
        &mut self,
        statement: &Arc<Statement>,
        text: &[u8],
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        // Only a transaction that begins here ends here.
        let alone = alone && matches!(self.txn.state, Transaction::None);
        let Verb::Ddl(facts) = &statement.verb else { return Err(broken("this is no schema change")) };
        let requirements = Requirements::schema_change(statement);
        match &self.txn.state {
            Transaction::None => {
                let said = match facts.rows {
                    RowEffect::Same if !alone => TransactionOptions::default(),
                    // A single statement sees no difference at READ COMMITTED, and its rows can be read back.
                    _ => {
                        TransactionOptions { isolation: Some(Isolation::ReadCommitted), ..Default::default() }
                    }
                };
                let options = self.link.resolve(said);
                let writes = if options.isolation == Some(Isolation::Serializable) {
                    Claims::everything()
                } else {
                    Box::pin(self.view().analyse_update(&requirements)).await.writes(self.link.id)
                };
                self.placer()
                    .open_update(
                        options,
                        PlaceDecision { writes, ..PlaceDecision::unbounded() },
                        Boundary::Implicit,
                    )
                    .await?;
            }
            Transaction::Begun(_) => self.start_transaction(&requirements).await?,
            Transaction::Update(_) => {
                let analysis = self.view().analyse_update(&requirements).await;
                if !self.come_to_anchor(&analysis, true).await? {
                    let writes = analysis.writes(self.link.id);
                    self.driver().gate(Reads::All, Touches::Anything, writes, false).await?;
                }
                self.placer().note_anchor_needed();
            }
            Transaction::Read(_) | Transaction::Lost(_) => {
                return self.run(&Requirements::one(statement), work, false).await;
            }
        }
        let result = self.ddl_at_home(facts, text, work).await;
        match result {
            Ok(ended) if alone && ended.error.is_none() => {
                self.committer().commit_home().await?;
                Ok(ended)
            }
            Ok(ended) => {
                if alone {
                    self.driver().roll_back_home().await;
                }
                Ok(ended)
            }
            Err(fault) => {
                // It may have been rejected before it ran.
                self.link.executed();
                if alone {
                    self.driver().roll_back_home().await;
                }
                Err(fault)
            }
        }
    }

    async fn ddl_at_home(&mut self, facts: &DdlFacts, text: &[u8], work: Work<'_>) -> Result<Ended, Fault> {
        let mark = self.link.client.out.len();
        let home = self.view().home();
        self.connector().note_left(home);
        self.driver().await_naming(facts).await?;
        let effect = self.view().row_effect(facts, text);
        let before = self.recorder().before_rows(&effect).await?;
        if CHANGES_SHARED.contains(&facts.tag) {
            self.recorder().before_shared_change().await?;
        }
        let token = capture::ddl_token(self.link.coordinator().cluster_id);
        let (ddl, made) = (capture::DDL_SETTING, capture::MADE_SETTING);
        self.driver().own_query(&format!("SET LOCAL {ddl} = '{token}'; SET LOCAL {made} = ''")).await?;
        let rows = self.txn.captured_rows();
        let ended = self.driver().at_home(work, true).await?;
        if ended.error.is_some() {
            return Ok(ended);
        }
        let recorded = self.after_ddl(facts, &effect, rows, text, before).await;
        if recorded.is_err() && !self.link.client.shown {
            // The statement is rejected after all, so the client must not see its success.
            self.link.client.take_back(mark);
        }
        recorded.map(|()| ended)
    }

    /// After a schema change has run at the home: adds triggers to new tables, and all effects to the record.
    async fn after_ddl(
        &mut self,
        facts: &DdlFacts,
        effect: &RowEffect,
        rows: u64,
        text: &[u8],
        before: crate::propagate::table_rewrite::Before,
    ) -> Result<(), Fault> {
        // Functions may have written at the home. Their rows are replicated, and the functions do not run at other
        // replicas.
        if matches!(effect, RowEffect::Same | RowEffect::Viewed(_)) && self.txn.captured_rows() != rows {
            let (what, hint) = sql::refusal::DDL_WRITES;
            return Err(Refusal::unsupported(what, hint).into());
        }
        if CHANGES_SHARED.contains(&facts.tag) {
            self.recorder().after_shared_change().await?;
        }
        let is_new = match effect {
            RowEffect::Made(table) => {
                self.driver().own_text(&format!("SELECT onecopy.is_new({})", oid_of(table))).await? == "t"
            }
            _ => false,
        };
        let mut circumstances = self.driver().own_query(&circumstances_sql()).await?.row.unwrap_or_default();
        self.driver().own_query(&format!("SET LOCAL {} = ''", capture::DDL_SETTING)).await?;
        if circumstances.pop().flatten().as_deref() == Some(capture::MADE_TEMPORARY.as_bytes()) {
            // The table belongs to this session alone. The applier could make it only once.
            if let Transaction::Update(update) = &mut self.txn.state {
                update.unseen.suspect();
            }
            return Ok(());
        }
        let numbers = circumstances.pop().flatten().unwrap_or_default();
        let changed = circumstances.pop().flatten().unwrap_or_default();
        let report = SchemaChangeReport { changed, numbers };
        let (user, mut record) =
            recorded(text, circumstances).ok_or_else(|| broken("a schema change has no circumstances"))?;
        if !report.numbers.is_empty() {
            record.settings.push((NUMBERS.to_owned(), String::from_utf8_lossy(&report.numbers).into_owned()));
        }
        record.text = self.view().with_user_named(record.text, &user)?;
        let keeps_lent = self.driver().note_redefined(facts, effect, &report)?;
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        update.schema.note_change(facts);
        if !matches!(effect, RowEffect::Same) {
            update.unseen.suspect();
        }
        update.sequences.set();
        if keeps_lent {
            record.settings.push((KEEPS_LENT.to_owned(), "on".to_owned()));
        } else if BOUNDS_SEQUENCES.contains(&facts.tag) {
            self.recorder().record_positions().await?;
        }
        self.recorder().record_rows(effect, before, is_new, record).await
    }

    /// Runs a schema change with CONCURRENTLY, which takes several transactions in PostgreSQL, in a single one.
    pub(crate) async fn ddl_plainly(
        &mut self,
        statement: &Arc<Statement>,
        facts: &DdlFacts,
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        if !matches!(self.txn.state, Transaction::None) {
            return Err(Refusal::plain(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                "CONCURRENTLY cannot be used inside a transaction block",
            )
            .into());
        }
        let Work::Query { sql, position_offset, .. } = work else {
            return Err(broken("a schema change came as messages"));
        };
        let plain = std::str::from_utf8(sql).ok().and_then(sql::without_concurrently);
        let plain = plain.ok_or_else(|| broken("there is no CONCURRENTLY in a statement that has it"))?;
        let work = Work::Query { sql: plain.as_bytes(), position_offset, stand_in_values: None };
        if self.names_temporary(&facts.relations).await? {
            return self.run(&Requirements::one(statement), work, alone).await;
        }
        let text = "CONCURRENTLY is left out: the statement runs in one transaction, and writes to the table wait for it";
        self.link.tell_client(Severity::Notice, sqlstate::SUCCESS, text, None);
        self.ddl(statement, plain.as_bytes(), work, alone).await
    }

    /// Whether any of these names is a temporary relation of this session.
    pub(crate) async fn names_temporary(&mut self, names: &[Name]) -> Result<bool, Fault> {
        if names.is_empty() || !self.placer().must_stay_home().await? {
            return Ok(false);
        }
        let list = names
            .iter()
            .filter(|name| name.schema.as_deref().is_none_or(|schema| schema.starts_with("pg_temp")))
            .map(|name| format!("'{}'", name.name.replace('\'', "''")))
            .collect::<Vec<_>>()
            .join(",");
        if list.is_empty() {
            return Ok(false);
        }
        let anchor = self.view().home();
        let Some(server) = self.link.servers.find(anchor) else { return Ok(false) };
        if server.own.has_ahead() {
            return Ok(false);
        }
        let sql = format!(
            "SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema() \
             AND relname OPERATOR(pg_catalog.=) ANY (ARRAY[{list}]::pg_catalog.name[]) LIMIT 1"
        );
        let rows = server.ask(&sql).await.map_err(Fault::at(anchor))?;
        Ok(!rows.is_empty())
    }
}

/// The settings that are recorded with a schema change; role and search path have their own fields.
fn recorded_settings() -> impl Iterator<Item = &'static str> {
    let of_effects = SHIPPED_SETTINGS.into_iter().filter(|name| !matches!(*name, "role" | "search_path"));
    of_effects.chain(DEFINING_SETTINGS)
}

fn circumstances_sql() -> String {
    let mut sql =
        "SELECT onecopy.install(), session_user, current_user, pg_catalog.current_setting('search_path')"
            .to_owned();
    for name in recorded_settings() {
        sql.push_str(&format!(", pg_catalog.current_setting('{name}', true)"));
    }
    sql.push_str(", onecopy.changed()");
    for name in [capture::NUMBERS_SETTING, capture::MADE_SETTING] {
        sql.push_str(&format!(", pg_catalog.current_setting('{name}', true)"));
    }
    sql
}

/// The session's user, and the statement as it is recorded.
pub(crate) fn recorded(
    text: &[u8],
    row: Vec<Option<Vec<u8>>>,
) -> Option<(String, cluster::record::Statement)> {
    let mut columns = row.into_iter().map(|value| value.map(|v| String::from_utf8_lossy(&v).into_owned()));
    columns.next()?;
    let (user, role, search_path) = (columns.next()??, columns.next()??, columns.next()??);
    let settings = recorded_settings()
        .zip(columns)
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    let text = String::from_utf8_lossy(text).into_owned();
    Some((user, cluster::record::Statement { text, role, search_path, settings }))
}

/// Answers Describe of a statement that the session runs itself.
pub(crate) fn describe_own(out: &mut Vec<u8>, verb: &Verb, of_statement: bool) {
    let column = match verb {
        Verb::Show(name) => name.as_str(),
        // Its parameters need no values, since rows are identified by their positions.
        Verb::ExplainRouting => ROUTING_COLUMN,
        _ => return describe_nothing(out, of_statement),
    };
    if of_statement {
        encode::parameter_description_empty(out);
    }
    encode::row_description(out, &[column]);
}

/// Appends an empty description of a statement without parameters and rows.
fn describe_nothing(out: &mut Vec<u8>, of_statement: bool) {
    if of_statement {
        encode::parameter_description_empty(out);
    }
    encode::bare(out, wire::backend::tag::NO_DATA);
}
