//! What a statement wrote without having asked for it beforehand.
//!
//! At READ COMMITTED the session asks for it when it knows its rows, before the client hears of them; if they are
//! another's, it takes the statement back to a savepoint of its own, waits, and runs it again. Whatever was not asked for
//! in this way is asked for before the record is handed over. So at READ COMMITTED nobody loses against a version: whoever
//! does is a finding. In half of all plans nothing of this is done, since only certification is to decide.

use cluster::claims::{Claimed, Claims};
use cluster::event::{AbortCause, Event, Needs, Reads};
use cluster::ids::SessionId;

use super::session::{Phase, Run};
use super::{Message, Reply, World};
use crate::check::Anomaly;
use crate::history::Level;
use crate::program::{Frame, Program};
use crate::record::{self, Done};
use crate::server::{Answer, Connection, Op};

/// How often a statement is taken back.
const LOSSES_MAX: u32 = 8;

/// What the session knows of that.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// How many changes and locks there were before the statement at hand.
    before: (usize, usize),
    losses: u32,
    /// What was written and taken back, or lost.
    pub(super) missed: Claims,
    /// Some of what was written is not asked for yet.
    is_open: bool,
    /// Some of it never was.
    has_given_up: bool,
    /// All statements are done.
    is_ending: bool,
}

impl Guard {
    /// The transaction is run again; it asks for what it wrote before.
    pub(super) fn begin_again(&mut self) {
        *self = Self { missed: std::mem::take(&mut self.missed), ..Self::default() };
    }
}

impl Run {
    /// Whether the statement at hand runs behind a savepoint of the session's own.
    pub(super) fn is_guarded(&self) -> bool {
        let statement = &self.program.statements[self.at];
        self.is_begun
            && self.program.is_surprising
            && self.program.level == Level::ReadCommitted
            && self.program.frame == Frame::Block
            && !statement.is_unknown
            && !statement.is_read()
            && !statement.is_control()
    }
}

impl World {
    /// A statement is about to be sent; what of the session's own goes before it.
    pub(super) fn begin_guard(&mut self, session: usize) -> Option<Op> {
        let asks = self.rules.surprises_are_asked && self.plan.asks;
        let run = self.sessions[session].run.as_mut()?;
        run.guard.before = (run.changes.len(), run.locked.len());
        run.guard.is_open |= run.program.is_surprising && !run.is_guarded();
        (asks && run.is_guarded()).then_some(Op::Guard)
    }

    /// The statement at hand has run: its client hears of it, if what it wrote is its own.
    pub(super) fn secure_statement(&mut self, session: usize) {
        let asks = self.rules.surprises_are_asked && self.plan.asks;
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        let (changes, locked) = run.guard.before;
        if !asks || !run.is_guarded() || run.guard.losses == LOSSES_MAX {
            run.guard.has_given_up |= asks && run.is_guarded();
            run.guard.losses = 0;
            self.reply_to_client(session);
            return;
        }
        let (changes, locked) = (&run.changes[changes..], &run.locked[locked..]);
        let done = Done { changes, locked, row_claims_max: self.plan.row_claims_max };
        let claims = record::claims(done, None, 0, &self.rules);
        self.ask_to_secure(session, &claims);
    }

    /// Whether something is asked for before the record is handed over.
    pub(super) fn secures_rest(&mut self, session: usize) -> bool {
        let asks = self.rules.surprises_are_asked && self.plan.asks;
        let Some(run) = self.sessions[session].run.as_mut() else { return false };
        let is_asked = asks && std::mem::take(&mut run.guard.is_open) && run.unbounded.is_none();
        if is_asked {
            run.guard.is_ending = true;
            let (changes, locked) = (&run.changes[..], &run.locked[..]);
            let done = Done { changes, locked, row_claims_max: self.plan.row_claims_max };
            let claims = record::claims(done, None, 0, &self.rules);
            self.ask_to_secure(session, &claims);
        }
        is_asked
    }

