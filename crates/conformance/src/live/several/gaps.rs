//! How long clients of the nodes that were not struck waited for a transaction that went through, by kind of strike.
//!
//! ```text
//! strike ---- the last commit ------------ the next commit ---- next strike
//!                              the gap
//! ```
//!
//! Two gaps are taken of each strike: the longest in which no such client got a transaction through, and for each such client the longest of
//! its own. A client that was connected to the struck node meanwhile is left out. Of these, the third part of the table tells how long
//! each waited for its first transaction at another node, where their node was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use testbed::nodes::name;

use super::super::tally::{Attempt, Ending};
use super::{Strike, StrikeKind};

/// How many lines explain the longest gap.
const LINES_MAX: usize = 40;
/// Lines so long before a gap belong to it, in microseconds.
const BEFORE_US: u64 = 300_000;

/// Times without a commit, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Gap {
    length_us: u64,
    from_us: u64,
}

/// The gaps of one strike.
#[derive(Debug)]
struct Gaps {
    /// No client at all.
    service: Gap,
    /// Of each client.
    clients: Vec<Gap>,
    /// Until each client of a lost node has got a transaction through elsewhere.
    moved_us: Vec<u64>,
}

/// The waits after strikes of one kind, in microseconds.
#[derive(Default)]
struct Waits {
    service: Vec<u64>,
    clients: Vec<u64>,
    moved: Vec<u64>,
}

/// The table of gaps by kind of strike.
pub(in crate::live) fn table(attempts: &[Attempt], strikes: &[Strike]) -> String {
    let mut kinds: BTreeMap<StrikeKind, Waits> = BTreeMap::new();
    for (strike, gaps) in strikes.iter().zip(all(attempts, strikes)) {
        let waits = kinds.entry(strike.kind).or_default();
        waits.service.push(gaps.service.length_us);
        waits.clients.extend(gaps.clients.iter().map(|gap| gap.length_us));
        waits.moved.extend(gaps.moved_us);
    }
    let titles = format!("|{:>9}{:>9}{:>9}", "median", "95 %", "longest").repeat(3);
    let mut text = format!(
        "{:<28}{:>6} |{:^27}|{:^27}|{:^27}\n{:<28}{:>6} {titles}\n",
        "gap, ms",
        "",
        "of all living clients",
        "of one living client",
        "of a client of the lost node",
        "strike",
        "times",
    );
    for (kind, Waits { mut service, mut clients, mut moved }) in kinds {
        let _ = write!(text, "{kind:<28}{:>6} ", service.len());
        for gaps in [&mut service, &mut clients, &mut moved] {
            if gaps.is_empty() {
                let _ = write!(text, "|{:>27}", "");
                continue;
            }
            gaps.sort_unstable();
            let [median, most, longest] = [50, 95, 100].map(|percent| percentile(gaps, percent) / 1_000);
            let _ = write!(text, "|{median:>9}{most:>9}{longest:>9}");
        }
        text.push('\n');
    }
    text
}

/// What the nodes said around the longest gap of all. `day_us`: the time of the day when the clock of the course was 0.
pub(in crate::live) fn explain(
    attempts: &[Attempt],
    strikes: &[Strike],
    said: &[(usize, String)],
    day_us: u64,
) -> String {
    let gaps = strikes.iter().zip(all(attempts, strikes)).map(|(strike, gaps)| (gaps.service, strike));
    let Some((gap, strike)) = gaps.max_by_key(|(gap, _)| *gap) else { return String::new() };
    let node = strike.node.map(|node| format!(" (node {})", name(node))).unwrap_or_default();
    let mut text = format!(
        "longest gap: {} ms, from {} ms after `{}`{node}\n",
        gap.length_us / 1_000,
        gap.from_us.saturating_sub(strike.at_us) / 1_000,
        strike.kind
    );
    let span = (strike.at_us.min(gap.from_us.saturating_sub(BEFORE_US)), gap.from_us + gap.length_us);
    let mut lines: Vec<(u64, usize, &str)> = said
        .iter()
        .filter_map(|(node, line)| {
            let at_us = time_of_day(line)?.checked_sub(day_us)?;
            (span.0..=span.1).contains(&at_us).then_some((at_us, *node, line.get(28..)?))
        })
        .collect();
    lines.sort_by_key(|(at_us, ..)| *at_us);
    for (at_us, node, line) in lines.iter().take(LINES_MAX) {
        let after = at_us.saturating_sub(strike.at_us) / 1_000;
        let _ = writeln!(text, "  {after:>6} ms  {}  {}", name(*node), line.trim_start());
    }
    text
}

