//! Several nodes over one etcd: what is cut, hung and killed of them while clients work.
//!
//! Clients are dealt over the nodes round robin; one whose node is lost goes to another one, and back to its own when it is lost again.
//! One strike follows the other, each after a pause in which every node serves again:
//!
//! | strike | does |
//! |---|---|
//! | `leader`, `node` | kill -9 of the node that leads, or of another one, which is started again |
//! | `hang-leader` | the leading node stops for 5 s (SIGSTOP) |
//! | `cut-etcd` | the leading node does not reach etcd for 5 s |
//! | `cut-nodes` | the leading node and the others do not reach each other for 5 s |
//! | `deaf-leader`, `mute-leader` | the same in one direction: the leading node hears nothing, or is not heard |
//! | `move` | MOVE LEADER |
//! | `stop-leader`, `stop` | the leading node, or another one, stops in good order (SIGTERM), and is started again |
//! | `restart` | another process takes the place of a node's (RESTART NODE), which may lead |
//! | `etcd-leader` | kill -9 of the member of etcd that leads, which is started again |
//!
//! Paths are cut by proxies ([`testbed::wire`]).
//!
//! Invariant: a client is judged by the node to which it was connected ([`judge`]).

pub(super) mod gaps;
pub(super) mod judge;
mod service;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use rustix::process::Signal;
use sim::dice::Dice;
use testbed::fault::Fault;
use testbed::nodes::{Nodes, name};
use testbed::wire::Flow;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Course, LOOK};
pub(super) use service::leader;

/// How long something is cut, or hangs.
const LASTS: Duration = Duration::from_secs(5);
/// How long a node, or a member of etcd, stays down.
const DOWN: Duration = Duration::from_secs(3);
/// How often the member of etcd that leads is asked for.
const ASKED: u32 = 50;

/// A kind of strike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum StrikeKind {
    /// kill -9 of the leading node.
    Leader,
    /// The leading node stops for a while.
    HangLeader,
    /// The leading node does not reach etcd for a while.
    CutEtcd,
    /// The leading node and the others do not reach each other for a while.
    CutNodes,
    /// The leading node does not hear the others for a while.
    DeafLeader,
    /// The others do not hear the leading node for a while.
    MuteLeader,
    /// kill -9 of the member of etcd that leads.
    EtcdLeader,
    /// kill -9 of another node than the leader.
    Node,
    /// The lead is handed over.
    Move,
    /// The leading node stops in good order.
    StopLeader,
    /// Another node stops in good order.
    Stop,
    /// A node starts its program anew and keeps its clients.
    Restart,
}

impl StrikeKind {
    /// Those of a list of names, or of `all`.
    pub(super) fn named(names: &[String]) -> Result<Vec<Self>, String> {
        if names.iter().any(|name| name == "all") {
            return Ok(Self::value_variants().to_vec());
        }
        names.iter().map(|name| <Self as ValueEnum>::from_str(name, false)).collect()
    }
}

impl StrikeKind {
    /// Whether clients of the node have to go to another one.
    fn loses_node(self) -> bool {
        matches!(self, Self::Leader | Self::Node | Self::StopLeader | Self::Stop)
    }
}

impl fmt::Display for StrikeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Leader => "leader killed",
            Self::HangLeader => "leader hangs 5 s",
            Self::CutEtcd => "leader cut from etcd 5 s",
            Self::CutNodes => "leader cut from nodes 5 s",
            Self::DeafLeader => "leader hears no node 5 s",
            Self::MuteLeader => "no node hears leader 5 s",
            Self::EtcdLeader => "leader of etcd killed",
            Self::Node => "other node killed",
            Self::Move => "leader moved",
            Self::StopLeader => "leader stopped",
            Self::Stop => "other node stopped",
            Self::Restart => "node restarted",
        })
    }
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strike {
    pub(super) kind: StrikeKind,
    /// The node that it was done to, unless it was etcd.
    pub(super) node: Option<usize>,
    /// By the clock of the course.
    pub(super) at_us: u64,
    /// When all nodes served again.
    pub(super) back_us: u64,
}

/// What the striker brings back.
#[derive(Default, Debug)]
pub(super) struct Struck {
    pub(super) strikes: Vec<Strike>,
    /// Nodes that ended by themselves, and service that did not come back.
    pub(super) wrong: Vec<String>,
}

/// Strikes until the course is over.
pub(super) struct Striker<'a> {
    pub(super) nodes: &'a mut Nodes,
    pub(super) kinds: Vec<StrikeKind>,
    /// The pause before a strike, up to twice this.
    pub(super) calm_ms: u64,
    pub(super) course: &'a Course,
    pub(super) news: &'a dyn Fn(&str),
}

