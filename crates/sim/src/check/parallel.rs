//! Parallel Snapshot Isolation: updates may become visible in different orders at different replicas, causes before effects.
//!
//! Sovran, Power, Aguilera and Li ("Transactional storage for geo-replicated systems", SOSP 2011) define it by an abstract
//! machine; Cerone and Gotsman ("Analysing snapshot isolation", PODC 2016, theorem 21) by a graph: no cycle has fewer than
//! two edges rw. In the graph of `snapshots` without real time this is:
//!
//! 1. the edges ww, wr, "within a transaction" and "within a session" (if asked for) form no cycle;
//! 2. if a snapshot misses a commit (rw, or missed by a predicate), no such edges lead from this commit to the snapshot.
//!
//! Forbidden are dirty writes, circular flow, lost updates and read skew. Allowed, and counted by `allowed`, are write skew,
//! long forks and stale reads. An example of a long fork: T1 writes x, T2 writes y; one reader has x without y, another y without
//! x. No single order of commits explains both, but two replicas that applied T1 and T2 in different orders do.
//!
//! A transaction above READ COMMITTED has two points, what it saw and what it committed, and what it overwrote was in its
//! snapshot. At READ COMMITTED each statement that reads is a snapshot by itself, which the commit of its transaction
//! follows: with a commit, a snapshot must have all that the statements before that commit saw. Two statements of one
//! transaction may see less and less, unless sessions keep their order; lost updates are judged only by `registers`, for rows
//! under a lock.
//!
//! Not judged: row locks that exclude other transactions without a write (`snapshots` does), and SERIALIZABLE, which counts as
//! REPEATABLE READ.

use super::graph::{Edge, Graph, Path};
use super::{Anomaly, Finding};

/// Looks for a cycle with fewer than two misses.
pub(super) fn check(mut graph: Graph) -> Option<Finding> {
    let misses = graph.take_misses();
    let cycle = graph.cycle_without_misses().or_else(|| shortest_with_one(&graph, &misses))?;
    Some(Finding { anomaly: name(&cycle), text: graph.story(&cycle) })
}

/// The shortest cycle with one of the misses, in a graph that has no cycle without them.
fn shortest_with_one(graph: &Graph, misses: &[(usize, usize, Edge)]) -> Option<Path> {
    // Only a commit that comes earlier in an order of all points can lead to the snapshot, and only by points between the two.
    let places = graph.places();
    let suspects = misses.iter().filter(|(snapshot, commit, _)| places[*commit] < places[*snapshot]);
    let cycles = suspects.filter_map(|(snapshot, commit, why)| {
        let back = graph.path(*commit, *snapshot, |point| places[point] <= places[*snapshot])?;
        Some([vec![(*snapshot, *why)], back].concat())
    });
    cycles.min_by_key(Vec::len)
}

fn name(cycle: &Path) -> Anomaly {
    let has = |edge: Edge| cycle.iter().any(|(_, why)| *why == edge);
    let is_missed = cycle.iter().any(|(_, why)| why.is_miss());
    match (is_missed, has(Edge::Wr)) {
        (false, false) => Anomaly::DirtyWrite,
        (false, true) => Anomaly::CircularFlow,
        (true, _) if has(Edge::Session) => Anomaly::StaleRead,
        (true, _) if has(Edge::Missed) => Anomaly::Phantom,
        (true, false) => Anomaly::LostUpdate,
        (true, true) => Anomaly::ReadSkew,
    }
}
