//! Asks a server for the state that a session has left on its connection there.
//!
//! The session asks when no transaction is open on the connection, and a statement that may leave state has run there
//! since. The answer also lists settings that changed without a visible SET. The session adopts them, and they follow
//! it like its other settings.
//!
//! No server reports a setting with a name of the client's own (`app.user`) that was set by code which Onecopy does not
//! see. So where such code ran, and the database has functions that could set one, the connection counts as holding
//! such a setting (`function`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use sql::{Statement, Verb};
use wire::sqlstate;

use crate::backend::{BackendError, Rows};
use crate::classify::effects::HiddenCode;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::client::prepared_statement::never_ours;
use crate::connect::Connector;
use crate::coordinator::Coordinator;
use crate::error::{Fault, Refusal};
use crate::local::pins::{Pin, Pins};
use crate::transaction::open::Transaction;

/// How long to wait for the present catalogue.
const CATALOGUE_PATIENCE: Duration = Duration::from_secs(1);

/// How often to ask again when a cancel request hit the question instead of the client's statement.
const ATTEMPTS: u32 = 10;

/// Lists the state on the connection, a row each: the kind, and the name and value of a setting.
const LOOK_SQL: &str = "\
    SELECT 'temporary', '', '' WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0 AND ( \
        EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
        OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
        OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())) \
    UNION ALL SELECT 'lock', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_locks \
        WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
    UNION ALL SELECT 'listen', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) \
    UNION ALL SELECT 'cursor', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable) \
    UNION ALL SELECT 'prepare', name, CASE WHEN pg_catalog.length(statement) OPERATOR(pg_catalog.<=) 65536 THEN statement END \
        FROM pg_catalog.pg_prepared_statements WHERE from_sql \
    UNION ALL SELECT 'prepared', pg_catalog.count(*)::pg_catalog.text, '' FROM pg_catalog.pg_prepared_statements \
        WHERE NOT from_sql \
    UNION ALL SELECT 'role', pg_catalog.current_setting('role'), session_user::pg_catalog.text \
    UNION ALL SELECT 'setting', name, pg_catalog.current_setting(name, true) FROM pg_catalog.pg_settings \
        WHERE source OPERATOR(pg_catalog.=) 'session' AND name OPERATOR(pg_catalog.<>) 'backtrace_functions'";

/// Names of the statements that the protocol has prepared.
const PREPARED_SQL: &str = "SELECT name FROM pg_catalog.pg_prepared_statements WHERE NOT from_sql";

/// Precedes the question where the client has set a limit. Both run in one implicit transaction.
const UNLIMITED: &str = "SELECT 'limit', '', pg_catalog.current_setting('statement_timeout'); \
    SET LOCAL statement_timeout = 0; ";

/// Whether code of the database could change settings that no server reports. Extensions are trusted not to.
const HIDES_SQL: &str = "\
    UNION ALL SELECT 'hides', '', '' WHERE EXISTS ( \
        SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang \
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
        WHERE p.oid OPERATOR(pg_catalog.>=) 16384 AND l.lanname OPERATOR(pg_catalog.<>) 'c' \
        AND n.nspname OPERATOR(pg_catalog.!~) '^(onecopy|pg_temp)' \
        AND (l.lanname OPERATOR(pg_catalog.!~) '^(sql|plpgsql|internal)$' \
             OR coalesce(p.prosrc, '') OPERATOR(pg_catalog.~*) 'set_config|\\mset\\s+(session\\s+)?[\"\\w]+\\s*\\.' \
             OR coalesce(pg_catalog.pg_get_function_sqlbody(p.oid), '') OPERATOR(pg_catalog.~*) 'set_config' \
             OR (p.prosrc OPERATOR(pg_catalog.~*) '\\mexecute\\M' AND p.prosrc OPERATOR(pg_catalog.~*) '\\mset\\M')) \
        AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid OPERATOR(pg_catalog.=) p.oid \
             AND d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass \
             AND d.deptype OPERATOR(pg_catalog.=) 'e') \
        UNION ALL SELECT FROM pg_catalog.pg_rewrite WHERE ev_class OPERATOR(pg_catalog.>=) 16384 \
             AND ev_action::pg_catalog.text OPERATOR(pg_catalog.~) pg_catalog.concat(':funcid ', \
             ('pg_catalog.set_config'::pg_catalog.regproc)::pg_catalog.oid, ' '))";

