//! What somebody expects of a plan, such as a table of the paper, and the comparison with it.
//!
//! A difference is a sentence, such as "item.i_title is copied to Item_dynamic". The file explains each difference that is
//! there for a reason. Invariant: a comparison passes only if every difference is explained and every explained difference
//! occurs, so neither a change of the planner nor a stale explanation goes unseen.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::application::{Application, ApplicationError};
use crate::boundaries_file::BoundariesError;
use crate::column::{Column, Group};
use crate::plan::{Plan, Service};
use crate::reads::Answer;

/// What is expected of a plan.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// The services.
    service: Vec<ExpectedService>,
    /// Names of the reads that run as several.
    rewritten: Vec<String>,
    /// Differences that have reasons.
    difference: Vec<Difference>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExpectedService {
    name: String,
    tables: Vec<String>,
    copies: Vec<String>,
    /// Names of the source's own, each with our statements.
    requests: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    what: String,
    why: String,
}

/// How a plan differs from what is expected.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Comparison {
    /// Differences with their explanations.
    pub explained: Vec<[String; 2]>,
    /// Differences without.
    pub unexplained: Vec<String>,
    /// Explanations of differences that do not occur.
    pub stale: Vec<String>,
}

impl Comparison {
    /// Whether everything is as expected, or explained.
    pub fn passes(&self) -> bool {
        self.unexplained.is_empty() && self.stale.is_empty()
    }
}

impl Expectation {
    /// Reads a file's text.
    ///
    /// # Errors
    /// If it is not as the format says.
    pub fn read(text: &str) -> Result<Self, BoundariesError> {
        toml::from_str(text)
            .map_err(|error| BoundariesError::Toml { file: "the expectation", message: error.to_string() })
    }

    /// Compares a plan with this.
    ///
    /// # Errors
    /// If the expectation names tables or columns that do not exist.
    pub fn compare(&self, application: &Application, plan: &Plan) -> Result<Comparison, ApplicationError> {
        let mut found = BTreeSet::new();
        for expected in &self.service {
            match plan.services.iter().position(|service| service.name == expected.name) {
                Some(at) => compare_service(application, plan, at, expected, &mut found)?,
                None => {
                    found.insert(format!("there is no service {}", expected.name));
                }
            }
        }
        for service in &plan.services {
            if !self.service.iter().any(|expected| expected.name == service.name) {
                found.insert(format!("there is a service {}", service.name));
            }
        }
        for name in &self.rewritten {
            if !matches!(plan.answers.get(name), Some(Answer::Rewritten(_))) {
                found.insert(format!("{name} is not rewritten"));
            }
        }
        let explained = self.difference.iter().filter(|one| found.contains(&one.what));
        let stale = self.difference.iter().filter(|one| !found.contains(&one.what));
        Ok(Comparison {
            explained: explained.map(|one| [one.what.clone(), one.why.clone()]).collect(),
            stale: stale.map(|one| one.what.clone()).collect(),
            unexplained: found
                .iter()
                .filter(|what| !self.difference.iter().any(|one| one.what == **what))
                .cloned()
                .collect(),
        })
    }
}

fn columns(
    application: &Application,
    groups: &[String],
    service: &str,
) -> Result<BTreeSet<Column>, ApplicationError> {
    let place = format!("the expected service {service}");
    let mut columns = BTreeSet::new();
    for text in groups {
        let unknown = || ApplicationError::Unknown { place: place.clone(), name: text.clone() };
        let group = Group::parse(text).ok_or_else(unknown)?;
        columns.extend(application.columns_of(&group, &place)?);
    }
    Ok(columns)
}

fn compare_service(
    application: &Application,
    plan: &Plan,
    at: usize,
    expected: &ExpectedService,
    found: &mut BTreeSet<String>,
) -> Result<(), ApplicationError> {
    let Service { name, columns: own, copies, .. } = &plan.services[at];
    // The key of a table is in every part of it.
    let is_key = |column: &Column| application.primary_key(&column.table).contains(column);
    let wanted = columns(application, &expected.tables, name)?;
    for column in own.difference(&wanted).filter(|column| !is_key(column)) {
        found.insert(format!("{column} is in {name}"));
    }
    for column in wanted.difference(own).filter(|column| !is_key(column)) {
        found.insert(format!("{column} is not in {name}"));
    }
    let copied: BTreeSet<Column> = copies.iter().map(|copy| copy.column.clone()).collect();
    let wanted = columns(application, &expected.copies, name)?;
    for column in copied.difference(&wanted).filter(|column| !is_key(column)) {
        found.insert(format!("{column} is copied to {name}"));
    }
    for column in wanted.difference(&copied).filter(|column| !is_key(column)) {
        found.insert(format!("{column} is not copied to {name}"));
    }
    for (request, queries) in &expected.requests {
        for query in queries {
            let asked = match plan.answers.get(query) {
                Some(Answer::Whole(service)) => *service == Some(at),
                Some(Answer::Rewritten(rewritten)) => rewritten.steps.iter().any(|step| step.service == at),
                None => false,
            };
            if !asked {
                found.insert(format!("{query}, a part of {request}, does not ask {name}"));
            }
        }
    }
    Ok(())
}
