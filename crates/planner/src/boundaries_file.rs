//! Makes an application of its files: `schema.sql`, `transactions.sql`, `application.toml` and a file of boundaries.
//!
//! `crates/testbed/workloads/README.md` defines the formats. `application.toml` says what is true however the statements
//! are grouped: how often each interaction comes, which columns refer to which, what a page uses of a `SELECT *`. A file of
//! boundaries says which statements are transactions and atomic sets; it may replace, add and drop statements. Without one,
//! the transactions are those of `transactions.sql`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use sql::{Catalogue, Schema};

use crate::application::{Application, ApplicationError, Query, Unit, UnitKind};
use crate::column::{Column, Group};
use crate::transactions_file::{Malformed, Sent, Transactions};

/// The texts of an application's files.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Texts {
    /// `schema.sql`.
    pub schema: String,
    /// `transactions.sql`.
    pub transactions: String,
    /// `application.toml`, if there is one.
    pub application: Option<String>,
    /// The file of boundaries; without one, the boundaries are those of `transactions.sql`.
    pub boundaries: Option<String>,
}

/// Facts about an application, and the boundaries of its units.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Boundaries {
    /// How often each interaction comes, in any unit.
    mix: BTreeMap<String, f64>,
    /// Updates of a column, for each time that it is read, up to which copies of it are made.
    seldom: Option<f64>,
    /// Columns that hold keys of other tables.
    references: BTreeMap<String, String>,
    /// Names of services, each with one of its columns.
    names: BTreeMap<String, String>,
    /// Names of statements by transaction.
    transactions: Option<BTreeMap<String, Vec<String>>>,
    /// Names of statements by atomic set.
    atomic_sets: Option<BTreeMap<String, Vec<String>>>,
    /// What is said of single statements.
    query: BTreeMap<String, QueryFacts>,
}

#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct QueryFacts {
    sql: Option<String>,
    interactions: Option<Vec<String>>,
    uses: Option<Vec<String>>,
    times: Option<f64>,
    alone: Option<bool>,
    few_rows: Option<Vec<String>>,
    dropped: bool,
}

/// The files do not make an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BoundariesError {
    /// The schema is not valid.
    Schema(String),
    /// Part of the schema is not understood.
    LeftOut {
        /// The line.
        line: usize,
        /// What is missing.
        why: String,
    },
    /// `transactions.sql` is not as it should be.
    Transactions(Malformed),
    /// A TOML file is not as it should be.
    Toml {
        /// Which file.
        file: &'static str,
        /// Where and why.
        message: String,
    },
    /// The parts do not fit together.
    Application(ApplicationError),
}

