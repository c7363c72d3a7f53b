//! A graph of points with labelled edges "comes before", and its shortest cycle.
//!
//! Real time is a chain of moments. A point leads to the moment of its end, and a moment leads to the points that began
//! after it. So real time takes two edges for each point, not one for each pair. Where snapshots may be old
//! ([`Age::Any`]), only commits have a beginning: a snapshot may be of any moment before its end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// Both belong to one session, in this order.
    Session,
}

impl Edge {
    /// Whether the first point misses what the other wrote.
    pub(super) fn is_miss(self) -> bool {
        matches!(self, Self::Rw | Self::Missed)
    }
}

/// What a point stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A commit of writes.
    Commit,
    /// The one snapshot of a transaction.
    Snapshot,
    /// The snapshot of one statement.
    Statement,
    /// A look at one row as it is at that moment, such as the reason of an error.
    Check,
}

impl Kind {
    /// Whether it saw several rows at one moment.
    pub(super) fn is_snapshot(self) -> bool {
        matches!(self, Self::Snapshot | Self::Statement)
    }
}

/// How old a snapshot may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Age {
    /// It has every commit that was acknowledged before it was asked for.
    Present,
    /// It may be the state of any moment before its end.
    Any,
}

/// Points and the edges that leave them.
pub(super) type Path = Vec<(usize, Edge)>;

/// An event at an unknown moment between two times.
#[derive(Clone, Debug)]
struct Point {
    kind: Kind,
    name: String,
    begin_us: u64,
    end_us: Option<u64>,
}

/// The graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    points: Vec<Point>,
    edges: Vec<Path>,
}

impl Graph {
    /// A new point; without an end it may happen at any time after its beginning.
    pub(super) fn point(&mut self, kind: Kind, name: String, begin_us: u64, end_us: Option<u64>) -> usize {
        self.points.push(Point { kind, name, begin_us, end_us });
        self.edges.push(Vec::new());
        self.points.len() - 1
    }

    /// Adds an edge: one point comes before the other.
    pub(super) fn edge(&mut self, from: usize, to: usize, why: Edge) {
        if from != to {
            self.edges[from].push((to, why));
        }
    }

    /// All points of a kind.
    pub(super) fn of_kind(&self, is_kind: impl Fn(Kind) -> bool) -> impl Iterator<Item = usize> {
        (0..self.points.len()).filter(move |point| is_kind(self.points[*point].kind))
    }

    /// The points that this one comes before, by edges with such labels.
    pub(super) fn after(&self, point: usize, has: impl Fn(Edge) -> bool) -> impl Iterator<Item = usize> {
        self.edges[point].iter().filter(move |(_, why)| has(*why)).map(|(to, _)| *to)
    }

    /// Whether the first ended before the other began.
    pub(super) fn has_ended_before(&self, first: usize, other: usize) -> bool {
        self.points[first].end_us.is_some_and(|end_us| end_us < self.points[other].begin_us)
    }

    /// Adds real time and looks for a cycle.
    pub(super) fn judge(mut self, age: Age) -> Option<Finding> {
        let real = self.points.len();
        self.add_moments(age);
        Some(self.name(&self.shortest_cycle(real)?, real, age))
    }

    /// The cycle with the fewest points; those from `real` on are moments.
    fn shortest_cycle(&self, real: usize) -> Option<Path> {
        let cyclic = self.cyclic();
        let starts = (0..real).filter(|start| cyclic[*start]);
        let paths = starts.filter_map(|start| self.path(start, start, |point| cyclic[point]));
        paths.min_by_key(|path| path.iter().filter(|(point, _)| *point < real).count())
    }

    /// The shortest cycle of edges that all say that one point saw the other, without real time.
    pub(super) fn cycle_without_misses(&self) -> Option<Path> {
        self.shortest_cycle(self.points.len())
    }

    /// Takes out the edges that say that one point missed the other.
    pub(super) fn take_misses(&mut self) -> Vec<(usize, usize, Edge)> {
        let mut misses = Vec::new();
        for (from, edges) in self.edges.iter_mut().enumerate() {
            misses.extend(edges.iter().filter(|(_, why)| why.is_miss()).map(|(to, why)| (from, *to, *why)));
            edges.retain(|(_, why)| !why.is_miss());
        }
        misses
    }

