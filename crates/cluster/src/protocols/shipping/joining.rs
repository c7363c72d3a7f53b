//! A replica comes back while the others work (section 5.3.2: "the database proxy is brought up to date by rolling
//! forward").
//!
//! It has transactions from the log that were over when its return began: the driver applies them before it calls
//! [`Scheduler::replica_joined`]. Transactions that became over since are done again in their places. Those under way are sent
//! as they were sent to the others. Every other number was aborted, or is there already, and only fills its gap. So the proxy
//! sees one message a number, in order, and joins the others in the middle.
//!
//! Invariant: nothing is done twice. A transaction that the database reports to have is not sent, in whatever stage it is.

use std::collections::BTreeMap;

use crate::ids::ReplicaId;
use crate::parts::lock_queues::LockSet;

use super::message::{Ending, Operation, SequenceNumber, ToProxy};
use super::scheduler::{Output, Scheduler, Stage};

/// A transaction that commits: its locks and all its writes.
pub type Decided = (LockSet, Vec<Operation>);

impl Scheduler {
    /// Every number up to this one is over at all replicas that are up.
    pub fn over(&self) -> SequenceNumber {
        self.actives.over()
    }

    /// The transactions that are not over, in order.
    pub fn under_way(&self) -> impl Iterator<Item = SequenceNumber> + '_ {
        self.actives.numbers()
    }

    /// Whether this transaction is one of them.
    pub fn has(&self, number: SequenceNumber) -> bool {
        self.actives.get(number).is_some()
    }

    /// Whether the replica takes part.
    pub fn is_up(&self, replica: ReplicaId) -> bool {
        self.up[usize::from(replica.0)]
    }

    /// A replica that was lost takes part again, with a proxy that begins after `from`. `has` says which of the later
    /// numbers its database has; `tail` holds those that have ended since it was asked what it has, if it may lack them.
    pub fn replica_joined(
        &mut self,
        replica: ReplicaId,
        from: SequenceNumber,
        has: impl Fn(SequenceNumber) -> bool,
        tail: &BTreeMap<SequenceNumber, Decided>,
        out: &mut Vec<Output>,
    ) {
        let index = usize::from(replica.0);
        if std::mem::replace(&mut self.up[index], true) {
            return;
        }
        self.up_count += 1;
        self.writers.reset(
            index,
            self.actives.numbers().filter_map(|number| self.actives.get(number).map(|active| &*active.locks)),
        );
        for number in (from.0 + 1..=self.actives.last().0).map(SequenceNumber) {
            let mut send = |message| out.push(Output::ToProxy(replica, message));
            let gap = ToProxy::End { number, ending: Ending::Abort };
            let Some(active) = self.actives.get_mut(number) else {
                match tail.get(&number).filter(|_| !has(number)) {
                    Some((locks, writes)) => {
                        let (locks, writes) = (locks.clone(), writes.clone());
                        send(ToProxy::Redo { number, locks, writes });
                    }
                    None => send(gap),
                }
                continue;
            };
            active.done[index] = 0;
            if has(number) {
                // Its end is reported when the gap is filled.
                active.done[index] = active.sent.saturating_sub(1);
                send(gap);
                continue;
            }
            match active.stage {
                // It is sent to all when it is in the log.
                Stage::Logging(Some(_)) | Stage::Adopting => {}
                Stage::Ending(Ending::Commit, None) if active.is_adopted() => {
                    let (locks, writes) = (active.locks.clone(), active.writes.clone());
                    send(ToProxy::Redo { number, locks, writes });
                }
                Stage::Ending(Ending::Abort, None) if active.is_adopted() => send(gap),
                Stage::Ending(_, Some(operation)) => {
                    self.loads.add(index, operation.cost_us);
                    send(ToProxy::SingleUpdate { number, locks: active.locks.clone(), operation });
                }
                stage => {
                    send(ToProxy::Lock { number, locks: active.locks.clone() });
                    for operation in &active.writes {
                        self.loads.add(index, operation.cost_us);
                        send(ToProxy::Execute { number, operation: *operation });
                    }
                    if let Stage::Ending(ending, _) = stage {
                        send(ToProxy::End { number, ending });
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stage::{Stage, locks, number, read, write};
    use super::super::{Request, Work};
    use super::*;
    use crate::protocols::conflict_aware::CONFLICT_AWARE;
    use crate::protocols::eager::EAGER;

    const ITEM: u32 = 1;
    const ORDERS: u32 = 2;

    fn single_update(table: u32) -> Request {
        Request::SingleUpdate(locks(&[], &[table]), write(1))
    }

    fn tail(of: &[(u64, u32)]) -> BTreeMap<SequenceNumber, Decided> {
        of.iter().map(|(n, table)| (SequenceNumber(*n), (locks(&[], &[*table]), vec![write(1)]))).collect()
    }

    /// The work of a database, in order, when it does everything at once.
    fn does(stage: &mut Stage, replica: usize) -> Vec<(u64, Work)> {
        let mut done = Vec::new();
        for n in (1..=9).cycle().take(99) {
            if let Some(work) = stage.working[replica].get(&number(n)).copied() {
                done.push((n, work));
                stage.finish(replica, number(n));
            }
        }
        done
    }

    /// 5.3.3: "The scheduler starts sending to the newly incorporated replica at the beginning of the next transaction.
    /// Afterwards, the database proxy becomes up-to-date by means of the selective retransmission requests."
    #[test]
    fn section_5_3_3_a_replica_that_returns_gets_work_under_way_and_missed_work() {
        let mut stage = Stage::new(CONFLICT_AWARE, 2);
        stage.begin(1, &[], &[ITEM]);
        stage.lose(1);
        let from = stage.scheduler.over();
        assert_eq!(from, SequenceNumber(0), "the first is still open");
        stage.execute(1, write(5));
        stage.finish_all(0);
        stage.ask(2, single_update(ORDERS));
        stage.begin(3, &[], &[ORDERS]);
        stage.finish_all(0);
        stage.ask(3, Request::End(Ending::Abort));
        stage.finish_all(0);
        stage.ask(4, single_update(ITEM));
        stage.answered();
        stage.join(1, from, &[], &tail(&[(2, ORDERS)]));
        stage.commit(1);
        let commit = Work::End(Ending::Commit);
        let expected = [
            (1, Work::Run(write(5))),
            (2, Work::Run(write(1))),
            (1, commit),
            (2, commit),
            (4, Work::RunAlone(write(1))),
        ];
        let mut done = does(&mut stage, 1);
        let mut wanted = expected.to_vec();
        done.sort_by_key(|(n, _)| *n);
        wanted.sort_by_key(|(n, _)| *n);
        assert_eq!(done, wanted, "the third was aborted");
        stage.finish_all(0);
        assert_eq!(stage.scheduler.active(), 0);
        stage.ask(5, Request::SingleRead(locks(&[ITEM], &[]), read(1)));
        assert_eq!(stage.runs_at(super::super::Transaction::Single(crate::ids::SessionId(5))).len(), 1);
    }

    /// 5.3.2: the proxy "provides its current state. The scheduler rolls forward the database proxy", from there.
    #[test]
    fn section_5_3_2_what_its_database_has_is_not_done_again() {
        let mut stage = Stage::new(EAGER, 2);
        stage.ask(1, single_update(ITEM));
        stage.begin(2, &[], &[ORDERS]);
        stage.execute(2, write(5));
        stage.finish_all(1);
        stage.lose(1);
        stage.answered();
        stage.join(1, stage.scheduler.over(), &[1], &BTreeMap::new());
        stage.finish_all(0);
        assert_eq!(stage.answered(), [1], "both replicas have the first");
        assert_eq!(
            does(&mut stage, 1),
            [(2, Work::Run(write(5)))],
            "the second was not sent to be committed yet"
        );
        assert_eq!(stage.answered(), [2]);
    }

    #[test]
    fn decided_work_waits_when_no_replica_is_left() {
        let mut stage = Stage::new(CONFLICT_AWARE, 1);
        stage.ask(1, single_update(ITEM));
        stage.lose(0);
        assert!(stage.answered().is_empty());
        assert_eq!(stage.scheduler.active(), 1);
        stage.join(0, SequenceNumber(0), &[], &BTreeMap::new());
        assert_eq!(does(&mut stage, 0), [(1, Work::RunAlone(write(1)))]);
        assert_eq!((stage.answered(), stage.scheduler.active()), (vec![1], 0));
    }
}
