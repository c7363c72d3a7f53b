//! What keeps a session at its own server connection, where others share theirs.
//!
//! Some things exist on one connection only and cannot be carried to another: temporary objects, locks, LISTEN, cursors
//! that outlive their transaction, PREPARE. Which statements may make them is known ([`sql`] tells a statement
//! that may do anything from one that cannot); whether they did is asked of the server itself, when no transaction is
//! open on the connection any more. So nothing has to be counted, a rollback needs no thought, and what a function did is
//! found as well as what the client did. In the same answer come the settings that were set by something else than a SET
//! that was seen: they are the session's from then on, and follow it as the others do.
//!
//! There is one thing that no server tells: a setting with a name of the client's own (`app.user`), set by code that we
//! do not see. So where such code ran and the database has functions that could do that, the session keeps the
//! connection (`function`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use sql::{Statement, Verb};

use super::demand::{Judged, runs_code};
use super::fault::{Fault, Refusal};
use super::prepared::never_ours;
use super::session::{Session, Transaction};
use crate::hub::Hub;

/// Statements that are judged again, at most.
const CODE_MAX: usize = 100;
/// How long the present catalogue is waited for.
const CATALOGUE_PATIENCE: Duration = Duration::from_secs(1);

/// A reason to keep a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Pin {
    /// A temporary table, view, sequence, type or function.
    Temporary = 1,
    /// An advisory lock of the session.
    AdvisoryLock = 1 << 1,
    /// LISTEN.
    Listen = 1 << 2,
    /// A cursor WITH HOLD.
    Cursor = 1 << 3,
    /// PREPARE.
    Prepare = 1 << 4,
    /// A setting that cannot be followed.
    Setting = 1 << 5,
    /// Code ran that may have set what no server tells.
    Function = 1 << 6,
    /// It asks what it drew from sequences.
    Currval = 1 << 7,
}

impl Pin {
    pub(crate) const ALL: [Self; 8] = [
        Self::Temporary,
        Self::AdvisoryLock,
        Self::Listen,
        Self::Cursor,
        Self::Prepare,
        Self::Setting,
        Self::Function,
        Self::Currval,
    ];

    /// The statement after which the session does not need its connection any more.
    pub(crate) fn undone_by(self) -> &'static str {
        match self {
            Self::Temporary => "DROP of its temporary objects",
            Self::AdvisoryLock => "pg_advisory_unlock",
            Self::Listen => "UNLISTEN",
            Self::Cursor => "CLOSE",
            Self::Prepare => "DEALLOCATE",
            Self::Setting | Self::Function => "DISCARD ALL",
            Self::Currval => "DISCARD SEQUENCES",
        }
    }

    /// As SHOW CLIENTS has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Temporary => "temporary",
            Self::AdvisoryLock => "advisory lock",
            Self::Listen => "listen",
            Self::Cursor => "cursor with hold",
            Self::Prepare => "prepare",
            Self::Setting => "setting",
            Self::Function => "function",
            Self::Currval => "currval",
        }
    }
}

/// Reasons to keep a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins(u16);

impl Pins {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn add(&mut self, pin: Pin) {
        self.0 |= pin as u16;
    }

    pub(crate) fn remove(&mut self, pin: Pin) {
        self.0 &= !(pin as u16);
    }

    pub(crate) fn has(self, pin: Pin) -> bool {
        self.0 & pin as u16 != 0
    }

    /// All of both.
    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those of which other replicas know nothing, so that statements that could see them run where they are.
    pub(crate) fn stays_home(self) -> bool {
        [Pin::Temporary, Pin::Cursor, Pin::Setting, Pin::Function].into_iter().any(|pin| self.has(pin))
    }

    /// As they are kept where others look.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// The reverse of that.
    pub(crate) fn of(bits: u16) -> Self {
        Self(bits)
    }

