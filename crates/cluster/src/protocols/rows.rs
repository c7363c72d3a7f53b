//! The family of protocols that propagate row images: a transaction executes at one replica, its home, and the rows that it
//! changed are its record in the log, which the other replicas apply.
//!
//! A member of the family is a constant of [`Choices`] in a file of its own, with the essay on how it works
//! ([`super::onecopy`]). What all members share is here:
//!
//! - *Order of versions*: the log. A transaction is appended only after certification ([`certification`]), whatever order
//!   made it wait beforehand ([`crate::parts::order`]).
//! - *Visibility*: each replica shows a prefix of the version order. A statement waits until its replica has what it needs.
//! - *Propagation*: COMMIT at home in version order, a commit group at a time ([`commit_groups`]); batches of refreshes
//!   elsewhere ([`apply_batching`]).
//! - *Local replicas*: a protocol may connect each session to a replica, where its work runs ([`local`]).
//! - *Stamps*: a protocol may order all transactions by the times of their submission, and let several replicas execute
//!   each ([`stamped`], [`performing`]).
//! - *Members*: replicas are lost, come back, take over as anchor, join and leave ([`replicas`], [`takeover`], [`members`]); nodes are
//!   lost with their sessions ([`crews`]).
//!
//! There is one way to recover. When a replica loses anything on which a logged commit depends, the whole replica is reset:
//! every connection ends, transactions that are open there and not logged are rolled back (40001), its applied set is read
//! again, and the log is applied from there. This is the lost-COMMIT rule of DESIGN section 3 with "every open update
//! transaction" taken literally. It costs a moment, and no second path can be wrong. When an anchor does not come back at
//! once, another replica becomes the anchor: see [`takeover`].

mod apply_batching;
mod certification;
mod choices;
mod commit_groups;
mod commits;
mod crews;
mod home_choice;
mod local;
mod members;
mod memory_groups;
mod options;
mod patience;
mod performing;
mod reads;
mod replicas;
mod rules;
mod stamped;
mod takeover;
#[cfg(test)]
mod tests;
mod updates;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{ChainStatus, Protocol, ReplicaStatus, StampCounts, Waiting};
use crate::claims::{Claimed, Claims, ColumnSet};
use crate::event::{Digest, Effect, Event, Level, Needs, Reads, Rival};
use crate::ids::{DatabaseId, Epoch, Identity, Incarnation, ReplicaId, SessionId, TableId, Version};
use crate::parts::alarms::Alarms;
use crate::parts::balancer::Balancer;
use crate::parts::conflicts::{Conflicts, Count};
use crate::parts::drawing::Drawing;
use crate::parts::in_flight::{InFlight, Place};
use crate::parts::local_replicas::LocalReplicas;
use crate::parts::lock_lsns::LockLsns;
use crate::parts::order::Ordering;
use crate::parts::replica::{Offer, Outside, Replica, State, Turn};
use crate::parts::schema_changes::{Defined, SchemaChanges};
use crate::parts::server_waits::ServerWaits;
use crate::parts::version_index::VersionIndex;
use crate::placement::{Changed, Holdings, LastHolder, Placement};
use crate::record::SealedBody;
use crate::time::Time;
use apply_batching::Alarm;
use memory_groups::MemoryGroups;
use stamped::Stamped;
use updates::table_of;

pub use crate::parts::version_index::KEYS_MAX;
pub use choices::{Choices, HomePolicy, Order, Perform, Retry, Rule, See};
pub use options::{AnchorError, Options};
pub use patience::PATIENCE_US;
pub use performing::PERFORMER_PATIENCE_US;
pub use rules::Rules;

/// Most versions in one refresh transaction.
pub const REFRESH_VERSIONS_MAX: u64 = 100;

/// Most bytes in one refresh transaction, unless its first version alone has more.
pub const REFRESH_BYTES_MAX: usize = 4 << 20;

/// Most COMMITs under way at one home. After a crash, as many versions before the last one that a home has may be missing.
pub const COMMITS_TOGETHER_MAX: u64 = 32;

/// The pause during which versions that are not waited for are collected into a batch: see [`apply_batching`].
pub const REFRESH_PAUSE_US: u64 = 20_000;

/// Statements of one transaction that are certified apart. Those after them are certified as if the last of these had
/// written their rows, which is stricter.
pub const TURNS_MAX: usize = 4_096;

/// A transaction whose statements are all done.
#[derive(Debug)]
struct Finished {
    place: Place,
    body: Box<SealedBody>,
    changed: Vec<(TableId, ColumnSet)>,
    claims: Vec<Claimed>,
    held: Held,
    /// The claims of all statements together.
    merged: Claims,
    reads: Reads,
}

