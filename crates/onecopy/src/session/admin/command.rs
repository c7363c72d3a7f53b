//! The few words of the admin database.
//!
//! One table lists every SHOW, with its words and columns. Help and errors are made from it.

use wire::sqlstate;

use super::checkpoints;
use super::membership::{self, Order};
use super::node_order::NodeOrder;
use super::placement;
use super::placement::Placing;
use crate::config::hba::Right;
use crate::coordinator::dispatch::Effect;
use crate::coordinator::node_kind::Feature;
use crate::error::Refusal;

/// The program for which the client was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Onecopy's own dialect.
    Own,
    /// PgBouncer's dialect, where the two differ.
    PgBouncer,
}

/// Commands other than SHOW, each with its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// A table.
    Show(View),
    /// Compare the replicas.
    Verify,
    /// A command about a replica.
    Replica(Order),
    /// PLACE TABLE: other replicas hold some tables.
    Place(Placing),
    /// A command about checkpoints.
    Checkpoint(checkpoints::Order),
    /// PAUSE: let open transactions end, and none begin.
    Pause(Reach),
    /// RESUME: let transactions begin again.
    Resume(Reach),
    /// RELOAD: read the configuration again.
    Reload,
    /// KILL: end a session.
    Kill(u64),
    /// MOVE LEADER: another node leads from now on, this one if it is named.
    MoveLeader(Option<String>),
    /// A command about one node.
    Node(NodeOrder),
    /// Said by nodes only: sessions begin nothing until a leader is joined anew, or [`Self::Release`].
    Hold,
    /// Said by nodes only: the end of [`Self::Hold`].
    Release,
    /// A statement that drivers send by themselves, without effect here.
    Set,
    /// An empty statement.
    Empty,
}

/// The nodes that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    AllNodes,
    /// The one where it is said.
    OwnNode,
}

/// Whether the cluster has several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterSize {
    OneNode,
    SeveralNodes,
}

/// A table that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum View {
    Cache,
    Chains,
    Checkpoints,
    Clients,
    Config,
    Conflicts,
    Cost,
    Databases,
    Elastic,
    Help,
    Lists,
    Log,
    Memory,
    Nodes,
    Placement,
    PlacementAdvice,
    Pools,
    Replicas,
    Servers,
    Stats,
    StatsAverages,
    StatsTotals,
    Templates,
    Transactions,
    Users,
    Version,
}

/// A table's name and its subject.
const VIEWS: [(&str, View, &str); 26] = [
    ("CACHE", View::Cache, "answers that are given again, and what became of others"),
    ("CHAINS", View::Chains, "known transactions that follow each other"),
    ("CHECKPOINTS", View::Checkpoints, "checkpoints of the recovery log (c-jdbc)"),
    ("CLIENTS", View::Clients, "sessions, and what each does"),
    ("CONFIG", View::Config, "settings in force"),
    ("CONFLICTS", View::Conflicts, "waits and aborts by table, the worst first"),
    ("COST", View::Cost, "replica-hours and commits, and what they cost"),
    ("DATABASES", View::Databases, "the database at each replica, as PgBouncer shows it"),
    ("ELASTIC", View::Elastic, "load of the replicas, and why they come and go"),
    ("HELP", View::Help, "this list"),
    ("LISTS", View::Lists, "counts of sessions, connections and so on"),
    ("LOG", View::Log, "versions that the log has"),
    ("MEMORY", View::Memory, "memory used by caches, with limits"),
    ("NODES", View::Nodes, "nodes of the cluster, as this one sees them"),
    ("PLACEMENT", View::Placement, "tables that only some replicas hold"),
    ("PLACEMENT ADVICE", View::PlacementAdvice, "tables that fewer replicas could hold"),
    ("POOLS", View::Pools, "clients and server connections, by role"),
    ("REPLICAS", View::Replicas, "replicas: state, version, load"),
    ("SERVERS", View::Servers, "server connections, and their sessions"),
    ("STATS", View::Stats, "why transactions ran where they did"),
    ("STATS_AVERAGES", View::StatsAverages, "counters of the last minute, per second"),
    ("STATS_TOTALS", View::StatsTotals, "counters since the start"),
    ("TEMPLATES", View::Templates, "statements: count, time, what is predicted to follow"),
    ("TRANSACTIONS", View::Transactions, "open update transactions"),
    ("USERS", View::Users, "roles that are connected"),
    ("VERSION", View::Version, "versions of Onecopy and of the data"),
];

