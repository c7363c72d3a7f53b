//! Step 2: the columns that nothing updates (section 4.3.1).
//!
//! "The remaining read-only data columns can be further decomposed according to the query workload": the search page of
//! TPC-W looks at titles, subjects and authors, so these become one service. The rules, in order:
//!
//! - a table of which nothing is updated stays whole, since splitting it would gain nothing;
//! - columns that decide one read's answer stay together, so that one service can give the answer;
//! - a whole table that is only ever used together with one service of updated columns joins that service (the countries
//!   of TPC-W live with the addresses);
//! - what is left of a table goes by the set of reads that show it.

use std::collections::{BTreeMap, BTreeSet};

use crate::application::{Application, Query};
use crate::clusters::{Changes, Graph, Reason};
use crate::column::Column;
use crate::decision::Decision;

/// Adds the reasons of step 2 to the graph of step 1.
pub(crate) fn read_only(application: &Application, changes: &Changes, graph: &mut Graph) {
    let rest: BTreeSet<Column> = application
        .columns()
        .into_iter()
        .filter(|column| !changes.updated.contains(column) && !changes.repeated.contains(column))
        .collect();
    let changed: BTreeSet<&str> = changes.updated.iter().map(|column| column.table.as_str()).collect();
    let is_whole = |column: &Column| !changed.contains(column.table.as_str());
    for column in rest.iter().filter(|column| is_whole(column)) {
        let columns = rest.iter().filter(|other| other.table == column.table).cloned().collect();
        graph.join(Reason::Whole(column.table.clone()), columns);
    }
    let mut deciding = BTreeSet::new();
    for (name, query) in &application.queries {
        let columns = Decision::of(application, query).columns;
        let columns = columns.into_iter().map(|place| application.column(&query.anatomy, place));
        let columns: BTreeSet<Column> = columns.filter(|column| rest.contains(column)).collect();
        deciding.extend(columns.iter().cloned());
        graph.join(Reason::Decides(name.clone()), columns);
    }
    attach(application, changes, graph, &rest, &is_whole);
    let left = rest.into_iter().filter(|column| !is_whole(column) && !deciding.contains(column));
    by_reads(application, graph, left);
}

/// Joins whole tables to the one service with which they are always used.
fn attach(
    application: &Application,
    changes: &Changes,
    graph: &mut Graph,
    rest: &BTreeSet<Column>,
    is_whole: &dyn Fn(&Column) -> bool,
) {
    let services = graph.classes(&changes.updated);
    let uses = occasions(application);
    for class in graph.classes(rest) {
        if !class.iter().all(is_whole) {
            continue;
        }
        let together = uses.iter().filter(|used| !used.is_disjoint(&class)).map(|used| {
            let met = |at: &usize| !services[*at].is_disjoint(used);
            (0..services.len()).filter(met).collect::<BTreeSet<usize>>()
        });
        let common = together.reduce(|one, other| &one & &other).unwrap_or_default();
        let service = common.first().and_then(|at| services[*at].first());
        if let (Some(service), Some(first)) = (service, class.first()) {
            graph.join(
                Reason::Attached(first.table.clone()),
                BTreeSet::from([first.clone(), service.clone()]),
            );
        }
    }
}

/// The columns that are used together: by each unit, and by each statement outside of units.
fn occasions(application: &Application) -> Vec<BTreeSet<Column>> {
    let touched = |query: &Query| -> BTreeSet<Column> {
        application.read(query).into_iter().chain(application.written(query)).collect()
    };
    let alone = application.queries.values().filter(|query| query.alone).map(touched);
    let units = application.units.values().map(|unit| {
        let queries = unit.queries.iter().filter_map(|name| application.queries.get(name));
        queries.flat_map(touched).collect()
    });
    alone.chain(units).collect()
}

/// Joins columns of one table that the same reads show.
fn by_reads(application: &Application, graph: &mut Graph, left: impl Iterator<Item = Column>) {
    let mut groups: BTreeMap<(String, Vec<String>), BTreeSet<Column>> = BTreeMap::new();
    for column in left {
        let reads = application.queries.iter().filter(|(_, query)| application.read(query).contains(&column));
        let reads = reads.map(|(name, _)| name.clone()).collect();
        groups.entry((column.table.clone(), reads)).or_default().insert(column);
    }
    for ((_, reads), columns) in groups {
        graph.join(Reason::SameReads(reads), columns);
    }
}
