//! The agent of one replica: refresher and deliver of the paper in one (figures 10 and 11, and the rules of section 5.2).
//!
//! A transaction goes through these states. It also becomes *ordered* at its delivery time, whatever its state.
//!
//! | state | event | next |
//! |---|---|---|
//! | | arrived | Waiting |
//! | Waiting | its turn, the replica can run it | Running |
//! | Waiting | its turn, the replica lacks a table | Standby |
//! | Standby | its refresh transaction came | Running |
//! | Running | performed | Done |
//! | Standby | an older one arrived that concerns it | Waiting |
//! | Running, Done | an older one arrived that concerns it | Undoing |
//! | Undoing | undone | Waiting |
//! | Done | ordered, the oldest here (or: its record's turn in the log) | committed, forgotten |
//!
//! *Its turn* is when nothing older that conflicts is uncommitted here, and nothing younger that conflicts is being undone. With
//! [`Start::Ordered`] it also has to be ordered. With [`Reach::Younger`] every older one must have had its turn.
//!
//! Each transaction that waits remembers one older transaction that conflicts with it, and looks for another one when that is
//! committed. So a step costs one pass over the line, and one look into the index for each transaction that it frees.
//!
//! Not here: what is the caller's by [`super::stamps`](super).

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::{Act, Can, Classes, Commit, Reach, Rules, Stamp, Start};
use crate::claims::Claims;
use crate::ids::ReplicaId;
use crate::parts::claim_index::ClaimIndex;
use crate::time::Time;

/// What an agent has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Transactions that arrived.
    pub arrived: u64,
    /// Those among them that are older than one that had arrived before (section 5.1: "out-of-order").
    pub unordered: u64,
    /// Those that arrived after their delivery time: their message took longer than Max.
    pub late: u64,
    /// Those that arrived when a younger one had been committed here. Not zero only under [`Commit::ByItself`], and only if messages
    /// are late: this replica's order then differs from others.
    pub overtaken: u64,
    /// Executions that were undone.
    pub undone: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Run {
    Waiting,
    Standby,
    Running,
    Done,
    Undoing,
}

#[derive(Debug)]
struct Entry {
    claims: Arc<Claims>,
    can: Can,
    run: Run,
    is_ordered: bool,
    /// An older transaction in the line that conflicts with this one; `None` if there is none.
    behind: Option<Stamp>,
}

/// The agent of one replica. All times are those of the replica's own clock.
#[derive(Debug)]
pub struct Agent {
    replica: ReplicaId,
    rules: Rules,
    /// Transactions that are not ordered, by origin. A queue without entries is not there.
    pending: BTreeMap<ReplicaId, VecDeque<Stamp>>,
    line: BTreeMap<Stamp, Entry>,
    index: ClaimIndex<Stamp>,
    /// Records of the log that are not committed here.
    log: VecDeque<Stamp>,
    undoing: usize,
    newest: Option<Stamp>,
    committed: Option<Stamp>,
    counts: Counts,
}

impl Agent {
    /// Nothing has arrived.
    pub fn new(replica: ReplicaId, rules: Rules) -> Self {
        Self {
            replica,
            rules,
            pending: BTreeMap::new(),
            line: BTreeMap::new(),
            index: ClaimIndex::default(),
            log: VecDeque::new(),
            undoing: 0,
            newest: None,
            committed: None,
            counts: Counts::default(),
        }
    }

    /// A transaction arrives. Those of one origin arrive in the order of their stamps.
    pub fn arrived(&mut self, now: Time, stamp: Stamp, claims: Arc<Claims>, can: Can) -> Vec<Act> {
        self.count(now, stamp);
        let claims = match self.rules.classes {
            Classes::One => Arc::new(Claims::everything()),
            Classes::ByClaims => claims,
        };
        let is_logged = self.log.contains(&stamp);
        let can = if is_logged && can == Can::NeedsRefresh { Can::Apply } else { can };
        let mut acts = self.undo_younger(stamp, &claims);
        let behind = self.last_before(stamp, &claims);
        self.index.insert(stamp, &claims);
        self.line.insert(stamp, Entry { claims, can, run: Run::Waiting, is_ordered: is_logged, behind });
        if !is_logged {
            self.pending.entry(stamp.origin).or_default().push_back(stamp);
        }
        // Another one that arrives at the same time may be older, and would not be late.
        self.order(Time { us: now.us.saturating_sub(1) });
        self.go_on(&mut acts);
        acts
    }

