//! The log for whoever looks into a running node: lines of text, or JSON objects, on standard error.
//!
//! `ONECOPY_LOG` has the same form as in other programs that use `tracing` (`info`, `onecopy::keeper=debug`), and overrules
//! the level of a configuration.

use std::io::IsTerminal;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The variable that overrules everything.
const VARIABLE: &str = "ONECOPY_LOG";
/// What is told when nothing is said.
pub(crate) const DEFAULT_LEVEL: &str = "warn";

/// Changes the level of a log that runs.
#[derive(Clone, Debug)]
pub(crate) struct Level(reload::Handle<EnvFilter, Registry>);

impl Level {
    /// From now on this one, unless the variable overrules it.
    pub(crate) fn set(&self, level: &str) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!(%error, "the level of the log stays as it is");
        }
    }
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(level))
}

/// Starts the log; to be called once.
pub(crate) fn start(level: &str, is_json: bool) -> Level {
    let (filter, handle) = reload::Layer::new(filter(level));
    let registry = tracing_subscriber::registry().with(filter);
    if is_json {
        registry.with(fmt::layer().json().with_writer(std::io::stderr)).init();
    } else {
        let is_coloured = std::io::stderr().is_terminal();
        registry.with(fmt::layer().with_ansi(is_coloured).with_writer(std::io::stderr)).init();
    }
    Level(handle)
}
