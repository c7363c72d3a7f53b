//! What a transaction has drawn from sequences, and the marks that its record needs for that.
//!
//! A sequence's move is in no captured row, and a crash of the home can take it back. So a transaction that may have drawn
//! asks, at its end, how far the sequences are that it touched, and adds a mark to its record where the log has none that
//! covers that (`cluster::parts::sequences`); one without any other change leaves a record just for it. The question goes
//! with the insert of the identity where there is one. Which statements may draw is told by the tables that they write;
//! where that is not known, the home says which sequences it has touched.
//!
//! What was drawn by a transaction that did not commit may be drawn again after a crash, as on one PostgreSQL.

use std::collections::BTreeSet;

use cluster::ids::{SequenceId, TableId};
use cluster::parts::sequences::{Question, Reading, State, Verdict};
use cluster::record::Sequence;
use sql::{Catalogue, Draws};
use wire::sqlstate;

use crate::capture::sequences::{STATES_CALL, put_sql, states};
use crate::error::{Fault, Refusal};
use crate::execute::ddl::recorded_text;
use crate::session::{Session, Transaction};
use crate::transaction::broken;

/// So often the sequences are read again because others set them back at that moment.
const READINGS_MAX: u32 = 100;

/// What is known of an update transaction's draws.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    from: BTreeSet<SequenceId>,
    from_any: bool,
    /// What ran may have set any, and nobody would know.
    may_be_set: bool,
    are_set: bool,
    /// When the question was sent with the identity.
    asked: Option<Reading>,
    /// What came of that.
    told: Option<(Reading, Vec<State>)>,
    /// What the record needs, once that is known.
    marks: Vec<Sequence>,
    is_marked: bool,
}

impl Drawn {
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
            Some(Draws::FromSome) => self.may_be_any(),
            Some(Draws::From(ids)) => {
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

    fn query(&self) -> String {
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

impl Session {
    /// Notes the tables that rows were captured of: whether the transaction may have drawn.
    pub(crate) fn note_drawing(&mut self) -> Result<bool, Fault> {
        let catalogue = self.hub().catalogue();
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        for table in update.capture.record.tables() {
            update.drawn.written(*table, &catalogue);
        }
        Ok(update.drawn.is_any() && update.options.read_only != Some(true))
    }

    /// Whether the open update transaction has drawn where the sequences count, so that marks have to cover it. What was
    /// lent to a replica is covered already; but if it may have drawn more than that there, it is refused.
    pub(crate) async fn draws_need_marks(&mut self) -> Result<bool, Fault> {
        let (is_anchor, draws) = (self.is_at_anchor(), self.note_drawing()?);
        let Transaction::Update(update) = &self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        if is_anchor || !draws {
            return Ok(draws);
        }
        if update.is_borrowing && !update.drawn.from_any && !self.hub().voids_lent(update.generation) {
            let rows = u32::try_from(update.capture.record.rows()).unwrap_or(u32::MAX);
            let (ids, replica) = (update.drawn.from.clone(), update.replica);
            self.use_lease(&ids, replica, rows.saturating_sub(1));
            return Ok(false);
        }
        let (_, states) = match self.drawn()?.told.take() {
            Some(told) => told,
            None => self.read_all_sequences().await?,
        };
        if states.is_empty() && self.drawn()?.from_any {
            return Ok(false);
        }
        Err(Fault::Rival(Refusal::retry(
            "the transaction drew from a sequence at a replica while the schema or the anchor changed",
        )))
    }

    /// Whether the open update transaction is where sequences count.
    pub(crate) fn is_at_anchor(&self) -> bool {
        matches!(&self.transaction, Transaction::Update(update) if update.replica == self.anchor())
    }

    async fn read_all_sequences(&mut self) -> Result<(Reading, Vec<State>), Fault> {
        self.drawn()?.may_be_any();
        self.read_sequences().await
    }

    /// Finds the marks that the record of the open update transaction needs for what it has drawn. It leaves a record only
    /// for them, unless it has one in any case.
    pub(crate) async fn mark_sequences(&mut self, has_record: bool) -> Result<(), Fault> {
        if self.drawn()?.is_marked {
            return Ok(());
        }
        for _ in 0..READINGS_MAX {
            let (reading, states) = match self.drawn()?.told.take() {
                Some(told) => told,
                None => self.read_sequences().await?,
            };
            if self.judge_sequences(reading, &states, has_record)? {
                return Ok(());
            }
        }
        Err(Refusal::new(
            sqlstate::SERIALIZATION_FAILURE,
            "the sequences that the transaction has drawn from are set again and again",
            "Repeat the transaction.",
        )
        .into())
    }

    /// To be recorded before a schema change that has run here: elsewhere sequences stand at marks, ahead of what was drawn,
    /// and maybe beyond the bounds that they are about to get.
    pub(crate) async fn record_positions(&mut self) -> Result<(), Fault> {
        let states = self.own_text(&format!("SELECT {STATES_CALL}(NULL)")).await?;
        if states.is_empty() {
            return Ok(());
        }
        self.push_statement(&recorded_text(put_sql(&states)))
    }

    fn drawn(&mut self) -> Result<&mut Drawn, Fault> {
        match &mut self.transaction {
            Transaction::Update(update) => Ok(&mut update.drawn),
            _ => Err(broken("no update transaction is open")),
        }
    }

    async fn read_sequences(&mut self) -> Result<(Reading, Vec<State>), Fault> {
        let reading = self.hub().sequences().reading();
        let query = self.drawn()?.query();
        let ended = self.own_query(&query).await?;
        let answer = ended.row.and_then(|row| row.into_iter().next().flatten()).unwrap_or_default();
        let drawn = self.drawn()?;
        drawn.tell(reading, &answer)?;
        drawn.told.take().ok_or_else(|| broken("what was told is gone"))
    }

    /// Whether the record has what it needs; if not, the sequences must be read again.
    fn judge_sequences(
        &mut self,
        reading: Reading,
        states: &[State],
        has_record: bool,
    ) -> Result<bool, Fault> {
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let hub = &self.worker.hub;
        let durable = hub.log.durable();
        let mut sequences = hub.sequences();
        if update.drawn.from_any {
            if update.drawn.may_be_set {
                for state in states {
                    sequences.leases.void(state.id);
                }
            }
            self.servers.drew_at(update.replica, !states.is_empty());
        }
        let is_exact = update.drawn.are_set;
        if is_exact && std::mem::take(&mut update.drawn.are_set) && sequences.set(states) {
            return Ok(false);
        }
        let holder = update.replica;
        match sequences.judge(Question { holder, reading, states, is_exact, has_record, durable }) {
            Verdict::ReadAgain => Ok(false),
            Verdict::Add(marks) => {
                (update.drawn.marks, update.drawn.is_marked) = (marks, true);
                Ok(true)
            }
        }
    }
}