/// Claims that home holds for a transaction that has finished, by its own locks.
#[derive(Debug, Default)]
struct Held {
    claims: Claims,
    /// The last version that home is known to have had while the transaction was still alive there.
    base: Version,
    /// The number of times that a proof that it is alive was asked for.
    proofs: u32,
}

#[derive(Debug)]
enum Phase {
    /// Its statements run, or wait for a turn.
    Open,
    /// All statements are done, and it is not appended yet.
    Finished(Box<Finished>),
    /// The same, but it may have lost its locks: it has to draw another lock LSN.
    Suspected(Box<Finished>),
    /// In the log, or on the way there.
    Appended(Version),
}

/// A statement that waits for transactions of other homes.
#[derive(Debug)]
struct Pending {
    needs: Needs,
    since: Time,
    table: Option<TableId>,
}

#[derive(Debug)]
struct Transaction {
    identity: Identity,
    /// Its first statement was not let run yet.
    is_fresh: bool,
    /// Its first statement has run, so it is counted at its home.
    is_counted: bool,
    home: usize,
    /// It may run at the anchor only.
    is_bound: bool,
    level: Level,
    /// All that it does was known when it began: the claims of which it sees every version.
    seen: Option<Box<Claims>>,
    /// That was all that it can do ([`crate::event::Whole::is_sure`]).
    is_sure: bool,
    pending: Option<Pending>,
    /// For each statement, the version up to which home was known to have applied all when the statement was let run.
    bases: Vec<Version>,
    /// The lock LSN that home drew for it.
    lock_lsn: Option<u64>,
    phase: Phase,
}

/// A version that some replica may still lack.
#[derive(Debug)]
struct Assigned {
    session: SessionId,
    /// The replica where its transaction is open and waits for its COMMIT; `None` once it is closed there.
    home: Option<usize>,
    place: Place,
    tables: Arc<[TableId]>,
    /// The same tables with the parts of their rows, if some rows are in known parts.
    in_parts: Option<Arc<[Changed]>>,
    /// Of a schema change, the objects whose definitions it changes.
    defined: Option<Defined>,
    /// Every replica must apply it: it changes the schema, or moves sequences.
    is_for_all: bool,
    /// Home may commit it in a group with others.
    can_be_grouped: bool,
    /// Size of its body.
    bytes: usize,
    /// Some replica shows this version without the next one, or is about to.
    is_shown_apart: bool,
    /// The last version of its commit group at home; itself if it is alone.
    group_end: Version,
    claims: Claims,
    identity: Identity,
    /// What home has changed, if other replicas may have performed it.
    digest: Option<Digest>,
}

/// The order of the transactions of one home among themselves.
#[derive(Debug, Default)]
struct HomeSide {
    in_flight: InFlight,
    lock_lsns: LockLsns,
    /// Updates begin here only when all versions up to this one are applied: those assigned when the home was lost last.
    floor: Version,
    /// The number of versions whose COMMIT was not sent yet.
    unsent: usize,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    replica: usize,
    incarnation: Incarnation,
    cost_us: u32,
    /// It does not run, but waits for a connection: since this time, at this place in the queue.
    queued: Option<(Time, u32)>,
}

/// The state at the leader.
#[derive(Debug)]
pub struct Rows {
    rules: Rules,
    refresh_pause_us: u64,
    refresh_versions_max: u64,
    alarms: Alarms<Alarm>,
    anchor: usize,
    /// The anchor is lost, and another replica is to take its place as soon as one can.
    is_anchor_overdue: bool,
    epoch: Epoch,
    transactions_begun: u64,
    last: Version,
    index: VersionIndex,
    choices: Choices,
    order: Ordering,
    /// Under [`Order::Stamps`].
    stamped: Option<Box<Stamped>>,
    /// The replica of the last turn ([`HomePolicy::InTurn`]).
    last_turn: usize,
    known_misjudged: u64,
    homes: Vec<HomeSide>,
    places: u64,
    versions: BTreeMap<Version, Assigned>,
    transactions: BTreeMap<SessionId, Transaction>,
    /// Finished transactions, each with the place of the one that it waits for.
    delayed: BTreeSet<(Place, SessionId)>,
    /// Finished transactions that wait to be appended together with others.
    ready: BTreeSet<(Place, SessionId)>,
    /// The home of the last version.
    last_home: usize,
    /// Finished transactions that wait for the end of a hold.
    held: BTreeSet<(Place, SessionId)>,
    /// Finished transactions that have to prove that they are alive, once their home has the version.
    proving: BTreeSet<(usize, Version, SessionId)>,
    running: BTreeMap<SessionId, Running>,
    /// Reads for which no eligible replica is up.
    stranded: Vec<(Version, SessionId, Turn)>,
    replicas: Vec<Replica>,
    balancer: Balancer,
    /// Under [`HomePolicy::LocalReplica`].
    locals: Option<Box<LocalReplicas>>,
    /// Under [`HomePolicy::ByMemory`].
    memory_groups: Option<Box<MemoryGroups>>,
    drawing: Drawing,
    placement: Placement,
    schema_changes: SchemaChanges,
    catalogue: Option<Version>,
    catalogue_asked: Option<Version>,
    /// Reads that wait for the catalogue.
    unclassified: Vec<SessionId>,
    hold: Option<(SessionId, bool)>,
    conflicts: Conflicts,
    server_waits: ServerWaits,
    turns_unended: u64,
    /// Sessions that ask for the outcome of a version that is not durable yet.
    asking: BTreeSet<(Version, SessionId)>,
}

