//! The contestants of a plan, and their names in reports.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A contestant.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Entrant {
    /// One PostgreSQL.
    Postgres {
        /// Whether commits wait for the disk.
        synchronous_commit: bool,
    },
    /// One PostgreSQL behind PgBouncer.
    Pgbouncer {
        /// Server connections that clients share by transactions; without it, and where its release cannot do that for
        /// clients that prepare statements, each client can have one.
        pool_size: Option<u16>,
    },
    /// PostgreSQL with standbys that have applied what is acknowledged; clients send their reads to all in turn.
    Streaming {
        /// How many servers there are.
        replicas: u16,
    },
    /// Pgpool-II before several PostgreSQL, in native replication mode.
    Pgpool {
        /// How many servers there are.
        replicas: u16,
    },
    /// Ourselves.
    Onecopy {
        /// How many servers there are.
        replicas: u16,
        /// Connections to each server that clients share by transactions; without it each client has its own.
        pool_size: Option<u16>,
        /// Further words for `onecopy up`.
        #[serde(default)]
        arguments: Vec<String>,
        /// What tells it apart in reports from others with the same words.
        called: Option<String>,
        /// What is done once when the tables are filled and before any load: lists by the name of the tables, as
        /// [`crate::load::Load::tables`] has it.
        #[serde(default)]
        prepared: BTreeMap<String, Prepared>,
        /// The mean delay of messages between agents, in microseconds; without it they take no time.
        message_us: Option<u32>,
        /// A rule of its protocol that is off, to measure what it costs.
        rule_off: Option<String>,
    },
}

/// Statements that prepare filled tables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prepared {
    /// In the database with the tables.
    #[serde(default)]
    pub(crate) sql: Vec<String>,
    /// In the admin database, after those.
    #[serde(default)]
    pub(crate) admin: Vec<String>,
}

impl Entrant {
    /// Ourselves, with nothing out of the ordinary.
    pub(crate) fn onecopy(replicas: u16, pool_size: Option<u16>, arguments: Vec<String>) -> Self {
        let prepared = BTreeMap::new();
        let (called, message_us, rule_off) = (None, None, None);
        Self::Onecopy { replicas, pool_size, arguments, called, prepared, message_us, rule_off }
    }

    /// The statements that prepare these tables when they are filled.
    pub(crate) fn prepared(&self, tables: &str) -> Option<&Prepared> {
        let Self::Onecopy { prepared, .. } = self else { return None };
        prepared.get(tables)
    }

    /// The names of tables for which it has statements.
    pub(crate) fn prepares(&self) -> impl Iterator<Item = &str> {
        let prepared = if let Self::Onecopy { prepared, .. } = self { Some(prepared) } else { None };
        prepared.into_iter().flat_map(BTreeMap::keys).map(String::as_str)
    }

    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Postgres { synchronous_commit: true } => "PostgreSQL".into(),
            Self::Postgres { synchronous_commit: false } => "PostgreSQL, asynchronous".into(),
            Self::Pgbouncer { .. } => format!("PgBouncer{}", self.pools()),
            Self::Streaming { replicas } => format!("streaming x{replicas}"),
            Self::Pgpool { replicas } => format!("Pgpool-II x{replicas}"),
            Self::Onecopy { replicas, .. } => format!("onecopy x{replicas}{}", self.further()),
        }
    }

    /// The rest of its name, after the number of servers.
    fn further(&self) -> String {
        let Self::Onecopy { arguments, called, .. } = self else { return self.pools() };
        let gap = if arguments.is_empty() { "" } else { " " };
        let called = called.as_ref().map_or_else(String::new, |called| format!(", {called}"));
        format!("{gap}{}{}{called}", arguments.join(" "), self.pools())
    }

    fn pools(&self) -> String {
        self.pool_size().map_or_else(String::new, |size| format!(", pools of {size}"))
    }

    /// How many connections to a server its clients share, if they do.
    pub(crate) fn pool_size(&self) -> Option<u16> {
        match self {
            Self::Pgbouncer { pool_size } | Self::Onecopy { pool_size, .. } => *pool_size,
            Self::Postgres { .. } | Self::Streaming { .. } | Self::Pgpool { .. } => None,
        }
    }

    /// All further words for `onecopy up`.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self::Onecopy { pool_size, arguments, .. } = self else { return Vec::new() };
        let pools = pool_size.map(|size| {
            ["--pool-mode".to_owned(), "transaction".to_owned(), "--pool-size".to_owned(), size.to_string()]
        });
        arguments.iter().cloned().chain(pools.into_iter().flatten()).collect()
    }

    /// The family that a line in a plot connects.
    pub(crate) fn family(&self) -> String {
        match self {
            Self::Streaming { .. } => "streaming".into(),
            Self::Pgpool { .. } => "Pgpool-II".into(),
            Self::Onecopy { .. } => format!("onecopy{}", self.further()),
            alone => alone.name(),
        }
    }

    /// The protocol that it runs, if it is ours.
    pub(crate) fn protocol(&self) -> Option<&str> {
        let Self::Onecopy { arguments, .. } = self else { return None };
        let word = arguments.iter().position(|word| word == "--protocol");
        word.map_or(Some("onecopy"), |at| arguments.get(at + 1).map(String::as_str))
    }

    /// How many servers it has.
    pub(crate) fn servers(&self) -> u16 {
        match self {
            Self::Postgres { .. } | Self::Pgbouncer { .. } => 1,
            Self::Streaming { replicas } | Self::Pgpool { replicas } | Self::Onecopy { replicas, .. } => {
                *replicas
            }
        }
    }
}