    /// The refresh transaction of a transaction arrives. It arrives after the transaction itself.
    pub fn refreshed(&mut self, stamp: Stamp) -> Vec<Act> {
        let mut acts = Vec::new();
        if let Some(entry) = self.line.get_mut(&stamp).filter(|entry| entry.can == Can::NeedsRefresh) {
            entry.can = Can::Apply;
            if entry.run == Run::Standby {
                entry.run = Run::Waiting;
            }
            self.go_on(&mut acts);
        }
        acts
    }

    /// An execution has nothing left but its commit.
    pub fn performed(&mut self, stamp: Stamp) -> Vec<Act> {
        let mut acts = Vec::new();
        if let Some(entry) = self.line.get_mut(&stamp).filter(|entry| entry.run == Run::Running) {
            entry.run = Run::Done;
            self.go_on(&mut acts);
        }
        acts
    }

    /// An execution is rolled back, as [`Act::Undo`] asked.
    pub fn undone(&mut self, stamp: Stamp) -> Vec<Act> {
        let mut acts = Vec::new();
        if let Some(entry) = self.line.get_mut(&stamp).filter(|entry| entry.run == Run::Undoing) {
            entry.run = Run::Waiting;
            self.undoing -= 1;
            self.go_on(&mut acts);
        }
        acts
    }

    /// When the caller has to call [`Self::alarm`], by this replica's clock.
    pub fn next_alarm(&self) -> Option<Time> {
        self.first_pending().map(|stamp| stamp.delivery(self.rules.wait_us))
    }

    /// The time of an alarm has come; it may also be too early or not needed any more.
    pub fn alarm(&mut self, now: Time) -> Vec<Act> {
        let mut acts = Vec::new();
        self.order(now);
        self.go_on(&mut acts);
        acts
    }

    /// The transaction of this origin that may be appended to the log as far as this replica is concerned: it is done and ordered,
    /// nothing older is uncommitted here, and this replica has committed all records that it has to.
    pub fn ready(&self) -> Option<Stamp> {
        let (stamp, entry) = self.line.first_key_value()?;
        let is_ready = entry.run == Run::Done && entry.is_ordered && stamp.origin == self.replica;
        (is_ready && self.log.is_empty()).then_some(*stamp)
    }

    /// A transaction for this replica is in the log; the calls come in the order of the log. The record is its refresh transaction,
    /// too.
    pub fn logged(&mut self, stamp: Stamp) -> Vec<Act> {
        self.log.push_back(stamp);
        self.set_ordered(stamp);
        let mut acts = self.refreshed(stamp);
        self.go_on(&mut acts);
        acts
    }

    /// A transaction is given up everywhere, and was not appended. The caller rolls back what it has of it before it acts on the answer.
    pub fn ended(&mut self, stamp: Stamp) -> Vec<Act> {
        let mut acts = Vec::new();
        self.set_ordered(stamp);
        self.forget(stamp);
        self.go_on(&mut acts);
        acts
    }

    /// Whether a transaction is done and ordered here. For an origin whose agent gets every record as soon as it is in the log, that
    /// is enough to append the oldest open transaction: what conflicts with it, is older and is in the log was committed here
    /// before it began.
    pub fn is_done(&self, stamp: Stamp) -> bool {
        self.line.get(&stamp).is_some_and(|entry| entry.run == Run::Done && entry.is_ordered)
    }

