//! `sim paper preventive`: simulates the figures and prints each stated number with ours.
//!
//! One setting is judged. Earlier forms of the algorithm, and ours, are simulated beside it with fewer nodes and seeds, and every
//! output names its setting.

use std::io::Write;

use cluster::parts::stamps::{Classes, Reach, Start};
use serde_json::json;
use sim::paper::preventive::experiment::{Cell, Discipline, Experiment, Setting, Times, measure};
use sim::paper::preventive::figures::{
    self, CONFIGURATIONS, Line, Means, NODES, NODES_BESIDE, NODES_OF_QUERIES, Runs, SEEDS, SIZES_MS,
    WAREHOUSES,
};
use sim::paper::preventive::outcome::Outcome;
use sim::paper::preventive::reasons::reason;

use crate::command::{Error, Preventive};
use crate::{parallel, plot};

/// The algorithm of section 4, its concurrent form, section 5.1 alone, our rules, and other readings of the times and of
/// the disk.
fn beside(judged: Setting) -> [Setting; 6] {
    let ordered = Setting { start: Start::Ordered, ..judged };
    [
        Setting { classes: Classes::One, ..ordered },
        ordered,
        Setting { classes: Classes::One, ..judged },
        Setting { reach: Reach::Conflicting, ..judged },
        Setting { times: Times::OfTransaction, ..judged },
        Setting { discipline: Discipline::OldestFirst, ..judged },
    ]
}

pub(crate) fn run(options: &Preventive, out: &mut dyn Write) -> Result<(), Error> {
    let setting = Setting::default();
    let judged = figures::cells(SEEDS).into_iter().map(|cell| (setting, cell));
    let beside = beside(setting);
    let others =
        beside.iter().flat_map(|other| figures::cells_beside().into_iter().map(|cell| (*other, cell)));
    let mut work: Vec<(Setting, Cell)> = judged.chain(others).collect();
    // The long ones first.
    work.sort_by_key(|(_, cell)| std::cmp::Reverse(u32::from(cell.nodes) * cell.warehouses));
    let done =
        parallel::all(&work, "simulating", |(setting, cell)| (*setting, *cell, measure(*cell, *setting)));
    let of = |wanted: Setting| -> Runs {
        let runs = done.iter().filter(|(setting, _, _)| *setting == wanted);
        runs.map(|(_, cell, outcome)| (*cell, outcome.clone())).collect()
    };
    let runs = of(setting);
    let lines = figures::judge(&runs, &NODES);
    let others: Vec<(Setting, Vec<Line>)> =
        beside.into_iter().map(|other| (other, figures::judge(&of(other), &NODES_BESIDE))).collect();
    if options.json {
        json_lines(setting, &lines, &others, out)?;
    } else {
        writeln!(out, "{}", setting.name())?;
        updates(&runs, out)?;
        queries(&runs, out)?;
        delays(&runs, out)?;
        verdicts(setting, &lines, &others, out)?;
    }
    if let Some(folder) = &options.plot {
        plot::draw_lines(folder, "preventive", &figures::curves(&runs))?;
    }
    Ok(())
}

