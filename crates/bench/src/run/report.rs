//! The results in Markdown: medians, spreads, and what has to be known to believe them.

mod stamped;

use std::fmt::Write as _;

use super::result::{Loss, Results, Run, Size, Verdict};
use crate::spread::Spread;

/// Values that lie further apart than this, for one of the median, are called noisy.
const NOISY: f64 = 0.3;
/// So much of the machine may strangers use before it is said of a table.
const STRANGERS: f64 = 0.15;
/// A driver that used more of its processor may have been what was measured.
const DRIVER: f64 = 0.8;

/// The whole report; `plots` are names of files beside it.
pub(crate) fn markdown(results: &Results, plots: &[String]) -> String {
    let mut text = format!("# {}\n\n{}\n\n", results.title, results.circumstances);
    for version in &results.versions {
        let _ = writeln!(text, "- {version}");
    }
    text.push('\n');
    for note in &results.notes {
        let _ = writeln!(text, "{note}\n");
    }
    for load in loads(results) {
        table(&mut text, results, &load);
    }
    simulated(&mut text, results);
    results.losses.iter().for_each(|loss| lost_one(&mut text, loss));
    results.sizes.iter().for_each(|size| sized(&mut text, size));
    stamped::told(&mut text, &results.stamped);
    for plot in plots {
        let _ = writeln!(text, "![{plot}]({plot})\n");
    }
    let _ = writeln!(text, "## The plan\n\n```toml\n{}\n```", results.plan.trim());
    text
}

/// A load that grew and fell.
fn sized(text: &mut String, size: &Size) {
    let _ = writeln!(
        text,
        "## Replicas come and go\n\n{}, {}, an open loop of {} interactions in a second at 1x.\n\n\
             | load | s | done in a second | failed | p50 ms | p99 ms | replicas at the end | since s |\n\
             |---|---|---|---|---|---|---|---|",
        size.contestant, size.load, size.rate
    );
    for step in &size.steps {
        let (p50, p99) = step.response_ms.map_or((f64::NAN, f64::NAN), |times| (times.p50, times.p99));
        let _ = writeln!(
            text,
            "| {}x | {:.0} | {:.1} | {} | {p50:.1} | {p99:.1} | {} | {:.1} |",
            step.factor, step.seconds, step.throughput, step.failed, step.replicas, step.followed_s
        );
    }
    judged(text, &size.verdicts, &size.wrong);
}

/// Claims, and what is wrong.
fn judged(text: &mut String, verdicts: &[Verdict], wrong: &[String]) {
    if !verdicts.is_empty() {
        let _ = writeln!(text, "\n| claim | measured | |\n|---|---|---|");
    }
    for Verdict { claim, measured, is_met } in verdicts {
        let verdict = if *is_met { "met" } else { "**NOT met**" };
        let _ = writeln!(text, "| {claim} | {measured} | {verdict} |");
    }
    text.push('\n');
    for wrong in wrong {
        let _ = writeln!(text, "- **WRONG**: {wrong}");
    }
}

/// The loss of a replica.
fn lost_one(text: &mut String, loss: &Loss) {
    let back = loss.back_s.map_or_else(
        || "It had not come back by the end.".to_owned(),
        |back| format!("It served again {:.1} s after that.", back - loss.killed_s - loss.away_s),
    );
    let away = if loss.away_s > 0.0 {
        format!(" and could not be started for {:.0} s", loss.away_s)
    } else {
        String::new()
    };
    let noise = if loss.strangers > STRANGERS { ": too noisy to tell anything of times" } else { "" };
    let _ = writeln!(
        text,
        "## {} is lost\n\n{}, {} with {} clients; its server was killed after {:.0} s{away}. {back} \
             {} interactions failed; the longest time without any success was {:.1} s; {}. The clients used {:.2} of their one \
             processor, strangers {:.0} % of the machine before that{noise}.\n",
        lost(loss.killed),
        loss.contestant,
        loss.load,
        loss.clients,
        loss.killed_s,
        loss.failed,
        loss.silence_s,
        if loss.wrong.is_empty() { "all answers were right".to_owned() } else { answers(&loss.wrong) },
        loss.driver_cores,
        loss.strangers * 100.0,
    );
    text.push_str("| replica | s | a second | failed | mean ms | longest ms |\n|---|---|---|---|---|---|\n");
    for phase in &loss.phases {
        let _ = writeln!(
            text,
            "| {} | {:.1} to {:.1} | {:.1} | {} | {:.2} | {:.1} |",
            phase.name, phase.from_s, phase.to_s, phase.throughput, phase.failed, phase.mean_ms, phase.max_ms
        );
    }
    text.push('\n');
    loss.wrong.iter().for_each(|wrong| text.push_str(&format!("- {wrong}\n\n")));
}

