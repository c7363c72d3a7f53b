//! The grammar of the command line.
//!
//! Only the grammar is here. A command's work belongs to the command itself, and so do checks that look at the
//! machine (folders, ports, programs). So its error can say what it found there.

pub(crate) mod connect;
mod connect_error;
pub(crate) mod connection;
pub(crate) mod error;
pub(crate) mod explain;
pub(crate) mod external;
pub(crate) mod log;
pub(crate) mod node;
pub(crate) mod placement;
pub(crate) mod plan;
pub(crate) mod protocol;
pub(crate) mod replica;
mod schema;
pub(crate) mod top;
pub(crate) mod verify;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use pgserver::MAX_REPLICAS;

use crate::client::own_settings::SEQUENCES_LENT;
use crate::config::runtime::DEFAULT_LOGINS_MAX;
use crate::config::{ElasticFlags, Given};
use protocol::ProtocolFlags;

pub(crate) const DEFAULT_PORT: u16 = 6432;
/// The largest number of nodes that `onecopy up` runs.
pub(crate) const NODES_MAX: u16 = 7;
/// Default of `reader_patience`.
pub(crate) const DEFAULT_READER_PATIENCE_S: u16 = 30;
/// Default of `stop_patience`.
pub(crate) const DEFAULT_STOP_PATIENCE_S: u16 = 5;
/// Default of `health_deadline`.
pub(crate) const DEFAULT_HEALTH_DEADLINE_MS: u32 = 3_000;
/// Default of `drain_patience`.
pub(crate) const DEFAULT_DRAIN_PATIENCE_MS: u32 = 10_000;
/// Default of `takeover_after`.
pub(crate) const DEFAULT_TAKEOVER_AFTER_MS: u32 = 300;
/// Default of `chain_patience`.
/// Default of `pool_size`.
pub(crate) const DEFAULT_POOL_SIZE: u16 = 20;
/// Default of `pool_wait`.
pub(crate) const DEFAULT_POOL_WAIT_MS: u32 = 30_000;

/// Default of the largest transaction: more than a normal one needs, less than fills most disks.
pub(crate) const DEFAULT_TRANSACTION_MAX_MB: u32 = 16 << 10;

/// Default of the largest log that is kept for absent replicas.
pub(crate) const DEFAULT_LOG_MAX_MB: u32 = 16 << 10;

/// Default of the largest log that is kept for parked replicas.
pub(crate) const DEFAULT_PARKED_LOG_MAX_MB: u32 = 4 << 10;

/// Runs several PostgreSQL servers as one database.
#[derive(Debug, Parser)]
#[command(name = "onecopy", version, about, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run PostgreSQL servers on this machine and serve them as one database.
    Up(Box<Up>),
    /// Serve PostgreSQL servers that already run as one database.
    Serve(Serve),
    /// Check a configuration of `onecopy serve`, and show the settings. Nothing is started.
    Check(Serve),
    /// Compare every table on every replica of a running cluster, at one version.
    Verify(Verify),
    /// Explain a statement: what it reads and writes, where it may run, and why. Nothing is executed.
    Explain(Explain),
    /// Check `[placement]` of a configuration against a schema. Nothing is started.
    #[command(subcommand)]
    Placement(placement::PlacementCommand),
    /// Compute the data services of an application from its schema and workload. Nothing is started.
    Plan(plan::PlanFlags),
    /// Show, check, rebuild, add, drain, park and drop replicas of a running cluster.
    Replica(Replica),
    /// Show the nodes of a running cluster.
    Node(Node),
    /// Show the log of a cluster, or check it for damage. Nothing is changed.
    #[command(subcommand)]
    Log(LogCommand),
    /// Choose one of several nodes by their loads, and print its host and port for psql and libpq.
    Connect(connect::Connect),
    /// Show what a running node does, refreshed every few seconds.
    Top(Top),
    /// Demonstrate the loss of a server under load, on temporary servers. Needs the program
    /// `onecopy-bench`.
    #[command(disable_help_flag = true)]
    Demo(ExternalArguments),
    /// Benchmark and check real servers; see `onecopy bench help`. Needs the program `onecopy-bench`.
    #[command(disable_help_flag = true)]
    Bench(ExternalArguments),
    /// Simulate clusters: a paper's experiments, or a load of your own; see `onecopy sim help`. Needs the
    /// program `onecopy-sim`.
    #[command(disable_help_flag = true)]
    Sim(ExternalArguments),
}