/// Commands other than SHOW, each with its description.
const ACTIONS: [(&str, &str); 30] = [
    ("VERIFY", "compares every table of every replica at one version"),
    ("CHECK REPLICAS", "compares all replicas that are up; quarantines one that differs"),
    ("REBUILD REPLICA name", "gives a replica the data of another one, while clients go on"),
    (
        "REBUILD REPLICA name FROM CHECKPOINT name",
        "puts a replica's data back, and runs the rest from the log",
    ),
    ("CREATE CHECKPOINT name", "names the end of the log, and copies a replica's data (c-jdbc)"),
    ("DROP CHECKPOINT name", "removes a checkpoint with its copy"),
    ("ADD REPLICA", "makes one more server, which serves when it has all data; clients go on"),
    ("ADD REPLICA 'postgresql://host:port'", "adds a server that runs already (`onecopy serve`)"),
    (
        "ADD REPLICA HOLDS table, ..",
        "adds a server that also holds these placed tables; HOLDS EVERYTHING: all of them",
    ),
    ("DROP REPLICA name", "removes a replica from the cluster"),
    ("DRAIN REPLICA name", "sends no new statements to a replica; returns when none is open there"),
    ("UNDRAIN REPLICA name", "sends statements to a drained replica again"),
    ("PARK REPLICA name", "drains a replica and stops its server; its data is kept"),
    ("WAKE REPLICA name", "starts the server of a parked replica, which serves when it has caught up"),
    (
        "PLACE TABLE table, .. ON replica, .. MASTER replica, ..",
        "has only these replicas hold the tables; updates begin at the masters, if some are named",
    ),
    ("PLACE TABLE table, .. EVERYWHERE", "has every replica hold the tables; MASTER may follow"),
    (
        "PLACE PARTS 16 COPIES 2 ON replica, ..",
        "deals 16 parts of rows to these replicas, 2 copies of each; the others hold all",
    ),
    ("PLACE TABLE table, .. BY column", "has a replica hold only the rows of its parts, by a column's value"),
    ("PAUSE", "waits until no transaction is open, and lets none begin, at all nodes"),
    ("PAUSE NODE", "the same for the clients of this node only"),
    ("RESUME", "ends PAUSE, and PAUSE NODE of any node"),
    ("RESUME NODE", "ends either at this node"),
    ("MOVE LEADER", "has another node lead, while clients of all nodes wait for a moment"),
    ("MOVE LEADER TO node", "has this node lead"),
    ("RESTART NODE", "starts the program of this node anew, while its clients wait for a moment"),
    ("RESTART NODE node", "the same for another node"),
    ("DRAIN NODE node", "lets no clients in at a node, and ends its sessions between transactions"),
    ("UNDRAIN NODE node", "lets clients in again at a drained node"),
    ("RELOAD", "reads the configuration of this node again"),
    ("KILL id", "ends a session"),
];

/// What nodes say to each other.
pub(super) const HOLD: &str = "HOLD NODE";
pub(super) const RELEASE: &str = "RELEASE NODE";

/// Every command with its description.
pub(super) fn help() -> Vec<Vec<String>> {
    let views = VIEWS.iter().map(|(name, _, about)| vec![format!("SHOW {name}"), (*about).to_owned()]);
    let actions = ACTIONS.iter().map(|(words, about)| vec![(*words).to_owned(), (*about).to_owned()]);
    views.chain(actions).collect()
}

/// Reads a statement.
pub(super) fn command(sql: &[u8]) -> Result<Command, Refusal> {
    if let Some(order) = checkpoints::parse(sql)? {
        return Ok(Command::Checkpoint(order));
    }
    if let Some(order) = membership::parse(sql)? {
        return Ok(Command::Replica(order));
    }
    if let Some(placing) = placement::parse(sql)? {
        return Ok(Command::Place(placing));
    }
    let text = String::from_utf8_lossy(sql).to_ascii_uppercase();
    let words: Vec<&str> = text.trim_end_matches([';', ' ', '\n', '\t']).split_whitespace().collect();
    let found = match words.as_slice() {
        [] => Some(Command::Empty),
        ["SHOW", name @ ..] => {
            let name = name.join(" ");
            VIEWS.iter().find(|(known, ..)| *known == name).map(|(_, view, _)| Command::Show(*view))
        }
        ["VERIFY"] => Some(Command::Verify),
        ["PAUSE"] => Some(Command::Pause(Reach::AllNodes)),
        ["PAUSE", "NODE"] => Some(Command::Pause(Reach::OwnNode)),
        ["RESUME"] => Some(Command::Resume(Reach::AllNodes)),
        ["RESUME", "NODE"] => Some(Command::Resume(Reach::OwnNode)),
        ["RELOAD"] => Some(Command::Reload),
        ["KILL" | "KILL_CLIENT", id] => id.parse().ok().map(Command::Kill),
        ["MOVE", "LEADER"] => Some(Command::MoveLeader(None)),
        ["MOVE", "LEADER", "TO", _] => last_word(sql).map(|node| Command::MoveLeader(Some(node))),
        ["SET", ..] => Some(Command::Set),
        other => NodeOrder::parse(other, last_word(sql)).map(Command::Node),
    };
    found.ok_or_else(|| {
        let known: Vec<String> = help().into_iter().filter_map(|row| row.into_iter().next()).collect();
        Refusal::new(
            sqlstate::SYNTAX_ERROR,
            "the admin database does not know this command",
            format!("It knows {}.", known.join(", ")),
        )
    })
}

