//! `onecopy placement check`: what `[placement]` of a configuration makes of a schema, without a server.
//!
//! Every table of the schema is taken to be new, one by one, as a restored dump makes them: a foreign key may come after its tables. So a
//! table that no rule matches is held everywhere, and a foreign key from there to a placed table is a breach.
//!
//! Example: `"orders" = ["a", "b"]` with `line REFERENCES orders` and no rule for `line` is a breach, because c would hold `line` alone.
//! With `"line" = ["a"]` there is none.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sql::{Analyzer, Catalogue, Limits, Routing, TableId};

use super::error::{CommandError, ErrorInText};
use super::schema::read_schema;
use crate::config::placement::{PlacementRule, PlacementRules, TableName};
use crate::config::{Config, Given, LoadError};
use crate::terminal::Progress;

/// The actions of `onecopy placement`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum PlacementCommand {
    /// Say where the tables of a schema would be held, which statements could run where, and what would be rejected. Needs no server.
    Check(PlacementCheck),
}

/// Flags of `onecopy placement check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlacementCheck {
    /// File of CREATE statements, as `pg_dump --schema-only` writes it.
    #[arg(long, value_name = "FILE")]
    schema: PathBuf,

    /// Configuration file of `onecopy serve`.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,

    /// File with one SQL statement in each line; parameters, $1 and so on, need no values.
    #[arg(long, value_name = "FILE")]
    templates: Option<PathBuf>,
}

/// Prints the check. It fails if a table or a view would be rejected.
pub(crate) fn command(command: &PlacementCommand, progress: &Progress) -> Result<(), CommandError> {
    let PlacementCommand::Check(check) = command;
    let environment = |name: &str| std::env::var(name).ok();
    let config = Config::load(Some(&check.config), environment, &Given::default());
    let config = config.map_err(|mistakes| CommandError::Config(LoadError::Invalid(mistakes)))?;
    let replicas = config.replicas.iter().map(|replica| replica.name.clone()).collect();
    let catalogue = read_schema(&check.schema, progress)?;
    let plan = HeldTables { catalogue: &catalogue, rules: &config.placement, replicas };
    let mut lines = plan.tables();
    let breaches = [plan.references(), plan.views()].concat();
    lines.extend_from_slice(&breaches);
    if let Some(file) = &check.templates {
        lines.extend(plan.statements(file)?);
    }
    lines.push(format!("{:<WORD_WIDTH$}{}", "everything", listed(&plan.full())));
    for line in lines {
        progress.result(line);
    }
    match breaches.len() {
        0 => Ok(()),
        count => Err(CommandError::PlacementBreaches { count }),
    }
}

/// The width of the first words.
const WORD_WIDTH: usize = 12;

/// The tables of a schema, and the replicas that hold them.
struct HeldTables<'a> {
    catalogue: &'a Catalogue,
    rules: &'a PlacementRules,
    replicas: BTreeSet<String>,
}