/// The arguments of `onecopy bench` and `onecopy sim`, for the other program.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExternalArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Flags of `onecopy up`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Up {
    /// Number of PostgreSQL servers; an existing folder keeps its number [default: 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_REPLICAS)))]
    pub(crate) replicas: Option<u16>,

    /// Number of nodes, best an odd one; a log on etcd joins several, and the loss of one is no outage. An
    /// existing folder keeps its number [default: 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX)))]
    pub(crate) nodes: Option<u16>,

    /// Port on which clients are served. Further nodes have the ports that follow.
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Folder of the cluster, created if it is missing [default: /var/lib/onecopy as root, else
    /// $XDG_DATA_HOME/onecopy].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) limits: LimitFlags,

    /// Port for `/metrics`, `/health` and `/ready` [default: none]. Further nodes have the ports that follow.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) http_port: Option<u16>,

    /// Largest number of connections that have not logged in; one more closes the one that has waited
    /// longest.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_LOGINS_MAX, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) logins_max: u16,

    #[command(flatten)]
    pub(crate) protocol: ProtocolFlags,

    #[command(flatten)]
    pub(crate) patience: PatienceFlags,

    /// Where inserts that draw from sequences execute: at the anchor unless it is busy, or always at the
    /// anchor, so that values ascend over all sessions.
    #[arg(long, value_name = "WHERE", value_parser = [SEQUENCES_LENT, "anchor"], default_value = SEQUENCES_LENT)]
    pub(crate) sequences: String,

    #[command(flatten)]
    pub(crate) pool: PoolFlags,

    #[command(flatten)]
    pub(crate) elastic: ElasticFlags,

    /// Folder of the programs `postgres` and `initdb` of PostgreSQL 14 to 18 [default: searched, else
    /// downloaded].
    #[arg(long, value_name = "DIR")]
    pub(crate) pg_bin: Option<PathBuf>,

    /// Program `etcd` for several nodes, 3.5.14 or later [default: $ONECOPY_ETCD_BIN, else the one that
    /// scripts/etcd has built, else searched].
    #[arg(long, value_name = "FILE")]
    pub(crate) etcd_bin: Option<PathBuf>,
}

/// Flags of `onecopy up` that limit sizes.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitFlags {
    /// Largest size of the row changes of one transaction, in megabytes; a larger one is rejected.
    #[arg(long, value_name = "MB", default_value_t = DEFAULT_TRANSACTION_MAX_MB,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) transaction_max_mb: u32,

    /// How long a read may hold up a schema change at its replica before it is cancelled, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_READER_PATIENCE_S)]
    pub(crate) reader_patience: u16,

    /// Largest size of the log that is kept for replicas that are down, in megabytes; past that they must
    /// be rebuilt.
    #[arg(long, value_name = "MB", default_value_t = DEFAULT_LOG_MAX_MB,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) log_max_mb: u32,

    /// Largest size of the log that is kept for parked replicas, in megabytes; waking one that lacks more
    /// rebuilds it.
    #[arg(long, value_name = "MB", default_value_t = DEFAULT_PARKED_LOG_MAX_MB,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) parked_log_max_mb: u32,

    /// Size of the cache of answers, in megabytes; 0 switches it off. An answer is given again until
    /// something that it depends on is written.
    #[arg(long, value_name = "MB", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) result_cache_mb: u32,
}

/// Flags of `onecopy up` that limit waits.
#[derive(Debug, Clone, Args)]
pub(crate) struct PatienceFlags {
    /// How long open transactions may take to end after a signal to stop, in seconds; a second signal ends
    /// them at once.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_STOP_PATIENCE_S)]
    pub(crate) stop_patience: u16,

