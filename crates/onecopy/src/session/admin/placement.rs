//! PLACE TABLE, PLACE PARTS and SHOW PLACEMENT: which replicas hold which tables and parts of tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::ids::{ReplicaId, TableId};
use cluster::placement::{Copies, Placement, ReplicaSet};
use sql::Name;
use sql::profile::table_names;
use tokio::time::{Duration, sleep};
use wire::sqlstate;

use super::asker::Asker;
use crate::capture::quoting::quoted;
use crate::coordinator::Leader;
use crate::coordinator::node_kind::Order;
use crate::error::Refusal;
use crate::membership::place_table;
use crate::membership::place_table::parts::Dealing;
use crate::membership::place_table::{PlaceError, Wish};

/// How often a waiting client gets the progress.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// The rows of SHOW PLACEMENT that are about no single table.
const EVERY_TABLE: &str = "(every table)";
const OTHER_TABLES: &str = "(every other table)";

/// What is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    /// Tables.
    Tables {
        /// Their names.
        tables: Vec<Name>,
        /// Where.
        wish: Wish,
        /// Where updates of them begin; empty for any holder.
        masters: BTreeSet<String>,
    },
    /// The parts of tables that are split.
    Parts(Dealing),
}

/// Reads `PLACE TABLE a, b ON replica-1, replica-2 [MASTER replica-1]`, `PLACE TABLE a EVERYWHERE`, `PLACE TABLE a BY column` or
/// `PLACE PARTS 16 COPIES 2 ON replica-2, replica-3`; `None` if it is no such command.
pub(super) fn parse(sql: &[u8]) -> Result<Option<Placing>, Refusal> {
    let text = String::from_utf8_lossy(sql).into_owned();
    let text = text.trim_end_matches([';', ' ', '\n', '\t']).trim_start();
    let Some(rest) = after_word(text, "PLACE") else { return Ok(None) };
    if let Some(rest) = after_word(rest, "PARTS") {
        return dealing(rest).map(Placing::Parts).map(Some);
    }
    let Some(rest) = after_word(rest, "TABLE") else { return Ok(None) };
    let (rest, masters) = match split_at_word(rest, "MASTER") {
        Some((rest, names)) => (rest.trim_end(), replica_names(names)?),
        None => (rest, BTreeSet::new()),
    };
    let (tables, wish) = if let Some(tables) = before_word(rest, "EVERYWHERE") {
        (tables, Wish::Everywhere)
    } else if let Some((tables, column)) = split_at_word(rest, "BY").filter(|(_, name)| !name.is_empty()) {
        (tables, Wish::By(column_name(column)?))
    } else {
        let (tables, names) =
            split_at_word(rest, "ON").ok_or_else(|| malformed("ON, BY or EVERYWHERE is missing"))?;
        (tables, Wish::On(replica_names(names)?))
    };
    let tables = table_names(tables).map_err(|error| malformed(&format!("in the list of tables {error}")))?;
    if matches!(wish, Wish::By(_)) && !masters.is_empty() {
        return Err(malformed("tables that are placed BY a column have no masters"));
    }
    Ok(Some(Placing::Tables { tables, wish, masters }))
}

fn dealing(text: &str) -> Result<Dealing, Refusal> {
    let (text, among) = match split_at_word(text, "ON") {
        Some((text, names)) => (text, replica_names(names)?),
        None => (text, BTreeSet::new()),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let [count, word, copies] = words.as_slice() else {
        return Err(malformed("the number of parts or of copies is missing"));
    };
    let number = |word: &str| word.parse::<u16>().ok();
    let count = number(count).map(|count| u8::try_from(count).unwrap_or(u8::MAX));
    let numbers = count.zip(number(copies).filter(|copies| *copies > 0));
    match numbers {
        Some((count, copies)) if word.eq_ignore_ascii_case("COPIES") => Ok(Dealing { count, copies, among }),
        _ => Err(malformed("the number of parts or of copies is no number")),
    }
}

fn replica_names(text: &str) -> Result<BTreeSet<String>, Refusal> {
    let names: BTreeSet<String> =
        text.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect();
    if names.contains("") { Err(malformed("a replica is missing")) } else { Ok(names) }
}

/// A column's name as the catalogue has it.
fn column_name(text: &str) -> Result<String, Refusal> {
    let names = table_names(text).map_err(|error| malformed(&format!("in the column {error}")))?;
    match names.as_slice() {
        [Name { schema: None, name }] => Ok(name.clone()),
        _ => Err(malformed("there has to be one column")),
    }
}

/// The texts before and after the last occurrence of a word.
fn split_at_word<'a>(text: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let is_there = |at: &usize| {
        text[*at..].split_whitespace().next().is_some_and(|first| first.eq_ignore_ascii_case(word))
    };
    let starts = text.char_indices().filter(|(_, c)| c.is_whitespace()).map(|(at, c)| at + c.len_utf8());
    let at = starts.rev().find(is_there)?;
    Some((&text[..at], text[at + word.len()..].trim()))
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
        format!("PLACE cannot be understood: {what}"),
        "Write PLACE TABLE orders, lines ON replica-1, replica-2; PLACE TABLE orders EVERYWHERE; PLACE PARTS 16 COPIES 2 ON replica-2, replica-3; or PLACE TABLE orders BY customer.",
    )
}

