//! Onecopy's own protocol as a system: the core that the binary runs, with clients at READ COMMITTED.
//!
//! A statement costs what its template says. Applying a record elsewhere is assumed to cost as much as its writes did at
//! home, although row images spare the search for the rows. Row locks inside PostgreSQL are not modelled, since two
//! transactions of the workloads seldom write the same row. Read-only transactions stay at one replica.
//!
//! Onecopy's guarantee differs from that of the other protocols, which are serializable: see
//! docs/explanation/protocols/README.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::Cluster;
use cluster::claims::{Claimed, Claims, Footprint};
use cluster::event::{Effect, Event, Foreseen, Home, Level, Needs, Reads};
use cluster::ids::{DatabaseId, Epoch, Identity, Incarnation, Nonce, ReplicaId, SessionId, TableId, Version};
use cluster::parts::lock_queues::Mode;
use cluster::placement::{Placement, Touches};
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows;
use cluster::protocols::shipping::{Ending, Kind, Operation, Request};
use cluster::record::{RecordBuilder, SealedBody};
use cluster::time::Time;

use super::database::Job;
use super::scenario::{Scenario, Workload};
use super::system::{Log, Out, System, To};

/// The only connection set.
const INCARNATION: Incarnation = Incarnation(1);

/// The purpose of a job, in the lowest bits of its name.
mod job {
    pub(super) const STATEMENT: u64 = 0;
    pub(super) const IDENTITY: u64 = 1;
    pub(super) const COMMIT: u64 = 2;
    pub(super) const REFRESH: u64 = 3;
    pub(super) const KINDS: u64 = 4;
}

/// A message over the network, or to the log and back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    There(Job),
    /// With the time in the database.
    Back(Job, u64),
    Logged(Version),
}

#[derive(Debug, Default)]
struct Session {
    is_update: bool,
    /// A transaction of one statement.
    is_single: bool,
    has_begun: bool,
    at: Option<ReplicaId>,
    operation: Option<Operation>,
    written: Vec<(TableId, u64)>,
    /// The cost of its writes.
    written_us: u32,
    /// Acknowledged, but not yet committed at home; holds the client's next request.
    is_committing: bool,
    next: Option<Request>,
}

pub(crate) struct Onecopy {
    cluster: Cluster,
    workload: Arc<Workload>,
    speed: u32,
    sessions: BTreeMap<SessionId, Session>,
    /// The cost of applying each version, from version 1.
    refresh_us: Vec<u32>,
    /// The session of each identity, until its record is appended.
    begun: BTreeMap<Identity, SessionId>,
    rows: u64,
    effects: Vec<Effect>,
}