    /// How long DRAIN and DROP of the anchor wait for sessions that hold state there, in milliseconds; then
    /// the sessions end.
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_DRAIN_PATIENCE_MS,
          value_parser = clap::value_parser!(u32).range(0..=86_400_000))]
    pub(crate) drain_patience_ms: u32,

    /// A server that has not answered, or has accepted no new connection, for this many milliseconds is
    /// down; the others go on without it.
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_HEALTH_DEADLINE_MS,
          value_parser = clap::value_parser!(u32).range(200..=600_000))]
    pub(crate) health_deadline_ms: u32,

    /// How long the anchor may be down, in milliseconds, before another replica takes its place.
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_TAKEOVER_AFTER_MS,
          value_parser = clap::value_parser!(u32).range(0..=86_400_000))]
    pub(crate) takeover_after_ms: u32,
}

/// Flags of `onecopy up`: how sessions use server connections.
#[derive(Debug, Clone, Args)]
pub(crate) struct PoolFlags {
    /// Keep server connections per session, or share them between transactions.
    #[arg(id = "pool_mode", long = "pool-mode", value_name = "MODE", value_parser = ["session", "transaction"], default_value = "session")]
    pub(crate) mode: String,

    /// Largest number of shared connections of one role to each server.
    #[arg(id = "pool_size", long = "pool-size", value_name = "N", default_value_t = DEFAULT_POOL_SIZE, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) size: u16,

    /// How long a statement waits for a shared connection before it fails, in milliseconds.
    #[arg(id = "pool_wait_ms", long = "pool-wait-ms", value_name = "MS", default_value_t = DEFAULT_POOL_WAIT_MS,
          value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) wait_ms: u32,
}

/// Flags of `onecopy serve` and `onecopy check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serve {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Settings that override the file.
    #[command(flatten)]
    pub(crate) settings: Given,
}

/// Flags of `onecopy verify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Verify {
    /// Port on which the cluster is served [default: $PGPORT, else 6432].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
}

/// Flags of `onecopy top`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Top {
    /// Port on which the cluster is served [default: $PGPORT, else 6432].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    /// Interval of refreshing, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) every: u32,

    /// Number of refreshes [default: until interrupted].
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u32>,
}

/// Flags of `onecopy explain`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Explain {
    /// File of CREATE statements, as `pg_dump --schema-only` writes it; without it a running cluster is
    /// asked.
    #[arg(long, value_name = "FILE")]
    pub(crate) schema: Option<PathBuf>,

    /// Port on which the cluster is served [default: $PGPORT, else 6432].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..),
          conflicts_with = "schema")]
    pub(crate) port: Option<u16>,

    /// Statement; its parameters, $1 and so on, need no values.
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
}

/// Flags of `onecopy replica`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Replica {
    /// Port on which the cluster is served [default: $PGPORT, else 6432].
    #[arg(long, global = true, value_name = "PORT",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    #[command(subcommand)]
    pub(crate) action: ReplicaAction,
}

/// The actions of `onecopy replica`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ReplicaAction {
    /// Show the state of each replica.
    List,
    /// Compare all replicas that are up, at one version; quarantine one that differs.
    Check,
    /// Give a replica the data of another one, while clients go on.
    Rebuild {
        /// Name of the replica.
        name: String,
    },
    /// Add a replica, while clients go on.
    Add {
        /// URL of a server that runs already (`onecopy serve`); without it, `onecopy up` makes a server.
        #[arg(value_name = "URL")]
        url: Option<String>,
    },
    /// Remove a replica from the cluster; a server of `onecopy up` is removed with its data.
    Drop {
        /// Name of the replica.
        name: String,
    },
    /// Send no new statements to a replica; returns when none is open there.
    Drain {
        /// Name of the replica.
        name: String,
    },
    /// Send statements to a drained replica again.
    Undrain {
        /// Name of the replica.
        name: String,
    },
    /// Drain a replica and stop its server; its data is kept, so it can be woken soon.
    Park {
        /// Name of the replica.
        name: String,
    },
    /// Start the server of a parked replica; returns when it has caught up and serves.
    Wake {
        /// Name of the replica.
        name: String,
    },
}

