//! What a replica holds of each table, as its own server names the tables.
//!
//! Example: of `district`, split by `d_w_id`, a replica holds the parts 1 and 4 of 16. The condition on its rows is
//! `onecopy.part("d_w_id"::text, 16) = ANY ('{1,4}')`.

use cluster::ids::{DatabaseId, PartId, TableId};
use cluster::placement::{Holdings, PartSet, Share};

use crate::backend::{BackendError, Rows};
use crate::capture::quoting::quoted;

/// Tables under capture: schema, name, and our number, which is the first argument of the capture trigger.
pub(crate) const NUMBERED_TABLES: &str = "SELECT n.nspname, c.relname, \
    pg_catalog.split_part(pg_catalog.encode(g.tgargs, 'escape'), '\\000', 1) \
    FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE g.tgname = '!onecopy'";

/// The same where nothing is captured: tables are numbered in the order of their names.
const TABLES_BY_NAME: &str = "SELECT n.nspname, c.relname, row_number() OVER (ORDER BY n.nspname, c.relname) \
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'r' AND c.relpersistence = 'p' \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy', 'onecopy_capture')";

const SHAPE: BackendError =
    BackendError::Protocol("an answer about numbers of tables of an unexpected shape");

/// The holdings of a replica in one database.
#[derive(Clone, Debug)]
pub(crate) struct Shares {
    /// Its holdings.
    pub(crate) holdings: Holdings,
    /// The database.
    pub(crate) database: DatabaseId,
    /// How its server tells the numbers of tables.
    pub(crate) numbering: Numbering,
}

/// How a server tells the numbers of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// By their capture triggers.
    ByCapture,
    /// In the order of their names, where nothing is captured.
    ByName,
}

impl Numbering {
    /// The query for [`Shares::of`].
    pub(crate) fn tables_sql(self) -> &'static str {
        match self {
            Self::ByCapture => NUMBERED_TABLES,
            Self::ByName => TABLES_BY_NAME,
        }
    }
}

impl Shares {
    /// Every table as a whole.
    pub(crate) fn everything() -> Self {
        Self {
            holdings: Holdings::everything(),
            database: DatabaseId::FIRST,
            numbering: Numbering::ByCapture,
        }
    }
}

/// A table that the replica does not hold as a whole, or that is split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SharedTable {
    /// Schema and name in quotes.
    pub(crate) name: String,
    /// Its id.
    pub(crate) table: TableId,
    /// What the replica holds of it.
    pub(crate) share: Share,
    /// How it is split, if it is.
    pub(crate) split: Option<SplitSql>,
}

/// A split, in SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SplitSql {
    /// The expression that gives the part of a row.
    pub(crate) part: String,
    /// The number of parts.
    pub(crate) count: u8,
}

impl SplitSql {
    /// By the value of a column.
    pub(crate) fn by(column: &str, count: u8) -> Self {
        Self { part: format!("onecopy.part({}::pg_catalog.text, {count})", quoted(column)), count }
    }

    /// The condition that is true of the rows of these parts.
    pub(crate) fn condition(&self, parts: PartSet) -> String {
        let parts: Vec<String> = parts.iter().map(|part| part.to_string()).collect();
        format!("{} OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int4[])", self.part, parts.join(","))
    }

    /// The parts that are not among these.
    pub(crate) fn others(&self, parts: PartSet) -> PartSet {
        (0..self.count).map(PartId).filter(|part| !parts.contains(*part)).collect()
    }
}

impl SharedTable {
    /// The condition on rows that are not held; `None` if all rows are.
    pub(crate) fn unheld(&self) -> Option<String> {
        match (self.share, &self.split) {
            (Share::All, _) => None,
            (Share::Parts(parts), Some(split)) => Some(split.condition(split.others(parts))),
            (Share::Nothing | Share::Parts(_), _) => Some("true".to_owned()),
        }
    }

    /// The condition on rows that are held; `None` if all rows are.
    pub(crate) fn held(&self) -> Option<String> {
        match (self.share, &self.split) {
            (Share::All, _) => None,
            (Share::Parts(parts), Some(split)) => Some(split.condition(parts)),
            (Share::Nothing | Share::Parts(_), _) => Some("false".to_owned()),
        }
    }
}

/// The query that returns a row if the table itself has one for which this is true.
pub(crate) fn a_row_sql(table: &str, condition: &str) -> String {
    format!("SELECT 1 FROM ONLY {table} WHERE {condition} LIMIT 1")
}

impl Shares {
    /// Those of the [`NUMBERED_TABLES`] that the replica does not hold as a whole, or that are split.
    pub(crate) fn of(&self, tables: &Rows) -> Result<Vec<SharedTable>, BackendError> {
        let mut shared = Vec::new();
        for row in tables {
            let [Some(schema), Some(name), Some(number)] = row.as_slice() else { return Err(SHAPE) };
            let table = self.database.table(number.parse().map_err(|_| SHAPE)?);
            let split = self.holdings.split(table).map(|(column, count)| SplitSql::by(column, count));
            let share = self.holdings.share(table);
            if share != Share::All || split.is_some() {
                let name = format!("{}.{}", quoted(schema), quoted(name));
                shared.push(SharedTable { name, table, share, split });
            }
        }
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_that_are_held_and_those_that_are_not_are_all_rows() {
        let split = Some(SplitSql::by("w id", 3));
        let table = |share| SharedTable {
            name: "t".to_owned(),
            table: TableId::default(),
            share,
            split: split.clone(),
        };
        let part = "onecopy.part(\"w id\"::pg_catalog.text, 3) OPERATOR(pg_catalog.=) ANY";
        let some = table(Share::Parts(PartSet::EMPTY.with(PartId(1))));
        assert_eq!(some.held(), Some(format!("{part} ('{{1}}'::pg_catalog.int4[])")));
        assert_eq!(some.unheld(), Some(format!("{part} ('{{0,2}}'::pg_catalog.int4[])")));
        assert_eq!((table(Share::All).held(), table(Share::All).unheld()), (None, None));
        let none = table(Share::Nothing);
        assert_eq!((none.held().as_deref(), none.unheld().as_deref()), (Some("false"), Some("true")));
    }
}
