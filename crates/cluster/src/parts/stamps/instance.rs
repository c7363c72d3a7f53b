//! The stamps of one instance of a protocol: an agent for each replica, the stamps of all, and the order of the log.
//!
//! A transaction is submitted at its home, the *origin* of the paper. Its stamp goes to the agents of the other replicas in
//! messages, each of which takes its time. The leader tells all agents at once that a transaction is in the log, or over without a
//! record. So a record stands for a message that has not arrived yet: no agent waits for a late message, and no younger transaction
//! passes because of it.
//!
//! ```text
//!   submit(T1) at 0     Run(T1)   Send 0 -> 1, Send 0 -> 2
//!   arrived(T1) at 1    Perform T1 at 1
//!   performed(0, T1)    its delivery time has come, it is the oldest open one: next() = T1
//!   appended(T1)        2 has heard of it, although the message is on its way: what is younger there and conflicts is undone
//!   committed(r, T1)    at each replica r, when it shows the record: what waited there for T1 starts
//! ```
//!
//! Each replica has a clock of its own: [`Mode::skew_us`]. In one process that is a fiction, since all stamps are known where the log
//! is, and it is kept because the paper's order rests on it.
//!
//! Invariant: transactions are appended in the order of their stamps, and the execution that is appended began when everything that
//! is older, conflicts with it and has a record was shown at its home.
//!
//! Not here: executions, which are the caller's. It says when one ends ([`Instance::performed`], [`Instance::undone`]), and a
//! transaction that has no record has to be reported as [`Instance::ended`], or it keeps all younger ones out of the log.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Act, Agent, Appends, Can, Classes, Commit, Guards, Reach, Rules, Stamp, Start};
use crate::claims::Claims;
use crate::event::{Message, Role};
use crate::ids::{Identity, ReplicaId, SessionId};
use crate::placement::ReplicaSet;
use crate::time::Time;

/// The choices of a protocol that orders by stamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mode {
    /// When a transaction may start of which all is known.
    pub start: Start,
    /// Max + epsilon, in microseconds.
    pub wait_us: u64,
    /// The clock of each replica is ahead of that of the replica before it by this. 0, except in tests and simulations.
    pub skew_us: u64,
}

/// A transaction that is submitted.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Its name in the log.
    pub identity: Identity,
    /// The index of the replica where it runs for its client.
    pub home: usize,
    /// All that it may read or write.
    pub claims: Arc<Claims>,
    /// Whether home may start it before it is ordered.
    pub can: Can,
    /// The other replicas that perform it.
    pub performers: ReplicaSet,
}

/// What the caller has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Let the session's transaction run at its home.
    Run(SessionId),
    /// Perform the session's transaction at a replica that is not its home.
    Perform {
        /// The index of the replica.
        replica: usize,
        /// The session.
        session: SessionId,
        /// The transaction.
        identity: Identity,
        /// Its stamp.
        stamp: Stamp,
    },
    /// Roll the session's transaction back at its home, then say [`Instance::undone`].
    Undo(SessionId),
    /// Roll the execution back at this replica, then say the same.
    UndoAt {
        /// The index of the replica.
        replica: usize,
        /// The transaction.
        identity: Identity,
        /// Its stamp.
        stamp: Stamp,
    },
    /// Send a message.
    Send {
        /// The sender.
        from: ReplicaId,
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: Message,
    },
}

/// A transaction that is neither appended nor over.
#[derive(Debug)]
struct Open {
    stamp: Stamp,
    submission: Submission,
}

/// What the agents of an instance have seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that came after one of a younger transaction (section 6.5).
    pub unordered: u64,
    /// Messages that took longer than Max.
    pub late: u64,
    /// Executions that were undone for an older transaction.
    pub undone: u64,
}

