//! Flags of `onecopy up` that choose the replication protocol, and those that change one.

use clap::{Args, ValueEnum};

use crate::config::c_jdbc;
use crate::config::protocol::{self, MEMORY_DEFAULT, PERFORMERS, RULES, SIGHTS, STARTS};

const DEFAULT_CHAIN_PATIENCE_MS: u32 = 10_000;
/// Max + epsilon of protocol `preventive`.
const DEFAULT_MESSAGE_MAX_MS: u32 = 2;

/// The replication protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Row changes are captured where a transaction executes, and applied elsewhere in log order.
    #[default]
    Onecopy,
    /// Rows travel, too; transactions that are known beforehand and conflict follow each other in chains.
    Gargamel,
    /// Rows travel, too; replicas take transactions in turn, and those that conflict fail. For benchmarks.
    RoundRobin,
    /// Rows travel, too; kinds of transactions run where their tables fit into memory, and those that conflict
    /// fail. For benchmarks.
    #[value(name = "tashkent+")]
    TashkentPlus,
    /// Rows travel, too; one replica executes all updates that are known beforehand one after another.
    CentralisedWrites,
    /// Transactions that are known beforehand run in the order of the times of their submission, and each replica that
    /// holds their data performs them.
    Preventive,
    /// Rows travel, too; a session stays at one replica, whose answers may be old, and of two transactions that conflict the
    /// first one commits.
    #[value(name = "middle-r")]
    MiddleR,
    /// Statements go to all replicas; the client gets the last reply.
    Eager,
    /// As eager, but all reads of a transaction go to the replica that had least load when it began.
    FrL,
    /// As eager, but they go to the replica that granted the locks first.
    FrC,
    /// As eager, but each read goes to the replica with least load.
    VrL,
    /// As eager, but each read goes to a replica without conflicts, and among these to the one with least
    /// load.
    ConflictAware,
    /// Each statement goes to all replicas when it comes, in one order; see --transaction-level.
    CJdbc,
}

impl Protocol {
    /// Its name.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Flags of `onecopy up` about the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub(crate) struct ProtocolFlags {
    /// Replication protocol: Onecopy's own, or a scheduler that ships statements to all replicas. A data
    /// folder keeps its kind.
    #[arg(id = "protocol", long = "protocol", value_name = "NAME", default_value_t, value_enum)]
    pub(crate) name: Protocol,

    /// Which transactions wait for each other under gargamel: those that write the same, or also those that
    /// read what another writes, with REPEATABLE READ as SERIALIZABLE.
    #[arg(long, value_name = "RULE", value_parser = RULES, default_value = RULES[0])]
    pub(crate) rule: String,

    /// Memory of one server for tables, such as 512MB: under tashkent+, kinds of transactions whose tables fit
    /// into it together share a group of replicas.
    #[arg(long, value_name = "SIZE", value_parser = protocol::memory, default_value = MEMORY_DEFAULT)]
    pub(crate) memory: u64,

    /// Whether reads see all acknowledged transactions, or whatever their replica has at the moment: the latter is middle-r's own.
    /// For protocols that propagate rows.
    #[arg(long, value_name = "WHAT", value_parser = SIGHTS, default_value = SIGHTS[0])]
    pub(crate) see: String,

    /// How long a transaction at REPEATABLE READ or SERIALIZABLE waits in a chain, in milliseconds, before it
    /// fails with 40001 after all.
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_CHAIN_PATIENCE_MS,
          value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) chain_patience_ms: u32,

    /// When transactions start under preventive: on arrival, to run again if an older one comes, or when no
    /// older one can come any more.
    #[arg(long, value_name = "WHEN", value_parser = STARTS, default_value = STARTS[0])]
    pub(crate) start: String,

    /// Under preventive, how long after its submission a transaction may commit, in milliseconds: what a message
    /// to another replica takes at most. A later one costs time only.
    #[arg(long, value_name = "MS", default_value_t = DEFAULT_MESSAGE_MAX_MS,
          value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub(crate) message_max_ms: u32,

    /// Whether all replicas that hold its data perform a transaction under preventive, or its home alone and the
    /// others apply its rows.
    #[arg(long, value_name = "WHO", value_parser = PERFORMERS, default_value = PERFORMERS[0])]
    pub(crate) perform: String,

    /// Which statements wait for which under c-jdbc: those that share a table with a writer, writers of one table, or those
    /// that the servers let wait.
    #[arg(long, value_name = "LEVEL", value_parser = c_jdbc::LEVELS, default_value = c_jdbc::DEFAULTS.level)]
    pub(crate) transaction_level: String,

    /// How many replicas must have executed a write, or the end of a transaction, before its client is answered under c-jdbc.
    #[arg(long, value_name = "WHO", value_parser = c_jdbc::RESPONSES, default_value = c_jdbc::DEFAULTS.respond)]
    pub(crate) early_response: String,

    /// The replica of a read under c-jdbc: that with the fewest unanswered requests, the next one, or the next one by weights.
    #[arg(long, value_name = "RULE", value_parser = c_jdbc::BALANCERS, default_value = c_jdbc::DEFAULTS.balancer)]
    pub(crate) balancer: String,

    /// With --balancer weighted, the share of reads of each replica, such as 3,1,1.
    #[arg(long, value_name = "NUMBERS", default_value = c_jdbc::DEFAULTS.weights, hide_default_value = true)]
    pub(crate) balancer_weights: String,

    /// Whether answers of reads are kept under c-jdbc, until a table that they read is written, or any table is.
    #[arg(long, value_name = "WHAT", value_parser = c_jdbc::CACHES, default_value = c_jdbc::DEFAULTS.cache)]
    pub(crate) query_cache: String,

    /// With --query-cache, the size of the answers that are kept, in megabytes.
    #[arg(long, value_name = "MB", default_value_t = c_jdbc::CACHE_MB,
          value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) query_cache_mb: u32,
}
