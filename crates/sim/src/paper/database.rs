//! A replica's database as a queue of work.
//!
//! A database has one processor. [`Discipline::Queue`] serves one job after the other. [`Discipline::Sharing`] gives all
//! jobs an equal share, by a virtual time that slows down with the number of jobs. A job without cost (a commit) ends at once.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cluster::protocols::shipping::Kind;

use super::scenario::Discipline;

/// Virtual time is counted in this fraction of a microsecond, so that small shares do not round to 0.
const FINE: u64 = 1_024;

/// A job; only its owner knows its meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Job {
    pub(crate) name: u64,
    pub(crate) cost_us: u32,
    pub(crate) is_write: bool,
}

/// The working time of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Busy {
    /// For reads.
    pub reads_us: u64,
    /// For writes.
    pub writes_us: u64,
}

impl Busy {
    fn add(&mut self, kind: Kind, us: u64) {
        match kind {
            Kind::Read => self.reads_us += us,
            Kind::Write => self.writes_us += us,
        }
    }
}

/// When a job came, in microseconds.
type Since = u64;

/// A finished job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Done {
    pub(crate) job: Job,
    /// Its time in the database, waiting included.
    pub(crate) here_us: u64,
    /// When the next job ends, and the generation of that completion.
    pub(crate) next: Option<(u64, u64)>,
}

#[derive(Debug)]
enum Service {
    Queue(VecDeque<(Job, Since)>),
    Sharing { virtual_now: u64, at_us: u64, entered: u64, heap: BinaryHeap<Reverse<(u64, u64, Job, Since)>> },
}

/// One database.
#[derive(Debug)]
pub(crate) struct Database {
    service: Service,
    /// The generation of the current completion; earlier ones on the agenda are void.
    generation: u64,
    busy: Busy,
}

impl Database {
    pub(crate) fn new(discipline: Discipline) -> Self {
        let service = match discipline {
            Discipline::Queue => Service::Queue(VecDeque::new()),
            Discipline::Sharing => {
                Service::Sharing { virtual_now: 0, at_us: 0, entered: 0, heap: BinaryHeap::new() }
            }
        };
        Self { service, generation: 0, busy: Busy::default() }
    }

    /// Its working time so far.
    pub(crate) fn busy(&self) -> Busy {
        self.busy
    }

    /// Adds a job. Returns the next completion and its generation, if that changes.
    pub(crate) fn push(&mut self, now_us: u64, job: Job) -> Option<(u64, u64)> {
        match &mut self.service {
            Service::Queue(queue) => {
                queue.push_back((job, now_us));
                (queue.len() == 1).then(|| self.next(now_us)).flatten()
            }
            Service::Sharing { entered, .. } => {
                *entered += 1;
                let entry = *entered;
                self.pass(now_us);
                if let Service::Sharing { virtual_now, heap, .. } = &mut self.service {
                    heap.push(Reverse((*virtual_now + u64::from(job.cost_us) * FINE, entry, job, now_us)));
                }
                self.next(now_us)
            }
        }
    }

    /// Handles the completion of this generation.
    pub(crate) fn complete(&mut self, now_us: u64, generation: u64) -> Option<Done> {
        if generation != self.generation {
            return None;
        }
        self.pass(now_us);
        let (job, since_us) = match &mut self.service {
            Service::Queue(queue) => queue.pop_front()?,
            Service::Sharing { virtual_now, heap, .. } => {
                let Reverse((end, _, job, since_us)) = heap.pop()?;
                // Rounding may leave a little.
                *virtual_now = (*virtual_now).max(end);
                (job, since_us)
            }
        };
        let kind = if job.is_write { Kind::Write } else { Kind::Read };
        self.busy.add(kind, u64::from(job.cost_us));
        let next = self.next(now_us);
        Some(Done { job, here_us: now_us - since_us, next })
    }

    /// Lets virtual time pass up to now.
    fn pass(&mut self, now_us: u64) {
        if let Service::Sharing { virtual_now, at_us, heap, .. } = &mut self.service {
            if !heap.is_empty() {
                *virtual_now += (now_us - *at_us) * FINE / heap.len() as u64;
            }
            *at_us = now_us;
        }
    }

    /// When the next job ends if no other job comes.
    fn next(&mut self, now_us: u64) -> Option<(u64, u64)> {
        self.generation += 1;
        let at_us = match &self.service {
            Service::Queue(queue) => now_us + u64::from(queue.front()?.0.cost_us),
            Service::Sharing { virtual_now, heap, .. } => {
                let Reverse((end, ..)) = heap.peek()?;
                now_us + (end.saturating_sub(*virtual_now) * heap.len() as u64).div_ceil(FINE)
            }
        };
        Some((at_us, self.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of each job, for jobs with these times and costs.
    fn ends(discipline: Discipline, jobs: &[(u64, u32)]) -> Vec<u64> {
        let mut database = Database::new(discipline);
        let mut ends = vec![0; jobs.len()];
        let mut coming = jobs.iter().enumerate().peekable();
        let mut next = None;
        loop {
            let arrival = coming.peek().map(|(_, (at, _))| *at);
            match (arrival, next) {
                (Some(at), None) => {
                    let (name, (_, cost_us)) = coming.next().unwrap();
                    next = database.push(at, Job { name: name as u64, cost_us: *cost_us, is_write: false });
                }
                (Some(at), Some((end, _))) if at < end => {
                    let (name, (_, cost_us)) = coming.next().unwrap();
                    let job = Job { name: name as u64, cost_us: *cost_us, is_write: false };
                    next = database.push(at, job).or(next);
                }
                (_, Some((end, generation))) => {
                    let done = database.complete(end, generation).unwrap();
                    ends[done.job.name as usize] = end;
                    assert_eq!(done.here_us, end - jobs[done.job.name as usize].0);
                    next = done.next;
                }
                (None, None) => return ends,
            }
        }
    }

    #[test]
    fn a_queue_serves_in_order() {
        assert_eq!(ends(Discipline::Queue, &[(0, 700), (10, 10), (800, 5)]), [700, 710, 805]);
    }

    #[test]
    fn sharing_lets_short_work_pass() {
        assert_eq!(ends(Discipline::Sharing, &[(0, 700), (10, 10), (800, 5)]), [710, 30, 805]);
        assert_eq!(ends(Discipline::Sharing, &[(0, 30), (0, 30), (0, 60)]), [90, 90, 120]);
    }
}