    /// Whether a transaction has arrived, and is neither committed nor ended here.
    pub fn has(&self, stamp: Stamp) -> bool {
        self.line.contains_key(&stamp)
    }

    /// An older transaction that conflicts with this one.
    pub fn behind(&self, stamp: Stamp) -> Option<Stamp> {
        self.line.get(&stamp)?.behind
    }

    /// The record of a transaction is committed here, by its own execution or in its place. Under [`Commit::ByTheCaller`].
    pub fn committed(&mut self, stamp: Stamp) -> Vec<Act> {
        self.committed = self.committed.max(Some(stamp));
        self.ended(stamp)
    }

    /// The transaction is in the log. It commits in its turn, whether or not its delivery time has come. A replica that does not
    /// perform it yet waits for the record. Under [`Commit::ByTheCaller`].
    pub fn appended(&mut self, stamp: Stamp) {
        self.set_ordered(stamp);
        let entry = self.line.get_mut(&stamp).filter(|entry| !matches!(entry.run, Run::Running | Run::Done));
        if let Some(entry) = entry {
            entry.can = Can::NeedsRefresh;
        }
    }

    /// The replica does not perform the transaction any more, and waits for its record. The caller rolls back what it has of it before
    /// it acts on the answer.
    pub fn gives_up(&mut self, stamp: Stamp) -> Vec<Act> {
        let mut acts = Vec::new();
        if let Some(entry) = self.line.get_mut(&stamp) {
            entry.can = Can::NeedsRefresh;
            match std::mem::replace(&mut entry.run, Run::Standby) {
                Run::Waiting => entry.run = Run::Waiting,
                Run::Undoing => self.undoing -= 1,
                Run::Standby | Run::Running | Run::Done => {}
            }
            self.go_on(&mut acts);
        }
        acts
    }

    /// The caller has to undo an execution for a reason of its own. Returns whether there is one.
    pub fn evict(&mut self, stamp: Stamp) -> bool {
        let entry = self.line.get_mut(&stamp);
        let Some(entry) = entry.filter(|entry| matches!(entry.run, Run::Running | Run::Done)) else {
            return false;
        };
        entry.run = Run::Undoing;
        self.undoing += 1;
        self.counts.undone += 1;
        true
    }

    /// What this agent has seen.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The number of transactions that are neither committed nor ended here.
    pub fn len(&self) -> usize {
        self.line.len()
    }

    /// Whether all transactions are committed or ended here.
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    fn count(&mut self, now: Time, stamp: Stamp) {
        let Counts { arrived, unordered, late, overtaken, .. } = &mut self.counts;
        *arrived += 1;
        *unordered += u64::from(self.newest > Some(stamp));
        *late += u64::from(stamp.delivery(self.rules.wait_us) < now);
        *overtaken += u64::from(self.committed > Some(stamp));
        self.newest = self.newest.max(Some(stamp));
    }

    /// Figure 11, step 2, for all that the new transaction concerns.
    fn undo_younger(&mut self, stamp: Stamp, claims: &Claims) -> Vec<Act> {
        let mut acts = Vec::new();
        for (younger, entry) in self.line.range_mut((Bound::Excluded(stamp), Bound::Unbounded)) {
            let conflicts = entry.claims.overlaps(claims);
            if conflicts && self.rules.guards.older_are_waited_for {
                entry.behind = entry.behind.or(Some(stamp));
            }
            if !conflicts && self.rules.reach == Reach::Conflicting {
                continue;
            }
            if !self.rules.guards.younger_are_undone {
                continue;
            }
            match entry.run {
                Run::Running | Run::Done => {
                    entry.run = Run::Undoing;
                    self.undoing += 1;
                    self.counts.undone += 1;
                    acts.push(Act::Undo(*younger));
                }
                Run::Standby => entry.run = Run::Waiting,
                Run::Waiting | Run::Undoing => {}
            }
        }
        acts
    }

    /// Figure 10, step 1: "message with min timestamp among top messages of the pending queues".
    fn first_pending(&self) -> Option<Stamp> {
        self.pending.values().filter_map(|queue| queue.front()).min().copied()
    }

