//! What the open transaction has drawn from sequences, and where rows that draw are written.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::{ReplicaId, SequenceId, TableId};
use cluster::parts::sequences::leases::Use;
use cluster::parts::sequences::{Reading, State};
use cluster::record::Sequence;
use sql::Catalogue;

use crate::capture::sequences::{STATES_CALL, states};
use crate::classify::effects::SetsSequences;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::{Fault, broken};

/// What is known of an update transaction's draws.
#[derive(Debug, Default)]
pub(crate) struct SequenceUse {
    pub(crate) from: BTreeSet<SequenceId>,
    pub(crate) from_any: bool,
    /// What ran may have set any, and nobody would know.
    pub(crate) may_be_set: bool,
    pub(crate) are_set: bool,
    /// When the question was sent with the identity.
    pub(crate) asked: Option<Reading>,
    /// What came of that.
    pub(crate) told: Option<(Reading, Vec<State>)>,
    /// What the record needs, once that is known.
    pub(crate) marks: Vec<Sequence>,
    pub(crate) is_marked: bool,
}

impl SequenceUse {
    /// A statement is about to run: which sequences it may draw from or set.
    pub(crate) fn note(&mut self, analysis: &StatementAnalysis, catalogue: &Catalogue) {
        if analysis.sequences.sets != SetsSequences::No {
            self.are_set();
        }
        if analysis.may_set_unseen() {
            self.may_be_any();
        } else if analysis.may_draw_unseen() {
            self.draws_from_any();
        }
        for table in analysis.routings.iter().flat_map(|routing| routing.writes.iter().flatten()) {
            self.written(*table, catalogue);
        }
    }

    /// Something ran that may do anything with any sequence.
    pub(crate) fn may_be_any(&mut self) {
        self.may_be_set = true;
        self.draws_from_any();
    }

    /// Something ran that may draw from any sequence, but sets none.
    pub(crate) fn draws_from_any(&mut self) {
        if !std::mem::replace(&mut self.from_any, true) {
            self.told = None;
        }
    }

    /// A statement says that it sets sequences.
    pub(crate) fn are_set(&mut self) {
        self.are_set = true;
        self.may_be_any();
    }

    /// A schema change may make, change or restart any.
    pub(crate) fn schema_changed(&mut self) {
        self.are_set();
    }

    /// Rows were written to a table.
    pub(crate) fn written(&mut self, table: TableId, catalogue: &Catalogue) {
        match catalogue.draws(table) {
            None => {}
            Some(sql::Draws::FromSome) => self.may_be_any(),
            Some(sql::Draws::From(ids)) => {
                let before = self.from.len();
                self.from.extend(ids);
                if self.from.len() > before && !self.from_any {
                    self.told = None;
                }
            }
        }
    }

    /// Whether the home has to be asked.
    pub(crate) fn is_any(&self) -> bool {
        self.from_any || !self.from.is_empty()
    }

    /// Whether the question goes with the identity, if it is to; then, when it was asked.
    pub(crate) fn ask(&mut self, may: bool, reading: impl FnOnce() -> Reading) -> bool {
        self.asked = (may && self.is_any() && self.told.is_none()).then(reading);
        self.asked.is_some()
    }

    /// The answer to the question that went with the identity.
    pub(crate) fn answered(&mut self, answer: Option<&[u8]>) -> Result<(), Fault> {
        match (self.asked.take(), answer) {
            (Some(reading), Some(answer)) => self.tell(reading, answer),
            (None, _) => Ok(()),
            (Some(_), None) => Err(broken("the home was asked for its sequences and said nothing")),
        }
    }

    /// Whether there are marks to be added to the record.
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The marks that the record needs.
    pub(crate) fn take_marks(&mut self) -> Vec<Sequence> {
        std::mem::take(&mut self.marks)
    }

    /// The argument of [`STATES_CALL`] as a binary parameter; NULL asks about all.
    pub(crate) fn parameter(&self) -> Option<Vec<u8>> {
        const INT4_OID: i32 = 23;
        if self.from_any {
            return None;
        }
        let count = i32::try_from(self.from.len()).ok()?;
        let mut array = Vec::with_capacity(20 + 8 * self.from.len());
        // One dimension, no NULL, its length, counted from 1.
        for number in [1, 0, INT4_OID, count, 1] {
            array.extend_from_slice(&number.to_be_bytes());
        }
        for id in &self.from {
            array.extend_from_slice(&4_i32.to_be_bytes());
            array.extend_from_slice(&id.0.to_be_bytes());
        }
        Some(array)
    }

    pub(crate) fn query(&self) -> String {
        if self.from_any {
            return format!("SELECT {STATES_CALL}(NULL)");
        }
        let ids: Vec<String> = self.from.iter().map(ToString::to_string).collect();
        format!("SELECT {STATES_CALL}('{{{}}}')", ids.join(","))
    }

    /// The home has answered what was asked at this reading.
    pub(crate) fn tell(&mut self, reading: Reading, answer: &[u8]) -> Result<(), Fault> {
        let states = std::str::from_utf8(answer).ok().and_then(states);
        self.told = Some((reading, states.ok_or_else(|| broken("the home does not know its sequences"))?));
        Ok(())
    }
}

/// By which it is known that a transaction draws from what its home was lent.
pub(crate) type HeldLeases = BTreeMap<SequenceId, Use>;

/// Where a session's rows are written that draw from sequences by defaults.
#[derive(Debug, Default)]
pub(crate) struct LeaseUse {
    /// Where that was last.
    pub(crate) last_at: Option<ReplicaId>,
    /// The ranges that the present transaction, or the last one, draws from.
    pub(crate) ranges: BTreeMap<SequenceId, u64>,
}
