//! Servers that show versions, with backends that a fence ends.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{Epoch, Incarnation, Version};

use super::world::{Happening, NETWORK_US, World};

/// One server.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) incarnation: Incarnation,
    /// The term that fenced it last.
    pub(super) fenced_by: Epoch,
    pub(super) shown: BTreeSet<u64>,
    /// By number: the session that owns it.
    pub(super) backends: BTreeMap<u64, Owner>,
    /// Until when a node cannot reach it.
    pub(super) cut: BTreeMap<usize, u64>,
}

/// The session of a backend, in a run of its node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    pub(super) node: usize,
    pub(super) run: u64,
    pub(super) session: usize,
    pub(super) number: u64,
}

/// A message of a session to a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) replica: usize,
    pub(super) owner: Owner,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Connect as this incarnation and run a statement.
    Run {
        incarnation: Incarnation,
        backend: u64,
    },
    Commit {
        backend: u64,
        version: Version,
    },
    Close {
        backend: u64,
    },
}

/// A message of a server to a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reply {
    Done { seen: Version },
    Committed,
    Lost,
}

impl Server {
    /// It shows every version up to this one.
    pub(super) fn prefix(&self) -> u64 {
        self.shown.iter().zip(1..).take_while(|(shown, dense)| *shown == dense).count() as u64
    }
}

impl World {
    pub(super) fn call(&mut self, call: Call) {
        let after = self.dice.delay(NETWORK_US);
        self.agenda.enter(after, Happening::Server(call));
    }

    pub(super) fn serve(&mut self, call: Call) {
        let Call { replica, owner, what } = call;
        let cut_us = self.servers[replica].cut.get(&owner.node).copied().unwrap_or(0);
        if cut_us > self.agenda.now_us() {
            self.agenda.enter(cut_us - self.agenda.now_us(), Happening::Server(call));
            return;
        }
        let server = &mut self.servers[replica];
        let reply = match what {
            What::Run { incarnation, backend } if server.incarnation == incarnation => {
                server.backends.insert(backend, owner);
                Reply::Done { seen: Version(server.prefix()) }
            }
            What::Commit { backend, version } if server.backends.contains_key(&backend) => {
                server.backends.remove(&backend);
                if server.shown.insert(version.0) {
                    Reply::Committed
                } else {
                    self.judge
                        .find(format!("twice: version {version} is committed again at replica {replica}"));
                    return;
                }
            }
            What::Close { backend } => {
                server.backends.remove(&backend);
                return;
            }
            What::Run { .. } | What::Commit { .. } => Reply::Lost,
        };
        self.reply_later(owner, reply);
    }

    pub(super) fn reply_later(&mut self, owner: Owner, reply: Reply) {
        let Owner { node, run, session, number } = owner;
        let after = self.dice.delay(NETWORK_US);
        self.agenda.enter(after, Happening::Reply { node, run, session, number, reply });
    }

    /// Ends the backends of these sessions at a server.
    pub(super) fn end_backends(&mut self, replica: usize, whose: impl Fn(&Owner) -> bool) {
        let server = &mut self.servers[replica];
        let ended: Vec<Owner> = server.backends.values().copied().filter(|owner| whose(owner)).collect();
        server.backends.retain(|_, owner| !whose(owner));
        for owner in ended {
            self.reply_later(owner, Reply::Lost);
        }
    }
}