/// Carries PLACE out. It goes on when its client goes away.
pub(super) async fn run(
    leader: &Arc<Leader>,
    placing: &Placing,
    asker: &mut Asker<'_>,
) -> Result<Vec<Vec<String>>, Refusal> {
    let mut task = tokio::spawn(carry_out(Arc::clone(leader), placing.clone()));
    let ended = loop {
        tokio::select! {
            ended = &mut task => break ended,
            () = sleep(NOTICE_EVERY) => tell_stages(leader, asker).await,
        }
    };
    let placed =
        ended.map_err(|error| Refusal::plain(sqlstate::INTERNAL_ERROR, format!("it broke off: {error}")))?;
    match placed? {
        Outcome::Tables(tables) => {
            let placement = leader.kind.placement(leader);
            let copies = |table: &TableId| {
                placement
                    .as_ref()
                    .map_or(Copies::Whole(ReplicaSet::EMPTY), |placement| placement.copies(*table))
            };
            let rows = |table: &TableId| table_rows(leader, *table, &copies(table));
            Ok(tables.iter().flat_map(rows).collect())
        }
        Outcome::Parts(holders) => Ok(part_rows(leader, "parts", &holders)),
    }
}

/// What was placed.
enum Outcome {
    Tables(Vec<TableId>),
    Parts(Vec<ReplicaSet>),
}

async fn carry_out(leader: Arc<Leader>, placing: Placing) -> Result<Outcome, Refusal> {
    match placing {
        Placing::Tables { tables, wish, masters } => {
            let holders = match &wish {
                Wish::On(names) => Some(names.clone()),
                Wish::Everywhere | Wish::By(_) => None,
            };
            let order = Order { tables: tables.clone(), holders };
            let Some(placing) = Arc::clone(&leader.kind).place(order) else {
                let placed = place_table::run(leader, tables, wish, masters).await;
                return placed.map(Outcome::Tables).map_err(|error| error.refusal());
            };
            if matches!(wish, Wish::By(_)) || !masters.is_empty() {
                let error = PlaceError::NotOffered("by a column or with masters under c-jdbc");
                return Err(error.refusal());
            }
            placing.await.map(Outcome::Tables)
        }
        Placing::Parts(dealing) => {
            if leader.core.placement().is_none() {
                return Err(PlaceError::NotOffered("by parts where statements are shipped").refusal());
            }
            let dealt = place_table::parts::deal(leader, dealing).await;
            dealt.map(Outcome::Parts).map_err(|error| error.refusal())
        }
    }
}

async fn tell_stages(leader: &Leader, asker: &mut Asker<'_>) {
    for seat in leader.seats.iter() {
        if let Some(stage) = leader.stage(seat.replica) {
            let text = format!("{}: {stage}", seat.name);
            asker.notice(&text).await;
        }
    }
}

