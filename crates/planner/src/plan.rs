//! The plan: services, copies, and how each statement runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::application::{Application, ApplicationError};
use crate::blame::{Blame, blames};
use crate::clusters::{Changes, Graph, Joint};
use crate::column::Column;
use crate::hosting::{Hosting, hosting};
use crate::reads::{Answer, Copy, Merge};
use crate::settle::settled;

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

impl Plan {
    /// The shortest chain of reasons why two columns are in one service; `None` if they are not.
    pub fn why(&self, from: &Column, to: &Column) -> Option<Vec<Joint>> {
        self.graph.chain(from, to)
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