/// Flags of `onecopy node`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Node {
    /// Port on which one of the nodes is served [default: $PGPORT, else 6432].
    #[arg(long, global = true, value_name = "PORT",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,

    #[command(subcommand)]
    pub(crate) action: NodeAction,
}

/// The actions of `onecopy node`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeAction {
    /// Show each node, as the one that is asked sees it: which leads, its term, its sessions, its release.
    List,
    /// Have another node lead, while clients of all nodes wait for a moment; says which one leads then.
    MoveLeader {
        /// The node that is to lead [default: any other one].
        #[arg(value_name = "NODE")]
        to: Option<String>,
    },
    /// Let no clients in at a node, and end its sessions between two transactions, for instance before its machine is stopped.
    Drain {
        /// The node.
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Let clients in again at a drained node.
    Undrain {
        /// The node.
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Start the program of a node anew, for instance after an upgrade, while its clients wait for a moment.
    Restart {
        /// The node [default: the one that is asked].
        #[arg(value_name = "NODE")]
        node: Option<String>,
    },
}

/// The actions of `onecopy log`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum LogCommand {
    /// Show every record: its version, the rows it changed, its statements.
    Dump(LogDump),
    /// Read every byte, and name the file and place of any damage.
    Verify(LogVerify),
}

/// Flags of `onecopy log dump`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogDump {
    /// Folder of the cluster [default: as for `onecopy up`].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// First version to show.
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    pub(crate) from: u64,

    /// Last version to show.
    #[arg(long, value_name = "VERSION")]
    pub(crate) upto: Option<u64>,

    /// Port of a running cluster that is asked for the names of tables.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
}

/// Flags of `onecopy log verify`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LogVerify {
    /// Folder of the cluster [default: as for `onecopy up`].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    fn up(arguments: &[&str]) -> Result<Up, ErrorKind> {
        let parsed = Cli::try_parse_from([&["onecopy", "up"], arguments].concat()).map_err(|e| e.kind())?;
        match parsed.command {
            Command::Up(up) => Ok(*up),
            other => panic!("asked for up, got {other:?}"),
        }
    }

    #[test]
    fn the_grammar_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_bench_is_for_the_other_program() {
        let words = ["run", "plan.toml", "--out", "here", "--help"];
        let parsed =
            Cli::try_parse_from([&["onecopy", "bench"][..], &words].concat()).expect("all words pass");
        match parsed.command {
            Command::Bench(bench) => assert_eq!(bench.arguments, words),
            other => panic!("asked for bench, got {other:?}"),
        }
    }

    #[test]
    fn up_has_defaults() {
        let up = up(&[]).expect("no argument is needed");
        assert_eq!((up.replicas, up.port, up.data, up.pg_bin), (None, DEFAULT_PORT, None, None));
        assert_eq!(up.limits.transaction_max_mb, DEFAULT_TRANSACTION_MAX_MB);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for refused in [
            "--replicas=0",
            "--replicas=17",
            "--replicas=-1",
            "--replicas=three",
            "--port=0",
            "--port=65536",
            "--transaction-max-mb=0",
            "--elastic-replicas=6..2",
            "--elastic-busy=2",
        ] {
            assert_eq!(up(&[refused]).map(|_| ()), Err(ErrorKind::ValueValidation), "{refused:?}");
        }
        assert_eq!(up(&["--replicas", "16"]).map(|up| up.replicas), Ok(Some(MAX_REPLICAS)));
        assert_eq!(up(&["--replicas", "1", "--port", "65535"]).map(|up| up.port), Ok(65535));
    }

    #[test]
    fn no_command_shows_the_help() {
        let error = Cli::try_parse_from(["onecopy"]).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    }
}
