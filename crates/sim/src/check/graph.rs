//! A graph of points with labelled edges "comes before", and its shortest cycle.
//!
//! Real time is a chain of moments. A point leads to the moment of its end, and a moment leads to the points that began
//! after it. So real time takes two edges for each point, not one for each pair.

use std::collections::VecDeque;

use super::{Anomaly, Finding};

/// Why one point comes before another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Edge {
    /// The other overwrote it.
    Ww,
    /// The other read it.
    Wr,
    /// The other overwrote what it had read.
    Rw,
    /// The other wrote a row that its predicate would have found.
    Missed,
    /// It had ended before the other began.
    Before,
    /// Both belong to one transaction.
    Within,
}

/// An event at an unknown moment between two times.
#[derive(Clone, Debug)]
struct Point {
    name: String,
    begin_us: u64,
    end_us: Option<u64>,
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    points: Vec<Point>,
    edges: Vec<Vec<(usize, Edge)>>,
}

impl Graph {
    /// A new point; without an end it may happen at any time after its beginning.
    pub(super) fn point(&mut self, name: String, begin_us: u64, end_us: Option<u64>) -> usize {
        self.points.push(Point { name, begin_us, end_us });
        self.edges.push(Vec::new());
        self.points.len() - 1
    }

    /// Adds an edge: one point comes before the other.
    pub(super) fn edge(&mut self, from: usize, to: usize, why: Edge) {
        if from != to {
            self.edges[from].push((to, why));
        }
    }

    /// Adds real time and looks for a cycle.
    pub(super) fn judge(mut self) -> Option<Finding> {
        let real = self.points.len();
        self.add_moments();
        let cyclic = self.cyclic();
        let path = (0..real).filter(|start| cyclic[*start]).filter_map(|s| self.cycle_from(s, &cyclic));
        let path = path.min_by_key(|path| path.iter().filter(|(point, _)| *point < real).count())?;
        Some(self.name(&path, real))
    }

    fn add_moments(&mut self) {
        let mut ends: Vec<(u64, usize)> =
            self.points.iter().enumerate().filter_map(|(i, p)| p.end_us.map(|end| (end, i))).collect();
        ends.sort_unstable();
        let begins: Vec<u64> = self.points.iter().map(|point| point.begin_us).collect();
        let first = self.points.len();
        for (place, (end_us, point)) in ends.iter().enumerate() {
            let moment = self.point(String::new(), *end_us, None);
            self.edges[*point].push((moment, Edge::Before));
            if place > 0 {
                self.edges[moment - 1].push((moment, Edge::Before));
            }
        }
        for (point, begin_us) in begins.iter().enumerate() {
            let earlier = ends.partition_point(|(end_us, _)| end_us < begin_us);
            if earlier > 0 {
                self.edges[first + earlier - 1].push((point, Edge::Before));
            }
        }
    }

    /// The points that are on a cycle, or between two cycles.
    fn cyclic(&self) -> Vec<bool> {
        let mut incoming = vec![0_usize; self.points.len()];
        self.edges.iter().flatten().for_each(|(to, _)| incoming[*to] += 1);
        let mut free: Vec<usize> = (0..incoming.len()).filter(|point| incoming[*point] == 0).collect();
        let mut cyclic = vec![true; self.points.len()];
        while let Some(point) = free.pop() {
            cyclic[point] = false;
            for (to, _) in &self.edges[point] {
                incoming[*to] -= 1;
                if incoming[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        cyclic
    }

    /// The shortest path from a point back to itself; moments do not count.
    fn cycle_from(&self, start: usize, cyclic: &[bool]) -> Option<Vec<(usize, Edge)>> {
        let mut from: Vec<Option<(usize, Edge)>> = vec![None; self.points.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(point) = queue.pop_front() {
            for (to, why) in self.edges[point].iter().filter(|(to, _)| cyclic[*to]) {
                if *to == start {
                    return Some(walk_back(&from, start, point, *why));
                }
                if from[*to].is_none() {
                    from[*to] = Some((point, *why));
                    let is_moment = self.points[*to].name.is_empty();
                    if is_moment { queue.push_front(*to) } else { queue.push_back(*to) }
                }
            }
        }
        None
    }

    fn name(&self, path: &[(usize, Edge)], real: usize) -> Finding {
        // Each entry is a point and the edge that leaves it.
        let steps: Vec<&(usize, Edge)> = path.iter().filter(|(point, _)| *point < real).collect();
        let count = |edge: Edge| steps.iter().filter(|(_, why)| *why == edge).count();
        let missed = count(Edge::Missed);
        let (rw, wr, before) = (count(Edge::Rw) + missed, count(Edge::Wr), count(Edge::Before));
        let anomaly = match (rw, before, wr) {
            (0, 0, 0) => Anomaly::DirtyWrite,
            (0, 0, _) => Anomaly::CircularFlow,
            (0 | 1, 1.., _) => Anomaly::StaleRead,
            _ if missed > 0 => Anomaly::Phantom,
            (1, 0, _) => Anomaly::ReadSkew,
            (2.., 0, 1..) if wr >= 2 => Anomaly::LongFork,
            (2.., 1.., 0) => Anomaly::WriteSkew,
            (2.., 1.., _) => Anomaly::LongFork,
            _ => Anomaly::WriteSkew,
        };
        let mut text = String::new();
        for (point, why) in &steps {
            text += &format!("{} -{}-> ", self.points[*point].name, format!("{why:?}").to_lowercase());
        }
        text += &self.points[steps[0].0].name;
        Finding { anomaly, text }
    }
}

fn walk_back(from: &[Option<(usize, Edge)>], start: usize, last: usize, why: Edge) -> Vec<(usize, Edge)> {
    let mut path = vec![(last, why)];
    let mut at = last;
    while at != start {
        let Some((before, why)) = from[at] else { break };
        path.push((before, why));
        at = before;
    }
    path.reverse();
    path
}