/// The last word of a statement, as it is written.
fn last_word(sql: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(sql);
    let word = text.trim_end_matches([';', ' ', '\n', '\t']).split_whitespace().next_back()?;
    Some(word.trim_matches('"').to_owned())
}

/// Reads what another node has said: a statement of one of its clients, or something of its own.
pub(super) fn order(text: &str) -> Result<Command, Refusal> {
    match text {
        HOLD => Ok(Command::Hold),
        RELEASE => Ok(Command::Release),
        text => command(text.as_bytes()),
    }
}

impl Command {
    /// The least right that the command needs.
    pub(super) fn needs(&self) -> Right {
        match self {
            Self::Show(_) | Self::Set | Self::Empty => Right::See,
            Self::Verify
            | Self::Replica(_)
            | Self::Place(_)
            | Self::Checkpoint(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Reload
            | Self::Kill(_)
            | Self::MoveLeader(_)
            | Self::Node(_)
            | Self::Hold
            | Self::Release => Right::Command,
        }
    }

    /// The group of commands that this command belongs to, if some kinds of node lack the group.
    pub(super) fn feature(&self) -> Option<Feature> {
        match self {
            Self::Replica(Order::Check | Order::Rebuild(_)) => None,
            Self::Replica(_) => Some(Feature::ChangeMembers),
            Self::Place(_) => Some(Feature::Placement),
            Self::Checkpoint(_) | Self::Show(View::Checkpoints) => Some(Feature::Checkpoints),
            Self::Pause(_) => Some(Feature::Pause),
            _ => None,
        }
    }

    /// The command tag.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            // libpq reads a number of rows from a tag that begins with MOVE.
            Self::Show(_) | Self::Verify | Self::MoveLeader(_) => "SHOW",
            Self::Replica(order) => order.tag(),
            Self::Place(_) => "PLACE",
            Self::Checkpoint(order) => order.tag(),
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Reload => "RELOAD",
            Self::Kill(_) => "KILL",
            Self::Node(order) => order.tag(),
            Self::Hold => HOLD,
            Self::Release => RELEASE,
            Self::Set | Self::Empty => "SET",
        }
    }

    /// The columns of the command's answer, in a cluster of this size.
    pub(super) fn columns(&self, dialect: Dialect, size: ClusterSize) -> Vec<&'static str> {
        let columns = match self {
            Self::Show(view) => return view.all_columns(dialect, size).collect(),
            Self::Verify => "table version result",
            Self::Replica(order) => order.columns(),
            Self::Place(_) => View::Placement.columns(dialect),
            Self::Checkpoint(order) => order.columns(),
            Self::MoveLeader(_) => "node",
            Self::Pause(_)
            | Self::Resume(_)
            | Self::Reload
            | Self::Kill(_)
            | Self::Node(_)
            | Self::Hold
            | Self::Release
            | Self::Set
            | Self::Empty => "",
        };
        columns.split_whitespace().collect()
    }

    /// Whether only the leader can carry it out.
    pub(super) fn is_of_leader(&self) -> bool {
        match self {
            Self::Show(view) => view.is_of_leader(),
            Self::Verify | Self::Replica(_) | Self::Place(_) | Self::Checkpoint(_) => true,
            Self::Pause(_)
            | Self::Resume(_)
            | Self::Reload
            | Self::Kill(_)
            | Self::MoveLeader(_)
            | Self::Node(_)
            | Self::Hold
            | Self::Release
            | Self::Set
            | Self::Empty => false,
        }
    }

    /// Whether it may have done something when it breaks off.
    pub(super) fn effect(&self) -> Effect {
        match self {
            Self::Show(_) | Self::Verify | Self::Set | Self::Empty => Effect::Looks,
            _ => Effect::Changes,
        }
    }
}

/// The columns of SHOW STATS in PgBouncer's dialect.
const BOUNCER_STATS: &str = "database total_server_assignment_count total_xact_count total_query_count \
     total_received total_sent total_xact_time total_query_time total_wait_time avg_server_assignment_count \
     avg_xact_count avg_query_count avg_recv avg_sent avg_xact_time avg_query_time avg_wait_time";

impl View {
    /// Whether only the leader knows it.
    pub(super) fn is_of_leader(self) -> bool {
        matches!(
            self,
            Self::Chains
                | Self::Checkpoints
                | Self::Conflicts
                | Self::Cost
                | Self::Elastic
                | Self::Log
                | Self::Placement
                | Self::PlacementAdvice
                | Self::Replicas
                | Self::Transactions
        )
    }