impl Rows {
    /// A leader at the start of its term; every replica is down.
    pub fn new(options: Options) -> Result<Self, AnchorError> {
        options.check_anchor()?;
        let floor = if options.rules.home_catches_up { options.last } else { Version::ZERO };
        let index = if options.rules.whole_log_is_needed {
            VersionIndex::recovered(options.last, options.schema)
        } else {
            VersionIndex::forgetful(options.last)
        };
        let connects = options.choices.home.connects_sessions();
        let home = |_| HomeSide { floor, ..HomeSide::default() };
        Ok(Self {
            rules: options.rules,
            refresh_pause_us: options.refresh_pause_us,
            refresh_versions_max: options.refresh_versions_max,
            alarms: Alarms::default(),
            anchor: usize::from(options.anchor.0),
            is_anchor_overdue: false,
            epoch: options.epoch,
            transactions_begun: 0,
            last: options.last,
            index: index.remembering(options.keys_max, options.rules.forgotten_claims_count),
            choices: options.choices,
            order: options.choices.order.ordering(&options.rules),
            stamped: options.choices.order.stamped(&options.rules).map(Box::new),
            last_turn: 0,
            known_misjudged: 0,
            homes: (0..options.replicas).map(home).collect(),
            places: 0,
            versions: BTreeMap::new(),
            transactions: BTreeMap::new(),
            delayed: BTreeSet::new(),
            ready: BTreeSet::new(),
            last_home: 0,
            held: BTreeSet::new(),
            proving: BTreeSet::new(),
            running: BTreeMap::new(),
            stranded: Vec::new(),
            replicas: (0..options.replicas).map(|i| Replica::new(ReplicaId(i))).collect(),
            balancer: Balancer::default(),
            locals: connects.then(|| Box::new(LocalReplicas::new(options.epoch))),
            memory_groups: MemoryGroups::of(options.choices.home).map(Box::new),
            drawing: Drawing::default(),
            placement: options.placement,
            schema_changes: SchemaChanges::recovered(options.last, options.schema),
            catalogue: None,
            catalogue_asked: None,
            unclassified: Vec::new(),
            hold: None,
            conflicts: Conflicts::default(),
            server_waits: ServerWaits::default(),
            turns_unended: 0,
            asking: BTreeSet::new(),
        })
    }

    fn wait_at(&mut self, index: usize, session: SessionId, need: Version, turn: Turn, out: &mut Out<'_>) {
        let replica = &mut self.replicas[index];
        if replica.shows(need) {
            self.execute(index, session, turn, out);
        } else {
            replica.waiting.push(need, session, turn);
            self.advance(index, out);
        }
    }

    fn execute(&mut self, index: usize, session: SessionId, turn: Turn, out: &mut Out<'_>) {
        // A session runs one statement at a time. If it has not reported the end of the last one, that would count for ever.
        self.turns_unended += u64::from(self.executed(session));
        let replica = &mut self.replicas[index];
        replica.begins(turn.cost_us);
        let (incarnation, applied, cost_us) = (replica.incarnation, replica.applied, turn.cost_us);
        self.running.insert(session, Running { replica: index, incarnation, cost_us, queued: None });
        let transaction = self.transactions.get_mut(&session);
        let identity = transaction.and_then(|t| {
            if t.bases.len() < TURNS_MAX {
                t.bases.push(applied);
            }
            std::mem::take(&mut t.is_fresh).then_some(t.identity)
        });
        out.effects.push(Effect::Execute { session, replica: replica.id, incarnation, identity, applied });
    }

