//! Terms: fencing, what a new leader finds, and copies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ids::{Epoch, Version};

use super::fake::{Fake, Faults};
use super::{
    CLUSTER, Chair, Claimed, EtcdChair, EtcdKeys, Folder, Follower, Running, claim, copy_in, etcd_of, open,
    wait_until,
};
use crate::conformance::{SPILLED_ROWS, block_on, record, rows_of, spill};
use crate::etcd::{Confirmed, EtcdError};
use crate::file::tests::open_file_log;
use crate::{LogEngine, LogError, LogFailure, LogRefusal};

fn fake() -> (Arc<Fake>, EtcdKeys) {
    let fake = Arc::new(Fake::default());
    (Arc::clone(&fake), etcd_of(fake))
}

fn append(running: &Running, versions: std::ops::RangeInclusive<u64>) {
    let last = *versions.end();
    versions.for_each(|version| running.log.append(record(version, 50)));
    running.wait_for(last);
}

#[test]
fn of_two_claimants_one_wins() {
    let (_, etcd) = fake();
    let chairs = ["a", "b"].map(|node| EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), node, "x"));
    let readings = [chairs[0].read().unwrap(), chairs[1].read().unwrap()];
    let Claimed::Won(won) = chairs[0].claim(&readings[0], Epoch(4)).unwrap() else { panic!("a is first") };
    assert_eq!((won.epoch, &won.before), (Epoch(5), &None));
    let Claimed::Lost(to) = chairs[1].claim(&readings[1], Epoch(9)).unwrap() else { panic!("b is second") };
    let leader = to.leader.clone().unwrap();
    assert_eq!((leader.node.as_str(), leader.epoch, leader.nonce), ("a", Epoch(5), won.nonce));
    assert!(matches!(chairs[0].confirm(&won).unwrap(), Confirmed::InForce { .. }));
    let Claimed::Won(next) = chairs[1].claim(&to, Epoch(0)).unwrap() else {
        panic!("b claims with what it read")
    };
    assert_eq!((next.epoch, next.before.map(|before| before.node)), (Epoch(6), Some("a".to_owned())));
    assert!(matches!(chairs[0].confirm(&won).unwrap(), Confirmed::Superseded(Some(by)) if by.node == "b"));
}

/// While its members elect a leader, etcd forgets what it was asked. A new leader must not wait for long for that.
#[test]
fn what_etcd_has_forgotten_is_asked_again_soon() {
    let (fake, etcd) = fake();
    claim(&etcd, "a");
    fake.set_away(true);
    assert!(etcd.head(CLUSTER).is_err());
    let waits: Vec<u128> = fake.waits().iter().map(Duration::as_millis).collect();
    assert_eq!(waits, [500, 1_000, 2_000, 3_000, 3_000, 3_000]);
}

#[test]
fn a_claim_whose_answer_was_lost_is_known_as_ours() {
    for seed in 1..50 {
        let faults = Faults { lost_answers: 500, lost_requests: 100, late_duplicates: 300 };
        let etcd = etcd_of(Arc::new(Fake::with(seed, faults, None)));
        let chair = EtcdChair::new(etcd.store, etcd.keys, "a", "");
        let Ok(reading) = chair.read() else { continue };
        // No other node claims.
        if let Ok(claimed) = chair.claim(&reading, Epoch(0)) {
            assert!(matches!(claimed, Claimed::Won(_)), "{claimed:?}");
        }
    }
}

#[test]
fn a_leader_that_was_superseded_notices_and_adds_nothing() {
    let (fake, etcd) = fake();
    let (a, b) = (Folder::new(), Folder::new());
    let first = Running::open(&etcd, a.path(), "a");
    append(&first, 1..=5);
    let second = Running::open(&etcd, b.path(), "b");
    assert_eq!((second.recovered.last, second.recovered.begun), (Version(5), false));
    // Idle, it notices by itself.
    let failure = first.must_fail();
    assert!(matches!(&failure, LogFailure::Fenced { by: Epoch(2), node } if node == "b"), "{failure}");
    first.log.append(record(6, 50));
    append(&second, 6..=7);
    assert_eq!(first.log.durable(), Version(5));
    assert_eq!(fake.keys("/log/").len(), fake.history().len());
}

#[test]
fn a_leader_that_slept_can_make_nothing_durable() {
    let (fake, etcd) = fake();
    let (a, b) = (Folder::new(), Folder::new());
    let sleeper = Running::open(&etcd, a.path(), "a");
    append(&sleeper, 1..=2);
    // Its append is under way while the other one claims and goes on.
    fake.set_away(true);
    sleeper.log.append(record(3, 50));
    std::thread::sleep(Duration::from_millis(20));
    fake.set_away(false);
    let raced = Running::open(&etcd, b.path(), "b");
    let last = raced.recovered.last.0;
    append(&raced, last + 1..=last + 1);
    assert!(matches!(sleeper.must_fail(), LogFailure::Fenced { .. }));
    assert!(sleeper.log.durable() <= Version(last));
}

