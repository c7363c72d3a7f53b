//! What settings mean to Onecopy itself: most of them are the servers' affair alone.
//!
//! Two are Onecopy's own and hold in the session, `onecopy.home` and `onecopy.sequences`: no server hears of them, but they
//! are given at start-up, set, rolled back and reset as all others are.

use std::sync::Arc;

use super::timeouts::Timeouts;

/// The setting by which a client asks for a home.
pub(crate) const HOME_SETTING: &str = "onecopy.home";
/// The setting by which a client says whether it draws from what is lent.
pub(crate) const SEQUENCES_SETTING: &str = "onecopy.sequences";

/// Whether a setting is one of these two.
pub(crate) fn is_kept(name: &str) -> bool {
    matches!(name, HOME_SETTING | SEQUENCES_SETTING)
}

/// Of messages of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    /// NOTICE.
    Notice,
    /// WARNING.
    Warning,
    /// Nothing but errors, which are always told.
    Error,
}

/// What is noted.
#[derive(Clone, Debug)]
pub(crate) struct OwnSettings {
    /// How long the client waits.
    pub(crate) timeouts: Timeouts,
    /// `standard_conforming_strings`.
    pub(crate) conforming: bool,
    /// The least severe of our own messages that `client_min_messages` lets through.
    pub(crate) least: Severity,
    /// `onecopy.home`, if the session says anything; it was checked before.
    pub(crate) home: Option<Arc<str>>,
    /// `onecopy.sequences`, likewise: whether rows are written where sequences are lent to.
    pub(crate) borrows: Option<bool>,
}

impl Default for OwnSettings {
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            conforming: true,
            least: Severity::Notice,
            home: None,
            borrows: None,
        }
    }
}

impl OwnSettings {
    /// Whoever sets it and for how long.
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
            SEQUENCES_SETTING => self.borrows = value.map(|word| word.eq_ignore_ascii_case(SEQUENCES_LENT)),
            _ => self.timeouts.note(name, value, false),
        }
    }
}

/// The setting that declares.
pub(crate) const ACCESS_SETTING: &str = "onecopy.access";

/// Whether a setting is one of our own that holds in the session or transaction only; no server hears of it.
pub(crate) fn is_of_session(name: &str) -> bool {
    name == ACCESS_SETTING || is_kept(name)
}

/// It does.
pub(crate) const SEQUENCES_LENT: &str = "lent";
