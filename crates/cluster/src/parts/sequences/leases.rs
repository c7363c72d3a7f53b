//! Ranges of sequences lent to replicas, so that they can be the homes of what draws: the meaning of `CACHE`.
//!
//! The anchor is where a sequence counts. What another replica is to give out is drawn there first, by `nextval` like
//! anybody's draw, so no second authority hands out values: a setting, a bound, a crash of the anchor mean what they
//! mean anyway. A range may be lent when a durable mark covers its last value, since until then the anchor's server could
//! lose its draws and repeat them. At the borrower the sequence is put at the first value and bounded by the last,
//! so the server itself never gives out more than was lent; a transaction that meets the end is run again at the anchor.
//! Whatever sets a sequence voids what is lent of it: no statement that begins later draws from that.
//!
//! A bound that is lowered may be noticed late by a transaction of the borrower's that has drawn before. So a range that
//! does not lie beyond all that the replica was lent in this life of its server waits for the end of these.
//!
//! Invariant: no value is in two ranges that were lent, and none in one is drawn again by anybody else, unless a
//! client sets the sequence back. What is lent and not used is lost: a gap.
//!
//! Non-goals: sequences that cycle or are small; counting exactly what is left (the server knows).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::State;
use crate::ids::{ReplicaId, SequenceId};

/// So many values are lent at first; each time they were used up it is twice as many, and half when they became void.
pub const LEASE_VALUES_FIRST: u32 = 256;
/// At most so many values are lent at a time.
pub const LEASE_VALUES_MAX: u32 = 8_192;
/// At most so many when a single statement needs more, which cannot run elsewhere.
pub const LEASE_VALUES_LARGE: u32 = 65_536;
/// Fewer are not worth lending.
pub const LEASE_VALUES_MIN: u32 = 16;
/// At most this part of what a sequence has left is lent at a time.
const RANGE_PARTS: i128 = 64;
/// The next range is fetched when this part of the present one is left.
const LOW_PART: i64 = 4;

/// What a replica is to be lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// Of this sequence.
    pub id: SequenceId,
    /// To this replica.
    pub replica: ReplicaId,
    /// At most so many values.
    pub values: u32,
    ticket: u64,
}

/// Values that the anchor has drawn in one go, nobody else any between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first of them.
    pub first: i64,
    /// The last of them; the smaller one if the sequence descends.
    pub last: i64,
    /// How many there are.
    pub count: u32,
}

/// A range that is to be put into force at its replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// Who wants it.
    pub want: Want,
    /// What it gets.
    pub range: Range,
}

/// Held by a transaction that draws from what its home was lent, until it is over.
#[derive(Clone, Debug)]
pub struct Use {
    #[expect(dead_code, reason = "it is counted")]
    counted: Arc<()>,
    range: u64,
}

impl Use {
    /// Which of all the ranges that were lent it found in force.
    pub fn range(&self) -> u64 {
        self.range
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Asked,
    Drawing,
    Drawn(Range, State),
    Lending,
}

#[derive(Clone, Debug, Default)]
struct Lease {
    stage: Stage,
    ticket: u64,
    /// The replica has a range, unless its server says that it is used up.
    is_good: bool,
    /// It cannot be lent.
    is_refused: bool,
    /// The last range was too small for somebody.
    is_short: bool,
    /// Which of all ranges it is that is in force, or was last.
    range: u64,
    /// The size of the last range, and about how much of it is left.
    values: u32,
    left: i64,
    /// The furthest value that was lent, negated if the sequence descends.
    reach: Option<i128>,
    /// Who draws has a copy.
    uses: Arc<()>,
}

impl Lease {
    fn void(&mut self) {
        let uses = Arc::clone(&self.uses);
        // Most of it may be lost, so the next one is smaller, in spite of being twice this.
        let values = if self.values == 0 { 0 } else { (self.values / 4).max(LEASE_VALUES_FIRST / 2) };
        *self = Self { values, reach: self.reach, range: self.range, uses, ..Self::default() };
    }