    /// The statement of the session has ended. Returns whether one was running.
    fn executed(&mut self, session: SessionId) -> bool {
        let running = self.running.remove(&session);
        if let Some(running) = &running {
            let replica = &mut self.replicas[running.replica];
            match running.queued {
                _ if !replica.is_up(running.incarnation) => {}
                Some(_) => replica.queued -= 1,
                None => replica.ends(running.cost_us),
            }
        }
        running.is_some()
    }

    /// A statement has run; the first one of an update transaction is counted.
    fn has_run(&mut self, session: SessionId) {
        if let Some(transaction) = self.transactions.get_mut(&session)
            && !std::mem::replace(&mut transaction.is_counted, true)
        {
            self.replicas[transaction.home].writes += 1;
        }
        self.executed(session);
        self.kind_ends(session);
    }

    /// Drops the transaction. Those that wait for it go on.
    fn forget(&mut self, session: SessionId, out: &mut Out<'_>) {
        let gone = self.transactions.remove(&session);
        if let Some(Transaction {
            home, phase: Phase::Finished(finished) | Phase::Suspected(finished), ..
        }) = gone
        {
            self.unfinish(session, home, &finished, out);
        }
        self.kind_ends(session);
        self.unlock(session, out);
    }

    /// The transaction had finished, and is not appended after all. Those that wait for it go on.
    fn unfinish(&mut self, session: SessionId, home: usize, finished: &Finished, out: &mut Out<'_>) {
        self.delayed.retain(|(_, waiter)| *waiter != session);
        self.ready.retain(|(_, waiter)| *waiter != session);
        self.held.retain(|(_, waiter)| *waiter != session);
        self.proving.retain(|(.., waiter)| *waiter != session);
        self.settled(home, finished.place, &finished.merged, out);
    }

    /// Acts on one event.
    fn take(&mut self, event: Event, out: &mut Out<'_>) {
        match event {
            Event::Read { session, reads, touches, at, cost_us, near, catalogue, kind } => {
                out.catalogue = catalogue;
                self.kind_begins(session, kind.as_deref().filter(|_| at.is_none()));
                if let Some(need) = self.read(session, &reads, at, out) {
                    let is_catalogue = at.is_none() && reads == Reads::Catalogue;
                    let eligible = self.eligible(&reads, &touches, at);
                    let turn = Turn { cost_us, eligible, is_bound: at.is_some(), is_catalogue };
                    self.place_read(session, (need, near), turn, out);
                }
            }
            Event::Begin { session, level, nonce, home, needs, foreseen } => {
                out.catalogue = needs.catalogue;
                self.begin(session, (level, home), nonce, (needs, foreseen), out);
            }
            Event::Statement { session, needs } => {
                out.catalogue = needs.catalogue;
                if self.transactions.contains_key(&session) {
                    self.ask_next(session, needs, out);
                }
            }
            Event::ReserveLate { session, claims, held } => self.reserve_late(session, (claims, held), out),
            Event::Executed { session } => self.has_run(session),
            Event::LockLsn { session, lsn } => self.lock_lsn_drawn(session, lsn, out),
            Event::Finish { session, body, claims, changed, reads } => {
                self.finish(session, (body, changed), claims, reads, out);
            }
            Event::BlocksApply { session, replica, incarnation } => {
                self.blocks_apply(session, usize::from(replica.0), incarnation, out);
            }
            Event::ServerWaits { edges } => self.server_waits(&edges, out),
            Event::End { session } => self.end(session, out),
            Event::Yield { session } => self.yields(session, out),
            Event::Committed { session } => self.committed(session, out),
            Event::GiveUp { session } => self.give_up(session, out),
            Event::Closed { session } => self.closed(session),
            Event::Failed { session } => self.unlock(session, out),
            Event::Withdraw { session } => self.withdraw(session, out),
            Event::Logged { upto } => self.logged(upto, out),
            Event::ReplicaUp { replica, incarnation, applied } => {
                self.replica_up(replica, incarnation, applied, out);
            }
            Event::ReplicaLost { replica, incarnation } => self.connections_lost(replica, incarnation, out),
            Event::Suspect { replica, incarnation, is_suspect } => {
                self.replicas[usize::from(replica.0)].suspect(incarnation, is_suspect);
            }
            Event::TakeOver { from } => self.take_over(from, out),
            Event::Diverged { replica } => self.replica_lost(replica, State::Quarantined, out),
            Event::Rebuilt { replica } => self.rebuilt(replica),
            Event::Joined { replica } => self.joined(replica),
            Event::Left { replica } => self.left(replica, out),
            Event::Drained { replica, is_drained } => self.drained(replica, is_drained, out),
            Event::Placed { table, copies } => self.placed(table, copies),
            Event::Mastered { table, masters } => self.placement.set_masters(table, masters),
            Event::Applied { replica, incarnation, upto } => {
                if self.replicas[usize::from(replica.0)].is_up(incarnation) {
                    self.has_applied(usize::from(replica.0), upto, out);
                }
            }
            Event::CatalogueLoaded { version } => self.catalogue_loaded(version, out),
            Event::Hold { session } => self.hold_at(session, out),
            Event::Release { session } => self.release(session, out),
            Event::WakeUp => self.wake_up(out),
            Event::NodeLost { crew } => self.node_lost(crew, out),
            Event::Outcome { session, found } => self.outcome(session, found, out),
            about @ (Event::Arrived { .. }
            | Event::Digest { .. }
            | Event::Undone { .. }
            | Event::Performed { .. }) => self.take_stamped(about, out),
        }
    }
}

