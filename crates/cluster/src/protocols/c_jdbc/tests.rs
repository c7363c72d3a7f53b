//! The sentences of section 2.2, and our reading of each level.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::message::{
    Answer, FromReplica, Operation, OperationNumber, ReadId, Request, Step, Tables, TransactionId,
};
use super::replica_queue::{QueueOutput, ReplicaQueue, Work};
use super::*;
use crate::ids::{DatabaseId, ReplicaId, SessionId, TableId};
use crate::parts::lock_queues::Mode;
use crate::placement::{Copies, Placement, ReplicaSet};
use crate::protocols::shipping::{Ending, StatementId};

const NONE: &[u32] = &[];
const ITEM: u32 = 1;
const ORDERS: u32 = 2;

fn table(number: u32) -> TableId {
    DatabaseId::FIRST.table(number)
}

fn tables(reads: &[u32], writes: &[u32]) -> Tables {
    let of =
        |tables: &[u32], mode| -> Vec<(TableId, Mode)> { tables.iter().map(|t| (table(*t), mode)).collect() };
    Arc::from([of(reads, Mode::Read), of(writes, Mode::Write)].concat())
}

fn choices(level: Level, respond: Respond) -> Choices {
    Choices { level, respond, balance: Balance::RoundRobin, cache: None, rules: Rules::default() }
}

/// A scheduler with its replicas; messages arrive at once, servers work when told.
struct Stage {
    scheduler: Scheduler,
    queues: Vec<ReplicaQueue>,
    /// What each server was given and has not done.
    work: Vec<Vec<Work>>,
    answers: Vec<(u64, Answer)>,
    log: Vec<Operation>,
    log_is_slow: bool,
}

impl Stage {
    fn new(choices: Choices, replicas: u16) -> Self {
        Self::placed(choices, Placement::full(replicas), replicas)
    }

    fn placed(choices: Choices, placement: Placement, replicas: u16) -> Self {
        let count = usize::from(replicas);
        Self {
            scheduler: Scheduler::new(choices, placement, replicas),
            queues: (0..count).map(|_| ReplicaQueue::default()).collect(),
            work: vec![Vec::new(); count],
            answers: Vec::new(),
            log: Vec::new(),
            log_is_slow: false,
        }
    }

    fn ask(&mut self, session: u64, request: Request) {
        let mut out = Vec::new();
        self.scheduler.request(SessionId(session), request, &mut out);
        self.carry_out(out);
    }

    fn write(&mut self, session: u64, reads: &[u32], writes: &[u32]) {
        self.ask(session, Request::Write(tables(reads, writes), StatementId(session)));
    }

    fn read(&mut self, session: u64, reads: &[u32]) {
        self.ask(session, Request::Read(tables(reads, NONE), StatementId(session)));
    }

    /// Begins a transaction at all replicas.
    fn begin(&mut self, session: u64) {
        self.ask(session, Request::Begin);
        self.finish_everywhere();
        assert_eq!(self.answered().last(), Some(&session));
    }

    fn commit(&mut self, session: u64) {
        self.ask(session, Request::End(Ending::Commit));
    }

