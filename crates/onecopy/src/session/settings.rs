//! Runs SET, RESET and DISCARD, and remembers settings for other connections.

use std::sync::Arc;

use sql::{SetValue, Statement, Verb};
use wire::{encode, sqlstate};

use super::Session;
use crate::client::forbidden::{FORBIDDEN, ValueError};
use crate::client::own_settings::is_of_session;
use crate::client::settings::{RemovedRole, Settings};
use crate::error::{Fault, Refusal};
use crate::link::Leftovers;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::open::Transaction;

impl Session {
    pub(crate) fn check_settings(statement: &Statement) -> Result<(), Fault> {
        let set = if let Verb::Set { name, .. } = &statement.verb { Some(name.as_str()) } else { None };
        let called = statement.settings.iter().filter_map(|call| call.name.as_deref());
        for name in set.into_iter().chain(called) {
            let name = name.to_ascii_lowercase();
            let forbidden = FORBIDDEN.iter().find(|(forbidden, _)| *forbidden == name);
            let hint = match forbidden {
                Some((_, hint)) => hint,
                None if set.is_some() && is_of_session(&name) => continue,
                None if name.starts_with("onecopy.") => "It is Onecopy's own.",
                None if set.is_none() && (Settings::is_own(&name) || name == "client_encoding") => "Use SET.",
                None => continue,
            };
            return Err(Refusal::unsupported(format!("changing {name}"), hint).into());
        }
        Ok(())
    }

    pub(crate) async fn set(
        &mut self,
        statement: &Arc<Statement>,
        name: &str,
        value: &SetValue,
        local: bool,
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        if Settings::is_own(name) {
            return self.set_own(name, value, local);
        }
        let text = match value {
            SetValue::Text(text) => Some(text.as_str()),
            _ => None,
        };
        if name == "client_encoding" {
            let wanted = text.unwrap_or("utf8").to_ascii_lowercase().replace(['-', '_'], "");
            if !matches!(wanted.as_str(), "utf8" | "unicode") {
                return Err(Refusal::unsupported(
                    format!("client_encoding {}", text.unwrap_or_default()),
                    "Use UTF8.",
                )
                .into());
            }
        }
        let timeouts = self.link.settings.noted.timeouts;
        self.link.settings.note_name(name, text);
        if local {
            self.link.settings.has_local = true;
            self.link.settings.noted.timeouts = timeouts;
            self.link.settings.noted.timeouts.note(name, text, true);
        }
        let ended = self.run_beside(statement, work, alone).await;
        match &ended {
            Ok(ended) if ended.error.is_none() && !local => self.stage(name, text, &replayable(work)),
            Ok(ended) if ended.error.is_none() => {}
            _ => self.link.settings.note_again(),
        }
        ended
    }

    fn set_own(&mut self, name: &str, value: &SetValue, local: bool) -> Result<Ended, Fault> {
        match value {
            _ if local => {
                return Err(Refusal::unsupported(format!("SET LOCAL {name}"), "Say it in BEGIN.").into());
            }
            SetValue::Text(text) => self.link.settings.defaults.set(name, text)?,
            SetValue::Default => self.reset_own(name),
            _ => return Err(ValueError::NotConstant { name: name.to_owned() }.into()),
        }
        encode::command_complete(&mut self.link.client.out, "SET");
        Ok(Ended::default())
    }

    fn reset_own(&mut self, name: &str) {
        match name {
            "default_transaction_isolation" => {
                self.link.settings.defaults.isolation = self.link.settings.start_defaults.isolation;
            }
            "default_transaction_read_only" => {
                self.link.settings.defaults.read_only = self.link.settings.start_defaults.read_only;
            }
            _ => {}
        }
    }

    pub(crate) async fn reset(
        &mut self,
        statement: &Arc<Statement>,
        name: &str,
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        if Settings::is_own(name) {
            self.reset_own(name);
            encode::command_complete(&mut self.link.client.out, "RESET");
            return Ok(Ended::default());
        }
        let is_open = !matches!(self.txn.state, Transaction::None);
        let removed =
            if is_open { RemovedRole::default() } else { self.link.settings.remove_role(Some(name)) };
        let ended = self.run_beside(statement, work, alone).await;
        if matches!(&ended, Ok(ended) if ended.error.is_none()) {
            self.stage(name, None, &replayable(work));
        } else {
            self.link.settings.restore_role(removed);
        }
        ended
    }

    pub(crate) async fn reset_all(
        &mut self,
        statement: &Arc<Statement>,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        let discards = matches!(statement.verb, Verb::Discard(_));
        if !matches!(self.txn.state, Transaction::None) {
            return Err(Refusal::plain(
                sqlstate::ACTIVE_SQL_TRANSACTION,
                "DISCARD ALL cannot run inside a transaction block",
            )
            .into());
        }
        let removed = if discards { self.link.settings.remove_role(None) } else { RemovedRole::default() };
        let ended = self.run_beside(statement, work, true).await;
        if !matches!(&ended, Ok(ended) if ended.error.is_none()) {
            self.link.settings.restore_role(removed);
        }
        let ended = ended?;
        if ended.error.is_none() {
            let anchor = self.link.anchor();
            self.link.servers.close_others(anchor);
            if discards {
                self.link.settings.discard();
            } else {
                self.link.settings.reset();
            }
            let generation = self.link.settings.generation();
            if let Some(server) = self.link.servers.find(anchor) {
                server.settings = generation;
                if discards {
                    server.deallocated();
                }
            }
            if discards {
                self.link.prepared.clear();
                self.link.leftovers = Leftovers::default();
                self.link.servers.forget_state();
                self.link.servers.draws.discard();
            }
        }
        Ok(ended)
    }

    /// Remembers a setting. Outside of a transaction it takes effect at once.
    pub(crate) fn stage(&mut self, name: &str, value: Option<&str>, replay: &str) {
        self.link.settings.stage(name, value, replay);
        if matches!(self.txn.state, Transaction::None) {
            self.link.settings.keep_staged();
            let (anchor, generation) = (self.link.anchor(), self.link.settings.generation());
            if let Some(server) = self.link.servers.find(anchor) {
                server.settings = generation;
            }
        }
    }

    pub(crate) fn show_own(&mut self, name: &str) {
        let value = self.link.settings.defaults.value(name, self.view().open_options());
        self.link.show_value(name, &value);
    }
}

/// The text that repeats the setting on other connections.
fn replayable(work: Work<'_>) -> String {
    match work {
        Work::Query { sql, .. } => String::from_utf8_lossy(sql).trim_end().trim_end_matches(';').to_owned(),
        Work::Batch { .. } | Work::Unseen { .. } => String::new(),
    }
}
