//! Which transactions had better begin at the anchor, because elsewhere they wait more than they work, by the template that
//! they begin with.
//!
//! Homes wait for each other where their transactions conflict, or read what others have just written. Where that is most of
//! what happens, several homes are slower than one. Nobody can tell beforehand; so it is measured, and who waited most of
//! its time begins at the anchor for a while. Then it is tried again, each time after twice as long.
//!
//! Deviation: conflict-aware scheduling knows no such rule, since there all replicas run every update.

use std::collections::BTreeMap;
use std::time::Duration;

use sql::TemplateId;

/// Most templates that are remembered.
const STRAINS_MAX: usize = 4_096;
/// Weight of the newest transaction in the running means: one part in this many.
const MEAN_WEIGHT: u64 = 8;
/// So many transactions are looked at before anything is concluded.
const RUNS_MIN: u32 = 8;
/// After so many without a conclusion all is well.
const RUNS_WELL: u32 = 1_000;
/// Waiting is too much when it is so many times the work, ...
const WAITED_PER_WORKED: u64 = 8;
/// ... and longer than this.
const WAITED_MIN_US: u64 = 2_000;
/// How long the first stay at the anchor lasts, and the longest.
const STAY_MIN: Duration = Duration::from_secs(10);
const STAY_MAX: Duration = Duration::from_mins(10);

#[derive(Clone, Copy, Debug)]
struct WaitEntry {
    waited_us: u64,
    worked_us: u64,
    runs: u32,
    /// It begins at the anchor up to this time.
    until: Duration,
    stay: Duration,
    last: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct WaitHistory {
    of: BTreeMap<TemplateId, WaitEntry>,
    runs: u64,
}

impl WaitHistory {
    /// A transaction that began with this template, away from the anchor, has ended.
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
        // It began before that was concluded.
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

    /// Whether a transaction that begins with this template had better begin at the anchor.
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
