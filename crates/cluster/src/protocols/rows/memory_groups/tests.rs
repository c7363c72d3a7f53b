//! Kinds are packed into groups, and replicas come to them and go.

use super::*;
use crate::ids::DatabaseId;
use crate::protocols::tashkent_plus::TASHKENT_PLUS;

const MEMORY_BYTES: u64 = 100;

struct Bench {
    groups: MemoryGroups,
    present: ReplicaSet,
    now: Time,
    sessions: u64,
}

fn kind(id: u64, tables: &[(u32, u64)]) -> Kind {
    let tables = tables.iter().map(|(table, bytes)| (DatabaseId::FIRST.table(*table), *bytes)).collect();
    Kind { id: KindId(id), tables }
}

fn later(time: Time, by_us: u64) -> Time {
    Time { us: time.us + by_us }
}

impl Bench {
    /// So many replicas, all present.
    fn new(replicas: u16) -> Self {
        let groups = MemoryGroups::of(HomePolicy::ByMemory { memory_bytes: MEMORY_BYTES });
        let groups = groups.expect("the policy has groups");
        Self { groups, present: ReplicaSet::first(replicas), now: Time::default(), sessions: 0 }
    }

    /// The replicas for one more transaction of this kind, which runs on. All pauses are over.
    fn begin(&mut self, kind: &Kind) -> Vec<u16> {
        self.now = later(self.now, LOOK_EVERY_US.max(PACK_PAUSE_US * KINDS_MAX as u64));
        self.sessions += 1;
        self.groups.begins(SessionId(self.sessions), kind);
        self.replicas()
    }

    /// Those for the last transaction.
    fn replicas(&mut self) -> Vec<u16> {
        let set = self.groups.replicas_for(SessionId(self.sessions), self.present, self.now);
        members(set).map(|replica| replica.0).collect()
    }

    /// The same for a transaction that ends at once.
    fn run(&mut self, kind: &Kind) -> Vec<u16> {
        let replicas = self.begin(kind);
        self.groups.ends(SessionId(self.sessions));
        replicas
    }
}

/// Section IV-B: "Workers are assembled in groups executing the same set of transaction types."
#[test]
fn kinds_that_do_not_fit_together_have_replicas_of_their_own() {
    let mut bench = Bench::new(3);
    let (payment, status, stock) = (kind(1, &[(1, 60)]), kind(2, &[(1, 60), (2, 10)]), kind(3, &[(3, 80)]));
    assert_eq!(bench.begin(&payment), [0, 1, 2]);
    let stock_at = bench.begin(&stock);
    let payment_at = bench.begin(&payment);
    assert_eq!((stock_at.len(), payment_at.len()), (1, 2));
    assert!(!payment_at.contains(&stock_at[0]));
    assert_eq!(bench.begin(&status), payment_at, "its tables are mostly there");
    assert_eq!(bench.begin(&stock), stock_at);
}

#[test]
fn a_group_that_loses_its_only_replica_gets_another() {
    let mut bench = Bench::new(3);
    let (one, other) = (kind(1, &[(1, 80)]), kind(2, &[(2, 80)]));
    bench.begin(&one);
    let lost = bench.begin(&other);
    bench.present = bench.present.without(ReplicaId(lost[0]));
    let next = bench.replicas();
    assert!(next.len() == 1 && next != lost, "{next:?}");
    bench.present = bench.present.without(ReplicaId(next[0]));
    assert_eq!(bench.replicas(), [0_u16; 0], "the last replica of the other group stays there");
    bench.present = bench.present.with(ReplicaId(lost[0]));
    assert_eq!(bench.replicas(), lost, "whoever comes goes to a group that has none");
}