    fn ask_to_secure(&mut self, session: usize, claimed: &[Claimed]) {
        let (mut claims, mut held) = (Claims::default(), Claims::default());
        for Claimed { is_held, claims: some, .. } in claimed {
            if *is_held { &mut held } else { &mut claims }.add(some);
        }
        if let Some(run) = self.sessions[session].run.as_mut() {
            run.phase = Phase::Securing;
            run.guard.missed.add(&claims);
            run.guard.missed.add(&held);
        }
        self.tell(Event::Secure { session: SessionId(session as u64), claims, held });
    }

    /// The answer.
    pub(super) fn secured(&mut self, session: usize, is_lost: bool) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        if run.phase != Phase::Securing {
            return;
        }
        match (run.guard.is_ending, is_lost) {
            (false, false) => {
                run.guard.losses = 0;
                self.reply_to_client(session);
            }
            (false, true) => {
                run.phase = Phase::TakingBack;
                run.guard.losses += 1;
                let (changes, locked) = run.guard.before;
                run.changes.truncate(changes);
                run.locked.truncate(locked);
                let Some((line, ..)) = run.line else { return };
                self.elements += 1;
                self.send(line, Message::Run(vec![(Op::Undo, self.elements)]));
            }
            (true, false) => self.identify(session),
            (true, true) if run.program.frame == Frame::Autocommit => self.rerun_or_fail(session),
            (true, true) => {
                run.phase = Phase::Placing;
                let (writes, catalogue) = (run.guard.missed.clone(), run.catalogue);
                let reads = Reads::Tables([].into());
                let needs = Needs { reads, writes, cost_us: 1, near: None, catalogue };
                self.tell(Event::Statement { session: SessionId(session as u64), needs });
            }
        }
    }

    /// The server has taken the statement back.
    pub(super) fn taken_back(&mut self, session: usize, answer: &Answer) {
        match answer.error {
            Some(error) => self.statement_failed(session, error),
            None => self.ask_for_place(session),
        }
    }

    /// What was waited for at the end is there.
    pub(super) fn is_ending(&self, session: usize) -> bool {
        self.sessions[session].run.as_ref().is_some_and(|run| run.guard.is_ending)
    }

    /// Cancels the statement for a refresh, if it runs behind a savepoint: it is run again behind what is refreshed.
    pub(super) fn evict(&mut self, session: usize, line: Connection) -> bool {
        let asks = self.rules.surprises_are_asked && self.plan.asks;
        let run = self.sessions[session].run.as_ref();
        if !asks || !run.is_some_and(|run| run.phase == Phase::Running && run.is_guarded()) {
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

    /// What it had to give way for is waited for.
    pub(super) fn evicted(&mut self, session: usize) {
        let Some(run) = self.sessions[session].run.as_mut() else { return };
        run.guard.losses += 1;
        if run.guard.losses > LOSSES_MAX {
            self.rerun_or_fail(session);
        } else {
            self.ask_for_place(session);
        }
    }

    /// Whether its last statement is being taken back, or is about to be: so its locks fall by themselves.
    pub(super) fn is_taken_back(&self, session: usize) -> bool {
        let run = self.sessions[session].run.as_ref();
        run.is_some_and(|run| {
            matches!(run.phase, Phase::Securing | Phase::TakingBack) && !run.guard.is_ending
        })
    }

    /// At READ COMMITTED one server would have made it wait.
    pub(super) fn judge_loss(&mut self, session: usize, cause: AbortCause) {
        let AbortCause::Conflict(rival) = cause else { return };
        let Some(run) = self.sessions[session].run.as_ref() else { return };
        // A transaction that used the view while it was changed claims everything without having asked for it.
        let changes_view =
            |program: &Program| program.statements.iter().any(|one| one.is_ddl && !one.is_unknown);
        let meets_misjudged =
            rival.meeting.is_none() && self.plan.sessions.iter().flatten().any(changes_view);
        let is_unforeseeable =
            !self.plan.asks || run.guard.has_given_up || run.unbounded.is_some() || meets_misjudged;
        if run.program.level == Level::ReadCommitted && rival.version.is_some() && !is_unforeseeable {
            let text = format!("session {session} loses at READ COMMITTED against {rival:?}");
            self.find(Anomaly::Order, text);
        }
    }
}
