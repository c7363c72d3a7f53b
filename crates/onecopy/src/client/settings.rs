//! The settings of a session, and how each of its server connections gets them.
//!
//! A SET outside a transaction, or in one that commits, belongs to the session. The session keeps the last SET
//! statement of each name and replays it on a connection before the next use. Inside a transaction a SET is staged,
//! and dropped if the transaction rolls back, as in PostgreSQL.
//!
//! Four settings never reach a server, because Onecopy's own transactions depend on them: the default and present
//! isolation level and read-only mode. The session keeps them, writes them into every BEGIN, and answers SHOW.

mod date_style;
mod options;
mod roles;
pub(crate) mod transaction_defaults;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::forbidden::refuse_forbidden;
use super::own_settings::{OwnSettings, is_kept};
use super::timeouts::{is_none, is_timeout};
use crate::client::own_settings::is_of_session;
use crate::error::Refusal;

pub(crate) use roles::RemovedRole;
use transaction_defaults::TransactionDefaults;

/// One SET or RESET.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    name: String,
    /// The value, if the statement holds a constant.
    value: Option<String>,
    statement: String,
}

impl Entry {
    /// Whether it restores the value that the session began with.
    fn resets(&self) -> bool {
        self.statement.get(..5).is_some_and(|verb| verb.eq_ignore_ascii_case("reset"))
    }

    /// Whether a connection with it may answer otherwise than one in its start-up state.
    fn may_change_answers(&self) -> bool {
        let name = self.name.as_str();
        !(name == "application_name" || name.ends_with("_timeout") || self.resets())
    }

    /// Whether it makes the earlier one redundant.
    fn replaces(&self, earlier: &Self) -> bool {
        self.name == earlier.name
            && (self.name != date_style::NAME
                || date_style::replaces(self.value.as_deref(), earlier.value.as_deref()))
    }
}

/// The settings of one session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Start-up parameters that go to servers unchanged, with user and database.
    start: Vec<(String, String)>,
    /// The client's `options`, without the settings kept here.
    options: String,
    kept: Vec<Entry>,
    /// The result of [`Settings::dress`], and its generation.
    #[serde(skip)]
    dress: (u64, Arc<str>),
    /// None between transactions.
    #[serde(skip)]
    staged: Vec<Entry>,
    /// The open transaction has executed SET LOCAL.
    #[serde(skip)]
    pub(crate) has_local: bool,
    generation: u64,
    /// A role was given up, so connections may still have it.
    has_removed_role: bool,
    /// Mode of a transaction whose BEGIN does not name one.
    pub(crate) defaults: TransactionDefaults,
    /// The same at the start of the session, for RESET.
    pub(crate) start_defaults: TransactionDefaults,
    /// Names of those that the client gave at start-up.
    given: Vec<String>,
    /// Onecopy's own settings from start-up and servers, weakest first, until they are checked.
    #[serde(skip)]
    own: Vec<UncheckedSetting>,
    /// The present values of the settings that Onecopy must know.
    pub(crate) noted: OwnSettings,
    /// Their values at the start of the session.
    start_noted: OwnSettings,
    /// A time-out is set, so the window between append and COMMIT needs protection from it.
    pub(crate) has_timeouts: bool,
}

/// A value for an Onecopy setting from before the session began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UncheckedSetting {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The client gave it; `false` if ALTER ROLE or ALTER DATABASE did.
    pub(crate) is_clients: bool,
}

/// Those that RESET ALL leaves as they are.
const ROLES: [&str; 2] = ["role", "session_authorization"];

/// Restores the state in which a connection began.
pub(crate) const NO_ROLE_NOR_SETTING: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL";

/// The name under which RESET ALL is staged.
pub(crate) const RESET_ALL: &str = "all";

impl Settings {
    /// Reads a start-up message whose user and database are known.
    pub(crate) fn new(parameters: &[(String, String)], user: &str, database: &str) -> Result<Self, Refusal> {
        let mut settings = Self {
            start: vec![("user".into(), user.into()), ("database".into(), database.into())],
            options: String::new(),
            kept: Vec::new(),
            dress: (0, "".into()),
            staged: Vec::new(),
            has_local: false,
            generation: 0,
            has_removed_role: false,
            defaults: TransactionDefaults::default(),
            start_defaults: TransactionDefaults::default(),
            given: Vec::new(),
            own: Vec::new(),
            noted: OwnSettings::default(),
            start_noted: OwnSettings::default(),
            has_timeouts: false,
        };
        // Parameters of the message override those in `options`, as on a server.
        for (_, value) in parameters.iter().filter(|(name, _)| name == "options") {
            settings.take_options(value)?;
        }
        for (name, value) in parameters {
            match name.to_ascii_lowercase().as_str() {
                "user" | "database" | "replication" | "client_encoding" | "options" => {}
                lower if lower.starts_with("_pq_.") => {}
                lower => {
                    if !settings.takes_own(lower, value)? {
                        settings.start.push((name.clone(), value.clone()));
                    }
                }
            }
        }
        Ok(settings)
    }

