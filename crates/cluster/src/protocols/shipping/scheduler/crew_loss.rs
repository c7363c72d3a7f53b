//! Sessions are lost with the connections on which their transactions ran: the node that served them has gone.
//!
//! Example: of a session's three transactions the first is committed at replica 1 only, the second waits for the log, and the third
//! is open. Replica 2 gets all writes of the first in one message, the second is done in the same way once it is logged, and the third is
//! rolled back at both.
//!
//! Invariant: what was decided is done at every replica, once; what was not is done nowhere. A replica that has ended a transaction
//! hears no more of it.
//!
//! Not here: how the former connections are ended, which has to come before the work that these messages bring about; and proxies
//! whose reports are still under way, since here they are asked in the same process.

use crate::ids::{CrewId, ReplicaId, SessionId};

use super::super::message::{Ending, Operation, SequenceNumber, ToProxy};
use super::{Active, Output, Scheduler, Stage};

impl Scheduler {
    /// The sessions of a crew are lost, and what ran for them at the databases, also for sessions that have ended before. For what the
    /// database of a replica was doing at this moment, the driver calls [`super::super::Proxy::lost`] when it has carried this out.
    /// Returns the transactions that are not over.
    pub fn crew_lost(&mut self, crew: CrewId, out: &mut Vec<Output>) -> Vec<SequenceNumber> {
        let sessions: Vec<SessionId> =
            self.sessions.keys().copied().filter(|session| session.crew() == crew).collect();
        for session in sessions {
            self.drop_read(session);
            self.sessions.remove(&session);
        }
        let is_own = |number: &SequenceNumber| {
            let session = self.actives.get(*number).and_then(|active| active.session);
            session.is_some_and(|session| session.crew() == crew)
        };
        let own: Vec<SequenceNumber> = self.actives.numbers().filter(is_own).collect();
        for number in &own {
            let number = *number;
            self.take_loads_back(number);
            let Some(active) = self.actives.get(number) else { continue };
            let (locks, writes) = (active.locks.clone(), all_writes(active));
            match active.stage {
                Stage::Adopting => {}
                Stage::Logging(_) => {
                    let adopted = Active::new(None, locks, Stage::Adopting, self.up.len());
                    self.actives.insert(number, Active { writes, ..adopted });
                }
                Stage::Ending(Ending::Commit, _) => self.begin_again(number, Ending::Commit, out),
                Stage::Open | Stage::Ending(Ending::Abort, _) => {
                    self.begin_again(number, Ending::Abort, out);
                }
            }
        }
        own
    }

    /// A read inside a transaction is not reported any more.
    fn drop_read(&mut self, session: SessionId) {
        let read = self.sessions.get_mut(&session).and_then(|state| state.read.take());
        if let Some((index, ToProxy::Execute { operation, .. })) = read {
            self.loads.take(index, operation.cost_us);
        }
    }

    /// Replicas do not report single writes of the transaction any more.
    fn take_loads_back(&mut self, number: SequenceNumber) {
        let Some(active) = self.actives.get(number) else { return };
        for index in (0..self.up.len()).filter(|index| self.up[*index]) {
            let left = match active.stage {
                Stage::Ending(_, Some(operation)) if active.done[index] == 0 => vec![operation],
                Stage::Ending(_, Some(_)) | Stage::Logging(Some(_)) | Stage::Adopting => Vec::new(),
                _ => {
                    // The first of what was sent is the lock request.
                    let done = (active.done[index] as usize).saturating_sub(1);
                    active.writes.iter().skip(done).copied().collect()
                }
            };
            for write in left {
                self.loads.take(index, write.cost_us);
            }
        }
    }

    /// Ends a transaction at each replica that has not ended it, by one message.
    fn begin_again(&mut self, number: SequenceNumber, ending: Ending, out: &mut Vec<Output>) {
        let Some(before) = self.actives.get(number) else { return };
        let has_ended: Vec<bool> = before
            .done
            .iter()
            .zip(&self.up)
            .map(|(done, is_up)| *is_up && before.stage.is_ending() && *done == before.sent)
            .collect();
        let (locks, writes) = (before.locks.clone(), all_writes(before));
        let message = match ending {
            Ending::Commit => ToProxy::Redo { number, locks: locks.clone(), writes: writes.clone() },
            Ending::Abort => ToProxy::Undo { number },
        };
        let count = has_ended.iter().filter(|ended| **ended).count();
        let fresh = Active::new(None, locks, Stage::Ending(ending, None), self.up.len());
        let done = has_ended.iter().map(|ended| u32::from(*ended)).collect();
        self.actives.insert(number, Active { writes, sent: 1, done, complete: count, ended: count, ..fresh });
        let replicas = (0..).map(ReplicaId).zip(self.up.iter().zip(&has_ended));
        let to = replicas.filter(|(_, (is_up, has_ended))| **is_up && !**has_ended);
        out.extend(to.map(|(replica, _)| Output::ToProxy(replica, message.clone())));
    }
}

