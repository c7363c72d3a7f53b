//! `onecopy up --nodes 3`: several nodes over servers of their own, with members of etcd that hold the log.
//!
//! ```text
//! onecopy up ---- PostgreSQL servers, replica-1 ..
//!            |--- etcd, as many members as nodes
//!            '--- onecopy serve, one for each node, on --port and the ports that follow
//! ```
//!
//! All are processes of their own, so the kill of one leaves the others. Each is started again when it ends ([`keeper`]). The order of the
//! start is that of the picture, and the stop goes the other way: nodes, servers, etcd.
//!
//! Not here: what one node does for its servers beside serving them. Damaged servers are not rebuilt, and none is added, removed or
//! parked with its process.

mod child;
mod error;
mod etcd_program;
mod keeper;
mod layout;
mod readiness;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use pgserver::{Home, Server, UpError, UpOptions};
use tokio::net::TcpListener;

use super::NodeError;
use crate::cli::protocol::Protocol;
use crate::cli::{Cli, Command, Up};
use crate::config::is_variable;
use crate::node::signals::Signals;
use crate::terminal::Progress;
use child::{Child, ChildPlace, Recipe, make_folder};
pub(crate) use error::NodesError;
use etcd_program::EtcdProgram;
use keeper::Group;
use layout::{Layout, node_name};

/// How long a member of etcd may take to stop.
const ETCD_STOP: Duration = Duration::from_secs(10);
/// How long a node may take to stop, beside the time that its clients get.
const NODE_STOP: Duration = Duration::from_secs(20);

/// The number of nodes: as the flag says, else as the folder has.
pub(super) fn wanted(up: &Up) -> Result<u16, NodeError> {
    let folder = match &up.data {
        Some(path) => path.clone(),
        None => match pgserver::default_data_folder() {
            Ok(path) => path,
            Err(error) => return Err(NodeError::Servers(Box::new(UpError::Folder(error)))),
        },
    };
    match (Layout::read(&folder)?, up.nodes) {
        (None, asked) => Ok(asked.unwrap_or(1)),
        (Some(found), Some(asked)) if asked != found.nodes => Err(found.not(asked).into()),
        (Some(found), _) => Ok(found.nodes),
    }
}

/// Runs so many nodes, their servers and etcd until a signal comes.
pub(super) async fn run(up: Up, nodes: u16, progress: &Progress) -> Result<(), NodeError> {
    check_flags(&up)?;
    if let Some(port) =
        [Some(up.port), up.http_port].into_iter().flatten().find(|port| port.checked_add(nodes - 1).is_none())
    {
        return Err(NodesError::PortsEnd { port, nodes }.into());
    }
    let mut signals = Signals::take()?;
    let etcd = EtcdProgram::find(up.etcd_bin.as_deref()).await?;
    let mut site = Site {
        servers: Group::new(progress),
        etcd: Group::new(progress),
        nodes: Group::new(progress),
        home: None,
        progress: progress.clone(),
    };
    let started = tokio::select! {
        started = site.start(&up, nodes, &etcd) => started,
        () = signals.stop() => Err(NodeError::Interrupted),
    };
    if started.is_ok() {
        for n in 0..nodes {
            progress.result(format_args!("psql -h 127.0.0.1 -p {} -U postgres", up.port + n));
        }
        signals.stop().await;
        progress.say("stopping");
    }
    site.stop(&mut signals).await;
    started
}

/// Refuses flags that need one node.
fn check_flags(up: &Up) -> Result<(), NodesError> {
    let Command::Up(default) = Cli::parse_from(["onecopy", "up"]).command else {
        unreachable!("the command is up")
    };
    let is_served = matches!(
        up.protocol.name,
        Protocol::Onecopy
            | Protocol::MiddleR
            | Protocol::Eager
            | Protocol::FrL
            | Protocol::FrC
            | Protocol::VrL
            | Protocol::ConflictAware
    );
    // Of the flags that change a protocol, these concern protocols that are served, too.
    let mut changed = default.protocol.clone();
    (changed.name, changed.chain_patience_ms) = (up.protocol.name, up.protocol.chain_patience_ms);
    if up.protocol.name == Protocol::MiddleR {
        changed.see.clone_from(&up.protocol.see);
    }
    let flags = [
        ("--protocol", !is_served),
        ("a flag that changes the protocol", up.protocol != changed),
        ("--elastic-..", up.elastic.config != default.elastic.config),
        ("--result-cache-mb", up.limits.result_cache_mb > 0),
    ];
    let refused: Vec<&str> = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect();
    if refused.is_empty() { Ok(()) } else { Err(NodesError::Flags(refused)) }
}

