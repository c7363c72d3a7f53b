//! The coordinator's side of a replica's agent: translates between the core's orders and the agent's commands.
//!
//! The core speaks of versions, the agent of records and identities. A replica driver reads records from the log for
//! its agent. It turns a replica's set of identities ([`crate::coordinator::identities`]) into the applied version. Now
//! and then it lets the agent make the applied versions durable. The log is trimmed behind these.

mod home;
mod parking;
mod unheld;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cluster::event::{Event, Performance};
use cluster::ids::{Identity, Incarnation, ReplicaId, Version};
use cluster::record::{Item, Record};
use commitlog::LogError;
use tokio::sync::{mpsc, oneshot};

use super::agent::{AgentEvent, Command, DivergenceCause};
use super::sequence_allocator;
use crate::backend::BackendError;
use crate::coordinator::identities::AppliedVerdict;
use crate::coordinator::node_link::{Obstruction, ToNode};
use crate::coordinator::{AgentOrder, Leader, Obstacle, QuarantineDuration};
use home::MendError;
use parking::RunningAgent;

/// The pause between two rounds that make applied records durable.
const MAINTAIN_EVERY: Duration = Duration::from_secs(10);
/// A shorter pause, if identities are left to forget after a round.
const MAINTAIN_AGAIN: Duration = Duration::from_secs(1);
/// The number of newest identities that stay in a replica.
const IDENTITIES_KEPT: u64 = 4_096;
/// How long the sequences of a replica may take to be mended.
const MEND_DEADLINE: Duration = Duration::from_secs(30);
/// The bytes of records that are read from the log at a time (one record may be larger).
const READ_BYTES_MAX: usize = 8 << 20;

/// The driver of one replica.
pub(crate) struct ReplicaDriver {
    leader: Arc<Leader>,
    replica: ReplicaId,
    /// `None` while the replica is parked.
    agent: Option<RunningAgent>,
    /// The replica is parked when its applied records are durable.
    parking: Option<oneshot::Sender<Version>>,
    incarnation: Incarnation,
    is_up: bool,
    applied: Version,
    forgotten: Version,
    strangers: Vec<Identity>,
    /// The pause before each refresh and each reading of a catalogue. Only tests take others than zero.
    delay: Duration,
    /// The replica is being brought up to this version before it serves.
    recovering: Option<Version>,
    /// The coordinator has ordered records up to this version that the agent has not been given yet. The agent gets
    /// them in pieces, since they need not all fit into memory.
    ordered: Option<Version>,
    /// The agent was given every record up to this version that the replica must apply.
    given: Version,
    /// The replica's server has the marks of sequences up to this version.
    marked: Option<Version>,
}

impl ReplicaDriver {
    /// Runs the agent and its driver until the coordinator's orders end.
    pub(crate) async fn run(
        leader: Arc<Leader>,
        replica: ReplicaId,
        mut orders: mpsc::Receiver<AgentOrder>,
        delay: Duration,
    ) {
        let is_parked = leader.parking.state(replica).is_parked();
        let incarnation = Incarnation::before(leader.term.epoch);
        let agent = (!is_parked).then(|| RunningAgent::start_with_term(&leader, replica));
        let mut replica_driver = Self {
            leader,
            replica,
            agent,
            parking: None,
            incarnation,
            is_up: false,
            applied: Version::ZERO,
            forgotten: Version::ZERO,
            strangers: Vec::new(),
            delay,
            recovering: None,
            ordered: None,
            given: Version::ZERO,
            marked: None,
        };
        let mut maintain = tokio::time::interval(MAINTAIN_EVERY);
        loop {
            let command = tokio::select! {
                order = orders.recv() => match order {
                    Some(AgentOrder::Leave) | None => break,
                    Some(order) => replica_driver.order(order).await,
                },
                event = RunningAgent::next_event(&mut replica_driver.agent) => match event {
                    Some(event) => replica_driver.event(event).await,
                    None => break,
                },
                _ = maintain.tick() => {
                    let command = replica_driver.maintain().await;
                    if replica_driver.is_up && replica_driver.forgotten < replica_driver.forgettable() {
                        maintain.reset_after(MAINTAIN_AGAIN);
                    }
                    command
                }
            };
            if matches!(command, Some(Command::Apply { .. } | Command::LoadCatalogue { .. }))
                && !replica_driver.delay.is_zero()
            {
                tokio::time::sleep(replica_driver.delay).await;
            }
            if let Some(command) = command
                && let Some(agent) = &replica_driver.agent
                && agent.send(command).await.is_err()
            {
                break;
            }
        }
    }

