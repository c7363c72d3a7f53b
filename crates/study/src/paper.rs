//! `sim paper conflict-aware`: simulates the experiments and prints tables and comparisons.

mod schedulers;

use std::io::Write;
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::json;
use sim::paper::figures::{self, Cell, Crowd, ENDS, Line, Point, Points, SchedulerCost, Setting};
use sim::paper::scenario::{Discipline, Protocol};
use sim::paper::tpcw::{Calibration, Mix};

use crate::command::{ConflictAware, Costs, Error, Service};
use crate::{parallel, plot};

/// Sizes for which the scheduler's own time is measured; the product's placement map ends at 64 replicas.
const SCHEDULER_SIZES: [usize; 3] = [1, 60, 500];
const ONECOPY_MAX: usize = 60;

/// The clock that measures the scheduler's own time.
fn clock_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

pub(crate) fn run(options: &ConflictAware, out: &mut dyn Write) -> Result<(), Error> {
    let setting = Setting {
        calibration: match options.costs {
            Costs::A => Calibration::A,
            Costs::B => Calibration::B,
            Costs::C => Calibration::C,
        },
        discipline: match options.service {
            Service::Queue => Discipline::Queue,
            Service::Sharing => Discipline::Sharing,
        },
        network_us: options.network_us,
        seed: options.seed,
    };
    let mut cells = figures::cells(&options.figure);
    cells.sort_by_key(|cell| std::cmp::Reverse(cell.replicas));
    let measured = parallel::all(&cells, "simulating", |cell: &Cell| figures::measure(*cell, setting));
    let points: Points = measured.into_iter().map(|point| (point.cell, point)).collect();
    let is_wanted = |number: u8| options.figure.is_empty() || options.figure.contains(&number);
    let mut bars_of_10 = figures::bars_of_figure_10();
    bars_of_10.retain(|_| is_wanted(10));
    let tolerances =
        parallel::all(&bars_of_10, "logging", |(mix, bar)| figures::tolerance(*mix, *bar, setting));
    let mut crowds = figures::crowds();
    crowds.retain(|_| is_wanted(15));
    let resources = parallel::all(&crowds, "scheduling", |crowd: &Crowd| figures::resources(*crowd, setting));
    let mut lines = figures::judge(&points);
    lines.extend(figures::judge_tolerance(&tolerances));
    lines.extend(figures::judge_resources(&resources));
    if options.json {
        json_lines(&points, &lines, out)?;
        schedulers::json_lines(&tolerances, &resources, out)?;
    } else {
        table(&points, out)?;
        responses(&points, out)?;
        query_times(&points, out)?;
        shares(&points, out)?;
        schedulers::tolerances(&tolerances, out)?;
        schedulers::resources(&resources, out)?;
        verdicts(&lines, out)?;
    }
    if options.scheduler {
        scheduler(options, setting, out)?;
    }
    if let Some(folder) = &options.plot {
        // Other figures would lack some of their points.
        let (mut curves, mut bars) = (figures::curves(&points), figures::bars(&points));
        curves.retain(|figure| is_wanted(figure.number));
        bars.extend(figures::draw_tolerance(&tolerances));
        bars.retain(|figure| is_wanted(figure.number));
        plot::draw(folder, &curves, &bars)?;
    }
    Ok(())
}

fn json_lines(points: &Points, lines: &[Line], out: &mut dyn Write) -> Result<(), Error> {
    for point in points.values() {
        let Point { cell, wips, clients, response_ms, request_ms, in_database_ms, shares } = point;
        let [reads, writes, idle] = shares;
        let line = json!({
            "mix": cell.mix.name(), "protocol": cell.protocol, "replicas": cell.replicas, "speed": cell.speed,
            "conflict_percent": 100.0 / f64::from(cell.parts), "wips": wips, "clients": clients,
            "response_ms": response_ms, "query_ms": request_ms,
            "query_in_database_ms": in_database_ms, "reads": reads, "writes": writes, "idle": idle,
        });
        writeln!(out, "{line}")?;
    }
    for line in lines {
        writeln!(out, "{}", json!(line))?;
    }
    Ok(())
}