/// Everything that runs.
struct Site {
    servers: Group,
    etcd: Group,
    nodes: Group,
    /// Holds the lock of the folder.
    home: Option<Home>,
    progress: Progress,
}

impl Site {
    async fn start(&mut self, up: &Up, nodes: u16, etcd: &EtcdProgram) -> Result<(), NodeError> {
        // A new folder is made only if its ports are free. What was left in an old one may have them.
        let claimed = if is_new(up)? { claim(up, nodes).await? } else { Vec::new() };
        let options = UpOptions { replicas: up.replicas, data: up.data.clone(), pg_bin: up.pg_bin.clone() };
        let shown: Arc<dyn pgserver::Progress> = Arc::new(self.progress.clone());
        let servers = |error| NodeError::Servers(Box::new(error));
        let home = self.home.insert(pgserver::prepare(&options, &shown).await.map_err(servers)?);
        let layout = Layout::of_folder(&home.dir, home.cluster, nodes)?;
        let is_new = home.is_new();
        let (members, processes) = (members(&layout, etcd)?, processes(&layout, up)?);
        for child in processes.iter().chain(&members) {
            if child.end_leftover().await? {
                let name = &child.name;
                self.progress.say(format_args!("{name} still ran from an earlier time and was stopped"));
            }
        }
        let claimed = if claimed.is_empty() { claim(up, nodes).await? } else { claimed };
        layout.check_ports()?;
        for server in home.servers.iter_mut().filter(|server| server.port != 0) {
            // The members that the nodes know have it.
            server.keep_port();
        }
        let mut failed = home.start().await.map_err(servers)?;
        let servers: Vec<Server> = std::mem::take(&mut home.servers);
        for n in 0..nodes {
            layout.write_configuration(n, up, &servers)?;
        }
        for mut server in servers {
            server.keep_port();
            match failed.remove(&server.number()) {
                None => self
                    .progress
                    .say(format_args!("{} listens on {}:{}", server.name, server.host, server.port)),
                Some(error) => self.progress.say(error),
            }
            let is_running = server.is_running();
            self.servers.keep(server, is_running);
        }
        self.servers.has_started();
        self.start_etcd(&layout, members, is_new, etcd).await?;
        drop(claimed);
        self.start_nodes(&layout, processes, is_new, up).await
    }

    async fn start_etcd(
        &mut self,
        layout: &Layout,
        members: Vec<Child>,
        is_new: bool,
        etcd: &EtcdProgram,
    ) -> Result<(), NodeError> {
        let (count, path) = (members.len(), etcd.path.display());
        let what = format!("starting {count} members of etcd {} ({path})", etcd.version);
        let _step = self.progress.step(what);
        let waited: Vec<_> = (0..)
            .zip(&members)
            .map(|(n, child)| readiness::Waited::of(child, layout.client_port(n)))
            .collect();
        start(&mut self.etcd, members)?;
        let needed = if is_new { count } else { count / 2 + 1 };
        readiness::wait(&mut self.etcd, &waited, needed, readiness::etcd_is_healthy, &self.progress).await?;
        Ok(())
    }

    async fn start_nodes(
        &mut self,
        layout: &Layout,
        nodes: Vec<Child>,
        is_new: bool,
        up: &Up,
    ) -> Result<(), NodeError> {
        let count = nodes.len();
        let folder = layout.nodes_folder();
        let _step = self.progress.step(format!("starting {count} nodes (logs in {})", folder.display()));
        let waited: Vec<_> =
            (0..).zip(&nodes).map(|(n, child)| readiness::Waited::of(child, up.port + n)).collect();
        start(&mut self.nodes, nodes)?;
        let needed = if is_new { count } else { 1 };
        readiness::wait(&mut self.nodes, &waited, needed, readiness::node_serves, &self.progress).await?;
        Ok(())
    }

    /// Stops everything, in the other order.
    async fn stop(&mut self, signals: &mut Signals) {
        self.nodes.stop(signals).await;
        self.servers.stop(signals).await;
        self.etcd.stop(signals).await;
        if let Some(home) = &mut self.home {
            home.stop().await;
        }
    }
}

fn start(group: &mut Group, children: Vec<Child>) -> Result<(), NodesError> {
    for mut child in children {
        child.spawn()?;
        group.keep(child, true);
    }
    Ok(())
}