/// Section IV-B: "moving workers from the least loaded group to the most loaded group".
#[test]
fn replicas_follow_the_demand() {
    let mut bench = Bench::new(6);
    let (one, other) = (kind(1, &[(1, 80)]), kind(2, &[(2, 80)]));
    bench.begin(&one);
    bench.begin(&other);
    for _ in 0..10 {
        bench.begin(&other);
    }
    assert_eq!(bench.begin(&other).len(), 5);
    assert_eq!(bench.run(&one).len(), 1);
    (1..=bench.sessions).for_each(|session| bench.groups.ends(SessionId(session)));
    let shares: Vec<usize> = (0..60).map(|_| bench.run(&one).len()).collect();
    assert_eq!(shares.last(), Some(&5), "{shares:?}");
}

#[test]
fn a_table_that_has_grown_by_more_than_half_is_packed_anew() {
    let mut bench = Bench::new(2);
    let (one, other) = (kind(1, &[(1, 30)]), |bytes| kind(2, &[(2, bytes)]));
    bench.begin(&one);
    assert_eq!(bench.begin(&other(60)), [0, 1]);
    assert_eq!(bench.begin(&other(90)), [0, 1], "by half, and no more");
    let apart = bench.begin(&other(91));
    assert_eq!(apart.len(), 1);
    assert_ne!(bench.begin(&one), apart);
    assert_eq!(bench.begin(&kind(1, &[(2, 91)])), [0, 1], "the first kind touches the other's table now");
}

#[test]
fn replicas_stay_with_what_their_group_was_asked_for() {
    let mut bench = Bench::new(4);
    let (one, other) = (kind(5, &[(1, 70)]), kind(6, &[(2, 80)]));
    bench.begin(&one);
    bench.begin(&other);
    let (one_at, other_at) = (bench.begin(&one), bench.begin(&other));
    // It comes first when kinds are packed by size, so it takes the number of another group.
    let large = kind(7, &[(3, 95)]);
    let large_at = bench.begin(&large);
    let is_inside = |all: &[u16], some: &[u16]| some.iter().all(|replica| all.contains(replica));
    let (one_after, other_after) = (bench.begin(&one), bench.begin(&other));
    assert_eq!(large_at.len(), 1);
    assert!(is_inside(&one_at, &one_after), "{one_at:?} {one_after:?}");
    assert!(is_inside(&other_at, &other_after), "{other_at:?} {other_after:?}");
}

#[test]
fn kinds_are_bounded_and_packing_pauses() {
    let mut bench = Bench::new(2);
    for id in 0..KINDS_MAX as u64 {
        bench.groups.begins(SessionId(id), &kind(id, &[(1, 10)]));
    }
    let over = KINDS_MAX as u64;
    assert_eq!(bench.run(&kind(over, &[(1, 10)])), [0_u16; 0]);
    assert_eq!(bench.run(&kind(over - 1, &[(1, 10)])), [0, 1]);
    assert_eq!(bench.groups.kinds.len(), KINDS_MAX);

    let mut bench = Bench::new(2);
    let wide: Vec<(u32, u64)> = (0..=TABLES_MAX as u32).map(|table| (table, 1)).collect();
    assert_eq!(bench.run(&kind(1, &wide)), [0_u16; 0]);
    bench.begin(&kind(2, &[(1, 80)]));
    bench.groups.begins(SessionId(90), &kind(3, &[(2, 80)]));
    let replicas = |bench: &mut Bench, us: u64| {
        let now = later(bench.now, us);
        members(bench.groups.replicas_for(SessionId(90), bench.present, now)).count()
    };
    assert_eq!(replicas(&mut bench, 2 * PACK_PAUSE_US - 1), 0);
    assert_eq!(replicas(&mut bench, 2 * PACK_PAUSE_US), 1);
    let before = bench.groups.sizes.len();
    bench.run(&kind(3, &[(9, 80)]));
    assert_eq!(bench.groups.sizes.len(), before, "a table that no kind touches is forgotten");
}

#[test]
fn other_policies_have_no_groups() {
    for home in [HomePolicy::ConflictThenLoad, HomePolicy::InTurn, HomePolicy::Anchor] {
        assert!(MemoryGroups::of(home).is_none() && !home.asks_kinds());
    }
    assert!(TASHKENT_PLUS.home.asks_kinds());
}
