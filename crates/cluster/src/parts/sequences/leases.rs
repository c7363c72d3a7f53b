//! Sequence leases: ranges of values lent to replicas, so that transactions that draw can have their home there. `CACHE` in
//! PostgreSQL means the same for sessions.
//!
//! The sequence counts at the anchor. A range for another replica is drawn there first, by `nextval` like any other value. So
//! no second authority hands out values, and a setting, a bound or a crash of the anchor mean what they mean anyway. A range
//! may be lent when a durable mark covers its last value: until then the anchor's server could lose its draws and repeat them.
//! At the borrower the sequence is set to the first value and bounded by the last, so the server never gives out more than was
//! lent. A transaction that meets the end is run again at the anchor. Setting a sequence voids its leases: no statement that
//! begins later draws from them.
//!
//! A transaction of the borrower that has drawn before may notice late that a bound was lowered. So a range that does not lie
//! beyond all that the replica was lent in this life of its server waits until such transactions are over.
//!
//! Invariant: no value is in two ranges that were lent, and no value of a range is drawn again elsewhere, unless a client sets the
//! sequence back. Values that are lent and not used are a gap.
//!
//! Non-goals: sequences that cycle or are small; counting exactly what is left (the server knows).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::State;
use crate::ids::{ReplicaId, SequenceId};

/// The values of a first lease. Each time a lease is used up, the next is twice as large; after one that became void, half.
pub const LEASE_VALUES_FIRST: u32 = 256;
/// Most values of a lease.
pub const LEASE_VALUES_MAX: u32 = 8_192;
/// Most values of a lease if a single statement needs more.
pub const LEASE_VALUES_LARGE: u32 = 65_536;
/// Fewer values than this are not worth a lease.
pub const LEASE_VALUES_MIN: u32 = 16;
/// At most one part in so many of the values that a sequence has left is lent at a time.
const RANGE_PARTS: i128 = 64;
/// The next range is fetched when one part in so many of the present one is left.
const LOW_PART: i64 = 4;

/// A lease that a replica is to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Want {
    /// The sequence.
    pub id: SequenceId,
    /// The replica.
    pub replica: ReplicaId,
    /// Most values of the range.
    pub values: u32,
    ticket: u64,
}

/// Values that the anchor has drawn in one go, with none drawn elsewhere between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The first of them.
    pub first: i64,
    /// The last of them; the smaller one if the sequence descends.
    pub last: i64,
    /// The number of values.
    pub count: u32,
}

/// A range that is to be put into force at its replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loan {
    /// The lease that it is for.
    pub want: Want,
    /// The range.
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
    /// The number of the range, among all that were lent, that was in force.
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
    /// The last range was too small for a statement.
    is_short: bool,
    /// The number of the range that is in force, or was last.
    range: u64,
    /// The size of the last range, and about how much of it is left.
    values: u32,
    left: i64,
    /// The furthest value that was lent, negated if the sequence descends.
    reach: Option<i128>,
    /// Each transaction that draws has a copy.
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

/// All leases.
#[derive(Debug, Default)]
pub struct Leases {
    all: BTreeMap<(SequenceId, ReplicaId), Lease>,
    /// Replicas that get no more leases in this life of their servers.
    barred: BTreeSet<ReplicaId>,
    /// Replicas that get no leases while a schema change is applied there.
    closed: BTreeSet<ReplicaId>,
    last_ticket: u64,
}

impl Leases {
    /// Whether a statement that needs about this many values of a sequence may run at a replica. If not, or if little is left, a
    /// new range is asked for.
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

    /// The anchor has drawn a range for it, and has reported this state of the sequence after that.
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

    /// The ranges that wait for a mark, with the number of their values.
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

    /// All leases of a replica are about to be revoked, for a schema change.
    pub fn close(&mut self, replica: ReplicaId) {
        self.closed.insert(replica);
        self.all.iter_mut().filter(|((_, of), _)| *of == replica).for_each(|(_, lease)| lease.void());
    }

    /// All leases of a replica were revoked.
    pub fn open(&mut self, replica: ReplicaId) {
        self.closed.remove(&replica);
    }

    /// The fate of a range at its replica is unknown: the replica gets no more until its server restarts.
    pub fn bar(&mut self, replica: ReplicaId) {
        self.barred.insert(replica);
        self.all.iter_mut().filter(|((_, of), _)| *of == replica).for_each(|(_, lease)| lease.void());
    }

    /// Voids the leases of a sequence: statements that begin now must not draw from them.
    pub fn void(&mut self, id: SequenceId) {
        self.all.iter_mut().filter(|((of, _), _)| *of == id).for_each(|(_, lease)| lease.void());
    }

    /// Voids the leases of all sequences.
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

/// The number of values that may be lent of a sequence in this state, if `wanted` are wanted; none if it has to stay at the anchor.
pub fn lendable(state: &State, wanted: u32) -> Option<u32> {
    let bound = i128::from(if state.increment > 0 { state.max } else { state.min });
    let left = (bound - i128::from(state.value)) / i128::from(state.increment);
    let values = u32::try_from((left / RANGE_PARTS).clamp(0, i128::from(wanted))).unwrap_or(wanted);
    (!state.cycles && values >= LEASE_VALUES_MIN).then_some(values)
}