    /// Takes a setting from start-up; `true` if Onecopy keeps it.
    fn takes_own(&mut self, name: &str, value: &str) -> Result<bool, Refusal> {
        if Self::is_own(name) {
            self.defaults.set(name, value)?;
        } else if is_kept(name) {
            self.own.push(UncheckedSetting {
                name: name.to_owned(),
                value: value.to_owned(),
                is_clients: true,
            });
        } else {
            refuse_forbidden(name)?;
            self.note_name(name, Some(value));
            return Ok(false);
        }
        self.given.push(name.to_owned());
        Ok(true)
    }

    /// The start-up `options` of a server connection: a default of ours, the client's options, then settings of ours
    /// that must win. The log has a transaction on disk before its COMMIT is sent, so by default COMMIT need not wait
    /// for the server's disk, too.
    pub(crate) fn server_options(&self) -> String {
        let mut options = format!("-c synchronous_commit=off {}", self.options);
        options.push_str(
            "-c default_transaction_read_only=on -c default_transaction_isolation=read\\ committed \
             -c default_toast_compression=pglz",
        );
        options
    }

    /// All start-up parameters of a server connection.
    pub(crate) fn start_up<'a>(&'a self, options: &'a str) -> Vec<(&'a str, &'a str)> {
        let mut parameters: Vec<_> = self.start.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        parameters.push(("client_encoding", "UTF8"));
        parameters.push(("options", options));
        parameters
    }

    /// Changes whenever [`Settings::replay`] does.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The statements that bring a connection up to date. A second replay changes nothing.
    pub(crate) fn replay(&self) -> String {
        let mut sql = String::new();
        if self.has_removed_role || self.kept.iter().any(|entry| ROLES.contains(&entry.name.as_str())) {
            // Earlier roles may lack the right to execute the other statements.
            sql.push_str("RESET SESSION AUTHORIZATION;RESET ROLE;");
        }
        sql.push_str(&statements(self.kept.iter()));
        sql
    }

    /// The statements that lead from the start-up state of a connection to the state of the session. They include no
    /// RESET, because that state has the defaults.
    pub(crate) fn dress(&mut self) -> Arc<str> {
        if self.dress.0 != self.generation {
            let kept = self.kept.iter().filter(|entry| !entry.resets());
            let text = statements(kept);
            self.dress = (self.generation, text.into());
        }
        Arc::clone(&self.dress.1)
    }

    /// The part of it that can change the meaning of a statement's text.
    pub(crate) fn meaning(&self) -> String {
        statements(self.kept.iter().filter(|entry| !entry.name.contains('.') && entry.may_change_answers()))
    }

    /// The part of it that can change the answer to a statement. Policies may ask for custom settings.
    pub(crate) fn answer_relevant(&self) -> String {
        statements(self.kept.iter().filter(|entry| entry.may_change_answers()))
    }

    /// Whether the open transaction has settings of its own.
    pub(crate) fn is_astray(&self) -> bool {
        self.has_local || !self.staged.is_empty()
    }

    /// Whether the setting was set to exactly this value.
    pub(crate) fn has_exactly(&self, name: &str, value: &str) -> bool {
        let statement = set_config(name, value);
        let is_so = |entry: &Entry| {
            entry.statement == statement || (!entry.resets() && entry.value.as_deref() == Some(value))
        };
        self.kept.iter().any(|entry| entry.name.eq_ignore_ascii_case(name) && is_so(entry))
    }

    /// Kept custom settings (`app.tenant`), which servers do not report.
    pub(crate) fn own_names(&self) -> Vec<String> {
        let names = self.kept.iter().map(|entry| entry.name.to_ascii_lowercase());
        names.filter(|name| name.contains('.') && !is_kept(name)).collect()
    }

    /// Whether a connection may have another role than the session.
    pub(crate) fn is_other_role(&self, role: &str, user: Option<&str>) -> bool {
        let login = self.start.iter().find(|(name, _)| name == "user").map(|(_, user)| user.as_str());
        let set = |name: &str| self.kept.iter().rfind(|entry| entry.name == name && !entry.resets());
        let has = |name: &str, now: Option<&str>, else_is: Option<&str>| match set(name) {
            Some(entry) => entry.value.is_some() && entry.value.as_deref() == now,
            None => now == else_is,
        };
        !has("role", Some(role), Some("none")) || !has("session_authorization", user, login)
    }

    /// Takes the defaults of the role and database (ALTER ROLE .. SET), weakest first. The client's start-up
    /// parameters override them.
    pub(crate) fn begin_with(&mut self, defaults: &[String]) {
        for setting in defaults {
            let Some((name, value)) = setting.split_once('=') else { continue };
            let is_given = self.given.iter().any(|given| given == name);
            if is_of_session(name) {
                let (name, value) = (name.to_owned(), value.to_owned());
                self.own.extend((!is_given).then_some(UncheckedSetting { name, value, is_clients: false }));
            } else if !Self::is_own(name) {
                self.note_name(name, Some(value));
            } else if !is_given && let Err(error) = self.defaults.set(name, value) {
                tracing::warn!(%error, "a setting of the role or database is of no use");
            }
        }
        self.start_defaults = self.defaults;
        self.start_noted = self.noted.clone();
    }

    /// Hands over the Onecopy settings that have to be checked.
    pub(crate) fn take_own(&mut self) -> Vec<UncheckedSetting> {
        std::mem::take(&mut self.own)
    }

    /// Starts the session with a checked value.
    pub(crate) fn begin_with_own(&mut self, said: &UncheckedSetting) {
        self.noted.note(&said.name, Some(&said.value));
        self.start_noted = self.noted.clone();
    }

    /// Whether Onecopy answers for this setting itself.
    pub(crate) fn is_own(name: &str) -> bool {
        TransactionDefaults::NAMES.contains(&name)
    }

    /// Notes a SET or RESET that a server accepted. The statement is what we replay; the value is `None` if it is no
    /// constant.
    pub(crate) fn stage(&mut self, name: &str, value: Option<&str>, statement: &str) {
        let (name, value) = (name.to_owned(), value.map(str::to_owned));
        self.staged.push(Entry { name, value, statement: statement.to_owned() });
        self.note_again();
    }

    /// Recomputes the noted values after a SET was rejected or rolled back.
    pub(crate) fn note_again(&mut self) {
        let mut start = self.start_noted.clone();
        start.timeouts.take_local(&self.noted.timeouts);
        self.noted = start;
        let mut entries: Vec<Entry> = self.kept.iter().chain(&self.staged).cloned().collect();
        if let Some(reset) = entries.iter().rposition(|entry| entry.name == RESET_ALL) {
            entries.drain(..reset);
        }
        for (index, entry) in entries.iter().enumerate() {
            let is_last = !entries[index + 1..].iter().any(|later| later.name == entry.name);
            if is_last && entry.value.is_some() {
                self.note_name(&entry.name, entry.value.as_deref());
            }
        }
    }

    /// Notes a new value, regardless of how long it holds.
    pub(crate) fn note_name(&mut self, name: &str, value: Option<&str>) {
        self.has_timeouts |= is_timeout(name) && !value.is_some_and(is_none);
        self.noted.note(name, value);
    }

    /// Keeps the staged settings after a commit; `true` if anything changed.
    pub(crate) fn keep_staged(&mut self) -> bool {
        let changed = !self.staged.is_empty();
        for entry in std::mem::take(&mut self.staged) {
            if entry.name == RESET_ALL {
                self.reset();
                continue;
            }
            self.kept.retain(|kept| !entry.replaces(kept));
            // Servers never hear of kept settings, so no connection is out of date.
            self.generation += u64::from(!is_kept(&entry.name));
            self.kept.push(entry);
        }
        changed
    }

    /// Number of staged settings, for a savepoint.
    pub(crate) fn staged(&self) -> usize {
        self.staged.len()
    }

    /// Drops what was staged after a savepoint.
    pub(crate) fn unstage(&mut self, staged: usize) {
        self.staged.truncate(staged);
        self.note_again();
    }

    /// Drops all after a rollback.
    pub(crate) fn drop_staged(&mut self) {
        if !self.staged.is_empty() {
            self.staged.clear();
            self.note_again();
        }
    }

    /// Drops the effects of SET LOCAL at the end of a transaction.
    pub(crate) fn end_local(&mut self) {
        self.noted.timeouts.end_local();
        if std::mem::take(&mut self.has_local) {
            self.note_again();
        }
    }

    /// RESET ALL, which keeps the role.
    pub(crate) fn reset(&mut self) {
        self.kept.retain(|entry| ROLES.contains(&entry.name.as_str()));
        self.reset_by("RESET ALL");
    }

    /// DISCARD ALL.
    pub(crate) fn discard(&mut self) {
        self.kept.clear();
        self.reset_by(NO_ROLE_NOR_SETTING);
    }

    fn reset_by(&mut self, statement: &str) {
        let (name, statement) = (RESET_ALL.to_owned(), statement.to_owned());
        self.kept.insert(0, Entry { name, value: None, statement });
        self.staged.clear();
        self.generation += 1;
        self.defaults = self.start_defaults;
        self.note_again();
    }
}