#[test]
fn a_leader_knows_since_when_it_leads() {
    let (fake, etcd) = fake();
    let folder = Folder::new();
    let before = Instant::now();
    let running = Running::open(&etcd, folder.path(), "a");
    assert!(running.log.confirmed_at() >= Some(before) && running.log.claim().sent_at >= before);
    let opened = Instant::now();
    wait_until("an idle leader confirms", || running.log.confirmed_at() > Some(opened));
    fake.set_away(true);
    std::thread::sleep(Duration::from_millis(30));
    let cut_off = running.log.confirmed_at();
    std::thread::sleep(Duration::from_millis(60));
    assert_eq!(running.log.confirmed_at(), cut_off, "no answer confirms nothing");
}

#[test]
fn new_commits_are_refused_when_etcd_is_away_and_queued_ones_are_written_later() {
    let (fake, etcd) = fake();
    let folder = Folder::new();
    let running = Running::open(&etcd, folder.path(), "a");
    append(&running, 1..=1);
    fake.set_away(true);
    running.log.append(record(2, 50));
    assert_eq!(running.log.refusal(), None, "not at once");
    wait_until("it refuses", || running.log.refusal() == Some(LogRefusal::NoMajority));
    assert_eq!(running.log.durable(), Version(1));
    fake.set_away(false);
    running.wait_for(2);
    wait_until("it takes commits again", || running.log.refusal().is_none());
    assert!(running.failed.try_recv().is_err());
}

#[test]
fn a_file_log_becomes_the_copy() {
    let (fake, etcd) = fake();
    let folder = Folder::new();
    let (files, _) = open_file_log(folder.path());
    (1..=30).for_each(|version| files.append(record(version, 50)));
    files.close();
    drop(files);
    let running = Running::open(&etcd, folder.path(), "a");
    assert_eq!((running.recovered.last, running.recovered.begun), (Version(30), false));
    append(&running, 31..=33);
    let read = |from| block_on(running.log.read_from(Version(from), 1)).unwrap();
    (1..=33).for_each(|version| assert_eq!(read(version), [record(version, 50)]));
    assert_eq!(fake.keys("/base").len(), 1);
    drop(running);
    // On another machine the log begins where etcd does, and no log was begun.
    let elsewhere = Folder::new();
    let running = Running::open(&etcd, elsewhere.path(), "b");
    assert_eq!((running.recovered.last, running.recovered.begun), (Version(33), false));
    assert_eq!(running.log.first_retained(), Version(31));
    append(&running, 34..=34);
}

#[test]
fn etcd_is_trimmed_behind_the_slowest_copy_and_a_copy_that_is_behind_begins_anew() {
    let (fake, etcd) = fake();
    let (a, b) = (Folder::new(), Folder::new());
    let leader = Running::open(&etcd, a.path(), "a");
    append(&leader, 1..=10);
    let follower = Follower::start(etcd.clone(), copy_in(b.path()).unwrap(), "b").unwrap();
    wait_until("it follows", || follower.copy().last() == Version(10));
    wait_until("it reports", || fake.keys("node/b").len() == 1);
    drop(follower.stop().unwrap());
    (11..=40).for_each(|version| append(&leader, version..=version));
    block_on(leader.log.trim(Version(40))).unwrap();
    wait_until("it is trimmed", || fake.keys("/log/")[0] > etcd.keys.log(Version(1)));
    std::thread::sleep(Duration::from_millis(50));
    assert!(fake.keys("/log/")[0] <= etcd.keys.log(Version(11)), "b has not copied version 11");
    // The node is given up.
    fake.set(&etcd.keys.node("b"), b"40");
    wait_until("it is trimmed", || fake.keys("/log/").len() == 1);
    let follower = Follower::start(etcd.clone(), copy_in(b.path()).unwrap(), "b").unwrap();
    assert_eq!(follower.copy().last(), Version(40));
    assert!(b.path().join("behind-10").is_dir());
    append(&leader, 41..=42);
    follower.hint();
    wait_until("it follows again", || follower.copy().last() == Version(42));
    assert!(follower.copy().wait_until_synced(Duration::from_mins(1)));
    assert_eq!(block_on(follower.copy().read_from(Version(41), 1 << 20)).unwrap().len(), 2);
    // It takes over with the copy that it has.
    let copy = follower.stop().unwrap();
    let (log, recovered) =
        super::EtcdLog::open_with(etcd.clone(), claim(&etcd, "b"), copy, &super::options("b"), super::QUICK)
            .unwrap();
    assert_eq!(recovered.last, Version(42));
    drop(log);
}