/// The agents of all replicas.
#[derive(Debug)]
pub struct Instance {
    mode: Mode,
    guards: Guards,
    /// `None` where a replica is not up.
    agents: Vec<Option<Agent>>,
    /// The youngest transaction of which each replica has heard.
    youngest: BTreeMap<usize, Stamp>,
    appends: Appends,
    open: BTreeMap<SessionId, Open>,
    sessions: BTreeMap<Stamp, SessionId>,
    seen: Seen,
}

fn id(replica: usize) -> ReplicaId {
    ReplicaId(u16::try_from(replica).expect("below the number of a replica"))
}

impl Instance {
    /// No replica is up.
    pub fn new(mode: Mode, guards: Guards) -> Self {
        Self {
            mode,
            guards,
            agents: Vec::new(),
            youngest: BTreeMap::new(),
            appends: Appends::default(),
            open: BTreeMap::new(),
            sessions: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    /// What the agents have seen.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    fn clock(&self, replica: usize, now: Time) -> Time {
        Time { us: now.us.saturating_add(self.mode.skew_us.saturating_mul(replica as u64)) }
    }

    fn agent(&mut self, replica: usize) -> Option<&mut Agent> {
        self.agents.get_mut(replica)?.as_mut()
    }

    /// Whether a replica has an agent.
    pub fn is_up(&self, replica: usize) -> bool {
        self.agents.get(replica).is_some_and(Option::is_some)
    }

    /// A replica is up. Its agent hears of all open transactions; it waits for the records of those whose messages it has missed.
    pub fn up(&mut self, now: Time, replica: usize) -> Vec<Step> {
        if self.agents.len() <= replica {
            self.agents.resize_with(replica + 1, || None);
        }
        let rules = Rules {
            wait_us: self.mode.wait_us,
            start: self.mode.start,
            classes: Classes::ByClaims,
            reach: Reach::Conflicting,
            commit: Commit::ByTheCaller,
            guards: self.guards,
        };
        let (mut agent, clock, mut acts) =
            (Agent::new(id(replica), rules), self.clock(replica, now), Vec::new());
        for (stamp, session) in &self.sessions {
            let Submission { home, claims, can, .. } = &self.open[session].submission;
            let can = if *home == replica { *can } else { Can::NeedsRefresh };
            acts.extend(agent.arrived(clock, *stamp, Arc::clone(claims), can));
        }
        self.agents[replica] = Some(agent);
        self.steps(replica, acts)
    }

    /// A replica is lost. The caller ends the transactions that have their home there.
    pub fn lost(&mut self, replica: usize) {
        if let Some(agent) = self.agents.get_mut(replica) {
            *agent = None;
        }
    }

    /// A session's transaction is submitted. Its home is up.
    pub fn submit(&mut self, now: Time, session: SessionId, submission: Submission) -> Vec<Step> {
        let home = submission.home;
        let clock = self.clock(home, now);
        let stamp = self.appends.stamp(clock, id(home));
        let (claims, can, performers) =
            (Arc::clone(&submission.claims), submission.can, submission.performers);
        self.sessions.insert(stamp, session);
        let before = self.open.insert(session, Open { stamp, submission });
        assert!(before.is_none(), "a session has one update transaction at a time");
        let others = (0..self.agents.len()).filter(|replica| *replica != home && self.is_up(*replica));
        let mut steps: Vec<Step> = others
            .map(|replica| {
                let (from, to) = (id(home), id(replica));
                let role = if performers.contains(to) { Role::Performs } else { Role::Waits };
                let message = Message::Submitted { stamp, session, claims: Arc::clone(&claims), role };
                Step::Send { from, to, message }
            })
            .collect();
        self.seen.sent += steps.len() as u64;
        self.heard(home, stamp);
        if let Some(agent) = self.agent(home) {
            let acts = agent.arrived(clock, stamp, claims, can);
            steps.extend(self.steps(home, acts));
        }
        steps
    }

    /// A message arrives at a replica.
    pub fn arrived(&mut self, now: Time, replica: usize, message: Message) -> Vec<Step> {
        let Message::Submitted { stamp, session, claims, role } = message;
        let clock = self.clock(replica, now);
        self.seen.late += u64::from(stamp.delivery(self.mode.wait_us) < clock);
        self.seen.unordered += u64::from(!self.heard(replica, stamp));
        let is_open = self.sessions.get(&stamp) == Some(&session);
        let Some(agent) = self.agent(replica).filter(|agent| is_open && !agent.has(stamp)) else {
            return Vec::new();
        };
        let can = match role {
            Role::Performs => Can::Perform,
            Role::Waits => Can::NeedsRefresh,
        };
        let acts = agent.arrived(clock, stamp, claims, can);
        self.steps(replica, acts)
    }

    /// A replica hears of a transaction. Returns whether it is younger than all those of which it has heard before.
    fn heard(&mut self, replica: usize, stamp: Stamp) -> bool {
        let youngest = self.youngest.entry(replica).or_insert(stamp);
        let is_younger = *youngest <= stamp;
        *youngest = (*youngest).max(stamp);
        is_younger
    }

    /// The session's transaction has finished its statements at its home.
    pub fn finished(&mut self, session: SessionId) -> Vec<Step> {
        let Some(Open { stamp, submission }) = self.open.get(&session) else { return Vec::new() };
        let (stamp, home) = (*stamp, submission.home);
        self.performed(home, stamp)
    }

    /// An execution has nothing left but its COMMIT.
    pub fn performed(&mut self, replica: usize, stamp: Stamp) -> Vec<Step> {
        let acts = self.agent(replica).map(|agent| agent.performed(stamp));
        self.steps(replica, acts.unwrap_or_default())
    }

    /// An execution is rolled back.
    pub fn undone(&mut self, replica: usize, stamp: Stamp) -> Vec<Step> {
        let acts = self.agent(replica).map(|agent| agent.undone(stamp));
        self.steps(replica, acts.unwrap_or_default())
    }

    /// The same, of a transaction at its home.
    pub fn undone_at_home(&mut self, session: SessionId) -> Vec<Step> {
        let Some(Open { stamp, submission }) = self.open.get(&session) else { return Vec::new() };
        let (stamp, home) = (*stamp, submission.home);
        self.undone(home, stamp)
    }

    /// The replica does not perform the transaction any more; what it had of it is rolled back.
    pub fn gives_up(&mut self, replica: usize, stamp: Stamp) -> Vec<Step> {
        let acts = self.agent(replica).map(|agent| agent.gives_up(stamp));
        self.steps(replica, acts.unwrap_or_default())
    }

    /// The session's transaction holds a lock that an older one waits for, although their claims do not conflict. It has to be
    /// undone.
    pub fn evict(&mut self, session: SessionId) -> Option<Step> {
        let Open { stamp, submission } = self.open.get(&session)?;
        let (stamp, home) = (*stamp, submission.home);
        let is_evicted = self.agent(home).is_some_and(|agent| agent.evict(stamp));
        is_evicted.then_some(Step::Undo(session))
    }

    /// The session whose transaction is next in the log, if it is done and ordered at its home.
    pub fn next(&self) -> Option<SessionId> {
        let is_done = |stamp: &Stamp| {
            let open = self.sessions.get(stamp).and_then(|session| self.open.get(session));
            let home = open.and_then(|open| self.agents.get(open.submission.home)?.as_ref());
            home.is_some_and(|agent| agent.is_done(*stamp))
        };
        let stamp = if self.guards.appends_are_ordered {
            self.appends.next().filter(is_done)
        } else {
            self.sessions.keys().copied().find(is_done)
        };
        self.sessions.get(&stamp?).copied()
    }

    /// The session's transaction is in the log. Returns its stamp, and what has to be done because every replica hears of it.
    pub fn appended(&mut self, now: Time, session: SessionId) -> Option<(Stamp, Vec<Step>)> {
        let Open { stamp, submission } = self.open.remove(&session)?;
        self.sessions.remove(&stamp);
        if self.guards.appends_are_ordered {
            self.appends.appended(stamp);
        } else {
            self.appends.ended(stamp);
        }
        let mut steps = Vec::new();
        for replica in 0..self.agents.len() {
            let clock = self.clock(replica, now);
            let Some(agent) = self.agent(replica) else { continue };
            let mut acts = Vec::new();
            if !agent.has(stamp) {
                acts = agent.arrived(clock, stamp, Arc::clone(&submission.claims), Can::NeedsRefresh);
            }
            agent.appended(stamp);
            steps.extend(self.steps(replica, acts));
        }
        Some((stamp, steps))
    }

    /// A replica shows the record of a transaction.
    pub fn committed(&mut self, replica: usize, stamp: Stamp) -> Vec<Step> {
        let acts = self.agent(replica).map(|agent| agent.committed(stamp));
        self.steps(replica, acts.unwrap_or_default())
    }

    /// The session's transaction is over without a record, or can only be rolled back. The other replicas undo what they have of it.
    pub fn ended(&mut self, session: SessionId) -> Vec<Step> {
        let Some(Open { stamp, submission: Submission { identity, .. } }) = self.open.remove(&session) else {
            return Vec::new();
        };
        self.sessions.remove(&stamp);
        self.appends.ended(stamp);
        let mut steps = Vec::new();
        for replica in 0..self.agents.len() {
            let Some(agent) = self.agent(replica) else { continue };
            let acts = agent.ended(stamp);
            steps.push(Step::UndoAt { replica, identity, stamp });
            steps.extend(self.steps(replica, acts));
        }
        steps
    }

    /// When [`Self::alarm`] has to be called for a replica.
    pub fn next_alarm(&self, replica: usize) -> Option<Time> {
        let at = self.agents.get(replica)?.as_ref()?.next_alarm()?;
        Some(Time { us: at.us.saturating_sub(self.mode.skew_us.saturating_mul(replica as u64)) })
    }

    /// The time of an alarm has come; it may also be too early or not needed any more.
    pub fn alarm(&mut self, now: Time, replica: usize) -> Vec<Step> {
        let clock = self.clock(replica, now);
        let acts = self.agent(replica).map(|agent| agent.alarm(clock));
        self.steps(replica, acts.unwrap_or_default())
    }

    /// The number of replicas that have ever been up.
    pub fn replicas(&self) -> usize {
        self.agents.len()
    }

    /// The place of a session's transaction in the order, as long as it is open.
    pub fn stamp(&self, session: SessionId) -> Option<Stamp> {
        self.open.get(&session).map(|open| open.stamp)
    }

    /// The session of an older transaction that a session's transaction waits for at its home.
    pub fn rival(&self, session: SessionId) -> Option<SessionId> {
        let Open { stamp, submission } = self.open.get(&session)?;
        let agent = self.agents.get(submission.home)?.as_ref()?;
        self.sessions.get(&agent.behind(*stamp)?).copied()
    }

    fn steps(&mut self, replica: usize, acts: Vec<Act>) -> Vec<Step> {
        let mut steps = Vec::new();
        for act in acts {
            let (Act::Perform(stamp) | Act::Undo(stamp)) = act else { continue };
            let session = self.sessions.get(&stamp).copied();
            let Some((session, open)) = session.and_then(|one| Some((one, self.open.get(&one)?))) else {
                continue;
            };
            let (identity, is_home) = (open.submission.identity, open.submission.home == replica);
            steps.push(match act {
                Act::Perform(_) if is_home => Step::Run(session),
                Act::Perform(_) => Step::Perform { replica, session, identity, stamp },
                _ if is_home => Step::Undo(session),
                _ => Step::UndoAt { replica, identity, stamp },
            });
            self.seen.undone += u64::from(matches!(act, Act::Undo(_)));
        }
        steps
    }
}