/// The writes of a transaction, also if it is a single update.
fn all_writes(active: &Active) -> Vec<Operation> {
    match active.stage {
        Stage::Logging(Some(operation)) | Stage::Ending(_, Some(operation)) => vec![operation],
        _ => active.writes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::stage::{Stage as Theatre, locks, number, read, single, write};
    use super::super::super::{FromProxy, Proxy, ProxyOutput, Request, Work};
    use super::*;
    use crate::protocols::conflict_aware::CONFLICT_AWARE;
    use crate::protocols::eager::EAGER;

    const ITEM: u32 = 1;
    const ORDERS: u32 = 2;
    const LOST: CrewId = CrewId(1);
    /// A session of it.
    const OF_LOST: u64 = SessionId::of(LOST, 1).0;

    fn single_update(table: u32) -> Request {
        Request::SingleUpdate(locks(&[], &[table]), write(1))
    }

    /// What a database does, in order, when it does everything at once.
    fn does(stage: &mut Theatre, replica: usize) -> Vec<Work> {
        let mut done = Vec::new();
        while let Some((transaction, work)) = stage.working[replica].iter().next().map(|(t, w)| (*t, *w)) {
            done.push(work);
            stage.finish(replica, transaction);
        }
        done
    }

    #[test]
    fn what_was_decided_is_done_where_it_is_not_yet() {
        let mut stage = Theatre::new(CONFLICT_AWARE, 3);
        stage.begin(OF_LOST, &[], &[ITEM]);
        stage.execute(OF_LOST, write(5));
        stage.finish_all(0);
        stage.finish_all(1);
        stage.commit(OF_LOST);
        stage.finish_all(0);
        stage.lose_crew(LOST);
        let again = vec![Work::Restart, Work::Run(write(5)), Work::End(Ending::Commit)];
        assert_eq!(does(&mut stage, 0), [], "it is committed there");
        assert_eq!(does(&mut stage, 1), again, "its commit may have been lost");
        assert_eq!(does(&mut stage, 2), again, "it was writing");
        assert_eq!(stage.scheduler.active(), 0);
    }

    #[test]
    fn what_was_not_decided_is_rolled_back_and_others_go_on() {
        let mut stage = Theatre::new(CONFLICT_AWARE, 2);
        stage.begin(OF_LOST, &[], &[ITEM]);
        stage.execute(OF_LOST, write(5));
        stage.ask(2, single_update(ITEM));
        assert_eq!(stage.answered(), [OF_LOST], "its locks are granted");
        stage.lose_crew(LOST);
        for replica in [0, 1] {
            assert_eq!(
                does(&mut stage, replica),
                [Work::End(Ending::Abort), Work::RunAlone(write(1))],
                "the other one has waited for its locks"
            );
        }
        assert_eq!((stage.answered(), stage.scheduler.active()), (vec![2], 0));
    }

    #[test]
    fn what_is_on_its_way_to_the_log_is_done_when_it_is_there() {
        let mut stage = Theatre::new(CONFLICT_AWARE, 2);
        stage.begin(OF_LOST, &[], &[ORDERS]);
        stage.execute(OF_LOST, write(6));
        stage.finish_all(0);
        stage.log_is_slow = true;
        stage.commit(OF_LOST);
        stage.ask(OF_LOST + 1, single_update(ITEM));
        stage.lose_crew(LOST);
        stage.log_answers();
        let first = [Work::Restart, Work::Run(write(6)), Work::End(Ending::Commit)];
        let second = [Work::Run(write(1)), Work::End(Ending::Commit)];
        for replica in [0, 1] {
            let done = does(&mut stage, replica);
            assert_eq!(done, [&first[..], &second[..]].concat());
        }
        assert_eq!(stage.scheduler.active(), 0);
    }

    #[test]
    fn a_read_that_is_lost_leaves_no_load() {
        let mut stage = Theatre::new(CONFLICT_AWARE, 2);
        stage.begin(OF_LOST, &[ITEM], &[]);
        stage.finish_all(0);
        stage.ask(OF_LOST, Request::Execute(read(900)));
        stage.lose_crew(LOST);
        stage.ask(2, Request::SingleRead(locks(&[ITEM], &[]), read(10)));
        assert_eq!(stage.runs_at(single(2)).len(), 1);
        does(&mut stage, 0);
        does(&mut stage, 1);
        assert_eq!([0, 1].map(|replica| stage.scheduler.loads.of(replica)), [0, 0]);
    }

    #[test]
    fn a_replica_that_returns_gets_it_in_one_message() {
        let mut stage = Theatre::new(CONFLICT_AWARE, 2);
        stage.begin(OF_LOST, &[], &[ITEM]);
        stage.execute(OF_LOST, write(5));
        stage.finish_all(0);
        stage.lose(1);
        stage.commit(OF_LOST);
        stage.lose_crew(LOST);
        stage.join(1, stage.scheduler.over(), &[], &std::collections::BTreeMap::new());
        let all = [Work::Run(write(5)), Work::End(Ending::Commit)];
        assert_eq!(does(&mut stage, 1), all);
        assert_eq!(does(&mut stage, 0).last(), Some(&Work::End(Ending::Commit)));
        assert_eq!(stage.scheduler.active(), 0);
        assert_eq!(stage.runs_at(number(1)), [] as [usize; 0]);
    }

    /// A database acknowledges first what another one has not done yet, so a session may have ended before its transactions.
    #[test]
    fn transactions_outlive_their_session() {
        let mut stage = Theatre::new(CONFLICT_AWARE, 2);
        stage.begin(OF_LOST, &[], &[ITEM]);
        stage.execute(OF_LOST, write(5));
        stage.finish_all(0);
        stage.commit(OF_LOST);
        stage.finish_all(0);
        assert_eq!(stage.answered(), [OF_LOST, OF_LOST, OF_LOST]);
        stage.ask(OF_LOST, Request::InteractionOver);
        stage.lose_crew(LOST);
        let again = [Work::Restart, Work::Run(write(5)), Work::End(Ending::Commit)];
        assert_eq!(does(&mut stage, 1), again, "its write was lost");
        assert_eq!(stage.scheduler.active(), 0);
    }

    #[test]
    fn late_reports_are_no_answer_to_what_is_sent_again() {
        let mut stage = Theatre::new(EAGER, 2);
        stage.begin(OF_LOST, &[], &[ORDERS]);
        stage.execute(OF_LOST, write(6));
        stage.finish_all(0);
        stage.finish_all(1);
        stage.log_is_slow = true;
        stage.commit(OF_LOST);
        stage.lose_crew(LOST);
        let mut out = Vec::new();
        stage.scheduler.report(ReplicaId(0), FromProxy::Done(SequenceNumber(1), write(6)), &mut out);
        assert_eq!(out, []);
        stage.log_answers();
        stage.lose(0);
        assert_eq!(stage.scheduler.active(), 1, "the other one has not ended it");
        does(&mut stage, 1);
        assert_eq!(stage.scheduler.active(), 0);
    }

    /// A replica that returned does it again from the log, and only its proxy knows.
    #[test]
    fn what_is_done_again_is_done_whole() {
        let redo = ToProxy::Redo {
            number: SequenceNumber(1),
            locks: locks(&[], &[ITEM]),
            writes: vec![write(5), write(6)],
        };
        let (mut proxy, mut out) = (Proxy::default(), Vec::new());
        proxy.handle(redo, &mut out);
        proxy.finished(number(1), &mut out);
        proxy.lost(SequenceNumber(1), &mut out);
        (0..4).for_each(|_| proxy.finished(number(1), &mut out));
        let first = [Work::Run(write(5)), Work::Run(write(6))];
        let again = [Work::Restart, first[0], first[1], Work::End(Ending::Commit)];
        let done =
            [&first[..], &again].concat().into_iter().map(|work| ProxyOutput::Database(number(1), work));
        let ended = ProxyOutput::Report(FromProxy::Ended(SequenceNumber(1), None));
        assert_eq!(out, done.chain([ended]).collect::<Vec<_>>());
        assert_eq!(proxy.load_us(), 0);
    }
}
