//! The plan for people: services, reads that run as several, and who is to blame.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::application::Application;
use crate::column::{Column, by_table};
use crate::plan::{Plan, Service};
use crate::reads::Answer;
use crate::rewrite::{Feed, Rewritten};

/// `table`, if all its columns are here, or `table(key, column, ..)`, in the order of the schema.
pub(crate) fn groups(application: &Application, columns: &BTreeSet<Column>) -> Vec<String> {
    let mut groups = Vec::new();
    for (table, names) in by_table(columns) {
        let Some(known) = application.table(table) else { continue };
        let key = application.primary_key(table);
        let has = |name: &str| names.contains(name) || key.iter().any(|column| column.name == name);
        let here: Vec<&str> =
            known.columns.iter().map(|column| column.name.as_str()).filter(|name| has(name)).collect();
        let whole = here.len() == known.columns.len();
        groups.push(if whole { table.to_owned() } else { format!("{table}({})", here.join(", ")) });
    }
    groups
}

/// The groups of a service's copies.
pub(crate) fn copied(application: &Application, service: &Service) -> Vec<String> {
    groups(application, &service.copies.iter().map(|copy| copy.column.clone()).collect())
}

/// The statements that ask a service, by whether they run there as they are.
pub(crate) fn requests(plan: &Plan, service: usize, whole: bool) -> Vec<&str> {
    let asks = plan.answers.iter().filter(|(_, answer)| match answer {
        Answer::Whole(at) => whole && *at == Some(service),
        Answer::Rewritten(rewritten) => !whole && rewritten.steps.iter().any(|step| step.service == service),
    });
    asks.map(|(name, _)| name.as_str()).collect()
}

/// A text for a terminal or a file.
pub fn report(application: &Application, plan: &Plan) -> String {
    let mut text = format!("{}: {} services\n", application.name, plan.services.len());
    for (at, service) in plan.services.iter().enumerate() {
        text.push_str(&format!("\n{}\n", service.name));
        let mut line = |words: &str, items: Vec<String>| {
            if !items.is_empty() {
                text.push_str(&format!("  {words:<10} {}\n", items.join(", ")));
            }
        };
        line("tables", groups(application, &service.columns));
        line("copies", copied(application, service));
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        line("whole", owned(requests(plan, at, true)));
        line("steps of", owned(requests(plan, at, false)));
        line("hosting", vec![service.hosting.to_string()]);
    }
    copies(plan, &mut text);
    for (name, answer) in &plan.answers {
        if let Answer::Rewritten(rewritten) = answer {
            text.push_str(&format!("\n{name}, rewritten\n"));
            text.push_str(&steps(plan, rewritten));
        }
    }
    for merge in &plan.merges {
        let columns: Vec<String> = merge.columns.iter().map(Column::to_string).collect();
        text.push_str(&format!(
            "\nMerged for {}: {}. {} are in one service.\n",
            merge.query,
            merge.why,
            columns.join(", ")
        ));
    }
    for blame in &plan.blames {
        text.push_str(&format!("\n{blame}\n"));
    }
    text
}

fn copies(plan: &Plan, text: &mut String) {
    for service in &plan.services {
        for copy in &service.copies {
            let queries: Vec<&str> = copy.queries.iter().map(String::as_str).collect();
            let updates = if copy.updates > 0.0 {
                format!("updates go to both, {:.2} in the unit of the rates", copy.updates)
            } else {
                "nothing updates it".to_owned()
            };
            text.push_str(&format!(
                "\n{} is copied to {} for {}; {updates}.\n",
                copy.column,
                service.name,
                queries.join(", ")
            ));
        }
    }
}

/// The steps of a rewritten read, and what is made of them.
pub(crate) fn steps(plan: &Plan, rewritten: &Rewritten) -> String {
    let mut text = String::new();
    for (at, step) in rewritten.steps.iter().enumerate() {
        let service = &plan.services[step.service].name;
        writeln!(text, "  {}. {service}: {}", at + 1, step.text).unwrap_or_default();
        for (number, feed) in step.parameters.iter().enumerate() {
            let value = match feed {
                Feed::Parameter(original) => format!("the read's ${original}"),
                Feed::Columns { step, columns } => format!("{} of step {step}", columns.join(", ")),
            };
            writeln!(text, "     ${} is {value}", number + 1).unwrap_or_default();
        }
    }
    writeln!(text, "  = {}", rewritten.combine).unwrap_or_default();
    for (number, original) in rewritten.parameters.iter().enumerate() {
        writeln!(text, "     ${} is the read's ${original}", number + 1).unwrap_or_default();
    }
    text
}
