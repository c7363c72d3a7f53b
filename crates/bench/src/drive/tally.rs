//! The measurements of one course: a histogram of times for each kind of interaction, and a timeline.
//!
//! Two times are kept. The *response time* of an interaction begins when it was due; the *service time* when it was
//! sent. They differ in an open loop only, where a client that is kept waiting sends its next interactions late: to
//! measure those from the moment of sending would leave out the wait, which is what "coordinated omission" means (G.
//! Tene, HdrHistogram). Only what ends within the window counts; the timeline has everything.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::session::Tries;

/// The longest time that is told apart, in microseconds: ten minutes.
const LONGEST_US: u64 = 600_000_000;
/// Significant decimal digits of a time.
const DIGITS: u8 = 3;
/// The length of a piece of the timeline.
pub(crate) const SLICE: Duration = Duration::from_millis(100);
/// How many pieces a timeline has at most: a day.
const SLICES_MAX: usize = 864_000;
/// How many different texts of failures are kept for a kind.
const TROUBLES_MAX: usize = 12;
/// Name of the remaining kinds.
const OTHERS: &str = "others";

/// The measurements of one kind of interaction.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// From the moment when it was due.
    pub(crate) response_us: Histogram<u64>,
    /// From the moment when it was sent.
    pub(crate) service_us: Histogram<u64>,
    /// Failures by their words.
    pub(crate) troubles: BTreeMap<String, u64>,
    /// How its transactions fared, besides.
    pub(crate) tries: Tries,
}

impl Kind {
    fn new() -> Self {
        let histogram =
            Histogram::new_with_bounds(1, LONGEST_US, DIGITS).expect("these bounds are allowed ones");
        let (troubles, tries) = (BTreeMap::new(), Tries::default());
        Self { response_us: histogram.clone(), service_us: histogram, troubles, tries }
    }

    /// How many succeeded.
    pub(crate) fn done(&self) -> u64 {
        self.response_us.len()
    }

    /// How many failed for good.
    pub(crate) fn failed(&self) -> u64 {
        self.troubles.values().sum()
    }
}

/// A piece of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Interactions that ended well in it.
    pub(crate) done: u64,
    /// And those that failed.
    pub(crate) failed: u64,
    /// The sum of their response times.
    pub(crate) sum_us: u64,
    /// The longest of them.
    pub(crate) longest_us: u64,
}

/// One interaction that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its kind.
    pub(crate) kind: &'static str,
    /// When it should have been sent.
    pub(crate) due: Instant,
    /// When it was sent.
    pub(crate) sent: Instant,
    /// How its transactions fared.
    pub(crate) tries: Tries,
    /// Why it failed, if it did.
    pub(crate) trouble: Option<String>,
}

/// Everything that was measured.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    begin: Instant,
    window: Range<Duration>,
    /// By kind of interaction.
    pub(crate) kinds: BTreeMap<&'static str, Kind>,
    /// From the beginning, warm-up included.
    pub(crate) timeline: Vec<Slice>,
    /// Interactions that were due within the window and never sent.
    pub(crate) unsent: u64,
}

impl Tally {
    /// Nothing yet; the window is counted from `begin`.
    pub(crate) fn new(begin: Instant, window: Range<Duration>) -> Self {
        Self { begin, window, kinds: BTreeMap::new(), timeline: Vec::new(), unsent: 0 }
    }