    fn carry_out(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::ToReplica(replica, message) => {
                    let mut out = Vec::new();
                    self.queues[usize::from(replica.0)].handle(message, &mut out);
                    self.hear(replica, out);
                }
                Output::Answer(session, answer) => self.answers.push((session.0, answer)),
                Output::Keep(..) => {}
                Output::Log(operation) => {
                    let number = operation.number;
                    self.log.push(operation);
                    if !self.log_is_slow {
                        self.log_answers(number);
                    }
                }
            }
        }
    }

    fn log_answers(&mut self, number: OperationNumber) {
        let mut out = Vec::new();
        self.scheduler.logged(number, &mut out);
        self.carry_out(out);
    }

    fn hear(&mut self, replica: ReplicaId, out: Vec<QueueOutput>) {
        for output in out {
            match output {
                QueueOutput::Server(work) => self.work[usize::from(replica.0)].push(work),
                QueueOutput::Report(report) => {
                    let mut out = Vec::new();
                    self.scheduler.report(replica, report, &mut out);
                    self.carry_out(out);
                }
            }
        }
    }

    /// A server does the first thing that it was given and that does not wait.
    fn finish(&mut self, replica: u16) {
        let work = self.work[usize::from(replica)].remove(0);
        let mut out = Vec::new();
        let queue = &mut self.queues[usize::from(replica)];
        match work {
            Work::Operation(operation) => queue.executed(operation.number, &mut out),
            Work::Read(id, ..) => queue.read(id, &mut out),
        }
        self.hear(ReplicaId(replica), out);
    }

    fn finish_everywhere(&mut self) {
        while let Some(replica) = (0_u16..).zip(&self.work).find(|(_, work)| !work.is_empty()).map(|(r, _)| r)
        {
            self.finish(replica);
        }
    }

    /// The first thing that a server was given waits there for a transaction.
    fn waits(&mut self, replica: u16, blocker: TransactionId) {
        let Work::Operation(operation) = self.work[usize::from(replica)].remove(0) else {
            panic!("reads do not wait")
        };
        let mut out = Vec::new();
        self.queues[usize::from(replica)].waits(operation.number, blocker, &mut out);
        self.hear(ReplicaId(replica), out);
    }

    /// The sessions that were told that it is done.
    fn answered(&mut self) -> Vec<u64> {
        let done = |(session, answer): (u64, Answer)| matches!(answer, Answer::Done(_)).then_some(session);
        std::mem::take(&mut self.answers).into_iter().filter_map(done).collect()
    }

    /// What a session was answered since the last look at answers.
    fn answers_of(&self, session: u64) -> Vec<Answer> {
        let own = self.answers.iter().filter(|(to, _)| *to == session);
        own.map(|(_, answer)| answer.clone()).collect()
    }

    fn lose(&mut self, replica: ReplicaId) {
        let mut out = Vec::new();
        self.scheduler.replica_lost(replica, &mut out);
        self.queues[usize::from(replica.0)] = ReplicaQueue::default();
        self.work[usize::from(replica.0)].clear();
        self.carry_out(out);
    }

    /// How many servers have something to do.
    fn busy(&self) -> Vec<usize> {
        self.work.iter().map(Vec::len).collect()
    }
}

/// 2.2.2: "The begin transaction, commit and abort operations are sent to all the replicas, on the other hand reads are sent
/// to only single replica."
#[test]
fn section_2_2_2_begin_and_end_go_to_all_and_reads_to_one() {
    let mut stage = Stage::new(choices(Level::Pessimistic, Respond::All), 3);
    stage.ask(1, Request::Begin);
    assert_eq!(stage.busy(), [1, 1, 1]);
    stage.finish_everywhere();
    stage.read(1, &[ITEM]);
    assert_eq!(stage.busy(), [1, 0, 0]);
    stage.finish_everywhere();
    stage.ask(1, Request::End(Ending::Abort));
    assert_eq!(stage.busy(), [1, 1, 1]);
    stage.finish_everywhere();
    assert_eq!((stage.answered(), stage.scheduler.active()), (vec![1, 1, 1], 0));
}

/// 2.2.2: "C-JDBC sends a total order multicast message per write operation."
#[test]
fn section_2_2_2_each_write_operation_has_a_number_of_its_own() {
    let mut stage = Stage::new(choices(Level::PassThrough, Respond::First), 2);
    stage.begin(1);
    stage.begin(2);
    stage.write(1, NONE, &[ITEM]);
    stage.write(2, NONE, &[ORDERS]);
    stage.finish_everywhere();
    stage.write(1, NONE, &[ORDERS]);
    stage.finish_everywhere();
    stage.commit(2);
    let order: Vec<(u64, u64)> = stage.log.iter().map(|o| (o.number.0, o.transaction.0)).collect();
    assert_eq!(order, [(1, 1), (2, 2), (3, 1), (4, 2), (5, 1), (6, 2)]);
}

/// 2.2.3: "its own isolation levels (pass-through, optimisticTransaction, pessimisticTransaction)". Our reading of who waits for whom.
#[test]
fn section_2_2_3_the_levels_differ_in_who_waits() {
    for (level, may_write, may_read) in [
        (Level::PassThrough, true, true),
        (Level::Optimistic, false, true),
        (Level::Pessimistic, false, false),
    ] {
        let mut stage = Stage::new(choices(level, Respond::All), 1);
        for session in [1, 2] {
            stage.begin(session);
        }
        stage.write(1, NONE, &[ITEM]);
        stage.finish_everywhere();
        stage.read(3, &[ITEM]);
        stage.write(2, NONE, &[ITEM]);
        stage.finish_everywhere();
        let answered: BTreeSet<u64> = stage.answered().into_iter().collect();
        assert_eq!((answered.contains(&2), answered.contains(&3)), (may_write, may_read), "{level:?}");
        stage.commit(1);
        stage.finish_everywhere();
        let all = answered.into_iter().chain(stage.answered()).collect::<BTreeSet<u64>>();
        assert_eq!(all, BTreeSet::from([1, 2, 3]));
    }
}