    async fn order(&mut self, order: AgentOrder) -> Option<Command> {
        match order {
            AgentOrder::Apply { incarnation, from, upto } => {
                if incarnation != self.incarnation {
                    return None;
                }
                (self.given, self.ordered) = (Version(from.0.saturating_sub(1)), Some(upto));
                self.go_on().await
            }
            AgentOrder::Leave => None,
            AgentOrder::Park { done } => self.begin_parking(done).await,
            AgentOrder::Wake => {
                self.end_parking();
                None
            }
            AgentOrder::TakeBack => {
                let (leader, replica) = (Arc::clone(&self.leader), self.replica);
                tokio::spawn(async move { sequence_allocator::take_back(&leader, replica).await });
                None
            }
            AgentOrder::Reset => Some(Command::Reset { incarnation: self.incarnation }),
            AgentOrder::LoadCatalogue { version } => {
                Some(Command::LoadCatalogue { incarnation: self.incarnation, generation: version.0 })
            }
        }
    }

    /// Takes the next records for the agent: ordered ones, or those that a returning replica lacks. After the last ones
    /// it tells the coordinator that they are applied.
    async fn go_on(&mut self) -> Option<Command> {
        let target = self.recovering.or(self.ordered)?;
        while self.given < target {
            let records = match self.next_piece(target).await {
                Ok(records) => records,
                Err(error) => {
                    self.quarantine(&error.to_string(), QuarantineDuration::UntilRestart);
                    return None;
                }
            };
            if !records.is_empty() {
                return Some(self.apply(records));
            }
        }
        self.applied = self.applied.max(target);
        if self.recovering.take().is_some() {
            return self.recovered(target).await;
        }
        self.ordered = None;
        let (replica, incarnation) = (self.replica, self.incarnation);
        self.leader.core.tell(Event::Applied { replica, incarnation, upto: target });
        None
    }

    /// Reads as many of the next versions as fit into memory, without those that the replica need not apply.
    async fn next_piece(&mut self, target: Version) -> Result<Vec<Arc<Record>>, PieceError> {
        let from = self.given.next();
        let mut records = self.leader.log.read_from(from, READ_BYTES_MAX).await?;
        records.retain(|record| record.header().last <= target);
        self.given = records.last().ok_or(PieceError::Missing(from))?.header().last;
        let holdings = self.leader.core.holdings(self.replica);
        records.retain(|record| holdings.must_apply(record.as_ref()));
        Ok(records)
    }

    fn apply(&self, records: Vec<Arc<Record>>) -> Command {
        if records.iter().any(|record| takes_lent_back(record)) {
            // Applying the record revokes the replica's leases.
            self.leader.database.sequences().leases.close(self.replica);
        }
        let (incarnation, last_ddl) = (self.incarnation, self.leader.view.last_ddl());
        let holdings = self.leader.core.holdings(self.replica);
        Command::Apply { incarnation, records, holdings, last_ddl }
    }

    fn quarantine(&mut self, reason: &str, lasting: QuarantineDuration) {
        self.is_up = false;
        self.leader.seats[self.replica].absence.end_catching_up();
        self.leader.quarantine(self.replica, reason, lasting);
    }

    /// If the anchor is lost, waits a short time for it, and then has another replica take over.
    fn lose_anchor(&self) {
        if self.leader.view.anchor() != self.replica {
            return;
        }
        let (leader, from) = (Arc::clone(&self.leader), self.replica);
        tokio::spawn(async move {
            tokio::time::sleep(leader.local.timeouts.takeover_after).await;
            leader.core.tell(Event::TakeOver { from });
        });
    }