    fn drop_drawn(&mut self) {
        if matches!(self.stage, Stage::Drawing | Stage::Drawn(..)) {
            (self.stage, self.ticket) = (Stage::Idle, 0);
        }
    }
}

/// What is lent to whom.
#[derive(Debug, Default)]
pub struct Leases {
    all: BTreeMap<(SequenceId, ReplicaId), Lease>,
    /// Nothing more is lent to them in this life of their servers.
    barred: BTreeSet<ReplicaId>,
    /// Nothing is lent to them while a schema change is applied there.
    closed: BTreeSet<ReplicaId>,
    last_ticket: u64,
}

impl Leases {
    /// Whether a statement that may draw from a sequence may run at a replica, which needs about so many values. If not, or
    /// if little is left, more is asked for.
    pub fn ask(&mut self, id: SequenceId, replica: ReplicaId, values: u32) -> Option<Use> {
        if self.barred.contains(&replica) || self.closed.contains(&replica) {
            return None;
        }
        let lease = self.all.entry((id, replica)).or_default();
        lease.left -= i64::from(values);
        let is_low = !lease.is_good || lease.left < i64::from(lease.values) / LOW_PART;
        if is_low && lease.stage == Stage::Idle && !lease.is_refused {
            lease.stage = Stage::Asked;
        }
        lease.is_good.then(|| Use { counted: Arc::clone(&lease.uses), range: lease.range })
    }

    /// Whether any of these is known to be one that cannot be lent.
    pub fn is_any_refused(&self, ids: &BTreeSet<SequenceId>) -> bool {
        let leases = |id: &SequenceId| self.all.range((*id, ReplicaId(0))..=(*id, ReplicaId(u16::MAX)));
        ids.iter().flat_map(leases).any(|(_, lease)| lease.is_refused)
    }

    /// Whether nothing will be lent to a replica in this life of its server.
    pub fn is_barred(&self, replica: ReplicaId) -> bool {
        self.barred.contains(&replica)
    }

    /// Whether something was asked for that is not under way.
    pub fn is_asked(&self) -> bool {
        self.all.values().any(|lease| lease.stage == Stage::Asked)
    }

    /// A replica's server says that a range which it was lent is used up, unless it has another one since; `is_short` if the
    /// next one may have to be large.
    pub fn spent(&mut self, id: SequenceId, replica: ReplicaId, range: u64, is_short: bool) {
        if let Some(lease) = self.all.get_mut(&(id, replica)).filter(|lease| lease.range == range) {
            (lease.is_good, lease.left, lease.is_short) = (false, 0, is_short);
        }
        drop(self.ask(id, replica, 0));
    }

    /// The next thing to be drawn at the anchor.
    pub fn next_want(&mut self) -> Option<Want> {
        let ((id, replica), lease) = self.all.iter_mut().find(|(_, lease)| lease.stage == Stage::Asked)?;
        self.last_ticket += 1;
        let values = match lease.values {
            0 => LEASE_VALUES_FIRST,
            before if std::mem::take(&mut lease.is_short) => before.saturating_mul(4).min(LEASE_VALUES_LARGE),
            before => before.saturating_mul(2).min(LEASE_VALUES_MAX),
        };
        (lease.stage, lease.ticket) = (Stage::Drawing, self.last_ticket);
        Some(Want { id: *id, replica: *replica, values, ticket: self.last_ticket })
    }

    fn of(&mut self, want: Want) -> Option<&mut Lease> {
        self.all.get_mut(&(want.id, want.replica)).filter(|lease| lease.ticket == want.ticket)
    }

    /// Whether something may be drawn for it, if the anchor says this of the sequence.
    pub fn may_be_drawn(&mut self, want: Want, state: &State) -> bool {
        let Some(lease) = self.of(want) else { return false };
        let is_used = Arc::strong_count(&lease.uses) > 1;
        if lease.reach.is_some_and(|reach| place(state.value, state.increment) < reach) {
            if is_used {
                lease.stage = Stage::Idle;
                return false;
            }
            lease.reach = None;
        }
        true
    }

    /// What the anchor has drawn for it; `state` is what it then said of the sequence.
    pub fn drew(&mut self, want: Want, range: Range, state: State) {
        let Some(lease) = self.of(want).filter(|lease| lease.stage == Stage::Drawing) else { return };
        let last = State { value: range.last, called: true, ..state };
        let is_beyond = |reach: i128| place(range.first, state.increment) > reach;
        if lease.reach.is_none_or(is_beyond) {
            lease.stage = Stage::Drawn(range, last);
        } else {
            // It was set back just now.
            lease.stage = Stage::Idle;
        }
    }