    /// As people read them.
    pub(crate) fn words(bits: u16) -> String {
        let words: Vec<&str> =
            Pin::ALL.into_iter().filter(|pin| Self::of(bits).has(*pin)).map(Pin::word).collect();
        words.join(", ")
    }
}

/// What a server is to be asked, and what of it cannot be told by asking.
#[derive(Debug, Default)]
pub(crate) struct Look {
    at: BTreeSet<ReplicaId>,
    /// Settings of the client's own that are set to what we did not see.
    names: BTreeSet<String>,
    /// Code of users ran that may have set any.
    hides: bool,
    /// Statements that may have run such code, unless the catalogue was only out of date.
    code: Vec<Arc<Statement>>,
    /// Why the session keeps its connection whatever the server says.
    forced: Pins,
}

impl Look {
    /// Whether there is anything to ask at a replica.
    pub(crate) fn is_due(&self, replica: ReplicaId) -> bool {
        self.at.contains(&replica)
    }

    /// Something ran there that may leave something.
    pub(crate) fn note(&mut self, replica: ReplicaId) {
        self.at.insert(replica);
    }

    /// It was asked.
    pub(crate) fn done(&mut self, replica: ReplicaId) {
        self.at.remove(&replica);
        if self.at.is_empty() {
            self.names.clear();
        }
    }

    /// DISCARD ALL: all that was is gone.
    pub(crate) fn forget(&mut self) {
        (self.hides, self.forced) = (false, Pins::default());
        self.code.clear();
    }
}

/// What is on the connection, a row each: the kind, and of a setting its name and value.
const LOOK_SQL: &str = "\
    SELECT 'temporary', '', '' WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0 AND ( \
        EXISTS (SELECT FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
        OR EXISTS (SELECT FROM pg_catalog.pg_type WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema()) \
        OR EXISTS (SELECT FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())) \
    UNION ALL SELECT 'lock', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_locks \
        WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid()) \
    UNION ALL SELECT 'listen', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_listening_channels()) \
    UNION ALL SELECT 'cursor', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_cursors WHERE is_holdable) \
    UNION ALL SELECT 'prepare', '', '' WHERE EXISTS (SELECT FROM pg_catalog.pg_prepared_statements WHERE from_sql) \
    UNION ALL SELECT 'prepared', pg_catalog.count(*)::pg_catalog.text, '' FROM pg_catalog.pg_prepared_statements \
        WHERE NOT from_sql \
    UNION ALL SELECT 'role', pg_catalog.current_setting('role'), session_user::pg_catalog.text \
    UNION ALL SELECT 'setting', name, pg_catalog.current_setting(name, true) FROM pg_catalog.pg_settings \
        WHERE source OPERATOR(pg_catalog.=) 'session' AND name OPERATOR(pg_catalog.<>) 'backtrace_functions'";

/// What is prepared by the protocol.
const PREPARED_SQL: &str = "SELECT name FROM pg_catalog.pg_prepared_statements WHERE NOT from_sql";

/// Put before it, where a limit is set: for the implicit transaction of both.
const UNLIMITED: &str = "SELECT 'limit', '', pg_catalog.current_setting('statement_timeout'); \
    SET LOCAL statement_timeout = 0; ";

/// Whether code of the database could set what no server tells; that of extensions is trusted not to.
const HIDES_SQL: &str = "\
    UNION ALL SELECT 'hides', '', '' WHERE EXISTS ( \
        SELECT FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang \
        JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace \
        WHERE p.oid OPERATOR(pg_catalog.>=) 16384 AND l.lanname OPERATOR(pg_catalog.<>) 'c' \
        AND n.nspname OPERATOR(pg_catalog.!~) '^onecopy' \
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

