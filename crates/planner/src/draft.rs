//! The parts of a read that is to be rewritten, and their order.
//!
//! A part is what one service holds of the read's tables and can join. The parts are placed one after the other: first
//! those whose own conditions leave few rows, then those that are fed by few rows of parts already placed. The first part
//! that can apply LIMIT and aggregates does; one that does may start from any number of rows.

use std::collections::{BTreeMap, BTreeSet};

use sql::anatomy::{ColumnPlace, Equal, PlainSelect, Says, SortBy, Target};

use crate::application::{Application, Query};
use crate::column::Column;
use crate::decision::Decision;
use crate::layout::Layout;
use crate::rewrite::Unsplit;

/// The part of a read's tables that one step fetches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub(crate) service: usize,
    pub(crate) mentions: BTreeSet<usize>,
}

/// An equality between parts: values of `from` bound `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bridge {
    pub(crate) from: Vec<ColumnPlace>,
    pub(crate) to: ColumnPlace,
    /// The condition that says so; `None` for the key of one row in two parts.
    pub(crate) conjunct: Option<usize>,
}

/// A read on its way to be rewritten.
pub(crate) struct Draft<'a> {
    pub(crate) application: &'a Application,
    pub(crate) query: &'a Query,
    pub(crate) plain: &'a PlainSelect,
    pub(crate) layout: &'a Layout,
    pub(crate) decision: Decision,
    /// The items of the SELECT list that are used.
    pub(crate) targets: Vec<&'a Target>,
    pub(crate) parts: Vec<Part>,
    /// The parts that apply each condition.
    pub(crate) local: Vec<Vec<usize>>,
    pub(crate) bridges: Vec<Bridge>,
    /// The parts in their order, each with what it is fed by.
    pub(crate) placed: Vec<Placed>,
    /// The part that applies LIMIT and aggregates, if one does.
    pub(crate) pushed: Option<usize>,
}

/// A part in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub(crate) part: usize,
    pub(crate) fed: Vec<Fed>,
}

/// What bounds a part, and by which earlier part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fed {
    pub(crate) bridge: Bridge,
    pub(crate) by: usize,
}

