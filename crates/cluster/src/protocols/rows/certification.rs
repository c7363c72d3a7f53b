//! Certification: whether a finished transaction may have the next version.
//!
//! A transaction fails if a version that it may not have seen has claims in common with it. For most claims these are the
//! versions that home was not known to have applied when the statement was let run (DESIGN section 3).
//!
//! A table that is claimed as a whole only because thousands of new rows were inserted into it is *held* at home. A version of
//! another home that writes one of these rows, or takes a value of their unique keys, meets them in an index of home, and the
//! server does not let a refresh apply it before the transaction has ended. And index checks see rows that are already
//! applied, regardless of the snapshot. So such a claim is certified against the present state of home. Otherwise it would fail
//! because of any row that another home has inserted into the table meanwhile.
//!
//! If home lacks some of these versions yet, the transaction waits until home has them. If the two do meet in a row, the
//! refresh cannot go on, and the transaction that blocks it fails ([`crate::event::Event::BlocksApply`]).
//!
//! The trap (pitfalls 1.1, as in [`crate::parts::in_flight`]): the backend may die meanwhile, and its locks fall. So the
//! transaction has to draw a lock LSN again after that, which needs a live backend.
//!
//! No other claims are held. A transaction that claims the whole table (LOCK TABLE), or everything, has written no row that a
//! refresh could meet. Nor has one that has only locked a row, such as a parent. And a refresh inserts rows that refer to a
//! deleted one without checking the reference.
//!
//! Invariant: of two transactions of different homes with claims in common, the later one in the log has seen the earlier one,
//! or did not conflict with it at its home, where that was applied before the later one was appended.

use super::{Finished, Held, Out, Phase, Rows, TURNS_MAX, Transaction};
use crate::claims::Claimed;
use crate::event::{Effect, Level, Rival};
use crate::ids::{SessionId, Version};
use crate::parts::replica::State;

/// How often a transaction waits for versions that its home lacks. Each time others may append more of them meanwhile.
const PROOFS_MAX: u32 = 16;

/// The result of certification.
enum Verdict {
    /// It has seen all that it has to.
    Clear,
    /// A version that it has not seen has claims in common with it.
    Lost(Rival),
    /// A version may have claims in common with it that home holds for it.
    Unclear(Rival),
}

impl Rows {
    /// Appends a finished transaction, unless it has to wait, or conflicts with a version that was appended before it.
    pub(super) fn append(&mut self, session: SessionId, out: &mut Out<'_>) {
        let home = self.transactions.get(&session).map(|transaction| transaction.home);
        self.append_or_group(home.is_some_and(|home| self.waits_for_group(home)), session, out);
    }

    /// The same. If its commit group is still forming, a transaction that may be appended waits for it.
    pub(super) fn append_or_group(&mut self, waits_for_group: bool, session: SessionId, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get(&session) else { return };
        let Phase::Finished(finished) = &transaction.phase else { return };
        if !self.is_next_by_stamp(session) {
            return;
        }
        let (place, merged) = (finished.place, &finished.merged);
        if self.hold.is_some() && self.rules.hold_stops_appends {
            self.held.insert((place, session));
            return;
        }
        let is_wide = merged.everything || !merged.tables.is_empty();
        let waits = self.rules.overlap_waits && (self.rules.wide_claims_wait || !is_wide);
        let home = transaction.home;
        let side = &self.homes[home];
        if let Some(before) = side.in_flight.overlap(place, merged).filter(|_| waits) {
            self.delayed.insert((before, session));
            self.undo_younger_at(before, session);
            return;
        }
        match self.certify(session) {
            Verdict::Clear if waits_for_group => drop(self.ready.insert((place, session))),
            Verdict::Clear => self.assign(session, out),
            Verdict::Lost(rival) => self.lose(session, rival, out),
            Verdict::Unclear(rival) => self.prove(session, rival, out),
        }
    }

    fn lose(&mut self, session: SessionId, rival: Rival, out: &mut Out<'_>) {
        let Some(home) = self.transactions.get(&session).map(|transaction| transaction.home) else { return };
        self.lost_to(rival, session, out);
        self.want(home, rival.version.unwrap_or_default(), out);
    }

