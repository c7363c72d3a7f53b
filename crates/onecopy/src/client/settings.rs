//! What a session has set, and how it gets to every server connection it owns.
//!
//! A SET outside of a transaction, or in one that commits, belongs to the session: it is remembered as the statement
//! that made it, one for each name, and replayed on a connection before its next use. Inside a transaction it is
//! staged, and dropped when the transaction rolls back, as PostgreSQL does.
//!
//! Four settings never reach a server, because Onecopy's own transactions depend on them: the default and present
//! isolation level and read-only mode are kept here, put into every BEGIN, and answered from here.

mod date_style;
mod options;
mod roles;
pub(crate) mod transaction_defaults;

use std::sync::Arc;

use super::forbidden::refuse_forbidden;
use super::own_settings::{OwnSettings, is_kept};
use super::timeouts::{is_none, is_timeout};
use crate::client::own_settings::is_of_session;
use crate::error::Refusal;

pub(crate) use roles::GivenUp;
use transaction_defaults::TransactionDefaults;

/// One thing that was set.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    /// The value, as far as it is known.
    value: Option<String>,
    statement: String,
}

impl Entry {
    /// Whether it leads back to what the session began with.
    fn resets(&self) -> bool {
        self.statement.get(..5).is_some_and(|verb| verb.eq_ignore_ascii_case("reset"))
    }

    /// Whether nothing is left of the other one, which came before.
    fn replaces(&self, earlier: &Self) -> bool {
        self.name == earlier.name
            && (self.name != date_style::NAME
                || date_style::replaces(self.value.as_deref(), earlier.value.as_deref()))
    }
}

/// The settings of one session.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Start-up parameters that go to servers as they are, user and database among them.
    start: Vec<(String, String)>,
    /// The client's own `options`, less what is kept here.
    options: String,
    kept: Vec<Entry>,
    /// What [`Settings::dress`] came to, and at which generation.
    dress: (u64, Arc<str>),
    staged: Vec<Entry>,
    /// Something was set for the open transaction alone.
    pub(crate) has_local: bool,
    generation: u64,
    /// A role was given up: connections may have it still.
    has_given_up: bool,
    /// What a transaction is whose BEGIN does not say.
    pub(crate) defaults: TransactionDefaults,
    /// What these were when the session began, which RESET goes back to.
    pub(crate) start_defaults: TransactionDefaults,
    /// Which of them the client gave at start-up.
    given: Vec<String>,
    /// What start-up and the servers say of settings of Onecopy's own, weakest first, until it is checked.
    own: Vec<Said>,
    /// What settings mean to us, as they are now.
    pub(crate) noted: OwnSettings,
    /// What that began with.
    start_noted: OwnSettings,
    /// Some time-out is set, so the window between append and COMMIT must be protected from it.
    pub(crate) has_timeouts: bool,
}

/// What is said of a setting of Onecopy's own before the session begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) name: String,
    pub(crate) value: String,
    /// By the client; else by ALTER ROLE or ALTER DATABASE.
    pub(crate) is_clients: bool,
}

/// Those that RESET ALL leaves as they are.
const ROLES: [&str; 2] = ["role", "session_authorization"];

/// Leads a connection back to what it began with.
pub(crate) const NO_ROLE_NOR_SETTING: &str = "RESET SESSION AUTHORIZATION;RESET ROLE;RESET ALL";

/// The name under which RESET ALL is staged.
pub(crate) const RESET_ALL: &str = "all";

