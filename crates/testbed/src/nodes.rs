//! Several nodes of one cluster: plain servers, an etcd, `onecopy serve` for each node, and paths between them that can be cut.
//!
//! ```text
//!  node a --wire--> each member of etcd          (three wires a node)
//!  node b --wire--> node a <--wire-- node c      (the node with the greater name dials)
//! ```
//!
//! Invariant: a node keeps its name, its port and its data over [`Nodes::kill`] and [`Nodes::start_again`]; each of its lives has
//! a log of its own.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcdserver::Etcd;
use rustix::process::{Pid, Signal, kill_process};

use crate::account::Account;
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::interrupt::Interrupt;
use crate::postgres::{Binaries, Likeness, Plain, free_port};
use crate::program::{self, Program};
use crate::scratch::Scratch;
use crate::wire::{Flow, Wire, Wires};

/// How many nodes there can be.
pub const NODES_MAX: u64 = 9;
/// Members of etcd.
pub const MEMBERS: usize = 3;
/// How long a node may take to stop in good order.
const STOP: Duration = Duration::from_mins(1);
/// What the members are told, as the manual says.
const ETCD_OPTIONS: [&str; 6] =
    ["--snapshot-count", "1000", "--snapshot-catchup-entries", "500", "--auto-compaction-retention", "0"];

/// What is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// How many nodes.
    pub nodes: usize,
    /// How many servers.
    pub replicas: u64,
    /// Further lines of each node's configuration.
    pub settings: &'a str,
    /// Folder for the configurations, data and logs of the nodes, which is kept; else they go with the scratch folder.
    pub folder: Option<&'a Path>,
}

#[derive(Debug)]
struct Node {
    program: Option<Program>,
    port: u16,
    folder: PathBuf,
    lives: u32,
    /// To the members of etcd.
    to_etcd: Vec<Wire>,
}

/// A path between two nodes.
#[derive(Debug)]
struct Link {
    dialer: usize,
    dialed: usize,
    wire: Wire,
}

/// The nodes, and what they need.
#[derive(Debug)]
pub struct Nodes {
    // Nodes are dropped before what they need.
    each: Vec<Node>,
    links: Vec<Link>,
    _wires: Wires,
    onecopy: PathBuf,
    /// The etcd of all nodes.
    pub etcd: Arc<Etcd>,
    _servers: Vec<Plain>,
}

/// From a number, from 0.
pub fn name(node: usize) -> String {
    (b'a'..=b'z').nth(node).map_or_else(String::new, |letter| char::from(letter).to_string())
}

impl Nodes {
    /// Starts everything, the nodes all at once, and waits until each serves.
    pub fn start(
        shape: Shape<'_>,
        onecopy: &Path,
        binaries: &Binaries,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let (account, likeness) = (Account::choose()?, Likeness::usual().with("fsync", "off"));
        let server = |number: u64| {
            let name = format!("server-{number}");
            Plain::start_named(&name, binaries, account, &likeness, scratch, interrupt)
        };
        let servers = (1..=shape.replicas).map(server).collect::<Result<Vec<_>, _>>()?;
        let etcd = Arc::new(Etcd::start_with(MEMBERS, &ETCD_OPTIONS));
        let wires = Wires::new()?;
        let listens = (0..shape.nodes).map(|_| free_port()).collect::<Result<Vec<_>, _>>()?;
        let mut links = Vec::new();
        for dialer in 0..shape.nodes {
            for (dialed, port) in listens.iter().enumerate().take(dialer) {
                links.push(Link { dialer, dialed, wire: wires.lay(*port)? });
            }
        }
        let top = shape.folder.unwrap_or_else(|| scratch.top());
        let mut nodes = Vec::new();
        for (number, listen) in listens.iter().enumerate() {
            let folder = top.join(format!("node-{}", name(number)));
            fs::create_dir_all(&folder).map_err(Fault::system(format!("make {}", folder.display())))?;
            let to_etcd = etcd.ports().map(|port| wires.lay(port)).collect::<Result<Vec<_>, _>>()?;
            let node = Node { program: None, port: free_port()?, folder, lives: 0, to_etcd };
            let mut text =
                node.configuration(number, shape.settings, &addresses(number, *listen, &links, shape.nodes));
            for server in &servers {
                let _ =
                    writeln!(text, "[[replica]]\nurl = \"postgresql://127.0.0.1:{}\"", server.endpoint.port);
            }
            let file = node.file();
            fs::write(&file, text).map_err(Fault::system(format!("write {}", file.display())))?;
            nodes.push(node);
        }
        let onecopy = onecopy.to_owned();
        let mut all = Self { each: nodes, links, _wires: wires, onecopy, etcd, _servers: servers };
        (0..shape.nodes).try_for_each(|node| all.start_again(node, interrupt))?;
        for node in &mut all.each {
            let endpoint = Endpoint { port: node.port, database: "postgres", options: None };
            if let Some(program) = &mut node.program {
                binaries.wait_for(program, &endpoint, scratch, interrupt)?;
            }
        }
        Ok(all)
    }