/// Interactions per second, a row for each mix, speed, conflict rate and number of replicas.
fn table(points: &Points, out: &mut dyn Write) -> Result<(), Error> {
    let mut rows: Vec<_> = points.keys().map(|c| (c.mix, c.speed, c.parts, c.replicas)).collect();
    rows.sort_unstable();
    rows.dedup();
    let names = Protocol::ALL.map(Protocol::name);
    write!(out, "{:<9} {:>5} {:>9} {:>8}", "mix", "speed", "conflicts", "replicas")?;
    names.iter().try_for_each(|name| write!(out, " {name:>14}"))?;
    writeln!(out, "   interactions per second at the peak")?;
    for (mix, speed, parts, replicas) in rows {
        let conflicts = format!("{} %", 100.0 / f64::from(parts));
        write!(out, "{:<9} {speed:>4}x {conflicts:>9} {replicas:>8}", mix.name())?;
        for protocol in names {
            match points.get(&Cell { mix, protocol, replicas, speed, parts }) {
                Some(point) => write!(out, " {:>14.1}", point.wips)?,
                None => write!(out, " {:>14}", ".")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Every protocol's point of a mix with eight replicas, if none is missing.
fn with_eight(points: &Points, mix: Mix) -> Option<Vec<&Point>> {
    let at = |protocol: Protocol| {
        points.get(&Cell { mix, protocol: protocol.name(), replicas: 8, speed: 1, parts: 1 })
    };
    Protocol::ALL.into_iter().map(at).collect()
}

/// Figure 6: with eight replicas.
fn responses(points: &Points, out: &mut dyn Write) -> Result<(), Error> {
    for mix in Mix::ALL {
        if let Some(all) = with_eight(points, mix) {
            write!(out, "{:<9}    1x     100 %        8", mix.name())?;
            all.iter().try_for_each(|point| write!(out, " {:>14.0}", point.response_ms))?;
            writeln!(out, "   ms an interaction takes at the peak")?;
        }
    }
    Ok(())
}

/// Figures 7 to 9: with eight replicas.
fn query_times(points: &Points, out: &mut dyn Write) -> Result<(), Error> {
    for mix in Mix::ALL {
        if let Some(all) = with_eight(points, mix) {
            write!(out, "{:<9}    1x     100 %        8", mix.name())?;
            for Point { request_ms, in_database_ms, .. } in all {
                let waiting_ms = request_ms - in_database_ms;
                write!(out, " {:>14}", format!("{in_database_ms:.0} + {waiting_ms:.0}"))?;
            }
            writeln!(out, "   ms a query is in a database, and waits")?;
        }
    }
    Ok(())
}

/// Figure 14.
fn shares(points: &Points, out: &mut dyn Write) -> Result<(), Error> {
    let cells = ENDS.into_iter().flat_map(|(mix, most)| [(mix, 1), (mix, most)]);
    let mut begins = true;
    for (mix, replicas) in cells {
        for protocol in [Protocol::ALL[4], Protocol::Onecopy].map(Protocol::name) {
            let Some(point) = points.get(&Cell { mix, protocol, replicas, speed: 1, parts: 1 }) else {
                continue;
            };
            if std::mem::take(&mut begins) {
                writeln!(out, "\n{:<9} {:>8} {:<14}  reads writes   idle", "mix", "replicas", "protocol")?;
            }
            let [reads, writes, idle] = point.shares.map(|share| share * 100.0);
            writeln!(
                out,
                "{:<9} {replicas:>8} {protocol:<14} {reads:>5.1}% {writes:>5.1}% {idle:>5.1}%",
                mix.name()
            )?;
        }
    }
    Ok(())
}

fn verdicts(lines: &[Line], out: &mut dyn Write) -> Result<(), Error> {
    writeln!(out, "\n{:<72} {:>10} {:>10} {:>10}  met", "experiment", "stated", "ours", "difference")?;
    for line in lines {
        let difference = line.difference.map_or_else(String::new, |d| format!("{d:+.2}"));
        let (stated, ours) = (line.stated.to_string(), line.ours.to_string());
        let met = if line.pass { "yes" } else { "NO" };
        writeln!(out, "{:<72} {stated:>10} {ours:>10} {difference:>10}  {met}", line.experiment)?;
    }
    let met = lines.iter().filter(|line| line.pass).count();
    writeln!(out, "{met} of {} met", lines.len())?;
    Ok(())
}

/// Measures one after the other, so that no other work of ours disturbs the clock.
fn scheduler(options: &ConflictAware, setting: Setting, out: &mut dyn Write) -> Result<(), Error> {
    if !options.json {
        writeln!(
            out,
            "\n{:<15} {:>8} {:>8} {:>19} {:>24} {:>9}",
            "scheduler", "replicas", "wips", "us per interaction", "messages per interaction", "processor"
        )?;
    }
    for protocol in Protocol::ALL {
        for replicas in SCHEDULER_SIZES {
            if protocol == Protocol::Onecopy && replicas > ONECOPY_MAX {
                continue;
            }
            let cost = figures::scheduler_cost(protocol, replicas, setting, clock_ns);
            let SchedulerCost { wips, us_per_interaction, messages_per_interaction, share, .. } = cost;
            if options.json {
                let line = json!({
                    "scheduler": protocol.name(), "replicas": replicas, "wips": wips,
                    "us_per_interaction": us_per_interaction,
                    "messages_per_interaction": messages_per_interaction, "processor": share,
                });
                writeln!(out, "{line}")?;
            } else {
                let (name, percent) = (protocol.name(), share * 100.0);
                writeln!(
                    out,
                    "{name:<15} {replicas:>8} {wips:>8.1} {us_per_interaction:>19.1} \
                     {messages_per_interaction:>24.1} {percent:>7.2} %"
                )?;
            }
        }
    }
    Ok(())
}
