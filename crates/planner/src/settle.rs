//! Steps 1 to 3, one after the other, until no read needs a merge.

use std::collections::BTreeSet;

use crate::application::Application;
use crate::clusters::{Changes, Graph, clusters};
use crate::column::Column;
use crate::layout::Layout;
use crate::read_only::read_only;
use crate::reads::{Merge, Reads};

/// Steps 1 to 3. A merge is a further reason to stay together, with which steps 2 and 3 are done anew.
pub(crate) fn settled(application: &Application) -> (Graph, Reads) {
    let changes = Changes::of(application);
    let mut merges: Vec<Merge> = Vec::new();
    loop {
        let mut graph = clusters(application, &changes);
        read_only(application, &changes, &mut graph);
        for merge in &merges {
            graph.join(merge.reason(), merge.columns.clone());
        }
        let layout = layout(application, &changes, &graph);
        let mut reads = Reads::new(layout);
        match reads.settle(application) {
            Ok(()) => {
                reads.merges = merges;
                return (graph, reads);
            }
            Err(merge) => merges.push(merge),
        }
    }
}

fn layout(application: &Application, changes: &Changes, graph: &Graph) -> Layout {
    let columns: BTreeSet<Column> =
        application.columns().into_iter().filter(|column| !changes.repeated.contains(column)).collect();
    let mut services = graph.classes(&columns);
    let is_read_only =
        |class: &BTreeSet<Column>| !class.iter().any(|column| changes.updated.contains(column));
    services.sort_by_key(|class| (is_read_only(class), class.first().cloned()));
    let tables = application.catalogue.tables();
    Layout {
        copies: vec![BTreeSet::new(); services.len()],
        services,
        keys: tables.flat_map(|table| application.primary_key(&table.name)).collect(),
    }
}
