//! `sim --protocol c-jdbc`, `sim --nodes`, `sim --schedulers` and `sim --linked`: seeds, mutants and one trace of the worlds beside the main one.

use std::collections::BTreeMap;

use cluster::protocols::c_jdbc::Level;
use cluster::protocols::c_jdbc::early_response::Respond;
use cluster::protocols::middle_r::MIDDLE_R;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows::Choices;
use sim::c_jdbc::mutants::MUTANTS;
use sim::c_jdbc::{self, Counts};
use sim::check::Anomaly;
use sim::{linked_sessions, nodes, schedulers};

use super::{Failed, Options};

fn of(options: &Options) -> c_jdbc::Options {
    let level = options.level.as_deref().map(|name| match name {
        "pass-through" => Level::PassThrough,
        "optimistic" => Level::Optimistic,
        _ => Level::Pessimistic,
    });
    let respond = options.respond.as_deref().map(|name| match name {
        "first" => Respond::First,
        "majority" => Respond::Majority,
        _ => Respond::All,
    });
    c_jdbc::Options { level, respond, ..c_jdbc::Options::default() }
}

/// Runs the seeds of the options, or its mutants.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(super) fn c_jdbc(options: &Options) -> Result<(), Failed> {
    if options.mutants {
        return hunt(options);
    }
    let (mut failed, mut counts) = (0, Counts::default());
    let count = if options.trace { 1 } else { options.seeds };
    for seed in options.seed..options.seed + count {
        let verdict = c_jdbc::run_seed(seed, of(options), options.trace);
        counts.add(verdict.counts);
        if options.trace {
            println!("{}", verdict.trace);
            for (number, transaction) in verdict.history.transactions.iter().enumerate() {
                println!("T{number} {transaction:?}");
            }
        }
        if let Some(finding) = verdict.findings.first() {
            failed += 1;
            println!("seed {seed} of c-jdbc at commit {}: {finding}", options.commit);
        }
    }
    println!("{count} seeds of c-jdbc, {failed} failed; {counts:?}");
    if failed > 0 { Err(Failed(failed)) } else { Ok(()) }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn hunt(options: &Options) -> Result<(), Failed> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    println!("| rule off | seeds until found | anomalies |\n|---|---|---|");
    for mutant in MUTANTS.iter().filter(|mutant| mutant.name.contains(&options.only)) {
        let mut seen: BTreeMap<Anomaly, usize> = BTreeMap::new();
        let mut first = None;
        for seed in options.seed..options.seed + options.seeds {
            let verdict = c_jdbc::run_seed(seed, mutant.options(), false);
            let Some(finding) = verdict.findings.first() else { continue };
            *seen.entry(finding.anomaly).or_default() += 1;
            first.get_or_insert(seed - options.seed + 1);
            if seen.values().sum::<usize>() == super::KILLS {
                break;
            }
        }
        survivors += u64::from(first.is_none());
        let seeds = first.map_or_else(|| "never".to_owned(), |seeds| seeds.to_string());
        println!("| {} | {seeds} | {seen:?} |", mutant.name);
    }
    if survivors > 0 { Err(Failed(survivors)) } else { Ok(()) }
}

/// Runs the seeds of several nodes, or its mutants.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(super) fn nodes(options: &Options) -> Result<(), Failed> {
    let Some(protocol) = [ONECOPY, MIDDLE_R].into_iter().find(|known| known.name == options.protocol) else {
        println!("several nodes serve {} and {} only", ONECOPY.name, MIDDLE_R.name);
        return Err(Failed(0));
    };
    if options.mutants {
        return hunt_nodes(options, protocol);
    }
    let count = if options.trace { 1 } else { options.seeds };
    let switches = nodes::Switches { protocol, ..nodes::Switches::default() };
    let mut failed = 0;
    for seed in options.seed..options.seed + count {
        let (findings, trace) = nodes::run_seed(seed, switches, options.trace);
        for line in &trace {
            println!("{line}");
        }
        if let Some(finding) = findings.first() {
            failed += 1;
            println!("seed {seed} of several nodes at commit {}: {finding}", options.commit);
        }
    }
    println!("{count} seeds of several nodes, {failed} failed");
    if failed > 0 { Err(Failed(failed)) } else { Ok(()) }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn hunt_nodes(options: &Options, protocol: Choices) -> Result<(), Failed> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    println!("| rule off | seeds until found | example |\n|---|---|---|");
    let mutants = if protocol == MIDDLE_R { nodes::mutants::LOCAL_MUTANTS } else { nodes::mutants::MUTANTS };
    for mutant in mutants.iter().filter(|mutant| mutant.name.contains(&options.only)) {
        let mut switches = nodes::Switches { protocol, ..nodes::Switches::default() };
        (mutant.switch)(&mut switches);
        let finding = |seed| nodes::run_seed(seed, switches, false).0.into_iter().next();
        let mut seeds = options.seed..options.seed + options.seeds;
        let found = seeds.find_map(|seed| finding(seed).map(|text| (seed - options.seed + 1, text)));
        survivors += u64::from(found.is_none());
        let (seeds, text) =
            found.map_or_else(|| ("never".to_owned(), String::new()), |(n, t)| (n.to_string(), t));
        println!("| {} | {seeds} | {} |", mutant.name, text.chars().take(100).collect::<String>());
    }
    if survivors > 0 { Err(Failed(survivors)) } else { Ok(()) }
}