#[test]
fn under_optimistic_a_write_that_reads_a_table_is_one_of_its_readers() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 1);
    stage.begin(1);
    stage.begin(2);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    stage.write(2, &[ITEM], &[ORDERS]);
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [1]);
}

#[test]
fn a_lock_outlives_an_early_answer() {
    let mut stage = Stage::new(choices(Level::Pessimistic, Respond::First), 2);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    stage.commit(1);
    stage.finish(0);
    assert_eq!(stage.answered(), [1, 1]);
    stage.read(2, &[ITEM]);
    assert_eq!(stage.busy(), [0, 1], "replica 1 has not committed");
    stage.finish(1);
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [2]);
}

#[test]
fn the_youngest_of_a_deadlock_is_aborted_by_a_numbered_operation() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 2);
    stage.begin(1);
    stage.begin(2);
    stage.write(1, NONE, &[ITEM]);
    stage.write(2, NONE, &[ORDERS]);
    stage.finish_everywhere();
    stage.write(2, NONE, &[ITEM]);
    stage.answers.clear();
    stage.write(1, NONE, &[ORDERS]);
    assert_eq!(stage.answers, [(2, Answer::Deadlock)]);
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [1]);
    let ended = |o: &&Operation| o.step == Step::End(Ending::Abort);
    assert_eq!(stage.log.iter().find(ended).unwrap().transaction, TransactionId(2));
}

/// The same for waits inside servers: one victim for all copies, whichever replica tells first.
#[test]
fn a_deadlock_inside_servers_has_one_victim() {
    let mut stage = Stage::new(choices(Level::PassThrough, Respond::All), 2);
    stage.begin(1);
    stage.begin(2);
    for session in [1, 2] {
        stage.write(session, NONE, &[ITEM]);
    }
    stage.finish_everywhere();
    stage.answers.clear();
    stage.write(1, NONE, &[ITEM]);
    for replica in [0, 1] {
        stage.waits(replica, TransactionId(2));
    }
    stage.write(2, NONE, &[ITEM]);
    stage.waits(1, TransactionId(1));
    assert_eq!(stage.answers, [(2, Answer::Deadlock)]);
    stage.waits(0, TransactionId(1));
    assert_eq!(stage.answers.len(), 1, "the other replica tells of the same deadlock");
    assert_eq!(stage.log.last().unwrap().step, Step::End(Ending::Abort));
}

/// 2.2.4: "The recovery log records a log entry for each begin, commit, abort and update statement." The commit is there before any
/// replica is told, and what is numbered after it leaves after it.
#[test]
fn section_2_2_4_a_commit_is_logged_first() {
    let mut stage = Stage::new(choices(Level::PassThrough, Respond::First), 2);
    stage.begin(1);
    stage.begin(2);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    stage.log_is_slow = true;
    stage.commit(1);
    stage.write(2, NONE, &[ORDERS]);
    assert_eq!(stage.busy(), [0, 0]);
    stage.log_answers(OperationNumber(4));
    assert_eq!(stage.busy(), [2, 2]);
}

/// 2.2.4: "The recovery log is used to automatically re-integrate the failed replicas."
#[test]
fn section_2_2_4_a_replica_returns_by_the_log_and_reads_when_it_is_level() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 2);
    let lost = ReplicaId(1);
    let mut out = Vec::new();
    stage.scheduler.replica_lost(lost, &mut out);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    stage.commit(1);
    stage.finish_everywhere();
    stage.begin(2);
    let mut out = Vec::new();
    stage.scheduler.replica_joined(lost, &Return::Kept(BTreeSet::new()), &mut out);
    stage.carry_out(out);
    for session in [3, 4] {
        stage.read(session, &[ITEM]);
    }
    assert_eq!(stage.busy(), [2, 2], "both begins are sent; the reads go elsewhere");
    while !stage.work[1].is_empty() {
        stage.finish(1);
    }
    stage.read(5, &[ITEM]);
    assert_eq!(stage.busy(), [2, 1], "now it is level");
    stage.finish_everywhere();
    assert_eq!(stage.scheduler.active(), 1);
}

#[test]
fn a_lost_replica_is_not_waited_for_and_its_read_moves() {
    let mut stage = Stage::new(choices(Level::Pessimistic, Respond::All), 2);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish(0);
    stage.read(2, &[ORDERS]);
    let mut out = Vec::new();
    stage.work[1].clear();
    stage.scheduler.replica_lost(ReplicaId(1), &mut out);
    stage.carry_out(out);
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [1, 2]);
    let mut out = Vec::new();
    stage.scheduler.replica_lost(ReplicaId(0), &mut out);
    stage.carry_out(out);
    stage.answers.clear();
    stage.read(2, &[ORDERS]);
    assert_eq!(stage.answers, [(2, Answer::Lost)]);
}