/// The members of etcd, not started.
fn members(layout: &Layout, etcd: &EtcdProgram) -> Result<Vec<Child>, NodesError> {
    let folder = layout.etcd_folder();
    make_folder(&folder)?;
    let member = |n: u16| {
        let recipe = Recipe {
            program: etcd.path.clone(),
            own: layout.own_member_arguments(n).into(),
            more: layout
                .member_arguments(n, etcd.has_catchup_entries())
                .into_iter()
                .map(Into::into)
                .collect(),
            hidden: |name| name.starts_with("ETCD_"),
        };
        let at = ChildPlace { folder: folder.clone(), log: folder.join(format!("{}.log", n + 1)) };
        Child::new(format!("member {} of etcd", n + 1), recipe, at, ETCD_STOP)
    };
    Ok((0..layout.nodes).map(member).collect())
}

/// The nodes, not started.
fn processes(layout: &Layout, up: &Up) -> Result<Vec<Child>, NodesError> {
    let program = std::env::current_exe().map_err(|source| NodesError::File {
        path: "/proc/self/exe".into(),
        doing: "read",
        source,
    })?;
    let patience = Duration::from_secs(up.patience.stop_patience.into()) + NODE_STOP;
    let node = |n: u16| {
        let folder = layout.node_folder(n);
        make_folder(&folder)?;
        let recipe = Recipe {
            program: program.clone(),
            own: ["serve".into(), "--config".into(), layout.configuration(n).into()].into(),
            more: Vec::new(),
            hidden: is_hidden_from_nodes,
        };
        let log = layout.nodes_folder().join(format!("{}.log", node_name(n)));
        Ok(Child::new(format!("node {}", node_name(n)), recipe, ChildPlace { folder, log }, patience))
    };
    (0..layout.nodes).map(node).collect()
}

/// Variables that would override the configuration of a node, or make it speak to our service manager.
fn is_hidden_from_nodes(name: &str) -> bool {
    matches!(name, "NOTIFY_SOCKET" | "PGPASSWORD") || is_variable(name)
}

fn is_new(up: &Up) -> Result<bool, NodesError> {
    Ok(match up.data.clone().or_else(|| pgserver::default_data_folder().ok()) {
        Some(folder) => Layout::read(&folder)?.is_none(),
        None => true,
    })
}

/// Holds the ports for clients until the nodes take them.
async fn claim(up: &Up, nodes: u16) -> Result<Vec<TcpListener>, NodeError> {
    let more = up.http_port.into_iter().flat_map(|first| first..=first + (nodes - 1));
    let mut claimed = Vec::new();
    for port in (up.port..=up.port + (nodes - 1)).chain(more) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(address).await;
        claimed.push(listener.map_err(|source| NodeError::Port { port, source })?);
    }
    Ok(claimed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(flags: &[&str]) -> Up {
        let words = ["onecopy", "up"].iter().chain(flags);
        let Command::Up(up) = Cli::try_parse_from(words).unwrap().command else { panic!("it is up") };
        *up
    }

    #[test]
    fn flags_that_need_one_node_are_refused_by_name() {
        for flags in [
            &["--protocol", "gargamel"][..],
            &["--see", "local"],
            &["--elastic-replicas", "2..4"],
            &["--result-cache-mb", "1"],
        ] {
            let error = check_flags(&up(flags)).unwrap_err().to_string();
            assert!(error.contains("--nodes 1"), "{flags:?}: {error}");
        }
        let all = up(&["--protocol", "c-jdbc", "--result-cache-mb", "1"]);
        let error = check_flags(&all).unwrap_err().to_string();
        assert!(error.starts_with("--protocol, --result-cache-mb cannot"), "{error}");
        for flags in [
            &[][..],
            &["--protocol", "middle-r", "--see", "fresh"],
            &["--protocol", "conflict-aware"],
            &["--chain-patience-ms", "5"],
            &["--pool-mode", "transaction", "--http-port", "9000"],
        ] {
            assert!(check_flags(&up(flags)).is_ok(), "{flags:?}");
        }
    }

    #[test]
    fn variables_of_settings_do_not_reach_a_node() {
        for name in ["ONECOPY_DATA", "ONECOPY_REPLICAS", "ONECOPY_ETCD", "NOTIFY_SOCKET"] {
            assert!(is_hidden_from_nodes(name), "{name}");
        }
        assert!(!is_hidden_from_nodes("ONECOPY_LOG") && !is_hidden_from_nodes("PATH"));
    }
}