fn statements<'a>(entries: impl Iterator<Item = &'a Entry>) -> String {
    let entries = entries.filter(|entry| !is_kept(&entry.name));
    // The time-out comes last, so that it does not apply to the replay itself.
    let is_limit = |entry: &&Entry| entry.name == "statement_timeout";
    let (last, first): (Vec<_>, Vec<_>) = entries.partition(is_limit);
    // A statement may end with a comment, which extends to the end of its line.
    first.into_iter().chain(last).flat_map(|entry| [entry.statement.as_str(), "\n;"]).collect()
}

pub(crate) fn set_config(name: &str, value: &str) -> String {
    let quote = |text: &str| text.replace('\'', "''").replace('\\', "\\\\");
    format!("SELECT pg_catalog.set_config(E'{}', E'{}', false)", quote(name), quote(value))
}

#[cfg(test)]
mod tests {
    use sql::Isolation;

    use super::*;

    fn settings(parameters: &[(&str, &str)]) -> Result<Settings, Refusal> {
        let owned: Vec<_> = parameters.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Settings::new(&owned, "joe", "postgres")
    }

    #[test]
    fn options_are_split_as_the_server_does() {
        let settings =
            settings(&[("options", "-c geqo=off --statement-timeout=5min -cwork_mem=1\\ MB")]).unwrap();
        assert_eq!(settings.options, "-c geqo=off -c statement_timeout=5min -c work_mem=1\\ MB ");
        assert!(settings.has_timeouts);
    }