/// RAIDb-2: a write goes to all holders, a read needs one replica that holds all, and what none can do is refused.
#[test]
fn raidb_2_writes_go_to_holders_and_queries_need_one() {
    let mut placement = Placement::full(3);
    let only =
        |replicas: [u16; 2]| Copies::Whole(replicas.map(ReplicaId).into_iter().collect::<ReplicaSet>());
    placement.restrict(table(ITEM), only([0, 1]));
    placement.restrict(table(ORDERS), only([1, 2]));
    let mut stage = Stage::placed(choices(Level::PassThrough, Respond::All), placement, 3);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    assert_eq!(stage.busy(), [1, 1, 0]);
    stage.finish_everywhere();
    for session in [2, 3] {
        stage.read(session, &[ITEM, ORDERS]);
    }
    assert_eq!(stage.busy(), [0, 2, 0]);
    stage.finish_everywhere();
    stage.answers.clear();
    stage.write(1, &[ITEM], &[ORDERS]);
    assert_eq!(
        stage.answers,
        [(1, Answer::NotHeld(vec![table(ITEM), table(ORDERS)]))],
        "replica 2 has no items"
    );
}

/// Who holds what changes only while nothing is under way and every replica takes part.
#[test]
fn tables_are_placed_while_nothing_is_under_way() {
    let mut placement = Placement::full(2);
    placement.restrict(table(ITEM), Copies::Whole(ReplicaSet::EMPTY.with(ReplicaId(1))));
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 2);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    assert!(!stage.scheduler.place(placement.clone(), 2), "a transaction is open");
    stage.commit(1);
    stage.finish_everywhere();
    assert!(!stage.scheduler.place(placement.clone(), 3), "a replica is lost");
    assert!(stage.scheduler.place(placement, 2));
    stage.begin(2);
    stage.write(2, NONE, &[ITEM]);
    assert_eq!(stage.busy(), [0, 1]);
}

/// RAIDb-0: each table has one holder, so a query of two may have none.
#[test]
fn raidb_0_a_query_of_two_replicas_is_refused() {
    let mut placement = Placement::full(2);
    for (number, replica) in [(ITEM, 0), (ORDERS, 1)] {
        placement.restrict(table(number), Copies::Whole(ReplicaSet::EMPTY.with(ReplicaId(replica))));
    }
    let mut stage = Stage::placed(choices(Level::Pessimistic, Respond::All), placement, 2);
    stage.read(1, &[ITEM, ORDERS]);
    assert_eq!(stage.answers, [(1, Answer::NotHeld(vec![table(ITEM), table(ORDERS)]))]);
}

#[test]
fn a_checkpoint_needs_a_quiet_moment_and_a_restart_aborts_what_is_open() {
    let mut stage = Stage::new(choices(Level::PassThrough, Respond::First), 1);
    stage.begin(1);
    assert_eq!(stage.scheduler.checkpoint("early".to_owned()), None);
    stage.commit(1);
    stage.finish_everywhere();
    assert_eq!(stage.scheduler.checkpoint("quiet".to_owned()), Some(OperationNumber(2)));
    stage.begin(2);
    stage.write(2, NONE, &[ITEM]);
    let log = recovery_log::RecoveryLog::recovered(stage.log, BTreeMap::new());
    assert_eq!(log.last(), OperationNumber(5));
    let mut scheduler =
        Scheduler::recovered(choices(Level::PassThrough, Respond::First), Placement::full(1), log);
    let mut out = Vec::new();
    scheduler.replica_joined(ReplicaId(0), &Return::AsOf(OperationNumber(2)), &mut out);
    let sent = out.iter().filter(|output| matches!(output, Output::ToReplica(..))).count();
    assert_eq!(sent, 3, "begin, write, abort");
}

#[test]
fn requests_out_of_turn_are_refused() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 1);
    stage.commit(1);
    stage.write(1, NONE, &[ITEM]);
    stage.ask(1, Request::Begin);
    stage.ask(1, Request::Begin);
    stage.finish_everywhere();
    stage.ask(1, Request::Begin);
    let answers: Vec<Answer> = stage.answers.iter().map(|(_, answer)| answer.clone()).collect();
    use Answer::{Done, Refused};
    assert_eq!(answers, [Refused, Refused, Refused, Done(Some(ReplicaId(0))), Refused]);
    let late = FromReplica::Read(ReadId(7));
    let mut out = Vec::new();
    stage.scheduler.report(ReplicaId(0), late, &mut out);
    stage.scheduler.report(ReplicaId(9), FromReplica::Executed(OperationNumber(1)), &mut out);
    assert!(out.is_empty());
}

