//! The engine on etcd passes the conformance tests, on a real etcd and on one in memory; these are the tests of what is its own.

mod fake;
mod faults;
mod real;
mod register;
mod terms;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use cluster::ids::{Epoch, Version};

use super::engine::{EtcdLog, EtcdOptions};
use super::sequencer::Pace;
use super::{Chair, Claim, Claimed, EtcdChair, EtcdKeys, Follower, Gateway, Keys, LogCopy, Store, TlsFiles};
use crate::conformance::{CLUSTER, PATIENCE, Subject, conformance};
use crate::file::Origin;
use crate::file::tests::{Folder, TINY};
use crate::{LogEngine, LogError, LogFailure, Notices, Recovered};
use fake::Fake;

/// Quick, so that a test which waits for a time is short.
const QUICK: Pace = Pace {
    first_deadline: Duration::from_millis(300),
    longest_deadline: Duration::from_secs(1),
    pause: Duration::from_millis(2),
    confirm_after: Duration::from_millis(10),
    close_patience: Duration::from_secs(1),
    trim_every: Duration::from_millis(10),
};

fn etcd_of(store: Arc<dyn Store>) -> EtcdKeys {
    EtcdKeys { store, keys: Keys::new("main") }
}

fn gateway(urls: &[String]) -> Arc<Gateway> {
    Arc::new(Gateway::new(urls, &TlsFiles::default()).unwrap())
}

fn copy_in(dir: &Path) -> Result<LogCopy, LogError> {
    LogCopy::open_at(dir, Origin { cluster: CLUSTER, first: Version(1) }, TINY)
}

fn claim(etcd: &EtcdKeys, node: &str) -> Claim {
    let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), node, "");
    match chair.claim(&chair.read().unwrap(), Epoch(0)).unwrap() {
        Claimed::Won(claim) => claim,
        Claimed::Lost(to) => panic!("{to:?}"),
    }
}

fn options(node: &str) -> EtcdOptions {
    EtcdOptions { node: node.into(), patience: Duration::from_millis(200) }
}

/// Claims, and opens the log in that folder.
fn open(etcd: &EtcdKeys, dir: &Path, node: &str) -> Result<(EtcdLog, Recovered), LogError> {
    let copy = copy_in(dir)?;
    EtcdLog::open_with(etcd.clone(), claim(etcd, node), copy, &options(node), QUICK)
}

/// A log that runs, and what it has reported.
struct Running {
    log: EtcdLog,
    recovered: Recovered,
    _durable: Receiver<Version>,
    failed: Receiver<LogFailure>,
}

impl Running {
    fn open(etcd: &EtcdKeys, dir: &Path, node: &str) -> Self {
        let (log, recovered) = open(etcd, dir, node).unwrap();
        let (durable_to, durable) = mpsc::channel();
        let (failed_to, failed) = mpsc::channel();
        log.start(Notices {
            durable: Box::new(move |version| durable_to.send(version).unwrap_or(())),
            failed: Box::new(move |failure| failed_to.send(failure).unwrap_or(())),
        })
        .unwrap();
        Self { log, recovered, _durable: durable, failed }
    }

    fn wait_for(&self, version: u64) {
        wait_until("the version becomes durable", || self.log.durable() >= Version(version));
    }

    fn must_fail(&self) -> LogFailure {
        self.failed.recv_timeout(PATIENCE).expect("the log fails")
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The engine on a real etcd of one member.
struct OnEtcd {
    folder: Folder,
    server: etcdserver::Etcd,
}

impl Default for OnEtcd {
    fn default() -> Self {
        Self { folder: Folder::default(), server: etcdserver::Etcd::start(1) }
    }
}

impl Subject for OnEtcd {
    const PATIENCE: Duration = PATIENCE;

    fn open(&self) -> (Box<dyn LogEngine>, Recovered) {
        let (log, recovered) = open(&etcd_of(gateway(&self.server.urls())), self.folder.path(), "a").unwrap();
        (Box::new(log), recovered)
    }

    fn set_full(&self, is_full: bool) {
        gateway(&self.server.urls()).set_no_space(is_full).unwrap();
    }
}

/// The engine on an etcd in memory.
#[derive(Default)]
struct OnFake {
    folder: Folder,
    fake: Arc<Fake>,
}

impl Subject for OnFake {
    const PATIENCE: Duration = PATIENCE;

    fn open(&self) -> (Box<dyn LogEngine>, Recovered) {
        let (log, recovered) =
            open(&etcd_of(Arc::clone(&self.fake) as Arc<_>), self.folder.path(), "a").unwrap();
        (Box::new(log), recovered)
    }

    fn set_full(&self, is_full: bool) {
        self.fake.set_full(is_full);
    }
}

mod on_etcd {
    use super::{OnEtcd, conformance};

    conformance!(OnEtcd);
}

mod on_fake {
    use super::{OnFake, conformance};

    conformance!(OnFake);
}