#[test]
fn the_newest_batch_is_never_trimmed() {
    let (fake, etcd) = fake();
    let folder = Folder::new();
    let running = Running::open(&etcd, folder.path(), "a");
    append(&running, 1..=9);
    running.log.append(record(10, 50));
    running.wait_for(10);
    block_on(running.log.trim(Version(10))).unwrap();
    wait_until("all but one batch go", || fake.keys("/log/").len() == 1);
    append(&running, 11..=11);
    drop(running);
    assert_eq!(open(&etcd, folder.path(), "a").unwrap().1.last, Version(11));
}

#[test]
fn a_record_that_is_too_large_for_one_value_comes_back() {
    let (fake, etcd) = fake();
    let (a, b) = (Folder::new(), Folder::new());
    let running = Running::open(&etcd, a.path(), "a");
    let large = record(1, 5 << 20);
    running.log.append(Arc::clone(&large));
    running.wait_for(1);
    assert_eq!(fake.keys("/part/").len(), 6);
    let other = Running::open(&etcd, b.path(), "b");
    assert_eq!(block_on(other.log.read_from(Version(1), 1)).unwrap(), [large]);
    append(&other, 2..=3);
    block_on(other.log.trim(Version(3))).unwrap();
    wait_until("a is given up", || {
        fake.set(&etcd.keys.node("a"), b"3");
        fake.keys("/part/").is_empty()
    });
}

#[test]
fn a_copy_that_contradicts_etcd_is_refused() {
    let (_, etcd) = fake();
    let (a, b) = (Folder::new(), Folder::new());
    let running = Running::open(&etcd, a.path(), "a");
    append(&running, 1..=3);
    drop(running);
    for (last, payload) in [(3, 51), (4, 50)] {
        let dir = b.path().join(last.to_string());
        let (files, _) = open_file_log(&dir);
        (1..=last).for_each(|version| files.append(record(version, payload)));
        files.close();
        drop(files);
        let refused = open(&etcd, &dir, "b").unwrap_err();
        match refused {
            LogError::Etcd(EtcdError::CopyContradicts { version, .. }) => {
                assert_eq!((last, version), (3, Version(3)));
            }
            LogError::Etcd(EtcdError::CopyIsAhead { copied, last, .. }) => {
                assert_eq!((copied, last), (Version(4), Version(3)));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn spilled_rows_reach_other_machines_and_leave_etcd_with_their_record() {
    let (fake, etcd) = fake();
    let (a, b) = (Folder::new(), Folder::new());
    let running = Running::open(&etcd, a.path(), "a");
    let spilled = spill(&running.log, 1);
    running.log.append(Arc::clone(&spilled));
    running.wait_for(1);
    // One transaction has no record when the leader is lost.
    spill(&running.log, 9);
    assert_eq!(fake.keys("/rows/").len(), 2);
    let follower = Follower::start(etcd.clone(), copy_in(b.path()).unwrap(), "b").unwrap();
    assert_eq!(follower.copy().last(), Version(1));
    let copy = follower.stop().unwrap();
    // The records of these tests have epoch 7.
    let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), "b", "");
    let claimed = chair.claim(&chair.read().unwrap(), Epoch(7)).unwrap();
    let Claimed::Won(claim) = claimed else { panic!("{claimed:?}") };
    let (log, _) =
        super::EtcdLog::open_with(etcd.clone(), claim, copy, &super::options("b"), super::QUICK).unwrap();
    assert_eq!(rows_of(&log, &spilled).unwrap(), SPILLED_ROWS);
    assert_eq!(fake.keys("/rows/").len(), 1, "rows without a record are deleted");
    drop(log);
    let running = Running::open(&etcd, b.path(), "b");
    append(&running, 2..=3);
    block_on(running.log.trim(Version(3))).unwrap();
    wait_until("the rows go with their record", || {
        fake.set(&etcd.keys.node("a"), b"3");
        fake.keys("/rows/").is_empty()
    });
}

#[test]
fn a_log_that_is_closed_while_etcd_is_away_says_what_is_not_known() {
    let (fake, etcd) = fake();
    let folder = Folder::new();
    let running = Running::open(&etcd, folder.path(), "a");
    append(&running, 1..=1);
    fake.set_away(true);
    running.log.append(record(2, 50));
    running.log.close();
    assert!(matches!(running.must_fail(), LogFailure::ClosedUnwritten { durable: Version(1) }));
    fake.set_away(false);
    drop(running);
    assert_eq!(open(&etcd, folder.path(), "a").unwrap().1.last, Version(1));
}
