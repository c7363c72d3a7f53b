//! What the node has learned of its clients' statements and transactions; shared by all sessions.
//!
//! Two books. *Profiles*: which templates follow which beginning of a transaction (`sql::profile`), one trie behind a
//! mutex; a session that finds it taken goes on without having learned, since nothing depends on it. *Templates*: how
//! often each one ran and how long it took, in shards by its number so that sessions rarely meet. Both are bounded;
//! what has not been met for the longest time goes first.
//!
//! A third says which transactions need the anchor, a fourth which had better be there, a fifth which statements have written
//! that seemed to read only.
//!
//! Invariant: nothing here is believed (`sql::profile` says why). Non-goal: keeping it over a restart.

mod beginnings;
mod disguised;
mod wait_history;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::ids::SequenceId;
use sql::TemplateId;
use sql::profile::{Prediction, ProfileLimits, Profiles, Step};

use beginnings::Beginnings;
use disguised::Disguised;
use wait_history::WaitHistory;

/// Parts that the book of templates is divided in.
const SHARDS: usize = 16;
/// Templates that a shard remembers.
const SHARD_TEMPLATES_MAX: usize = 256;

/// A template's text is cut beyond this (`sql::Part::template`).
const TEMPLATE_BYTES_MAX: usize = 400;

/// Nothing is expected to take less.
const COST_US_MIN: u32 = 10;

/// A template as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) template: TemplateId,
    /// Its text with the constants taken out.
    pub(crate) text: String,
    /// How often it ran.
    pub(crate) count: u64,
    /// How long all of that took.
    pub(crate) total_us: u64,
}

#[derive(Debug)]
struct Entry {
    text: Box<str>,
    count: u64,
    total_us: u64,
    /// How long servers worked for it.
    served_us: u64,
    /// When it last ran, by the shard's own count.
    last: u64,
}

#[derive(Debug, Default)]
struct Shard {
    templates: BTreeMap<TemplateId, Entry>,
    runs: u64,
}

/// Both books.
#[derive(Debug)]
pub(crate) struct WorkloadStats {
    profiles: Mutex<Profiles>,
    beginnings: Mutex<Beginnings>,
    wait_history: Mutex<WaitHistory>,
    disguised: Disguised,
    start: Instant,
    shards: [Mutex<Shard>; SHARDS],
}

/// How long one run of a statement took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatementTimes {
    pub(crate) total: Duration,
    /// The part of it that a server took.
    pub(crate) served: Duration,
}

impl Default for WorkloadStats {
    fn default() -> Self {
        Self {
            profiles: Mutex::new(Profiles::new(ProfileLimits::default())),
            beginnings: Mutex::default(),
            wait_history: Mutex::default(),
            disguised: Disguised::default(),
            start: Instant::now(),
            shards: Default::default(),
        }
    }
}

