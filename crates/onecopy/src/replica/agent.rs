//! Agents: one task for each replica. It makes the replica ready to serve, and keeps it up to date.
//!
//! An agent owns connections as superuser. The *applier* replays records, silently for triggers. The *control*
//! connection looks after the applier, prunes, and reads catalogues. Before there is an applier the agent fences the
//! server: it ends all backends of an earlier incarnation, and waits until they are gone. Then it reads the applied
//! set. So no transaction can still commit that the applied set does not show.
//!
//! The owner sends [`Command`]s, each for one [`Incarnation`] of the connections. The agent drops those for an earlier
//! one. Its [`AgentEvent`]s are about the incarnation that came up last. When either connection is lost the agent
//! reports it and connects again, for ever, with growing pauses. A third connection asks the server for signs of life
//! ([`pulse`]). A server that gives none for too long counts as lost, too.
//!
//! Invariant: records are applied in the order given, each exactly once, together with its identity in one transaction.
//! If a record does not do here what it did at home, the agent reports the replica as diverged and applies no further
//! record.
//!
//! Not here: which records a replica needs, and in which versions they are.

pub(crate) mod applied_set;
mod apply;
pub(crate) mod catalogue;
mod connect;
mod exchange;
mod failure;
pub(crate) mod giving_way;
pub(crate) mod identity;
mod pulse;
mod serve;
mod watchdog;

#[cfg(test)]
mod tests;

pub(crate) use pulse::lets_in;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use cluster::ids::{ClusterId, Identity, Incarnation, ReplicaId, SessionId, Version};
use cluster::placement::Holdings;
use cluster::record::{Record, Sequence};
use commitlog::SpillStore;
use sql::Catalogue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backend::{Address, Served};
use crate::capture::vouch::Voucher;
use crate::coordinator::Obstacle;
use crate::coordinator::evictions::Evictions;
use crate::coordinator::held_backends::HeldBackends;
use crate::coordinator::performances::Performance;
use crate::security::seal::Seal;

/// The length of the queue of commands.
pub(crate) const COMMANDS_MAX: usize = 16;
/// The length of the queue of events.
const EVENTS_MAX: usize = 64;

/// The pause after the first failed attempt to connect. Each further failure doubles it.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(50);
/// The pause after connections that did not live for long.
const RELAPSE_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between attempts.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Which replica an agent is for.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// The name that people use.
    pub(crate) name: String,
    /// Where the server listens.
    pub(crate) address: Address,
    /// The database, and the role of the agent's connections.
    pub(crate) served: Served,
    /// The cluster that the server must belong to.
    pub(crate) cluster: ClusterId,
    /// Its incarnations follow this one, so that they never meet those of a former term or a former agent.
    pub(crate) after: Incarnation,
    /// Proves to the server that a connection is ours.
    pub(crate) voucher: Voucher,
    /// Proves the rows that Onecopy wrote at the server.
    pub(crate) seal: Arc<Seal>,
    /// The files of rows that are not in the records themselves.
    pub(crate) spills: Arc<dyn SpillStore>,
    /// How long a client may hold the applier up, in milliseconds. It depends on whether this is the home.
    pub(crate) reader_patience_ms: Arc<AtomicU64>,
    /// A server that has not answered for so long is given up.
    pub(crate) health_deadline: Duration,
    /// Whether a server of no cluster may become a member. It may only while the cluster comes into being.
    pub(crate) is_founding: Arc<AtomicBool>,
    /// The sessions that were ended because they held the applier up for longer than that.
    pub(crate) evictions: Arc<Evictions>,
    /// Where sessions of the former term have left state; `None` if all backends are to be ended.
    pub(crate) held: Option<HeldAt>,
}

/// The backends at one replica where sessions of the former term have left state.
#[derive(Clone, Debug)]
pub(crate) struct HeldAt {
    pub(crate) replica: ReplicaId,
    pub(crate) all: Arc<HeldBackends>,
}

/// A command of the owner.
#[derive(Debug)]
pub(crate) enum Command {
    /// Apply these records, which follow each other, in as few transactions as possible.
    Apply {
        /// The incarnation of the connections that it is about.
        incarnation: Incarnation,
        /// In version order.
        records: Vec<Arc<Record>>,
        /// The tables whose rows are applied.
        holdings: Holdings,
        /// The last schema change that is durable.
        last_ddl: Version,
    },
    /// Make the applied records durable, and forget identities that no recovery can need.
    Maintain {
        /// The incarnation of the connections that it is about.
        incarnation: Incarnation,
        /// The version that the owner knows to be applied.
        applied: Version,
        /// The identity of that version, if the replica holds only some tables. Such a replica has no other sign of a
        /// record that it did not have to apply, and the log is trimmed up to that record.
        stands_at: Option<Identity>,
        /// Identities to delete: of records far behind that version, or of no record.
        forget: Vec<Identity>,
        /// Marks of sequences, of records up to that version. The server remembers them with it.
        marks: Vec<Sequence>,
    },
    /// Read the catalogue.
    LoadCatalogue {
        /// The incarnation of the connections that it is about.
        incarnation: Incarnation,
        /// The version of the last schema change that was applied.
        generation: u64,
    },
    /// End everything that runs on the server, and begin anew.
    Reset {
        /// The connections to end. If they have ended already, the agent ignores the command.
        incarnation: Incarnation,
    },
}

impl Command {
    fn incarnation(&self) -> Incarnation {
        match self {
            Self::Apply { incarnation, .. }
            | Self::Maintain { incarnation, .. }
            | Self::LoadCatalogue { incarnation, .. }
            | Self::Reset { incarnation } => *incarnation,
        }
    }
}

