//! Which columns truly decide a read's answer.
//!
//! `SELECT i_title, a_lname FROM item JOIN author ON a_id = i_a_id WHERE i_subject = $1 LIMIT 50` is decided by `i_subject`
//! alone, if every `i_a_id` is the id of an author: the join drops no row and repeats none. Such a table is a *look-up*.
//! A foreign key says so, or the application does ([`Application::references`]). Likewise `GROUP BY i_id, i_title` groups
//! by `i_id` alone, because that is the key of `i_title`.

use std::collections::BTreeSet;

use sql::anatomy::{ColumnPlace, Equal, PlainSelect, Says, SortBy};

use crate::application::{Application, Query};

/// The deciding part of a read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Decision {
    /// The columns that decide.
    pub(crate) columns: BTreeSet<ColumnPlace>,
    /// Mentions of tables that complete rows, and neither drop nor repeat any.
    pub(crate) look_ups: BTreeSet<usize>,
    /// The conditions that decide, by their indexes.
    pub(crate) conjuncts: BTreeSet<usize>,
    /// The items of GROUP BY that the others do not imply, by their indexes.
    pub(crate) grouping: BTreeSet<usize>,
}

impl Decision {
    pub(crate) fn of(application: &Application, query: &Query) -> Self {
        let Some(plain) = &query.anatomy.plain else {
            return Self { columns: query.anatomy.deciding.clone(), ..Self::default() };
        };
        let facts = Facts { application, query, plain };
        let grouping = facts.grouping();
        let mut columns = ordering(plain);
        for target in plain.targets.iter().filter(|target| target.expression.has_aggregate()) {
            columns.extend(target.expression.columns());
        }
        for &at in &grouping {
            columns.extend(plain.grouping[at].columns());
        }
        let (look_ups, conjuncts) = facts.look_ups(&columns);
        for &at in &conjuncts {
            columns.extend(plain.conjuncts[at].expression.columns());
        }
        Self { columns, look_ups, conjuncts, grouping }
    }
}

/// The columns by which rows are chosen.
fn ordering(plain: &PlainSelect) -> BTreeSet<ColumnPlace> {
    let mut columns = BTreeSet::new();
    if plain.limit.is_some() || plain.offset.is_some() {
        for key in &plain.order {
            columns.extend(match &key.by {
                SortBy::Target(at) => plain.targets[*at].expression.columns(),
                SortBy::Expression(expression) => expression.columns(),
            });
        }
    }
    columns
}

struct Facts<'a> {
    application: &'a Application,
    query: &'a Query,
    plain: &'a PlainSelect,
}

/// A join that adds a row of one table to each row of another.
struct LookUp {
    conjunct: usize,
    from: ColumnPlace,
    to: ColumnPlace,
}

impl Facts<'_> {
    /// Joins from a column to the key of another table, of whichever side.
    fn joins(&self, with_reference: bool) -> Vec<LookUp> {
        let mut joins = Vec::new();
        for (conjunct, condition) in self.plain.conjuncts.iter().enumerate() {
            let Says::Equal(equality) = &condition.says else { continue };
            let Equal::Column(other) = equality.to else { continue };
            for (from, to) in [(equality.column, other), (other, equality.column)] {
                let key = self.application.column(&self.query.anatomy, to);
                let column = self.application.column(&self.query.anatomy, from);
                let refers = self.application.reference(&column).is_some_and(|target| target == key)
                    && self.application.is_never_null(&column);
                if from.relation != to.relation
                    && self.application.is_unique(&key)
                    && (refers || !with_reference)
                {
                    joins.push(LookUp { conjunct, from, to });
                }
            }
        }
        joins
    }

    /// Takes tables away that only complete rows, one after the other, outermost first.
    fn look_ups(&self, columns: &BTreeSet<ColumnPlace>) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let mut conjuncts: BTreeSet<usize> = (0..self.plain.conjuncts.len()).collect();
        let mut look_ups = BTreeSet::new();
        let joins = self.joins(true);
        loop {
            let free = joins.iter().find(|join| {
                let relation = join.to.relation;
                let others = conjuncts.iter().filter(|&&at| at != join.conjunct);
                conjuncts.contains(&join.conjunct)
                    && !look_ups.contains(&relation)
                    && !columns.iter().any(|place| place.relation == relation)
                    && !others
                        .flat_map(|&at| self.plain.conjuncts[at].expression.columns())
                        .any(|place| place.relation == relation)
            });
            let Some(join) = free else { return (look_ups, conjuncts) };
            look_ups.insert(join.to.relation);
            conjuncts.remove(&join.conjunct);
        }
    }

    /// The items of GROUP BY without those whose values follow from the others'.
    fn grouping(&self) -> BTreeSet<usize> {
        let grouped: Vec<Option<ColumnPlace>> =
            self.plain.grouping.iter().map(sql::anatomy::Expression::column).collect();
        let joins = self.joins(false);
        let is_key = |place: &ColumnPlace| {
            self.application.is_unique(&self.application.column(&self.query.anatomy, *place))
        };
        // The tables of which a group has one row.
        let mut known: BTreeSet<usize> =
            grouped.iter().flatten().filter(|place| is_key(place)).map(|place| place.relation).collect();
        while let Some(join) = joins
            .iter()
            .find(|join| known.contains(&join.from.relation) && !known.contains(&join.to.relation))
        {
            known.insert(join.to.relation);
        }
        let mut keyed = BTreeSet::new();
        let follows = |at: &usize| match grouped[*at] {
            // The key itself stays, unless a join already tells it.
            Some(place) if known.contains(&place.relation) => !is_key(&place) || !keyed.insert(place),
            _ => false,
        };
        let mut follows = follows;
        (0..grouped.len()).filter(|at| !follows(at)).collect()
    }
}