impl Session {
    /// Work is about to run at a replica: what it may leave there is to be asked afterwards.
    pub(crate) fn foresee_traces(&mut self, judged: &Judged, replica: ReplicaId) {
        if !judged.is_suspect() || judged.is_control || judged.only_sets_settings {
            return;
        }
        if let Some(server) = self.servers.find(replica) {
            server.has_run_code = true;
        }
        if self.servers.is_shared() {
            self.look.note(replica);
            self.look.hides |= judged.has_unparsed || self.look.code.len() > CODE_MAX;
            self.look.code.extend(judged.code.iter().map(Arc::clone));
        }
    }

    /// A statement of the session's own has run that may leave something, or end what is there.
    pub(crate) fn note_traces(&mut self, statement: &Arc<Statement>, text: &[u8]) -> Result<(), Fault> {
        if let Verb::Prepare { name } = &statement.verb {
            never_ours(name.as_bytes())?;
        }
        if !self.servers.is_shared() {
            return Ok(());
        }
        if let Verb::Execute { name } = &statement.verb
            && self.prepared.get(name.as_bytes()).is_some()
        {
            let what =
                "EXECUTE of a statement that was prepared by the protocol, where sessions share connections,";
            return Err(Refusal::unsupported(what, "Execute it by the protocol, or PREPARE it.").into());
        }
        // Where random() goes on is told by nobody.
        let seeds =
            statement.calls("setseed") || matches!(&statement.verb, Verb::Set { name, .. } if name == "seed");
        if seeds {
            self.look.forced.add(Pin::Setting);
        }
        // Its code is in no catalogue.
        if statement.verb == Verb::Do && text.to_ascii_lowercase().windows(3).any(|word| word == b"set") {
            self.look.forced.add(Pin::Function);
        }
        let leaves = match &statement.verb {
            Verb::Listen
            | Verb::Unlisten
            | Verb::Prepare { .. }
            | Verb::Deallocate(_)
            | Verb::ClosePortal
            | Verb::Discard(_)
            | Verb::DeclareCursor { hold: true, .. } => true,
            Verb::Ddl(_) => {
                // It may make what is temporary by its schema alone, and run code to fill what it makes.
                if self.look.code.len() < CODE_MAX {
                    self.look.code.push(Arc::clone(statement));
                }
                true
            }
            _ => seeds,
        };
        if leaves {
            let at = self.open_at().unwrap_or_else(|| self.anchor());
            self.look.note(at);
        }
        Ok(())
    }

    /// What set_config has set that was not seen: where the value is no constant it is asked for.
    pub(crate) fn note_set_config(&mut self, name: Option<&str>) {
        let at = self.open_at().unwrap_or_else(|| self.anchor());
        self.look.note(at);
        match name {
            Some(name) => drop(self.look.names.insert(name.to_ascii_lowercase())),
            None => self.look.forced.add(Pin::Function),
        }
    }

    /// Where the open transaction is.
    pub(crate) fn open_at(&self) -> Option<ReplicaId> {
        match &self.transaction {
            Transaction::Update(update) => Some(update.replica),
            Transaction::Read(read) => Some(read.replica),
            Transaction::None | Transaction::Begun(_) | Transaction::Lost(_) => None,
        }
    }