    /// Whether a version was appended that the transaction has not seen, although it overwrites its rows, breaks its
    /// constraints, or, at SERIALIZABLE, has read them.
    fn certify(&self, session: SessionId) -> Verdict {
        let transaction = &self.transactions[&session];
        let Phase::Finished(finished) = &transaction.phase else { return Verdict::Clear };
        if let Some(rival) = self.conflict(transaction, finished) {
            return Verdict::Lost(rival);
        }
        let Held { claims, base, .. } = &finished.held;
        let home = &self.replicas[transaction.home];
        let (version, meeting) = self.index.foreign(claims, home.id);
        if version <= *base || !self.rules.certifies_writes {
            return Verdict::Clear;
        }
        let rival = self.rival(version, meeting);
        let is_certain = version > home.applied && meeting.is_some_and(|meeting| meeting.row.is_some());
        if is_certain { Verdict::Lost(rival) } else { Verdict::Unclear(rival) }
    }

    fn conflict(&self, transaction: &Transaction, finished: &Finished) -> Option<Rival> {
        let home = self.replicas[transaction.home].id;
        let first = transaction.bases.first().copied().unwrap_or_default();
        for Claimed { turn, is_held, claims } in &finished.claims {
            let turn = usize::try_from(*turn).unwrap_or(TURNS_MAX).min(TURNS_MAX - 1);
            // Also with a snapshot that is kept: home itself refuses to overwrite rows that were applied there since.
            let base = transaction.bases.get(turn).copied().unwrap_or(first);
            let (version, meeting) = if *is_held || !self.rules.only_held_is_waited_for {
                (self.index.foreign_whole(claims, home), None)
            } else {
                self.index.foreign(claims, home)
            };
            if version > base && self.rules.certifies_writes {
                return Some(self.rival(version, meeting));
            }
        }
        let is_serializable = transaction.level == Level::Serializable && self.rules.certifies_reads;
        let version = if is_serializable { self.index.overwriter(&finished.reads) } else { Version::ZERO };
        (version > first).then(|| self.rival(version, self.index.written_at(&finished.reads)))
    }

    /// Waits until home has the version that the transaction may conflict with, and then asks whether it is alive.
    fn prove(&mut self, session: SessionId, rival: Rival, out: &mut Out<'_>) {
        let version = rival.version.unwrap_or_default();
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        let home = transaction.home;
        match std::mem::replace(&mut transaction.phase, Phase::Open) {
            Phase::Finished(mut finished) if finished.held.proofs < PROOFS_MAX => {
                finished.held.proofs += 1;
                transaction.phase = Phase::Suspected(finished);
            }
            phase => {
                transaction.phase = phase;
                self.lose(session, rival, out);
                return;
            }
        }
        if self.rules.held_waits {
            self.proving.insert((home, version, session));
            self.want(home, version, out);
            self.ask_for_proof(home, out);
        } else {
            self.ask_one(session, version, out);
        }
    }

    /// Asks transactions for a proof that waited for versions which the replica has now.
    pub(super) fn ask_for_proof(&mut self, index: usize, out: &mut Out<'_>) {
        if self.replicas[index].state != State::Up {
            return;
        }
        let applied = self.replicas[index].applied;
        let ready =
            self.proving.range((index, Version::ZERO, SessionId(0))..=(index, applied, SessionId(u64::MAX)));
        for entry in ready.copied().collect::<Vec<_>>() {
            self.proving.remove(&entry);
            self.ask_one(entry.2, applied, out);
        }
    }

    /// Asks for a proof that the transaction has kept its locks while home applied versions up to this one.
    fn ask_one(&mut self, session: SessionId, upto: Version, out: &mut Out<'_>) {
        let transaction = self.transactions.get_mut(&session);
        let Some(Transaction { phase: Phase::Suspected(finished), .. }) = transaction else { return };
        finished.held.base = upto;
        if self.rules.held_is_proved {
            out.effects.push(Effect::DrawLockLsn { session });
        } else {
            self.proved(session, out);
        }
    }

    /// The transaction was alive when home had that version.
    pub(super) fn proved(&mut self, session: SessionId, out: &mut Out<'_>) {
        let Some(transaction) = self.transactions.get_mut(&session) else { return };
        match std::mem::replace(&mut transaction.phase, Phase::Open) {
            Phase::Suspected(mut finished) => {
                if !self.rules.proof_is_of_asking {
                    finished.held.base = self.replicas[transaction.home].applied;
                }
                transaction.phase = Phase::Finished(finished);
                self.append(session, out);
            }
            phase => transaction.phase = phase,
        }
    }
}