/// Measured beside simulated.
fn simulated(text: &mut String, results: &Results) {
    if results.simulated.is_empty() {
        return;
    }
    text.push_str(
        "## Measured beside simulated\n\nStatements were timed on one plain server by one client; what a server with its limit \
         gets done is taken from the protocol's own run with one server.\n\n\
         | load | contestant | clients | measured | simulated | difference | servers busy, simulated | cost of an interaction, for \
         the simulated one | of more than 15 % the likely reason |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for one in &results.simulated {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.1} | {:.1} | {:+.0} % | {:.0} %, {:.0} % | {:.2} | {} |",
            one.load,
            one.contestant,
            one.clients,
            one.measured,
            one.expected,
            one.difference * 100.0,
            one.busy[0] * 100.0,
            one.busy[1] * 100.0,
            one.cost,
            one.reason().unwrap_or_default()
        );
    }
    text.push('\n');
}

/// The name of the lost replica.
pub(super) fn lost(killed: u16) -> String {
    // Nothing else has happened to the cluster, so its first replica is still the anchor.
    if killed == 1 { "The anchor".to_owned() } else { format!("Replica {killed}") }
}

fn loads(results: &Results) -> Vec<String> {
    unique(results.runs.iter().map(|run| run.load.clone()))
}

/// Each once, in the order of the first ones.
pub(crate) fn unique(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

fn table(text: &mut String, results: &Results, load: &str) {
    let of = |contestant: &str| -> Vec<&Run> {
        results.runs.iter().filter(|run| run.load == load && run.contestant == contestant).collect()
    };
    let names: Vec<&String> = results.contestants.iter().filter(|name| !of(name).is_empty()).collect();
    let Some(mut first) = names.first().map(|name| of(name)) else { return };
    first.retain(|run| run.counts());
    let _ = writeln!(
        text,
        "## {load}\n\n| contestant | clients | a second (least to most) | : {first} | committed | p50 ms | p90 ms | p99 ms | failed | \
         retries | 40001 per commit | middleware us each, MB | servers us each | us per commit, : {first} | servers' cores | \
         clients' cores | answers |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        first = names[0]
    );
    let mut remarks = Vec::new();
    for name in &names {
        let runs = of(name);
        row(text, name, &runs, &first);
        remarks.extend(remarks_on(name, &runs));
    }
    text.push('\n');
    for remark in remarks {
        let _ = writeln!(text, "- {remark}");
    }
    text.push('\n');
}

fn row(text: &mut String, name: &str, runs: &[&Run], first: &[&Run]) {
    let wrong: Vec<String> = runs.iter().flat_map(|run| run.wrong.clone()).collect();
    let runs: Vec<&Run> = runs.iter().copied().filter(|run| run.counts()).collect();
    let spread = |value: &dyn Fn(&Run) -> f64| Spread::of(runs.iter().map(|run| value(run)));
    let median = |value: &dyn Fn(&Run) -> f64| spread(value).map_or(0.0, |spread| spread.median);
    let Some(throughput) = spread(&|run| run.throughput) else {
        let _ =
            writeln!(text, "| {name} | | no run counts | | | | | | | | | | | | | | {} |", answers(&wrong));
        return;
    };
    // Within a round, so that what the machine does besides hits both.
    let ratio = |value: &dyn Fn(&Run) -> f64| {
        let ratios = runs.iter().filter_map(|run| {
            let base = first.iter().find(|base| base.round == run.round)?;
            Some(value(run) / value(base))
        });
        Spread::of(ratios).map_or_else(String::new, |ratio| {
            format!("{:.2} ({:.2} to {:.2})", ratio.median, ratio.least, ratio.most)
        })
    };
    let middleware = runs.iter().find_map(|run| run.middleware).map_or_else(String::new, |_| {
        let each = median(&|run| run.middleware.map_or(0.0, |it| it.us_each));
        format!("{each:.0}, {:.0}", median(&|run| run.middleware.map_or(0.0, |it| it.peak_mb)))
    });
    let _ = writeln!(
        text,
        "| {name} | {} | {:.1} ({:.1} to {:.1}) | {} | {:.1} | {:.2} | {:.2} | {:.2} | {} | {} | {:.3} | {middleware} | {:.0} | \
         {:.0}, {} | {:.2} | {:.2} | {} |",
        runs[0].clients,
        throughput.median,
        throughput.least,
        throughput.most,
        ratio(&|run| run.throughput),
        median(&|run| run.committed),
        median(&|run| run.response_ms.p50),
        median(&|run| run.response_ms.p90),
        median(&|run| run.response_ms.p99),
        runs.iter().map(|run| run.failed).sum::<u64>(),
        retries(&runs),
        median(&|run| run.conflicts_each),
        median(&|run| run.servers_us_each),
        median(&|run| run.servers_us_per_commit),
        ratio(&|run| run.servers_us_per_commit),
        median(&|run| run.servers_cores.iter().sum()),
        median(&|run| run.driver_cores),
        answers(&wrong)
    );
}

/// How often clients had to begin again, and for each transaction that was done.
fn retries(runs: &[&Run]) -> String {
    let retries = runs.iter().map(|run| run.retries).sum::<u64>();
    let done = runs.iter().flat_map(|run| run.kinds.values()).map(|kind| kind.done).sum::<u64>();
    if retries == 0 {
        "0".to_owned()
    } else {
        format!("{retries} ({:.2} each)", retries as f64 / done.max(1) as f64)
    }
}

fn answers(wrong: &[String]) -> String {
    if wrong.is_empty() { "right".to_owned() } else { format!("**WRONG** ({})", wrong.len()) }
}

/// The remarks of a row.
fn remarks_on(name: &str, runs: &[&Run]) -> Vec<String> {
    let beyond = runs.iter().flat_map(|run| {
        run.beyond.iter().map(|what| format!("{name}: **round {} does not count**, {what}", run.round))
    });
    let mut remarks: Vec<String> = beyond.collect();
    let width = Spread::of(runs.iter().map(|run| run.throughput)).map_or(0.0, Spread::width);
    if width > NOISY {
        remarks.push(format!("{name}: too noisy, its runs lie {:.0} % of the median apart", width * 100.0));
    }
    let most = |value: &dyn Fn(&Run) -> f64| runs.iter().map(|run| value(run)).fold(0.0, f64::max);
    if most(&|run| run.strangers) > STRANGERS {
        remarks.push(format!(
            "{name}: strangers used up to {:.0} % of the machine",
            most(&|run| run.strangers) * 100.0
        ));
    }
    if most(&|run| run.driver_cores) > DRIVER {
        remarks.push(format!(
            "{name}: the clients used {:.2} of their one processor",
            most(&|run| run.driver_cores)
        ));
    }
    let late = unique(runs.iter().flat_map(|run| run.late.clone()));
    if !late.is_empty() {
        remarks.push(format!("{name}: too slow for the workload's limits: {}", late.join(", ")));
    }
    remarks.extend(
        unique(runs.iter().flat_map(|run| run.wrong.clone())).iter().map(|wrong| format!("{name}: {wrong}")),
    );
    let troubles =
        unique(runs.iter().flat_map(|run| run.kinds.values().flat_map(|kind| kind.troubles.keys().cloned())));
    remarks.extend(troubles.iter().map(|trouble| format!("{name}: failed with {trouble}")));
    remarks
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::run::result::{Loss, Quantiles, Simulated, Stamped};

    fn run(contestant: &str, round: u32, throughput: f64, wrong: &[&str]) -> Run {
        Run {
            load: "l".into(),
            contestant: contestant.into(),
            family: contestant.into(),
            servers: 1,
            round,
            seed: 1,
            clients: 4,
            throughput,
            committed: throughput,
            response_ms: Quantiles { p50: 1.0, p90: 2.0, p99: 3.0, max: 4.0 },
            kinds: BTreeMap::new(),
            failed: 0,
            retries: 0,
            conflicts_each: 0.25,
            unsent: 0,
            late: Vec::new(),
            driver_cores: 0.1,
            middleware: None,
            servers_cores: vec![0.5],
            servers_us_each: 5e3,
            servers_us_per_commit: 1e6 / throughput,
            beyond: Vec::new(),
            strangers: 0.0,
            probe_reads: 10,
            stale_reads: 0,
            wrong: wrong.iter().map(|wrong| (*wrong).to_owned()).collect(),
        }
    }

    /// Two contestants, of which the second one is noisy and wrong.
    pub(in crate::run) fn results() -> Results {
        Results {
            title: "t".into(),
            circumstances: "c".into(),
            versions: Vec::new(),
            plan: String::new(),
            contestants: vec!["a".into(), "b".into()],
            notes: Vec::new(),
            runs: vec![
                run("b", 1, 100.0, &[]),
                run("a", 1, 200.0, &[]),
                run("a", 2, 202.0, &[]),
                run("b", 2, 303.0, &["2 of 9 probing reads were stale"]),
            ],
            losses: Vec::new(),
            sizes: Vec::new(),
            simulated: Vec::new(),
            stamped: Stamped::default(),
        }
    }

    #[test]
    fn a_loss_on_a_busy_machine_says_so() {
        let loss = |killed, strangers| Loss {
            load: "l".into(),
            contestant: "ours".into(),
            clients: 300,
            killed,
            killed_s: 20.0,
            away_s: 0.0,
            back_s: Some(22.5),
            failed: 3,
            driver_cores: 0.1,
            strangers,
            silence_s: 0.4,
            phases: Vec::new(),
            timeline: Vec::new(),
            wrong: vec!["verify says: different".into()],
        };
        let text = markdown(&Results { losses: vec![loss(2, 0.02), loss(1, 0.6)], ..results() }, &[]);
        let (replica, anchor) = text.split_once("## The anchor is lost").unwrap();
        let (_, replica) = replica.split_once("## Replica 2 is lost").unwrap();
        assert!(replica.contains("served again 2.5 s") && !replica.contains("too noisy"), "{replica}");
        assert!(anchor.contains("too noisy") && anchor.contains("- verify says"), "{anchor}");
    }

    #[test]
    fn a_run_beyond_its_limit_does_not_count() {
        let mut results = results();
        results.runs[3].beyond = vec!["server 1 used 0.310 of 0.100 processors".into()];
        let text = markdown(&results, &[]);
        assert!(text.contains("| b | 4 | 100.0 (100.0 to 100.0) | 0.50 (0.50 to 0.50) |"), "{text}");
        assert!(text.contains("- b: **round 2 does not count**, server 1 used 0.310 of"), "{text}");
        assert!(text.contains("- b: 2 of 9 probing"), "what is wrong is wrong all the same: {text}");
        results.runs[0].beyond = results.runs[3].beyond.clone();
        assert!(markdown(&results, &[]).contains("| b | | no run counts |"));
    }

    #[test]
    fn what_was_simulated_stands_beside_what_was_measured() {
        assert!(!markdown(&results(), &[]).contains("simulated"));
        let one = Simulated {
            load: "l".into(),
            contestant: "b".into(),
            servers: 2,
            clients: 16,
            measured: 50.0,
            expected: 56.0,
            difference: 0.12,
            busy: [0.8, 0.9],
            cost: 0.99,
            machine: 0.7,
            driver: 0.1,
        };
        let further = |busy: [f64; 2], cost: f64, machine: f64| {
            Simulated { difference: 0.3, busy, cost, machine, ..one.clone() }.reason().unwrap_or_default()
        };
        assert!(one.reason().is_none());
        assert!(further([0.5, 0.9], 1.1, 0.7).contains("servers idle 50 %, simulated 10 %: statements wait"));
        assert!(further([0.5, 0.9], 1.1, 0.95).contains("no processor left"));
        assert!(further([0.85, 0.9], 1.4, 0.95).contains("+40 %"));
        let text = markdown(&Results { simulated: vec![one], ..results() }, &[]);
        assert!(text.contains("| l | b | 16 | 50.0 | 56.0 | +12 % | 80 %, 90 % | 0.99 |  |"), "{text}");
    }

    #[test]
    fn who_is_wrong_or_noisy_is_marked_and_ratios_are_made_within_a_round() {
        let text = markdown(&results(), &[]);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
        assert!(
            line("| a |").contains("| 1.00 (1.00 to 1.00) |") && line("| a |").ends_with("| right |"),
            "{text}"
        );
        assert!(line("| b |").contains("| 1.00 (0.50 to 1.50) |"), "{text}");
        assert!(line("| a |").contains("| 0.250 |"), "40001 per commit: {text}");
        assert!(line("| b |").contains("| 6650, 1.33 (0.67 to 2.00) |"), "us per commit: {text}");
        assert!(line("| b |").ends_with("| **WRONG** (1) |"), "{text}");
        assert!(text.contains("- b: too noisy") && !text.contains("- a: too noisy"), "{text}");
        assert!(text.contains("- b: 2 of 9 probing reads were stale"), "{text}");
        assert!(!crate::run::is_ours_wrong(&results()), "only ours make the command fail");
        let mut ours = results();
        ours.runs[3].family = "onecopy".into();
        assert!(crate::run::is_ours_wrong(&ours));
    }
}