    /// The length of the window, in seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.window.end.saturating_sub(self.window.start).as_secs_f64()
    }

    /// Adds what has just ended.
    pub(crate) fn add(&mut self, ended: &Ended, now: Instant) {
        let at = now.duration_since(self.begin);
        let micros = |from: Instant| {
            u64::try_from(now.duration_since(from).as_micros()).map_or(LONGEST_US, |us| us.min(LONGEST_US))
        };
        self.add_slice(at, micros(ended.due), ended.trouble.is_some());
        if !self.window.contains(&at) {
            return;
        }
        let kind = self.kinds.entry(ended.kind).or_insert_with(Kind::new);
        kind.tries.retries += ended.tries.retries;
        kind.tries.conflicts += ended.tries.conflicts;
        kind.tries.undone += ended.tries.undone;
        match &ended.trouble {
            None => {
                kind.response_us.saturating_record(micros(ended.due));
                kind.service_us.saturating_record(micros(ended.sent));
            }
            Some(text) => {
                let is_kept = kind.troubles.len() < TROUBLES_MAX || kind.troubles.contains_key(text);
                *kind.troubles.entry(if is_kept { text.clone() } else { OTHERS.to_owned() }).or_default() +=
                    1;
            }
        }
    }

    fn add_slice(&mut self, at: Duration, response_us: u64, is_failed: bool) {
        let place = usize::try_from(at.as_millis() / SLICE.as_millis()).unwrap_or(SLICES_MAX);
        if place >= SLICES_MAX {
            return;
        }
        if self.timeline.len() <= place {
            self.timeline.resize(place + 1, Slice::default());
        }
        let slice = &mut self.timeline[place];
        if is_failed {
            slice.failed += 1;
            return;
        }
        slice.done += 1;
        slice.sum_us += response_us;
        slice.longest_us = slice.longest_us.max(response_us);
    }

    /// How many interactions succeeded.
    pub(crate) fn done(&self) -> u64 {
        self.kinds.values().map(Kind::done).sum()
    }

    /// How many failed for good.
    pub(crate) fn failed(&self) -> u64 {
        self.kinds.values().map(Kind::failed).sum()
    }

    /// How many transactions were tried again.
    pub(crate) fn retries(&self) -> u64 {
        self.kinds.values().map(|kind| kind.tries.retries).sum()
    }

    /// How many transactions were tried again because of 40001.
    pub(crate) fn conflicts(&self) -> u64 {
        self.kinds.values().map(|kind| kind.tries.conflicts).sum()
    }

    /// How many interactions succeeded without being undone at their client's wish.
    pub(crate) fn committed(&self) -> u64 {
        self.done() - self.kinds.values().map(|kind| kind.tries.undone).sum::<u64>().min(self.done())
    }

    /// Successes in a second.
    pub(crate) fn throughput(&self) -> f64 {
        self.done() as f64 / self.seconds()
    }

    /// The response times of all kinds together.
    pub(crate) fn response_us(&self) -> Histogram<u64> {
        let mut all = Kind::new().response_us;
        for kind in self.kinds.values() {
            all.add(&kind.response_us).expect("all histograms have the same bounds");
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(due: Instant, sent: Instant, trouble: Option<&str>) -> Ended {
        let tries = Tries { retries: 1, conflicts: 1, undone: u64::from(trouble.is_none()) };
        Ended { kind: "k", due, sent, tries, trouble: trouble.map(str::to_owned) }
    }

    #[test]
    fn only_the_window_counts_and_the_timeline_has_everything() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut tally = Tally::new(begin, Duration::from_secs(1)..Duration::from_secs(2));
        tally.add(&ended(at(900), at(900), None), at(950));
        tally.add(&ended(at(900), at(1000), None), at(1050));
        tally.add(&ended(at(1900), at(1900), Some("23505 twice")), at(1950));
        tally.add(&ended(at(1990), at(1990), None), at(2001));
        assert_eq!((tally.done(), tally.failed(), tally.retries()), (1, 1, 2));
        assert_eq!((tally.committed(), tally.conflicts()), (0, 2));
        let kind = &tally.kinds["k"];
        // The response counts from when it was due.
        assert!(kind.response_us.value_at_quantile(0.5).abs_diff(150_000) < 200);
        assert!(kind.service_us.value_at_quantile(0.5).abs_diff(50_000) < 100);
        assert_eq!(tally.timeline.iter().map(|slice| (slice.done, slice.failed)).nth(9), Some((1, 0)));
        assert_eq!(tally.timeline.iter().map(|slice| slice.done + slice.failed).sum::<u64>(), 4);
        assert_eq!(tally.timeline[10].longest_us, 150_000);
    }

    #[test]
    fn texts_of_failures_are_bounded() {
        let begin = Instant::now();
        let mut tally = Tally::new(begin, Duration::ZERO..Duration::from_secs(1));
        for number in 0..100 {
            tally.add(&ended(begin, begin, Some(&format!("no {number}"))), begin);
        }
        let kind = &tally.kinds["k"];
        assert_eq!((kind.failed(), kind.troubles.len()), (100, TROUBLES_MAX + 1));
    }
}
