//! The rules of sections 3 to 5, each with its sentence. What differs between the five is in their own files.

use std::collections::BTreeMap;

use super::stage::{Stage, locks, number, read, single, write};
use super::*;
use crate::ids::{DatabaseId, FragmentId, SessionId};
use crate::protocols::conflict_aware::CONFLICT_AWARE;

const ITEM: u32 = 1;
const ORDERS: u32 = 2;
const AUTHOR: u32 = 3;

fn stage(replicas: usize) -> Stage {
    Stage::new(CONFLICT_AWARE, replicas)
}

fn single_read(tables: &[u32], cost_us: u32) -> Request {
    Request::SingleRead(locks(tables, &[]), read(cost_us))
}

fn single_update(table: u32) -> Request {
    Request::SingleUpdate(locks(&[], &[table]), write(1))
}

/// 3.3: "When the scheduler receives a lock request, a write or a commit from the application server, it sends it to
/// all replicas and returns the response as soon as it receives a response from any of the replicas."
#[test]
fn section_3_3_writes_go_to_all_and_the_first_reply_counts() {
    let mut stage = stage(3);
    stage.begin(1, &[], &[ITEM]);
    assert_eq!(stage.answered(), [1]);
    stage.execute(1, write(5));
    assert_eq!(stage.runs_at(number(1)), [0, 1, 2]);
    assert!(stage.answered().is_empty());
    stage.finish(2, number(1));
    assert_eq!(stage.answered(), [1]);
    stage.finish(0, number(1));
    assert!(stage.answered().is_empty(), "one answer for one request");
    stage.commit(1);
    stage.finish(2, number(1));
    assert_eq!(stage.answered(), [1], "replica 1 has not even written yet");
}

/// 3.3: "Reads are sent only to a single replica, and the response is sent back [...] as soon as it is received."
#[test]
fn section_3_3_reads_go_to_one() {
    let mut stage = stage(3);
    stage.ask(1, single_read(&[ITEM], 10));
    let [at] = stage.runs_at(single(1))[..] else { panic!("one replica reads") };
    stage.finish(at, single(1));
    assert_eq!(stage.answered(), [1]);
}

/// 3.4: "Lock requests are sent to all replicas, executed in order of their assigned sequence numbers, and held until
/// commit, thus forcing all conflicting operations to execute in a total order identical at all replicas."
#[test]
fn section_3_4_conflicting_transactions_have_one_order_everywhere() {
    let mut stage = stage(2);
    stage.cut(1);
    stage.begin(1, &[], &[ITEM]);
    stage.begin(2, &[ITEM], &[ORDERS]);
    assert_eq!(stage.answered(), [1], "the second waits for the lock");
    stage.mend(1);
    stage.execute(1, write(5));
    stage.finish(0, number(1));
    stage.finish(1, number(1));
    stage.commit(1);
    assert_eq!(stage.answered(), [1]);
    stage.finish(1, number(1));
    assert_eq!(stage.answered(), [2, 1], "released by the commit at replica 1");
    stage.execute(2, write(6));
    assert_eq!(stage.runs_at(number(2)), [1], "at replica 0 the first one still has its locks");
}

/// 3.4: "A single-read transaction holds locks only on the single replica where it executes."
#[test]
fn section_3_4_a_single_read_locks_one_replica() {
    let mut stage = stage(2);
    stage.ask(1, single_read(&[ITEM], 10));
    let reader = stage.runs_at(single(1))[0];
    stage.begin(2, &[], &[ITEM]);
    assert_eq!(stage.answered(), [2], "the other replica is free");
    stage.execute(2, write(5));
    assert_eq!(stage.runs_at(number(1)), [1 - reader]);
    stage.finish(reader, single(1));
    assert_eq!(stage.runs_at(number(1)), [0, 1]);
}

/// 4.2: "For every replicated operation [...] the corresponding record is deleted only when all databases have
/// returned a response."
#[test]
fn section_4_2_records_live_until_all_have_replied() {
    let mut stage = stage(2);
    stage.ask(1, single_update(ITEM));
    stage.finish(0, number(1));
    assert_eq!((stage.answered().len(), stage.scheduler.active()), (1, 1));
    stage.finish(1, number(1));
    assert_eq!(stage.scheduler.active(), 0);
}

