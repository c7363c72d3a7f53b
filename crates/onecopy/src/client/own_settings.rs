//! The few settings that Onecopy itself must know. All others concern only the servers.
//!
//! `onecopy.home`, `onecopy.sequences` and `onecopy.ordering` are Onecopy's own and are kept in the session. Servers never hear of them,
//! but clients give them at start-up, set, roll back and reset them like all others.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::timeouts::Timeouts;

/// Asks for a home: `SET onecopy.home = 'any'`.
pub(crate) const HOME_SETTING: &str = "onecopy.home";
/// Chooses whether inserts may use leased sequence ranges.
pub(crate) const SEQUENCES_SETTING: &str = "onecopy.sequences";

/// Chooses how the session's transactions wait for others: `SET onecopy.ordering = 'chains'`.
pub(crate) const ORDER_SETTING: &str = "onecopy.ordering";
/// The value of [`ORDER_SETTING`] that makes known transactions wait in chains before they begin.
pub(crate) const ORDER_CHAINS: &str = "chains";
/// The value that makes each statement wait by itself.
pub(crate) const ORDER_STATEMENTS: &str = "statements";

/// Whether Onecopy keeps this setting for the session.
pub(crate) fn is_kept(name: &str) -> bool {
    matches!(name, HOME_SETTING | SEQUENCES_SETTING | ORDER_SETTING)
}

/// Severity of Onecopy's own messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Severity {
    Notice,
    Warning,
    /// Errors only. They are always sent.
    Error,
}

/// The values of these settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnSettings {
    /// The client's time-outs.
    pub(crate) timeouts: Timeouts,
    pub(crate) conforming: bool,
    /// The least severity of Onecopy's messages that `client_min_messages` lets through.
    pub(crate) least: Severity,
    /// `onecopy.home`, if the session has set it. The value is valid.
    pub(crate) home: Option<Arc<str>>,
    /// `onecopy.sequences`, if the session has set it: whether rows are written at homes that hold leased ranges.
    pub(crate) borrows: Option<bool>,
    /// `onecopy.ordering`, if the session has set it: whether transactions wait in chains.
    pub(crate) chains: Option<bool>,
}

impl Default for OwnSettings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            conforming: true,
            least: Severity::Notice,
            home: None,
            borrows: None,
            chains: None,
        }
    }
}

impl OwnSettings {
    /// Notes a new value, regardless of how long it holds.
    pub(crate) fn note(&mut self, name: &str, value: Option<&str>) {
        match name {
            "client_min_messages" => {
                self.least = match value.unwrap_or_default().to_ascii_lowercase().as_str() {
                    "error" => Severity::Error,
                    "warning" => Severity::Warning,
                    _ => Severity::Notice,
                };
            }
            "standard_conforming_strings" => {
                self.conforming =
                    value.is_some_and(|v| matches!(v.to_ascii_lowercase().as_str(), "on" | "true" | "1"));
            }
            HOME_SETTING => self.home = value.map(Into::into),
            ORDER_SETTING => self.chains = value.map(|word| word.eq_ignore_ascii_case(ORDER_CHAINS)),
            SEQUENCES_SETTING => self.borrows = value.map(|word| word.eq_ignore_ascii_case(SEQUENCES_LENT)),
            _ => self.timeouts.note(name, value, false),
        }
    }
}

/// Declares the rows that a transaction will touch.
pub(crate) const ACCESS_SETTING: &str = "onecopy.access";

/// Whether this is an Onecopy setting that holds in the session or transaction only. Servers never hear of it.
pub(crate) fn is_of_session(name: &str) -> bool {
    name == ACCESS_SETTING || is_kept(name)
}

/// The value of [`SEQUENCES_SETTING`] that permits leased ranges.
pub(crate) const SEQUENCES_LENT: &str = "lent";
