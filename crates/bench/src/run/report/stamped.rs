//! Preventive replication in a report: a table for each section of a plan, then its claims.

use std::fmt::Write as _;

use super::{STRANGERS, judged};
use crate::run::delay::Delays;
use crate::run::origin::Lost;
use crate::run::result::Stamped;
use crate::run::scaling::{Costs, Scaled};
use crate::run::stamps::Counts;
use crate::run::steady::Point;

/// All of them.
pub(super) fn told(text: &mut String, stamped: &Stamped) {
    stamped.delays.iter().for_each(|delays| delayed(text, delays));
    stamped.scaled.iter().for_each(|scaled| sized(text, scaled));
    stamped.costs.iter().for_each(|costs| paid(text, costs));
    stamped.lost.iter().for_each(|lost| killed(text, lost));
}

fn delayed(text: &mut String, delays: &Delays) {
    let _ = writeln!(
        text,
        "## Delay of single calls, start {}\n\n{}, one client, Max + epsilon {} ms.\n\n\
         | call ms | calls | failed | p50 ms | longest ms | delay ms | by the law |\n|---|---|---|---|---|---|---|",
        delays.start, delays.contestant, delays.window_ms
    );
    for point in &delays.points {
        let (p50, max) = point.response_ms.map_or((f64::NAN, f64::NAN), |times| (times.p50, times.max));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {p50:.1} | {max:.1} | {:.1} | {:.0} |",
            point.call_ms,
            point.calls,
            point.failed,
            point.delay_ms(),
            point.expected_ms
        );
    }
    judged(text, &delays.verdicts, &delays.wrong);
}

fn sized(text: &mut String, scaled: &Scaled) {
    let messages = scaled.message_us.map_or_else(
        || "messages take no time".to_owned(),
        |us| format!("a message takes {us} us on average (simulated)"),
    );
    let _ = writeln!(
        text,
        "\n## {}\n\nonecopy {}, {} TPC-C calls in a second at random moments; {messages}.\n\n\
         | servers | warehouses | readers | updates a second | p50 ms | p90 ms | reads a second | reads p50 ms | failed | \
         40001 | unsent | servers us per update | servers' cores | middleware's | clients' |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
        scaled.name, scaled.arguments, scaled.rate
    );
    scaled.points.iter().for_each(|one| point(text, one));
    let _ = writeln!(
        text,
        "\nTransactions with their messages, from the beginning of the warm-up. The paper needs n messages for a transaction \
         whose replicas all hold its tables, and 2n more otherwise.\n\n\
         | servers | warehouses | readers | transactions | messages each | paper's n, 3n | unordered | late | undone | \
         performed elsewhere | of those begun |\n|---|---|---|---|---|---|---|---|---|---|---|"
    );
    scaled.points.iter().for_each(|point| counted(text, point, &point.counts));
    let wrong: Vec<String> = scaled.points.iter().flat_map(|point| point.wrong.clone()).collect();
    judged(text, &scaled.verdicts, &wrong);
    scaled.points.iter().for_each(|point| remark(text, point));
}

fn point(text: &mut String, point: &Point) {
    let (p50, p90) = point.update_ms.map_or((f64::NAN, f64::NAN), |times| (times.p50, times.p90));
    let reads = point.read_ms.map_or_else(String::new, |times| format!("{:.1}", times.p50));
    let most = point.servers_cores.iter().copied().fold(0.0, f64::max);
    let least = point.servers_cores.iter().copied().fold(f64::INFINITY, f64::min);
    let _ = writeln!(
        text,
        "| {} | {} | {} | {:.1} | {p50:.1} | {p90:.1} | {:.1} | {reads} | {} | {} | {} | {:.0} | {least:.3} to {most:.3} | \
         {:.2} | {:.2} |",
        point.servers,
        point.warehouses,
        point.readers,
        point.updates,
        point.reads,
        point.failed,
        point.conflicts,
        point.unsent,
        point.servers_us_per_update,
        point.middleware_cores,
        point.driver_cores,
    );
}

fn counted(text: &mut String, point: &Point, counts: &Counts) {
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    let _ = writeln!(
        text,
        "| {} | {} | {} | {} | {:.2} | {}, {} | {} | {} | {} | {} | {} |",
        point.servers,
        point.warehouses,
        point.readers,
        counts.records,
        counts.messages_each(),
        point.servers,
        3 * point.servers,
        percent(counts.of_messages(counts.unordered)),
        percent(counts.of_messages(counts.late)),
        percent(counts.undone_share()),
        counts.performed,
        percent(counts.performed_share()),
    );
}