impl HeldTables<'_> {
    fn rule(&self, table: TableId) -> Option<&PlacementRule> {
        let found = self.catalogue.table(table)?;
        let own = TableName { schema: found.schema.clone(), name: found.name.clone() };
        let parents = self.catalogue.parents().filter(|parent| parent.leaves.contains(&table));
        let parents =
            parents.map(|parent| TableName { schema: parent.schema.clone(), name: parent.name.clone() });
        let names: Vec<TableName> = std::iter::once(own).chain(parents).collect();
        self.rules.of(&names)
    }

    fn holders(&self, table: TableId) -> &BTreeSet<String> {
        self.rule(table).map_or(&self.replicas, |rule| &rule.holders)
    }

    /// The replicas that hold every table.
    fn full(&self) -> BTreeSet<String> {
        let mut full = self.replicas.clone();
        for table in self.catalogue.tables() {
            full.retain(|replica| self.holders(table.id).contains(replica));
        }
        full
    }

    fn name(&self, table: TableId) -> String {
        let found = self.catalogue.table(table);
        found.map(|table| format!("{}.{}", table.schema, table.name)).unwrap_or_default()
    }

    /// The name of a table, with the line of the configuration that places it.
    fn placed(&self, table: TableId) -> String {
        let line = self.rule(table).map_or("no line of [placement]", |rule| &rule.line);
        format!("{} ({}; {line})", self.name(table), listed(self.holders(table)))
    }

    /// A line for each table.
    fn tables(&self) -> Vec<String> {
        let mut tables: Vec<String> = self
            .catalogue
            .tables()
            .map(|table| format!("{:<WORD_WIDTH$}{}", "table", self.placed(table.id)))
            .collect();
        tables.sort();
        tables
    }

    /// A line for each foreign key from a table that is held where the other one is not.
    fn references(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for child in self.catalogue.tables() {
            for reference in &child.references {
                let alone: BTreeSet<String> =
                    self.holders(child.id).difference(self.holders(reference.parent)).cloned().collect();
                if !alone.is_empty() {
                    lines.insert(format!(
                        "{:<WORD_WIDTH$}table {} has a foreign key to table {}, which {} would not hold",
                        "breach",
                        self.placed(child.id),
                        self.placed(reference.parent),
                        listed(&alone)
                    ));
                }
            }
        }
        lines.into_iter().collect()
    }

    /// A line for each materialized view and each table of it that is not held everywhere.
    fn views(&self) -> Vec<String> {
        let mut lines = BTreeSet::new();
        for view in self.catalogue.views().filter(|view| view.materialized) {
            let shown = format!("materialized view {}.{}", view.schema, view.name);
            let Ok(Some(tables)) = self.touched(&view.definition) else {
                if self.full() != self.replicas {
                    lines.insert(format!(
                        "{:<WORD_WIDTH$}{shown} is filled by each replica, and its tables are not known",
                        "breach"
                    ));
                }
                continue;
            };
            for table in tables.into_iter().filter(|table| *self.holders(*table) != self.replicas) {
                lines.insert(format!(
                    "{:<WORD_WIDTH$}{shown} is filled by each replica, and not all hold table {}",
                    "breach",
                    self.placed(table)
                ));
            }
        }
        lines.into_iter().collect()
    }

    /// A line for each statement of the file, and one about those that run only where everything is held.
    fn statements(&self, file: &Path) -> Result<Vec<String>, CommandError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| CommandError::Unreadable { path: file.to_owned(), source })?;
        let (full, mut lines, mut bound) = (self.full(), Vec::new(), Vec::new());
        for (number, statement) in (1..).zip(text.lines().map(str::trim)) {
            if statement.is_empty() || statement.starts_with("--") {
                continue;
            }
            let touched = self.touched(statement).map_err(|error| CommandError::Template {
                path: file.to_owned(),
                number,
                error,
            })?;
            let able = touched.map_or_else(|| full.clone(), |tables| self.able(&tables));
            let needs_all = able == full && full != self.replicas;
            let only = if needs_all { "only where everything is held: " } else { "" };
            lines.push(format!(
                "{:<WORD_WIDTH$}{only}{}: {statement}",
                format!("line {number}"),
                listed(&able)
            ));
            if needs_all {
                bound.push(number.to_string());
            }
        }
        if !bound.is_empty() {
            lines.push(format!(
                "{:<WORD_WIDTH$}lines that only {} can run: {}",
                "bound",
                listed(&full),
                bound.join(", ")
            ));
        }
        Ok(lines)
    }

    /// The replicas that hold all of these tables.
    fn able(&self, tables: &BTreeSet<TableId>) -> BTreeSet<String> {
        let mut able = self.replicas.clone();
        for table in tables {
            able.retain(|replica| self.holders(*table).contains(replica));
        }
        able
    }

    /// The tables that the statements of a text may touch; `None` if they are not bounded.
    fn touched(&self, text: &str) -> Result<Option<BTreeSet<TableId>>, ErrorInText> {
        let mut analyzer = Analyzer::new(Limits { entries: 0, bytes: 0 });
        let script = analyzer.script(text.as_bytes(), true).map_err(|error| {
            let at = error.position(text, true);
            ErrorInText::new(text, error.to_string(), at)
        })?;
        let mut all = BTreeSet::new();
        for part in &script.statements {
            let Some(tables) = tables_of(&part.statement.routing(self.catalogue)) else { return Ok(None) };
            all.extend(tables);
        }
        Ok(Some(all))
    }
}

/// As for a home: the tables that a statement reads and writes, through views, references and code, too.
fn tables_of(routing: &Routing) -> Option<BTreeSet<TableId>> {
    let (reads, writes) = (routing.reads.as_ref()?, routing.writes.as_ref()?);
    Some(reads.iter().chain(writes).copied().collect())
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}
