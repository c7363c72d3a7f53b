//! Marks in the log: bounds on how far sequences have come, and the rule for when a transaction has to add one.
//!
//! A sequence belongs to no transaction, and a server that crashes may lose its last moves of sequences. So before a transaction
//! that drew a value is acknowledged, a *mark* at or beyond that value must be durable in the log: after a crash the sequence
//! goes on behind its mark. A mark is set well ahead of the value, as in PostgreSQL's own log, so most transactions find one
//! that covers them. Each replica that draws has marks of its own.
//!
//! `setval`, RESTART and the end of a cycle set a sequence back. Then a new *generation* begins, in which no mark of the
//! former ones counts. The session that notices first announces it here and reads the sequence once more. A transaction that relied on a
//! mark of the former generation has drawn before that, so the second reading covers its values. A session that read the
//! sequence before the announcement has to read it again, too. So all marks of a generation lie at or beyond everything that was
//! acknowledged before it or in it, and the order in which they reach the log does not matter.
//!
//! Invariant: when [`Sequences::judge`] finds that nothing needs to be added, what was drawn is covered by a durable
//! mark of the present generation, or by one that stands in the log before the transaction's own record.
//!
//! Not here: reading and moving sequences.

pub mod leases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{ReplicaId, SequenceId, Version};
use crate::record::Sequence;
use leases::{Leases, Loan};

/// The number of values that may be drawn before the next mark is due.
pub const AHEAD_VALUES: u32 = 1_000;
/// Of a cycle at most this part is marked ahead, since a crash makes the holder skip it.
const CYCLE_PARTS: i128 = 32;

/// The state of a sequence, as a server reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// The sequence.
    pub id: SequenceId,
    /// The last value, those that a session has in its cache included.
    pub value: i64,
    /// Whether that value was drawn, as in `setval`.
    pub called: bool,
    /// From one value to the next; never zero.
    pub increment: i64,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// It begins anew after the last value.
    pub cycles: bool,
    /// Its first value.
    pub start: i64,
}

impl State {
    fn mark(&self, holder: ReplicaId, generation: u64, ahead: u32) -> Sequence {
        let (value, increment) = (i128::from(self.value), i128::from(self.increment));
        let bound = i128::from(if increment > 0 { self.max } else { self.min });
        let mut steps = i128::from(ahead).min((bound - value) / increment).max(0);
        if self.cycles {
            let range = i128::from(self.max) - i128::from(self.min);
            steps = steps.min(range / increment.abs() / CYCLE_PARTS);
        }
        // Between a value of the sequence and its bound there are only values of its type.
        let value = i64::try_from(value + steps * increment).unwrap_or(self.value);
        let (id, descends) = (self.id, increment < 0);
        Sequence { id, holder, generation, value, called: self.called || steps > 0, descends }
    }

    fn is_new(&self) -> bool {
        !self.called && self.value == self.start
    }
}

/// A point in time before sequences were read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Reading {
    /// The number of generations that had begun.
    begun: u64,
    /// The number of readings that had been judged.
    judged: u64,
}

/// The duty of a transaction before it may be acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// Its record needs these marks; mostly none.
    Add(Vec<Sequence>),
    /// Read the sequences again: one was set back meanwhile.
    ReadAgain,
}

/// A transaction that may have drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question<'a> {
    /// The replica where it ran.
    pub holder: ReplicaId,
    /// Taken before the sequences were read.
    pub reading: Reading,
    /// The states that were read.
    pub states: &'a [State],
    /// A statement of it says that it sets them: then not a value more than needed is marked.
    pub is_exact: bool,
    /// It leaves a record in any case.
    pub has_record: bool,
    /// The last durable version.
    pub durable: Version,
}