/// What makes a run doubtful.
fn remark(text: &mut String, point: &Point) {
    let name = format!("{} servers, {} warehouses", point.servers, point.warehouses);
    for beyond in &point.beyond {
        let _ = writeln!(text, "- {name}: **does not count**, {beyond}");
    }
    if point.strangers > STRANGERS {
        let share = point.strangers * 100.0;
        let _ = writeln!(text, "- {name}: strangers used {share:.0} % of the machine");
    }
}

fn paid(text: &mut String, costs: &Costs) {
    let Some(first) = costs.ways.first() else { return };
    let _ = writeln!(
        text,
        "\n## {}\n\n{} servers, {} calls in a second. Servers' time is that of all servers.\n\n\
         | protocol | servers us per update | : {} | middleware's cores | updates a second | p50 ms | performed elsewhere, \
         of those begun |\n|---|---|---|---|---|---|---|",
        costs.name, first.point.servers, costs.rate, first.name
    );
    for way in &costs.ways {
        let point = &way.point;
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.3} | {:.1} | {:.1} | {}, {:.0} % |",
            way.name,
            point.servers_us_per_update,
            point.servers_us_per_update / first.point.servers_us_per_update,
            point.middleware_cores,
            point.updates,
            point.update_ms.map_or(f64::NAN, |times| times.p50),
            point.counts.performed,
            point.counts.performed_share() * 100.0
        );
    }
    let wrong: Vec<String> = costs.ways.iter().flat_map(|way| way.point.wrong.clone()).collect();
    judged(text, &[], &wrong);
    costs.ways.iter().for_each(|way| remark(text, &way.point));
}

fn killed(text: &mut String, lost: &Lost) {
    let _ = writeln!(
        text,
        "\n## The home of a call is killed\n\n{}, a call of {} ms.\n\n\
         | home | killed after ms | reply after that, ms | error |\n|---|---|---|---|",
        lost.contestant, lost.call_ms
    );
    for kill in &lost.kills {
        let error = kill.error.as_deref().unwrap_or_default();
        let _ = writeln!(text, "| {} | {:.0} | {:.0} | {error} |", kill.home, kill.killed_ms, kill.reply_ms);
    }
    judged(text, &lost.verdicts, &lost.wrong);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::result::Verdict;
    use crate::run::scaling::Paid;
    use crate::run::{delay, origin, scaling};

    #[test]
    fn each_section_has_its_table_and_its_verdicts() {
        let verdict = |is_met| Verdict { claim: "c".into(), measured: "1".into(), is_met };
        let point = || Point { wrong: vec!["verify says: different".into()], ..scaling::tests::point() };
        let cheap = Point { servers_us_per_update: 3_500.0, ..point() };
        let way = |name: &str, point| Paid { name: name.to_owned(), point };
        let stamped = Stamped {
            delays: vec![Delays {
                contestant: "onecopy x8".into(),
                start: "on-arrival",
                window_ms: 200,
                points: vec![delay::tests::delayed(201.0)],
                verdicts: vec![verdict(true)],
                wrong: Vec::new(),
            }],
            scaled: vec![Scaled {
                name: "FR".into(),
                arguments: String::new(),
                rate: 10.0,
                message_us: Some(1_200),
                points: vec![Point { strangers: 0.4, ..point() }],
                verdicts: vec![verdict(false)],
            }],
            costs: vec![Costs {
                name: "cost".into(),
                rate: 10.0,
                ways: vec![way("a", point()), way("b", cheap)],
            }],
            lost: vec![Lost {
                contestant: "onecopy x3".into(),
                call_ms: 1_500,
                kills: vec![origin::tests::lost(None)],
                verdicts: Vec::new(),
                wrong: Vec::new(),
            }],
        };
        assert!(stamped.is_wrong());
        let mut text = String::new();
        told(&mut text, &stamped);
        for part in [
            "| 50 | 4 | 0 | 201.0 | 201.0 | 151.0 | 150 |",
            "| c | 1 | met |",
            "| c | 1 | **NOT met** |",
            "- **WRONG**: verify says: different",
            "takes 1200 us on average (simulated)",
            "strangers used 40 % of the machine",
            "| b | 3500 | 0.50 |",
            "| replica-2 | 700 | 1700 |  |",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
