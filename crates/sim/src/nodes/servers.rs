//! Servers that show versions, with backends that a fence ends.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{Epoch, Incarnation, Version};

use super::world::{Happening, NETWORK_US, World};

/// A statement that waits for a row looks again after this time.
const LOOKS_AGAIN_US: u64 = 200;
/// A slow statement of an update runs for up to this time.
const SLOW_US: u64 = 3_000;

/// One server.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) incarnation: Incarnation,
    /// The term that fenced it last.
    pub(super) fenced_by: Epoch,
    pub(super) shown: BTreeSet<u64>,
    /// By number: the session that owns it.
    pub(super) backends: BTreeMap<u64, Owner>,
    /// Backends that hold the row of their session.
    locks: BTreeSet<u64>,
    /// Connections that were closed before their statement arrived.
    closed: BTreeSet<u64>,
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
        is_update: bool,
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
    /// Whose backend holds the row of this session: one of an earlier transaction, or of an earlier run of its node.
    fn holder(&self, of: Owner) -> Option<Owner> {
        let mut holders = self.locks.iter().filter_map(|backend| self.backends.get(backend));
        holders.find(|holder| (holder.node, holder.session) == (of.node, of.session)).copied()
    }

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
        let of = &self.nodes[owner.node];
        let is_alive = of.is_up && of.run == owner.run;
        let server = &mut self.servers[replica];
        let reply = match what {
            What::Run { incarnation, backend, is_update } if server.incarnation == incarnation => {
                // The connection of a dead node, or one that was closed, brings nothing more.
                if !is_alive || server.closed.remove(&backend) {
                    return;
                }
                if is_update && let Some(holder) = server.holder(owner) {
                    if holder.run != owner.run {
                        // It was let run by a leader that has lost the earlier run.
                        self.judge
                            .find(format!("a row is locked at replica {replica} by a dead node: {holder:?}"));
                    }
                    self.agenda.enter(LOOKS_AGAIN_US, Happening::Server(call));
                    return;
                }
                server.backends.insert(backend, owner);
                if is_update {
                    server.locks.insert(backend);
                }
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
                if server.backends.remove(&backend).is_none() {
                    server.closed.insert(backend);
                }
                return;
            }
            What::Run { .. } | What::Commit { .. } => Reply::Lost,
        };
        let is_slow = matches!(what, What::Run { is_update: true, .. }) && self.dice.percent(25);
        let after = if is_slow { self.dice.below(SLOW_US) } else { 0 };
        self.reply_after(after, owner, reply);
    }

    pub(super) fn reply_later(&mut self, owner: Owner, reply: Reply) {
        self.reply_after(0, owner, reply);
    }

    fn reply_after(&mut self, runs_us: u64, owner: Owner, reply: Reply) {
        let Owner { node, run, session, number } = owner;
        let after = runs_us + self.dice.delay(NETWORK_US);
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
