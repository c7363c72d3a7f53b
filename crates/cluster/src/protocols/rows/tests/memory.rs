//! Protocol `tashkent+`: updates and reads go to the group of their kind.

use super::*;
use crate::event::Kind;
use crate::ids::KindId;
use crate::protocols::rows::memory_groups::{LOOK_EVERY_US, PACK_PAUSE_US};
use crate::protocols::tashkent_plus::TASHKENT_PLUS;

/// Two kinds that are too large to be together.
const ONE: u64 = 1;
const OTHER: u64 = 2;

fn kind_of(id: u64) -> Kind {
    let table = DatabaseId::FIRST.table(id as u32);
    Kind { id: KindId(id), tables: vec![(table, 80)] }
}

fn bench() -> Bench {
    Bench::under(Choices { home: HomePolicy::ByMemory { memory_bytes: 100 }, ..TASHKENT_PLUS })
}

fn place(said: &[String], session: u64) -> u16 {
    let start = format!("execute {session} at ");
    let found = said.iter().find_map(|word| word.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("it runs at once: {said:?}")).parse().expect("a number")
}

impl Bench {
    /// An update transaction of this kind begins. Returns its home.
    fn begin_kind(&mut self, session: u64, kind: Option<u64>, home: Home) -> u16 {
        self.now += LOOK_EVERY_US + PACK_PAUSE_US;
        let level = Level::ReadCommitted;
        let (reads, kind) = (Reads::Tables([].into()), kind.map(|id| Box::new(kind_of(id))));
        let needs = Needs { reads, kind, ..writing(level, &[session]) };
        let (nonce, foreseen) = (Nonce(session), Foreseen::default());
        let said =
            self.feed(Event::Begin { session: SessionId(session), level, nonce, home, needs, foreseen });
        place(&said, session)
    }

    /// A read of this kind runs and ends. Returns where.
    fn read_kind(&mut self, session: u64, kind: Option<u64>) -> u16 {
        let (reads, catalogue) = (Reads::Tables([].into()), Version::ZERO);
        let session_id = SessionId(session);
        let said = self.feed(Event::Read {
            session: session_id,
            touches: reads.touches(),
            reads,
            at: None,
            cost_us: 1,
            near: None,
            catalogue,
            kind: kind.map(|id| Box::new(kind_of(id))),
        });
        self.feed(Event::Executed { session: session_id });
        place(&said, session)
    }

    /// Where reads of this kind run.
    fn read_places(&mut self, kind: Option<u64>) -> BTreeSet<u16> {
        (0..12).map(|n| self.read_kind(100 + n, kind)).collect()
    }

    fn end_kind(&mut self, session: u64) {
        self.feed(Event::End { session: SessionId(session) });
    }
}

#[test]
fn kinds_that_do_not_fit_together_run_at_different_replicas() {
    let mut bench = bench();
    for session in 1..=2 {
        bench.begin_kind(session, Some(session), Home::Any);
        bench.end_kind(session);
    }
    let (ones, others) = (bench.read_places(Some(ONE)), bench.read_places(Some(OTHER)));
    assert!(!ones.is_empty() && !others.is_empty() && ones.is_disjoint(&others), "{ones:?} {others:?}");
    let homes: Vec<u16> = (3..9).map(|session| bench.begin_kind(session, Some(OTHER), Home::Any)).collect();
    assert!(homes.iter().any(|home| others.contains(home)) && !homes.iter().all(|home| ones.contains(home)));
    assert_eq!(bench.begin_kind(9, Some(OTHER), Home::Anchor), 0, "what needs the anchor runs there");
    let at = ReplicaId(*ones.first().expect("a replica"));
    assert_eq!(bench.begin_kind(10, Some(OTHER), Home::At(at)), at.0, "what the client asks for counts");
}

#[test]
fn what_has_no_kind_goes_by_load_to_any_replica() {
    let mut bench = bench();
    for session in 1..=2 {
        bench.begin_kind(session, Some(session), Home::Any);
        bench.end_kind(session);
    }
    assert_eq!(bench.read_places(None), BTreeSet::from([0, 1, 2]));
    let homes: BTreeSet<u16> = (3..9).map(|session| bench.begin_kind(session, None, Home::Any)).collect();
    assert_eq!(homes, BTreeSet::from([0, 1, 2]));
}

#[test]
fn a_group_that_loses_its_replica_gets_another_or_goes_anywhere() {
    let mut bench = bench();
    bench.begin_kind(1, Some(ONE), Home::Any);
    bench.begin_kind(2, Some(OTHER), Home::Any);
    let first = bench.read_places(Some(OTHER));
    assert_eq!(first.len(), 1);
    let lose = |bench: &mut Bench, replica: u16| {
        let (replica, incarnation) = (ReplicaId(replica), Incarnation(1));
        bench.feed(Event::ReplicaLost { replica, incarnation });
        bench.feed(Event::TakeOver { from: replica });
    };
    let lost = *first.first().expect("one");
    lose(&mut bench, lost);
    bench.begin_kind(3, Some(OTHER), Home::Any);
    let second = bench.read_places(Some(OTHER));
    assert!(second.len() == 1 && second != first, "{first:?} {second:?}");
    let ones = bench.read_places(Some(ONE));
    assert!(ones.len() == 1 && ones.is_disjoint(&second));

    lose(&mut bench, *second.first().expect("one"));
    assert_eq!(bench.read_places(Some(OTHER)), ones, "one replica is left, of the other group");
    let up =
        Event::ReplicaUp { replica: ReplicaId(lost), incarnation: Incarnation(2), applied: Version::ZERO };
    bench.feed(up);
    assert_eq!(bench.read_places(Some(OTHER)), first, "what comes back joins the group without a replica");
}