/// The arguments that every handler needs beside the state.
struct Out<'a> {
    now: Time,
    effects: &'a mut Vec<Effect>,
    /// The DDL that the catalogue of the event's session reflects.
    catalogue: Version,
}

impl Protocol for Rows {
    fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        let mut out = Out { now, effects, catalogue: Version::ZERO };
        let out = &mut out;
        if self.stamped.as_ref().is_none_or(|stamped| !stamped.ignores(&event)) {
            self.take(event, out);
            self.append_ready(out);
            self.follow_stamps(out);
        }
    }

    fn replicas(&self) -> Vec<ReplicaStatus> {
        let status = |r: &Replica| ReplicaStatus {
            replica: r.id,
            state: r.state,
            is_suspect: r.is_suspect,
            is_drained: r.is_drained,
            is_forgotten: self.is_forgotten(r),
            incarnation: r.incarnation,
            applied: r.applied,
            lag: self.index.last().0.saturating_sub(r.applied.0),
            reads: r.reads + r.outside.reads,
            writes: r.writes,
            expected_wait_us: r.expected_wait_us(r.applied),
            waiting: r.waiting.len(),
            open: self.open_at(usize::from(r.id.0)),
        };
        self.replicas.iter().filter(|r| r.state != State::Absent).map(status).collect()
    }

    fn holdings(&self, replica: ReplicaId) -> Holdings {
        self.placement.holdings(replica)
    }

    fn may_leave(&self, replica: ReplicaId) -> Result<(), LastHolder> {
        self.placement.may_leave(replica)
    }

    fn placement(&self) -> Option<&Placement> {
        Some(&self.placement)
    }

    fn durable(&self) -> Version {
        self.index.last()
    }

    fn last_ddl(&self) -> Version {
        self.index.last_ddl()
    }

    fn answer_needs(&self, reads: &Reads, catalogue: Version) -> Option<Version> {
        let is_known = !self.rules.catalogue_is_fresh || catalogue >= self.index.last_ddl();
        (is_known && self.choices.see == See::Fresh).then(|| self.need(reads, catalogue))
    }

    fn last_writer(&self, reads: &Reads) -> Option<Version> {
        Some(self.index.writer(reads))
    }

    fn seats(&self) -> usize {
        self.replicas.len()
    }

    fn offer(&self, replica: ReplicaId) -> Option<Offer> {
        self.offered(replica)
    }

    fn note_outside(&mut self, replica: ReplicaId, outside: Outside) {
        if let Some(replica) = self.replicas.get_mut(usize::from(replica.0)) {
            replica.outside = outside;
        }
    }

    fn redefines(&self, since: Version, database: DatabaseId, mentioned: &[u64]) -> bool {
        self.schema_changes.concern(since, database, mentioned)
    }

    fn voids_lent(&self, since: Version) -> bool {
        self.schema_changes.void_lent(since)
    }

    fn conflicts(&self) -> Vec<Count> {
        self.conflicts.all()
    }

    fn waiting(&self) -> Vec<Waiting> {
        self.waits_between_homes()
    }

    fn snapshots(&self) -> BTreeMap<SessionId, Version> {
        self.snapshots_taken()
    }

    fn earlier_writer(&self, session: SessionId, claims: &Claims) -> Option<Rival> {
        self.first_at(session, claims)
    }

    fn keys_remembered(&self) -> usize {
        self.index.keys_remembered()
    }

    fn known_misjudged(&self) -> u64 {
        self.known_misjudged
    }

    fn chains(&self) -> Vec<ChainStatus> {
        self.chains_now()
    }

    fn turns_unended(&self) -> u64 {
        self.turns_unended
    }

    fn stamps(&self) -> StampCounts {
        self.stamped.as_ref().map(|stamped| stamped.counts()).unwrap_or_default()
    }
}
