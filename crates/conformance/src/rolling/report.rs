//! What `rolling` tells: a row for each restart, and what is wrong.
//!
//! ```text
//!                      pauses of its clients, ms    of the others, ms        57P01
//! node  led  s              50%    95%  longest      50%   95%  longest
//! a     yes  2.1            901    950      962      310   330      340      1 within 812 ms
//! ```

use std::fmt::Write as _;
use std::time::Duration;

use testbed::fault::Fault;
use testbed::nodes::name;

use super::clients::{End, Told};

/// SQLSTATE of a session that cannot be passed on.
const ENDED: &str = "57P01";
/// A driver that reads the end of the connection before it sends the next statement says so.
const CLOSED: &str = "connection closed";
/// An end counts for the restart that began at most so long before.
const AFTER: Duration = Duration::from_secs(20);

/// A restart.
#[derive(Clone, Copy, Debug)]
pub(super) struct Restart {
    pub(super) node: usize,
    /// Whether it led before.
    pub(super) led: bool,
    pub(super) at: Duration,
    /// When all nodes saw it serve again.
    pub(super) back: Duration,
}

/// What has happened.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) restarts: Vec<Restart>,
    pub(super) clients: Vec<Told>,
    /// Ends of sessions with a temporary table.
    pub(super) ended: Vec<End>,
    pub(super) wrong: Vec<String>,
}

/// The report, or what is wrong.
pub(super) fn conclude(work: &Work) -> Result<String, Fault> {
    let mut wrong = work.wrong.clone();
    let errors = work.clients.iter().filter_map(|told| {
        let error = told.error.as_ref()?;
        Some(format!("client {} of node {}: {error}", told.number, name(told.node)))
    });
    wrong.extend(errors);
    for end in &work.ended {
        if restart_before(&work.restarts, end).is_none() {
            wrong.push(format!(
                "a temporary table is lost at {:.1} s without a restart of its node {}",
                end.at.as_secs_f64(),
                name(end.node)
            ));
        }
        if !(end.said.contains(ENDED) || end.said.contains(CLOSED)) {
            wrong.push(format!("a session with a temporary table has got {}", end.said));
        }
    }
    if work.restarts.is_empty() {
        wrong.push("no node was restarted".to_owned());
    }
    let table = table(work);
    if wrong.is_empty() { Ok(table) } else { Err(Fault::Wrong(format!("{table}\n{}", wrong.join("\n")))) }
}

fn table(work: &Work) -> String {
    let transactions: usize = work.clients.iter().map(|told| told.ends.len()).sum();
    let errors = work.clients.iter().filter(|told| told.error.is_some()).count();
    let mut text = format!(
        "{} clients, {transactions} transactions, {} restarts, {errors} errors\n\
         pauses in ms             of its clients        |      of the others\n\
         node  led     s     50%     95%  longest |     50%     95%  longest  temporary tables\n",
        work.clients.len(),
        work.restarts.len(),
    );
    for (place, restart) in work.restarts.iter().enumerate() {
        let until = work.restarts.get(place + 1).map_or(Duration::MAX, |next| next.at);
        let pauses = |is_own: bool| {
            let of = work.clients.iter().filter(|told| (told.node == restart.node) == is_own);
            let mut all: Vec<u128> =
                of.map(|told| longest(&told.ends, restart.at, until).as_millis()).collect();
            all.sort_unstable();
            [50, 95, 100].map(|percent| percentile(&all, percent))
        };
        let ([own, own_95, own_max], [others, others_95, others_max]) = (pauses(true), pauses(false));
        let ends = work.ended.iter().filter(|end| restart_before(&work.restarts, end) == Some(place));
        let after: Vec<u128> = ends.map(|end| (end.at.saturating_sub(restart.at)).as_millis()).collect();
        let lost = match after.iter().max() {
            None => "none is lost".to_owned(),
            Some(longest) => format!("{} lost within {longest} ms", after.len()),
        };
        let _ = writeln!(
            text,
            "{:4}  {:3}  {:4.1} {own:7} {own_95:7} {own_max:8} | {others:7} {others_95:7} {others_max:8}  {lost}",
            name(restart.node),
            if restart.led { "yes" } else { "no" },
            (restart.back.saturating_sub(restart.at)).as_secs_f64(),
        );
    }
    text
}

/// The place of the restart that has ended a session: one of its own node.
fn restart_before(restarts: &[Restart], end: &End) -> Option<usize> {
    let before = restarts.iter().rposition(|restart| restart.at <= end.at)?;
    let restart = restarts[before];
    let is_own = restart.node == end.node;
    (is_own && end.at.saturating_sub(restart.at) <= AFTER).then_some(before)
}

/// The longest time without the end of a transaction, in a span.
fn longest(ends: &[Duration], from: Duration, until: Duration) -> Duration {
    let pairs = ends.windows(2).filter(|pair| pair[1] > from && pair[0] < until);
    pairs.map(|pair| pair[1].saturating_sub(pair[0].max(from))).max().unwrap_or_default()
}

/// The smallest that so many percent do not exceed.
fn percentile(sorted: &[u128], percent: usize) -> u128 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn work() -> Work {
        let told = |number, node, ends: &[u64]| Told {
            number,
            node,
            value: 0,
            ends: ends.iter().copied().map(ms).collect(),
            error: None,
        };
        Work {
            restarts: vec![Restart { node: 0, led: true, at: ms(1_000), back: ms(3_000) }],
            clients: vec![told(0, 0, &[900, 1_800, 1_900]), told(1, 1, &[900, 1_200, 1_900])],
            ended: vec![End { node: 0, at: ms(1_500), said: "57P01 terminating".to_owned() }],
            wrong: Vec::new(),
        }
    }

    #[test]
    fn a_pause_is_counted_from_the_restart_on() {
        let report = conclude(&work()).unwrap();
        assert!(report.starts_with("2 clients, 6 transactions, 1 restarts, 0 errors"), "{report}");
        let row = report.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row, "a yes 2.0 800 800 800 | 700 700 700 1 lost within 500 ms", "{report}");
    }

    #[test]
    fn an_error_of_a_client_is_wrong_and_so_is_an_end_for_another_reason() {
        let wrong = |work: &Work| conclude(work).unwrap_err().to_string();
        let mut failed = work();
        failed.clients[1].error = Some("40001".to_owned());
        assert!(wrong(&failed).contains("client 1 of node b: 40001"));
        let mut other = work();
        other.ended[0].said = "40001 lost".to_owned();
        assert!(wrong(&other).contains("has got 40001 lost"));
        let mut elsewhere = work();
        elsewhere.ended[0].node = 1;
        assert!(wrong(&elsewhere).contains("without a restart of its node b"));
        let none = Work { restarts: Vec::new(), ..work() };
        assert!(wrong(&none).contains("no node was restarted"));
    }
}