    async fn event(&mut self, event: AgentEvent) -> Option<Command> {
        let replica = self.replica;
        match event {
            AgentEvent::Up { incarnation, proof_sql, spared, applied } => {
                self.leader.begin_run(replica, incarnation, proof_sql, spared);
                return self.up(incarnation, applied).await;
            }
            AgentEvent::Down { incarnation, reason } => {
                let name = &self.leader.seats[replica].name;
                tracing::warn!(replica = %name, %reason, "the replica is down");
                self.leader.seats[replica].absence.note_unreachable(Obstacle::Passing, reason);
                self.is_up = false;
                self.leader.database.sequences().leases.replica_changed(replica);
                (self.recovering, self.ordered, self.parking) = (None, None, None);
                self.leader.core.tell(Event::ReplicaLost { replica, incarnation });
                self.leader.give_up(replica);
                self.lose_anchor();
            }
            AgentEvent::Unreachable { obstacle, reason } => {
                self.leader.seats[replica].absence.note_unreachable(obstacle, reason);
            }
            AgentEvent::Suspect { incarnation, is_suspect } => {
                self.leader.core.tell(Event::Suspect { replica, incarnation, is_suspect });
            }
            AgentEvent::Applied { incarnation, .. } if incarnation != self.incarnation => {}
            AgentEvent::Applied { upto, .. } => {
                self.applied = self.applied.max(upto);
                self.leader.database.sequences().leases.open(replica);
                return self.go_on().await;
            }
            AgentEvent::Diverged { version, cause, reason } => {
                let reason = format!("version {version} cannot be applied: {reason}");
                let lasting = match cause {
                    DivergenceCause::Rows => QuarantineDuration::UntilRebuilt,
                    DivergenceCause::Record => QuarantineDuration::UntilApplied,
                };
                self.quarantine(&reason, lasting);
            }
            AgentEvent::BlocksApply { session } => {
                let core = &self.leader.core;
                let session = core.named(session);
                core.tell(Event::BlocksApply { session, replica, incarnation: self.incarnation });
            }
            AgentEvent::PerformerBlocks { performance } => {
                self.leader.core.tell(performance.reports(Performance::Blocks));
            }
            AgentEvent::Durable { upto, .. } => {
                self.leader.note_durable(replica, upto).await;
                self.park_at(upto);
            }
            AgentEvent::UnknownBlocks { pid, is_direct, is_late } => {
                let obstruction = Obstruction { replica, pid, is_direct, is_late };
                self.leader.crews.tell_others(|| ToNode::GiveWay(obstruction));
            }
            AgentEvent::Evicts { pid } => {
                self.leader.crews.tell_others(|| ToNode::Evicted { replica, pid });
            }
            AgentEvent::Catalogue { catalogue, .. } => {
                let version = Version(catalogue.generation());
                self.leader.set_catalogue(*catalogue);
                self.leader.crews.show_schema(version);
            }
        }
        None
    }

    async fn up(&mut self, incarnation: Incarnation, applied: Vec<Identity>) -> Option<Command> {
        let seat = &self.leader.seats[self.replica];
        seat.absence.end();
        self.incarnation = incarnation;
        self.leader.database.sequences().leases.replica_changed(self.replica);
        self.leader.forget_oids();
        if self.leader.retention.is_quarantined(self.replica) {
            // The replica would fail again at the same record. It is connected anew once it is rebuilt or is to be
            // tried again.
            return None;
        }
        match self.leader.judge(applied, self.leader.core.holdings(self.replica)).await {
            Ok(AppliedVerdict { strangers, .. }) if self.are_of_a_lost_log(&strangers) => {
                self.leader.term.note_lost_log();
                let reason = "it has transactions that the log has not: the log was lost or removed";
                self.quarantine(reason, QuarantineDuration::UntilRestart);
            }
            Ok(AppliedVerdict { first, last: version, missing, strangers }) => {
                tracing::info!(replica = %seat.name, %version, missing = missing.len(), "the replica is up");
                (self.applied, self.given) = (version, version);
                // The replica may have been lost before it deleted the identities that it was told to. If they stayed,
                // they would look like a gap.
                self.forgotten = Version(first.0.saturating_sub(1));
                self.strangers = strangers.into_iter().filter(|i| i.epoch < self.leader.term.epoch).collect();
                self.marked = None;
                // The log may have more, which waits until all nodes have noted it. No client may see that yet.
                self.recovering = Some(self.leader.view.durable());
                seat.absence.note_catching_up();
                return if missing.is_empty() {
                    self.go_on().await
                } else {
                    self.apply_missing(&missing).await
                };
            }
            Err(error) => self.quarantine(&error.to_string(), QuarantineDuration::UntilRestart),
        }
        None
    }

    /// Whether identities show that the log was lost. In the first term of a log, identities that it does not have are
    /// of another log: they are of a term that has not been yet, or from before a client could write.
    fn are_of_a_lost_log(&self, strangers: &[Identity]) -> bool {
        let is_early = !self.leader.local.sessions.is_open();
        self.leader.term.log_was_empty
            && strangers.iter().any(|i| is_early || i.epoch != self.leader.term.epoch)
    }

