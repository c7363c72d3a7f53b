//! The measures of one run.
//!
//! The first phase is the time in which transactions arrive, the second one lasts until the last is committed.

/// The window over which the maximum throughput is taken, in seconds.
const WINDOW_S: usize = 4;

const SECOND_US: u64 = 1_000_000;

/// What a run showed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// The length of the first phase.
    pub phase_us: u64,
    /// When the last transaction was committed.
    pub ended_us: u64,
    /// Commits in each second.
    pub commits: Vec<u32>,
    /// Commits of updates in the first phase.
    pub updates_in_phase: u32,
    /// Executions that were overtaken by a commit that conflicts.
    pub overtaken: u64,
    /// Executions that were done again.
    pub restarts: u64,
    /// Response time by duration, of each transaction in the order of commits.
    pub penalties: Vec<f64>,
    /// The sum of the response times of updates, and their number.
    pub updates_response_us: (u64, u64),
    /// The sum of the durations of all transactions, run once, under no protocol's own factor.
    pub sequential_us: u64,
    /// Worker time used in the first phase, and after it.
    pub busy_us: [u64; 2],
    /// The most workers that were busy at a time.
    pub busy_most: usize,
    /// When that was so first.
    pub busy_most_at_us: u64,
    /// Busy workers at the end of the first phase.
    pub busy_at_end: usize,
    /// The most transactions that waited for a worker in the first phase, and in all.
    pub queue_most: [usize; 2],
    /// Busy workers and waiting transactions at each full second.
    pub series: Vec<(usize, usize)>,
    pub(super) seen: Seen,
}

/// The state of the workers since the last event.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Seen {
    at_us: u64,
    busy: usize,
    queue: usize,
}

impl Outcome {
    /// Nothing has happened yet.
    pub(super) fn new(phase_us: u64) -> Self {
        Self { phase_us, ..Self::default() }
    }

    /// The state of the workers from now on.
    pub(super) fn look(&mut self, now_us: u64, busy: usize, queue: usize) {
        let Seen { at_us, busy: before, .. } = self.seen;
        let first_us = now_us.min(self.phase_us).saturating_sub(at_us);
        self.busy_us[0] += first_us * before as u64;
        self.busy_us[1] += (now_us - at_us - first_us) * before as u64;
        if at_us < self.phase_us && now_us >= self.phase_us {
            self.busy_at_end = before;
        }
        while self.series.len() as u64 * SECOND_US < now_us {
            self.series.push((before, self.seen.queue));
        }
        if busy > self.busy_most {
            (self.busy_most, self.busy_most_at_us) = (busy, now_us);
        }
        if now_us < self.phase_us {
            self.queue_most[0] = self.queue_most[0].max(queue);
        }
        self.queue_most[1] = self.queue_most[1].max(queue);
        self.seen = Seen { at_us: now_us, busy, queue };
    }

    /// A transaction is committed, and was answered `response_us` after it arrived.
    pub(super) fn commit(&mut self, now_us: u64, response_us: u64, duration_us: u64, is_update: bool) {
        let second = (now_us / SECOND_US) as usize;
        self.commits.resize(self.commits.len().max(second + 1), 0);
        self.commits[second] += 1;
        self.penalties.push(response_us as f64 / duration_us.max(1) as f64);
        if is_update {
            self.updates_response_us.0 += response_us;
            self.updates_response_us.1 += 1;
            self.updates_in_phase += u32::from(now_us < self.phase_us);
        }
        self.ended_us = now_us;
    }

    /// Commits a second in the first phase.
    pub fn phase_throughput(&self) -> f64 {
        let seconds = (self.phase_us / SECOND_US) as usize;
        let all: u32 = self.commits.iter().take(seconds).sum();
        f64::from(all) / seconds.max(1) as f64
    }

    /// Commits a second in the second phase.
    pub fn second_throughput(&self) -> f64 {
        let seconds = (self.phase_us / SECOND_US) as usize;
        let all: u32 = self.commits.iter().skip(seconds).sum();
        f64::from(all) / (self.ended_us.saturating_sub(self.phase_us).max(1) as f64 / 1e6)
    }

    /// Commits a second in the best four seconds.
    pub fn most_throughput(&self) -> f64 {
        let windows = self.commits.windows(WINDOW_S).map(|window| window.iter().sum::<u32>());
        f64::from(windows.max().unwrap_or_default()) / WINDOW_S as f64
    }

    /// Mean response time by duration.
    pub fn mean_penalty(&self) -> f64 {
        self.penalties.iter().sum::<f64>() / self.penalties.len().max(1) as f64
    }

    /// The share of transactions with at most this penalty.
    pub fn penalty_up_to(&self, most: f64) -> f64 {
        let light = self.penalties.iter().filter(|penalty| **penalty <= most).count();
        light as f64 / self.penalties.len().max(1) as f64
    }

    /// Time that one worker alone would take, by the time that the run took.
    pub fn speed_up(&self) -> f64 {
        self.sequential_us as f64 / self.ended_us.max(1) as f64
    }

    /// Mean response time of updates.
    pub fn updates_response_ms(&self) -> f64 {
        let (sum_us, count) = self.updates_response_us;
        sum_us as f64 / count.max(1) as f64 / 1e3
    }

    /// Busy workers, on average over the run: what the run costs an hour, in the price of a worker's hour.
    pub fn mean_busy(&self) -> f64 {
        (self.busy_us[0] + self.busy_us[1]) as f64 / self.ended_us.max(1) as f64
    }

    /// Busy workers, on average over the second phase.
    pub fn mean_busy_second(&self) -> f64 {
        self.busy_us[1] as f64 / self.ended_us.saturating_sub(self.phase_us).max(1) as f64
    }
}