/// The time of the day in microseconds of a line like `2026-11-29T07:00:23.123456Z  WARN ..`.
fn time_of_day(line: &str) -> Option<u64> {
    let (_, time) = line.split_once('T')?;
    let number = |range: std::ops::Range<usize>| time.get(range)?.parse::<u64>().ok();
    let (hours, minutes, seconds, micros) = (number(0..2)?, number(3..5)?, number(6..8)?, number(9..15)?);
    Some(((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros)
}

fn all(attempts: &[Attempt], strikes: &[Strike]) -> Vec<Gaps> {
    let until = |index: usize| strikes.get(index + 1).map_or(u64::MAX, |next: &Strike| next.at_us);
    strikes.iter().enumerate().map(|(index, strike)| of(attempts, strike, until(index))).collect()
}

fn of(attempts: &[Attempt], strike: &Strike, until_us: u64) -> Gaps {
    let meets = |attempt: &&Attempt| attempt.end_us >= strike.at_us && attempt.begin_us < until_us;
    let struck: BTreeSet<u32> = attempts
        .iter()
        .filter(meets)
        .filter(|attempt| Some(attempt.node) == strike.node)
        .map(|attempt| attempt.client)
        .collect();
    let mut clients: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for attempt in attempts.iter().filter(|attempt| !struck.contains(&attempt.client)) {
        let ends = clients.entry(attempt.client).or_default();
        if attempt.ending == Ending::Done {
            ends.push(attempt.end_us);
        }
    }
    // A client that got nothing through any more waited until its last attempt.
    let last =
        |client: u32| attempts.iter().filter(|attempt| attempt.client == client).map(|a| a.end_us).max();
    for (client, ends) in &mut clients {
        ends.extend(last(*client));
        ends.sort_unstable();
    }
    let mut service: Vec<u64> = clients.values().flatten().copied().collect();
    service.sort_unstable();
    let longest = |ends: &Vec<u64>| longest(ends, strike.at_us, until_us);
    let moved_us = if strike.kind.loses_node() { moved(attempts, strike, &struck) } else { Vec::new() };
    Gaps { service: longest(&service), clients: clients.values().map(longest).collect(), moved_us }
}

/// How long each of these clients of a lost node waited for its first transaction at another one, if it went there.
fn moved(attempts: &[Attempt], strike: &Strike, struck: &BTreeSet<u32>) -> Vec<u64> {
    let first = |client: &u32| {
        let elsewhere = attempts.iter().filter(|attempt| {
            attempt.client == *client
                && attempt.ending == Ending::Done
                && Some(attempt.node) != strike.node
                && (strike.at_us..strike.back_us).contains(&attempt.end_us)
        });
        elsewhere.map(|attempt| attempt.end_us - strike.at_us).min()
    };
    struck.iter().filter_map(first).collect()
}

/// The longest part of a span without a commit.
fn longest(ends: &[u64], from_us: u64, until_us: u64) -> Gap {
    let pairs = ends.windows(2).filter(|pair| pair[1] > from_us && pair[0] < until_us);
    let gap = |pair: &[u64]| {
        let begin = pair[0].max(from_us);
        Gap { length_us: pair[1].min(until_us).saturating_sub(begin), from_us: begin }
    };
    pairs.map(gap).max().unwrap_or_default()
}

/// The smallest that so many percent do not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(client: u32, node: usize, end_us: u64) -> Attempt {
        Attempt { client, node, begin_us: end_us - 10, end_us, ending: Ending::Done }
    }

    fn strikes() -> Vec<Strike> {
        let strike = |at_us| Strike { kind: StrikeKind::Leader, node: Some(0), at_us, back_us: at_us + 1 };
        vec![strike(1_000_000), strike(5_000_000)]
    }

    #[test]
    fn a_gap_counts_clients_of_other_nodes_from_the_strike_on() {
        let mut attempts = vec![done(1, 1, 900_000), done(1, 1, 1_350_000), done(1, 1, 1_500_000)];
        attempts.extend([done(2, 2, 950_000), done(2, 2, 1_200_000), done(2, 2, 1_500_000)]);
        // Its node is killed; that it waits counts nowhere.
        attempts.extend([done(3, 0, 1_000_100), done(3, 1, 4_900_000)]);
        let gaps = of(&attempts, &strikes()[0], 5_000_000);
        assert_eq!(gaps.service, Gap { length_us: 200_000, from_us: 1_000_000 });
        assert_eq!(gaps.clients.iter().map(|gap| gap.length_us).collect::<Vec<_>>(), [350_000, 300_000]);

        assert_eq!(gaps.moved_us, [] as [u64; 0], "it came to another node after its own was back");
        attempts.push(done(3, 1, 1_300_000));
        let strike = Strike { back_us: 4_000_000, ..strikes()[0] };
        assert_eq!(of(&attempts, &strike, 5_000_000).moved_us, [300_000]);

        // An error is no commit, and the last attempt ends the last gap.
        attempts.push(Attempt { ending: Ending::Again, ..done(1, 1, 3_500_000) });
        assert_eq!(of(&attempts, &strikes()[0], 5_000_000).service.length_us, 2_000_000);
        assert_eq!(of(&attempts, &strikes()[0], 2_000_000).service.length_us, 500_000, "the next strike");
    }

    #[test]
    fn the_table_has_a_row_for_each_kind_and_lines_explain_the_longest() {
        let ends = [900_000, 1_300_000, 4_900_000, 5_700_000];
        let attempts: Vec<Attempt> = ends.iter().map(|end| done(1, 1, *end)).collect();
        let strikes = strikes();
        let table = table(&attempts, &strikes);
        let row = table.lines().last().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(row, "leader killed 2 | 700 3600 3600| 700 3600 3600|", "{table}");

        let line = |time: &str, text: &str| (2, format!("2026-11-29T{time}Z  WARN {text}"));
        let said = [line("07:00:01.400000", "this node has the lead"), line("07:00:09.000000", "later")];
        let text = explain(&attempts, &strikes, &said, 7 * 3_600_000_000);
        assert!(
            text.starts_with("longest gap: 3600 ms, from 300 ms after `leader killed` (node a)"),
            "{text}"
        );
        assert!(text.contains("400 ms  c  WARN this node has the lead") && !text.contains("later"), "{text}");
    }

    #[test]
    fn percentiles_are_of_what_was_measured() {
        assert_eq!([50, 95, 100].map(|percent| percentile(&[1, 2, 3, 4], percent)), [2, 4, 4]);
        assert_eq!(percentile(&[], 50), 0);
    }
}