impl Connector<'_> {
    /// Notes the state that work may leave on the connection to a replica, before it runs. If it may leave state, the
    /// connection counts as unknown from then on.
    pub(crate) fn foresee_traces(&mut self, analysis: &StatementAnalysis, replica: ReplicaId) {
        if !analysis.may_leave_traces() {
            return;
        }
        self.note_left(replica);
        match &analysis.session.hidden_code {
            HiddenCode::Anywhere => self.link.leftovers.inquiry.hides = true,
            HiddenCode::In(statements) => self.link.leftovers.inquiry.take_code(statements),
        }
        if analysis.session.sets_unseen {
            self.link.leftovers.inquiry.forced.add(Pin::Function);
        }
    }

    /// Marks the connection to a replica as unknown: code runs there that may leave state.
    pub(crate) fn note_left(&mut self, replica: ReplicaId) {
        if let Some(server) = self.link.servers.find(replica) {
            server.pins.add(Pin::Unknown);
            server.own.note_code();
        }
        if let (Some(tenancy), true) = (&self.link.tenancy, self.txn.open_at() == Some(replica)) {
            tenancy.hold();
        }
    }

    /// The analysis of statements that ran there is outdated, so they may have left any state.
    pub(crate) fn doubt_traces(&mut self, replica: ReplicaId) {
        self.note_left(replica);
        self.link.leftovers.inquiry.hides = true;
    }

    /// Whether the state of the session on its connection to a replica is unknown.
    pub(crate) fn is_unknown_at(&mut self, replica: ReplicaId) -> bool {
        self.link.servers.find(replica).is_some_and(|server| server.pins.has(Pin::Unknown))
    }

    /// Notes, before a statement of the client runs, the state of it that no server reports.
    pub(crate) fn note_traces(&mut self, statement: &Arc<Statement>, text: &[u8]) -> Result<(), Fault> {
        if let Verb::Prepare { name } = &statement.verb {
            never_ours(name.as_bytes())?;
        }
        if let Verb::Execute { name } = &statement.verb
            && self.link.servers.is_shared()
            && self.link.prepared.get(name.as_bytes()).is_some()
        {
            let what =
                "EXECUTE of a statement that was prepared by the protocol, where sessions share connections,";
            return Err(Refusal::unsupported(what, "Execute it by the protocol, or PREPARE it.").into());
        }
        // No server reports the position of random().
        let seeds =
            statement.calls("setseed") || matches!(&statement.verb, Verb::Set { name, .. } if name == "seed");
        if seeds {
            self.link.leftovers.inquiry.forced.add(Pin::Setting);
            let at = self.txn.open_at().unwrap_or_else(|| self.link.anchor());
            self.note_left(at);
        }
        // No catalogue has the code of a DO block.
        if statement.verb == Verb::Do && may_set(text) {
            self.link.leftovers.inquiry.forced.add(Pin::Function);
        }
        if matches!(statement.verb, Verb::Ddl(_)) {
            // CREATE TABLE AS, for instance, may run code to fill the table.
            self.link.leftovers.inquiry.take_code(std::slice::from_ref(statement));
        }
        Ok(())
    }

    /// Notes a setting that set_config has set without a visible value. The server is asked for the value.
    pub(crate) fn note_set_config(&mut self, name: Option<&str>) {
        let at = self.txn.open_at().unwrap_or_else(|| self.link.anchor());
        self.note_left(at);
        match name {
            Some(name) => drop(self.link.leftovers.inquiry.names.insert(name.to_ascii_lowercase())),
            None => self.link.leftovers.inquiry.forced.add(Pin::Function),
        }
    }

    /// Asks every server whose state is unknown, except where a transaction is open.
    pub(crate) async fn look_around(&mut self) {
        for number in self.link.servers.numbers() {
            let Some(replica) = self.link.servers.held(number) else { continue };
            if self.txn.open_at() != Some(replica) && self.is_unknown_at(replica) {
                self.find_out(replica).await;
            }
        }
        let held = self.link.servers.iter_mut().fold(Pins::default(), |all, server| all.with(server.pins));
        self.link.session_registration.entry.pins.store(held.bits(), Ordering::Relaxed);
    }

    /// Asks a server for the state that the session has left on its connection there. If the server refuses to answer,
    /// for example because the role lacks the rights, the state stays unknown and the session keeps the connection. A
    /// lost connection is closed.
    pub(crate) async fn find_out(&mut self, replica: ReplicaId) {
        match self.look_at(replica).await {
            Ok(()) => {}
            Err(Fault::Server(_)) => self.link.leftovers.pinned |= replica == self.link.anchor(),
            Err(_) => self.link.servers.close(replica),
        }
    }

    /// Asks a server for the state that the session has left on its connection there.
    async fn look_at(&mut self, replica: ReplicaId) -> Result<(), Fault> {
        let mut sql = LOOK_SQL.to_owned();
        self.judge_code().await;
        // The client's limit is for the client's statements, so it is read and then lifted.
        let is_limited = self.link.settings.noted.timeouts.statement().is_some();
        if is_limited {
            sql.insert_str(0, UNLIMITED);
        }
        let last_ddl = self.link.coordinator().view.last_ddl();
        let known = self.link.worker.pools.hiding_code.known(last_ddl);
        if self.link.leftovers.inquiry.hides && known.is_none() {
            sql.push_str(HIDES_SQL);
        }
        for name in self.link.leftovers.inquiry.names.iter().chain(self.link.settings.own_names().iter()) {
            let name = name.replace('\'', "''");
            sql.push_str(&format!(
                " UNION ALL SELECT 'setting', '{name}', pg_catalog.current_setting('{name}', true)"
            ));
        }
        let rows = self.ask_patiently(replica, &sql).await?;
        let mut pins = self.link.leftovers.inquiry.forced;
        let (mut found, mut carried, mut prepared, mut hides) = (Vec::new(), Vec::new(), usize::MAX, false);
        for row in rows {
            let mut cells = row.into_iter();
            let mut cell = || cells.next().flatten();
            let (Some(kind), Some(name), value) = (cell(), cell(), cell()) else { continue };
            match (kind.as_str(), value) {
                ("temporary", _) => pins.add(Pin::Temporary),
                ("lock", _) => pins.add(Pin::AdvisoryLock),
                ("listen", _) => pins.add(Pin::Listen),
                ("cursor", _) => pins.add(Pin::Cursor),
                ("prepare", text) => carried.push((name, text)),
                ("prepared", _) => prepared = name.parse().unwrap_or(0),
                ("hides", _) => hides = true,
                ("role", user) if self.link.settings.is_other_role(&name, user.as_deref()) => {
                    pins.add(Pin::Setting);
                }
                ("setting", _) if is_limited && name == "statement_timeout" => {}
                ("limit", Some(value)) => found.push(("statement_timeout".to_owned(), value)),
                ("setting", Some(value)) => found.push((name, value)),
                _ => {}
            }
        }
        if self.link.leftovers.inquiry.hides {
            if known.is_none() {
                self.link.worker.pools.hiding_code.note(last_ddl, hides);
            }
            if known.unwrap_or(hides) {
                pins.add(Pin::Function);
            }
        }
        if found.iter().any(|(name, _)| name == "seed" || !Self::can_follow(name)) {
            pins.add(Pin::Setting);
        }
        self.take_found(replica, found);
        pins = pins.with(self.take_carried(replica, carried));
        if replica == self.link.anchor() {
            self.link.leftovers.pinned = pins.stays_home();
        }
        self.link.leftovers.inquiry.names.clear();
        let Some(server) = self.link.servers.find(replica) else { return Ok(()) };
        server.found(pins);
        if prepared < server.prepared_by_protocol() {
            let rows = server.ask(PREPARED_SQL).await.map_err(Fault::at(replica))?;
            server.retain_prepared(&rows.into_iter().flatten().flatten().map(String::into_bytes).collect());
        }
        Ok(())
    }

    /// Repeats the question if a late cancel request has hit it.
    async fn ask_patiently(&mut self, replica: ReplicaId, sql: &str) -> Result<Rows, Fault> {
        let cancelled = |error: &BackendError| error.sqlstate() == Some(sqlstate::QUERY_CANCELED.as_bytes());
        let mut attempts = 1;
        loop {
            let Some(server) = self.link.servers.find(replica) else { return Err(Fault::Lost(replica)) };
            match server.ask(sql).await {
                Err(error) if cancelled(&error) && attempts < ATTEMPTS => attempts += 1,
                other => return other.map_err(Fault::at(replica)),
            }
        }
    }

    /// Analyses the collected statements by the present catalogue. Right after a schema change their effects were
    /// unknown.
    async fn judge_code(&mut self) {
        let code = std::mem::take(&mut self.link.leftovers.inquiry.code);
        let is_old = |coordinator: &Coordinator| {
            coordinator.view.is_outdated(Version(coordinator.database.catalogue().generation()))
        };
        if !code.is_empty() && is_old(self.link.coordinator()) {
            let _ = tokio::time::timeout(CATALOGUE_PATIENCE, self.link.coordinator().fresh_catalogue()).await;
        }
        let catalogue = self.link.database().catalogue();
        self.link.leftovers.inquiry.hides |=
            code.iter().any(|statement| statement.routing(&catalogue).traces.hidden);
    }

    /// Whether the session can set this setting on other connections, too.
    fn can_follow(name: &str) -> bool {
        !crate::client::settings::Settings::is_own(name)
            && !crate::client::forbidden::FORBIDDEN.iter().any(|(forbidden, _)| *forbidden == name)
    }

    /// Adopts settings of the connection that the session does not know yet.
    fn take_found(&mut self, replica: ReplicaId, found: Vec<(String, String)>) {
        let followed = found.into_iter().filter(|(name, _)| name != "seed" && Self::can_follow(name));
        for (name, value) in followed {
            let statement = crate::client::settings::set_config(&name, &value);
            if !self.link.settings.has_exactly(&name, &value) {
                self.link.settings.stage(&name, Some(&value), &statement);
            }
        }
        if matches!(self.txn.state, Transaction::None) && self.link.settings.keep_staged() {
            let generation = self.link.settings.generation();
            if let Some(server) = self.link.servers.find(replica) {
                server.settings = generation;
            }
        }
    }
}