impl Settings {
    /// From a start-up message, its user and database being known.
    pub(crate) fn new(parameters: &[(String, String)], user: &str, database: &str) -> Result<Self, Refusal> {
        let mut settings = Self {
            start: vec![("user".into(), user.into()), ("database".into(), database.into())],
            options: String::new(),
            kept: Vec::new(),
            dress: (0, "".into()),
            staged: Vec::new(),
            has_local: false,
            generation: 0,
            has_given_up: false,
            defaults: TransactionDefaults::default(),
            start_defaults: TransactionDefaults::default(),
            given: Vec::new(),
            own: Vec::new(),
            noted: OwnSettings::default(),
            start_noted: OwnSettings::default(),
            has_timeouts: false,
        };
        // What stands in `options` is weaker than what is said beside it, as with the server.
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

    /// Takes what the client says of a setting at start-up; whether it stays here.
    fn takes_own(&mut self, name: &str, value: &str) -> Result<bool, Refusal> {
        if Self::is_own(name) {
            self.defaults.set(name, value)?;
        } else if is_kept(name) {
            self.own.push(Said { name: name.to_owned(), value: value.to_owned(), is_clients: true });
        } else {
            refuse_forbidden(name)?;
            self.note_name(name, Some(value));
            return Ok(false);
        }
        self.given.push(name.to_owned());
        Ok(true)
    }

    /// The start-up `options` of a server connection: a wish, the client's, then ours, which win. Our log has a transaction on
    /// disk before its COMMIT is sent, so that need not wait for the server's disk as well, unless the client says so.
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

    /// The statements that bring a connection up to date. Replaying one that is there already changes nothing.
    pub(crate) fn replay(&self) -> String {
        let mut sql = String::new();
        if self.has_given_up || self.kept.iter().any(|entry| ROLES.contains(&entry.name.as_str())) {
            // The others may need what the role of an earlier replay is not allowed.
            sql.push_str("RESET SESSION AUTHORIZATION;RESET ROLE;");
        }
        sql.push_str(&statements(self.kept.iter()));
        sql
    }

    /// The statements that lead from what a connection begins with to where the session is; none is like RESET ALL.
    pub(crate) fn dress(&mut self) -> Arc<str> {
        if self.dress.0 != self.generation {
            let kept = self.kept.iter().filter(|entry| !entry.resets());
            let text = statements(kept);
            self.dress = (self.generation, text.into());
        }
        Arc::clone(&self.dress.1)
    }

    /// What of it can change the meaning of a statement's text.
    pub(crate) fn meaning(&self) -> String {
        let means = |entry: &&Entry| {
            let name = entry.name.as_str();
            !(name.contains('.')
                || name == "application_name"
                || name.ends_with("_timeout")
                || entry.resets())
        };
        statements(self.kept.iter().filter(means))
    }

    /// Whether the open transaction has settings of its own.
    pub(crate) fn is_astray(&self) -> bool {
        self.has_local || !self.staged.is_empty()
    }

    /// Whether a setting is kept just so.
    pub(crate) fn has_exactly(&self, name: &str, value: &str) -> bool {
        let statement = set_config(name, value);
        let is_so = |entry: &Entry| {
            entry.statement == statement || (!entry.resets() && entry.value.as_deref() == Some(value))
        };
        self.kept.iter().any(|entry| entry.name.eq_ignore_ascii_case(name) && is_so(entry))
    }

    /// Kept settings with names of the client's own, of which no server tells.
    pub(crate) fn own_names(&self) -> Vec<String> {
        let names = self.kept.iter().map(|entry| entry.name.to_ascii_lowercase());
        names.filter(|name| name.contains('.') && !is_kept(name)).collect()
    }

    /// Whether a connection has another role than the session has set, or may have.
    pub(crate) fn is_other_role(&self, role: &str, user: Option<&str>) -> bool {
        let login = self.start.iter().find(|(name, _)| name == "user").map(|(_, user)| user.as_str());
        let set = |name: &str| self.kept.iter().rfind(|entry| entry.name == name && !entry.resets());
        let has = |name: &str, now: Option<&str>, else_is: Option<&str>| match set(name) {
            Some(entry) => entry.value.is_some() && entry.value.as_deref() == now,
            None => now == else_is,
        };
        !has("role", Some(role), Some("none")) || !has("session_authorization", user, login)
    }

    /// What the server has set for the role or the database (ALTER ROLE .. SET), weakest first; what the client gave at
    /// start-up is stronger.
    pub(crate) fn begin_with(&mut self, defaults: &[String]) {
        for setting in defaults {
            let Some((name, value)) = setting.split_once('=') else { continue };
            let is_given = self.given.iter().any(|given| given == name);
            if is_of_session(name) {
                let (name, value) = (name.to_owned(), value.to_owned());
                self.own.extend((!is_given).then_some(Said { name, value, is_clients: false }));
            } else if !Self::is_own(name) {
                self.note_name(name, Some(value));
            } else if !is_given && let Err(error) = self.defaults.set(name, value) {
                tracing::warn!(%error, "a setting of the role or database is of no use");
            }
        }
        self.start_defaults = self.defaults;
        self.start_noted = self.noted.clone();
    }

    /// What was said of settings of Onecopy's own, to be checked.
    pub(crate) fn take_own(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.own)
    }

    /// One of these is good: the session begins with it.
    pub(crate) fn begin_with_own(&mut self, said: &Said) {
        self.noted.note(&said.name, Some(&said.value));
        self.start_noted = self.noted.clone();
    }

    /// Whether Onecopy answers for this setting itself.
    pub(crate) fn is_own(name: &str) -> bool {
        TransactionDefaults::NAMES.contains(&name)
    }

    /// A SET (value as far as it is known) or RESET that a server accepted. The statement is what is replayed.
    pub(crate) fn stage(&mut self, name: &str, value: Option<&str>, statement: &str) {
        let (name, value) = (name.to_owned(), value.map(str::to_owned));
        self.staged.push(Entry { name, value, statement: statement.to_owned() });
        self.note_again();
    }

    /// What settings mean to us, as they are now: one was not accepted, or is undone.
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

    /// What a setting means to us, whoever sets it and for how long.
    pub(crate) fn note_name(&mut self, name: &str, value: Option<&str>) {
        self.has_timeouts |= is_timeout(name) && !value.is_some_and(is_none);
        self.noted.note(name, value);
    }

    /// The transaction in which things were staged has committed; `true` if anything changed.
    pub(crate) fn keep_staged(&mut self) -> bool {
        let changed = !self.staged.is_empty();
        for entry in std::mem::take(&mut self.staged) {
            if entry.name == RESET_ALL {
                self.reset();
                continue;
            }
            self.kept.retain(|kept| !entry.replaces(kept));
            // No connection has to be brought to what no server hears of.
            self.generation += u64::from(!is_kept(&entry.name));
            self.kept.push(entry);
        }
        changed
    }

    /// How many are staged.
    pub(crate) fn staged(&self) -> usize {
        self.staged.len()
    }

    /// The transaction has gone back to where so many were staged.
    pub(crate) fn unstage(&mut self, staged: usize) {
        self.staged.truncate(staged);
        self.note_again();
    }

    /// It has rolled back.
    pub(crate) fn drop_staged(&mut self) {
        if !self.staged.is_empty() {
            self.staged.clear();
            self.note_again();
        }
    }

    /// What was set for the open transaction alone is over with it.
    pub(crate) fn end_local(&mut self) {
        self.noted.timeouts.end_local();
        if std::mem::take(&mut self.has_local) {
            self.note_again();
        }
    }

    /// RESET ALL, which leaves the session its role.
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
    // The limit comes last, as it is not for the statements here.
    let is_limit = |entry: &&Entry| entry.name == "statement_timeout";
    let (last, first): (Vec<_>, Vec<_>) = entries.partition(is_limit);
    // A statement may end with a comment, which goes to the end of its line.
    first.into_iter().chain(last).flat_map(|entry| [entry.statement.as_str(), "\n;"]).collect()
}

/// The statement that sets this.
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
