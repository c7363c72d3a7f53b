//! Sentences of the paper, its figures as scripts, and a comparison with a naive model.

mod against_model;
mod figures;
mod instance;
mod stage;

use std::sync::Arc;

use super::*;
use crate::claims::Claims;
use crate::ids::DatabaseId;

const PAPER: Rules = Rules {
    wait_us: 10,
    start: Start::OnArrival,
    classes: Classes::ByClaims,
    reach: Reach::Younger,
    commit: Commit::ByItself,
    guards: Guards::ALL,
};

fn rows(numbers: &[u64]) -> Claims {
    let table = DatabaseId::FIRST.table(1);
    Claims { rows: numbers.iter().map(|row| (table, *row)).collect(), ..Claims::default() }
}

fn claimed(numbers: &[u64]) -> Arc<Claims> {
    Arc::new(rows(numbers))
}

fn at(us: u64) -> Time {
    Time { us }
}

fn stamp(us: u64, origin: u16) -> Stamp {
    Stamp { us, origin: ReplicaId(origin), n: us }
}

fn agent(rules: Rules) -> Agent {
    Agent::new(ReplicaId(1), rules)
}

/// 4.1: "the earliest time a transaction is submitted is C + Max + epsilon".
#[test]
fn section_4_1_nothing_starts_before_its_delivery_time() {
    let mut agent = agent(Rules { start: Start::Ordered, ..PAPER });
    assert_eq!(agent.arrived(at(6), stamp(5, 1), claimed(&[1]), Can::Perform), []);
    assert_eq!(agent.next_alarm(), Some(at(15)));
    assert_eq!(agent.alarm(at(14)), []);
    assert_eq!(agent.alarm(at(15)), [Act::Perform(stamp(5, 1))]);
    assert_eq!(agent.next_alarm(), None);
}

/// 5.1: "a transaction can be committed only after Max + epsilon".
#[test]
fn section_5_1_what_starts_at_once_commits_at_its_delivery_time() {
    let mut agent = agent(PAPER);
    let t = stamp(5, 1);
    assert_eq!(agent.arrived(at(6), t, claimed(&[1]), Can::Perform), [Act::Perform(t)]);
    assert_eq!(agent.performed(t), []);
    assert_eq!(agent.alarm(at(15)), [Act::Commit(t)]);
    assert!(agent.is_empty());
}

/// 5.1: "So, the time to refresh a multi-master copy is max[(Max + epsilon), t]."
#[test]
fn section_5_1_what_takes_longer_commits_when_it_ends() {
    let mut agent = agent(PAPER);
    let t = stamp(5, 1);
    assert_eq!(agent.arrived(at(6), t, claimed(&[1]), Can::Perform), [Act::Perform(t)]);
    assert_eq!(agent.alarm(at(15)), []);
    assert_eq!(agent.performed(t), [Act::Commit(t)]);
}

/// 5.1: "when a transaction T is received out-of-order, all younger transactions must be aborted and re-submitted according to their
/// correct timestamp order". Of those that do not conflict with it, only under the paper's reach.
#[test]
fn section_5_1_younger_ones_are_undone() {
    for (reach, undone) in [(Reach::Younger, 2), (Reach::Conflicting, 1)] {
        let mut agent = agent(Rules { reach, ..PAPER });
        let [late, other, same] = [stamp(1, 2), stamp(3, 1), stamp(4, 1)];
        agent.arrived(at(4), other, claimed(&[2]), Can::Perform);
        agent.arrived(at(4), same, claimed(&[1]), Can::Perform);
        let acts = agent.arrived(at(5), late, claimed(&[1]), Can::Perform);
        let undo = [Act::Undo(other), Act::Undo(same)];
        assert_eq!(acts, undo[2 - undone..], "the late one waits for what conflicts with it");
        let of_other = agent.undone(other);
        assert_eq!(of_other, []);
        assert_eq!(agent.undone(same)[0], Act::Perform(late));
        assert_eq!((agent.counts().unordered, agent.counts().undone), (1, undone as u64));
    }
}

/// 5.2 (ii): "Commit a transaction iff no older transactions are still running."
#[test]
fn section_5_2_commits_are_in_order() {
    let mut agent = agent(PAPER);
    let [t1, t2] = [stamp(1, 1), stamp(2, 1)];
    agent.arrived(at(3), t1, claimed(&[1]), Can::Perform);
    agent.arrived(at(3), t2, claimed(&[2]), Can::Perform);
    assert_eq!(agent.performed(t2), []);
    assert_eq!(agent.alarm(at(20)), []);
    assert_eq!(agent.performed(t1), [Act::Commit(t1), Act::Commit(t2)]);
}

/// 5.2: "if the subset of the transaction cannot be determined, then we consider the transaction to be conflicting with all other
/// transactions".
#[test]
fn section_5_2_unknown_transactions_conflict_with_all() {
    let mut agent = agent(PAPER);
    agent.arrived(at(3), stamp(1, 1), claimed(&[1]), Can::Perform);
    assert_eq!(agent.arrived(at(3), stamp(2, 1), Arc::new(Claims::everything()), Can::Perform), []);
    assert_eq!(agent.arrived(at(3), stamp(3, 1), claimed(&[2]), Can::Perform), []);
}