/// Why a record cannot be applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DivergenceCause {
    /// The replica has other rows than those that the record changes, or is damaged.
    Rows,
    /// The server refuses the record. Its rows may be right.
    Record,
}

/// A report of the agent.
#[derive(Debug)]
pub(crate) enum AgentEvent {
    /// The server is fenced and connected.
    Up {
        /// The new connections.
        incarnation: Incarnation,
        /// A query that returns a row on this server as long as it has not restarted and the applier lives. A session
        /// asks it once on each connection that it opens, before anything else.
        proof_sql: String,
        /// Backends of the former term that were spared.
        spared: Vec<i32>,
        /// Every identity in `onecopy.applied` that is proven to be ours.
        applied: Vec<Identity>,
    },
    /// The connections are lost or were given up. An apply without an answer may or may not have happened.
    Down {
        /// The connections.
        incarnation: Incarnation,
        reason: String,
    },
    /// There is no connection to the server. Each reason is reported once.
    Unreachable {
        /// Whether waiting may help.
        obstacle: Obstacle,
        reason: String,
    },
    /// The server does not answer as it should, or answers again.
    Suspect {
        /// The connections.
        incarnation: Incarnation,
        /// Whether it is suspected now.
        is_suspect: bool,
    },
    /// A refresh waits for a session's update transaction, whose backend is about to be ended.
    BlocksApply {
        /// The session.
        session: SessionId,
    },
    /// A refresh waits for a client's backend that no session of this node has.
    UnknownBlocks {
        /// Its process.
        pid: i32,
        /// Not through another backend.
        is_direct: bool,
        /// For longer than others need to end by themselves.
        is_late: bool,
    },
    /// The work of a client's backend is about to be ended for a refresh.
    Evicts {
        /// Its process.
        pid: i32,
    },
    /// A refresh waits for a transaction that the replica performs for another home.
    PerformerBlocks {
        /// The execution.
        performance: Arc<Performance>,
    },
    /// Records were applied.
    Applied {
        /// The incarnation of the connections that it is about.
        incarnation: Incarnation,
        /// The last version.
        upto: Version,
    },
    /// A record cannot be applied here. Its changes are rolled back, so the replica has all records before it.
    Diverged {
        /// The record.
        version: Version,
        /// Whether the rows or the record are at fault.
        cause: DivergenceCause,
        reason: String,
    },
    /// The applied records will survive a crash of the server.
    Durable {
        /// The last version.
        upto: Version,
    },
    /// The catalogue was read.
    Catalogue {
        /// The catalogue.
        catalogue: Box<Catalogue>,
    },
}

/// The task of one replica.
pub(crate) struct Agent {
    assignment: Assignment,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<AgentEvent>,
    pace: watchdog::BatchDuration,
    /// This process has not connected to the server yet.
    is_first: bool,
    /// The sweep for rows that clients made up has come to this identity of `onecopy.applied`.
    swept: Option<Identity>,
}

impl Agent {
    /// Makes an agent, with the owner's ends of its channels. The agent is idle until [`Agent::run`].
    pub(crate) fn new(assignment: Assignment) -> (Self, mpsc::Sender<Command>, mpsc::Receiver<AgentEvent>) {
        let (command, commands) = mpsc::channel(COMMANDS_MAX);
        let (events, event) = mpsc::channel(EVENTS_MAX);
        let pace = watchdog::BatchDuration::default();
        (Self { assignment, commands, events, pace, is_first: true, swept: None }, command, event)
    }

    /// Runs until the owner drops its sender or receiver.
    pub(crate) async fn run(mut self) {
        let mut incarnation = self.assignment.after;
        while let Some(ready) = self.connected().await {
            incarnation = incarnation.next();
            let begun = Instant::now();
            if self.serve(incarnation, ready).await.is_none() {
                return;
            }
            // A server that cannot go on (its disk is full, for example) is not fenced over and over in a hurry.
            if begun.elapsed() < RETRY_PAUSE_MAX {
                tokio::time::sleep(RELAPSE_PAUSE).await;
            }
        }
    }

    /// Tries to connect until it succeeds. Returns `None` when the owner has gone.
    async fn connected(&mut self) -> Option<connect::Ready> {
        let mut pause = RETRY_PAUSE_MIN;
        let mut last_reason = String::new();
        loop {
            let failure = match self.attempt(pause).await? {
                Ok(ready) => {
                    self.is_first = false;
                    // What is lost from now on is lost in this term.
                    self.assignment.held = None;
                    return Some(ready);
                }
                Err(failure) => failure,
            };
            let (obstacle, reason) = (failure.obstacle(), failure.to_string());
            if reason != last_reason {
                tracing::warn!(replica = %self.assignment.name, %reason, "no connection");
                last_reason.clone_from(&reason);
                self.events.send(AgentEvent::Unreachable { obstacle, reason }).await.ok()?;
            }
            pause = RETRY_PAUSE_MAX.min(pause * 2);
        }
    }

    /// Tries to connect, and pauses after a failure. Commands that arrive meanwhile are dropped: they are about
    /// connections that have ended.
    async fn attempt(&mut self, pause: Duration) -> Option<Result<connect::Ready, connect::ConnectError>> {
        let attempt = async {
            match connect::connect(&self.assignment, self.is_first).await {
                Ok(ready) => Ok(ready),
                Err(error) => {
                    tokio::time::sleep(pause).await;
                    Err(error)
                }
            }
        };
        tokio::pin!(attempt);
        loop {
            tokio::select! {
                outcome = &mut attempt => return Some(outcome),
                command = self.commands.recv() => { command?; }
            }
        }
    }
}
