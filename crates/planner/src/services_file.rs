//! `services.toml`: the plan for programs. And `rewritten.sql`: the reads that run as several.
//!
//! `docs/reference/services.md` defines the format. The tables of a service are written as [`crate::Group`] reads them, with the key
//! of a table in every part.

use std::fmt::Write;

use crate::application::Application;
use crate::hosting::Hosting;
use crate::plan::Plan;
use crate::reads::Answer;
use crate::report::{copied, groups, steps};
use crate::step_text::quoted;

fn text(value: &str) -> String {
    toml::Value::String(value.to_owned()).to_string()
}

fn list(values: impl IntoIterator<Item = String>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| text(&value)).collect();
    format!("[{}]", values.join(", "))
}

/// The text of `services.toml`.
pub fn services_file(application: &Application, plan: &Plan) -> String {
    let mut out = format!("# The data services of {}, by `onecopy plan`.\n", application.name);
    for service in &plan.services {
        let mut line = |key: &str, value: String| out.push_str(&format!("{key} = {value}\n"));
        line("\n[[service]]\nname", text(&service.name));
        line("tables", list(groups(application, &service.columns)));
        if !service.copies.is_empty() {
            line("copies", list(copied(application, service)));
        }
        match &service.hosting {
            Hosting::Replicas => line("hosting", text("replicas")),
            Hosting::FewWrites { .. } => line("hosting", text("few-writes")),
            Hosting::OnePrimary { .. } => line("hosting", text("one-primary")),
            Hosting::Partitioned(by) => {
                line("hosting", text("partitioned"));
                line("key", text(&by.key.to_string()));
                line("members", list(by.members.iter().map(ToString::to_string)));
                line("tagged", list(by.tagged.iter().cloned()));
                line("escrow", list(by.escrow.iter().map(ToString::to_string)));
                line("gathered", list(by.gathered.iter().cloned()));
            }
        }
    }
    out
}

/// The text of `rewritten.sql`: each step as a prepared statement, with what feeds it as comments.
pub fn rewritten_file(plan: &Plan) -> String {
    let mut out = String::from(
        "-- Reads that run as several: each step in one service, the last line over their answers.\n",
    );
    for (name, answer) in &plan.answers {
        let Answer::Rewritten(rewritten) = answer else { continue };
        writeln!(out, "\n-- query: {name}").unwrap_or_default();
        for line in steps(plan, rewritten).lines() {
            writeln!(out, "--{line}").unwrap_or_default();
        }
        for (at, step) in rewritten.steps.iter().enumerate() {
            let prepared = quoted(&format!("{name}_{}", at + 1));
            writeln!(out, "PREPARE {prepared} AS {};", step.text).unwrap_or_default();
        }
    }
    out
}