impl Onecopy {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let replicas = scenario.replicas as u16;
        let options = rows::Options {
            choices: ONECOPY,
            replicas,
            anchor: ReplicaId(0),
            placement: Placement::full(replicas),
            epoch: Epoch(1),
            last: Version::ZERO,
            schema: Version::ZERO,
            // A batch costs as much as its records together.
            refresh_pause_us: 0,
            keys_max: rows::KEYS_MAX,
            refresh_versions_max: rows::REFRESH_VERSIONS_MAX,
            rules: rows::Rules::default(),
        };
        let rows = rows::Rows::new(options).expect("every replica holds everything");
        let mut cluster = Cluster::new(Box::new(rows));
        let mut effects = Vec::new();
        for replica in 0..replicas {
            let (replica, incarnation, applied) = (ReplicaId(replica), INCARNATION, Version::ZERO);
            cluster.handle(Time::default(), Event::ReplicaUp { replica, incarnation, applied }, &mut effects);
        }
        cluster.handle(Time::default(), Event::CatalogueLoaded { version: Version::ZERO }, &mut effects);
        Self {
            cluster,
            workload: scenario.workload.clone(),
            speed: scenario.speed,
            sessions: BTreeMap::new(),
            refresh_us: Vec::new(),
            begun: BTreeMap::new(),
            rows: 0,
            effects: Vec::new(),
        }
    }

    fn tell(&mut self, now_us: u64, event: Event, out: &mut Out<Message>) {
        self.cluster.handle(Time { us: now_us }, event, &mut self.effects);
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.carry_out(&effect, out);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: &Effect, out: &mut Out<Message>) {
        match *effect {
            Effect::Execute { session, replica, identity, .. } => {
                if let Some(identity) = identity {
                    self.begun.insert(identity, session);
                }
                let state = self.sessions.entry(session).or_default();
                state.at = Some(replica);
                let Some(operation) = state.operation else { return };
                let job = Job {
                    name: session.0 * job::KINDS + job::STATEMENT,
                    cost_us: operation.cost_us / self.speed,
                    is_write: operation.kind == Kind::Write,
                };
                out.sends.push((To::Replica(usize::from(replica.0)), Message::There(job)));
            }
            Effect::Append { version, identity, .. } => {
                assert_eq!(version.0, self.refresh_us.len() as u64 + 1, "versions are dense");
                let session = self.begun.remove(&identity).and_then(|session| self.sessions.get(&session));
                self.refresh_us.push(session.map_or(0, |state| state.written_us));
                out.logs.push(Log { at: 0, tables: 1, message: Message::Logged(version) });
            }
            Effect::Acknowledge { session, .. } => {
                self.sessions.entry(session).or_default().is_committing = true;
                out.answers.push(session);
            }
            Effect::Commit { session, .. } => self.at_home(session, job::COMMIT, out),
            Effect::Apply { replica, from, upto, .. } => {
                let costs = &self.refresh_us[from.0 as usize - 1..upto.0 as usize];
                let name = upto.0 * job::KINDS + job::REFRESH;
                let job = Job { name, cost_us: costs.iter().sum::<u32>() / self.speed, is_write: true };
                out.sends.push((To::Replica(usize::from(replica.0)), Message::There(job)));
            }
            Effect::Reclassify { .. }
            | Effect::LateReservation { .. }
            | Effect::Anchor { .. }
            | Effect::WakeAt { .. }
            | Effect::DrawLockLsn { .. }
            | Effect::HomeLost { .. }
            | Effect::Abort { .. }
            | Effect::Reset { .. }
            | Effect::LoadCatalogue { .. }
            | Effect::Send { .. }
            | Effect::Perform { .. }
            | Effect::CommitPerformed { .. }
            | Effect::UndoPerformed { .. }
            | Effect::RunAgain { .. }
            | Effect::Held { .. } => unreachable!("nothing is lost and no schema changes here: {effect:?}"),
        }
    }

    /// Adds a job without cost at the home of the session's transaction.
    fn at_home(&mut self, session: SessionId, what: u64, out: &mut Out<Message>) {
        let home = self.sessions.get(&session).and_then(|state| state.at).unwrap_or_default();
        let job = Job { name: session.0 * job::KINDS + what, cost_us: 0, is_write: true };
        out.sends.push((To::Replica(usize::from(home.0)), Message::There(job)));
    }

    fn execute(&mut self, now_us: u64, session: SessionId, operation: Operation, out: &mut Out<Message>) {
        let template = &self.workload.templates[operation.statement.0 as usize];
        let state = self.sessions.entry(session).or_default();
        state.operation = Some(operation);
        let mut writes = Claims::default();
        if operation.kind == Kind::Write {
            state.written_us += operation.cost_us;
            for table in &template.writes {
                // A different row each time: two transactions of the workloads seldom write the same row.
                self.rows += 1;
                writes.rows.push((*table, self.rows));
            }
            state.written.extend(&writes.rows);
        }
        // A written row is found by its key, which reads it.
        let reads = if operation.kind == Kind::Write && template.reads.is_empty() {
            Reads::Rows(Arc::new(Footprint { rows: writes.rows.clone(), ..Footprint::default() }))
        } else {
            Reads::Tables(template.reads.iter().chain(&template.writes).copied().collect())
        };
        let (cost_us, near, catalogue) = (operation.cost_us, None, Version::ZERO);
        let event = if state.is_update {
            let needs =
                Needs { reads, touches: Touches::Anything, writes, cost_us, near, catalogue, kind: None };
            if std::mem::replace(&mut state.has_begun, true) {
                Event::Statement { session, needs }
            } else {
                Event::Begin {
                    session,
                    level: Level::ReadCommitted,
                    nonce: Nonce(1),
                    home: Home::Any,
                    needs,
                    foreseen: Foreseen::default(),
                }
            }
        } else {
            Event::Read {
                session,
                touches: reads.touches(),
                reads,
                at: state.at,
                cost_us,
                near,
                catalogue,
                kind: None,
            }
        };
        self.tell(now_us, event, out);
    }

    fn executed(&mut self, now_us: u64, session: SessionId, out: &mut Out<Message>) {
        self.tell(now_us, Event::Executed { session }, out);
        let Some(state) = self.sessions.get(&session) else { return };
        match (state.is_single, state.is_update) {
            // The identity is inserted in the same flush as the statement.
            (true, true) => self.finish(now_us, session, out),
            (true, false) => {
                self.sessions.remove(&session);
                out.answers.push(session);
            }
            _ => out.answers.push(session),
        }
    }

    fn finish(&mut self, now_us: u64, session: SessionId, out: &mut Out<Message>) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let mut rows = std::mem::take(&mut state.written);
        let body = Box::new(body(&rows));
        rows.sort_unstable();
        let claims = vec![Claimed { turn: 0, is_held: false, claims: Claims { rows, ..Claims::default() } }];
        self.tell(
            now_us,
            Event::Finish { session, body, claims, changed: Vec::new(), reads: Reads::All },
            out,
        );
    }

    fn start(&mut self, now_us: u64, session: SessionId, request: Request, out: &mut Out<Message>) {
        let state = self.sessions.entry(session).or_default();
        match request {
            Request::Begin(locks) => {
                let is_update = locks.iter().any(|(_, mode)| *mode == Mode::Write);
                *state = Session { is_update, ..Session::default() };
                out.answers.push(session);
            }
            Request::SingleRead(_, operation) => {
                *state = Session { is_single: true, ..Session::default() };
                self.execute(now_us, session, operation, out);
            }
            Request::SingleUpdate(_, operation) => {
                *state = Session { is_update: true, is_single: true, ..Session::default() };
                self.execute(now_us, session, operation, out);
            }
            Request::Execute(operation) => self.execute(now_us, session, operation, out),
            Request::End(ending) => self.end(now_us, session, ending, out),
            Request::InteractionOver => {}
        }
    }

    fn end(&mut self, now_us: u64, session: SessionId, ending: Ending, out: &mut Out<Message>) {
        let state = self.sessions.entry(session).or_default();
        if state.is_update && ending == Ending::Commit && !state.written.is_empty() {
            self.at_home(session, job::IDENTITY, out);
            return;
        }
        let has_begun = state.is_update && state.has_begun;
        if let Some(state) = self.sessions.remove(&session).filter(|_| has_begun) {
            debug_assert!(state.written.is_empty() || ending == Ending::Abort, "what wrote is logged");
            self.begun.retain(|_, other| *other != session);
            self.tell(now_us, Event::End { session }, out);
        }
        out.answers.push(session);
    }
}

