//! The use of sequences by the open transaction, its leases, and the place where its rows with drawn values are
//! written.
//!
//! At its end, a transaction that may have drawn values asks its home for the positions of the sequences
//! ([`crate::propagate::sequence_marks`]). Example: after `INSERT INTO t DEFAULT VALUES`, where `t.id` is serial,
//! [`Extent::DrawsFrom`] holds one sequence.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{DatabaseId, ReplicaId, SequenceId, TableId};
use cluster::parts::sequences::leases::Use;
use cluster::parts::sequences::{Reading, State};
use cluster::record::Sequence;
use sql::Catalogue;

use crate::capture::sequences::{STATES_CALL, states};
use crate::classify::effects::SetsSequences;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::{Fault, broken};

/// The sequences that an update transaction uses.
#[derive(Debug, Default)]
pub(crate) struct SequenceUse {
    extent: Extent,
    answer: Answer,
    /// The marks for the record, once they are known.
    marks: Option<Vec<Sequence>>,
    /// The transaction began at a replica with leases, not at the anchor.
    pub(crate) is_leased: bool,
    /// The leases that it draws from.
    pub(crate) leases: HeldLeases,
}

/// The possible effects of a transaction on sequences. Each step includes the ones before it. Only
/// [`SequenceUse::take_set`] leads back.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    /// Statements may have drawn from these sequences.
    DrawsFrom(BTreeSet<SequenceId>),
    /// Statements may have drawn from any sequence, but set none.
    DrawsFromAny,
    /// Statements may have set any sequence, without saying so.
    MaySet,
    /// Statements say that they set sequences.
    Sets,
}

impl Default for Extent {
    fn default() -> Self {
        Self::DrawsFrom(BTreeSet::new())
    }
}

/// The home's answer to the question for the positions of the sequences.
#[derive(Debug, Default)]
enum Answer {
    #[default]
    None,
    /// The question was sent with the identity.
    Asked(Reading),
    Known(Reading, Vec<State>),
}

impl SequenceUse {
    /// Notes which sequences a statement may draw from or set, before it runs.
    pub(crate) fn note(&mut self, analysis: &StatementAnalysis, catalogue: &Catalogue) {
        if analysis.sequences.sets != SetsSequences::No {
            self.set();
        }
        if analysis.may_set_unseen() {
            self.may_set_any();
        } else if analysis.may_draw_unseen() {
            self.raise(Extent::DrawsFromAny);
        }
        for table in analysis.routings.iter().flat_map(|routing| routing.writes.iter().flatten()) {
            self.written(*table, catalogue);
        }
    }

    /// Code ran that may draw from any sequence and set it.
    pub(crate) fn may_set_any(&mut self) {
        self.raise(Extent::MaySet);
    }

    /// A statement says that it sets sequences, or is a schema change, which may create, change or restart any
    /// sequence.
    pub(crate) fn set(&mut self) {
        self.raise(Extent::Sets);
    }

    fn raise(&mut self, extent: Extent) {
        if matches!(self.extent, Extent::DrawsFrom(_)) {
            self.forget_answer();
        }
        if extent > self.extent {
            self.extent = extent;
        }
    }

    /// Later draws make the home's answer outdated.
    fn forget_answer(&mut self) {
        if let Answer::Known(..) = self.answer {
            self.answer = Answer::None;
        }
    }

    pub(crate) fn written(&mut self, table: TableId, catalogue: &Catalogue) {
        match catalogue.draws(table) {
            None => {}
            Some(sql::Draws::FromSome) => self.may_set_any(),
            Some(sql::Draws::From(ids)) => self.draw_from(ids.iter().copied()),
        }
    }

    fn draw_from(&mut self, ids: impl IntoIterator<Item = SequenceId>) {
        let Extent::DrawsFrom(known) = &mut self.extent else { return };
        let before = known.len();
        known.extend(ids);
        if known.len() > before {
            self.forget_answer();
        }
    }

    /// Whether the home has to report the sequences.
    pub(crate) fn is_any(&self) -> bool {
        !matches!(&self.extent, Extent::DrawsFrom(ids) if ids.is_empty())
    }

    /// The sequences that the transaction may have drawn from; `None` for any.
    pub(crate) fn known(&self) -> Option<&BTreeSet<SequenceId>> {
        match &self.extent {
            Extent::DrawsFrom(ids) => Some(ids),
            Extent::DrawsFromAny | Extent::MaySet | Extent::Sets => None,
        }
    }

    /// Whether any sequence may have been set.
    pub(crate) fn may_have_set(&self) -> bool {
        self.extent >= Extent::MaySet
    }

    /// Whether a statement has said that it sets sequences. Returns true once.
    pub(crate) fn take_set(&mut self) -> bool {
        let sets = self.extent == Extent::Sets;
        if sets {
            self.extent = Extent::MaySet;
        }
        sets
    }

    /// Returns whether the question goes with the identity. `may` allows that, and `reading` is the time of the
    /// question.
    pub(crate) fn ask(&mut self, may: bool, reading: impl FnOnce() -> Reading) -> bool {
        if let Answer::Known(..) = self.answer {
            return false;
        }
        let asks = may && self.is_any();
        self.answer = if asks { Answer::Asked(reading()) } else { Answer::None };
        asks
    }