impl WorkloadStats {
    /// Learns from a transaction that committed.
    pub(crate) fn observe(&self, transaction: &[Step<'_>]) {
        if let Ok(mut profiles) = self.profiles.try_lock() {
            profiles.observe(transaction);
        }
    }

    /// What is likely to come after a beginning.
    pub(crate) fn predict(&self, beginning: &[TemplateId]) -> Option<Prediction> {
        self.profiles.lock().unwrap_or_else(PoisonError::into_inner).predict(beginning)
    }

    /// A transaction that began with this template needed the anchor, or not, and drew from these sequences.
    pub(crate) fn note_beginning(
        &self,
        template: TemplateId,
        generation: u64,
        needs_anchor: bool,
        draws: &BTreeSet<SequenceId>,
    ) {
        if let Ok(mut beginnings) = self.beginnings.try_lock() {
            beginnings.note(template, generation, needs_anchor, draws);
        }
    }

    /// If a transaction that begins with this template may be expected not to need the anchor: what it may draw from.
    pub(crate) fn may_leave(&self, template: TemplateId, generation: u64) -> Option<BTreeSet<SequenceId>> {
        let beginnings = self.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
        beginnings.may_leave(template, generation).cloned()
    }

    /// A transaction that began with this template, away from the anchor, has ended: how long it waited for other homes, and
    /// how long servers worked for it.
    pub(crate) fn note_strain(&self, template: TemplateId, waited: Duration, worked: Duration) {
        if let Ok(mut wait_history) = self.wait_history.try_lock() {
            wait_history.note(template, waited, worked, self.start.elapsed());
        }
    }

    /// Whether a transaction that begins with this template had better begin at the anchor.
    pub(crate) fn stays(&self, template: TemplateId) -> bool {
        self.wait_history.lock().unwrap_or_else(PoisonError::into_inner).stays(template, self.start.elapsed())
    }

    /// A statement with this template seemed to read only, by the catalogue of that generation, and writes.
    pub(crate) fn note_write(&self, template: TemplateId, generation: u64) {
        self.disguised.note(template, generation);
    }

    /// Whether one has.
    pub(crate) fn hides_write(&self, template: TemplateId, generation: u64) -> bool {
        self.disguised.has(template, generation)
    }

    /// How long a server takes for this template, on the average. It should not change from one statement to the next, since
    /// what is outstanding at a replica is compared with what was sent elsewhere a moment later.
    pub(crate) fn cost_us(&self, template: TemplateId) -> Option<u32> {
        let shard = self.shard(template);
        let entry = shard.templates.get(&template)?;
        Some(u32::try_from(entry.served_us / entry.count).unwrap_or(u32::MAX).max(COST_US_MIN))
    }

    /// A template ran. Its text is asked for when it is new here.
    pub(crate) fn note(&self, template: TemplateId, times: StatementTimes, text: impl FnOnce() -> String) {
        let mut shard = self.shard(template);
        shard.runs += 1;
        let [took_us, served_us] =
            [times.total, times.served].map(|time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        let last = shard.runs;
        if let Some(entry) = shard.templates.get_mut(&template) {
            entry.count += 1;
            entry.total_us = entry.total_us.saturating_add(took_us);
            entry.served_us = entry.served_us.saturating_add(served_us);
            entry.last = last;
            return;
        }
        if shard.templates.len() >= SHARD_TEMPLATES_MAX {
            let oldest = shard.templates.iter().min_by_key(|(_, entry)| entry.last).map(|(id, _)| *id);
            oldest.and_then(|oldest| shard.templates.remove(&oldest));
        }
        let entry = Entry { text: text().into(), count: 1, total_us: took_us, served_us, last };
        shard.templates.insert(template, entry);
    }

    /// How many templates there are, their bytes, and about how many there can be.
    pub(crate) fn in_memory(&self) -> (usize, usize, usize) {
        const BYTES_EACH: usize = size_of::<(TemplateId, Entry)>() * 3 / 2;
        let (mut entries, mut texts) = (0, 0);
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            entries += shard.templates.len();
            texts += shard.templates.values().map(|entry| entry.text.len()).sum::<usize>();
        }
        (
            entries,
            texts + entries * BYTES_EACH,
            SHARDS * SHARD_TEMPLATES_MAX * (BYTES_EACH + TEMPLATE_BYTES_MAX),
        )
    }

    /// All templates, those that took the most time first.
    pub(crate) fn show(&self) -> Vec<Shown> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.templates.iter().map(|(template, entry)| Shown {
                template: *template,
                text: entry.text.to_string(),
                count: entry.count,
                total_us: entry.total_us,
            }));
        }
        all.sort_by_key(|shown| (std::cmp::Reverse(shown.total_us), shown.template));
        all
    }

    fn shard(&self, template: TemplateId) -> MutexGuard<'_, Shard> {
        let shards = u64::try_from(SHARDS).expect("a small number");
        let index = usize::try_from(template.0 % shards).expect("less than a small number");
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_longest_ago_is_forgotten_first() {
        let learned = WorkloadStats::default();
        let step = u64::try_from(SHARDS).unwrap();
        let count = u64::try_from(SHARD_TEMPLATES_MAX).unwrap();
        let note = |n: u64| {
            learned.note(
                TemplateId(n * step),
                StatementTimes { total: Duration::from_micros(2), served: Duration::ZERO },
                || format!("t{n}"),
            );
        };
        (0..count).for_each(note);
        note(0);
        note(count);
        let shown = learned.show();
        assert_eq!(shown.len(), SHARD_TEMPLATES_MAX);
        let most = &shown[0];
        assert_eq!((most.text.as_str(), most.count, most.total_us), ("t0", 2, 4));
        assert!(shown.iter().all(|shown| shown.text != "t1"));
        assert!(shown.iter().any(|shown| shown.text == format!("t{count}")));
    }
}