/// The rows of SHOW PLACEMENT: each restricted table, then those that hold every table, and those that hold the others.
pub(super) fn rows(leader: &Leader) -> Vec<Vec<String>> {
    let placement = leader.kind.placement(leader);
    let listed = placement.iter().flat_map(Placement::restricted);
    let restricted: Vec<(TableId, Copies)> = listed.map(|(table, copies)| (table, copies.clone())).collect();
    let mut rows: Vec<Vec<String>> =
        restricted.iter().flat_map(|(table, copies)| table_rows(leader, *table, copies)).collect();
    let is_restricted = |table: TableId| restricted.iter().any(|(other, _)| *other == table);
    let mastered = leader.core.mastered().into_iter().filter(|table| !is_restricted(*table));
    rows.extend(mastered.flat_map(|table| table_rows(leader, table, &leader.core.copies(table))));
    rows.sort();
    let members: Vec<ReplicaId> = leader.seats.iter().map(|seat| seat.replica).collect();
    let is_full = |replica: &ReplicaId| {
        placement.as_ref().is_none_or(|placement| placement.holdings(*replica).is_everything())
    };
    let full: ReplicaSet = members.iter().copied().filter(is_full).collect();
    rows.push(vec![EVERY_TABLE.to_owned(), names(leader, full)]);
    rows.push(vec![OTHER_TABLES.to_owned(), names(leader, members.into_iter().collect())]);
    rows
}

/// The rows of one table: one, or one for all parts that the same replicas hold.
fn table_rows(leader: &Leader, table: TableId, copies: &Copies) -> Vec<Vec<String>> {
    let name = leader.table_name(table);
    match copies {
        Copies::Whole(holders) => {
            vec![vec![name, with_masters(leader, *holders, leader.core.masters(table))]]
        }
        Copies::Parts { column, holders } => {
            part_rows(leader, &format!("{name} by {}, parts", quoted(column)), holders)
        }
    }
}

fn part_rows(leader: &Leader, what: &str, holders: &[ReplicaSet]) -> Vec<Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (part, holders) in holders.iter().enumerate() {
        groups.entry(names(leader, *holders)).or_default().push(part.to_string());
    }
    let count = holders.len();
    let row = |(holders, parts): (String, Vec<String>)| {
        vec![format!("{what} {} of {count}", parts.join(", ")), holders]
    };
    groups.into_iter().map(row).collect()
}

fn with_masters(leader: &Leader, holders: ReplicaSet, masters: ReplicaSet) -> String {
    let held = leader.seats.iter().filter(|seat| holders.contains(seat.replica));
    let names = held.map(|seat| {
        let word = if masters.contains(seat.replica) { " (master)" } else { "" };
        format!("{}{word}", seat.name)
    });
    names.collect::<Vec<_>>().join(", ")
}

fn names(leader: &Leader, set: ReplicaSet) -> String {
    let held = leader.seats.iter().filter(|seat| set.contains(seat.replica));
    held.map(|seat| seat.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Option<(String, Wish)> {
        let Placing::Tables { tables, wish, .. } = parse(sql.as_bytes()).unwrap()? else { return None };
        Some((tables.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "), wish))
    }

    #[test]
    fn parts_are_dealt_and_tables_split() {
        let dealing = |count, copies, among: &[&str]| {
            let among = among.iter().map(|name| (*name).to_owned()).collect();
            Some(Placing::Parts(Dealing { count, copies, among }))
        };
        assert_eq!(parse(b"place parts 16 copies 2;").unwrap(), dealing(16, 2, &[]));
        let named = parse(b"PLACE PARTS 8 COPIES 1 ON replica-2, \"replica-3\"").unwrap();
        assert_eq!(named, dealing(8, 1, &["replica-2", "replica-3"]));
        let by = |column: &str| Wish::By(column.to_owned());
        assert_eq!(parsed("PLACE TABLE stock BY S_W_id"), Some(("stock".to_owned(), by("s_w_id"))));
        assert_eq!(parsed("PLACE TABLE a, b BY \"W id\""), Some(("a b".to_owned(), by("W id"))));
        let mastered = parse(b"place table t everywhere master b, c").unwrap();
        let Some(Placing::Tables { wish: Wish::Everywhere, masters, .. }) = mastered else {
            panic!("{mastered:?}")
        };
        assert_eq!(masters, ["b", "c"].map(str::to_owned).into());
        for wrong in [
            "PLACE TABLE t ON a MASTER",
            "PLACE TABLE t BY a MASTER b",
            "PLACE PARTS 16",
            "PLACE PARTS COPIES 2",
            "PLACE PARTS 16 COPIES 0",
            "PLACE PARTS x COPIES 2",
            "PLACE PARTS 16 COPIES 2 ON",
            "PLACE TABLE t BY a.b",
            "PLACE TABLE t BY a, b",
        ] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
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
