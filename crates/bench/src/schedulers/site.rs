//! The clusters that the bars are measured on, and where their clients enter.

use std::fmt;
use std::path::Path;

use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::postgres::Likeness;

use super::bar::Bar;
use crate::drive::Endpoints;
use crate::nodes;
use crate::plan::Entrant;
use crate::run::contestant::{Contestant, Environment, Filling, config};

/// Nodes of the cluster with several.
const NODES: u16 = 3;
/// The rule that the first bar does without.
const LOGGED: &str = "decisions_are_logged";

/// How a cluster logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not at all, one node.
    NotLogged,
    /// In files, one node.
    Filed,
    /// On etcd, three nodes.
    Nodes,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::NotLogged, Self::Filed, Self::Nodes];

    /// How it is started.
    pub(super) fn entrant(self, protocol: &str, replicas: u16, etcd: Option<&Path>) -> Entrant {
        let mut arguments = vec!["--protocol".to_owned(), protocol.to_owned()];
        if self == Self::Nodes {
            arguments.extend(["--nodes".to_owned(), NODES.to_string()]);
            arguments
                .extend(etcd.into_iter().flat_map(|etcd| ["--etcd-bin".into(), etcd.display().to_string()]));
        }
        let mut entrant = Entrant::onecopy(replicas, None, arguments);
        if let Entrant::Onecopy { rule_off, .. } = &mut entrant
            && self == Self::NotLogged
        {
            *rule_off = Some(LOGGED.to_owned());
        }
        entrant
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLogged => "one node that does not log",
            Self::Filed => "one node with its log in files",
            Self::Nodes => "three nodes with their log on etcd",
        })
    }
}

/// A cluster that runs.
pub(super) struct Site {
    pub(super) kind: Kind,
    pub(super) entrant: Entrant,
    pub(super) contestant: Contestant,
    /// Where clients of its first node connect.
    first_port: u16,
}

impl Site {
    /// Starts it, with its tables filled.
    pub(super) fn start(
        kind: Kind,
        entrant: Entrant,
        number: usize,
        filling: &Filling<'_>,
        environment: &Environment<'_>,
    ) -> Result<Self, Fault> {
        let started = Contestant::start_filled(&entrant, number, &Likeness::usual(), filling, environment)?;
        let contestant = started.ok_or_else(|| Fault::Missing("onecopy cannot be started".into()))?;
        let ports = contestant.endpoints.main.get_ports();
        let first_port = ports.first().copied().ok_or_else(|| Fault::Missing("its port".into()))?;
        Ok(Self { kind, entrant, contestant, first_port })
    }

    /// Where clients of each node connect.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        let count = if self.kind == Kind::Nodes { NODES } else { 1 };
        self.first_port..self.first_port + count
    }

    /// The port of the node that leads.
    pub(super) fn leader(&self, environment: &Environment<'_>) -> Result<u16, Fault> {
        if self.kind != Kind::Nodes {
            return Ok(self.first_port);
        }
        let admin = Endpoint { port: self.first_port, database: "onecopy", options: None };
        let Environment { binaries, scratch, interrupt, .. } = environment;
        nodes::leader(self.first_port, &binaries.ask(&admin, "SHOW NODES", scratch, interrupt)?)
    }

    /// Sends clients to the nodes of a bar, the leader first; returns its port.
    pub(super) fn enter(&mut self, bar: Bar, environment: &Environment<'_>) -> Result<u16, Fault> {
        let leader = self.leader(environment)?;
        let count = if let Bar::Nodes(count) = bar { count } else { 1 };
        let followers: Vec<u16> = self.ports().filter(|port| *port != leader).collect();
        self.contestant.endpoints = self.endpoints(leader, &followers[..usize::from(count) - 1]);
        Ok(leader)
    }

    /// These nodes, for clients that are dealt over them.
    pub(super) fn endpoints(&self, main: u16, others: &[u16]) -> Endpoints {
        let at = |port: u16| config(&Endpoint { port, database: "postgres", options: None });
        Endpoints {
            main: at(main),
            others: others.iter().copied().map(at).collect(),
            ..self.contestant.endpoints.clone()
        }
    }
}
