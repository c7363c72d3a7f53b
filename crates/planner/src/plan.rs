//! The plan: services, copies, and how each statement runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::application::{Application, ApplicationError};
use crate::blame::{Blame, blames};
use crate::clusters::{Changes, Graph, clusters};
use crate::column::Column;
use crate::hosting::{Hosting, hosting};
use crate::read_only::read_only;
use crate::reads::{Answer, Merge, Reads};

/// The services of an application.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The services, those with updates first, by name.
    pub services: Vec<Service>,
    /// How each statement runs, by its name.
    pub answers: BTreeMap<String, Answer>,
    /// Services that became one for the sake of a read.
    pub merges: Vec<Merge>,
    /// What keeps services from being smaller.
    pub blames: Vec<Blame>,
    /// Why columns are together.
    pub graph: Graph,
}

/// A group of columns that can live on servers of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The columns that are at home here; keys that every part of their tables repeats are not listed.
    pub columns: BTreeSet<Column>,
    /// Copies of columns of other services.
    pub copies: Vec<Copy>,
    /// Whether anything here is updated.
    pub updated: bool,
    /// How it is best hosted.
    pub hosting: Hosting,
}

/// A copy of a column in a service that is not its home.
#[derive(Clone, PartialEq, Debug)]
pub struct Copy {
    /// The column.
    pub column: Column,
    /// The reads that need it.
    pub queries: BTreeSet<String>,
    /// How often the column is updated, in the unit of the application's rates.
    pub updates: f64,
}

/// Where columns are: what reads are fitted to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Layout {
    /// The columns at home in each service.
    pub(crate) services: Vec<BTreeSet<Column>>,
    /// Copies in each service.
    pub(crate) copies: Vec<BTreeSet<Column>>,
    /// The columns of all primary keys.
    pub(crate) keys: BTreeSet<Column>,
}

impl Layout {
    /// Whether a service has a column. The key of a table is wherever a part of it is.
    pub(crate) fn holds(&self, service: usize, column: &Column) -> bool {
        let (own, copies) = (&self.services[service], &self.copies[service]);
        let here = own.contains(column) || copies.contains(column);
        here || (self.keys.contains(column)
            && own.iter().chain(copies).any(|other| other.table == column.table))
    }

    pub(crate) fn is_key(&self, column: &Column) -> bool {
        self.keys.contains(column)
    }

    /// The service to take a column from: this one if it has it, else its home, or the first that has its table.
    pub(crate) fn nearest(&self, column: &Column, service: usize) -> usize {
        if self.holds(service, column) {
            return service;
        }
        let home = (0..self.services.len()).find(|&at| self.services[at].contains(column));
        home.or_else(|| (0..self.services.len()).find(|&at| self.holds(at, column))).unwrap_or(service)
    }
}

/// Plans an application.
///
/// # Errors
/// If units or facts name what does not exist.
pub fn plan(application: &Application) -> Result<Plan, ApplicationError> {
    check(application)?;
    let (graph, reads) = settled(application);
    let names = names(application, &reads.layout.services);
    let changes = Changes::of(application);
    let mut services: Vec<Service> = Vec::new();
    for (at, columns) in reads.layout.services.iter().enumerate() {
        services.push(Service {
            name: names[at].clone(),
            columns: columns.clone(),
            copies: reads.copies(application, at),
            updated: columns.iter().any(|column| changes.updated.contains(column)),
            hosting: hosting(application, &reads, at),
        });
    }
    let blames = blames(application, &graph, &reads.layout.services, &names);
    Ok(Plan { services, answers: reads.answers, merges: reads.merges, blames, graph })
}

/// Steps 1 to 3. A merge is a further reason to stay together, with which steps 2 and 3 are done anew.
pub(crate) fn settled(application: &Application) -> (Graph, Reads) {
    let changes = Changes::of(application);
    let mut merges: Vec<Merge> = Vec::new();
    loop {
        let mut graph = clusters(application, &changes);
        read_only(application, &changes, &mut graph);
        for merge in &merges {
            graph.join(merge.reason(), merge.columns.clone());
        }
        let layout = layout(application, &changes, &graph);
        let mut reads = Reads::new(layout);
        match reads.settle(application) {
            Ok(()) => {
                reads.merges = merges;
                return (graph, reads);
            }
            Err(merge) => merges.push(merge),
        }
    }
}

fn layout(application: &Application, changes: &Changes, graph: &Graph) -> Layout {
    let columns: BTreeSet<Column> =
        application.columns().into_iter().filter(|column| !changes.repeated.contains(column)).collect();
    let mut services = graph.classes(&columns);
    let is_read_only =
        |class: &BTreeSet<Column>| !class.iter().any(|column| changes.updated.contains(column));
    services.sort_by_key(|class| (is_read_only(class), class.first().cloned()));
    let tables = application.catalogue.tables();
    Layout {
        copies: vec![BTreeSet::new(); services.len()],
        services,
        keys: tables.flat_map(|table| application.primary_key(&table.name)).collect(),
    }
}

fn check(application: &Application) -> Result<(), ApplicationError> {
    let unknown = |place: String, name: &str| ApplicationError::Unknown { place, name: name.to_owned() };
    for (unit, members) in &application.units {
        if let Some(query) = members.queries.iter().find(|query| !application.queries.contains_key(*query)) {
            return Err(unknown(format!("unit {unit}"), query));
        }
    }
    for table in application.catalogue.tables() {
        let what = match table {
            table if !table.triggers.is_empty() => "triggers",
            table if !table.rules.is_empty() => "rules",
            table if table.row_security => "row-level security",
            table if table.own_code => "a definition that calls a user's function",
            _ => continue,
        };
        return Err(ApplicationError::Code { table: table.name.clone(), what });
    }
    let known = application.columns();
    let references = application.references.iter().flat_map(|(from, to)| [from, to]);
    for column in references.chain(application.names.values()) {
        if !known.contains(column) {
            return Err(unknown("a reference or a service's name".to_owned(), &column.to_string()));
        }
    }
    Ok(())
}

/// The application's name for each service, or one made of its tables.
fn names(application: &Application, services: &[BTreeSet<Column>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for columns in services {
        let given = application.names.iter().find(|(_, column)| columns.contains(column));
        let name = given.map_or_else(|| made_up(application, columns), |(name, _)| name.clone());
        let taken = names.iter().filter(|other| **other == name).count();
        names.push(if taken == 0 { name } else { format!("{name}_{}", taken + 1) });
    }
    names
}

/// The table of which most columns are here; with a column, if other services have parts of it.
fn made_up(application: &Application, columns: &BTreeSet<Column>) -> String {
    let of = |table: &str| columns.iter().filter(|column| column.table == table).count();
    let mut best: Option<(&Column, usize)> = None;
    for column in columns {
        let count = of(&column.table);
        if best.is_none_or(|(_, most)| count > most) {
            best = Some((column, count));
        }
    }
    let Some((column, count)) = best else { return "empty".to_owned() };
    let key = application.primary_key(&column.table).iter().filter(|key| !columns.contains(key)).count();
    let all = application.table(&column.table).map_or(0, |table| table.columns.len());
    if count + key >= all { column.table.clone() } else { format!("{}_{}", column.table, column.name) }
}
