//! The relations of FROM, and how many rows of them there can be.
//!
//! The rules about order ask two questions: can there be more than one row, and can two rows be equal in some columns?
//! Both are answered by a closure over functional dependencies: a table's row is determined once all columns of one
//! of its unique keys are equal to constants, to columns of rows that are determined, or to columns given in the
//! question (those of ORDER BY). Unknown relations are never determined.

use std::collections::BTreeSet;

use super::kind::Kind;
use crate::catalogue::{Column, Table};

/// One relation in sight.
pub(super) struct Item<'a> {
    /// Its alias or name.
    pub(super) name: String,
    /// The table, if it is one that is known under its own column names.
    pub(super) table: Option<&'a Table>,
}

/// A column that is equal to something in every row that is left.
pub(super) struct Equality {
    pub(super) item: usize,
    pub(super) column: usize,
    /// The relations whose columns the other side is made of.
    pub(super) needs: BTreeSet<usize>,
}

/// A named window: whether no two rows are equal in its order.
pub(super) struct Window {
    pub(super) name: String,
    pub(super) total: bool,
    /// It has a frame of its own.
    pub(super) framed: bool,
}

/// One level of a query.
#[derive(Default)]
pub(super) struct Scope<'a> {
    pub(super) items: Vec<Item<'a>>,
    pub(super) equalities: Vec<Equality>,
    pub(super) windows: Vec<Window>,
    /// An aggregate of this query was met: without GROUP BY it has one row.
    pub(super) aggregated: bool,
}

/// A column that a name was found to mean.
#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) item: usize,
    pub(super) column: usize,
    pub(super) of: &'a Column,
}

impl Found<'_> {
    pub(super) fn kind(&self) -> Kind {
        Kind::of_column(self.of)
    }
}

/// The meaning of a name in one scope.
pub(super) enum Sight<'a> {
    Column(Found<'a>),
    /// It may be a column of something that is not known.
    Unclear,
    /// It is no column of anything here.
    Nothing,
}

impl<'a> Scope<'a> {
    pub(super) fn column(&self, fields: &[String]) -> Sight<'a> {
        let (qualifier, name) = match fields {
            [name] => (None, name),
            [qualifier, name] => (Some(qualifier), name),
            _ => return Sight::Unclear,
        };
        let mut seen = Sight::Nothing;
        for (index, item) in self.items.iter().enumerate() {
            if qualifier.is_some_and(|qualifier| *qualifier != item.name) {
                continue;
            }
            let Some(table) = item.table else { return Sight::Unclear };
            if let Some(column) = table.columns.iter().position(|column| column.name == *name) {
                if matches!(seen, Sight::Column(_)) {
                    return Sight::Unclear;
                }
                seen = Sight::Column(Found { item: index, column, of: &table.columns[column] });
            } else if qualifier.is_some() {
                return Sight::Unclear;
            }
        }
        seen
    }

    /// The relations whose rows are determined if those of `given` are, and the values of the columns in `known`.
    pub(super) fn determined(
        &self,
        given: &BTreeSet<usize>,
        known: &BTreeSet<(usize, usize)>,
    ) -> BTreeSet<usize> {
        let mut determined = given.clone();
        loop {
            let more: Vec<usize> = (0..self.items.len())
                .filter(|item| !determined.contains(item) && self.by_key(*item, &determined, known))
                .collect();
            if more.is_empty() {
                return determined;
            }
            determined.extend(more);
        }
    }

    fn by_key(&self, item: usize, determined: &BTreeSet<usize>, known: &BTreeSet<(usize, usize)>) -> bool {
        let Some(table) = self.items[item].table else { return false };
        let fixed = |column: usize| {
            self.equalities.iter().any(|equality| {
                (equality.item, equality.column) == (item, column) && equality.needs.is_subset(determined)
            })
        };
        table.keys.iter().filter(|key| key.is_plain() && !key.deferrable && !key.columns.is_empty()).any(
            |key| {
                key.columns.iter().all(|&column| {
                    // Rows that are equal in a sort column may all be NULL there.
                    let sorted = known.contains(&(item, column)) && table.columns[column].not_null;
                    sorted || fixed(column)
                })
            },
        )
    }

    /// Whether rows that agree in the columns of `known` are one row.
    pub(super) fn is_one_row(&self, known: &BTreeSet<(usize, usize)>) -> bool {
        self.determined(&BTreeSet::new(), known).len() == self.items.len()
    }
}
