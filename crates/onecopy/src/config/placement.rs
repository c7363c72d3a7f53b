//! The table `placement`: which replicas hold a new table.
//!
//! Example: with `"log_*" = ["a", "b"]`, a table `log_2026` that a client creates is held by a and b from the start, and by no other
//! replica. The first rule that matches decides, as with `hba`.
//!
//! Invariant: some replica is in every list, so it can hold everything. A table that no rule matches is held everywhere.
//!
//! Non-goal: tables that exist. PLACE TABLE changes those ([`crate::membership::place_table`]).

use std::collections::BTreeSet;
use std::fmt;

use super::Replica;
use super::error::ConfigError;
use super::read::RawRule;

/// Stands for any rest of a name, at the end of a pattern.
const ANY_REST: char = '*';

/// The tables that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// What the name begins with, or the whole name. With a dot it is the name after its schema and a dot.
    text: String,
    is_beginning: bool,
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        let (text, is_beginning) = match text.strip_suffix(ANY_REST) {
            Some(beginning) => (beginning, true),
            None => (text, false),
        };
        let is_name = !text.contains(ANY_REST) && (is_beginning || !text.is_empty());
        is_name.then(|| Self { text: text.to_owned(), is_beginning })
    }

    fn matches(&self, table: &TableName) -> bool {
        let name = if self.text.contains('.') {
            format!("{}.{}", table.schema, table.name)
        } else {
            table.name.clone()
        };
        if self.is_beginning { name.starts_with(&self.text) } else { name == self.text }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_beginning { "*" } else { "" })
    }
}

/// The name of a table, as the catalogue has it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
pub(crate) struct TableName {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// A line of the table `placement`.
#[derive(Clone, Debug)]
pub(crate) struct PlacementRule {
    pattern: Pattern,
    /// The names of the replicas that hold such a table.
    pub(crate) holders: BTreeSet<String>,
    /// The file and its line, as in `onecopy.toml:12`.
    pub(crate) line: String,
}

impl fmt::Display for PlacementRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holders: Vec<&str> = self.holders.iter().map(String::as_str).collect();
        write!(f, "placement \"{}\" on {}", self.pattern, holders.join(", "))
    }
}

/// The rules for new tables, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlacementRules {
    rules: Vec<PlacementRule>,
}

impl PlacementRules {
    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PlacementRule> {
        self.rules.iter()
    }

    /// The first rule that matches one of these names: those of the table and of the tables that it is a partition of.
    pub(crate) fn of(&self, names: &[TableName]) -> Option<&PlacementRule> {
        self.rules.iter().find(|rule| names.iter().any(|name| rule.pattern.matches(name)))
    }

    /// Whether every rule lets a replica of this name hold its tables.
    pub(crate) fn let_hold_all(&self, replica: &str) -> bool {
        self.rules.iter().all(|rule| rule.holders.contains(replica))
    }

    /// Whether the other rules say the same, in whatever lines.
    pub(super) fn equal(&self, other: &Self) -> bool {
        let said = |rules: &Self| -> Vec<(Pattern, BTreeSet<String>)> {
            rules.rules.iter().map(|rule| (rule.pattern.clone(), rule.holders.clone())).collect()
        };
        said(self) == said(other)
    }

    /// Checks the rules against the replicas of the configuration.
    pub(super) fn check(raw: &[RawRule], replicas: &[Replica], mistakes: &mut Vec<ConfigError>) -> Self {
        let known: BTreeSet<&str> = replicas.iter().map(|replica| replica.name.as_str()).collect();
        // The replicas that are in every list so far.
        let mut full: BTreeSet<String> = known.iter().map(|name| (*name).to_owned()).collect();
        let mut rules = Vec::new();
        for rule in raw {
            let before = mistakes.len();
            let pattern = Pattern::parse(&rule.pattern.text);
            if pattern.is_none() {
                mistakes.push(rule.pattern.mistake(
                    format!(
                        "placement: \"{}\" is neither a name nor the beginning of one",
                        rule.pattern.text
                    ),
                    "write a table, with its schema or without, or a beginning such as \"log_*\"",
                ));
            }
            if rule.holders.is_empty() {
                mistakes.push(rule.list.mistake(
                    format!("placement: no replica would hold {}", rule.pattern.text),
                    "name the replicas that are to hold it, or leave the line out",
                ));
            }
            for holder in rule.holders.iter().filter(|holder| !known.contains(holder.text.as_str())) {
                let names: Vec<&str> = known.iter().copied().collect();
                mistakes.push(holder.mistake(
                    format!("placement: there is no replica \"{}\"", holder.text),
                    format!("it is one of {}; each [[replica]] has a name", names.join(", ")),
                ));
            }
            let Some(pattern) = pattern.filter(|_| mistakes.len() == before) else { continue };
            let holders: BTreeSet<String> = rule.holders.iter().map(|holder| holder.text.clone()).collect();
            if !full.is_empty() {
                full.retain(|replica| holders.contains(replica));
                if full.is_empty() {
                    mistakes.push(rule.list.mistake(
                        "placement: no replica would hold every table",
                        "name one replica in every list of [placement]; two are better",
                    ));
                }
            }
            rules.push(PlacementRule { pattern, holders, line: rule.pattern.line() });
        }
        Self { rules }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, name: &str) -> TableName {
        TableName { schema: schema.to_owned(), name: name.to_owned() }
    }

    #[test]
    fn a_pattern_is_a_name_or_the_beginning_of_one() {
        for (pattern, matching, others) in [
            ("audit", vec![("public", "audit"), ("x", "audit")], vec![("public", "audits"), ("audit", "t")]),
            ("x.audit", vec![("x", "audit")], vec![("public", "audit"), ("x", "audit2")]),
            ("log_*", vec![("public", "log_1"), ("x", "log_")], vec![("log_1", "t"), ("public", "Log_1")]),
            ("x.*", vec![("x", "audit"), ("x", "t")], vec![("xx", "t"), ("public", "x")]),
            ("*", vec![("x", "audit"), ("public", "t")], vec![]),
        ] {
            let parsed = Pattern::parse(pattern).unwrap();
            assert_eq!(parsed.to_string(), pattern);
            assert!(matching.iter().all(|(schema, name)| parsed.matches(&table(schema, name))), "{pattern}");
            assert!(!others.iter().any(|(schema, name)| parsed.matches(&table(schema, name))), "{pattern}");
        }
        for wrong in ["", "*_log", "a*b*", "**"] {
            assert_eq!(Pattern::parse(wrong), None, "{wrong}");
        }
    }
}
