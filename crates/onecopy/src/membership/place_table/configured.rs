//! Tables that are held otherwise than the table `placement` of the configuration says, in the log at the start.
//!
//! The configuration places new tables only. A table that exists may be large, and moving it takes replicas out of service for a
//! while. So the node changes nothing by itself: it names such tables, with the command that places them.
//!
//! Example: `"audit" = ["a", "c"]` is added where a, b and c hold `audit`. The line of the log has `PLACE TABLE public.audit ON a, c`.

use std::collections::BTreeMap;

use cluster::placement::ReplicaSet;

use super::{closure, members, told};
use crate::backend::BackendError;
use crate::capture::quoting::quoted;
use crate::config::placement::{PlacementRules, TableName};
use crate::coordinator::Leader;
use crate::coordinator::node_kind::NewTable;

/// Tables that one command places.
struct Group {
    wanted: ReplicaSet,
    tables: Vec<String>,
}

/// Writes a line for all tables that are to be held by the same replicas.
pub(crate) async fn report(leader: &Leader, rules: &PlacementRules) {
    if rules.is_empty() {
        return;
    }
    let anchor = &leader.seats[leader.view.anchor()].name;
    if !rules.let_hold_all(anchor) {
        tracing::warn!(
            %anchor,
            "[placement] of the configuration does not let the anchor hold all tables; those it may not hold are refused when they are \
             created, until another replica is the anchor"
        );
    }
    match held_otherwise(leader, rules).await {
        Ok(groups) => {
            for Group { wanted, tables } in groups {
                let (tables, replicas) = (tables.join(", "), names(leader, wanted));
                let command = format!("PLACE TABLE {tables} ON {replicas}");
                tracing::warn!(
                    tables,
                    command,
                    "tables are held otherwise than [placement] of the configuration says; the command changes that"
                );
            }
        }
        Err(error) => {
            tracing::warn!(%error, "what each replica holds cannot be compared with [placement] of the configuration");
        }
    }
}

async fn held_otherwise(leader: &Leader, rules: &PlacementRules) -> Result<Vec<Group>, BackendError> {
    let member = |name: &String| leader.seats.named(name).map(|seat| seat.replica);
    let by_rule = |table: NewTable<'_>| {
        let holders: ReplicaSet = rules.of(table.names)?.holders.iter().filter_map(member).collect();
        // Replicas that have left hold nothing.
        (holders != ReplicaSet::EMPTY).then_some(holders)
    };
    let (told, database) = (told(leader).await?, leader.database.served.id);
    let held = |table| leader.core.copies(table);
    let found = closure::held_otherwise(told.as_bytes(), database, by_rule, members(leader), held)?;
    let mut groups: BTreeMap<Vec<u16>, Group> = BTreeMap::new();
    for closure::Otherwise { name, wanted } in found {
        let key = wanted.iter().map(|replica| replica.0).collect();
        let group = groups.entry(key).or_insert_with(|| Group { wanted, tables: Vec::new() });
        group.tables.push(written(&name));
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    // A table that refers to another one is held by fewer replicas, and has to leave the others first.
    groups.sort_by_key(|group| group.wanted.iter().count());
    Ok(groups)
}

/// The name as PLACE TABLE reads it.
fn written(table: &TableName) -> String {
    let is_plain = |name: &str| {
        let is_word = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        is_word && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    // After a dot a keyword needs no quotes, before it one does.
    let schema = if table.schema == "public" { table.schema.clone() } else { quoted(&table.schema) };
    let name = if is_plain(&table.name) { table.name.clone() } else { quoted(&table.name) };
    format!("{schema}.{name}")
}

fn names(leader: &Leader, set: ReplicaSet) -> String {
    let held = leader.seats.iter().filter(|seat| set.contains(seat.replica));
    held.map(|seat| seat.name.as_str()).collect::<Vec<_>>().join(", ")
}
