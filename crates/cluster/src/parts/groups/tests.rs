//! Packing by size and contents, and moves that balance.

use proptest::prelude::*;

use super::*;
use crate::ids::DatabaseId;

fn kind(id: u64, tables: &[(u32, u64)]) -> Kind {
    let tables = tables.iter().map(|(table, bytes)| (DatabaseId::FIRST.table(*table), *bytes)).collect();
    Kind { id: KindId(id), tables }
}

fn packed(kinds: &[Kind], memory_bytes: u64) -> Vec<Vec<u64>> {
    let groups = pack(kinds, memory_bytes);
    groups.iter().map(|kinds| kinds.iter().map(|kind| kind.0).collect()).collect()
}

/// IV-B: "the working set of the transactions sent to a worker fits into the worker's main memory".
#[test]
fn section_4_b_working_sets_fit_into_the_memory() {
    let kinds = [kind(1, &[(1, 60)]), kind(2, &[(2, 50)]), kind(3, &[(3, 40)]), kind(4, &[(4, 30)])];
    assert_eq!(packed(&kinds, 100), [vec![1, 3], vec![2, 4]]);
    assert_eq!(packed(&kinds, 1_000), [vec![1, 2, 3, 4]]);
    assert_eq!(packed(&kinds, 10), [vec![1], vec![2], vec![3], vec![4]], "too large for any");
}

/// Tashkent+, MALB-SC: what two types have in common is in memory once.
#[test]
fn a_shared_table_counts_once() {
    let kinds = [kind(1, &[(1, 60), (2, 30)]), kind(2, &[(3, 50)]), kind(3, &[(1, 60), (4, 10)])];
    assert_eq!(packed(&kinds, 100), [vec![1, 3], vec![2]]);
}

fn groups(kinds: u64, workers: u32) -> Groups<u32> {
    let apart: Vec<Kind> = (0..kinds).map(|id| kind(id, &[(id as u32, 10)])).collect();
    let mut groups = Groups::new(&pack(&apart, 10));
    for worker in 0..workers {
        groups.join(worker, |_| 1);
    }
    groups
}

fn sizes(groups: &Groups<u32>) -> Vec<usize> {
    groups.groups().map(|group| groups.workers(group).count()).collect()
}

#[test]
fn workers_come_to_groups_without_any_then_to_the_most_loaded() {
    assert_eq!(sizes(&groups(3, 2)), [1, 1, 0]);
    let mut groups = groups(3, 3);
    assert_eq!(groups.join(9, |group| u64::from(group.0)), Some(GroupId(2)));
    assert_eq!(groups.of_worker(9), Some(GroupId(2)));
    groups.leave(9);
    assert_eq!((groups.of_worker(9), sizes(&groups)), (None, vec![1, 1, 1]));
    assert_eq!(groups.of_kind(KindId(1)), Some(GroupId(1)));
}

/// IV-B: "rearranges groups, by moving workers from the least loaded group to the most loaded group".
#[test]
fn section_4_b_workers_move_from_the_least_to_the_most_loaded() {
    let mut groups = groups(3, 9);
    assert_eq!(sizes(&groups), [3, 3, 3]);
    let demand = |group: GroupId| [1, 4, 10][group.0 as usize];
    let mut moves = Vec::new();
    while let Some(moved) = groups.rebalance(demand, |_| true) {
        moves.push((moved.from.0, moved.to.0));
    }
    assert_eq!(sizes(&groups), [1, 3, 5], "{moves:?}");
    assert_eq!(moves, [(0, 2), (0, 2)], "a third would load group 1 as much as group 2 was");
}

#[test]
fn only_workers_that_may_move_do() {
    let mut groups = groups(2, 4);
    let demand = |group: GroupId| u64::from(group.0) * 10;
    let idle = groups.workers(GroupId(0)).next();
    let moved = groups.rebalance(demand, |worker| Some(worker) == idle);
    assert_eq!(moved.map(|moved| moved.worker), idle);
    assert_eq!(groups.rebalance(demand, |_| true), None, "the last worker of a group stays");
}

proptest! {
    /// Every set fits or is one type; moves end, and end where no move lowers the highest load.
    #[test]
    fn packing_fits_and_balance_is_reached(
        sets in proptest::collection::vec(proptest::collection::btree_map(0_u32..6, 1_u64..50, 0..4), 1..8),
        demands in proptest::collection::vec(0_u64..40, 8),
        workers in 1_u32..30,
    ) {
        let sizes: BTreeMap<u32, u64> = sets.iter().flatten().map(|(table, bytes)| (*table, *bytes)).collect();
        let kinds: Vec<Kind> = (0..).zip(&sets).map(|(id, set)| {
            let tables: Vec<(u32, u64)> = set.keys().map(|table| (*table, sizes[table])).collect();
            kind(id, &tables)
        }).collect();
        let packing = pack(&kinds, 100);
        let all: Vec<KindId> = packing.iter().flatten().copied().collect();
        prop_assert_eq!(all.len(), kinds.len());
        for set in &packing {
            let union: BTreeMap<TableId, u64> =
                set.iter().flat_map(|kind| kinds[kind.0 as usize].tables.iter().copied()).collect();
            prop_assert!(set.len() == 1 || union.values().sum::<u64>() <= 100);
        }
        let mut groups: Groups<u32> = Groups::new(&packing);
        for worker in 0..workers {
            groups.join(worker, |_| 0);
        }
        let demand = |group: GroupId| demands[group.0 as usize];
        let highest = |groups: &Groups<u32>| {
            let loads = groups.groups().map(|group| {
                let count = groups.workers(group).count();
                if count == 0 && demand(group) > 0 { f64::INFINITY } else { demand(group) as f64 / count.max(1) as f64 }
            });
            loads.fold(0.0, f64::max)
        };
        let mut moves = 0;
        loop {
            let before = highest(&groups);
            let Some(moved) = groups.rebalance(demand, |_| true) else { break };
            moves += 1;
            prop_assert!(highest(&groups) <= before);
            prop_assert!(moves < 200, "{:?}", moved);
        }
        prop_assert_eq!(groups.groups().map(|group| groups.workers(group).count()).sum::<usize>(), workers as usize);
        let peak = highest(&groups);
        let helped = groups.groups().any(|group| {
            let count = groups.workers(group).count();
            count > 1 && (demand(group) as f64) / ((count - 1) as f64) < peak
        });
        prop_assert!(!helped, "a worker of another group would have helped");
    }
}
