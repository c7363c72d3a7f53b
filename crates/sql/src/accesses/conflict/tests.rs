//! Properties of conflicts, over made-up accesses, and against a naive evaluator.

use proptest::prelude::*;

use super::super::{Claim, Equality, Value, Why};
use super::*;
use crate::DatabaseId;
use crate::accesses::tests::{accesses, catalogue};

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), (0..3_i64).prop_map(Value::Int), Just(Value::Fresh)]
}

fn rows() -> impl Strategy<Value = Rows> {
    let equality = (0..3_usize, value()).prop_map(|(column, value)| Equality { column, value });
    let one = prop::collection::vec(equality, 1..4).prop_map(Match::new);
    prop_oneof![1 => Just(Rows::All), 4 => prop::collection::vec(one, 0..4).prop_map(Rows::any_of)]
}

fn columns() -> impl Strategy<Value = Columns> {
    let some = prop::collection::vec(0..4_usize, 0..3);
    prop_oneof![Just(Columns::All), some.prop_map(|some| Columns::Some(some.into_iter().collect()))]
}

fn access(new: bool) -> impl Strategy<Value = Access> {
    let table = (1..3_u32).prop_map(|number| DatabaseId::FIRST.table(number));
    (table, columns(), rows(), any::<bool>()).prop_map(move |(table, columns, rows, made)| {
        let new = new && made;
        Access { table, columns: if new { Columns::All } else { columns }, rows, new }
    })
}

fn all() -> impl Strategy<Value = Accesses> {
    let claim = (rows(), any::<bool>()).prop_map(|(rows, exclusive)| Claim {
        table: DatabaseId::FIRST.table(1),
        key: 0,
        rows,
        exclusive,
    });
    let strength = prop_oneof![Just(Strength::Share), Just(Strength::Update), Just(Strength::Exclusive)];
    let lock = (rows(), strength).prop_map(|(rows, strength)| Lock {
        table: DatabaseId::FIRST.table(1),
        rows,
        strength,
    });
    let unbounded = prop::option::weighted(0.05, Just(Why::Casts));
    (
        prop::collection::vec(access(false), 0..3),
        prop::collection::vec(access(true), 0..3),
        prop::collection::vec(claim, 0..2),
        prop::collection::vec(lock, 0..2),
        unbounded,
    )
        .prop_map(|(reads, writes, claims, locks, unbounded)| Accesses {
            reads,
            writes,
            claims,
            locks,
            unbounded,
        })
}

/// The same rows with one equality less.
fn widened(rows: &Rows, which: usize) -> Rows {
    let Rows::AnyOf(matches) = rows else { return Rows::All };
    if matches.is_empty() {
        return Rows::All;
    }
    let mut matches = matches.to_vec();
    let at = which % matches.len();
    let mut equalities = matches[at].equalities().to_vec();
    equalities.remove(which % equalities.len());
    matches[at] = Match::new(equalities);
    Rows::any_of(matches)
}

fn widened_somewhere(of: &Accesses, which: usize) -> Accesses {
    let mut wider = of.clone();
    let slots: Vec<&mut Rows> =
        (wider.reads.iter_mut().chain(&mut wider.writes).map(|access| &mut access.rows))
            .chain(wider.claims.iter_mut().map(|claim| &mut claim.rows))
            .chain(wider.locks.iter_mut().map(|lock| &mut lock.rows))
            .collect();
    let count = slots.len();
    if let Some(rows) = slots.into_iter().nth(which % count.max(1)) {
        *rows = widened(rows, which / 7);
    }
    wider
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn conflicts_are_symmetric(left in all(), right in all()) {
        for view in [View::Rows, View::Columns] {
            let one = conflict(&left, &right, &catalogue(), view);
            let other = conflict(&right, &left, &catalogue(), view);
            let mirrored = other.map(|found| match found.kind {
                Kind::ReadWrite { reader } => {
                    Conflict { kind: Kind::ReadWrite { reader: reader.mirrored() }, ..found }
                }
                _ => found,
            });
            prop_assert_eq!(one, mirrored);
        }
    }

    #[test]
    fn wider_accesses_conflict_with_no_less(left in all(), right in all(), which in any::<usize>()) {
        for view in [View::Rows, View::Columns] {
            if conflict(&left, &right, &catalogue(), view).is_some() {
                let wider = widened_somewhere(&left, which);
                prop_assert!(conflict(&wider, &right, &catalogue(), view).is_some(), "{:?}", wider);
            }
        }
    }

    #[test]
    fn what_conflicts_by_columns_conflicts_by_rows(left in all(), right in all()) {
        if conflict(&left, &right, &catalogue(), View::Columns).is_some() {
            prop_assert!(conflict(&left, &right, &catalogue(), View::Rows).is_some());
        }
    }

    /// Rows that satisfy both conditions of two statements exist only if their accesses overlap.
    #[test]
    fn overlap_is_seen_by_trying_all_rows(left in condition(), right in condition()) {
        let rows = |text: &str| accesses(&format!("select 1 from t where {text}")).reads[0].rows.clone();
        let (mine, theirs) = (rows(&left.0), rows(&right.0));
        for id in 0..3 {
            for a in [None, Some(0), Some(1), Some(2)] {
                for b in [None, Some(0), Some(1), Some(2)] {
                    let row = [Some(id), a, b];
                    if left.1.accepts(row) {
                        prop_assert!(contains(&mine, row), "{} accepts {:?}: {:?}", left.0, row, mine);
                        if right.1.accepts(row) {
                            prop_assert!(mine.overlap(&theirs), "{} and {}", left.0, right.0);
                        }
                    }
                }
            }
        }
    }
}