impl fmt::Display for BoundariesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schema(message) => write!(f, "schema.sql: {message}"),
            Self::LeftOut { line, why } => write!(f, "schema.sql:{line}: not understood: {why}"),
            Self::Transactions(malformed) => write!(f, "transactions.sql: {malformed}"),
            Self::Toml { file, message } => write!(f, "{file}: {message}"),
            Self::Application(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BoundariesError {}

impl From<ApplicationError> for BoundariesError {
    fn from(error: ApplicationError) -> Self {
        Self::Application(error)
    }
}

fn read(file: &'static str, text: Option<&String>) -> Result<Boundaries, BoundariesError> {
    let parsed = text.map(|text| toml::from_str(text)).transpose();
    parsed
        .map(Option::unwrap_or_default)
        .map_err(|error| BoundariesError::Toml { file, message: error.to_string() })
}

impl Texts {
    /// The application that the files describe.
    ///
    /// # Errors
    /// With the file and the place that is wrong.
    pub fn application(&self, name: &str) -> Result<Application, BoundariesError> {
        let schema =
            Schema::from_ddl(&self.schema).map_err(|error| BoundariesError::Schema(error.to_string()))?;
        if let Some(left) = schema.left_out.first() {
            return Err(BoundariesError::LeftOut { line: left.line, why: left.why.clone() });
        }
        let facts = read("application.toml", self.application.as_ref())?;
        let boundaries = read("the file of boundaries", self.boundaries.as_ref())?;
        let transactions = Transactions::read(&self.transactions).map_err(BoundariesError::Transactions)?;
        let application = Application::new(name, schema.catalogue())?;
        Making { application, facts: facts.with(boundaries), transactions }.make()
    }
}

impl Boundaries {
    /// These facts, and what another file says beyond them or instead.
    fn with(mut self, other: Self) -> Self {
        self.mix.extend(other.mix);
        self.seldom = other.seldom.or(self.seldom);
        self.references.extend(other.references);
        self.names.extend(other.names);
        self.transactions = other.transactions.or(self.transactions);
        self.atomic_sets = other.atomic_sets.or(self.atomic_sets);
        for (name, facts) in other.query {
            let known = self.query.entry(name).or_default();
            known.sql = facts.sql.or_else(|| known.sql.take());
            known.interactions = facts.interactions.or_else(|| known.interactions.take());
            known.uses = facts.uses.or_else(|| known.uses.take());
            known.times = facts.times.or(known.times);
            known.alone = facts.alone.or(known.alone);
            known.few_rows = facts.few_rows.or_else(|| known.few_rows.take());
            known.dropped |= facts.dropped;
        }
        self
    }
}

/// An application under way.
struct Making {
    application: Application,
    facts: Boundaries,
    transactions: Transactions,
}

impl Making {
    fn make(mut self) -> Result<Application, BoundariesError> {
        self.queries()?;
        self.units();
        self.rates();
        let application = &mut self.application;
        application.seldom = self.facts.seldom.unwrap_or(application.seldom);
        for (from, to) in &self.facts.references {
            application.references.insert(dotted(application, from)?, dotted(application, to)?);
        }
        for (name, column) in &self.facts.names {
            application.names.insert(name.clone(), dotted(application, column)?);
        }
        self.known_names()?;
        Ok(self.application)
    }

    fn queries(&mut self) -> Result<(), ApplicationError> {
        let mut texts = self.transactions.queries.clone();
        for (name, facts) in &self.facts.query {
            if let Some(text) = &facts.sql {
                texts.insert(name.clone(), text.trim().trim_end_matches(';').to_owned());
            }
        }
        for (name, text) in texts {
            let facts = self.facts.query.get(&name).cloned().unwrap_or_default();
            if facts.dropped {
                continue;
            }
            let mut query = Query::new(&name, &text, &self.application.catalogue)?;
            if let Some(uses) = facts.uses {
                let columns =
                    uses.iter().map(|used| column_of(&self.application.catalogue, &query, &name, used));
                query.uses = Some(columns.collect::<Result<_, _>>()?);
            }
            query.few_rows = facts.few_rows.unwrap_or_default().into_iter().collect();
            self.application.queries.insert(name, query);
        }
        Ok(())
    }

    /// Transactions and atomic sets, and which statements are sent outside of them, too.
    fn units(&mut self) {
        let own = self.facts.transactions.is_some() || self.facts.atomic_sets.is_some();
        let mut alone: BTreeSet<String> = BTreeSet::new();
        if own {
            let sets = [
                (UnitKind::Transaction, self.facts.transactions.take().unwrap_or_default()),
                (UnitKind::AtomicSet, self.facts.atomic_sets.take().unwrap_or_default()),
            ];
            for (kind, units) in sets {
                for (name, queries) in units {
                    self.application
                        .units
                        .insert(name, Unit { kind, queries: queries.into_iter().collect() });
                }
            }
            let members: BTreeSet<&String> =
                self.application.units.values().flat_map(|unit| &unit.queries).collect();
            alone.extend(self.application.queries.keys().filter(|name| !members.contains(name)).cloned());
        } else {
            self.units_of_file(&mut alone);
        }
        for (name, query) in &mut self.application.queries {
            let said = self.facts.query.get(name).and_then(|facts| facts.alone);
            query.alone = said.unwrap_or_else(|| alone.contains(name));
        }
    }

    fn units_of_file(&mut self, alone: &mut BTreeSet<String>) {
        for interaction in &self.transactions.interactions {
            let mut open: Option<&String> = None;
            for sent in &interaction.sent {
                match (sent, open) {
                    (Sent::Begin(name), _) => open = Some(name),
                    (Sent::Commit, _) => open = None,
                    (Sent::Query(query), _) if !self.application.queries.contains_key(query) => {}
                    (Sent::Query(query), None) => {
                        alone.insert(query.clone());
                    }
                    (Sent::Query(query), Some(name)) => {
                        let unit = Unit { kind: UnitKind::Transaction, queries: BTreeSet::new() };
                        let unit = self.application.units.entry(name.clone()).or_insert(unit);
                        unit.queries.insert(query.clone());
                    }
                }
            }
        }
    }

    fn rates(&mut self) {
        for (name, query) in &mut self.application.queries {
            let facts = self.facts.query.get(name);
            let sends = |interaction: &&crate::Interaction| {
                interaction.sent.iter().any(|sent| matches!(sent, Sent::Query(query) if query == name))
            };
            let interactions: Vec<&String> = match facts.and_then(|facts| facts.interactions.as_ref()) {
                Some(names) => names.iter().collect(),
                None => self.transactions.interactions.iter().filter(sends).map(|one| &one.name).collect(),
            };
            let rate = |name: &String| {
                if self.facts.mix.is_empty() { 1.0 } else { self.facts.mix.get(name).copied().unwrap_or(0.0) }
            };
            let times = facts.and_then(|facts| facts.times).unwrap_or(1.0);
            query.rate = interactions.into_iter().map(rate).sum::<f64>() * times;
        }
    }

    /// Facts about what does not exist are mistakes.
    fn known_names(&self) -> Result<(), ApplicationError> {
        let unknown = |place: &str, name: &str| ApplicationError::Unknown {
            place: place.to_owned(),
            name: name.to_owned(),
        };
        let interactions: BTreeSet<&String> =
            self.transactions.interactions.iter().map(|interaction| &interaction.name).collect();
        let sent = self.facts.query.values().filter_map(|facts| facts.interactions.as_ref()).flatten();
        if let Some(name) = self.facts.mix.keys().chain(sent).find(|name| !interactions.contains(name)) {
            return Err(unknown("`mix` or `interactions`", name));
        }
        let has = |name: &String| {
            self.application.queries.contains_key(name) || self.transactions.queries.contains_key(name)
        };
        match self.facts.query.keys().find(|name| !has(name)) {
            Some(name) => Err(unknown("[query]", name)),
            None => Ok(()),
        }
    }
}

/// `table.column`.
fn dotted(application: &Application, text: &str) -> Result<Column, ApplicationError> {
    let unknown =
        || ApplicationError::Unknown { place: "[references] or [names]".to_owned(), name: text.to_owned() };
    let (table, column) = text.split_once('.').ok_or_else(unknown)?;
    let group = Group { table: table.to_owned(), columns: Some(vec![column.to_owned()]) };
    application.columns_of(&group, "[references] or [names]")?.pop().ok_or_else(unknown)
}

/// A column of a statement's tables: `column`, or `table.column` where several have it.
fn column_of(
    catalogue: &Catalogue,
    query: &Query,
    name: &str,
    text: &str,
) -> Result<Column, ApplicationError> {
    let (table, column) = text.split_once('.').map_or((None, text), |(table, column)| (Some(table), column));
    let tables = query.anatomy.relations.iter().filter_map(|mention| catalogue.table(mention.table));
    let found: BTreeSet<Column> = tables
        .filter(|known| table.is_none_or(|table| table == known.name))
        .filter(|known| known.columns.iter().any(|known| known.name == column))
        .map(|known| Column::new(&known.name, column))
        .collect();
    match found.len() {
        1 => found.into_iter().next(),
        _ => None,
    }
    .ok_or_else(|| ApplicationError::Unknown { place: format!("`uses` of {name}"), name: text.to_owned() })
}