#[test]
fn a_drained_replica_is_in_no_group() {
    let mut bench = bench();
    bench.begin_kind(1, Some(ONE), Home::Any);
    bench.begin_kind(2, Some(OTHER), Home::Any);
    let first = bench.read_places(Some(OTHER));
    let replica = ReplicaId(*first.first().expect("one"));
    bench.feed(Event::Drained { replica, is_drained: true });
    let (ones, second) = (bench.read_places(Some(ONE)), bench.read_places(Some(OTHER)));
    assert_eq!((ones.len(), second.len()), (1, 1), "{ones:?} {second:?}");
    assert!(ones != second && !second.contains(&replica.0));
}

#[test]
fn a_suspected_replica_is_in_no_group() {
    let mut bench = bench();
    bench.begin_kind(1, Some(ONE), Home::Any);
    bench.begin_kind(2, Some(OTHER), Home::Any);
    let first = bench.read_places(Some(OTHER));
    let (replica, incarnation) = (ReplicaId(*first.first().expect("one")), Incarnation(1));
    bench.feed(Event::Suspect { replica, incarnation, is_suspect: true });
    assert!(bench.read_places(Some(OTHER)).is_disjoint(&first));
}

/// Section IV-B optimises "the assignment of transactions to workers" by memory, and not by conflicts.
#[test]
fn load_counts_inside_a_group_and_not_where_a_rival_ran() {
    let mut bench = bench();
    let busy = Home::At(ReplicaId(1));
    bench.begin_kind(1, Some(ONE), busy);
    bench.feed(Event::Executed { session: S1 });
    bench.finish_with(S1, &[rows(&[1])], Reads::Tables([].into()));
    bench.feed(Event::Logged { upto: Version(1) });
    bench.feed(Event::Committed { session: S1 });
    let level = Level::ReadCommitted;
    let begin = |session: SessionId, cost_us: u32, home: Home| {
        let needs = Needs {
            reads: Reads::Tables([].into()),
            cost_us,
            kind: Some(Box::new(kind_of(ONE))),
            ..writing(level, &[1])
        };
        Event::Begin { session, level, nonce: Nonce(session.0), home, needs, foreseen: Foreseen::default() }
    };
    assert_eq!(place(&bench.feed(begin(S2, 100_000, busy)), 2), 1);
    assert_eq!(
        bench.feed(begin(S3, 1, Home::Any)),
        Vec::<String>::new(),
        "it waits where version 1 is still to come"
    );
}

#[test]
fn demand_ends_with_the_transaction_or_the_read() {
    let mut bench = bench();
    bench.begin_kind(1, Some(ONE), Home::Any);
    bench.feed(Event::Executed { session: SessionId(1) });
    let at_work = |bench: &Bench| bench.protocol.memory_groups.as_ref().expect("it has groups").at_work();
    assert_eq!(at_work(&bench), 1, "the transaction is open");
    bench.read_kind(2, Some(OTHER));
    assert_eq!(at_work(&bench), 1);
    bench.end_kind(1);
    assert_eq!(at_work(&bench), 0);
    bench.begin_kind(3, Some(ONE), Home::Any);
    bench.feed(Event::Yield { session: SessionId(3) });
    assert_eq!(at_work(&bench), 0, "it begins again when there is a connection");
    bench.begin_kind(5, Some(ONE), Home::Anchor);
    assert_eq!(at_work(&bench), 0, "it is there for another reason");
    let (session, reads, at) = (SessionId(6), Reads::Tables([].into()), Some(ReplicaId(1)));
    let (cost_us, near, catalogue) = (1, None, Version::ZERO);
    bench.feed(Event::Read {
        session,
        touches: reads.touches(),
        reads,
        at,
        cost_us,
        near,
        catalogue,
        kind: Some(Box::new(kind_of(ONE))),
    });
    assert_eq!(at_work(&bench), 0, "so is a read whose place is given");
    for replica in 0..3 {
        let (replica, incarnation) = (ReplicaId(replica), Incarnation(1));
        bench.feed(Event::ReplicaLost { replica, incarnation });
    }
    let (session, reads) = (SessionId(4), Reads::Tables([].into()));
    let (cost_us, near, catalogue, kind) = (1, None, Version::ZERO, Some(Box::new(kind_of(ONE))));
    bench.feed(Event::Read {
        session,
        touches: reads.touches(),
        reads,
        at: None,
        cost_us,
        near,
        catalogue,
        kind,
    });
    assert_eq!(at_work(&bench), 1, "what waits for a replica counts");
    bench.feed(Event::GiveUp { session });
    assert_eq!(at_work(&bench), 0);
}