fn contains(rows: &Rows, row: [Option<i64>; 3]) -> bool {
    let Rows::AnyOf(matches) = rows else { return true };
    let value = |column: usize| row[column].map_or(Value::Null, Value::Int);
    matches.iter().any(|one| one.equalities().iter().all(|known| known.value == value(known.column)))
}

/// A condition in three-valued logic.
#[derive(Clone, Debug)]
enum Tree {
    Equals(usize, i64),
    Differs(usize, i64),
    Same(usize, usize),
    IsNull(usize),
    In(usize, Vec<i64>),
    NotIn(usize, Vec<i64>),
    Between(usize, i64, i64),
    NotDistinct(usize, Option<i64>),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Case(Box<Self>, Box<Self>),
}

type Row = [Option<i64>; 3];

impl Tree {
    fn accepts(&self, row: Row) -> bool {
        self.truth(row) == Some(true)
    }

    fn truth(&self, row: Row) -> Option<bool> {
        match self {
            Self::Equals(column, value) => row[*column].map(|known| known == *value),
            Self::Differs(column, value) => row[*column].map(|known| known != *value),
            Self::Same(one, other) => Some(row[*one]? == row[*other]?),
            Self::IsNull(column) => Some(row[*column].is_none()),
            Self::In(column, values) => row[*column].map(|known| values.contains(&known)),
            Self::NotIn(column, values) => row[*column].map(|known| !values.contains(&known)),
            Self::Between(column, from, to) => row[*column].map(|known| (*from..=*to).contains(&known)),
            Self::NotDistinct(column, value) => Some(row[*column] == *value),
            Self::Not(inner) => inner.truth(row).map(|truth| !truth),
            Self::And(one, other) => match (one.truth(row), other.truth(row)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(one, other) => match (one.truth(row), other.truth(row)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::Case(when, then) => {
                if when.accepts(row) {
                    then.truth(row)
                } else {
                    Some(true)
                }
            }
        }
    }

    fn text(&self) -> String {
        let name = |column: &usize| ["id", "a", "b"][*column];
        let list = |values: &[i64]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Equals(column, value) => format!("{value} = {}", name(column)),
            Self::Differs(column, value) => format!("{} <> {value}", name(column)),
            Self::Same(one, other) => format!("{} = {}", name(one), name(other)),
            Self::IsNull(column) => format!("{} is null", name(column)),
            Self::In(column, values) => format!("{} in ({})", name(column), list(values)),
            Self::NotIn(column, values) => format!("{} not in ({})", name(column), list(values)),
            Self::Between(column, from, to) => format!("{} between {from} and {to}", name(column)),
            Self::NotDistinct(column, value) => {
                let value = value.map_or_else(|| "null".to_owned(), |value| value.to_string());
                format!("{} is not distinct from {value}", name(column))
            }
            Self::Not(inner) => format!("not ({})", inner.text()),
            Self::And(one, other) => format!("({}) and ({})", one.text(), other.text()),
            Self::Or(one, other) => format!("({}) or ({})", one.text(), other.text()),
            Self::Case(when, then) => format!("case when {} then {} else true end", when.text(), then.text()),
        }
    }
}

fn condition() -> impl Strategy<Value = (String, Tree)> {
    let column = || 0..3_usize;
    let number = || 0..3_i64;
    let numbers = || prop::collection::vec(0..3_i64, 1..3);
    let leaf = prop_oneof![
        4 => (column(), number()).prop_map(|(column, value)| Tree::Equals(column, value)),
        1 => (column(), number()).prop_map(|(column, value)| Tree::Differs(column, value)),
        1 => (column(), column()).prop_map(|(one, other)| Tree::Same(one, other)),
        1 => column().prop_map(Tree::IsNull),
        2 => (column(), numbers()).prop_map(|(column, values)| Tree::In(column, values)),
        1 => (column(), numbers()).prop_map(|(column, values)| Tree::NotIn(column, values)),
        1 => (column(), number(), number()).prop_map(|(column, from, to)| Tree::Between(column, from, to)),
        1 => (column(), prop::option::of(number())).prop_map(|(column, value)| Tree::NotDistinct(column, value)),
    ];
    let tree = leaf.prop_recursive(3, 12, 2, |inner| {
        let pair =
            || (inner.clone(), inner.clone()).prop_map(|(one, other)| (Box::new(one), Box::new(other)));
        prop_oneof![
            1 => inner.clone().prop_map(|inner| Tree::Not(Box::new(inner))),
            3 => pair().prop_map(|(one, other)| Tree::And(one, other)),
            2 => pair().prop_map(|(one, other)| Tree::Or(one, other)),
            1 => pair().prop_map(|(when, then)| Tree::Case(when, then)),
        ]
    });
    tree.prop_map(|tree| (tree.text(), tree))
}