    #[test]
    fn what_transactions_depend_on_stays_here() {
        let settings = settings(&[
            ("options", "-c default_transaction_isolation=serializable"),
            ("default_transaction_read_only", "on"),
            ("application_name", "app"),
        ])
        .unwrap();
        assert_eq!(settings.defaults.isolation, Isolation::Serializable);
        assert!(settings.defaults.read_only);
        let options = settings.server_options();
        assert!(!options.contains("serializable") && options.contains("default_transaction_read_only=on"));
        assert!(settings.start_up(&options).contains(&("application_name", "app")));
        assert_eq!(settings.defaults.value("transaction_isolation", None), "serializable");
    }

    #[test]
    fn a_commit_waits_for_no_second_disk_unless_the_client_says_so() {
        let settings = settings(&[("options", "-c synchronous_commit=on")]).unwrap();
        let (options, own) = (settings.server_options(), "-c synchronous_commit=");
        let values: Vec<_> = options.split(own).skip(1).filter_map(|rest| rest.split(' ').next()).collect();
        assert_eq!(values, ["off", "on"], "{options}");
    }

    #[test]
    fn a_client_cannot_pretend_to_be_onecopy() {
        assert!(settings(&[("options", "-c onecopy.via=x")]).is_err());
        assert!(settings(&[("onecopy.VIA", "x")]).is_err());
        assert!(settings(&[("options", "-c default_transaction_isolation=none")]).is_err());
    }

    #[test]
    fn settings_of_our_own_go_to_no_server() {
        let options = ("options", "-c onecopy.home=any -c geqo=off");
        let mut settings = settings(&[("Onecopy.Home", "anchor"), options]).unwrap();
        assert!(!settings.server_options().contains("onecopy"));
        settings.begin_with(&["onecopy.home=auto".to_owned(), "onecopy.sequences=anchor".to_owned()]);
        let said = settings.take_own();
        let told: Vec<_> = said.iter().map(|said| (said.value.as_str(), said.is_clients)).collect();
        assert_eq!(
            told,
            [("any", true), ("anchor", true), ("anchor", false)],
            "the last one of a name counts"
        );
        for said in &said {
            settings.begin_with_own(said);
        }
        let generation = settings.generation();
        settings.stage("onecopy.home", Some("auto"), "");
        settings.keep_staged();
        assert_eq!((settings.noted.home.as_deref(), settings.noted.borrows), (Some("auto"), Some(false)));
        assert_eq!((settings.generation(), settings.replay().as_str()), (generation, ""));
        settings.stage("onecopy.home", None, "");
        assert_eq!(settings.noted.home.as_deref(), Some("anchor"));
    }