/// Ours: what waits for its refresh transaction holds up only what conflicts with it.
#[test]
fn standby_lets_others_pass() {
    for reach in [Reach::Younger, Reach::Conflicting] {
        let mut agent = agent(Rules { reach, ..PAPER });
        let [foreign, same, other] = [stamp(1, 2), stamp(2, 1), stamp(3, 1)];
        assert_eq!(agent.arrived(at(3), foreign, claimed(&[1]), Can::NeedsRefresh), []);
        assert_eq!(agent.arrived(at(3), other, claimed(&[2]), Can::Perform), [Act::Perform(other)]);
        assert_eq!(agent.refreshed(foreign), [Act::Apply(foreign)]);
        assert_eq!(agent.refreshed(foreign), [], "it comes once");
        agent.alarm(at(20));
        assert_eq!(
            agent.arrived(at(20), same, claimed(&[1]), Can::Perform),
            [Act::Undo(other)][..usize::from(reach == Reach::Younger)]
        );
        assert_eq!(agent.performed(foreign)[0], Act::Commit(foreign));
    }
}

/// A message that takes longer than Max: the paper's order is lost at this replica, and that is counted.
#[test]
fn what_comes_after_the_commit_of_a_younger_one_is_counted() {
    let mut agent = agent(PAPER);
    let [late, t] = [stamp(4, 2), stamp(5, 1)];
    agent.arrived(at(6), t, claimed(&[1]), Can::Perform);
    agent.performed(t);
    assert_eq!(agent.alarm(at(15)), [Act::Commit(t)]);
    assert_eq!(agent.arrived(at(16), late, claimed(&[1]), Can::Perform), [Act::Perform(late)]);
    assert_eq!(agent.performed(late), [Act::Commit(late)]);
    let Counts { unordered, late, overtaken, .. } = agent.counts();
    assert_eq!((unordered, late, overtaken), (1, 1, 1));
}

/// The example in the head of [`Appends`]: with the log the younger one is not committed before the late one.
#[test]
fn the_log_keeps_the_order_whatever_is_late() {
    let mut agents = [1, 2].map(|id| Agent::new(ReplicaId(id), Rules { commit: Commit::ByTheLog, ..PAPER }));
    let mut appends = Appends::default();
    let t1 = appends.stamp(at(100), ReplicaId(1));
    let t2 = appends.stamp(at(105), ReplicaId(2));
    agents[0].arrived(at(101), t1, claimed(&[1]), Can::Perform);
    agents[1].arrived(at(106), t2, claimed(&[1]), Can::Perform);
    assert_eq!(agents[1].performed(t2), []);
    assert_eq!(agents[1].alarm(at(200)), []);
    assert!(agents[1].ready() == Some(t2) && !appends.is_next(t2), "the log knows of T1");
    agents[0].performed(t1);
    agents[0].alarm(at(200));
    assert!(agents[0].ready() == Some(t1) && appends.is_next(t1));
    appends.appended(t1);
    assert_eq!(agents[0].logged(t1), [Act::Commit(t1)]);
    assert_eq!(agents[1].logged(t1), []);
    assert_eq!(agents[1].ready(), None, "it has a record to commit first");
    assert_eq!(agents[1].arrived(at(201), t1, claimed(&[1]), Can::Perform), [Act::Undo(t2)]);
    assert_eq!(agents[1].undone(t2), [Act::Perform(t1)]);
    assert_eq!(agents[1].performed(t1), [Act::Commit(t1), Act::Perform(t2)]);
    agents[1].performed(t2);
    assert_eq!(agents[1].ready(), Some(t2));
    assert_eq!((agents[1].counts().late, agents[1].counts().overtaken), (1, 0));
    assert!(appends.stamp(at(3), ReplicaId(1)).us > t1.us, "a clock far behind gets no stamp in the past");
}

/// A transaction whose origin is lost: what stood behind it goes on.
#[test]
fn what_is_ended_blocks_nothing() {
    let mut agent = agent(PAPER);
    let [t1, t2] = [stamp(1, 2), stamp(2, 1)];
    agent.arrived(at(3), t1, claimed(&[1]), Can::NeedsRefresh);
    assert_eq!(agent.arrived(at(3), t2, claimed(&[1]), Can::Perform), []);
    assert_eq!(agent.ended(t1), [Act::Perform(t2)]);
    assert_eq!(agent.next_alarm(), Some(at(12)), "no alarm is set for it");
    assert_eq!(agent.ended(t1), []);
}

#[test]
fn stamps_of_an_origin_ascend_whatever_its_clock_does() {
    let mut stamper = Stamper::new(ReplicaId(3));
    let stamps = [7, 7, 5, 9].map(|us| stamper.stamp(at(us)));
    assert!(stamps.is_sorted() && stamps.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(stamps.map(|stamp| stamp.us), [7, 7, 7, 9]);
}