fn json_lines(
    setting: Setting,
    lines: &[Line],
    others: &[(Setting, Vec<Line>)],
    out: &mut dyn Write,
) -> Result<(), Error> {
    for (at, line) in lines.iter().enumerate() {
        let beside: Vec<_> = others
            .iter()
            .map(|(setting, lines)| json!({ "setting": setting.name(), "ours": lines[at].ours }))
            .collect();
        let Line { quantity, place, experiment, stated, least, most, ours, met } = line;
        let line = json!({
            "place": place, "experiment": experiment, "stated": stated, "least": least, "most": most, "ours": ours,
            "met": met, "reason": (!met).then(|| reason(*quantity)).flatten(), "setting": setting.name(),
            "beside": beside,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// A column of the table: its name, decimals, and measure.
type Column = (&'static str, usize, fn(&Outcome) -> f64);

const COLUMNS: [Column; 6] = [
    ("response", 0, Outcome::response_ms),
    ("messages", 0, |outcome| outcome.messages as f64),
    ("unordered%", 2, |outcome| 100.0 * outcome.unordered_share()),
    ("aborted%", 2, |outcome| 100.0 * outcome.aborted_share()),
    ("aborting%", 1, |outcome| 100.0 * outcome.aborting_share()),
    ("late", 0, |outcome| outcome.counts.late as f64),
];

/// Figures 13 and 15: means over the seeds, a row for each configuration, number of warehouses and of nodes.
fn updates(runs: &Runs, out: &mut dyn Write) -> Result<(), Error> {
    write!(out, "{:<4} {:>2} {:>5}", "", "W", "nodes")?;
    COLUMNS.iter().try_for_each(|(name, _, _)| write!(out, " {name:>10}"))?;
    writeln!(out)?;
    for configuration in CONFIGURATIONS {
        for warehouses in WAREHOUSES {
            for nodes in NODES {
                write!(out, "{:<4} {warehouses:>2} {nodes:>5}", configuration.name())?;
                for (_, decimals, measure) in COLUMNS {
                    let value =
                        Means(runs).of(Experiment::ScaleUp, configuration, warehouses, nodes, measure);
                    write!(out, " {:>10.decimals$}", value.unwrap_or(f64::NAN))?;
                }
                writeln!(out)?;
            }
        }
    }
    writeln!(out)?;
    Ok(())
}

/// Figure 14.
fn queries(runs: &Runs, out: &mut dyn Write) -> Result<(), Error> {
    write!(out, "queries/s")?;
    NODES_OF_QUERIES.iter().try_for_each(|nodes| write!(out, " {nodes:>6}"))?;
    writeln!(out, " nodes")?;
    for configuration in CONFIGURATIONS {
        for warehouses in WAREHOUSES {
            write!(out, "{:<4} W={warehouses:<2}", configuration.name())?;
            for nodes in NODES_OF_QUERIES {
                let measure = Outcome::queries_per_s;
                let value = Means(runs).of(Experiment::SpeedUp, configuration, warehouses, nodes, measure);
                write!(out, " {:>6.0}", value.unwrap_or(f64::NAN))?;
            }
            writeln!(out)?;
        }
    }
    writeln!(out)?;
    Ok(())
}

/// Figure 16.
fn delays(runs: &Runs, out: &mut dyn Write) -> Result<(), Error> {
    write!(out, "size, ms ")?;
    SIZES_MS.iter().try_for_each(|size_ms| write!(out, " {size_ms:>6}"))?;
    write!(out, "\ndelay, ms")?;
    let delay = |size_ms: &u64| Means(runs).delay_ms(*size_ms).unwrap_or(f64::NAN);
    SIZES_MS.iter().try_for_each(|size_ms| write!(out, " {:>6.1}", delay(size_ms)))?;
    writeln!(out, "\n")?;
    Ok(())
}

fn verdicts(
    setting: Setting,
    lines: &[Line],
    others: &[(Setting, Vec<Line>)],
    out: &mut dyn Write,
) -> Result<(), Error> {
    writeln!(out, "ours: {}", setting.name())?;
    for (number, (other, _)) in (1..).zip(others) {
        writeln!(out, "[{number}]: {}", other.name())?;
    }
    let shown = |ours: Option<f64>| {
        let decimals = if ours.is_some_and(|ours| ours < 1.0) { 4 } else { 2 };
        ours.map_or_else(|| ".".to_owned(), |ours| format!("{ours:.decimals$}"))
    };
    write!(out, "{:<11} {:<56} {:>12} {:>8} {:<4}", "place", "experiment", "stated", "ours", "met")?;
    (1..=others.len()).try_for_each(|number| write!(out, " {:>8}", format!("[{number}]")))?;
    writeln!(out)?;
    for (at, line) in lines.iter().enumerate() {
        let Line { place, experiment, stated, ours, met, quantity, .. } = line;
        let met = if *met { "yes" } else { "NO" };
        write!(out, "{place:<11} {experiment:<56} {stated:>12} {:>8} {met:<4}", shown(*ours))?;
        others.iter().try_for_each(|(_, lines)| write!(out, " {:>8}", shown(lines[at].ours)))?;
        writeln!(out)?;
        if let Some(reason) = reason(*quantity).filter(|_| !line.met) {
            writeln!(out, "            {reason}")?;
        }
    }
    let met = lines.iter().filter(|line| line.met).count();
    writeln!(out, "{met} of {} met", lines.len())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few runs of few nodes: what is missing is not met, and each output says by which setting.
    #[test]
    fn each_output_names_its_setting_and_the_missing_runs_are_dots() {
        let setting = Setting::default();
        let cells = figures::cells_beside().into_iter().filter(|cell| cell.experiment != Experiment::ScaleUp);
        let runs: Runs = cells.map(|cell| (cell, measure(cell, setting))).collect();
        let lines = figures::judge(&runs, &NODES_BESIDE);
        let others: Vec<(Setting, Vec<Line>)> =
            beside(setting).into_iter().map(|other| (other, lines.clone())).collect();
        let (mut table, mut json) = (Vec::new(), Vec::new());
        delays(&runs, &mut table).unwrap();
        verdicts(setting, &lines, &others, &mut table).unwrap();
        json_lines(setting, &lines, &others, &mut json).unwrap();
        let table = String::from_utf8(table).unwrap();
        for word in [&setting.name(), "[5]: start on arrival", "4 of 21 met", " . NO", "one disk at 5/s"] {
            assert!(table.contains(word), "{word} in {table}");
        }
        let json = String::from_utf8(json).unwrap();
        let parsed: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed.len(), lines.len());
        let met = parsed.iter().filter(|line| line["met"] == true);
        assert!(met.clone().count() == 4 && met.clone().all(|line| line["reason"].is_null()));
        assert!(parsed.iter().all(|line| line["beside"].as_array().unwrap().len() == 6));
    }
}
