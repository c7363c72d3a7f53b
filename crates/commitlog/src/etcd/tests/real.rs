//! On three members of a real etcd.

use std::time::{Duration, Instant};

use cluster::ids::Version;

use super::{Folder, Running, etcd_of, gateway, wait_until};
use crate::conformance::{block_on, record};
use crate::{LogEngine, LogRefusal};

#[test]
fn commits_survive_kills_of_members_and_wait_for_a_majority() {
    let server = etcdserver::Etcd::start(3);
    let etcd = etcd_of(gateway(&server.urls()));
    let (a, b) = (Folder::new(), Folder::new());
    let running = Running::open(&etcd, a.path(), "a");
    let mut version = 0;
    let mut append = |count: u64| {
        (0..count).for_each(|_| {
            version += 1;
            running.log.append(record(version, 200));
        });
        running.wait_for(version);
        version
    };
    append(50);
    // One of them leads, and each is asked by this client in turn.
    for member in 0..3 {
        server.kill(member);
        append(20);
        server.restart(member);
    }
    server.freeze(0, true);
    append(5);
    server.freeze(0, false);
    let last = append(1);
    (0..3).for_each(|member| server.kill(member));
    running.log.append(record(last + 1, 200));
    let away = Instant::now();
    wait_until("commits are refused", || running.log.refusal() == Some(LogRefusal::NoMajority));
    assert_eq!(running.log.durable(), Version(last));
    assert!(away.elapsed() < Duration::from_secs(30));
    server.restart_all();
    running.wait_for(last + 1);
    wait_until("commits are taken", || running.log.refusal().is_none());
    drop(running);
    // A machine that has nothing gets all.
    let other = Running::open(&etcd, b.path(), "b");
    assert_eq!(other.recovered.last, Version(last + 1));
    let mut next = 1;
    while next <= last + 1 {
        for found in block_on(other.log.read_from(Version(next), usize::MAX)).unwrap() {
            assert_eq!(*found, *record(next, 200));
            next += 1;
        }
    }
}

#[test]
fn a_member_tells_its_release() {
    let server = etcdserver::Etcd::start(1);
    let mut urls = server.urls();
    urls.push("http://127.0.0.1:1".into());
    let gateway = gateway(&urls);
    let versions = gateway.versions();
    assert!(versions[0].as_ref().unwrap().version.starts_with("3."), "{versions:?}");
    assert!(versions[1].as_ref().unwrap_err().is_ambiguous());
    assert_eq!(gateway.members(), Ok(1));
}
