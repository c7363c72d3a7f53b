//! Agents: one task for each replica, which brings it to where it can serve, and keeps it up to date.
//!
//! An agent owns connections as superuser. The *applier* replays records, silently for triggers; the *control*
//! connection looks after the applier, prunes, and reads catalogues. Before there is an applier the server is fenced:
//! whatever an earlier incarnation left running there is ended and gone, so nothing can still commit that the applied
//! set, which is read next, does not show.
//!
//! The owner sends [`Command`]s, each for one [`Incarnation`] of the connections: those for an earlier one are dropped.
//! It hears [`AgentEvent`]s, which are about the incarnation that came up last. When either connection is lost the agent says so and begins
//! anew, for ever, with growing pauses. A third connection asks the server for signs of life ([`pulse`]); one that gives
//! none for too long counts as lost, too.
//!
//! Invariant: records are applied in the order given, each exactly once, together with its identity in one transaction.
//! A replica on which a record does not do what it did at home is reported as diverged, and nothing more is applied.
//!
//! Not here: which records a replica needs, and in which versions they are.

pub(crate) mod applied_set;
mod apply;
mod connect;
mod exchange;
mod failure;
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

use cluster::ids::{ClusterId, Identity, Incarnation, SessionId, Version};
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
use crate::security::seal::Seal;

/// Commands that can wait.
pub(crate) const COMMANDS_MAX: usize = 16;
/// Events that can wait.
const EVENTS_MAX: usize = 64;

/// The pause after the first failed attempt to connect; each further one doubles it.
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
    /// By which the server knows our connections.
    pub(crate) voucher: Voucher,
    /// By which we know what we wrote there.
    pub(crate) seal: Arc<Seal>,
    /// The rows that stand in no record.
    pub(crate) spills: Arc<dyn SpillStore>,
    /// How long a client may hold the applier up, in milliseconds; it depends on whether this is the home.
    pub(crate) reader_patience_ms: Arc<AtomicU64>,
    /// A server that has not answered for so long is given up.
    pub(crate) health_deadline: Duration,
    /// Whether a server of no cluster may be made a member: only while the cluster comes into being.
    pub(crate) is_founding: Arc<AtomicBool>,
    /// The sessions that were ended for holding it up longer.
    pub(crate) evictions: Arc<Evictions>,
}

/// A command of the owner.
#[derive(Debug)]
pub(crate) enum Command {
    /// Apply these records, which follow each other, in as few transactions as possible.
    Apply {
        /// On which connections.
        incarnation: Incarnation,
        /// In version order.
        records: Vec<Arc<Record>>,
        /// The tables whose rows are applied.
        holdings: Holdings,
        /// The last schema change that is durable.
        last_ddl: Version,
    },
    /// Make what is applied durable, and forget identities that no recovery can need.
    Maintain {
        /// On which connections.
        incarnation: Incarnation,
        /// What the owner knows to be applied.
        applied: Version,
        /// The identity of that version, where the replica holds only some tables: it has no other sign of a record that it
        /// did not have to apply, and the log is trimmed up to that record.
        stands_at: Option<Identity>,
        /// Identities of records that are far behind that, or that belong to no record.
        forget: Vec<Identity>,
        /// Marks of sequences, of records up to that, to be remembered with it.
        marks: Vec<Sequence>,
    },
    /// Read the catalogue.
    LoadCatalogue {
        /// On which connections.
        incarnation: Incarnation,
        /// The version of the last schema change that was applied.
        generation: u64,
    },
    /// End everything that runs on the server, and begin anew.
    Reset {
        /// The connections that have to go; nothing is done when they have gone already.
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
    /// The replica has other rows than those that the record is about, or is damaged.
    Rows,
    /// The server refuses what the record says; the rows may be what they should be.
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
        /// Every identity in `onecopy.applied` that is proven to be ours.
        applied: Vec<Identity>,
    },
    /// The connections are lost or were given up; nothing is known of an apply that has not been answered.
    Down {
        /// The connections.
        incarnation: Incarnation,
        /// Why.
        reason: String,
    },
    /// There is no connection to the server; said once for each reason.
    Unreachable {
        /// Whether waiting may help.
        obstacle: Obstacle,
        /// Why.
        reason: String,
    },
    /// The server does not answer as it should, or does so again.
    Suspect {
        /// The connections.
        incarnation: Incarnation,
        /// Whether it is suspected now.
        is_suspect: bool,
    },
    /// A refresh waits for the update transaction of a session, whose backend is about to be ended.
    BlocksApply {
        /// Whose.
        session: SessionId,
    },
    /// Records were applied.
    Applied {
        /// On which connections.
        incarnation: Incarnation,
        /// The last version.
        upto: Version,
    },
    /// A record cannot be applied here. What it had done is undone, so the replica has all records before it.
    Diverged {
        /// The record.
        version: Version,
        /// Whether the rows or the record are at fault.
        cause: DivergenceCause,
        /// Why.
        reason: String,
    },
    /// What was applied will survive a crash of the server.
    Durable {
        /// The last version.
        upto: Version,
    },
    /// The catalogue was read.
    Catalogue {
        /// What was found.
        catalogue: Box<Catalogue>,
    },
}

/// The task of one replica.
pub(crate) struct Agent {
    assignment: Assignment,
    commands: mpsc::Receiver<Command>,
    events: mpsc::Sender<AgentEvent>,
    pace: watchdog::BatchDuration,
    /// This start of Onecopy has not been at the server.
    is_first: bool,
    /// `onecopy.applied` was looked through up to there for what clients made up.
    swept: Option<Identity>,
}

impl Agent {
    /// An agent that does nothing before [`Agent::run`], with the ways to and from it.
    pub(crate) fn new(assignment: Assignment) -> (Self, mpsc::Sender<Command>, mpsc::Receiver<AgentEvent>) {
        let (command, commands) = mpsc::channel(COMMANDS_MAX);
        let (events, event) = mpsc::channel(EVENTS_MAX);
        let pace = watchdog::BatchDuration::default();
        (Self { assignment, commands, events, pace, is_first: true, swept: None }, command, event)
    }

    /// Runs until the owner drops its sender or receiver.
    pub(crate) async fn run(mut self) {
        let mut incarnation = Incarnation::default();
        while let Some(ready) = self.connected().await {
            incarnation = incarnation.next();
            let begun = Instant::now();
            if self.serve(incarnation, ready).await.is_none() {
                return;
            }
            // A server that cannot go on (its disk is full) is not fenced over and over in a hurry.
            if begun.elapsed() < RETRY_PAUSE_MAX {
                tokio::time::sleep(RELAPSE_PAUSE).await;
            }
        }
    }

    /// Tries to connect until it succeeds; `None` when the owner has gone.
    async fn connected(&mut self) -> Option<connect::Ready> {
        let mut pause = RETRY_PAUSE_MIN;
        let mut last_reason = String::new();
        loop {
            let failure = match self.attempt(pause).await? {
                Ok(ready) => {
                    self.is_first = false;
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

    /// Tries to connect, and pauses when it fails. Meanwhile commands are dropped: they are about connections that are
    /// no more.
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
