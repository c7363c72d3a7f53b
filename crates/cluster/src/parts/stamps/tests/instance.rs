//! The stamps of a whole instance: which replicas hear of what, and what may be appended.

use super::*;
use crate::event::{Message, Role};
use crate::ids::{Epoch, Identity, Nonce, SessionId};
use crate::placement::ReplicaSet;

const WAIT_US: u64 = 10;
const FIRST: SessionId = SessionId(1);
const SECOND: SessionId = SessionId(2);

fn mode(skew_us: u64) -> Mode {
    Mode { start: Start::OnArrival, wait_us: WAIT_US, skew_us }
}

/// Three replicas, all up.
fn instance(guards: Guards, skew_us: u64) -> Instance {
    let mut instance = Instance::new(mode(skew_us), guards);
    for replica in 0..3 {
        assert_eq!(instance.up(at(0), replica), []);
    }
    instance
}

fn identity(session: SessionId) -> Identity {
    Identity { epoch: Epoch(1), n: session.0, nonce: Nonce(0) }
}

/// A transaction that writes these rows and is performed everywhere.
fn submit(instance: &mut Instance, us: u64, session: SessionId, home: usize, written: &[u64]) -> Vec<Step> {
    let performers = ReplicaSet::first(3);
    let (claims, can) = (claimed(written), Can::Perform);
    instance.submit(
        at(us),
        session,
        Submission { identity: identity(session), home, claims, can, performers },
    )
}

fn messages(steps: &[Step]) -> Vec<(usize, Message)> {
    let sent = |step: &Step| match step {
        Step::Send { to, message, .. } => Some((usize::from(to.0), message.clone())),
        _ => None,
    };
    steps.iter().filter_map(sent).collect()
}

#[test]
fn each_other_replica_hears_of_a_transaction_and_home_starts_at_once() {
    let mut instance = instance(Guards::ALL, 0);
    let steps = submit(&mut instance, 100, FIRST, 1, &[1]);
    assert_eq!(steps.last(), Some(&Step::Run(FIRST)));
    let sent = messages(&steps);
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [0, 2]);
    let Message::Submitted { stamp, role, .. } = &sent[0].1;
    assert_eq!((stamp.us, stamp.origin, *role), (100, ReplicaId(1), Role::Performs));
    let performs = Step::Perform { replica: 0, session: FIRST, identity: identity(FIRST), stamp: *stamp };
    assert_eq!(instance.arrived(at(101), 0, sent[0].1.clone()), [performs]);
    assert_eq!(instance.arrived(at(101), 0, sent[0].1.clone()), [], "it comes once");
}

#[test]
fn only_the_oldest_open_transaction_is_next() {
    for guards in [Guards::ALL, Guards { appends_are_ordered: false, ..Guards::ALL }] {
        let mut instance = instance(guards, 0);
        submit(&mut instance, 100, FIRST, 0, &[1]);
        submit(&mut instance, 105, SECOND, 1, &[2]);
        instance.finished(SECOND);
        assert_eq!(instance.next(), None, "it is not ordered");
        instance.alarm(at(120), 1);
        assert_eq!(instance.next(), (!guards.appends_are_ordered).then_some(SECOND));
        instance.ended(FIRST);
        assert_eq!(instance.next(), Some(SECOND), "what ends keeps no one waiting");
    }
}

#[test]
fn a_record_is_heard_of_everywhere_before_its_message_comes() {
    let mut instance = instance(Guards::ALL, 0);
    let sent = messages(&submit(&mut instance, 100, FIRST, 0, &[1]));
    submit(&mut instance, 105, SECOND, 1, &[1]);
    instance.finished(FIRST);
    instance.alarm(at(110), 0);
    let (stamp, steps) = instance.appended(at(111), FIRST).expect("it is open");
    assert_eq!(steps, [Step::Undo(SECOND)], "it has not seen the first one");
    assert_eq!(instance.undone_at_home(SECOND), [], "it waits until that is shown");
    for (to, message) in sent {
        assert_eq!(instance.arrived(at(130), to, message), [], "the message says nothing new");
    }
    assert_eq!(instance.seen(), Seen { sent: 4, unordered: 1, late: 2, undone: 1 });
    assert_eq!(instance.committed(1, stamp), [Step::Run(SECOND)]);
}

#[test]
fn a_replica_that_comes_up_waits_for_the_records_of_what_is_open() {
    let mut instance = instance(Guards::ALL, 0);
    instance.lost(2);
    let sent = messages(&submit(&mut instance, 100, FIRST, 0, &[1]));
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [1], "2 is not there");
    assert_eq!(instance.up(at(101), 2), []);
    let behind = submit(&mut instance, 102, SECOND, 2, &[1]);
    assert!(!behind.contains(&Step::Run(SECOND)), "the older one conflicts");
    assert_eq!(instance.rival(SECOND), Some(FIRST));
}

#[test]
fn clocks_that_differ_change_no_order_of_what_is_answered() {
    let mut instance = instance(Guards::ALL, 50);
    submit(&mut instance, 100, FIRST, 2, &[1]);
    instance.finished(FIRST);
    instance.alarm(at(110), 2);
    let (first, _) = instance.appended(at(110), FIRST).expect("it is open");
    submit(&mut instance, 111, SECOND, 0, &[2]);
    assert_eq!(first.us, 200, "by the clock of 2");
    assert!(instance.stamp(SECOND) > Some(first), "although the clock of 0 shows 111");
}

#[test]
fn each_replica_has_its_alarm_by_its_own_clock() {
    let mut instance = instance(Guards::ALL, 50);
    let sent = messages(&submit(&mut instance, 100, FIRST, 1, &[1]));
    assert_eq!(instance.next_alarm(1), Some(at(100 + WAIT_US)), "stamp 150, and a clock 50 ahead");
    assert_eq!(instance.next_alarm(0), None);
    instance.arrived(at(101), 0, sent[0].1.clone());
    assert_eq!(instance.next_alarm(0), Some(at(150 + WAIT_US)));
}