    /// Asks a server what the session has left on its connection there.
    pub(crate) async fn look_at(&mut self, replica: ReplicaId) -> Result<(), Fault> {
        let mut sql = LOOK_SQL.to_owned();
        self.judge_code().await;
        // The client's limit is for its own statements. It is told before it is lifted.
        let is_limited = self.settings.noted.timeouts.statement().is_some();
        if is_limited {
            sql.insert_str(0, UNLIMITED);
        }
        if self.look.hides {
            sql.push_str(HIDES_SQL);
        }
        for name in self.look.names.iter().chain(self.settings.own_names().iter()) {
            let name = name.replace('\'', "''");
            sql.push_str(&format!(
                " UNION ALL SELECT 'setting', '{name}', pg_catalog.current_setting('{name}', true)"
            ));
        }
        let Some(server) = self.servers.find(replica) else { return Ok(()) };
        let rows = server.ask(&sql).await.map_err(Fault::at(replica))?;
        let mut pins = self.look.forced;
        let (mut found, mut prepared) = (Vec::new(), usize::MAX);
        for row in rows {
            let mut cells = row.into_iter();
            let mut cell = || cells.next().flatten();
            let (Some(kind), Some(name), value) = (cell(), cell(), cell()) else { continue };
            match (kind.as_str(), value) {
                ("temporary", _) => pins.add(Pin::Temporary),
                ("lock", _) => pins.add(Pin::AdvisoryLock),
                ("listen", _) => pins.add(Pin::Listen),
                ("cursor", _) => pins.add(Pin::Cursor),
                ("prepare", _) => pins.add(Pin::Prepare),
                ("prepared", _) => prepared = name.parse().unwrap_or(0),
                ("hides", _) => pins.add(Pin::Function),
                ("role", user) if self.settings.is_other_role(&name, user.as_deref()) => {
                    pins.add(Pin::Setting);
                }
                ("setting", _) if is_limited && name == "statement_timeout" => {}
                ("limit", Some(value)) => found.push(("statement_timeout".to_owned(), value)),
                ("setting", Some(value)) => found.push((name, value)),
                _ => {}
            }
        }
        if found.iter().any(|(name, _)| name == "seed" || !Self::can_follow(name)) {
            pins.add(Pin::Setting);
        }
        self.take_found(replica, found);
        if replica == self.anchor() {
            (self.pinned, self.may_have_temporary) = (pins.stays_home(), false);
            self.is_listening &= pins.has(Pin::Listen);
        }
        let Some(server) = self.servers.find(replica) else { return Ok(()) };
        server.found(pins);
        if prepared < server.prepared_by_protocol() {
            let rows = server.ask(PREPARED_SQL).await.map_err(Fault::at(replica))?;
            server.retain_prepared(&rows.into_iter().flatten().flatten().map(String::into_bytes).collect());
        }
        self.look.done(replica);
        Ok(())
    }

    /// Right after a schema change nothing is known of any statement: those are judged by the present catalogue.
    async fn judge_code(&mut self) {
        let code = std::mem::take(&mut self.look.code);
        let is_old = |hub: &Hub| hub.is_outdated(Version(hub.catalogue().generation()));
        if !code.is_empty() && is_old(self.hub()) {
            let _ = tokio::time::timeout(CATALOGUE_PATIENCE, self.hub().fresh_catalogue()).await;
        }
        let catalogue = self.hub().catalogue();
        self.look.hides |=
            code.iter().any(|statement| runs_code(statement, &statement.routing(&catalogue), &catalogue));
    }

    /// Whether a setting can be brought to other connections.
    fn can_follow(name: &str) -> bool {
        !super::settings::Settings::is_own(name)
            && !super::forbidden::FORBIDDEN.iter().any(|(forbidden, _)| *forbidden == name)
    }

    /// What is set on the connection is the session's from now on, if it is not already.
    fn take_found(&mut self, replica: ReplicaId, found: Vec<(String, String)>) {
        let followed = found.into_iter().filter(|(name, _)| name != "seed" && Self::can_follow(name));
        for (name, value) in followed {
            let statement = super::settings::set_config(&name, &value);
            if !self.settings.has_exactly(&name, &value) {
                self.settings.stage(&name, Some(&value), &statement);
            }
        }
        if matches!(self.transaction, Transaction::None) && self.settings.keep_staged() {
            let generation = self.settings.generation();
            if let Some(server) = self.servers.find(replica) {
                server.settings = generation;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::assert_qualified;

    /// Most of it is asked for rarely.
    #[test]
    fn what_is_asked_means_the_same_under_every_path() {
        assert_qualified(&format!("{UNLIMITED}{LOOK_SQL}{HIDES_SQL}"));
        assert_qualified(PREPARED_SQL);
    }
}
