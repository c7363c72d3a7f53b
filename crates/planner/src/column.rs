//! Columns by name, and sets of them as people write them: `item(i_id, i_stock)`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A column of a table. Names, not numbers: the order of a schema must not show in a plan.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Column {
    /// The table's name.
    pub table: String,
    /// The column's own name.
    pub name: String,
}

impl Column {
    /// A column of a table.
    pub fn new(table: impl Into<String>, name: impl Into<String>) -> Self {
        Self { table: table.into(), name: name.into() }
    }
}

impl fmt::Display for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.table, self.name)
    }
}

/// Columns of one table, or all of them: `item(i_id, i_stock)`, or `orders`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Group {
    /// The table's name.
    pub table: String,
    /// The columns; `None` means all.
    pub columns: Option<Vec<String>>,
}

impl Group {
    /// Reads `table` or `table(column, ..)`; `None` if the text is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let is_word =
            |word: &str| !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "(),".contains(c));
        let Some((table, rest)) = text.trim().split_once('(') else {
            let table = text.trim();
            return is_word(table).then(|| Self { table: table.to_owned(), columns: None });
        };
        let columns: Vec<String> =
            rest.strip_suffix(')')?.split(',').map(|column| column.trim().to_owned()).collect();
        let table = table.trim();
        let valid = is_word(table) && columns.iter().all(|column| is_word(column));
        valid.then(|| Self { table: table.to_owned(), columns: Some(columns) })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.columns {
            Some(columns) => write!(f, "{}({})", self.table, columns.join(", ")),
            None => f.write_str(&self.table),
        }
    }
}

/// A set of columns by table.
pub(crate) fn by_table(columns: &BTreeSet<Column>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut tables: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for column in columns {
        tables.entry(&column.table).or_default().insert(&column.name);
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_written_as_they_are_read() {
        for text in ["orders", "item(i_id, i_stock)"] {
            assert_eq!(Group::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "item(", "item()", "a b", "item(x) y"] {
            assert_eq!(Group::parse(text), None, "{text}");
        }
    }
}
