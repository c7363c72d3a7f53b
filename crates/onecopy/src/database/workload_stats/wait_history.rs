//! Finds transactions that should begin at the anchor, by their first template, because elsewhere they wait more than
//! they work.
//!
//! Homes wait for each other where their transactions conflict, or read rows that others have just written. If
//! transactions mostly wait, several homes are slower than one. This cannot be predicted, so Onecopy measures it.
//! Transactions of a kind that waited most of the time begin at the anchor for a while. Then Onecopy tries other homes
//! again, each time after twice as long.
//!
//! Deviation: conflict-aware scheduling has no such rule, since all replicas run every update there.

use std::collections::BTreeMap;
use std::time::Duration;

use sql::TemplateId;

/// The most templates that are remembered.
const STRAINS_MAX: usize = 4_096;
/// The weight of the newest transaction in the running means is one part in this many.
const MEAN_WEIGHT: u64 = 8;
/// The number of transactions to measure before any conclusion.
const RUNS_MIN: u32 = 8;
/// After this many transactions without a conclusion, the history counts as good.
const RUNS_WELL: u32 = 1_000;
/// Transactions wait too much if they wait this many times as long as they work, ...
const WAITED_PER_WORKED: u64 = 8;
/// ... and longer than this.
const WAITED_MIN_US: u64 = 2_000;
/// The first stay at the anchor, and the longest.
const STAY_MIN: Duration = Duration::from_secs(10);
const STAY_MAX: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug)]
struct WaitEntry {
    waited_us: u64,
    worked_us: u64,
    runs: u32,
    /// Transactions with this template begin at the anchor until this time.
    until: Duration,
    stay: Duration,
    last: u64,
}

/// The waits by first template.
#[derive(Debug, Default)]
pub(super) struct WaitHistory {
    of: BTreeMap<TemplateId, WaitEntry>,
    runs: u64,
}

impl WaitHistory {
    /// A transaction with this first template has ended away from the anchor.
    pub(super) fn note(&mut self, template: TemplateId, waited: Duration, worked: Duration, now: Duration) {
        self.runs += 1;
        let last = self.runs;
        if self.of.len() >= STRAINS_MAX && !self.of.contains_key(&template) {
            let oldest = self.of.iter().min_by_key(|(_, known)| known.last).map(|(id, _)| *id);
            oldest.and_then(|oldest| self.of.remove(&oldest));
        }
        let new =
            WaitEntry { waited_us: 0, worked_us: 0, runs: 0, until: Duration::ZERO, stay: STAY_MIN, last };
        let known = self.of.entry(template).or_insert(new);
        known.last = last;
        // The transaction began before that conclusion.
        if known.until > now {
            return;
        }
        known.runs += 1;
        for (mean, sample) in [(&mut known.waited_us, waited), (&mut known.worked_us, worked)] {
            let sample_us = u64::try_from(sample.as_micros()).unwrap_or(u64::MAX);
            *mean = *mean - *mean / MEAN_WEIGHT + sample_us / MEAN_WEIGHT;
        }
        if known.runs >= RUNS_MIN
            && known.waited_us > WAITED_MIN_US
            && known.waited_us > known.worked_us.saturating_mul(WAITED_PER_WORKED)
        {
            known.until = now + known.stay;
            known.stay = STAY_MAX.min(known.stay * 2);
            (known.runs, known.waited_us, known.worked_us) = (0, 0, 0);
        } else if known.runs >= RUNS_WELL {
            (known.runs, known.stay) = (RUNS_MIN, STAY_MIN);
        }
    }

    /// Whether a transaction with this first template should begin at the anchor.
    pub(super) fn stays(&self, template: TemplateId, now: Duration) -> bool {
        self.of.get(&template).is_some_and(|known| known.until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TemplateId = TemplateId(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn who_waits_most_of_the_time_stays_at_the_anchor_for_longer_and_longer() {
        let (mut all, mut now) = (WaitHistory::default(), ms(5));
        for stay in [STAY_MIN, STAY_MIN * 2, STAY_MIN * 4] {
            for _ in 0..RUNS_MIN {
                assert!(!all.stays(ONE, now));
                all.note(ONE, ms(100), ms(10), now);
            }
            assert!(
                all.stays(ONE, now) && all.stays(ONE, now + stay * 9 / 10) && !all.stays(TemplateId(2), now)
            );
            all.note(ONE, ms(100), ms(10), now + ms(1));
            now += stay;
        }
        for _ in 0..RUNS_WELL {
            all.note(ONE, ms(5), ms(10), now);
        }
        for _ in 0..RUNS_MIN * 4 {
            all.note(ONE, ms(500), ms(10), now);
        }
        assert!(
            all.stays(ONE, now + STAY_MIN * 9 / 10) && !all.stays(ONE, now + STAY_MIN),
            "it was well meanwhile"
        );
    }

    #[test]
    fn work_and_short_waits_are_no_reason() {
        let mut all = WaitHistory::default();
        for _ in 0..100 {
            all.note(ONE, ms(15), ms(10), ms(1));
            all.note(TemplateId(2), ms(1), Duration::ZERO, ms(1));
        }
        assert!(!all.stays(ONE, ms(1)) && !all.stays(TemplateId(2), ms(1)));
    }

    #[test]
    fn the_number_is_bounded() {
        let mut all = WaitHistory::default();
        for template in 0..2 * STRAINS_MAX as u64 {
            all.note(TemplateId(template), ms(1), ms(1), ms(1));
        }
        assert_eq!(all.of.len(), STRAINS_MAX);
    }
}
