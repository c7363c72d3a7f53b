//! Tables that are held in parts, for checks with `--placement parts`.
//!
//! [`split`] deals parts to the replicas and splits each table by a column of its primary key. A table that cannot be split stays
//! whole: onecopy says so with 0A000, which is counted. Any other error is a finding. [`Holdings`] is what SHOW PLACEMENT says, so
//! a check can tell which rows a replica must have.
//!
//! Not here: the variable `ONECOPY_TEST_PLACEMENT`, which places whole tables; [`Placement`] only chooses its value.

use std::collections::BTreeSet;

use cluster::placement::part_of;
use testbed::fault::Fault;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// Each part at one replica besides those that hold everything, or at two.
pub(crate) const DEALINGS: [&str; 2] = ["PLACE PARTS 8 COPIES 1", "PLACE PARTS 8 COPIES 2"];

/// The columns of primary keys by which onecopy splits tables, in the order of the key.
const CANDIDATES: &str = "
    SELECT format('\"%s\".\"%s\"', n.nspname, c.relname), format('\"%s\"', a.attname)
    FROM pg_index i
    JOIN pg_class c ON c.oid = i.indrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
    WHERE i.indisprimary AND c.relkind = 'r' AND n.nspname = 'public'
      AND a.atttypid = ANY ('{int2,int4,int8,text,varchar,uuid}'::regtype[])
    ORDER BY 1, array_position(i.indkey::int2[], a.attnum)";

/// Where a check has tables held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// Everywhere.
    Everywhere,
    /// New tables as the value of `ONECOPY_TEST_PLACEMENT` says.
    Tables(String),
    /// Split by a column.
    Parts,
}

impl Placement {
    /// The choice of a word: `parts`, `few` or a seed; `random` is one of the three, by the check's seed.
    pub(crate) fn chosen(word: Option<&str>, seed: u64) -> Self {
        match (word, seed % 3) {
            (None, _) => Self::Everywhere,
            (Some("parts"), _) | (Some("random"), 2) => Self::Parts,
            (Some("random"), 1) => Self::Tables(seed.to_string()),
            (Some("random"), _) => Self::Tables("few".to_owned()),
            (Some(word), _) => Self::Tables(word.to_owned()),
        }
    }

    /// The value of `ONECOPY_TEST_PLACEMENT`.
    pub(crate) fn variable(&self) -> Option<&str> {
        if let Self::Tables(word) = self { Some(word) } else { None }
    }
}

/// The tables that were split.
#[derive(Default, Debug)]
pub(crate) struct Split {
    /// Each as PLACE TABLE takes it after the name of the table: `"public"."t" BY "k"`.
    pub(crate) tables: Vec<String>,
    /// How often onecopy refused to split a table by a column.
    pub(crate) refused: u64,
}

/// Deals parts and splits what can be split.
pub(crate) async fn split(port: u16, dealing: &str) -> Result<Split, Fault> {
    let (client, admin) = (open(port, "postgres").await?, open(port, "onecopy").await?);
    let mut split = Split::default();
    rows(&admin, dealing).await.map_err(|error| failed(dealing, &error))?;
    for candidate in rows(&client, CANDIDATES).await.map_err(|error| failed(CANDIDATES, &error))? {
        let [table, column] = &candidate[..] else { continue };
        // It may have followed one that it refers to.
        let placed =
            rows(&admin, "SHOW PLACEMENT").await.map_err(|error| failed("SHOW PLACEMENT", &error))?;
        if Holdings::read(&placed)?.is_split(table) {
            continue;
        }
        let wish = format!("{table} BY {column}");
        let sql = format!("PLACE TABLE {wish}");
        match rows(&admin, &sql).await {
            Ok(_) => split.tables.push(wish),
            Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => split.refused += 1,
            Err(error) => return Err(failed(&sql, &error)),
        }
    }
    Ok(split)
}