    fn add_moments(&mut self, age: Age) {
        let mut ends: Vec<(u64, usize)> =
            self.points.iter().enumerate().filter_map(|(i, p)| p.end_us.map(|end| (end, i))).collect();
        ends.sort_unstable();
        let begins: Vec<u64> = self.points.iter().map(|point| point.begin_us).collect();
        let first = self.points.len();
        for (place, (end_us, point)) in ends.iter().enumerate() {
            let moment = self.point(Kind::Commit, String::new(), *end_us, None);
            self.edges[*point].push((moment, Edge::Before));
            if place > 0 {
                self.edges[moment - 1].push((moment, Edge::Before));
            }
        }
        for (point, begin_us) in begins.iter().enumerate() {
            if age == Age::Any && self.points[point].kind != Kind::Commit {
                continue;
            }
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

    /// A place for each point, so that every edge leads to a later place; earlier beginnings come first where possible.
    ///
    /// Only for a graph without a cycle.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut incoming = vec![0_usize; self.points.len()];
        self.edges.iter().flatten().for_each(|(to, _)| incoming[*to] += 1);
        let free = (0..incoming.len()).filter(|point| incoming[*point] == 0);
        let mut free: BTreeSet<(u64, usize)> =
            free.map(|point| (self.points[point].begin_us, point)).collect();
        let mut places = vec![0; self.points.len()];
        let mut place = 0;
        while let Some((_, point)) = free.pop_first() {
            places[point] = place;
            place += 1;
            for (to, _) in &self.edges[point] {
                incoming[*to] -= 1;
                if incoming[*to] == 0 {
                    free.insert((self.points[*to].begin_us, *to));
                }
            }
        }
        places
    }

    /// The points that are on a cycle, without real time.
    pub(super) fn on_cycles(&self) -> Vec<bool> {
        let mut backwards: Vec<Path> = vec![Vec::new(); self.points.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            for (to, why) in edges {
                backwards[*to].push((from, *why));
            }
        }
        let mut is_seen = vec![false; self.points.len()];
        let mut by_end = Vec::new();
        for start in 0..self.points.len() {
            by_end.extend(in_order_of_end(start, &self.edges, &mut is_seen));
        }
        // From the last to end, what leads there and is not taken yet is on cycles with it.
        let mut is_taken = vec![false; self.points.len()];
        let mut on_cycles = vec![false; self.points.len()];
        for start in by_end.into_iter().rev() {
            let together = in_order_of_end(start, &backwards, &mut is_taken);
            if together.len() > 1 {
                for point in together {
                    on_cycles[point] = true;
                }
            }
        }
        on_cycles
    }

    /// The shortest path that leads from one point to another, or back to itself; moments do not count.
    pub(super) fn path(&self, start: usize, goal: usize, may_pass: impl Fn(usize) -> bool) -> Option<Path> {
        let mut from: BTreeMap<usize, (usize, Edge)> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(point) = queue.pop_front() {
            for (to, why) in self.edges[point].iter().filter(|(to, _)| may_pass(*to)) {
                if *to == goal {
                    return Some(walk_back(&from, start, point, *why));
                }
                if !from.contains_key(to) {
                    from.insert(*to, (point, *why));
                    let is_moment = self.points[*to].name.is_empty();
                    if is_moment { queue.push_front(*to) } else { queue.push_back(*to) }
                }
            }
        }
        None
    }

    fn name(&self, path: &Path, real: usize, age: Age) -> Finding {
        // Each entry is a point and the edge that leaves it.
        let steps: Path = path.iter().filter(|(point, _)| *point < real).copied().collect();
        let count = |edge: Edge| steps.iter().filter(|(_, why)| *why == edge).count();
        let missed = count(Edge::Missed);
        let (rw, wr) = (count(Edge::Rw) + missed, count(Edge::Wr));
        // Where snapshots may be old, real time is only the order of commits.
        let real_time = if age == Age::Present { count(Edge::Before) } else { 0 };
        let before = count(Edge::Session) + real_time;
        let anomaly = match (rw, before, wr) {
            (0, 0, 0) => Anomaly::DirtyWrite,
            (0, 0, _) => Anomaly::CircularFlow,
            (0 | 1, 1.., _) => Anomaly::StaleRead,
            _ if missed > 0 => Anomaly::Phantom,
            (1, 0, 0) if age == Age::Any && count(Edge::Before) == 0 => Anomaly::LostUpdate,
            (1, 0, _) => Anomaly::ReadSkew,
            (2.., 0, 1..) if wr >= 2 => Anomaly::LongFork,
            (2.., 1.., 0) => Anomaly::WriteSkew,
            (2.., 1.., _) => Anomaly::LongFork,
            _ => Anomaly::WriteSkew,
        };
        Finding { anomaly, text: self.story(&steps) }
    }

    /// The points of a cycle by name, each with the reason why it comes before the next one.
    pub(super) fn story(&self, steps: &Path) -> String {
        let mut text = String::new();
        for (point, why) in steps {
            text += &format!("{} -{}-> ", self.points[*point].name, format!("{why:?}").to_lowercase());
        }
        text + &self.points[steps[0].0].name
    }
}

/// What can be reached from a point and was not seen before, each after what can be reached from it.
fn in_order_of_end(start: usize, edges: &[Path], is_seen: &mut [bool]) -> Vec<usize> {
    let mut ended = Vec::new();
    if std::mem::replace(&mut is_seen[start], true) {
        return ended;
    }
    let mut open = vec![(start, edges[start].iter())];
    while let Some((point, rest)) = open.last_mut() {
        let point = *point;
        match rest.next() {
            Some((to, _)) if !std::mem::replace(&mut is_seen[*to], true) => {
                open.push((*to, edges[*to].iter()));
            }
            Some(_) => {}
            None => {
                ended.push(point);
                open.pop();
            }
        }
    }
    ended
}

fn walk_back(from: &BTreeMap<usize, (usize, Edge)>, start: usize, last: usize, why: Edge) -> Path {
    let mut path = vec![(last, why)];
    let mut at = last;
    while at != start {
        let Some((before, why)) = from.get(&at).copied() else { break };
        path.push((before, why));
        at = before;
    }
    path.reverse();
    path
}