    /// Where clients of each node connect.
    pub fn ports(&self) -> Vec<u16> {
        self.each.iter().map(|node| node.port).collect()
    }

    /// Signals a node that runs.
    pub fn signal(&self, node: usize, signal: Signal) {
        let pid = self.each[node].program.as_ref().map(Program::pid);
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        // It may have ended by itself, which `ended` tells.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// Kills a node at once.
    pub fn kill(&mut self, node: usize) {
        self.signal(node, Signal::KILL);
        // It is dead when it has been waited for, which dropping it does.
        drop(self.each[node].program.take());
    }

    /// A node, which stops in good order when this is dropped.
    pub fn take(&mut self, node: usize) -> Option<Program> {
        self.each[node].program.take()
    }

    /// Starts a node; clients wait for it by themselves.
    pub fn start_again(&mut self, node: usize, interrupt: &Interrupt) -> Result<(), Fault> {
        interrupt.check()?;
        let onecopy = self.onecopy.clone();
        let node = &mut self.each[node];
        node.lives += 1;
        let mut command = program::command(onecopy);
        command.args(["serve", "--config"]).arg(node.file());
        let log = node.folder.join(format!("{}.log", node.lives));
        node.program = Some(Program::start("onecopy serve", &mut command, log, Signal::TERM, STOP)?);
        Ok(())
    }

    /// The nodes that have ended by themselves, with their last words.
    pub fn ended(&mut self) -> Vec<(usize, String)> {
        let ended = |(number, node): (usize, &mut Node)| {
            let fault = node.program.as_mut()?.check().err()?;
            Some((number, fault.to_string()))
        };
        self.each.iter_mut().enumerate().filter_map(ended).collect()
    }

    /// What a node lets through to and from etcd, and its replies.
    pub fn cut_from_etcd(&self, node: usize, flow: Flow) {
        self.each[node].to_etcd.iter().for_each(|wire| wire.set(flow));
    }

    /// What goes from a node to the others, and back. `Flow::OnlyForth`: only what this node says.
    pub fn cut_from_nodes(&self, node: usize, flow: Flow) {
        for link in self.links.iter().filter(|link| link.dialer == node || link.dialed == node) {
            link.wire.set(match flow {
                Flow::OnlyForth if link.dialed == node => Flow::OnlyBack,
                Flow::OnlyBack if link.dialed == node => Flow::OnlyForth,
                flow => flow,
            });
        }
    }

    /// Every line that the nodes have said, by node, and in order for each node.
    pub fn said(&self) -> Vec<(usize, String)> {
        let mut lines = Vec::new();
        for (number, node) in self.each.iter().enumerate() {
            for life in 1..=node.lives {
                let said = fs::read_to_string(node.folder.join(format!("{life}.log"))).unwrap_or_default();
                lines.extend(said.lines().map(|line| (number, line.to_owned())));
            }
        }
        lines
    }
}

impl Node {
    fn file(&self) -> PathBuf {
        self.folder.join("onecopy.toml")
    }

    /// Its configuration, but for the servers.
    fn configuration(&self, number: usize, settings: &str, addresses: &[String]) -> String {
        let urls: Vec<String> =
            self.to_etcd.iter().map(|wire| format!("http://127.0.0.1:{}", wire.port)).collect();
        format!(
            "listen = \"127.0.0.1:{}\"\ndata = \"{}\"\nlog = \"etcd\"\netcd = {urls:?}\nnode = \"{}\"\nnodes = {addresses:?}\n\
             log_format = \"text\"\nadmin_users = \"postgres\"\nhba = \"host all all 127.0.0.1/32 trust\"\n{settings}\n",
            self.port,
            self.folder.join("data").display(),
            name(number),
        )
    }
}

/// All nodes as one of them reaches them: those that it dials over their wires.
fn addresses(own: usize, listen: u16, links: &[Link], nodes: usize) -> Vec<String> {
    let wire = |other: usize| {
        let ends = (own.max(other), own.min(other));
        links.iter().find(|link| (link.dialer, link.dialed) == ends).map_or(listen, |link| link.wire.port)
    };
    let address = |node: usize| {
        let port = if node == own { listen } else { wire(node) };
        format!("{}=127.0.0.1:{port}", name(node))
    };
    (0..nodes).map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_is_dialed_over_a_wire_of_the_pair() {
        let wires = Wires::new().unwrap();
        let link = |dialer, dialed| Link { dialer, dialed, wire: wires.lay(1).unwrap() };
        let links = [link(1, 0), link(2, 0), link(2, 1)];
        let port = |link: usize| links[link].wire.port;
        assert_eq!(
            addresses(2, 7, &links, 3),
            [
                format!("a=127.0.0.1:{}", port(1)),
                format!("b=127.0.0.1:{}", port(2)),
                "c=127.0.0.1:7".to_owned()
            ]
        );
        assert_eq!(addresses(0, 7, &links, 3)[0], "a=127.0.0.1:7");
    }
}
