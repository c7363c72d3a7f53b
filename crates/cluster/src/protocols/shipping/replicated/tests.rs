//! The rules of sections 5.2 and 5.3 for several schedulers, each with its sentence.

use std::collections::VecDeque;

use super::{ReplicatedOutput, ReplicatedScheduler};
use crate::ids::SessionId;
use crate::protocols::conflict_aware::CONFLICT_AWARE;
use crate::protocols::shipping::stage::{locks, read, write};
use crate::protocols::shipping::{
    Ending, FromProxy, Output, Request, SchedulerId, SequenceNumber, ToPeer, ToProxy,
};

const ITEM: u32 = 1;
const ORDERS: u32 = 2;
const NONE: SequenceNumber = SequenceNumber(0);

/// Schedulers of one replica, whose messages to each other wait until they are delivered.
struct Room {
    all: Vec<ReplicatedScheduler>,
    mail: VecDeque<(SchedulerId, SchedulerId, ToPeer)>,
    /// What each has sent to the proxy, or to its log.
    sent: Vec<Vec<Output>>,
}

impl Room {
    fn new(count: u8) -> Self {
        let ids: Vec<SchedulerId> = (0..count).map(SchedulerId).collect();
        let one = |id: &SchedulerId| ReplicatedScheduler::new(*id, &ids, CONFLICT_AWARE, 1, NONE);
        let all: Vec<_> = ids.iter().map(one).collect();
        Self { sent: vec![Vec::new(); all.len()], all, mail: VecDeque::new() }
    }

    fn act(&mut self, at: usize, act: impl FnOnce(&mut ReplicatedScheduler, &mut Vec<ReplicatedOutput>)) {
        let mut out = Vec::new();
        act(&mut self.all[at], &mut out);
        for output in out {
            match output {
                ReplicatedOutput::ToPeer(to, message) => {
                    self.mail.push_back((SchedulerId(at as u8), to, message));
                }
                ReplicatedOutput::Own(output) => self.sent[at].push(output),
            }
        }
    }

    fn ask(&mut self, at: usize, session: u64, request: Request) {
        self.act(at, |one, out| one.request(SessionId(session), request, out));
    }

    /// Delivers all messages, also those that follow.
    fn deliver(&mut self) {
        while let Some((from, to, message)) = self.mail.pop_front() {
            self.act(usize::from(to.0), |one, out| one.hear(from, message, out));
        }
    }

    fn report(&mut self, at: usize, report: FromProxy) {
        self.act(at, |one, out| one.report(crate::ids::ReplicaId(0), report, out));
    }

    fn lose(&mut self, failed: u8) {
        for at in (0..self.all.len()).filter(|at| *at != usize::from(failed)) {
            self.act(at, |one, out| one.scheduler_lost(SchedulerId(failed), out));
        }
        self.deliver();
    }

    fn sent(&mut self, at: usize) -> Vec<Output> {
        std::mem::take(&mut self.sent[at])
    }

    /// The numbers of lock requests that this one has sent.
    fn locked(&mut self, at: usize) -> Vec<u64> {
        let number = |output| match output {
            Output::ToProxy(_, ToProxy::Lock { number, .. }) => Some(number.0),
            _ => None,
        };
        self.sent(at).into_iter().filter_map(number).collect()
    }
}

fn begin(table: u32) -> Request {
    Request::Begin(locks(&[], &[table]))
}

/// 5.2: "the scheduler sends to all other schedulers a replicate_start_transaction message containing the sequence number for
/// this transaction, and waits for an acknowledgment from all of them."
#[test]
fn section_5_2_a_start_is_told_to_all_first() {
    let mut room = Room::new(3);
    room.ask(0, 1, begin(ITEM));
    let starts: Vec<_> = room.mail.iter().map(|(_, to, message)| (to.0, message.clone())).collect();
    let start = ToPeer::Start(SequenceNumber(1));
    assert_eq!(starts, [(1, start.clone()), (2, start)]);
    assert!(room.sent(0).is_empty(), "no lock request yet");
    room.deliver();
    assert_eq!(room.locked(0), [1]);
    room.ask(2, 2, begin(ITEM));
    room.deliver();
    assert_eq!(room.locked(2), [2], "one sequence for all");
    assert_eq!(room.all[1].records(), 2);
}

/// 5.2: "replication of the sequence numbers on all schedulers allows for restarting the sequencer with the last sequence number
/// on another machine."
#[test]
fn section_5_2_the_sequencer_goes_on_elsewhere() {
    let mut room = Room::new(3);
    room.ask(1, 1, begin(ITEM));
    room.deliver();
    room.locked(1);
    room.ask(2, 2, begin(ITEM));
    room.mail.clear();
    room.lose(0);
    assert_eq!(room.locked(2), [2], "what was asked of the one that failed is asked again");
}

/// 5.3: "before a commit query is issued to any database, the scheduler sends a replicate_end_transaction message [..] waits for
/// the acknowledgments, then logs the write queries to disk. After the disk logging has completed, the commit is issued"; "For
/// read-only transactions, the commit decision is replicated but not logged to disk."
#[test]
fn section_5_3_an_end_is_told_to_all_then_logged_then_issued() {
    let mut room = Room::new(2);
    for (session, operation) in [(1, write(5)), (2, read(10))] {
        let number = SequenceNumber(session);
        room.ask(0, session, Request::Begin(locks(&[ORDERS], &[ITEM])));
        room.deliver();
        room.report(0, FromProxy::Granted(number));
        room.ask(0, session, Request::Execute(operation));
        room.report(0, FromProxy::Done(number, operation));
        room.sent(0);
        room.ask(0, session, Request::End(Ending::Commit));
        assert!(room.sent(0).is_empty() && !room.mail.is_empty());
        room.deliver();
        let sent = room.sent(0);
        if session == 1 {
            assert!(matches!(sent[..], [Output::Log(..)]), "{sent:?}");
            room.act(0, |one, out| one.logged(number, out));
        } else {
            assert!(matches!(sent[..], [Output::ToProxy(_, ToProxy::End { .. })]), "{sent:?}");
        }
        room.report(0, FromProxy::Ended(number, None));
        room.deliver();
        assert_eq!(room.all[1].records(), 0, "all replicas have it, so the record goes");
    }
}

/// 5.3.1: "all transactions of the failed scheduler for which the live schedulers do not have a commit decision are aborted. A
/// transaction for which a commit record exists, but for which a database proxy has not yet received the commit decision is [..]
/// replayed."
#[test]
fn section_5_3_1_decided_work_is_done_again_and_the_rest_undone() {
    let mut room = Room::new(2);
    room.ask(1, 1, begin(ITEM));
    room.ask(1, 2, Request::SingleUpdate(locks(&[], &[ORDERS]), write(6)));
    room.deliver();
    room.lose(1);
    let sent = room.sent(0);
    assert!(
        matches!(
            sent[..],
            [
                Output::ToProxy(_, ToProxy::Undo { number: SequenceNumber(1) }),
                Output::Log(SequenceNumber(2), _)
            ]
        ),
        "{sent:?}"
    );
    room.act(0, |one, out| one.logged(SequenceNumber(2), out));
    let sent = room.sent(0);
    assert!(matches!(&sent[..], [Output::ToProxy(_, ToProxy::Redo { writes, .. })] if *writes == [write(6)]));
}
