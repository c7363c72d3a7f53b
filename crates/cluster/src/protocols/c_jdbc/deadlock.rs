//! Deadlocks: cycles in a graph of who waits for whom, and who must die.
//!
//! The paper says nothing of deadlocks. Ours: the youngest transaction of a cycle is aborted, at all replicas by one operation with
//! a number. If servers chose the victims themselves, two copies could choose different ones.

use std::collections::{BTreeMap, BTreeSet};

/// The members of a cycle through `start`, if there is one.
pub fn cycle_through<O: Copy + Ord>(start: O, blockers: impl Fn(O) -> BTreeSet<O>) -> Option<BTreeSet<O>> {
    // Every node that was reached, with the node from which it was.
    let mut from: BTreeMap<O, O> = BTreeMap::new();
    let mut open = vec![start];
    while let Some(at) = open.pop() {
        for next in blockers(at) {
            if next == start {
                let mut members = BTreeSet::from([start]);
                let mut member = at;
                while members.insert(member) {
                    member = from[&member];
                }
                return Some(members);
            }
            if let std::collections::btree_map::Entry::Vacant(entry) = from.entry(next) {
                entry.insert(at);
                open.push(next);
            }
        }
    }
    None
}

/// The victim of a cycle: its youngest member.
pub fn youngest<O: Copy + Ord>(cycle: &BTreeSet<O>) -> O {
    *cycle.last().expect("a cycle has members")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_youngest_of_the_cycle_dies_and_no_bystander() {
        let graph = BTreeMap::from([(9, vec![1]), (1, vec![2, 9]), (2, vec![3]), (3, vec![1])]);
        let of = |node| graph.get(&node).into_iter().flatten().copied().collect();
        let cycle = cycle_through(3, of).unwrap();
        assert_eq!((cycle.clone(), youngest(&cycle)), (BTreeSet::from([1, 2, 3]), 3));
        assert_eq!(cycle_through(4, of), None);
    }

    proptest! {
        /// Against a naive model: what can be reached in as many steps as there are nodes.
        #[test]
        fn as_a_naive_model(edges in proptest::collection::btree_set((0_u8..7, 0_u8..7), 0..14)) {
            let of = |node| edges.iter().filter(|(a, _)| *a == node).map(|(_, b)| *b).collect::<BTreeSet<u8>>();
            for start in 0..7 {
                let mut reached: BTreeSet<u8> = of(start);
                for _ in 0..7 {
                    reached = reached.iter().flat_map(|node| of(*node)).chain(reached.iter().copied()).collect();
                }
                let found = cycle_through(start, of);
                prop_assert_eq!(found.is_some(), reached.contains(&start));
                for member in found.into_iter().flatten() {
                    prop_assert!(member == start || reached.contains(&member));
                }
            }
        }
    }
}