/// 4.2: "The record for a read operation is deleted as soon as the response is received and delivered to the application
/// server": late answers of a replica whose read was sent elsewhere are ignored.
#[test]
fn section_4_2_the_record_of_a_read_goes_with_its_reply() {
    let mut stage = stage(2);
    stage.ask(1, single_read(&[ITEM], 10));
    stage.ask(1, single_read(&[ITEM], 10));
    let replies = stage.replies();
    assert_eq!(replies, [(1, Answer::Refused)], "one read of a session at a time");
    let at = stage.runs_at(single(1))[0];
    stage.finish(at, single(1));
    assert_eq!(stage.answered(), [1]);
    let mut out = Vec::new();
    let again = FromProxy::Read(SessionId(1), read(10));
    stage.scheduler.report(crate::ids::ReplicaId(at as u16), again, &mut out);
    assert!(out.is_empty(), "{out:?}");
    stage.ask(1, single_read(&[ITEM], 10));
    assert_eq!(stage.runs_at(single(1)).len(), 1);
}

/// 4.3: "These lock queues are maintained in order of sequence numbers": not in that of arrival, also where a request
/// already waits.
#[test]
fn section_4_3_lock_queues_are_in_order_of_the_numbers() {
    let mut proxy = Proxy::default();
    let mut out = Vec::new();
    for number in [1, 3, 2] {
        let number = SequenceNumber(number);
        proxy.handle(ToProxy::Lock { number, locks: locks(&[], &[ITEM]) }, &mut out);
    }
    let mut granted = Vec::new();
    for number in [1, 2, 3] {
        granted.extend(out.drain(..).filter_map(|output| match output {
            ProxyOutput::Report(FromProxy::Granted(number)) => Some(number.0),
            _ => None,
        }));
        let number = SequenceNumber(number);
        proxy.handle(ToProxy::End { number, ending: Ending::Commit }, &mut out);
        proxy.finished(Transaction::Numbered(number), &mut out);
    }
    assert_eq!(granted, [1, 2, 3]);
}

/// 4.4: "A lock request that arrives out-of-order [...] is put in the out-of-order queue. Upon further lock request
/// arrivals, the proxy checks whether any request from the out-of-order queue can now be processed."
#[test]
fn section_4_4_out_of_order_requests_wait() {
    let mut proxy = Proxy::default();
    let mut out = Vec::new();
    let second = ToProxy::Lock { number: SequenceNumber(2), locks: locks(&[], &[ORDERS]) };
    proxy.handle(second, &mut out);
    assert!(out.is_empty(), "not even of another table: number 1 may conflict");
    proxy.handle(ToProxy::Lock { number: SequenceNumber(1), locks: locks(&[], &[ITEM]) }, &mut out);
    let granted = |n| ProxyOutput::Report(FromProxy::Granted(SequenceNumber(n)));
    assert_eq!(out, [granted(1), granted(2)]);
}

/// 4.4: "When all locks for a particular transaction have been granted, the proxy responds to the scheduler"; "The lock
/// request is not forwarded to the database engine."
#[test]
fn section_4_4_all_locks_or_none() {
    let mut stage = stage(1);
    stage.begin(1, &[], &[ITEM]);
    stage.begin(2, &[], &[ORDERS]);
    stage.begin(3, &[ORDERS], &[ITEM]);
    assert_eq!(stage.answered(), [1, 2]);
    assert!(stage.working[0].is_empty());
    stage.commit(1);
    stage.finish(0, number(1));
    assert_eq!(stage.answered(), [1], "one of two locks is not enough");
    stage.commit(2);
    stage.finish(0, number(2));
    assert_eq!(stage.answered(), [3, 2]);
}

/// 4.5: "The database proxy forwards a read or write operation to its database only when all previous operations in the
/// same transaction (including lock requests) have been executed"; 4.6: "The proxy then submits the next operation
/// waiting in the transaction queue"; 4.7: "If other operations from this transaction are pending in the transaction
/// queue, the commit/abort is inserted at the tail of the queue."
#[test]
fn section_4_5_to_4_7_operations_of_a_transaction_keep_their_order() {
    let mut stage = stage(2);
    stage.begin(1, &[], &[ITEM]);
    stage.execute(1, write(5));
    stage.finish(0, number(1));
    stage.execute(1, write(6));
    stage.finish(0, number(1));
    stage.commit(1);
    stage.finish(0, number(1));
    let at_slow: Vec<Work> = (0..3)
        .map(|_| {
            let work = stage.working[1][&number(1)];
            stage.finish(1, number(1));
            work
        })
        .collect();
    assert_eq!(at_slow, [Work::Run(write(5)), Work::Run(write(6)), Work::End(Ending::Commit)]);
}