impl Draft<'_> {
    /// Makes the parts, and puts them in an order in which each fetches few rows.
    pub(crate) fn order(&mut self, target: usize) -> Result<(), Unsplit> {
        self.group(target);
        self.connect()?;
        self.place(target)
    }

    pub(crate) fn column(&self, place: ColumnPlace) -> Column {
        self.application.column(&self.query.anatomy, place)
    }

    /// Whether the part can read the column. Tables of sub-queries are no part's: their service has to have them.
    pub(crate) fn can_read(&self, part: usize, place: ColumnPlace) -> bool {
        let part = &self.parts[part];
        let is_inner = !self.plain.relations.contains(&place.relation);
        (is_inner || part.mentions.contains(&place.relation))
            && self.layout.holds(part.service, &self.column(place))
    }

    /// Every column that the steps or their combination need.
    pub(crate) fn needed(&self) -> BTreeSet<ColumnPlace> {
        let mut places = BTreeSet::new();
        for target in &self.targets {
            places.extend(target.expression.columns());
        }
        for conjunct in &self.plain.conjuncts {
            places.extend(conjunct.expression.columns());
        }
        for expression in &self.plain.grouping {
            places.extend(expression.columns());
        }
        places.extend(self.sorted_by());
        places.retain(|place| self.plain.relations.contains(&place.relation));
        places
    }

    pub(crate) fn sorted_by(&self) -> BTreeSet<ColumnPlace> {
        let columns = |key: &sql::anatomy::SortKey| match &key.by {
            SortBy::Target(at) => self.plain.targets[*at].expression.columns(),
            SortBy::Expression(expression) => expression.columns(),
        };
        self.plain.order.iter().flat_map(columns).collect()
    }

    /// Makes the parts: each column from the target if that has it, else from its home.
    fn group(&mut self, target: usize) {
        let mut services: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut keys_only: BTreeSet<usize> = self.plain.relations.clone();
        let needed = self.needed();
        for place in &needed {
            let column = self.column(*place);
            if !self.layout.is_key(&column) {
                let service = self.layout.nearest(&column, target);
                services.entry(service).or_default().insert(place.relation);
                keys_only.remove(&place.relation);
            }
        }
        for place in needed.iter().filter(|place| keys_only.contains(&place.relation)) {
            let service = self.layout.nearest(&self.column(*place), target);
            services.entry(service).or_default().insert(place.relation);
        }
        for (service, mentions) in services {
            for mentions in self.joined(service, &mentions) {
                self.parts.push(Part { service, mentions });
            }
        }
    }

    /// The mentions in one service, by which of them it can join.
    fn joined(&self, service: usize, mentions: &BTreeSet<usize>) -> Vec<BTreeSet<usize>> {
        let mut sets: Vec<BTreeSet<usize>> =
            mentions.iter().map(|&mention| BTreeSet::from([mention])).collect();
        for conjunct in &self.plain.conjuncts {
            let places = conjunct.expression.columns();
            let here = places.iter().all(|place| {
                let is_inner = !self.plain.relations.contains(&place.relation);
                (is_inner || mentions.contains(&place.relation))
                    && self.layout.holds(service, &self.column(*place))
            });
            if here {
                let (met, mut apart): (Vec<_>, Vec<_>) = sets
                    .into_iter()
                    .partition(|set| places.iter().any(|place| set.contains(&place.relation)));
                apart.extend((!met.is_empty()).then(|| met.into_iter().flatten().collect()));
                sets = apart;
            }
        }
        sets.sort();
        sets
    }

    /// Finds which parts apply each condition, and which conditions bridge parts.
    fn connect(&mut self) -> Result<(), Unsplit> {
        for (at, conjunct) in self.plain.conjuncts.iter().enumerate() {
            let places = conjunct.expression.columns();
            let applies = |part: &usize| places.iter().all(|place| self.can_read(*part, *place));
            let local: Vec<usize> = (0..self.parts.len()).filter(applies).collect();
            if local.is_empty() && conjunct.expression.has_query() {
                return Err(Unsplit::SubQuery);
            }
            if local.is_empty() {
                match &conjunct.says {
                    Says::Equal(equality) => {
                        if let Equal::Column(other) = equality.to {
                            let one = equality.column;
                            self.bridges.push(Bridge { from: vec![one], to: other, conjunct: Some(at) });
                            self.bridges.push(Bridge { from: vec![other], to: one, conjunct: Some(at) });
                        }
                    }
                    Says::OneOf(column, columns) => {
                        self.bridges.push(Bridge { from: columns.clone(), to: *column, conjunct: Some(at) });
                    }
                    Says::Other => {}
                }
            }
            self.local.push(local);
        }
        for (relation, mention) in self.query.anatomy.relations.iter().enumerate() {
            let parts = self.parts.iter().filter(|part| part.mentions.contains(&relation)).count();
            if let Some(table) = self.application.catalogue.table(mention.table).filter(|_| parts > 1) {
                for &column in &table.primary_key {
                    let place = ColumnPlace { relation, column };
                    self.bridges.push(Bridge { from: vec![place], to: place, conjunct: None });
                }
            }
        }
        Ok(())
    }

    /// Whether rows are chosen or reckoned together, which a part should do if it can.
    pub(crate) fn is_chosen(&self) -> bool {
        self.plain.limit.is_some() || self.plain.offset.is_some() || self.is_aggregated()
    }

    pub(crate) fn is_aggregated(&self) -> bool {
        !self.plain.grouping.is_empty() || self.targets.iter().any(|item| item.expression.has_aggregate())
    }

    fn place(&mut self, target: usize) -> Result<(), Unsplit> {
        while self.placed.len() < self.parts.len() {
            let left: Vec<usize> = (0..self.parts.len())
                .filter(|part| self.placed.iter().all(|done| done.part != *part))
                .collect();
            let by_itself = left.iter().find(|&&part| self.bounds_itself(part));
            let by_others = || left.iter().find(|&&part| self.is_bounded_by_others(part));
            let by_limit = || {
                let few = self.plain.limit.is_some() || self.plain.grouping.is_empty();
                let may = |part: &&usize| {
                    self.parts[**part].service == target && self.is_chosen() && few && self.may_push(**part)
                };
                left.iter().find(|part| self.pushed.is_none() && may(part))
            };
            let next = by_itself.or_else(by_others).or_else(by_limit);
            let Some(&part) = next else {
                return Err(Unsplit::Unbounded(self.parts[left[0]].service));
            };
            if self.pushed.is_none() && self.is_chosen() && self.may_push(part) {
                self.pushed = Some(part);
            }
            let fed = self.feeds(part);
            self.placed.push(Placed { part, fed });
        }
        Ok(())
    }

    /// What earlier parts say about this one's rows.
    pub(crate) fn feeds(&self, part: usize) -> Vec<Fed> {
        let mut feeds: Vec<Fed> = Vec::new();
        for bridge in &self.bridges {
            // The last step applies every equality; before a LIMIT all of them must be.
            let known = feeds.iter().any(|fed| fed.bridge.to == bridge.to) && self.pushed != Some(part);
            if known || !self.can_read(part, bridge.to) || self.is_constant(part, bridge.to) {
                continue;
            }
            let gives = |done: &&Placed| bridge.from.iter().all(|place| self.can_read(done.part, *place));
            if let Some(by) = self.placed.iter().find(gives) {
                feeds.push(Fed { bridge: bridge.clone(), by: by.part });
            }
        }
        feeds
    }

    /// Whether a condition of the part gives a column its value.
    fn is_constant(&self, part: usize, place: ColumnPlace) -> bool {
        self.plain.conjuncts.iter().zip(&self.local).any(|(conjunct, local)| match &conjunct.says {
            Says::Equal(equality) => {
                local.contains(&part) && equality.column == place && !matches!(equality.to, Equal::Column(_))
            }
            _ => false,
        })
    }

    /// Whether rows of a table with given values of a column are few, and stay few. Of a column that refers to a table
    /// they do if that table grows with this one: a customer's orders, but not a category's items.
    fn is_selective(&self, column: &Column) -> bool {
        let grows = |table: &str| {
            let mut queries = self.application.queries.values();
            queries.any(|query| self.application.effects(query).grown.contains(table))
        };
        let refers = self.application.reference(column);
        self.application.is_unique(column)
            || self.application.primary_key(&column.table).contains(column)
            || refers.is_some_and(|target| grows(&target.table) || !grows(&column.table))
    }

    fn bounds_itself(&self, part: usize) -> bool {
        let places = self.plain.conjuncts.iter().filter_map(|conjunct| match &conjunct.says {
            Says::Equal(equality) => Some(equality.column),
            _ => None,
        });
        let mut places = places.filter(|place| self.can_read(part, *place));
        let hinted = self.parts[part].mentions.iter().any(|&mention| {
            self.query.few_rows.contains(&self.query.anatomy.relations[mention].alias) && self.decides(part)
        });
        hinted || places.any(|place| self.is_constant(part, place) && self.is_selective(&self.column(place)))
    }

    /// Whether a condition that is not a bridge is applied by the part.
    fn decides(&self, part: usize) -> bool {
        self.local.iter().any(|local| local.contains(&part))
    }

    fn is_bounded_by_others(&self, part: usize) -> bool {
        self.feeds(part).iter().any(|fed| self.is_selective(&self.column(fed.bridge.to)))
    }

    /// Whether LIMIT and aggregates give the same in this part, after those already placed, as at the end.
    fn may_push(&self, part: usize) -> bool {
        let done: BTreeSet<usize> = self.placed.iter().map(|done| done.part).chain([part]).collect();
        let applied = self.decision.conjuncts.iter().all(|&at| {
            let bridged = || {
                let places = self.plain.conjuncts[at].expression.columns();
                matches!(self.plain.conjuncts[at].says, Says::Equal(_))
                    && places.iter().all(|place| done.iter().any(|&part| self.can_read(part, *place)))
            };
            self.local[at].iter().any(|part| done.contains(part)) || (self.local[at].is_empty() && bridged())
        });
        let aggregated = self.targets.iter().filter(|item| item.expression.has_aggregate());
        let aggregated = aggregated.flat_map(|item| item.expression.columns());
        let grouped = self.decision.grouping.iter().flat_map(|&at| self.plain.grouping[at].columns());
        let here = self.sorted_by().into_iter().chain(aggregated).chain(grouped);
        let plain_groups = self.plain.grouping.iter().all(|expression| expression.column().is_some());
        let mut mentions: BTreeSet<usize> = self.decision.look_ups.clone();
        mentions.extend(done.iter().flat_map(|&part| self.parts[part].mentions.iter().copied()));
        applied
            && plain_groups
            && here.into_iter().all(|place| self.can_read(part, place))
            && self.placed.iter().all(|done| self.feeds_once(done.part, part))
            && self.plain.relations.is_subset(&mentions)
            && (!self.is_aggregated() || self.shown_of_groups(part))
    }

    /// Whether what the part has to show beside sums is the same for all rows of a group.
    fn shown_of_groups(&self, part: usize) -> bool {
        let mut shown: BTreeSet<ColumnPlace> = self.bridges.iter().map(|bridge| bridge.to).collect();
        shown.extend(self.bridges.iter().flat_map(|bridge| bridge.from.iter().copied()));
        for target in self.targets.iter().filter(|target| !target.expression.has_aggregate()) {
            shown.extend(target.expression.columns());
        }
        let grouped: Vec<ColumnPlace> =
            self.plain.grouping.iter().filter_map(sql::anatomy::Expression::column).collect();
        let follows = |place: &ColumnPlace| {
            let key = |other: &ColumnPlace| {
                other.relation == place.relation && self.application.is_unique(&self.column(*other))
            };
            grouped.contains(place) || grouped.iter().any(key)
        };
        shown.iter().filter(|place| self.can_read(part, **place)).all(follows)
    }

    /// Whether each row of a later part has at most one partner in an earlier one.
    fn feeds_once(&self, earlier: usize, part: usize) -> bool {
        let own: Vec<usize> =
            self.parts[earlier].mentions.difference(&self.decision.look_ups).copied().collect();
        let bridges: Vec<&Bridge> = self
            .bridges
            .iter()
            .filter(|bridge| {
                let later = self.placed.iter().map(|done| done.part).chain([part]);
                let gives = bridge.from.iter().all(|place| self.can_read(earlier, *place));
                gives && later.into_iter().any(|later| later != earlier && self.can_read(later, bridge.to))
            })
            .collect();
        let [bridge] = bridges.as_slice() else { return false };
        let [from] = bridge.from.as_slice() else { return false };
        own.len() <= 1
            && own.iter().all(|mention| *mention == from.relation)
            && self.application.is_unique(&self.column(*from))
    }
}
