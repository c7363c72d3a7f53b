//! Reads: each goes to one replica that holds all its tables (section 2.2.2), which the balancer chooses (section 2.2.5).

use crate::ids::{ReplicaId, SessionId, TableId};
use crate::placement::ReplicaSet;
use crate::protocols::shipping::StatementId;

use super::super::Level;
use super::super::message::{Answer, ReadId, Tables, ToReplica};
use super::{Output, Pending, Scheduler};

impl Scheduler {
    pub(super) fn send_read(
        &mut self,
        session: SessionId,
        tables: Tables,
        statement: StatementId,
        out: &mut Vec<Output>,
    ) {
        let all: Vec<TableId> = tables.iter().map(|(table, _)| *table).collect();
        let rules = self.choices.rules;
        let present = if rules.reads_await_return { self.delivery.level() } else { self.delivery.all() };
        let holders = if rules.reads_need_holders { self.placement.holders_of_all(&all) } else { present };
        let among: ReplicaSet = holders.and(present);
        let Some(at) = self.balancer.choose(among, |replica| self.delivery.pending(replica)) else {
            if self.may_wait_for_level(holders) {
                self.unplaced.insert(session);
                let state = self.sessions.entry(session).or_default();
                state.pending = Some(Pending::Unplaced { tables, statement });
            } else {
                self.give_up(session, Answer::Lost, out);
            }
            return;
        };
        self.reads_so_far += 1;
        let id = ReadId(self.reads_so_far);
        self.reads.insert(id, session);
        self.delivery.count_read(at, |reads| reads + 1);
        let open = self.sessions.entry(session).or_default().open;
        if let (Some(writings), Some(open)) = (&mut self.writings, open) {
            // A read that is part of a write, such as a draw from a sequence.
            writings.wrote(open, &tables);
        }
        let moment = self.writings.as_ref().filter(|_| open.is_none());
        let moment = moment.and_then(|writings| writings.moment(&tables));
        let state = self.sessions.entry(session).or_default();
        state.pending = Some(Pending::Read { id, at, tables, statement, moment });
        out.push(Output::ToReplica(at, ToReplica::Read(id, state.open, statement)));
    }

    /// Whether one of these takes part, and will have everything soon. Under pass-through it may not: what it has yet to execute may
    /// wait for the very transaction that wants to read.
    fn may_wait_for_level(&self, holders: ReplicaSet) -> bool {
        let rules = self.choices.rules;
        rules.reads_wait_for_level
            && self.choices.level != Level::PassThrough
            && self.delivery.any_takes_part(holders)
    }

    /// A replica may have everything now, or none may be left.
    pub(super) fn place_reads(&mut self, out: &mut Vec<Output>) {
        for session in std::mem::take(&mut self.unplaced) {
            let Some(state) = self.sessions.get_mut(&session) else { continue };
            let unplaced = state.pending.take_if(|one| matches!(one, Pending::Unplaced { .. }));
            if let Some(Pending::Unplaced { tables, statement }) = unplaced {
                self.send_read(session, tables, statement, out);
            }
        }
    }

    pub(super) fn read_done(&mut self, replica: ReplicaId, id: ReadId, out: &mut Vec<Output>) {
        self.delivery.count_read(replica, |reads| reads.saturating_sub(1));
        let Some(session) = self.reads.remove(&id) else { return };
        let state = self.sessions.entry(session).or_default();
        let single = state.single.take();
        self.note_kept(session, out);
        self.answer(session, Answer::Done(Some(replica)), out);
        if let Some(owner) = single {
            self.release(owner, out);
        }
    }

    /// The read of a session has ended. Its answer may be kept if nothing has written its tables meanwhile.
    fn note_kept(&self, session: SessionId, out: &mut Vec<Output>) {
        let pending = self.sessions.get(&session).and_then(|state| state.pending.as_ref());
        if let (Some(writings), Some(Pending::Read { tables, moment: Some(moment), .. })) =
            (&self.writings, pending)
            && writings.are_unwritten(tables, *moment)
        {
            out.push(Output::Keep(session, *moment));
        }
    }

    /// Sends the reads that ran at a lost replica to others.
    pub(super) fn move_reads(&mut self, lost: ReplicaId, out: &mut Vec<Output>) {
        let there =
            |pending: &Option<Pending>| matches!(pending, Some(Pending::Read { at, .. }) if *at == lost);
        let sessions: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(_, state)| there(&state.pending))
            .map(|(session, _)| *session)
            .collect();
        for session in sessions {
            let pending = self.sessions.get_mut(&session).and_then(|state| state.pending.take());
            if let Some(Pending::Read { id, tables, statement, .. }) = pending {
                self.reads.remove(&id);
                self.send_read(session, tables, statement, out);
            }
        }
    }
}
