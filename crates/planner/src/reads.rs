//! Step 3: reads over several services (section 4.2).
//!
//! "Complex query rewriting should be the preferred option ... column replication may be applied if the replicated data
//! are never or seldom updated. In last resort ... merging the concerned data services is always correct." In this order a
//! statement is left as it is if one service has all that it names, is rewritten, gets copies of the columns that decide
//! its answer, or makes services one.
//!
//! Example: the best sellers of a subject join order lines with items by subject. The subject's items are any number, so
//! no step can be bounded; but `i_subject` is never updated, so a copy of it beside the order lines lets one step choose
//! the 50 items, and the titles are looked up after that.

use std::collections::{BTreeMap, BTreeSet};

use crate::application::{Application, Query};
use crate::clusters::Reason;
use crate::column::Column;
use crate::decision::Decision;
use crate::layout::Layout;
use crate::rewrite::{Rewritten, Unsplit, rewrite};

/// How a statement runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// As it is, in this service; `None` if it names no table.
    Whole(Option<usize>),
    /// As several.
    Rewritten(Rewritten),
}

/// A copy of a column in a service that is not its home.
#[derive(Clone, PartialEq, Debug)]
pub struct Copy {
    /// The column.
    pub column: Column,
    /// The reads that need it.
    pub queries: BTreeSet<String>,
    /// How often the column is updated, in the unit of the application's rates.
    pub updates: f64,
}

/// Services that became one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Merge {
    /// The read for whose sake.
    pub query: String,
    /// Why it could not be rewritten.
    pub why: Unsplit,
    /// Columns that are in one service now.
    pub columns: BTreeSet<Column>,
}

impl Merge {
    pub(crate) fn reason(&self) -> Reason {
        Reason::Merged(self.query.clone())
    }
}

/// How all statements run on a layout, and the copies for that.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Reads {
    pub(crate) layout: Layout,
    pub(crate) answers: BTreeMap<String, Answer>,
    pub(crate) merges: Vec<Merge>,
    /// The reads for which each service got a copy.
    copied_for: BTreeMap<(usize, Column), BTreeSet<String>>,
}

/// Copies with which a read can be answered.
struct Offer {
    updates: f64,
    service: usize,
    columns: BTreeSet<Column>,
}

impl Reads {
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, ..Self::default() }
    }

    /// Finds how every statement runs; the error is the first merge that is needed.
    pub(crate) fn settle(&mut self, application: &Application) -> Result<(), Merge> {
        // Copies that one read needs may help another, so those are found first.
        for (name, query) in &application.queries {
            if let Err(why) = answer(application, query, &self.layout) {
                self.copy(application, name, query, &why)?;
            }
        }
        for (name, query) in &application.queries {
            match answer(application, query, &self.layout) {
                Ok(found) => {
                    self.answers.insert(name.clone(), found);
                }
                Err(why) => return Err(self.merge(application, name, query, why)),
            }
        }
        Ok(())
    }

    fn copy(
        &mut self,
        application: &Application,
        name: &str,
        query: &Query,
        why: &Unsplit,
    ) -> Result<(), Merge> {
        let offers = involved(application, query, &self.layout).into_iter();
        let offers = offers.filter_map(|service| self.offer(application, query, service));
        let best = offers.min_by(|one, other| {
            let size = |offer: &Offer| (offer.columns.len(), offer.service);
            one.updates.total_cmp(&other.updates).then_with(|| size(one).cmp(&size(other)))
        });
        let Some(offer) = best else { return Err(self.merge(application, name, query, why.clone())) };
        for column in offer.columns {
            self.layout.copies[offer.service].insert(column.clone());
            self.copied_for.entry((offer.service, column)).or_default().insert(name.to_owned());
        }
        Ok(())
    }

    /// The fewest copies in a service with which it can decide the read.
    fn offer(&self, application: &Application, query: &Query, service: usize) -> Option<Offer> {
        let deciding = Decision::of(application, query).columns;
        let deciding = deciding.into_iter().map(|place| application.column(&query.anatomy, place)).collect();
        let all: BTreeSet<Column> = if query.writes() { application.read(query) } else { deciding };
        [all, application.read(query)].into_iter().find_map(|wanted| {
            let lacks = |column: &&Column| !self.layout.holds(service, column);
            let mut columns: BTreeSet<Column> = wanted.iter().filter(lacks).cloned().collect();
            let seldom = |column: &Column| {
                updates(application, column) <= application.seldom * reads(application, column)
            };
            if columns.is_empty() || !columns.iter().all(seldom) {
                return None;
            }
            let answers = |columns: &BTreeSet<Column>| {
                let mut layout = self.layout.clone();
                layout.copies[service].extend(columns.iter().cloned());
                answer_at(application, query, &layout, service).is_ok()
            };
            if !answers(&columns) {
                return None;
            }
            for column in columns.clone() {
                let mut fewer = columns.clone();
                fewer.remove(&column);
                if answers(&fewer) {
                    columns = fewer;
                }
            }
            // A key comes with every part of its table.
            let is_alone = |column: &Column| !columns.iter().any(|c| c.table == column.table && c != column);
            let columns: BTreeSet<Column> =
                columns.iter().filter(|c| !self.layout.is_key(c) || is_alone(c)).cloned().collect();
            let updates = columns.iter().map(|column| updates(application, column)).sum();
            Some(Offer { updates, service, columns })
        })
    }

    /// Makes one of the services that hold what decides a read, or of all that it needs if that is no progress.
    fn merge(&self, application: &Application, name: &str, query: &Query, why: Unsplit) -> Merge {
        let deciding = Decision::of(application, query).columns;
        let deciding: BTreeSet<Column> =
            deciding.into_iter().map(|place| application.column(&query.anatomy, place)).collect();
        let mut read = application.read(query);
        read.extend(application.written(query));
        let columns = [deciding, read].into_iter().map(|columns| self.representatives(&columns));
        let columns =
            columns.filter(|columns| columns.len() > 1).min_by_key(BTreeSet::len).unwrap_or_default();
        Merge { query: name.to_owned(), why, columns }
    }

    /// One column of each service that is needed for these columns.
    fn representatives(&self, columns: &BTreeSet<Column>) -> BTreeSet<Column> {
        let services: BTreeSet<usize> = columns
            .iter()
            .filter_map(|column| self.layout.services.iter().position(|service| service.contains(column)))
            .collect();
        services.iter().filter_map(|&service| self.layout.services[service].first().cloned()).collect()
    }

    /// The copies in a service.
    pub(crate) fn copies(&self, application: &Application, service: usize) -> Vec<Copy> {
        let here = self.copied_for.iter().filter(|((at, _), _)| *at == service);
        here.map(|((_, column), queries)| Copy {
            column: column.clone(),
            queries: queries.clone(),
            updates: updates(application, column),
        })
        .collect()
    }
}