impl Striker<'_> {
    pub(super) async fn work(mut self) -> Result<Struck, Fault> {
        let mut dice = Dice::new(self.course.seed ^ 0x7374_7269_6b65);
        let (mut bag, mut struck) = (Vec::<StrikeKind>::new(), Struck::default());
        loop {
            let calm = dice.between(self.calm_ms, 2 * self.calm_ms);
            let until = self.course.now_us() + calm * 1_000;
            while self.course.now_us() < until && !self.course.is_over() {
                sleep(LOOK).await;
            }
            if self.course.is_over() || self.kinds.is_empty() {
                return Ok(struck);
            }
            if bag.is_empty() {
                bag.clone_from(&self.kinds);
            }
            let kind = bag.remove(dice.index(bag.len()));
            let Some(leader) = leader(&self.course.ports).await else {
                struck.wrong.push("no leader is named though nothing was struck".to_owned());
                return Ok(struck);
            };
            let node = match kind {
                StrikeKind::EtcdLeader => None,
                StrikeKind::Node | StrikeKind::Stop => {
                    Some(other(&mut dice, leader, self.course.ports.len()))
                }
                StrikeKind::Restart => Some(dice.index(self.course.ports.len())),
                _ => Some(leader),
            };
            let at_us = self.course.now_us();
            let at_node = node.map(|node| format!(" (node {})", name(node))).unwrap_or_default();
            (self.news)(&format!("{:.1} s: {kind}{at_node}", seconds(at_us)));
            if let Err(why) = self.strike(kind, node).await? {
                struck.wrong.push(format!("{:.1} s: {kind}{at_node}: {why}", seconds(at_us)));
            }
            let back = service::back(&self.course.ports, self.course).await;
            let back_us = self.course.now_us();
            struck.strikes.push(Strike { kind, node, at_us, back_us });
            struck.wrong.extend(self.ended());
            if let Err(why) = back {
                struck.wrong.push(format!("{:.1} s: {kind}{at_node}: {why}", seconds(at_us)));
                return Ok(struck);
            }
        }
    }

    /// What became of nodes that were not killed.
    fn ended(&mut self) -> Vec<String> {
        let ended = self.nodes.ended().into_iter();
        ended.map(|(node, words)| format!("node {} has ended: {words}", name(node))).collect()
    }

    /// Strikes. The inner error says that a command was refused.
    async fn strike(&mut self, kind: StrikeKind, node: Option<usize>) -> Result<Result<(), String>, Fault> {
        match (kind, node) {
            (StrikeKind::Leader | StrikeKind::Node, Some(node)) => {
                self.nodes.kill(node);
                sleep(DOWN).await;
                self.nodes.start_again(node, &self.course.interrupt)?;
            }
            (StrikeKind::HangLeader, Some(node)) => {
                self.nodes.signal(node, Signal::STOP);
                sleep(LASTS).await;
                self.nodes.signal(node, Signal::CONT);
            }
            (StrikeKind::CutEtcd, Some(node)) => {
                self.nodes.cut_from_etcd(node, Flow::Cut);
                sleep(LASTS).await;
                self.nodes.cut_from_etcd(node, Flow::Open);
            }
            (StrikeKind::CutNodes, Some(node)) => self.cut_from_nodes(node, Flow::Cut).await,
            (StrikeKind::DeafLeader, Some(node)) => self.cut_from_nodes(node, Flow::OnlyForth).await,
            (StrikeKind::MuteLeader, Some(node)) => self.cut_from_nodes(node, Flow::OnlyBack).await,
            (StrikeKind::StopLeader | StrikeKind::Stop, Some(node)) => {
                let stopped = self.nodes.take(node);
                spawn_blocking(move || drop(stopped))
                    .await
                    .map_err(|error| Fault::Missing(format!("a node was not stopped: {error}")))?;
                sleep(DOWN).await;
                self.nodes.start_again(node, &self.course.interrupt)?;
            }
            (StrikeKind::Restart, Some(node)) => {
                return Ok(service::restart(&self.course.ports, node).await);
            }
            (StrikeKind::Move, Some(node)) => return Ok(service::move_leader(self.course.ports[node]).await),
            _ => self.kill_leader_of_etcd().await?,
        }
        Ok(Ok(()))
    }

    async fn cut_from_nodes(&self, node: usize, flow: Flow) {
        self.nodes.cut_from_nodes(node, flow);
        sleep(LASTS).await;
        self.nodes.cut_from_nodes(node, Flow::Open);
    }

    async fn kill_leader_of_etcd(&self) -> Result<(), Fault> {
        let etcd = Arc::clone(&self.nodes.etcd);
        // What waits for etcd must not hold up clients.
        let killed = spawn_blocking(move || {
            let leader = (0..ASKED).find_map(|_| {
                let leader = etcd.leader();
                if leader.is_none() {
                    std::thread::sleep(LOOK);
                }
                leader
            });
            let Some(leader) = leader else { return false };
            etcd.kill(leader);
            std::thread::sleep(DOWN);
            etcd.restart(leader);
            true
        });
        match killed.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::Missing("no member of etcd says that it leads".to_owned())),
            Err(error) => Err(Fault::Missing(format!("etcd was not struck: {error}"))),
        }
    }
}

fn seconds(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64()
}

/// A node that does not lead.
fn other(dice: &mut Dice, leader: usize, nodes: usize) -> usize {
    let others: Vec<usize> = (0..nodes).filter(|node| *node != leader).collect();
    *dice.pick(&others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_are_named_one_by_one_or_all_at_once() {
        let named = |text: &str| StrikeKind::named(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(named("hang-leader,node").unwrap(), [StrikeKind::HangLeader, StrikeKind::Node]);
        assert_eq!(named("all").unwrap().len(), 12);
        assert!(named("kill").is_err());
        let mut dice = Dice::new(1);
        assert!((0..20).all(|_| other(&mut dice, 1, 3) != 1));
    }
}
