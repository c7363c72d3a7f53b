//! The options of `check-live`, and what follows from them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use cluster::protocols::middle_r::MIDDLE_R;
use sim::check::{Promise, Sessions};
use testbed::fault::Fault;
use testbed::node;
use testbed::nodes::NODES_MAX;

use super::fault_injector::{self, Kind};
use super::manner::{CacheName, LevelName, Manner, RespondName};
use super::moves::Moves;
use super::several::StrikeKind;
use crate::split::Placement;

/// The default protocol.
const ONECOPY: &str = "onecopy";

/// `check-live`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Time under load, in seconds.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(super) seconds: u32,

    /// Number of clients; every fourth one moves money.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub(super) clients: u32,

    /// Number of lists in use at a time.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) keys: u32,

    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Check the cluster on this port instead of starting servers. Recreates the tables `check_live_..`.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["onecopy", "kill", "chaos"])]
    pub(super) port: Option<u16>,

    /// File for the history, as JSON lines.
    #[arg(long, value_name = "FILE")]
    pub(super) history: Option<PathBuf>,

    /// Kill the first process of one PostgreSQL server every few seconds.
    #[arg(long)]
    pub(super) kill: bool,

    /// Inject all kinds of faults, in an order drawn from the seed: servers killed, hung, cut off, full, drained,
    /// rebuilt; the node killed; everything killed at once.
    #[arg(long, conflicts_with = "kill")]
    pub(super) chaos: bool,

    /// Inject only these faults, separated by commas: kill, hang, backend, backends, cut, connections, drain, rebuild, node, all,
    /// place. With --nodes: leader, hang-leader, cut-etcd, cut-nodes, deaf-leader, mute-leader, etcd-leader, node,
    /// move, stop-leader, stop, restart; all of them: all.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', conflicts_with_all = ["kill", "port"])]
    pub(super) strikes: Vec<String>,

    /// Number of nodes. Several share an etcd of three members, which `scripts/etcd` builds; clients are dealt over them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=NODES_MAX), conflicts_with_all = ["port", "kill", "chaos", "placement"])]
    pub(super) nodes: u64,

    /// Pause after a fault, in milliseconds, up to twice this.
    #[arg(long, value_name = "MS", default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    pub(super) calm_ms: u32,

    /// Where tables are held: `parts` (split by their key; with --chaos their placement changes under load, too), `few` (at two
    /// replicas), a seed, or `random`, which is one of these by the seed; under c-jdbc `one` or `few`, which change with
    /// --chaos [default: everywhere].
    #[arg(long, value_name = "WORD", conflicts_with = "port")]
    pub(super) placement: Option<String>,

    /// Number of servers.
    #[arg(long, value_name = "N", default_value_t = node::REPLICAS, value_parser = clap::value_parser!(u64).range(2..=9), conflicts_with = "port")]
    pub(super) replicas: u64,

    /// Folder of the servers' data, which is kept; an existing one is used again. With --nodes, an empty folder for the data and the logs
    /// of the nodes.
    #[arg(long, value_name = "FOLDER", conflicts_with = "port")]
    pub(super) data: Option<PathBuf>,

    /// Replication protocol, as for `onecopy up --protocol`.
    #[arg(long, value_name = "NAME", default_value = ONECOPY)]
    pub(super) protocol: String,

    /// Under c-jdbc, which statements wait for which, as for `onecopy up --transaction-level`.
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub(super) level: Option<LevelName>,

    /// Under c-jdbc, when clients are answered, as for `onecopy up --early-response`.
    #[arg(long, value_name = "WHO", value_enum)]
    pub(super) respond: Option<RespondName>,

    /// Under c-jdbc, what a write makes obsolete of the answers that are kept, as for `onecopy up --query-cache`.
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "port")]
    pub(super) query_cache: Option<CacheName>,

    /// Which transactions wait for each other, as for `onecopy up --rule`.
    #[arg(long, value_name = "RULE", conflicts_with = "port")]
    pub(super) rule: Option<String>,

    /// What reads see, as for `onecopy up --see`; with `local`, choose a promise that allows old snapshots.
    #[arg(long, value_name = "WHAT", conflicts_with = "port")]
    pub(super) see: Option<String>,

    /// The promise to judge by: as-asked, old-snapshots or parallel; the last two also with +sessions [default: as-asked; under
    /// middle-r with its own reads, old-snapshots+sessions].
    #[arg(long, value_name = "NAME")]
    promise: Option<Promise>,

    /// Folder of PostgreSQL's programs [default: ONECOPY_PG_BIN, else the newest installed release].
    #[arg(long, value_name = "FOLDER")]
    pub(super) pg_bin: Option<PathBuf>,

    /// Program to check [default: built from these sources].
    #[arg(long, value_name = "PROGRAM")]
    pub(super) onecopy: Option<PathBuf>,
}

impl Options {
    /// The faults of a single node.
    pub(super) fn kinds(&self) -> Result<Vec<Kind>, Fault> {
        let chaos = |kind: &Kind| *kind != Kind::Place || self.places();
        if self.chaos {
            return Ok(fault_injector::KINDS.into_iter().filter(chaos).collect());
        }
        let kinds: Result<_, String> =
            self.strikes.iter().map(|name| <Kind as ValueEnum>::from_str(name, false)).collect();
        kinds.map_err(|why| Fault::Missing(format!("`--strikes` of a single node: {why}")))
    }

    /// The faults of several nodes.
    pub(super) fn strike_kinds(&self) -> Result<Vec<StrikeKind>, Fault> {
        let kinds = StrikeKind::named(&self.strikes);
        kinds.map_err(|why| Fault::Missing(format!("`--strikes` of several nodes: {why}")))
    }

    /// What the history is held to.
    pub(super) fn promise(&self) -> Promise {
        let has_local_reads =
            self.protocol == MIDDLE_R.name && matches!(self.see.as_deref(), None | Some("own" | "local"));
        let own = if has_local_reads { Promise::OldSnapshots(Sessions::InOrder) } else { Promise::AsAsked };
        self.promise.unwrap_or(own)
    }

    pub(super) fn has_several(&self) -> bool {
        self.nodes > 1
    }

    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<(), Fault> {
        self.moves()?;
        if self.has_several() {
            return self.strike_kinds().map(drop);
        }
        if self.kinds()?.contains(&Kind::Place) && !self.places() {
            let text = "`--strikes place` needs `--placement parts`, or under c-jdbc `one` or `few`";
            return Err(Fault::Missing(text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn placement(&self) -> Placement {
        Placement::chosen(self.placement.as_deref(), self.seed)
    }

    /// Whether what is held where may change under load.
    pub(super) fn places(&self) -> bool {
        self.placement() == Placement::Parts || matches!(self.moves(), Ok(Moves::Tables { .. }))
    }

    /// How tables move under C-JDBC; under other protocols they are placed when they are made.
    pub(super) fn moves(&self) -> Result<Moves, Fault> {
        match &self.placement {
            Some(word) if self.manner().is_c_jdbc() => Moves::of_tables(word, self.replicas)
                .ok_or_else(|| Fault::Missing("`--placement` is `one` or `few` under c-jdbc".to_owned())),
            _ => Ok(Moves::Nothing),
        }
    }

    pub(super) fn manner(&self) -> Manner {
        Manner::of(&self.protocol, self.level, self.respond)
    }

    /// Whether errors are to be expected.
    pub(super) fn strikes(&self) -> bool {
        self.kill || self.chaos || !self.strikes.is_empty()
    }
}
