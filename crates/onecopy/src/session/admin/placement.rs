//! PLACE TABLE and SHOW PLACEMENT: which replicas hold which tables.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::ids::{ReplicaId, TableId};
use cluster::placement::ReplicaSet;
use sql::Name;
use sql::profile::table_names;
use tokio::time::{Duration, sleep};
use wire::{encode, sqlstate};

use crate::client::Client;
use crate::coordinator::Coordinator;
use crate::error::Refusal;
use crate::membership::place_table;
use crate::membership::place_table::Wish;

/// How often a waiting client gets the progress.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// The rows of SHOW PLACEMENT that are about no single table.
const EVERY_TABLE: &str = "(every table)";
const OTHER_TABLES: &str = "(every other table)";

/// Tables, and the replicas that are to hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placing {
    tables: Vec<Name>,
    wish: Wish,
}

/// Reads `PLACE TABLE a, b ON replica-1, replica-2` or `PLACE TABLE a EVERYWHERE`; `None` if it is no such command.
pub(super) fn parse(sql: &[u8]) -> Result<Option<Placing>, Refusal> {
    let text = String::from_utf8_lossy(sql).into_owned();
    let text = text.trim_end_matches([';', ' ', '\n', '\t']).trim_start();
    let Some(rest) = after_word(text, "PLACE").and_then(|rest| after_word(rest, "TABLE")) else {
        return Ok(None);
    };
    let (tables, wish) = if let Some(tables) = before_word(rest, "EVERYWHERE") {
        (tables, Wish::Everywhere)
    } else {
        let is_on =
            |at: &usize| rest[*at..].split_whitespace().next().is_some_and(|w| w.eq_ignore_ascii_case("ON"));
        let starts = rest.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, c)| at + c.len_utf8());
        let on = starts.rev().find(is_on).ok_or_else(|| malformed("ON or EVERYWHERE is missing"))?;
        let replicas =
            rest[on + "ON".len()..].split(',').map(|name| name.trim().trim_matches('"').to_owned());
        (&rest[..on], Wish::On(replicas.collect()))
    };
    if wish == Wish::On(BTreeSet::from([String::new()])) {
        return Err(malformed("a replica is missing"));
    }
    let tables = table_names(tables).map_err(|error| malformed(&format!("in the list of tables {error}")))?;
    Ok(Some(Placing { tables, wish }))
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (first, rest) = text.split_once(char::is_whitespace)?;
    first.eq_ignore_ascii_case(word).then(|| rest.trim_start())
}

fn before_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (rest, last) = text.rsplit_once(char::is_whitespace)?;
    last.eq_ignore_ascii_case(word).then_some(rest)
}

fn malformed(what: &str) -> Refusal {
    Refusal::new(
        sqlstate::SYNTAX_ERROR,
        format!("PLACE TABLE cannot be understood: {what}"),
        "Write PLACE TABLE orders, lines ON replica-1, replica-2; or PLACE TABLE orders EVERYWHERE.",
    )
}

/// Carries PLACE TABLE out. It goes on when its client goes away.
pub(super) async fn run(
    coordinator: &Arc<Coordinator>,
    placing: &Placing,
    client: &mut Client,
) -> Result<Vec<Vec<String>>, Refusal> {
    let Placing { tables, wish } = placing.clone();
    let mut task = tokio::spawn(place_table::run(Arc::clone(coordinator), tables, wish));
    let ended = loop {
        tokio::select! {
            ended = &mut task => break ended,
            () = sleep(NOTICE_EVERY) => tell_stages(coordinator, client).await,
        }
    };
    let placed =
        ended.map_err(|error| Refusal::plain(sqlstate::INTERNAL_ERROR, format!("it broke off: {error}")))?;
    let tables = placed.map_err(|error| error.refusal())?;
    let row = |table: &TableId| vec![coordinator.table_name(*table), holders(coordinator, *table)];
    Ok(tables.iter().map(row).collect())
}

async fn tell_stages(coordinator: &Coordinator, client: &mut Client) {
    for seat in coordinator.seats.iter() {
        if let Some(stage) = coordinator.stage(seat.replica) {
            let text = format!("{}: {stage}", seat.name);
            encode::notice(&mut client.out, "NOTICE", sqlstate::SUCCESS, &text, None);
        }
    }
    if client.flush().await.is_err() {
        tracing::debug!("the client that asked for a placement has gone");
    }
}

/// The rows of SHOW PLACEMENT: each restricted table, then those that hold every table, and those that hold the others.
pub(super) fn rows(coordinator: &Coordinator) -> Vec<Vec<String>> {
    let restricted = coordinator.restricted();
    let mut rows: Vec<Vec<String>> = restricted
        .iter()
        .map(|(table, set)| vec![coordinator.table_name(*table), names(coordinator, *set)])
        .collect();
    rows.sort();
    let members: Vec<ReplicaId> = coordinator.seats.iter().map(|seat| seat.replica).collect();
    let is_full = |replica: &ReplicaId| coordinator.core.holdings(*replica).is_everything();
    let full: ReplicaSet = members.iter().copied().filter(is_full).collect();
    rows.push(vec![EVERY_TABLE.to_owned(), names(coordinator, full)]);
    rows.push(vec![OTHER_TABLES.to_owned(), names(coordinator, members.into_iter().collect())]);
    rows
}

fn holders(coordinator: &Coordinator, table: TableId) -> String {
    names(coordinator, coordinator.core.holders(table))
}

fn names(coordinator: &Coordinator, set: ReplicaSet) -> String {
    let held = coordinator.seats.iter().filter(|seat| set.contains(seat.replica));
    held.map(|seat| seat.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Option<(String, Wish)> {
        let placing = parse(sql.as_bytes()).unwrap()?;
        Some((placing.tables.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), placing.wish))
    }

    #[test]
    fn a_command_names_tables_and_replicas() {
        let on = |names: &[&str]| Wish::On(names.iter().map(|name| (*name).to_owned()).collect());
        assert_eq!(
            parsed("place  table Orders, s.\"Line on b\"\n on replica-1,\"replica-2\" ;"),
            Some(("orders s.Line on b".to_owned(), on(&["replica-1", "replica-2"])))
        );
        assert_eq!(parsed("PLACE TABLE t EVERYWHERE;"), Some(("t".to_owned(), Wish::Everywhere)));
        assert_eq!(parsed("PLACE REPLICA t"), None);
        assert_eq!(parsed("SHOW PLACEMENT"), None);
        for wrong in [
            "PLACE TABLE t",
            "PLACE TABLE ON a",
            "PLACE TABLE t ON",
            "PLACE TABLE t u ON a",
            "PLACE TABLE t ON ",
        ] {
            let refused = parse(wrong.as_bytes()).unwrap_err();
            assert!(refused.hint.is_some_and(|hint| hint.contains("PLACE TABLE orders")), "{wrong}");
        }
    }
}
