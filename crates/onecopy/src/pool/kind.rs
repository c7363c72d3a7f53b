//! The role and parameters with which a pooled connection was opened.
//!
//! Example: two sessions of role `joe`, one with `-c search_path=a`, have different kinds, so neither gets a connection
//! of the other: RESET on it would lead back to another session's start-up parameters. A client that has proven nothing
//! does not get a connection that another client's password opened.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashSet;

use crate::client::settings::Settings;
use crate::security::scram::Secret;

/// Past so many kinds, those that no session or connection has are forgotten.
const KINDS_MAX: usize = 1_000;

/// Role and parameters with which a connection was opened.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    role: Arc<str>,
    parameters: Vec<(String, String)>,
    /// The client has proven something that the servers accept.
    is_proven: bool,
}

impl Kind {
    fn of(settings: &Settings, secret: &Secret) -> Self {
        let options = settings.server_options();
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let parameters: Vec<_> = settings.start_up(&options).into_iter().map(owned).collect();
        let role = parameters.iter().find(|(name, _)| name == "user").map_or("", |(_, role)| role.as_str());
        Self { role: role.into(), parameters, is_proven: !matches!(secret, Secret::None) }
    }

    /// The role that logs in, shared.
    pub(crate) fn role_name(&self) -> Arc<str> {
        Arc::clone(&self.role)
    }

    /// The role that logs in.
    pub(crate) fn role(&self) -> &str {
        &self.role
    }
}

/// All kinds in use, each once, so that two kinds are the same if their addresses are.
#[derive(Debug, Default)]
pub(super) struct Kinds(Mutex<FxHashSet<Arc<Kind>>>);

impl Kinds {
    /// The kind of a session's connections.
    pub(super) fn of(&self, settings: &Settings, secret: &Secret) -> Arc<Kind> {
        let kind = Kind::of(settings, secret);
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kinds.get(&kind) {
            return Arc::clone(known);
        }
        if kinds.len() >= KINDS_MAX {
            kinds.retain(|kind| Arc::strong_count(kind) > 1);
        }
        let kind = Arc::new(kind);
        kinds.insert(Arc::clone(&kind));
        kind
    }
}
