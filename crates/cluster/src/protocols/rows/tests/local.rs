//! Protocol `middle-r`, by the sentences of "Middle-R, C-JDBC and MySQL Cluster", section 2.1.

use super::*;
use crate::protocols::middle_r::MIDDLE_R;

const SI: Level = Level::RepeatableRead;
const SER: Level = Level::Serializable;

/// More sessions than it takes for one at each replica.
const SESSIONS: u64 = 64;

impl Bench {
    fn middle_r() -> Self {
        Self::under(MIDDLE_R)
    }

    fn local_of(&self, session: SessionId) -> u16 {
        let locals = self.protocol.locals.as_ref().expect("sessions are connected");
        locals.of(session).expect("the session is").0
    }

    /// A session that is connected to this replica, for the first time.
    fn session_at(&mut self, replica: u16, after: u64) -> SessionId {
        let mut sessions = (after + 1..after + SESSIONS).map(SessionId);
        let found = sessions.find(|session| {
            self.read(*session, 9);
            self.feed(Event::Executed { session: *session });
            self.local_of(*session) == replica
        });
        found.expect("some session is connected there")
    }

    /// A session's update of a row is durable, and committed at its home only.
    fn commit_local(&mut self, session: SessionId, row: u64, version: u64) {
        self.roam(session, SI, &[row]);
        self.feed(Event::Executed { session });
        let said = self.finish_with(session, &[rows(&[row])], Reads::All);
        assert_eq!(said, [format!("append {version}")]);
        self.feed(Event::Logged { upto: Version(version) });
        self.feed(Event::Committed { session });
    }

    fn lose(&mut self, replica: u16) -> Vec<String> {
        self.feed(Event::ReplicaLost { replica: ReplicaId(replica), incarnation: Incarnation(1) })
    }
}

/// 2.1.2: "Each Middle-R replica submits transactions from connected clients to the associated database. Read only transactions are
/// executed locally." "Write transactions are also executed at a single database (local replica)".
#[test]
fn all_of_a_session_runs_at_its_local_replica() {
    let mut bench = Bench::middle_r();
    for replica in 0..3 {
        let session = bench.session_at(replica, 100 * u64::from(replica));
        let here = format!("execute {session} at {replica}");
        for table in 7..12 {
            assert_eq!(bench.read(session, table), [here.as_str()]);
            bench.feed(Event::Executed { session });
        }
        assert_eq!(bench.roam(session, SI, &[u64::from(replica)]), [here]);
    }
}

/// 2.1.2: "Read only transactions are executed locally." A replica that lacks what others were told answers all the same.
#[test]
fn a_read_is_not_delayed_by_what_other_sessions_committed() {
    let mut bench = Bench::middle_r();
    let (writer, reader) = (bench.session_at(1, 0), bench.session_at(2, 100));
    bench.commit_local(writer, 5, 1);
    assert_eq!(bench.read(reader, 7), [format!("execute {reader} at 2")], "replica 2 lacks version 1");
}

#[test]
fn a_session_sees_its_own_commits_and_what_was_durable_when_it_was_connected() {
    let mut bench = Bench::middle_r();
    let writer = bench.session_at(1, 0);
    bench.roam(writer, SI, &[5]);
    bench.feed(Event::Executed { session: writer });
    bench.finish_with(writer, &[rows(&[5])], Reads::All);
    bench.feed(Event::Logged { upto: Version(1) });
    assert!(bench.read(writer, 8).is_empty(), "its commit is acknowledged, and not yet at its replica");
    assert_eq!(bench.feed(Event::Committed { session: writer }), [format!("execute {writer} at 1")]);
    let late = (200..200 + SESSIONS).map(SessionId).find(|session| {
        let is_held_up = bench.read(*session, 8).is_empty();
        is_held_up && bench.local_of(*session) == 2
    });
    let late = late.expect("some session is connected to replica 2");
    assert!(bench.applied(2, 1).contains(&format!("execute {late} at 2")), "once that has version 1");
}

/// 2.1.2: "if the transaction does not conflict with any other concurrent committed transaction, the writeset is applied and the commit
/// is submitted". "If there is a conflict, the transaction is simply aborted at the local and the rest of the replicas discard the
/// associated writeset."
#[test]
fn the_first_committer_wins() {
    let mut bench = Bench::middle_r();
    let (one, other) = (bench.session_at(1, 0), bench.session_at(2, 100));
    bench.roam(one, SI, &[5]);
    assert_eq!(bench.roam(other, SI, &[5]), [format!("execute {other} at 2")], "nobody waits beforehand");
    assert_eq!(bench.finish_with(one, &[rows(&[5])], Reads::All), ["append 1"]);
    let said = bench.finish_with(other, &[rows(&[5])], Reads::All);
    assert_eq!(said, [format!("conflict {other} with 1")], "nothing of it is appended");
    let said = bench.feed(Event::Logged { upto: Version(1) });
    assert!(said.contains(&"apply 1..1 at 2".to_owned()), "{said:?}");
}