    /// Mends the sequences of a replica, empties the tables that it does not hold, and lets it serve. It may be the home, or become it at any time, and a crash
    /// may have lost the last moves of its sequences. The replica has caught up with the log before: the marks that
    /// mend its sequences cover the moves by all records.
    async fn recovered(&mut self, target: Version) -> Option<Command> {
        let mending = home::mend_sequences(&self.leader, self.replica, target);
        let mended = tokio::time::timeout(MEND_DEADLINE, mending).await;
        if let Err(error) = mended.unwrap_or(Err(MendError::NoAnswer)) {
            tracing::warn!(%error, "the sequences of a replica could not be mended");
            return Some(Command::Reset { incarnation: self.incarnation });
        }
        let emptying = unheld::empty(&self.leader, self.replica);
        let emptied = tokio::time::timeout(MEND_DEADLINE, emptying).await;
        if let Err(error) = emptied.unwrap_or(Err(BackendError::Protocol("the server does not answer"))) {
            tracing::warn!(%error, "the tables that a replica does not hold could not be emptied");
            return Some(Command::Reset { incarnation: self.incarnation });
        }
        self.serve();
        None
    }

    /// Applies the versions of a commit group that the replica lacks because it was lost during their COMMITs.
    async fn apply_missing(&mut self, missing: &[Version]) -> Option<Command> {
        let found = self.leader.log.read_from(*missing.first()?, READ_BYTES_MAX).await;
        let mut records = found.unwrap_or_default();
        records.retain(|record| missing.contains(&record.header().last));
        if records.len() == missing.len() {
            return Some(self.apply(records));
        }
        let reason = format!("it lacks version {}, which cannot be read", missing[0]);
        self.quarantine(&reason, QuarantineDuration::UntilRestart);
        None
    }

    fn serve(&mut self) {
        self.is_up = true;
        self.leader.seats[self.replica].arrive();
        let (replica, incarnation, applied) = (self.replica, self.incarnation, self.applied);
        self.leader.core.tell(Event::ReplicaUp { replica, incarnation, applied });
    }

    /// Identities up to this version need not stay in the replica.
    fn forgettable(&self) -> Version {
        Version(self.applied.0.saturating_sub(IDENTITIES_KEPT))
    }

    /// Begins the next round: make applied records durable, and forget identities.
    async fn maintain(&mut self) -> Option<Command> {
        if !self.is_up {
            return None;
        }
        let status = self.leader.replicas().into_iter().find(|status| status.replica == self.replica)?;
        self.applied = status.applied;
        let limit = self.forgettable();
        let mut forget = Vec::new();
        if self.forgotten < limit {
            let (identities, log) = (&self.leader.identities, &self.leader.log);
            match identities.range(self.forgotten, limit, log).await {
                Ok((found, reached)) => (forget, self.forgotten) = (found, reached),
                Err(error) => tracing::warn!(%error, "what a replica could forget cannot be read"),
            }
        }
        forget.append(&mut self.strangers);
        let holdings = self.leader.core.holdings(self.replica);
        let stands_at = if holdings.is_everything() { None } else { self.identity_of(self.applied).await };
        // A replica keeps the marks of the records that it applies. The command brings those of its own transactions.
        let durable = self.leader.log.durable();
        let marks = self.leader.database.sequences().marks(self.marked, self.applied, durable);
        self.marked = Some(self.applied);
        let (incarnation, applied) = (self.incarnation, self.applied);
        Some(Command::Maintain { incarnation, applied, stands_at, forget, marks })
    }

    async fn identity_of(&self, version: Version) -> Option<Identity> {
        let before = Version(version.0.saturating_sub(1));
        let found = self.leader.identities.range(before, version, &self.leader.log).await;
        found.ok()?.0.pop()
    }
}

/// Records for the agent cannot be read.
#[derive(Debug)]
enum PieceError {
    Log(LogError),
    /// The log does not have this version.
    Missing(Version),
}

impl From<LogError> for PieceError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for PieceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(error) => error.fmt(f),
            Self::Missing(version) => write!(f, "the log does not have version {version}"),
        }
    }
}

/// Whether applying the record at a replica revokes its sequence leases.
fn takes_lent_back(record: &Record) -> bool {
    let takes = |item| matches!(item, Item::Statement(statement) if !statement.keeps_lent());
    record.writes_everything() && record.items().any(takes)
}