/// A draw from a sequence runs at one replica, under the lock of the write that it belongs to.
#[test]
fn under_optimistic_a_read_for_a_write_takes_its_locks() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 2);
    stage.begin(1);
    stage.begin(2);
    stage.ask(1, Request::Read(tables(NONE, &[ITEM]), StatementId(1)));
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [1]);
    stage.ask(2, Request::Read(tables(NONE, &[ITEM]), StatementId(2)));
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [0; 0], "the other one has drawn");
    stage.commit(1);
    stage.finish_everywhere();
    assert_eq!(stage.answered(), [1, 2]);
}

#[test]
fn what_is_over_is_forgotten_and_numbers_go_on() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 2);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    stage.scheduler.forget_over();
    assert_eq!(stage.scheduler.kept_entries(), 2, "the transaction is open");
    stage.commit(1);
    stage.finish_everywhere();
    stage.scheduler.forget_over();
    assert_eq!(stage.scheduler.kept_entries(), 0);
    stage.begin(2);
    assert_eq!(stage.log.last().map(|entry| entry.number), Some(OperationNumber(4)));
}

/// One of two that return at once does not make the scheduler forget what the other one needs.
#[test]
fn nothing_is_forgotten_while_a_replica_is_expected() {
    let (first, second) = (ReplicaId(1), ReplicaId(2));
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 3);
    for lost in [first, second] {
        stage.scheduler.replica_lost(lost, &mut Vec::new());
    }
    stage.scheduler.expect(first);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    stage.commit(1);
    stage.finish_everywhere();
    stage.scheduler.forget_over();
    stage.scheduler.expect(second);
    let mut out = Vec::new();
    stage.scheduler.replica_joined(first, &Return::Kept(BTreeSet::new()), &mut out);
    assert_eq!(out.len(), 3, "begin, write, commit: {out:?}");
    assert!(stage.scheduler.active() == 0 && !stage.scheduler.is_quiet(), "it has yet to run them");
    stage.scheduler.forget_over();
    assert_eq!(stage.scheduler.kept_entries(), 3);
    stage.scheduler.replica_lost(second, &mut Vec::new());
    stage.scheduler.forget_over();
    assert_eq!(stage.scheduler.kept_entries(), 0);
}

/// A read waits for the only replica that is left, and is given up when that is lost, too.
#[test]
fn a_read_waits_for_a_replica_that_is_behind() {
    let (level, behind) = (ReplicaId(0), ReplicaId(1));
    let rules = Rules { counts_within: 0, ..Rules::default() };
    for is_lost in [false, true] {
        let mut stage = Stage::new(Choices { rules, ..choices(Level::Pessimistic, Respond::All) }, 2);
        stage.lose(behind);
        stage.begin(1);
        stage.write(1, NONE, &[ITEM]);
        stage.finish_everywhere();
        stage.commit(1);
        stage.finish_everywhere();
        let mut out = Vec::new();
        stage.scheduler.replica_joined(behind, &Return::Kept(BTreeSet::new()), &mut out);
        stage.carry_out(out);
        stage.lose(level);
        stage.read(2, &[ITEM]);
        assert_eq!(stage.answers_of(2), [], "it has yet to execute the write");
        if is_lost {
            stage.lose(behind);
            assert_eq!(stage.answers_of(2), [Answer::Lost]);
        } else {
            stage.finish_everywhere();
            assert_eq!(stage.answers_of(2), [Answer::Done(Some(behind))]);
        }
    }
}

#[test]
fn a_commit_without_replicas_is_an_abort() {
    let mut stage = Stage::new(choices(Level::Optimistic, Respond::All), 1);
    stage.begin(1);
    stage.write(1, NONE, &[ITEM]);
    stage.finish_everywhere();
    let mut out = Vec::new();
    stage.scheduler.replica_lost(ReplicaId(0), &mut out);
    stage.carry_out(out);
    stage.answers.clear();
    stage.commit(1);
    assert_eq!(stage.answers, [(1, Answer::Lost)]);
    assert_eq!(stage.log.last().map(|entry| entry.step.clone()), Some(Step::End(Ending::Abort)));
    assert_eq!(stage.scheduler.active(), 0);
}