/// 4.7: "Upon completion of the operation at the database, the database proxy releases each lock held by the
/// transaction, and checks whether any lock requests in the queues can be granted as a result."
#[test]
fn section_4_7_an_abort_releases_as_a_commit_does() {
    let mut stage = stage(1);
    stage.begin(1, &[], &[ITEM]);
    stage.begin(2, &[], &[ITEM]);
    stage.execute(1, write(5));
    stage.finish(0, number(1));
    stage.answered();
    stage.ask(1, Request::End(Ending::Abort));
    assert!(stage.logged.is_empty(), "only what commits is logged");
    assert!(stage.answered().is_empty());
    stage.finish(0, number(1));
    assert_eq!(stage.answered(), [2, 1]);
    assert!(stage.proxies[0].committed().is_empty());
}

/// 4.8: "requests for individual locks are queued in the corresponding lock queues, as with any other transaction, and
/// the transaction is executed when all of its locks are available": it goes after what was numbered before it.
#[test]
fn section_4_8_a_single_read_waits_for_earlier_conflicting_ones() {
    let mut stage = stage(1);
    stage.ask(1, single_update(ITEM));
    stage.ask(2, single_read(&[ITEM], 10));
    stage.ask(3, single_read(&[AUTHOR], 10));
    assert_eq!((stage.runs_at(single(2)), stage.runs_at(single(3))), (vec![], vec![0]));
    stage.finish(0, number(1));
    assert_eq!(stage.runs_at(single(2)), [0]);
}

/// The same when the update has not arrived: no answered update is missed.
#[test]
fn section_4_8_a_single_read_is_not_stale() {
    let mut stage = stage(2);
    stage.cut(1);
    stage.ask(1, single_update(ITEM));
    stage.finish(0, number(1));
    assert_eq!(stage.answered(), [1]);
    let late = locks(&[ITEM], &[]);
    let message = ToProxy::SingleRead {
        session: SessionId(9),
        after: SequenceNumber(1),
        locks: late,
        operation: read(1),
    };
    stage.mail[1].push_front(message);
    stage.mend(1);
    assert_eq!((stage.runs_at(single(9)), stage.runs_at(number(1))), (vec![], vec![1]));
    stage.finish(1, number(1));
    assert_eq!(stage.runs_at(single(9)), [1]);
}

/// 4.9: "the lock request is implicit rather than sent in a separate lock request message to the database proxy".
#[test]
fn section_4_9_a_single_update_is_one_message_and_one_piece_of_work() {
    let mut stage = stage(2);
    stage.ask(1, single_update(ITEM));
    let sent = stage.trace.iter().filter(|line| line.contains("->")).count();
    assert_eq!(sent, 2);
    assert_eq!(stage.working[0][&number(1)], Work::RunAlone(write(1)));
    stage.finish(0, number(1));
    assert_eq!(stage.answered(), [1]);
}

/// 5.3: "before a commit query is issued to any database [...] logs the write queries to disk. After the disk logging
/// has completed, the commit is issued"; "For read-only transactions, the commit decision is [...] not logged".
#[test]
fn section_5_3_the_log_comes_first() {
    let mut stage = stage(2);
    stage.log_is_slow = true;
    stage.begin(1, &[], &[ITEM]);
    stage.execute(1, write(5));
    stage.finish_all(0);
    stage.commit(1);
    assert_eq!(stage.logged, [(SequenceNumber(1), vec![StatementId(5)])]);
    assert!(stage.runs_at(number(1)) == [1], "replica 0 is not told to commit");
    stage.ask(2, single_update(ORDERS));
    assert!(stage.runs_at(number(2)).is_empty(), "to run a single update is to commit it");
    stage.log_answers();
    assert_eq!(stage.working[0][&number(1)], Work::End(Ending::Commit));
    stage.begin(3, &[ORDERS, AUTHOR], &[]);
    stage.finish_all(0);
    stage.commit(3);
    assert_eq!(stage.logged.len(), 2);
}

/// 5.3: "Each database proxy maintains the sequence number for the last write it committed on each table."
#[test]
fn section_5_3_proxies_know_the_last_write_of_each_table() {
    let mut stage = stage(1);
    for table in [ITEM, ORDERS, ITEM] {
        stage.ask(1, single_update(table));
        stage.finish_all(0);
    }
    let last = |table| stage.proxies[0].committed()[&FragmentId::whole(DatabaseId::FIRST.table(table))];
    assert_eq!((last(ITEM), last(ORDERS)), (SequenceNumber(3), SequenceNumber(2)));
}

/// 5.3.1: "The database proxies rollback the specified transactions, and also fill the gap in lock sequence numbers in
/// case the lock with the sequence number specified in the abort was never received."
#[test]
fn section_5_3_1_an_abort_fills_the_gap() {
    let mut stage = stage(1);
    stage.cut(0);
    stage.begin(1, &[], &[ITEM]);
    stage.mail[0].clear();
    stage.begin(2, &[], &[ITEM]);
    stage.mend(0);
    assert!(stage.answered().is_empty(), "number 1 is missing");
    for message in roll_forward(&state(&stage, 0), &BTreeMap::new(), SequenceNumber(1)) {
        stage.hand(0, message);
    }
    assert!(stage.answered().contains(&2));
}