async fn open(port: u16, database: &str) -> Result<Client, Fault> {
    let target = format!("host=127.0.0.1 port={port} user=postgres dbname={database}");
    let connected = tokio_postgres::connect(&target, NoTls).await;
    let (client, connection) = connected.map_err(|error| failed("a connection", &error))?;
    tokio::spawn(connection);
    Ok(client)
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, Error> {
    let messages = client.simple_query(sql).await?;
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}

fn failed(what: &str, error: &Error) -> Fault {
    let why = error
        .as_db_error()
        .map_or_else(|| error.to_string(), |told| format!("{} {}", told.code().code(), told.message()));
    Fault::Wrong(format!("onecopy answers `{what}` with {why}"))
}

/// The rows that each replica holds.
#[derive(Debug)]
pub(crate) struct Holdings {
    sets: Vec<Set>,
}

/// Rows of a table that have the same holders.
#[derive(PartialEq, Eq, Debug)]
struct Set {
    table: String,
    /// The rest is held by others.
    parts: Option<Parts>,
    holders: Vec<String>,
}

#[derive(PartialEq, Eq, Debug)]
struct Parts {
    column: String,
    numbers: BTreeSet<u8>,
    count: u8,
}

impl Holdings {
    /// Reads the answer to SHOW PLACEMENT.
    pub(crate) fn read(rows: &[Vec<String>]) -> Result<Self, Fault> {
        let unreadable = |row: &[String]| Fault::Unreadable {
            what: "a row of SHOW PLACEMENT".to_owned(),
            said: row.join(" | "),
        };
        rows.iter()
            .map(|row| set(row).ok_or_else(|| unreadable(row)))
            .collect::<Result<_, _>>()
            .map(|sets| Self { sets })
    }

    /// Whether a table is split.
    pub(crate) fn is_split(&self, table: &str) -> bool {
        self.sets.iter().any(|set| set.table == table && set.parts.is_some())
    }

    /// Whether a replica holds a row, of which `value` tells the text in a column.
    pub(crate) fn holds<'a>(
        &self,
        replica: &str,
        table: &str,
        value: impl Fn(&str) -> Option<&'a str>,
    ) -> bool {
        let is_in = |parts: &Parts| parts.numbers.contains(&part_of(value(&parts.column), parts.count).0);
        let mut sets = self.sets.iter().filter(|set| set.table == table);
        let set = sets.find(|set| set.parts.as_ref().is_none_or(is_in));
        set.is_none_or(|set| set.holders.iter().any(|holder| holder == replica))
    }
}

/// A row: `"public"."t" by "k", parts 0, 3 of 8` or the name alone, and the holders.
fn set(row: &[String]) -> Option<Set> {
    let [what, holders] = row else { return None };
    let (table, parts) = match what.split_once(" by \"") {
        None => (what.as_str(), None),
        Some((table, rest)) => {
            let (column, rest) = rest.split_once("\", parts ")?;
            let (numbers, count) = rest.split_once(" of ")?;
            let numbers = numbers.split(", ").map(str::parse).collect::<Result<_, _>>().ok()?;
            (table, Some(Parts { column: column.to_owned(), numbers, count: count.parse().ok()? }))
        }
    };
    let holders = holders.split(", ").map(str::to_owned).collect();
    Some(Set { table: table.to_owned(), parts, holders })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_is_one_of_three_kinds() {
        let chosen = |seed| Placement::chosen(Some("random"), seed);
        assert_eq!(chosen(3), Placement::Tables("few".to_owned()));
        assert_eq!(chosen(4), Placement::Tables("4".to_owned()));
        assert_eq!(chosen(5), Placement::Parts);
        assert_eq!(Placement::chosen(Some("parts"), 3), Placement::Parts);
        assert_eq!(Placement::chosen(Some("9"), 3).variable(), Some("9"));
        assert_eq!(Placement::chosen(None, 5), Placement::Everywhere);
    }

    #[test]
    fn a_row_is_held_where_its_part_is() {
        let rows = [
            ["\"public\".\"t\" by \"k\", parts 0, 2 of 3", "a, b"],
            ["\"public\".\"t\" by \"k\", parts 1 of 3", "a, c"],
            ["\"public\".\"u\"", "b"],
            ["(every table)", "a"],
        ];
        let rows = rows.map(|row| row.map(str::to_owned).to_vec());
        let holdings = Holdings::read(&rows).unwrap();
        assert!(holdings.is_split("\"public\".\"t\"") && !holdings.is_split("\"public\".\"u\""));
        for key in ["1", "2", "3", "4", "5", "6"] {
            let holds = |replica| {
                holdings.holds(replica, "\"public\".\"t\"", |column| (column == "k").then_some(key))
            };
            let is_second = part_of(Some(key), 3).0 == 1;
            assert_eq!([holds("a"), holds("b"), holds("c")], [true, !is_second, is_second], "{key}");
        }
        assert!(holdings.holds("b", "\"public\".\"u\"", |_| None));
        assert!(!holdings.holds("a", "\"public\".\"u\"", |_| None));
        assert!(holdings.holds("c", "\"public\".\"v\"", |_| None), "what is not listed is everywhere");
        assert!(
            Holdings::read(&[vec!["\"public\".\"t\" by \"k\", parts x of 3".into(), "a".into()]]).is_err()
        );
    }
}