    #[test]
    fn the_limit_of_a_statement_is_not_for_what_is_replayed() {
        let mut settings = settings(&[]).unwrap();
        settings.stage("statement_timeout", Some("1ms"), "SET statement_timeout = 1");
        settings.stage("role", Some("joe"), "SET ROLE joe");
        settings.keep_staged();
        assert!(
            settings.replay().ends_with("SET ROLE joe\n;SET statement_timeout = 1\n;"),
            "{}",
            settings.replay()
        );
        assert_eq!(&*settings.dress(), "SET ROLE joe\n;SET statement_timeout = 1\n;");
    }

    #[test]
    fn what_is_set_for_the_role_counts_unless_the_client_says_otherwise() {
        let role =
            ["default_transaction_isolation=serializable".to_owned(), "statement_timeout=5s".to_owned()];
        let mut plain = settings(&[]).unwrap();
        plain.begin_with(&role);
        assert_eq!(plain.defaults.isolation, Isolation::Serializable);
        assert!(plain.has_timeouts);
        plain.defaults.set("default_transaction_isolation", "read committed").unwrap();
        plain.reset();
        assert_eq!(plain.defaults.isolation, Isolation::Serializable);
        let mut given =
            settings(&[("options", "-c default_transaction_isolation=repeatable\\ read")]).unwrap();
        given.begin_with(&role);
        assert_eq!(given.defaults.isolation, Isolation::RepeatableRead);
    }

    #[test]
    fn staged_settings_count_when_the_transaction_commits() {
        let mut settings = settings(&[]).unwrap();
        settings.stage("work_mem", None, "SET work_mem = '1MB'");
        settings.drop_staged();
        assert_eq!(settings.replay(), "");
        settings.stage("work_mem", None, "SET work_mem = '1MB'");
        settings.stage("geqo", None, "SET geqo = off");
        settings.stage("work_mem", None, "RESET work_mem");
        assert!(settings.keep_staged());
        assert_eq!(settings.replay(), "SET geqo = off\n;RESET work_mem\n;");
        assert_eq!(settings.generation(), 3);
    }

    #[test]
    fn what_settings_mean_to_us_is_undone_with_them() {
        let mut settings = settings(&[("lock_timeout", "5s")]).unwrap();
        settings.begin_with(&[]);
        let limit_ms = |settings: &Settings| settings.noted.timeouts.lock().map(|limit| limit.as_millis());
        settings.stage("lock_timeout", Some("10ms"), "SET lock_timeout = '10ms'");
        settings.stage("standard_conforming_strings", Some("off"), "SET standard_conforming_strings = off");
        assert_eq!((limit_ms(&settings), settings.noted.conforming), (Some(10), false));
        settings.unstage(1);
        assert_eq!((limit_ms(&settings), settings.noted.conforming), (Some(10), true));
        settings.drop_staged();
        assert_eq!(limit_ms(&settings), Some(5_000));
        for (back, statement) in [("lock_timeout", "RESET lock_timeout"), (RESET_ALL, "RESET ALL")] {
            settings.stage("lock_timeout", Some("1ms"), "SET lock_timeout = 1");
            settings.keep_staged();
            assert_eq!(limit_ms(&settings), Some(1));
            settings.stage(back, None, statement);
            settings.keep_staged();
            assert_eq!(limit_ms(&settings), Some(5_000), "{statement}");
        }
    }

    #[test]
    fn reset_all_leaves_the_role_and_discard_all_does_not() {
        let mut settings = settings(&[]).unwrap();
        settings.stage("role", Some("joe"), "SET ROLE joe -- for now");
        settings.stage("geqo", Some("off"), "SET geqo = off");
        settings.keep_staged();
        settings.reset();
        assert_eq!(&*settings.dress(), "SET ROLE joe -- for now\n;");
        assert!(
            settings.replay().ends_with("RESET ALL\n;SET ROLE joe -- for now\n;"),
            "{}",
            settings.replay()
        );
        settings.discard();
        assert_eq!(&*settings.dress(), "");
        assert!(settings.replay().starts_with("RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL"));
    }
}
