//! The frame on a real server: every micro load, both loops, and that what is wrong is found.

use std::time::Duration;

use testbed::account::Account;
use testbed::interrupt::Interrupt;
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::scratch::Scratch;
use tokio_postgres::Config;

use super::{Course, Endpoints, Isolation, Pace, Workload, drive};
use crate::judge;
use crate::load::{open, populate, runtime};
use crate::micro::{Micro, Shape};

/// A server of a test, and where it lives; the server goes first.
pub(crate) struct Server {
    plain: Plain,
    _scratch: Scratch,
}

impl Server {
    /// Starts one.
    pub(crate) fn start() -> Self {
        let scratch = Scratch::new().unwrap();
        let binaries = Binaries::find(None).unwrap();
        let account = Account::choose().unwrap();
        let plain =
            Plain::start(&binaries, account, &Likeness::bare(), &scratch, &Interrupt::default()).unwrap();
        Self { plain, _scratch: scratch }
    }

    /// Where it is.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let mut main = Config::new();
        main.host("127.0.0.1").port(self.plain.endpoint.port).user("postgres").dbname("postgres");
        Endpoints { main, others: Vec::new(), readers: Vec::new(), declares: false }
    }
}

/// A short course without pauses.
pub(crate) fn course(clients: usize, length_ms: u64) -> Course {
    Course {
        clients,
        pace: Pace::Busy,
        warm_up: Duration::ZERO,
        length: Duration::from_millis(length_ms),
        seed: 7,
        isolation: Isolation::ReadCommitted,
    }
}

/// A course may be too short on a busy machine for what is rare: so often it is run, with other seeds.
const COURSES_MAX: u64 = 20;

/// Fills the database of a workload and runs courses, each as with [`run_well`], until all of these have been done and
/// entered.
pub(crate) async fn run_until_seen(
    workload: &dyn Workload,
    endpoints: &Endpoints,
    course: &Course,
    (mut kinds, mut entered): (Vec<&str>, Vec<&str>),
) {
    for round in 0..COURSES_MAX {
        let course = Course { seed: course.seed + round, ..course.clone() };
        let outcome = run_well(workload, endpoints, &course, round == 0).await;
        kinds.retain(|kind| !outcome.tally.kinds.contains_key(kind));
        entered.retain(|name| outcome.ledger.0.get(name).is_none_or(|entry| entry.told == 0));
        if kinds.is_empty() && entered.is_empty() {
            return;
        }
    }
    panic!("{COURSES_MAX} courses have not shown {kinds:?}, {entered:?}");
}

/// Fills the database of a workload and runs a course that must be without failures and leave everything right; what
/// was measured.
pub(crate) async fn run_well(
    workload: &dyn Workload,
    endpoints: &Endpoints,
    course: &Course,
    is_empty: bool,
) -> super::Outcome {
    let interrupt = Interrupt::default();
    if is_empty {
        populate(workload, &endpoints.main, 1, &interrupt, &|_| {}).await.unwrap();
    }
    let client = open(&endpoints.main).await.unwrap();
    assert_eq!(judge::broken(&client, workload).await.unwrap(), Vec::<String>::new(), "as it was filled");
    let before = judge::counts(&client, workload).await.unwrap();
    let outcome = drive(workload, endpoints, course, &interrupt, &|_, _| {}).await.unwrap();
    let failed: Vec<_> = outcome.tally.kinds.values().flat_map(|kind| &kind.troubles).collect();
    assert!(failed.is_empty(), "{}: {failed:?}", workload.name());
    let wrong = judge::wrong(&client, workload, &before, &outcome.ledger).await.unwrap();
    assert_eq!(wrong, Vec::<String>::new(), "{}", workload.name());
    outcome
}

#[test]
fn every_micro_load_does_what_it_says() {
    let server = Server::start();
    let shapes = [
        Shape::PointRead,
        Shape::HotCounter,
        Shape::ReadModifyWrite,
        Shape::TpcB,
        Shape::LargeRows,
        Shape::BulkLoad,
    ];
    runtime().unwrap().block_on(async {
        for (number, shape) in shapes.into_iter().enumerate() {
            let outcome =
                run_well(&Micro { shape, scale: 1 }, &server.endpoints(), &course(4, 400), number == 0).await;
            assert!(outcome.tally.done() > 0, "{shape:?}");
            let is_conflicting = shape == Shape::ReadModifyWrite;
            assert!(!is_conflicting || outcome.ledger.0.contains_key("increments"));
        }
    });
}

#[test]
fn an_open_loop_keeps_its_rate_and_counts_what_it_could_not_send() {
    let server = Server::start();
    let micro = Micro { shape: Shape::PointRead, scale: 1 };
    runtime().unwrap().block_on(async {
        let slow = Course { pace: Pace::Rate(100.0), ..course(4, 2_000) };
        let outcome = run_well(&micro, &server.endpoints(), &slow, true).await;
        let done = outcome.tally.done();
        assert!((150..=200).contains(&(done + outcome.tally.unsent)), "{done}");

        let random = Course { pace: Pace::Random(100.0), ..slow };
        let outcome = run_well(&micro, &server.endpoints(), &random, false).await;
        let done = outcome.tally.done();
        assert!((100..=280).contains(&(done + outcome.tally.unsent)), "{done}");

        // One client that is due ten million times a second is always late, and its response times say so.
        let fast = Course { pace: Pace::Rate(1e7), ..course(1, 500) };
        let outcome = run_well(&micro, &server.endpoints(), &fast, false).await;
        let kind = &outcome.tally.kinds["point-read"];
        assert!(outcome.tally.unsent > 4_000_000, "{}", outcome.tally.unsent);
        assert!(kind.response_us.value_at_quantile(0.9) > 4 * kind.service_us.value_at_quantile(0.9));
    });
}

#[test]
fn a_commit_that_is_gone_is_found() {
    let server = Server::start();
    let micro = Micro { shape: Shape::TpcB, scale: 1 };
    let endpoints = server.endpoints();
    runtime().unwrap().block_on(async {
        run_well(&micro, &endpoints, &course(2, 300), true).await;
        let client = open(&endpoints.main).await.unwrap();
        let before = judge::counts(&client, &micro).await.unwrap();
        let outcome =
            drive(&micro, &endpoints, &course(2, 300), &Interrupt::default(), &|_, _| {}).await.unwrap();
        client
            .batch_execute(
                "DELETE FROM history WHERE ctid IN (SELECT ctid FROM history WHERE delta <> 0 LIMIT 1)",
            )
            .await
            .unwrap();
        let wrong = judge::wrong(&client, &micro, &before, &outcome.ledger).await.unwrap();
        // The count of transfers, and three sums.
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    });
}