/// The services that hold what a statement needs.
fn involved(application: &Application, query: &Query, layout: &Layout) -> BTreeSet<usize> {
    let columns: BTreeSet<Column> =
        application.read(query).into_iter().chain(application.written(query)).collect();
    let holds = |at: &usize| {
        columns.iter().any(|column| {
            layout.services[*at].contains(column)
                || (layout.is_key(column) && layout.holds(*at, column))
                || layout.copies[*at].contains(column)
        })
    };
    (0..layout.services.len()).filter(holds).collect()
}

/// How a statement runs, if it can: whole if possible, else in the fewest steps.
fn answer(application: &Application, query: &Query, layout: &Layout) -> Result<Answer, Unsplit> {
    let involved = involved(application, query, layout);
    if query.anatomy.relations.is_empty() || involved.is_empty() {
        return Ok(Answer::Whole(None));
    }
    let mut best: Result<Answer, Unsplit> = Err(Unsplit::NotPlain);
    for &service in &involved {
        let steps = |answer: &Answer| match answer {
            Answer::Whole(_) => 0,
            Answer::Rewritten(rewritten) => rewritten.steps.len(),
        };
        let found = answer_at(application, query, layout, service);
        let better = match (&best, &found) {
            (Ok(best), Ok(found)) => steps(found) < steps(best),
            (Err(Unsplit::NotPlain), Err(_)) | (Err(_), Ok(_)) => true,
            _ => false,
        };
        if better {
            best = found;
        }
    }
    best
}

/// How a statement runs with as much as possible in one service.
fn answer_at(
    application: &Application,
    query: &Query,
    layout: &Layout,
    service: usize,
) -> Result<Answer, Unsplit> {
    let written = application.written(query);
    let at_home = |column: &Column| layout.services[service].contains(column) || layout.is_key(column);
    let reads_here = application.read(query).iter().all(|column| layout.holds(service, column));
    if reads_here && written.iter().all(at_home) {
        return Ok(Answer::Whole(Some(service)));
    }
    rewrite(application, query, layout, service).map(Answer::Rewritten)
}

/// How often a column is updated.
pub(crate) fn updates(application: &Application, column: &Column) -> f64 {
    let writes = application.queries.values().filter(|query| application.written(query).contains(column));
    writes.map(|query| query.rate).sum()
}

/// How often a column is read.
fn reads(application: &Application, column: &Column) -> f64 {
    let reads = application.queries.values().filter(|query| application.read(query).contains(column));
    reads.map(|query| query.rate).sum()
}