/// What a session tells of the sequences that its transaction may have drawn from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Draw {
    /// As in [`Question::holder`].
    pub holder: ReplicaId,
    /// As in [`Question::reading`].
    pub reading: Reading,
    /// As in [`Question::states`].
    pub states: Vec<State>,
    /// A statement of it says that it sets them.
    pub is_set: bool,
    /// It may have set any of them, so their leases are void.
    pub voids_leases: bool,
    /// As in [`Question::has_record`].
    pub has_record: bool,
}

#[derive(Debug, Default)]
struct Known {
    generation: u64,
    /// The number of its generation among all that have begun.
    begun: u64,
    /// It began by a setting, which no mark shows yet.
    is_set: bool,
    /// By holder, the furthest that was read in this generation, with the number of the judgement.
    seen: BTreeMap<ReplicaId, (u64, Sequence)>,
    /// By holder, with the version of the record that has it.
    durable: BTreeMap<ReplicaId, (Version, Sequence)>,
    /// In the log, or on the way there.
    appended: Vec<(Version, Sequence)>,
}

impl Known {
    fn promote(&mut self, upto: Version) {
        let (durable, appended) =
            std::mem::take(&mut self.appended).into_iter().partition(|(v, _)| *v <= upto);
        self.appended = appended;
        for (version, mark) in durable {
            self.keep(version, mark);
        }
    }

    fn keep(&mut self, version: Version, mark: Sequence) {
        let entry = self.durable.entry(mark.holder).or_insert((version, mark));
        if mark.exceeds(&entry.1) {
            *entry = (version, mark);
        }
    }

    fn is_marked(&self) -> bool {
        !self.seen.is_empty() || !self.durable.is_empty() || !self.appended.is_empty()
    }

    fn covers(&self, drawn: &Sequence, has_record: bool) -> bool {
        let good = |mark: &Sequence| mark.holder == drawn.holder && !drawn.exceeds(mark);
        self.durable.values().any(|(_, mark)| good(mark))
            || (has_record && self.appended.iter().any(|(_, mark)| good(mark)))
    }
}

/// The marks of all sequences, at the leader.
#[derive(Debug, Default)]
pub struct Sequences {
    known: BTreeMap<SequenceId, Known>,
    now: Reading,
    /// The leases of replicas that are not the anchor.
    pub leases: Leases,
}

impl Sequences {
    /// To be taken before sequences are read.
    pub fn reading(&self) -> Reading {
        self.now
    }

    /// A mark in the log, or of a replica's own memory of the log (version zero then).
    pub fn note(&mut self, version: Version, mark: Sequence) {
        let known = self.known.entry(mark.id).or_default();
        known.generation = known.generation.max(mark.generation);
        known.appended.push((version, mark));
    }

    /// A transaction says that it has set sequences: marks that are there already do not count any more. Whether there
    /// are any; if so, the sequences have to be read again.
    pub fn set(&mut self, states: &[State]) -> bool {
        let is_marked = |state: &&State| self.known.get(&state.id).is_some_and(Known::is_marked);
        let marked: Vec<SequenceId> = states.iter().filter(is_marked).map(|state| state.id).collect();
        for id in &marked {
            self.begin(*id);
        }
        !marked.is_empty()
    }

    fn begin(&mut self, id: SequenceId) {
        self.leases.void(id);
        self.now.begun += 1;
        let known = self.known.entry(id).or_default();
        known.generation += 1;
        known.begun = self.now.begun;
        known.is_set = true;
        known.seen.clear();
    }

    /// The duty of a transaction, by what its session tells. `durable`: the last durable version.
    pub fn answer(&mut self, draw: &Draw, durable: Version) -> Verdict {
        let Draw { holder, reading, ref states, is_set: is_exact, voids_leases, has_record } = *draw;
        if voids_leases {
            for state in states {
                self.leases.void(state.id);
            }
        }
        if is_exact && self.set(states) {
            return Verdict::ReadAgain;
        }
        self.judge(Question { holder, reading, states, is_exact, has_record, durable })
    }