/// A record that writes these rows. Their images are empty: only the tables count here.
fn body(rows: &[(TableId, u64)]) -> SealedBody {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    for (table, _) in rows {
        builder.push_insert(*table, &[0, 0]).expect("a few empty rows are below the limit of a record");
    }
    builder.seal()
}

impl System for Onecopy {
    type Message = Message;

    fn ask(&mut self, _: usize, now_us: u64, session: SessionId, request: Request, out: &mut Out<Message>) {
        let state = self.sessions.entry(session).or_default();
        if state.is_committing && request != Request::InteractionOver {
            state.next = Some(request);
        } else {
            self.start(now_us, session, request, out);
        }
    }

    fn arrive(&mut self, now_us: u64, to: To, message: Message, out: &mut Out<Message>) {
        match (to, message) {
            (To::Replica(replica), Message::There(job)) => out.jobs.push((replica, job)),
            (To::Scheduler { from: replica, .. }, Message::Back(job, here_us)) => {
                let session = SessionId(job.name / job::KINDS);
                // No client waits for a commit, which follows the reply, or for a refresh.
                if matches!(job.name % job::KINDS, job::STATEMENT | job::IDENTITY) {
                    out.in_database_us += here_us;
                }
                match job.name % job::KINDS {
                    job::STATEMENT => self.executed(now_us, session, out),
                    job::IDENTITY => self.finish(now_us, session, out),
                    job::COMMIT => {
                        self.tell(now_us, Event::Committed { session }, out);
                        let next = self.sessions.remove(&session).and_then(|state| state.next);
                        if let Some(request) = next {
                            self.start(now_us, session, request, out);
                        }
                    }
                    _ => {
                        let replica = ReplicaId(replica as u16);
                        let upto = Version(job.name / job::KINDS);
                        self.tell(now_us, Event::Applied { replica, incarnation: INCARNATION, upto }, out);
                    }
                }
            }
            (to, message) => unreachable!("{message:?} is never sent to {to:?}"),
        }
    }

    fn logged(&mut self, _: usize, now_us: u64, message: Message, out: &mut Out<Message>) {
        if let Message::Logged(upto) = message {
            self.tell(now_us, Event::Logged { upto }, out);
        }
    }

    fn done(&mut self, here_us: u64, replica: usize, job: Job, out: &mut Out<Message>) {
        out.sends.push((To::Scheduler { at: 0, from: replica }, Message::Back(job, here_us)));
    }
}
