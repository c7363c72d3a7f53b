//! Replaces functions of the server in statements by stand-ins of Onecopy (`sql::stand_ins`, `capture/stand_ins.sql`).
//! Before the statement runs, the session gives the stand-ins values that it knows and the server does not.

use std::sync::Arc;

use serde_json::{Map, Value};
use sql::{Asks, SESSION_SETTINGS, Script, StandIns, Statement, Verb};

use crate::client::cancel::pid_of;
use crate::client::settings::transaction_defaults::level;
use crate::transaction::view::View;

impl View<'_> {
    /// The statement with stand-ins; `None` if it needs none.
    pub(crate) fn stand_ins(self, statement: &Statement, text: &[u8]) -> Option<StandIns> {
        let text = std::str::from_utf8(text).ok().filter(|_| self.link.settings.noted.conforming)?;
        sql::stand_ins(statement, text, &self.link.database().catalogue(), pid_of(self.link.id))
    }

    /// The text with stand-ins, if it is one statement.
    pub(crate) fn stand_ins_of(self, script: Option<&Arc<Script>>, text: &[u8]) -> Option<StandIns> {
        let [part] = script?.statements.as_slice() else { return None };
        self.stand_ins(&part.statement, text)
    }

    /// The values for the stand-ins of a statement.
    pub(crate) fn stand_in_values(
        self,
        statement: &Arc<Statement>,
        ours: Option<&StandIns>,
    ) -> Option<String> {
        // PREPARE runs nothing, and sending values would take a snapshot.
        let asks = ours.filter(|_| !matches!(statement.verb, Verb::Prepare { .. })).map(|ours| ours.asks);
        self.values_for(asks.unwrap_or_else(|| self.asks_of_execute(statement)))
    }

    /// The values that stand-ins ask for, as JSON.
    pub(crate) fn values_for(self, asks: Asks) -> Option<String> {
        if asks == Asks::default() {
            return None;
        }
        let mut values = Map::new();
        if asks.sessions {
            let entries = self.link.local().sessions.entries();
            let mut sessions: Map<String, Value> = entries
                .iter()
                .map(|entry| (pid_of(entry.id).to_string(), entry.client_info.user.clone().into()))
                .collect();
            sessions.insert("own".to_owned(), pid_of(self.link.id).into());
            values.insert("sessions".to_owned(), sessions.into());
        }
        if asks.settings {
            let value =
                |name: &str| self.link.settings.defaults.value(name, self.open_options()).into_owned();
            let pairs = SESSION_SETTINGS.into_iter().map(|name| (name.to_owned(), value(name).into()));
            values.insert("settings".to_owned(), pairs.collect::<Map<String, Value>>().into());
            let start = |name: &str| match self.link.settings.start_defaults.read_only {
                _ if name.ends_with("_isolation") => {
                    level(self.link.settings.start_defaults.isolation).to_lowercase()
                }
                true => "on".to_owned(),
                false => "off".to_owned(),
            };
            let pairs = SESSION_SETTINGS.into_iter().map(|name| (name.to_owned(), start(name).into()));
            values.insert("resets".to_owned(), pairs.collect::<Map<String, Value>>().into());
        }
        Some(Value::Object(values).to_string())
    }
}
