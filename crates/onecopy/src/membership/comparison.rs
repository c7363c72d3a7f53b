//! Finds the replicas that differ from the others, by name of table and of schema object.
//!
//! Each name is compared among the replicas that hold it. The most common value is taken to be right, since every
//! replica has made its own from the same records. For example, if one table has the checksums `a`, `b`, `b`, the first
//! is wrong. A fourth replica that does not hold the table has no say. Of equally common values the one at the
//! preferred place is right, or else the first.
//!
//! Invariant: a replica that does not hold a table differs in it if, and only if, the table has rows there.

use std::collections::{BTreeMap, BTreeSet};

/// The checksums of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    /// The checksums by name.
    pub(crate) sums: BTreeMap<String, String>,
    /// The names that are not compared there, since the replica does not hold these tables.
    pub(crate) not_held: BTreeSet<String>,
    /// Those of them that have rows there all the same.
    pub(crate) planted: BTreeSet<String>,
}

/// Every name, with the places of the replicas that differ in it. A name that a holder lacks is a difference, too, and so are rows
/// where a table is not held.
pub(super) fn differing<'a>(all: &[&'a Checksums], preferred: usize) -> BTreeMap<&'a str, Vec<usize>> {
    let names = all.iter().flat_map(|one| one.sums.keys().chain(&one.planted));
    let names: BTreeSet<&str> = names.map(String::as_str).collect();
    let places = |name: &'a str| {
        let holders = all.iter().enumerate().filter(|(_, one)| !one.not_held.contains(name));
        let values: Vec<(usize, Option<&String>)> =
            holders.map(|(place, one)| (place, one.sums.get(name))).collect();
        let right = most_common(&values, preferred);
        let differ = values.iter().filter(|(_, value)| Some(*value) != right).map(|(place, _)| *place);
        let planted = all.iter().enumerate().filter(|(_, one)| one.planted.contains(name));
        let places: BTreeSet<usize> = differ.chain(planted.map(|(place, _)| place)).collect();
        places.into_iter().collect()
    };
    names.into_iter().map(|name| (name, places(name))).collect()
}

fn most_common<V: PartialEq + Copy>(values: &[(usize, V)], preferred: usize) -> Option<V> {
    let rank = |(place, value): &(usize, V)| {
        let count = values.iter().filter(|(_, other)| other == value).count();
        (count, *place == preferred)
    };
    // `max_by_key` takes the last of equal ranks, so the search begins at the end.
    values.iter().rev().max_by_key(|entry| rank(entry)).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(sums: &[(&str, &str)], not_held: &[&str]) -> Checksums {
        let sums = sums.iter().map(|(name, sum)| ((*name).to_owned(), (*sum).to_owned())).collect();
        let not_held = not_held.iter().map(|name| (*name).to_owned()).collect();
        Checksums { sums, not_held, planted: BTreeSet::new() }
    }

    fn found(all: &[Checksums], preferred: usize) -> Vec<(&str, Vec<usize>)> {
        let all: Vec<&Checksums> = all.iter().collect();
        differing(&all, preferred).into_iter().collect()
    }

    #[test]
    fn the_most_common_value_is_right_and_between_two_the_preferred_one() {
        let all = ["x", "y", "y"].map(|sum| replica(&[("t", sum)], &[]));
        assert_eq!(found(&all, 0), [("t", vec![0])]);
        assert_eq!(found(&all[..2], 0), [("t", vec![1])]);
        assert_eq!(found(&all[..2], 1), [("t", vec![0])]);
        assert_eq!(found(&all[1..], 0), [("t", vec![])]);
        let two_of_each = ["x", "y", "y", "x"].map(|sum| replica(&[("t", sum)], &[]));
        assert_eq!(found(&two_of_each, 2), [("t", vec![0, 3])]);
    }

    #[test]
    fn each_table_has_a_majority_of_its_own() {
        let sums = [["x", "1"], ["y", "2"], ["x", "2"]];
        let all = sums.map(|[t, u]| replica(&[("t", t), ("u", u)], &[]));
        assert_eq!(found(&all, 0), [("t", vec![1]), ("u", vec![0])]);
    }

    #[test]
    fn a_table_is_compared_among_its_holders() {
        let full = replica(&[("t", "x"), ("u", "1")], &[]);
        let partial = replica(&[("u", "1")], &["t"]);
        assert_eq!(found(&[full.clone(), partial.clone()], 1), [("t", vec![]), ("u", vec![])]);
        // Three replicas that do not hold it do not outvote the one that does.
        let all = [partial.clone(), partial.clone(), full.clone(), partial];
        assert_eq!(found(&all, 0), [("t", vec![]), ("u", vec![])]);
        // A holder that lacks the table differs.
        let lacks = replica(&[("u", "1")], &[]);
        assert_eq!(found(&[full, lacks], 0), [("t", vec![1]), ("u", vec![])]);
    }
}