/// Runs the seeds of several schedulers, or its mutants.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(super) fn schedulers(options: &Options) -> Result<(), Failed> {
    if options.mutants {
        return hunt_schedulers(options);
    }
    let count = if options.trace { 1 } else { options.seeds };
    let (mut failed, mut counts) = (0, schedulers::Counts::default());
    for seed in options.seed..options.seed + count {
        let verdict = schedulers::run_seed(seed, schedulers::Switches::default(), options.trace);
        print!("{}", verdict.trace);
        counts.add(verdict.counts);
        if let Some(finding) = verdict.findings.first() {
            failed += 1;
            println!("seed {seed} of several schedulers at commit {}: {finding}", options.commit);
        }
    }
    println!("{count} seeds of several schedulers, {failed} failed; {counts:?}");
    if failed > 0 { Err(Failed(failed)) } else { Ok(()) }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn hunt_schedulers(options: &Options) -> Result<(), Failed> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    println!("| rule off | seeds until found | example |\n|---|---|---|");
    for mutant in schedulers::mutants::MUTANTS.iter().filter(|mutant| mutant.name.contains(&options.only)) {
        let mut switches = schedulers::Switches::default();
        (mutant.switch)(&mut switches);
        let finding = |seed| schedulers::run_seed(seed, switches, false).findings.into_iter().next();
        let mut seeds = options.seed..options.seed + options.seeds;
        let found = seeds.find_map(|seed| finding(seed).map(|text| (seed - options.seed + 1, text)));
        survivors += u64::from(found.is_none());
        let (seeds, text) =
            found.map_or_else(|| ("never".to_owned(), String::new()), |(n, t)| (n.to_string(), t));
        println!("| {} | {seeds} | {} |", mutant.name, text.chars().take(100).collect::<String>());
    }
    if survivors > 0 { Err(Failed(survivors)) } else { Ok(()) }
}

/// Runs the seeds of linked sessions, or their mutants.
#[expect(clippy::print_stdout, reason = "this is what the program is for")]
pub(super) fn linked(options: &Options) -> Result<(), Failed> {
    if options.mutants {
        return hunt_linked(options);
    }
    let count = if options.trace { 1 } else { options.seeds };
    let (mut failed, mut counts) = (0, linked_sessions::Counts::default());
    for seed in options.seed..options.seed + count {
        let verdict = linked_sessions::run_seed(seed, linked_sessions::Switches::default(), options.trace);
        print!("{}", verdict.trace);
        counts.add(verdict.counts);
        if let Some(finding) = verdict.findings.first() {
            failed += 1;
            println!("seed {seed} of linked sessions at commit {}: {finding}", options.commit);
        }
    }
    println!("{count} seeds of linked sessions, {failed} failed; {counts:?}");
    if failed > 0 { Err(Failed(failed)) } else { Ok(()) }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn hunt_linked(options: &Options) -> Result<(), Failed> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    println!("| rule off | seeds until found | example |\n|---|---|---|");
    let mutants = linked_sessions::mutants::MUTANTS;
    for mutant in mutants.iter().filter(|mutant| mutant.name.contains(&options.only)) {
        let switches = linked_sessions::Switches::without(mutant.rule);
        let finding = |seed| linked_sessions::run_seed(seed, switches, false).findings.into_iter().next();
        let mut seeds = options.seed..options.seed + options.seeds;
        let found = seeds.find_map(|seed| finding(seed).map(|text| (seed - options.seed + 1, text)));
        survivors += u64::from(found.is_none());
        let (seeds, text) =
            found.map_or_else(|| ("never".to_owned(), String::new()), |(n, t)| (n.to_string(), t));
        println!("| {} | {seeds} | {} |", mutant.name, text.chars().take(100).collect::<String>());
    }
    if survivors > 0 { Err(Failed(survivors)) } else { Ok(()) }
}
