//! How often a clean history shows what its promise allows.
//!
//! A test of a weak promise means something only if the weakness occurs. So the judges count what one PostgreSQL at
//! SERIALIZABLE would never show.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::graph::{Edge, Graph, Kind};
use super::promise::Promise;

/// How often a history shows what is allowed; each number counts snapshots.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    /// Transactions above READ COMMITTED that miss a write of a transaction that misses one of theirs. A pair counts twice.
    pub write_skews: usize,
    /// Snapshots that no single order of commits explains together with the others.
    pub long_forks: usize,
    /// Snapshots that miss a commit which had been acknowledged before they were asked for.
    pub stale_reads: usize,
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { write_skews, long_forks, stale_reads } = self;
        write!(f, "{write_skews} write skews, {long_forks} long forks, {stale_reads} stale reads")
    }
}

impl Allowed {
    /// Adds the counts of another history.
    pub fn add(&mut self, other: Self) {
        self.write_skews += other.write_skews;
        self.long_forks += other.long_forks;
        self.stale_reads += other.stale_reads;
    }

    /// Counts in the graph of commits and snapshots.
    pub(super) fn count(graph: &Graph, promise: Promise) -> Self {
        Self {
            write_skews: write_skews(graph),
            long_forks: if let Promise::Parallel(_) = promise { long_forks(graph) } else { 0 },
            stale_reads: stale_reads(graph),
        }
    }
}

fn write_skews(graph: &Graph) -> usize {
    let own = |snapshot| graph.after(snapshot, |why| why == Edge::Within).next();
    let commits: BTreeMap<usize, usize> =
        graph.of_kind(|kind| kind == Kind::Snapshot).filter_map(|point| Some((point, own(point)?))).collect();
    let missed = commits
        .iter()
        .flat_map(|(snapshot, commit)| graph.after(*snapshot, Edge::is_miss).map(|missed| (*commit, missed)));
    let missed: BTreeSet<(usize, usize)> = missed.collect();
    let mutual = missed.iter().filter(|(one, other)| missed.contains(&(*other, *one)));
    mutual.map(|(one, _)| one).collect::<BTreeSet<_>>().len()
}

fn long_forks(graph: &Graph) -> usize {
    let on_cycles = graph.on_cycles();
    graph.of_kind(Kind::is_snapshot).filter(|point| on_cycles[*point]).count()
}

fn stale_reads(graph: &Graph) -> usize {
    let is_stale = |point: &usize| {
        graph.after(*point, Edge::is_miss).any(|missed| graph.has_ended_before(missed, *point))
    };
    graph.of_kind(Kind::is_snapshot).filter(is_stale).count()
}
