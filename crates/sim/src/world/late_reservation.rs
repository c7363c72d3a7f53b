//! Reserves rows that a statement wrote without a prediction.
//!
//! At READ COMMITTED the session reserves such rows when the statement has run, before the client has the reply. If another
//! home holds one of them, the session rolls back to its own savepoint, waits, and runs the statement again. At the end it
//! reserves the remaining rows before it hands over the record. So a transaction at READ COMMITTED never loses against
//! another version; if it does, that is a finding. In half of all plans sessions reserve nothing late, so that
//! certification alone decides.

use cluster::claims::{Claimed, Claims};
use cluster::event::{AbortCause, Event, Needs, Reads};
use cluster::ids::SessionId;
use cluster::placement::Touches;
use cluster::protocols::rows::Order;

use super::session::{Phase, Run};
use super::{Message, Reply, World};
use crate::check::Anomaly;
use crate::history::Level;
use crate::program::{Frame, Program};
use crate::record::{self, Done};
use crate::server::{Answer, Connection, Op};

/// How often a statement is rolled back and run again.
const LOSSES_MAX: u32 = 8;

/// The state of late reservation of one transaction.
#[derive(Debug, Default)]
pub(super) struct LateReservation {
    /// How many changes and locks the transaction had before the current statement.
    before: (usize, usize),
    losses: u32,
    /// Claims of writes that were rolled back; the next attempt reserves them first.
    pub(super) missed: Claims,
    /// Some written rows are not reserved yet.
    is_open: bool,
    /// A statement lost too often, so some rows never were reserved.
    has_given_up: bool,
    /// All statements have run, and the remaining rows are being reserved.
    is_ending: bool,
}

impl LateReservation {
    /// The transaction is retried; it will first reserve what it wrote before.
    pub(super) fn begin_again(&mut self) {
        *self = Self { missed: std::mem::take(&mut self.missed), ..Self::default() };
    }
}

impl Run {
    /// Whether the current statement runs behind a savepoint of the session.
    pub(super) fn has_own_savepoint(&self) -> bool {
        let statement = &self.program.statements[self.at];
        self.is_begun
            && self.program.is_unpredicted
            && self.program.level == Level::ReadCommitted
            && self.program.frame == Frame::Block
            && !statement.is_unknown
            && !statement.is_read()
            && !statement.is_control()
    }
}

impl World {
    /// A statement is about to be sent: the savepoint to set before it, if it needs one.
    pub(super) fn own_savepoint(&mut self, session: usize) -> Option<Op> {
        let reserves_late = self.rules.unpredicted_is_reserved && self.plan.reserves_late;
        let run = self.sessions[session].run.as_mut()?;
        run.late.before = (run.changes.len(), run.locked.len());
        run.late.is_open |= run.program.is_unpredicted && !run.has_own_savepoint();
        (reserves_late && run.has_own_savepoint()).then_some(Op::OwnSavepoint)
    }

    /// The current statement has run: reserves its rows, or replies to the client if nothing is to be reserved.
    pub(super) fn reserve_statement(&mut self, session: usize) {
        let reserves_late = self.rules.unpredicted_is_reserved && self.plan.reserves_late;
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let (changes, locked) = run.late.before;
        if !reserves_late || !run.has_own_savepoint() || run.late.losses == LOSSES_MAX {
            run.late.has_given_up |= reserves_late && run.has_own_savepoint();
            run.late.losses = 0;
            self.reply_to_client(session);
            return;
        }
        let (changes, locked) = (&run.changes[changes..], &run.locked[locked..]);
        let done = Done { changes, locked, row_claims_max: self.plan.row_claims_max };
        let claims = record::claims(done, None, 0, &self.rules);
        self.reserve(session, &claims);
    }

    /// Reserves the remaining rows before the record is handed over; false if there are none.
    pub(super) fn reserves_rest(&mut self, session: usize) -> bool {
        let reserves_late = self.rules.unpredicted_is_reserved && self.plan.reserves_late;
        let Some(run) = self.sessions[session].run.as_mut() else { return false };
        let is_asked = reserves_late && std::mem::take(&mut run.late.is_open) && run.unbounded.is_none();
        if is_asked {
            run.late.is_ending = true;
            let (changes, locked) = (&run.changes[..], &run.locked[..]);
            let done = Done { changes, locked, row_claims_max: self.plan.row_claims_max };
            let claims = record::claims(done, None, 0, &self.rules);
            self.reserve(session, &claims);
        }
        is_asked
    }

    fn reserve(&mut self, session: usize, claimed: &[Claimed]) {
        let (mut claims, mut held) = (Claims::default(), Claims::default());
        for Claimed { is_held, claims: some, .. } in claimed {
            if *is_held { &mut held } else { &mut claims }.add(some);
        }
        if let Some(run) = self.sessions[session].run.as_mut() {
            run.phase = Phase::Reserving;
            run.late.missed.add(&claims);
            run.late.missed.add(&held);
        }
        self.tell(Event::ReserveLate { session: SessionId(session as u64), claims, held });
    }