    /// The marks that a transaction which may have drawn has to add to its record.
    pub fn judge(&mut self, question: Question<'_>) -> Verdict {
        let Question { holder, reading, .. } = question;
        self.now.judged += 1;
        let mut is_late = false;
        for state in question.states {
            let known = self.known.entry(state.id).or_default();
            is_late |= reading.begun < known.begun;
            let drawn = state.mark(holder, known.generation, 0);
            // A sequence that was read later is not behind unless it was set.
            let is_behind =
                |(judged, seen): &(u64, Sequence)| reading.judged >= *judged && seen.exceeds(&drawn);
            if known.seen.get(&holder).is_some_and(is_behind) {
                self.begin(state.id);
                is_late = true;
            }
        }
        if is_late {
            return Verdict::ReadAgain;
        }
        Verdict::Add(question.states.iter().filter_map(|state| self.mark(state, &question)).collect())
    }

    /// The mark that has to be added for one sequence.
    fn mark(&mut self, state: &State, question: &Question<'_>) -> Option<Sequence> {
        let judged = self.now.judged;
        let known = self.known.entry(state.id).or_default();
        known.promote(question.durable);
        let drawn = state.mark(question.holder, known.generation, 0);
        let seen = known.seen.entry(question.holder).or_insert((judged, drawn));
        if drawn.exceeds(&seen.1) {
            *seen = (judged, drawn);
        }
        let is_untouched = known.generation == 0 && state.is_new();
        if is_untouched || known.covers(&drawn, question.has_record) {
            return None;
        }
        let is_exact = std::mem::take(&mut known.is_set) || question.is_exact;
        Some(state.mark(question.holder, known.generation, if is_exact { 0 } else { AHEAD_VALUES }))
    }

    /// The marks that drawn ranges wait for before they can be lent, for the next record of the anchor.
    pub fn wanted_marks(&mut self, anchor: ReplicaId, durable: Version) -> Vec<Sequence> {
        let mut furthest: BTreeMap<SequenceId, Sequence> = BTreeMap::new();
        for (values, state) in self.leases.drawn() {
            let known = self.known.entry(state.id).or_default();
            known.promote(durable);
            let drawn = state.mark(anchor, known.generation, 0);
            if !known.covers(&drawn, true) {
                // Room for some more of the size.
                let ahead = AHEAD_VALUES.max(values.saturating_mul(4));
                let mark = state.mark(anchor, known.generation, ahead);
                let entry = furthest.entry(state.id).or_insert(mark);
                if mark.exceeds(entry) {
                    *entry = mark;
                }
            }
        }
        furthest.into_values().collect()
    }

    /// The next range that can be put into force at its replica.
    pub fn next_loan(&mut self, anchor: ReplicaId, durable: Version) -> Option<Loan> {
        let Self { known, leases, .. } = self;
        for known in known.values_mut() {
            known.promote(durable);
        }
        leases.next_loan(|state| {
            known
                .get(&state.id)
                .is_some_and(|known| known.covers(&state.mark(anchor, known.generation, 0), false))
        })
    }

    /// Whether something that was drawn to be lent waits for its mark.
    pub fn has_drawn(&self) -> bool {
        self.leases.drawn().next().is_some()
    }

    /// All marks, those on the way to the log included.
    pub fn all_marks(&self) -> Vec<Sequence> {
        let of = |known: &Known| -> Vec<Sequence> {
            known.durable.values().chain(&known.appended).map(|(_, mark)| *mark).collect()
        };
        self.known.values().flat_map(of).collect()
    }

    /// The durable marks of records after one version and up to another.
    pub fn marks(&mut self, after: Option<Version>, upto: Version, durable: Version) -> Vec<Sequence> {
        let mut found = Vec::new();
        for known in self.known.values_mut() {
            known.promote(durable);
            let fits = |version: Version| after.is_none_or(|after| version > after) && version <= upto;
            found.extend(known.durable.values().filter(|(version, _)| fits(*version)).map(|(_, mark)| *mark));
        }
        found
    }
}