fn state(stage: &Stage, replica: usize) -> ProxyState {
    ProxyState::of(&stage.proxies[replica])
}

/// 5.3.1: "In this case, all the transaction's writes and its commit are replayed to the proxy. In the second case, the
/// fail-over scheduler first aborts the transaction and then sends the writes and the commit."
#[test]
fn section_5_3_1_decided_transactions_are_done_again_where_they_are_missing() {
    let mut stage = stage(3);
    stage.cut(2);
    stage.begin(1, &[], &[ITEM]);
    stage.execute(1, write(5));
    stage.finish_all(0);
    stage.finish_all(1);
    stage.cut(1);
    stage.commit(1);
    stage.finish_all(0);
    // The scheduler fails now: replica 0 has committed, 1 has written, 2 has heard nothing.
    stage.mail.iter_mut().for_each(std::collections::VecDeque::clear);
    let decided = BTreeMap::from([(SequenceNumber(1), (locks(&[], &[ITEM]), vec![write(5)]))]);
    let forward = |stage: &Stage, replica| roll_forward(&state(stage, replica), &decided, SequenceNumber(1));
    assert!(forward(&stage, 0).is_empty());
    for replica in [1, 2] {
        let late = ToProxy::Lock { number: SequenceNumber(2), locks: locks(&[ITEM], &[]) };
        let messages = forward(&stage, replica);
        stage.is_cut[replica] = false;
        stage.hand(replica, late);
        for message in messages {
            stage.hand(replica, message);
        }
        let mut done = Vec::new();
        while let Some(work) = stage.working[replica].get(&number(1)).copied() {
            assert!(!stage.working[replica].contains_key(&number(2)), "nothing gets in between");
            done.push(work);
            stage.finish(replica, number(1));
        }
        let again = [Work::Restart, Work::Run(write(5)), Work::End(Ending::Commit)];
        assert_eq!(done, again[usize::from(replica == 2)..]);
        assert_eq!(forward(&stage, replica), []);
    }
}

/// 5.1: "we assume a fail-stop fault model": a lost replica stops no transaction, and its reads are sent elsewhere.
#[test]
fn section_5_1_a_lost_replica_is_not_waited_for() {
    let mut stage = Stage::new(super::super::eager::EAGER, 2);
    stage.ask(1, single_read(&[AUTHOR], 10));
    let at = stage.runs_at(single(1))[0];
    stage.begin(2, &[], &[ITEM]);
    stage.execute(2, write(5));
    stage.finish(1 - at, number(1));
    assert_eq!(stage.answered(), [2]);
    stage.lose(at);
    assert_eq!(stage.answered(), [2]);
    stage.finish(1 - at, single(1));
    assert_eq!(stage.answered(), [1]);
    stage.commit(2);
    stage.finish_all(1 - at);
    assert_eq!((stage.answered(), stage.scheduler.active()), (vec![2], 0));
}

/// The same when the lost replica was the only one with the locks: another one will have them.
#[test]
fn section_5_1_a_read_waits_for_the_locks_elsewhere() {
    let mut stage = stage(2);
    stage.cut(1);
    stage.begin(1, &[ITEM], &[ORDERS]);
    stage.execute(1, read(10));
    assert_eq!((stage.answered(), stage.runs_at(number(1))), (vec![1], vec![0]));
    stage.working[0].clear();
    stage.lose(0);
    assert!(stage.answered().is_empty());
    stage.mend(1);
    stage.finish(1, number(1));
    assert_eq!(stage.answered(), [1]);
}

/// 3.1: "At the beginning of each transaction consisting of more than one query, the application writer inserts a lock
/// acquire specifying all tables accessed". Requests out of turn are refused, whatever a client does.
#[test]
fn section_3_1_locks_come_first_and_requests_out_of_turn_are_refused() {
    let mut stage = stage(1);
    stage.execute(1, write(1));
    stage.commit(1);
    stage.begin(1, &[], &[ITEM]);
    stage.begin(1, &[], &[ITEM]);
    stage.execute(1, write(1));
    stage.execute(1, write(2));
    let answers: Vec<Answer> = stage.replies().into_iter().map(|(_, answer)| answer).collect();
    use Answer::{Done, Refused};
    assert_eq!(answers, [Refused, Refused, Done, Refused, Refused]);
}