/// 2.1.3: "Middle-R implements both snapshot isolation and serializability".
#[test]
fn write_skew_is_allowed_by_snapshot_isolation_and_not_by_serializability() {
    for (level, is_allowed) in [(SI, true), (SER, false)] {
        let mut bench = Bench::middle_r();
        let (one, other) = (bench.session_at(1, 0), bench.session_at(2, 100));
        bench.roam(one, level, &[5]);
        bench.roam(other, level, &[6]);
        assert_eq!(bench.finish_with(one, &[rows(&[5])], reading(&[6])), ["append 1"]);
        let said = bench.finish_with(other, &[rows(&[6])], reading(&[5])).concat();
        assert_eq!(said.starts_with("conflict"), !is_allowed, "{level:?}: {said}");
    }
}

/// 2.1.4: "Clients connected to the failed replica detect this failure (broken connection) and connects to another replica." Here the core
/// connects the session, and it sees no less there.
#[test]
fn a_session_of_a_lost_replica_is_connected_to_another_one() {
    let mut bench = Bench::middle_r();
    let session = bench.session_at(1, 0);
    bench.commit_local(session, 5, 1);
    bench.roam(session, SI, &[6]);
    assert!(bench.lose(1).contains(&format!("abort {session}")), "what was open there is over");
    assert!(bench.read(session, 7).is_empty(), "no other replica has version 1");
    let next = bench.local_of(session);
    assert_ne!(next, 1);
    assert!(bench.applied(next, 1).contains(&format!("execute {session} at {next}")));
}

/// 2.1.4: "failure at one replica does not affect others".
#[test]
fn sessions_of_other_replicas_stay_where_they_are() {
    let mut bench = Bench::middle_r();
    let session = bench.session_at(2, 0);
    bench.lose(1);
    assert_eq!(bench.read(session, 7), [format!("execute {session} at 2")]);
}

/// 2.1.4: "The writesets are recorded in a log file which is used to transfer missing changes to failed replicas when they are available
/// again or a new replica." Meanwhile sessions are connected to the others.
#[test]
fn a_replica_that_comes_back_takes_sessions_when_it_has_what_it_missed() {
    let mut bench = Bench::middle_r();
    let writer = bench.session_at(2, 0);
    bench.lose(1);
    bench.commit_local(writer, 5, 1);
    bench.applied(0, 1);
    let (replica, incarnation, applied) = (ReplicaId(1), Incarnation(2), Version::ZERO);
    let said = bench.feed(Event::ReplicaUp { replica, incarnation, applied });
    assert_eq!(said, ["apply 1..1 at 1"], "from the log");
    for session in (100..100 + SESSIONS).map(SessionId) {
        assert_eq!(bench.read(session, 7).len(), 1, "nobody waits for it");
        assert_ne!(bench.local_of(session), 1);
    }
    bench.feed(Event::Applied { replica, incarnation, upto: Version(1) });
    bench.session_at(1, 200);
}

/// What runs elsewhere sees all that the session saw, and is seen afterwards.
#[test]
fn what_only_the_anchor_can_run_does_not_part_a_session_from_what_it_saw() {
    let mut bench = Bench::middle_r();
    let (writer, session) = (bench.session_at(1, 0), bench.session_at(2, 100));
    bench.commit_local(writer, 5, 1);
    assert!(bench.begin(session, false).is_empty(), "the anchor lacks version 1");
    assert_eq!(bench.applied(0, 1), [format!("execute {session} at 0")]);
    bench.feed(Event::Executed { session });
    bench.feed(Event::End { session });
    assert!(bench.read(session, 8).is_empty(), "it may have seen version 1 at the anchor");
    assert_eq!(bench.applied(2, 1), [format!("execute {session} at 2")]);
}

/// 2.1.5: "the probability to connect to some replica is inversely proportional to its load". The loads that sessions make themselves
/// keep each other equal.
#[test]
fn sessions_are_connected_by_load_and_leave_when_they_end() {
    let mut bench = Bench::middle_r();
    let connected = |bench: &Bench| {
        let locals = bench.protocol.locals.as_ref().expect("sessions are connected");
        [0, 1, 2].map(|replica| locals.connected(ReplicaId(replica)))
    };
    for session in (0..300).map(SessionId) {
        bench.read(session, 7);
        bench.feed(Event::Executed { session });
    }
    let all = connected(&bench);
    assert!(all.iter().all(|count| (80..=120).contains(count)), "{all:?}");
    (0..300).map(SessionId).for_each(|session| drop(bench.feed(Event::Closed { session })));
    assert_eq!(connected(&bench), [0, 0, 0]);
}

#[test]
fn a_drained_replica_gives_its_sessions_away() {
    let mut bench = Bench::middle_r();
    let session = bench.session_at(1, 0);
    bench.feed(Event::Drained { replica: ReplicaId(1), is_drained: true });
    assert_eq!(bench.read(session, 7).len(), 1);
    assert_ne!(bench.local_of(session), 1);
}