    /// The core's answer to a reservation.
    pub(super) fn reserved(&mut self, session: usize, is_lost: bool) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        if run.phase != Phase::Reserving {
            return;
        }
        match (run.late.is_ending, is_lost) {
            (false, false) => {
                run.late.losses = 0;
                self.reply_to_client(session);
            }
            (false, true) => {
                run.phase = Phase::Reverting;
                run.late.losses += 1;
                let (changes, locked) = run.late.before;
                run.changes.truncate(changes);
                run.locked.truncate(locked);
                let Some((line, ..)) = run.line else { return };
                self.elements += 1;
                self.send(line, Message::Run(vec![(Op::RollbackToOwn, self.elements)]));
            }
            (true, false) => self.identify(session),
            (true, true) if run.program.frame == Frame::Autocommit => self.rerun_or_fail(session),
            (true, true) => {
                run.phase = Phase::Placing;
                let (writes, catalogue) = (run.late.missed.clone(), run.catalogue);
                let reads = Reads::Tables([].into());
                let touches = Touches::Tables([].into());
                let needs = Needs { reads, touches, writes, cost_us: 1, near: None, catalogue, kind: None };
                self.tell(Event::Statement { session: SessionId(session as u64), needs });
            }
        }
    }

    /// The server has rolled back to the session's savepoint.
    pub(super) fn reverted(&mut self, session: usize, answer: &Answer) {
        match answer.error {
            Some(error) => self.statement_failed(session, error),
            None => self.ask_for_place(session),
        }
    }

    /// Whether the last reservation, before the record, is under way.
    pub(super) fn is_ending(&self, session: usize) -> bool {
        self.sessions[session].run.as_ref().is_some_and(|run| run.late.is_ending)
    }

    /// Cancels the statement for a refresh, if it runs behind a savepoint; it runs again after the refresh.
    pub(super) fn evict(&mut self, session: usize, line: Connection) -> bool {
        let reserves_late = self.rules.unpredicted_is_reserved && self.plan.reserves_late;
        let run = self.sessions[session].run.as_ref();
        if !reserves_late || !run.is_some_and(|run| run.phase == Phase::Running && run.has_own_savepoint()) {
            return false;
        }
        let replica = self.network.replica(line);
        let answer = self.servers[replica].evict(line);
        let woken = self.servers[replica].take_woken();
        self.wake(replica, woken);
        let is_evicted = answer.is_some();
        if let Some(answer) = answer {
            self.answer(line, Reply::Answer(answer));
        }
        is_evicted
    }

    /// The statement gave way to a refresh: runs it again, behind the refresh.
    pub(super) fn evicted(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.late.losses += 1;
        if run.late.losses > LOSSES_MAX {
            self.rerun_or_fail(session);
        } else {
            self.ask_for_place(session);
        }
    }

    /// Whether its last statement is being rolled back, or may be soon, which releases its locks.
    pub(super) fn is_being_reverted(&self, session: usize) -> bool {
        let run = self.sessions[session].run.as_ref();
        run.is_some_and(|run| matches!(run.phase, Phase::Reserving | Phase::Reverting) && !run.late.is_ending)
    }

    /// A transaction at READ COMMITTED has lost. One PostgreSQL would have made it wait.
    pub(super) fn judge_loss(&mut self, session: usize, cause: AbortCause) {
        let Some(run) = self.sessions[session].run.as_ref() else { return };
        let is_read_committed = run.program.level == Level::ReadCommitted;
        if let AbortCause::Impatience(rival) = cause
            && is_read_committed
        {
            self.find(
                Anomaly::Order,
                format!("session {session} loses patience with {rival:?} at READ COMMITTED"),
            );
            return;
        }
        let AbortCause::Conflict(rival) = cause else { return };
        // A transaction that used the view while it changed claims everything, without a reservation. So does one whose
        // catalogue is not known any more, after a restart.
        let changes_view =
            |program: &Program| program.statements.iter().any(|one| one.is_ddl && !one.is_unknown);
        let meets_misjudged =
            rival.meeting.is_none() && self.plan.sessions.iter().flatten().any(changes_view);
        // What an unbounded statement of another home reserved does not include what was not reserved yet.
        let is_unknown = |program: &Program| program.statements.iter().any(|one| one.is_unknown);
        let meets_unbounded = rival.meeting.is_none()
            && run.program.is_unpredicted
            && self.plan.sessions.iter().flatten().any(is_unknown);
        let nothing_waits = self.rules.protocol.order == Order::Nothing;
        let is_unforeseeable = nothing_waits
            || self.stamped.mispredicts()
            || meets_unbounded
            || !self.plan.reserves_late
            || run.late.has_given_up
            || run.unbounded.is_some()
            || self.is_misjudged(&run.concluded)
            || meets_misjudged;
        if is_read_committed && rival.version.is_some() && !is_unforeseeable {
            let text = format!("session {session} loses at READ COMMITTED against {rival:?}");
            self.find(Anomaly::Order, text);
        }
    }
}