/// Whether the text of a DO block could set a setting of the client's own: by set_config, by SET of a name with a dot,
/// or by a statement that it builds at run time.
fn may_set(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '"' | '$');
    let words: Vec<&str> = text.split(|c: char| !is_word(c)).filter(|word| !word.is_empty()).collect();
    let sets_dotted = words.iter().enumerate().any(|(at, word)| {
        let name = match words.get(at + 1) {
            Some(&"session") => words.get(at + 2),
            other => other,
        };
        *word == "set" && name.is_some_and(|name| name.contains('.'))
    });
    text.contains("set_config") || sets_dotted || (words.contains(&"execute") && text.contains("set"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_qualified;

    /// Most of this state is rarely asked for.
    #[test]
    fn what_is_asked_means_the_same_under_every_path() {
        assert_qualified(&format!("{UNLIMITED}{LOOK_SQL}{HIDES_SQL}"));
        assert_qualified(PREPARED_SQL);
    }

    #[test]
    fn a_block_that_only_writes_rows_sets_nothing() {
        for (text, sets) in [
            ("do $$ begin update t set v = 1 where k = 2; end $$", false),
            ("do $$ begin perform SET_CONFIG('app.x', 'y', false); end $$", true),
            ("do $$ begin set app.x = 'y'; end $$", true),
            ("do $$ begin set session \"app\".x to 'y'; end $$", true),
            ("do $$ begin execute 'set ' || name || ' = 1'; end $$", true),
            ("do $$ begin execute 'delete from t'; end $$", false),
        ] {
            assert_eq!(may_set(text.as_bytes()), sets, "{text}");
        }
    }
}
