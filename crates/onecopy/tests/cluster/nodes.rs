//! Three nodes of a cluster, over two servers and one etcd.

use std::time::{Duration, Instant};

use etcdserver::Etcd;
use futures_util::future::join_all;
use tokio_postgres::Client;

use super::plain::Plain;
use super::served::{Node, Setup, WITHIN};
use super::{connect, folder, rows, run, value};

pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
/// A machine that is busy with other tests must not make nodes take each other for lost.
pub(crate) const SLOWER: &[(&str, &str)] = &[("ONECOPY_TEST_SLOWER_TERMS", "4")];
pub(crate) const COUNT: &str = "SELECT count(*) FROM noted";

/// Three nodes over two servers and one etcd.
pub(crate) struct World {
    pub(crate) etcd: Etcd,
    pub(crate) servers: Vec<Plain>,
    pub(crate) setups: Vec<Setup>,
    pub(crate) nodes: Vec<Option<Node>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(SLOWER).await
    }

    /// The same, with this environment for the nodes.
    pub(crate) async fn with(environment: &[(&str, &str)]) -> Self {
        Self::of("onecopy", environment).await
    }

    /// The same with this protocol.
    pub(crate) async fn of(protocol: &str, environment: &[(&str, &str)]) -> Self {
        let etcd = Etcd::start(1);
        let anchor = Plain::start().await;
        run(&anchor.client().await, "CREATE TABLE noted (id int PRIMARY KEY, v text)").await;
        let other = anchor.copy().await;
        let servers = vec![anchor, other];
        let links: Vec<String> =
            NAMES.iter().map(|name| format!("{name}=127.0.0.1:{}", folder::free_port())).collect();
        let setup = |name: &&str| {
            let settings = format!(
                "log = \"etcd\"\netcd = {:?}\nnode = \"{name}\"\nlog_patience = \"15s\"\nnodes = {links:?}\nlog_format = \"text\"\nadmin_users = \"postgres\"\nprotocol = {protocol:?}\n",
                etcd.urls()
            );
            Setup::new(&servers.iter().collect::<Vec<_>>(), &settings)
        };
        let setups: Vec<Setup> = NAMES.iter().map(setup).collect();
        // All at once, as a service manager may do.
        let nodes = join_all(setups.iter().map(|setup| setup.serve(environment))).await;
        Self { etcd, servers, setups, nodes: nodes.into_iter().map(Some).collect() }
    }

    pub(crate) async fn client(&self, node: usize) -> Client {
        let connected = connect("127.0.0.1", self.setups[node].port, "postgres").await;
        connected.unwrap_or_else(|error| panic!("{}: {error:?}: {}", NAMES[node], self.all_said()))
    }

    pub(crate) async fn admin(&self, node: usize) -> Client {
        let connected = connect("127.0.0.1", self.setups[node].port, "onecopy").await;
        connected.unwrap_or_else(|error| panic!("{error:?}: {}", self.all_said()))
    }

    /// The number of the leader, once all nodes that run agree on it.
    pub(crate) async fn leader(&self) -> usize {
        let deadline = Instant::now() + WITHIN;
        loop {
            let mut told = Vec::new();
            for node in (0..self.nodes.len()).filter(|node| self.nodes[*node].is_some()) {
                let nodes = rows(&self.admin(node).await, "SHOW NODES").await;
                told.extend(nodes.iter().find(|row| row["role"] == "leader").map(|row| row["name"].clone()));
            }
            let running = self.nodes.iter().flatten().count();
            if told.len() == running && told.iter().all(|name| *name == told[0]) {
                let leader = NAMES.iter().position(|name| *name == told[0]).unwrap();
                // Nodes that have not noticed its loss yet agree on it, too.
                if self.nodes[leader].is_some() {
                    return leader;
                }
            }
            assert!(Instant::now() < deadline, "no agreement: {told:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn said(&self, node: usize) -> String {
        std::fs::read_to_string(self.setups[node].folder.path().join("said")).unwrap()
    }

    pub(crate) fn all_said(&self) -> String {
        let said = |node: usize| format!("== {}\n{}\n", NAMES[node], self.said(node));
        (0..NAMES.len()).map(said).collect::<Vec<_>>().concat()
    }

    pub(crate) async fn must_be_identical(&self) {
        let leader = self.leader().await;
        let verified = rows(&self.admin(leader).await, "VERIFY").await;
        assert!(
            !verified.is_empty() && verified.iter().all(|row| row["result"] == "identical"),
            "{verified:?}"
        );
    }

    /// Waits until both servers have this many rows.
    pub(crate) async fn must_reach(&self, count: u32) {
        let deadline = Instant::now() + WITHIN;
        for server in &self.servers {
            while value(&server.client().await, COUNT).await != count.to_string() {
                assert!(Instant::now() < deadline, "a server lacks rows: {}", self.all_said());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
