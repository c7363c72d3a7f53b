//! The same load on more servers, and the same load under other protocols: figures 13 to 15 of preventive replication.
//!
//! For example ten TPC-C calls a second on 1, 2, 4 and 8 servers, with clients in one warehouse, in five, in ten. The tables
//! always have the largest number of warehouses, and clients use fewer of them: what changes is how often they conflict.
//! Goals: updates are not slower on many servers than on one; with readers, twice the servers answer almost twice the reads.

use std::collections::BTreeMap;

use serde::Serialize;

use super::result::Verdict;
use super::steady::Point;

/// The response time with the most servers, as a multiple of that with one.
const SLOWER_MAX: f64 = 1.25;
/// Reads with twice as many servers, as a multiple.
const DOUBLED_MIN: f64 = 1.8;
/// By how much reads may differ between numbers of warehouses.
const WAREHOUSES_MAX: f64 = 0.10;

/// The results of a load on clusters of several sizes.
#[derive(Debug, Serialize)]
pub(crate) struct Scaled {
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// Interactions in a second.
    pub(crate) rate: f64,
    /// The mean delay of messages, in microseconds.
    pub(crate) message_us: Option<u32>,
    pub(crate) points: Vec<Point>,
    pub(crate) verdicts: Vec<Verdict>,
}

/// The results of a load under several protocols.
#[derive(Debug, Serialize)]
pub(crate) struct Costs {
    pub(crate) name: String,
    /// Interactions in a second.
    pub(crate) rate: f64,
    pub(crate) ways: Vec<Paid>,
}

/// One of these protocols.
#[derive(Debug, Serialize)]
pub(crate) struct Paid {
    pub(crate) name: String,
    pub(crate) point: Point,
}

/// Whether the goals are met, as far as there are points for them.
pub(super) fn verdicts(points: &[Point]) -> Vec<Verdict> {
    let mut verdicts = response_times(points);
    verdicts.extend(doublings(points));
    verdicts.extend(alike(points));
    verdicts
}

/// Updates without readers: the most servers beside one.
fn response_times(points: &[Point]) -> Vec<Verdict> {
    let mut by_warehouses: BTreeMap<i32, Vec<&Point>> = BTreeMap::new();
    for point in points.iter().filter(|point| point.readers == 0) {
        by_warehouses.entry(point.warehouses).or_default().push(point);
    }
    let verdict = |(warehouses, points): (i32, Vec<&Point>)| {
        let first = points.iter().find(|point| point.servers == 1)?;
        let last = points.iter().max_by_key(|point| point.servers).filter(|last| last.servers > 1)?;
        let claim = format!(
            "updates, {warehouses} warehouses: p50 with {} servers at most {SLOWER_MAX} of that with one",
            last.servers
        );
        let median = |point: &Point| point.update_ms.map_or(f64::NAN, |times| times.p50);
        let ratio = median(last) / median(first);
        Some(Verdict { claim, measured: format!("{ratio:.2}"), is_met: ratio <= SLOWER_MAX })
    };
    by_warehouses.into_iter().filter_map(verdict).collect()
}

/// Reads: each number of servers beside half of it.
fn doublings(points: &[Point]) -> Vec<Verdict> {
    let reading = || points.iter().filter(|point| point.readers > 0);
    let mut verdicts = Vec::new();
    for few in reading() {
        let twice = |many: &&Point| many.servers == few.servers * 2 && many.warehouses == few.warehouses;
        let Some(many) = reading().find(twice) else { continue };
        let ratio = many.reads / few.reads;
        verdicts.push(Verdict {
            claim: format!(
                "reads, {} warehouses: {} servers do at least {DOUBLED_MIN} times as many as {}",
                few.warehouses, many.servers, few.servers
            ),
            measured: format!("{ratio:.2}"),
            is_met: ratio >= DOUBLED_MIN,
        });
    }
    verdicts
}

/// Reads: whatever the number of warehouses.
fn alike(points: &[Point]) -> Vec<Verdict> {
    let mut by_servers: BTreeMap<usize, Vec<&Point>> = BTreeMap::new();
    for point in points.iter().filter(|point| point.readers > 0) {
        by_servers.entry(point.servers).or_default().push(point);
    }
    let verdict = |(servers, points): (usize, Vec<&Point>)| {
        let fewest = points.iter().min_by_key(|point| point.warehouses)?;
        let most = points.iter().max_by_key(|point| point.warehouses)?;
        if fewest.warehouses == most.warehouses {
            return None;
        }
        let off = most.reads / fewest.reads - 1.0;
        Some(Verdict {
            claim: format!(
                "reads, {servers} servers: at most 10 % between {} and {} warehouses",
                fewest.warehouses, most.warehouses
            ),
            measured: format!("{:+.1} %", off * 100.0),
            is_met: off.abs() <= WAREHOUSES_MAX,
        })
    };
    by_servers.into_iter().filter_map(verdict).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::result::Quantiles;
    use crate::run::stamps::Counts;

    /// A run of two servers without readers.
    pub(in crate::run) fn point() -> Point {
        Point {
            servers: 2,
            warehouses: 1,
            readers: 0,
            updates: 8.8,
            update_ms: Some(Quantiles { p50: 200.0, p90: 210.0, p99: 220.0, max: 230.0 }),
            reads: 0.0,
            read_ms: None,
            failed: 0,
            unsent: 0,
            conflicts: 0,
            servers_cores: vec![0.03, 0.03],
            middleware_cores: 0.01,
            driver_cores: 0.01,
            servers_us_per_update: 7_000.0,
            strangers: 0.0,
            counts: Counts::default(),
            beyond: Vec::new(),
            wrong: Vec::new(),
        }
    }

    fn updating(servers: usize, p50: f64) -> Point {
        let times = Quantiles { p50, p90: p50, p99: p50, max: p50 };
        Point { servers, update_ms: Some(times), ..point() }
    }

    fn reading(servers: usize, warehouses: i32, reads: f64) -> Point {
        Point { servers, warehouses, readers: 4 * servers, reads, ..point() }
    }

    fn met(points: &[Point]) -> Vec<bool> {
        verdicts(points).iter().map(|verdict| verdict.is_met).collect()
    }

    #[test]
    fn slow_updates_on_many_servers_miss_the_goal() {
        assert_eq!(met(&[updating(1, 200.0), updating(4, 600.0), updating(8, 249.0)]), [true]);
        assert_eq!(met(&[updating(1, 200.0), updating(8, 251.0)]), [false]);
        let none = Point { update_ms: None, ..updating(8, 1.0) };
        assert_eq!(met(&[updating(1, 200.0), none]), [false], "no update at all");
        assert!(
            met(&[updating(4, 200.0), updating(8, 900.0)]).is_empty(),
            "there is nothing to compare with"
        );
    }

    #[test]
    fn reads_that_do_not_double_miss_the_goal() {
        assert_eq!(met(&[reading(2, 1, 100.0), reading(4, 1, 181.0), reading(8, 1, 320.0)]), [true, false]);
    }

    #[test]
    fn reads_that_depend_on_the_warehouses_miss_the_goal() {
        assert_eq!(met(&[reading(2, 1, 100.0), reading(2, 10, 109.0)]), [true]);
        assert_eq!(met(&[reading(2, 1, 100.0), reading(2, 10, 89.0)]), [false]);
    }
}