    /// Takes the answer to the question that went with the identity.
    pub(crate) fn answered(&mut self, answer: Option<&[u8]>, database: DatabaseId) -> Result<(), Fault> {
        match (&self.answer, answer) {
            (Answer::Asked(reading), Some(answer)) => self.tell(*reading, answer, database),
            (Answer::Asked(_), None) => Err(broken("the home was asked for its sequences and said nothing")),
            (Answer::None | Answer::Known(..), _) => Ok(()),
        }
    }

    /// Takes the home's answer to the question of this reading.
    pub(crate) fn tell(
        &mut self,
        reading: Reading,
        answer: &[u8],
        database: DatabaseId,
    ) -> Result<(), Fault> {
        let states = std::str::from_utf8(answer).ok().and_then(|answer| states(answer, database));
        self.answer =
            Answer::Known(reading, states.ok_or_else(|| broken("the home does not know its sequences"))?);
        Ok(())
    }

    /// Takes the home's answer, which is used once.
    pub(crate) fn take_answer(&mut self) -> Option<(Reading, Vec<State>)> {
        match std::mem::take(&mut self.answer) {
            Answer::Known(reading, states) => Some((reading, states)),
            other => {
                self.answer = other;
                None
            }
        }
    }

    /// The record needs exactly these marks.
    pub(crate) fn mark(&mut self, marks: Vec<Sequence>) {
        self.marks = Some(marks);
    }

    pub(crate) fn is_marked(&self) -> bool {
        self.marks.is_some()
    }

    /// Whether there are marks to be added to the record.
    pub(crate) fn has_marks(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| !marks.is_empty())
    }

    /// The marks that the record needs.
    pub(crate) fn take_marks(&mut self) -> Vec<Sequence> {
        self.marks.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The argument of [`STATES_CALL`] as a binary parameter; NULL asks about all sequences.
    pub(crate) fn parameter(&self) -> Option<Vec<u8>> {
        const INT4_OID: i32 = 23;
        let ids = self.known()?;
        let count = i32::try_from(ids.len()).ok()?;
        let mut array = Vec::with_capacity(20 + 8 * ids.len());
        // The header of the array: one dimension, no NULL, the element type, the length, and the lower bound 1.
        for number in [1, 0, INT4_OID, count, 1] {
            array.extend_from_slice(&number.to_be_bytes());
        }
        for id in ids {
            array.extend_from_slice(&4_i32.to_be_bytes());
            array.extend_from_slice(&id.number.to_be_bytes());
        }
        Some(array)
    }

    pub(crate) fn query(&self) -> String {
        let Some(ids) = self.known() else {
            return format!("SELECT {STATES_CALL}(NULL)");
        };
        let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
        format!("SELECT {STATES_CALL}('{{{}}}')", ids.join(","))
    }
}

/// Leases that a transaction draws from. They stay valid for the transaction as long as it holds them.
pub(crate) type HeldLeases = BTreeMap<SequenceId, Use>;

/// The replica where a session writes rows whose defaults draw from sequences.
#[derive(Debug, Default)]
pub(crate) struct LeaseUse {
    /// The last such replica.
    pub(crate) last_at: Option<ReplicaId>,
    /// The ranges that the present or the last transaction draws from.
    pub(crate) ranges: BTreeMap<SequenceId, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> Reading {
        cluster::parts::sequences::Sequences::default().reading()
    }

    fn told() -> SequenceUse {
        let mut used = SequenceUse::default();
        used.draw_from([DatabaseId::FIRST.sequence(1)]);
        used.tell(reading(), b"", DatabaseId::FIRST).unwrap();
        used
    }

    #[test]
    fn an_answer_holds_until_more_is_drawn_from() {
        let mut used = told();
        used.draw_from([DatabaseId::FIRST.sequence(1)]);
        assert!(used.take_answer().is_some(), "it was asked about");
        let mut used = told();
        used.draw_from([DatabaseId::FIRST.sequence(2)]);
        assert!(used.take_answer().is_none());
        let mut used = told();
        used.may_set_any();
        assert!(used.take_answer().is_none());
        used.tell(reading(), b"", DatabaseId::FIRST).unwrap();
        used.set();
        assert!(used.take_answer().is_some(), "the question was about all sequences");
    }

    #[test]
    fn the_extent_only_grows_until_what_was_set_is_taken() {
        let mut used = SequenceUse::default();
        assert!(!used.is_any() && used.known().is_some());
        used.raise(Extent::DrawsFromAny);
        assert!(used.is_any() && used.known().is_none() && !used.may_have_set());
        used.set();
        used.may_set_any();
        assert!(used.may_have_set() && used.take_set());
        assert!(used.may_have_set() && !used.take_set());
    }

    #[test]
    fn the_home_is_asked_once() {
        let mut used = SequenceUse::default();
        assert!(!used.ask(true, reading), "nothing was drawn");
        used.draw_from([DatabaseId::FIRST.sequence(1)]);
        assert!(!used.ask(false, reading) && used.ask(true, reading));
        used.answered(None, DatabaseId::FIRST).unwrap_err();
        used.answered(Some(b""), DatabaseId::FIRST).unwrap();
        assert!(!used.ask(true, reading), "the answer is there");
        assert_eq!((used.is_marked(), used.has_marks()), (false, false));
        used.mark(Vec::new());
        assert_eq!((used.is_marked(), used.has_marks()), (true, false));
    }
}