    /// It was not drawn, or not put into force; if `is_for_good`, the sequence is none to be lent.
    pub fn refuse(&mut self, want: Want, is_for_good: bool) {
        if let Some(lease) = self.of(want) {
            (lease.stage, lease.is_refused) = (Stage::Idle, is_for_good);
        }
    }

    /// What waits for a mark, with how many values were drawn.
    pub(super) fn drawn(&self) -> impl Iterator<Item = (u32, State)> + '_ {
        self.all.values().filter_map(|lease| match lease.stage {
            Stage::Drawn(range, state) => Some((range.count, state)),
            _ => None,
        })
    }

    /// The next range to be put into force, of those that a durable mark covers.
    pub(super) fn next_loan(&mut self, covers: impl Fn(&State) -> bool) -> Option<Loan> {
        self.all.iter_mut().find_map(|((id, replica), lease)| match lease.stage {
            Stage::Drawn(range, state) if covers(&state) => {
                lease.stage = Stage::Lending;
                lease.reach = Some(place(range.last, state.increment));
                let want = Want { id: *id, replica: *replica, values: range.count, ticket: lease.ticket };
                Some(Loan { want, range })
            }
            _ => None,
        })
    }

    /// The range is in force at its replica; whether it still holds.
    pub fn lent(&mut self, loan: Loan) -> bool {
        let Some(lease) = self.of(loan.want).filter(|lease| lease.stage == Stage::Lending) else {
            return false;
        };
        (lease.stage, lease.is_good, lease.range) = (Stage::Idle, true, loan.want.ticket);
        (lease.values, lease.left) = (loan.range.count, i64::from(loan.range.count));
        true
    }

    /// Whether a range that is to be put into force is still wanted.
    pub fn is_wanted(&mut self, loan: Loan) -> bool {
        self.of(loan.want).is_some_and(|lease| lease.stage == Stage::Lending)
    }

    /// All that a replica was lent is about to be taken back, for a schema change.
    pub fn close(&mut self, replica: ReplicaId) {
        self.closed.insert(replica);
        self.all.iter_mut().filter(|((_, of), _)| *of == replica).for_each(|(_, lease)| lease.void());
    }

    /// It was.
    pub fn open(&mut self, replica: ReplicaId) {
        self.closed.remove(&replica);
    }

    /// Nobody knows what became of a range at its replica: that gets no more in this life of its server.
    pub fn bar(&mut self, replica: ReplicaId) {
        self.barred.insert(replica);
        self.all.iter_mut().filter(|((_, of), _)| *of == replica).for_each(|(_, lease)| lease.void());
    }

    /// Who begins now must not draw from what is lent of this sequence.
    pub fn void(&mut self, id: SequenceId) {
        self.all.iter_mut().filter(|((of, _), _)| *of == id).for_each(|(_, lease)| lease.void());
    }

    /// The same of all sequences.
    pub fn void_all(&mut self) {
        self.all.values_mut().for_each(Lease::void);
    }

    /// A replica's server is lost, or has come back, or is the anchor from now on: it has nothing lent. What was drawn and
    /// waits for its mark may have been lost with it, too.
    pub fn replica_changed(&mut self, replica: ReplicaId) {
        self.all.retain(|(_, of), _| *of != replica);
        self.barred.remove(&replica);
        self.closed.remove(&replica);
        self.all.values_mut().for_each(Lease::drop_drawn);
    }
}

fn place(value: i64, increment: i64) -> i128 {
    if increment < 0 { -i128::from(value) } else { i128::from(value) }
}

/// How many values may be lent of a sequence that stands so, if so many are wanted; none if it has to stay at the anchor.
pub fn lendable(state: &State, wanted: u32) -> Option<u32> {
    let bound = i128::from(if state.increment > 0 { state.max } else { state.min });
    let left = (bound - i128::from(state.value)) / i128::from(state.increment);
    let values = u32::try_from((left / RANGE_PARTS).clamp(0, i128::from(wanted))).unwrap_or(wanted);
    (!state.cycles && values >= LEASE_VALUES_MIN).then_some(values)
}
