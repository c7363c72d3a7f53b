//! The settings of role and database with which a connection begins (ALTER ROLE and ALTER DATABASE .. SET).
//!
//! Example: `ALTER ROLE joe SET work_mem = '1GB'` commits at the anchor. A session of joe that began earlier keeps the
//! former value, as on one server. A connection that is opened later begins with the new value, where its replica has
//! applied the change already. So each connection is compared with the session's connection to the anchor. If another
//! replica differs, the session stays at the anchor for a while.

use std::time::{Duration, Instant};

/// How long the session stays at the anchor before it tries another replica again.
const OTHER_DEFAULTS_PAUSE: Duration = Duration::from_secs(10);

/// The settings of ALTER ROLE and ALTER DATABASE for a new connection, weakest first.
pub(super) const ALTERED_SQL: &str = "SELECT pg_catalog.unnest(setconfig) FROM pg_catalog.pg_db_role_setting \
     WHERE setrole OPERATOR(pg_catalog.=) ANY (ARRAY['0', \
         (SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) session_user)]) \
     AND setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY['0', (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())]) \
     ORDER BY setrole OPERATOR(pg_catalog.<>) '0', setdatabase OPERATOR(pg_catalog.<>) '0'";

/// The settings of role and database with which one connection has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults(Vec<String>);

impl Defaults {
    /// Takes the answers to [`ALTERED_SQL`].
    pub(super) fn new(answers: Vec<String>) -> Self {
        Self(answers)
    }
}

/// The defaults of the session, and whether another server has others.
#[derive(Debug, Default)]
pub(crate) struct SessionDefaults {
    /// The defaults of the connection to the anchor.
    own: Option<Defaults>,
    /// When another replica had others.
    differed: Option<Instant>,
    /// Grows whenever `own` changes.
    edition: u64,
}

impl SessionDefaults {
    /// Whether a connection has the session's defaults.
    pub(crate) fn are(&self, defaults: &Defaults) -> bool {
        self.own.as_ref().is_none_or(|own| own == defaults)
    }

    /// Whether a new connection to another replica than the anchor has them; if not, the session avoids it for a while.
    pub(crate) fn suit(&mut self, defaults: &Defaults) -> bool {
        let suits = self.are(defaults);
        if !suits {
            self.differed = Some(Instant::now());
        }
        suits
    }

    /// Takes the defaults of the connection to the anchor; returns whether they have changed.
    pub(crate) fn take(&mut self, defaults: &Defaults) -> bool {
        let is_new = !self.are(defaults);
        if is_new || self.own.is_none() {
            *self = Self { own: Some(defaults.clone()), differed: None, edition: self.edition + 1 };
        }
        is_new
    }

    /// The defaults of the connection to the anchor, weakest first; `None` before there was one.
    pub(crate) fn own(&self) -> Option<&[String]> {
        self.own.as_ref().map(|own| own.0.as_slice())
    }

    /// Grows whenever they change.
    pub(crate) fn edition(&self) -> u64 {
        self.edition
    }

    pub(super) fn differ(&self) -> bool {
        self.differed.is_some_and(|since| since.elapsed() < OTHER_DEFAULTS_PAUSE)
    }
}
