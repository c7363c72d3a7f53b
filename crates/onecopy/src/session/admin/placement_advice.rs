//! SHOW PLACEMENT ADVICE: tables that fewer replicas could hold, with the commands that place them so.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::TableId;
use cluster::placement::Touches;

use crate::coordinator::{Coordinator, Leader};
use crate::database::placement_advice::{Advice, HeldSchema, advise};

/// The rows, the most worthwhile first.
pub(super) fn rows(leader: &Leader) -> Vec<Vec<String>> {
    let advice = advise(&leader.database.workload.usage(), &schema(leader));
    // Each goes to other replicas beside the anchor, which holds everything.
    (0..).zip(advice).map(|(number, advice)| row(leader, &advice, number)).collect()
}

/// The schema, with the number of replicas that hold some rows of each table. Tables that are split are left out: their parts are dealt by
/// PLACE PARTS.
fn schema(leader: &Leader) -> HeldSchema {
    let catalogue = leader.database.catalogue();
    let mut children: BTreeMap<TableId, BTreeSet<TableId>> = BTreeMap::new();
    for table in catalogue.tables() {
        for reference in &table.references {
            children.entry(reference.parent).or_default().insert(table.id);
        }
    }
    let members: Vec<_> = leader.seats.iter().map(|seat| leader.core.holdings(seat.replica)).collect();
    let is_split = |table: TableId| members.iter().any(|holdings| holdings.split(table).is_some());
    let copies = catalogue.tables().map(|table| table.id).filter(|table| !is_split(*table));
    let count = |table: TableId| members.iter().filter(|holdings| holdings.holds_row(table, None)).count();
    HeldSchema {
        replicas: members.len(),
        copies: copies.map(|table| (table, count(table))).collect(),
        children,
    }
}

fn row(leader: &Leader, advice: &Advice, number: usize) -> Vec<String> {
    let names: Vec<String> = advice.tables.iter().map(|table| leader.table_name(*table)).collect();
    let anchor = leader.view.anchor();
    let others: Vec<&str> =
        leader.seats.iter().filter(|seat| seat.replica != anchor).map(|seat| seat.name.as_str()).collect();
    let beside = advice.enough - 1;
    let chosen = others.iter().cycle().skip(number * beside).take(beside).copied();
    let holders: Vec<&str> = std::iter::once(leader.seats[anchor].name.as_str()).chain(chosen).collect();
    vec![
        names.join(", "),
        advice.writes.to_string(),
        format!("{}.{} %", advice.share / 10, advice.share % 10),
        advice.copies.to_string(),
        advice.enough.to_string(),
        advice.in_vain().to_string(),
        format!("PLACE TABLE {} ON {}", names.join(", "), holders.join(", ")),
    ]
}

/// The names of the replicas that hold all of these tables; of those that hold everything, if the tables are not bounded.
pub(super) fn held_by(coordinator: &Coordinator, tables: Option<&BTreeSet<TableId>>) -> String {
    let touches = match tables {
        Some(tables) => Touches::Tables(tables.iter().copied().collect()),
        None => Touches::Anything,
    };
    let held = coordinator.seats.iter().filter(|seat| coordinator.core.holdings(seat.replica).hold(&touches));
    held.map(|seat| seat.name.as_str()).collect::<Vec<_>>().join(", ")
}
