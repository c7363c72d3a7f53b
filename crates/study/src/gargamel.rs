//! `sim paper gargamel`: simulates the figures and prints each stated number with ours.
//!
//! One setting is judged. The other readings of what the paper leaves open are simulated beside it with fewer seeds, and
//! every output names its reading.

use std::io::Write;

use serde_json::json;
use sim::paper::gargamel::experiment::{Cell, Consensus, Retry, Run, Setting, WORKERS, measure};
use sim::paper::gargamel::figures::{self, Line, Means, RATES, RIVALS, Runs, SEEDS, UNBOUNDED_RATES};
use sim::paper::gargamel::reasons::reason;
use sim::paper::gargamel::tpcc::Reading;
use sim::paper::open::Outcome;

use crate::command::{Conflicts, Delays, Error, Gargamel, Restarts};
use crate::{parallel, plot};

/// Seeds of the readings that are printed beside the judged one.
const SEEDS_BESIDE: u64 = 2;

pub(crate) fn run(options: &Gargamel, out: &mut dyn Write) -> Result<(), Error> {
    let setting = setting(options);
    let readings = [Reading::Columns, Reading::Rows].into_iter();
    let all = readings.flat_map(|reading| {
        [Retry::AtTheEnd, Retry::AtOnce].map(|retry| Setting { reading, retry, ..setting })
    });
    let beside: Vec<Setting> = all.filter(|other| *other != setting).collect();
    let judged = figures::cells(SEEDS).into_iter().map(|cell| (setting, cell));
    let others =
        beside.iter().flat_map(|other| figures::cells(SEEDS_BESIDE).into_iter().map(|cell| (*other, cell)));
    let mut work: Vec<(Setting, Cell)> = judged.chain(others).collect();
    // The long ones first.
    work.sort_by_key(|(_, cell)| std::cmp::Reverse((cell.bound.is_none(), cell.rate)));
    let done = parallel::all(&work, "simulating", |(setting, cell)| (*setting, measure(*cell, *setting)));
    let of = |wanted: Setting| -> Runs {
        let runs = done.iter().filter(|(setting, _)| *setting == wanted);
        runs.map(|(_, run): &(Setting, Run)| (run.cell, run.clone())).collect()
    };
    let runs = of(setting);
    let lines = figures::judge(&runs);
    let others: Vec<(Setting, Vec<Line>)> =
        beside.into_iter().map(|other| (other, figures::judge(&of(other)))).collect();
    if options.json {
        json_lines(setting, &lines, &others, out)?;
    } else {
        table(setting, &runs, out)?;
        verdicts(setting, &lines, &others, out)?;
    }
    if let Some(folder) = &options.plot {
        plot::draw_lines(folder, "gargamel", &figures::curves(&runs))?;
    }
    Ok(())
}

fn setting(options: &Gargamel) -> Setting {
    Setting {
        reading: match options.conflicts {
            Conflicts::Columns => Reading::Columns,
            Conflicts::Rows => Reading::Rows,
        },
        retry: match options.retry {
            Restarts::End => Retry::AtTheEnd,
            Restarts::Once => Retry::AtOnce,
        },
        consensus: match options.consensus {
            Delays::Reply => Consensus::Reply,
            Delays::Commit => Consensus::Commit,
            Delays::Off => Consensus::Off,
        },
    }
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
            .map(|(setting, lines)| {
                json!({ "conflicts": setting.reading.name(), "overtaken": setting.retry.name(), "ours": lines[at].ours })
            })
            .collect();
        let Line { place, experiment, stated, least, most, ours, met, quantity } = line;
        let line = json!({
            "place": place, "experiment": experiment, "stated": stated, "least": least, "most": most, "ours": ours,
            "met": met, "reason": (!met).then(|| reason(*quantity)).flatten(),
            "conflicts": setting.reading.name(), "overtaken": setting.retry.name(),
            "consensus": setting.consensus.name(), "beside": beside,
        });
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn name(setting: Setting, out: &mut dyn Write) -> Result<(), Error> {
    let Setting { reading, retry, consensus } = setting;
    writeln!(
        out,
        "conflicts by {}; overtaken transactions are {}; consensus {}",
        reading.name(),
        retry.name(),
        consensus.name()
    )?;
    Ok(())
}

/// A column of the table: its name, decimals, and measure.
type Column = (&'static str, usize, fn(&Outcome) -> f64);

const COLUMNS: [Column; 9] = [
    ("phase 1", 1, Outcome::phase_throughput),
    ("most", 1, Outcome::most_throughput),
    ("penalty", 2, Outcome::mean_penalty),
    ("up to 4", 2, |outcome| outcome.penalty_up_to(4.0)),
    ("speed-up", 1, Outcome::speed_up),
    ("busy", 0, |outcome| outcome.busy_at_end as f64),
    ("queue", 0, |outcome| outcome.queue_most[1] as f64),
    ("restarts", 0, |outcome| outcome.restarts as f64),
    ("EUR/h", 1, Outcome::mean_busy),
];

/// Means over the seeds, a row for each rate and system.
fn table(setting: Setting, runs: &Runs, out: &mut dyn Write) -> Result<(), Error> {
    let means = Means(runs);
    for (bound, rates) in [(Some(WORKERS), &RATES[..]), (None, &UNBOUNDED_RATES)] {
        let workers = bound.map_or_else(|| "as many as needed".to_owned(), |bound| bound.to_string());
        write!(out, "workers: {workers}; ")?;
        name(setting, out)?;
        write!(out, "{:>5} {:<12}", "rate", "system")?;
        COLUMNS.iter().try_for_each(|(name, _, _)| write!(out, " {name:>9}"))?;
        writeln!(out)?;
        for rate in rates {
            for system in RIVALS {
                write!(out, "{rate:>5} {:<12}", system.name())?;
                for (_, decimals, measure) in COLUMNS {
                    let value = means.of(system, *rate, bound, measure).unwrap_or(f64::NAN);
                    write!(out, " {value:>9.decimals$}")?;
                }
                writeln!(out)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

fn verdicts(
    setting: Setting,
    lines: &[Line],
    others: &[(Setting, Vec<Line>)],
    out: &mut dyn Write,
) -> Result<(), Error> {
    write!(out, "ours: ")?;
    name(setting, out)?;
    for (number, (other, _)) in (1..).zip(others) {
        write!(out, "[{number}]: ")?;
        name(*other, out)?;
    }
    let shown = |ours: Option<f64>| {
        let decimals = if ours.is_some_and(|ours| ours < 0.01) { 5 } else { 2 };
        ours.map_or_else(|| ".".to_owned(), |ours| format!("{ours:.decimals$}"))
    };
    write!(out, "{:<11} {:<54} {:>19} {:>8} {:<4}", "place", "experiment", "stated", "ours", "met")?;
    (1..=others.len()).try_for_each(|number| write!(out, " {:>8}", format!("[{number}]")))?;
    writeln!(out)?;
    for (at, line) in lines.iter().enumerate() {
        let Line { place, experiment, stated, ours, met, quantity, .. } = line;
        let met = if *met { "yes" } else { "NO" };
        write!(out, "{place:<11} {experiment:<54} {stated:>19} {:>8} {met:<4}", shown(*ours))?;
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