    /// Figure 10, step 2.
    fn order(&mut self, now: Time) {
        while let Some(first) = self.first_pending().filter(|stamp| stamp.delivery(self.rules.wait_us) <= now)
        {
            self.set_ordered(first);
        }
    }

    fn set_ordered(&mut self, stamp: Stamp) {
        if let Some(entry) = self.line.get_mut(&stamp) {
            entry.is_ordered = true;
        }
        if let Some(queue) = self.pending.get_mut(&stamp.origin) {
            queue.retain(|other| *other != stamp);
            if queue.is_empty() {
                self.pending.remove(&stamp.origin);
            }
        }
    }

    /// Starts and commits all that can.
    fn go_on(&mut self, acts: &mut Vec<Act>) {
        loop {
            for stamp in self.turns() {
                let Some(entry) = self.line.get_mut(&stamp) else { continue };
                entry.run = if entry.can == Can::NeedsRefresh { Run::Standby } else { Run::Running };
                match entry.can {
                    Can::Perform | Can::PerformInOrder => acts.push(Act::Perform(stamp)),
                    Can::Apply => acts.push(Act::Apply(stamp)),
                    Can::NeedsRefresh => {}
                }
            }
            let Some(stamp) = self.next_commit() else { return };
            if self.rules.commit == Commit::ByTheLog {
                self.log.pop_front();
            }
            self.forget(stamp);
            self.committed = self.committed.max(Some(stamp));
            acts.push(Act::Commit(stamp));
        }
    }

    /// Section 5.2 (i): the transactions that may start now.
    fn turns(&self) -> Vec<Stamp> {
        let mut turns = Vec::new();
        for (stamp, entry) in self.line.iter().filter(|(_, entry)| entry.run == Run::Waiting) {
            let starts_early = self.rules.start == Start::OnArrival && entry.can != Can::PerformInOrder;
            let is_due = entry.is_ordered || starts_early;
            if is_due && entry.behind.is_none() && !self.clashes(*stamp, entry) {
                turns.push(*stamp);
            } else if self.rules.reach == Reach::Younger {
                break;
            }
        }
        turns
    }

    /// Whether something younger that conflicts is not rolled back yet.
    fn clashes(&self, stamp: Stamp, entry: &Entry) -> bool {
        let younger = || self.line.range((Bound::Excluded(stamp), Bound::Unbounded));
        self.undoing > 0
            && younger().any(|(_, other)| other.run == Run::Undoing && other.claims.overlaps(&entry.claims))
    }

    fn next_commit(&self) -> Option<Stamp> {
        match self.rules.commit {
            // 5.2 (ii).
            Commit::ByItself => {
                let (stamp, entry) = self.line.first_key_value()?;
                (entry.run == Run::Done && entry.is_ordered).then_some(*stamp)
            }
            Commit::ByTheLog => {
                let stamp = self.log.front()?;
                (self.line.get(stamp)?.run == Run::Done).then_some(*stamp)
            }
            Commit::ByTheCaller => None,
        }
    }

    /// The last older transaction in the line with which these claims conflict.
    fn last_before(&self, stamp: Stamp, claims: &Claims) -> Option<Stamp> {
        let behind = || self.index.last_before(stamp, claims);
        if self.rules.guards.older_are_waited_for { behind() } else { None }
    }

    /// Takes a transaction out of the line. What stood behind it looks for another one that it stands behind.
    fn forget(&mut self, stamp: Stamp) {
        let Some(gone) = self.line.remove(&stamp) else { return };
        self.undoing -= usize::from(gone.run == Run::Undoing);
        self.index.remove(stamp, &gone.claims);
        let Self { line, index, .. } = self;
        for (younger, entry) in line.range_mut(stamp..) {
            if entry.behind == Some(stamp) {
                entry.behind = index.last_before(*younger, &entry.claims);
            }
        }
    }
}