    /// The columns, with the node of a session if there are several.
    fn all_columns(self, dialect: Dialect, size: ClusterSize) -> impl Iterator<Item = &'static str> {
        let is_of_sessions = matches!(self, Self::Clients | Self::Transactions);
        let node = (is_of_sessions && size == ClusterSize::SeveralNodes).then_some("node");
        self.columns(dialect).split_whitespace().chain(node)
    }

    fn columns(self, dialect: Dialect) -> &'static str {
        match self {
            Self::Cache => "name value",
            Self::Checkpoints => checkpoints::COLUMNS,
            Self::Chains => "chain replica transactions sessions",
            Self::Clients => {
                "type user database state addr port local_addr local_port connect_time request_time wait wait_us \
                 close_needed ptr link remote_pid tls application_name id pinned"
            }
            Self::Config => "key value default changeable",
            Self::Databases => {
                "name host port database force_user pool_size min_pool_size reserve_pool pool_mode \
                 max_connections current_connections paused disabled"
            }
            Self::Help => "command about",
            Self::Cost => {
                "since began replica_hours commits transactions cost cost_per_1000_commits cost_per_1000_transactions"
            }
            Self::Elastic => "at replica state busy queued decision reason outcome",
            Self::Conflicts => "table waits wait_ms aborts deadlocks",
            Self::Templates => "template number count mean_ms begins foreseen expected held_by",
            Self::Lists => "list items",
            Self::Log => "cluster epoch first_version durable slowest",
            Self::Memory => "name entries bytes limit_bytes",
            Self::Nodes => "name address role own epoch sessions lease_ms release since drained",
            Self::Pools => {
                "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active \
                 sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode"
            }
            Self::Placement => "table holders",
            Self::PlacementAdvice => "tables writes time copies enough in_vain command",
            Self::Replicas => "name host port state applied lag_versions reads writes load role detail",
            Self::Servers => {
                "type user database state replica addr port connect_time request_time link remote_pid tls \
                 application_name"
            }
            Self::Stats if dialect == Dialect::Own => "name value",
            Self::Stats => BOUNCER_STATS,
            Self::StatsAverages | Self::StatsTotals => {
                "database server_assignment_count xact_count query_count bytes_received bytes_sent xact_time \
                 query_time wait_time"
            }
            Self::Transactions => {
                "session home state since_s snapshot rows captured_bytes spilled_bytes waits_for in_table at_key"
            }
            Self::Users => "name pool_size pool_mode current_connections",
            Self::Version if dialect == Dialect::Own => "version cluster durable",
            Self::Version => "version",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_words_in_any_case() {
        assert_eq!(command(b" show  replicas ;\n"), Ok(Command::Show(View::Replicas)));
        assert_eq!(command(b"kill_client 17"), Ok(Command::Kill(17)));
        assert_eq!(command(b"show placement  advice"), Ok(Command::Show(View::PlacementAdvice)));
        assert!(command(b"SHOW PLACEMENT TABLES").is_err() && command(b"SHOW").is_err());
        assert_eq!(command(b""), Ok(Command::Empty));
        assert_eq!(command(b"SET extra_float_digits = 3"), Ok(Command::Set));
        assert!(command(b"DROP TABLE x").is_err());
        assert!(command(b"KILL everybody").is_err());
    }

    #[test]
    fn help_names_every_command() {
        for row in help() {
            let words = row[0].replace("id", "1").replace(", ..", "");
            assert!(command(words.as_bytes()).is_ok(), "{words}");
        }
    }

    #[test]
    fn psql_expects_no_number_in_any_tag() {
        // By PQcmdTuples of libpq, a number of rows ends tags that begin so.
        let counted = ["INSERT", "SELECT", "UPDATE", "DELETE", "MERGE", "FETCH", "MOVE", "COPY"];
        for row in help() {
            let words = row[0].replace("id", "1").replace(", ..", "");
            let tag = command(words.as_bytes()).unwrap().tag();
            assert!(!counted.iter().any(|word| tag.starts_with(word)), "{words}: {tag}");
        }
    }

    #[test]
    fn the_reference_explains_every_command_and_column() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/show.md");
        let page = std::fs::read_to_string(path).unwrap();
        for (name, view, _) in VIEWS {
            let sections =
                page.split("\n## ").filter(|section| section.lines().next() == Some(&format!("SHOW {name}")));
            let section: String = sections.collect();
            for column in view.all_columns(Dialect::Own, ClusterSize::SeveralNodes) {
                assert!(section.contains(&format!("`{column}`")), "SHOW {name}: {column} is not in {path}");
            }
        }
        for (words, _) in ACTIONS {
            assert!(page.contains(&format!("| `{words}` |")), "{words} is not in {path}");
        }
    }
}
