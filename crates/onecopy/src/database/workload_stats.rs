//! Statistics of the clients' statements and transactions, shared by all sessions.
//!
//! There are two main books. *Profiles* hold which templates follow which beginning of a transaction (`sql::profile`),
//! in one trie behind a mutex. A session that finds the mutex taken goes on without learning, since nothing depends on
//! it. *Templates* hold how often each template ran and how long it took. They are divided into shards by number, so
//! that sessions rarely contend. Both books are bounded; entries that were not met for the longest time go first.
//!
//! Three smaller books hold transactions that need the anchor, transactions that should start there, and statements
//! that have written although they looked like reads.
//!
//! Invariant: correctness never depends on these statistics (`sql::profile` says why). Non-goal: keeping them over a
//! restart.

mod beginnings;
mod blocks;
mod disguised;
mod wait_history;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::ids::{SequenceId, TableId};
use sql::TemplateId;
use sql::profile::{Prediction, ProfileLimits, Profiles, Step};

use super::placement_advice::TableUse;
use beginnings::Beginnings;
use blocks::Blocks;
use disguised::Disguised;
use wait_history::WaitHistory;

/// The number of shards of the book of templates.
const SHARDS: usize = 16;
/// The most templates in a shard.
const SHARD_TEMPLATES_MAX: usize = 256;

/// The text of a template is cut beyond this length (`sql::Part::template`).
const TEMPLATE_BYTES_MAX: usize = 400;

/// The least expected run time of a statement.
const COST_US_MIN: u32 = 10;

/// A template as SHOW prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) template: TemplateId,
    /// Its text without the constants.
    pub(crate) text: String,
    /// The number of runs.
    pub(crate) count: u64,
    /// The total run time.
    pub(crate) total_us: u64,
    /// The tables that it reads or writes, if they are bounded.
    pub(crate) tables: Option<BTreeSet<TableId>>,
}

/// What a template is, told when it is new.
#[derive(Debug, Default)]
pub(crate) struct Described {
    pub(crate) text: String,
    /// The tables that it reads or writes, if they are bounded.
    pub(crate) tables: Option<BTreeSet<TableId>>,
    /// Those among them that it writes.
    pub(crate) written: BTreeSet<TableId>,
}

#[derive(Debug)]
struct Entry {
    text: Box<str>,
    count: u64,
    total_us: u64,
    /// The time that servers worked for it.
    served_us: u64,
    tables: Option<BTreeSet<TableId>>,
    written: BTreeSet<TableId>,
    /// The time of its last run, by the shard's own count.
    last: u64,
}

impl Entry {
    fn usage(&self) -> TableUse {
        let Self { count, served_us, tables, written, .. } = self;
        TableUse { runs: *count, served_us: *served_us, tables: tables.clone(), written: written.clone() }
    }
}

#[derive(Debug, Default)]
struct Shard {
    templates: BTreeMap<TemplateId, Entry>,
    runs: u64,
}

/// All books.
#[derive(Debug)]
pub(crate) struct WorkloadStats {
    profiles: Mutex<Profiles>,
    beginnings: Mutex<Beginnings>,
    wait_history: Mutex<WaitHistory>,
    disguised: Disguised,
    blocks: Mutex<Blocks>,
    start: Instant,
    shards: [Mutex<Shard>; SHARDS],
}

/// The run time of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatementTimes {
    pub(crate) total: Duration,
    /// The part of the run time that a server took.
    pub(crate) served: Duration,
}

impl Default for WorkloadStats {
    fn default() -> Self {
        Self {
            profiles: Mutex::new(Profiles::new(ProfileLimits::default())),
            beginnings: Mutex::default(),
            wait_history: Mutex::default(),
            disguised: Disguised::default(),
            blocks: Mutex::default(),
            start: Instant::now(),
            shards: Default::default(),
        }
    }
}

impl WorkloadStats {
    pub(crate) fn observe(&self, transaction: &[Step<'_>]) {
        if let Ok(mut profiles) = self.profiles.try_lock() {
            profiles.observe(transaction);
        }
        if let Ok(mut blocks) = self.blocks.try_lock() {
            blocks.note(transaction.iter().map(|step| step.statement.template).collect());
        }
    }

    /// Predicts the statements that follow a beginning.
    pub(crate) fn predict(&self, beginning: &[TemplateId]) -> Option<Prediction> {
        self.profiles.lock().unwrap_or_else(PoisonError::into_inner).predict(beginning)
    }

    /// A transaction with this first template has ended: whether it needed the anchor, and the sequences that it drew
    /// from.
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

    /// The sequences that a transaction with this first template may draw from. `None` if it probably needs the anchor.
    pub(crate) fn may_leave(&self, template: TemplateId, generation: u64) -> Option<BTreeSet<SequenceId>> {
        let beginnings = self.beginnings.lock().unwrap_or_else(PoisonError::into_inner);
        beginnings.may_leave(template, generation).cloned()
    }

    /// A transaction with this first template has ended away from the anchor: how long it waited for other homes, and
    /// how long servers worked for it.
    pub(crate) fn note_strain(&self, template: TemplateId, waited: Duration, worked: Duration) {
        if let Ok(mut wait_history) = self.wait_history.try_lock() {
            wait_history.note(template, waited, worked, self.start.elapsed());
        }
    }

    /// Whether a transaction with this first template should begin at the anchor.
    pub(crate) fn stays(&self, template: TemplateId) -> bool {
        self.wait_history.lock().unwrap_or_else(PoisonError::into_inner).stays(template, self.start.elapsed())
    }

    /// A statement with this template has written. By the catalogue of that generation it looked like a read.
    pub(crate) fn note_write(&self, template: TemplateId, generation: u64) {
        self.disguised.note(template, generation);
    }

    /// Whether a statement with this template has written although it looked like a read.
    pub(crate) fn hides_write(&self, template: TemplateId, generation: u64) -> bool {
        self.disguised.has(template, generation)
    }

    /// The average time that a server takes for this template. It should not jump between statements: the load of a
    /// replica is compared with the load of another one a moment later.
    pub(crate) fn cost_us(&self, template: TemplateId) -> Option<u32> {
        let shard = self.shard(template);
        let entry = shard.templates.get(&template)?;
        Some(u32::try_from(entry.served_us / entry.count).unwrap_or(u32::MAX).max(COST_US_MIN))
    }

    /// Counts a run of a template. Calls `describe` if the template is new here.
    pub(crate) fn note(
        &self,
        template: TemplateId,
        times: StatementTimes,
        describe: impl FnOnce() -> Described,
    ) {
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
        let Described { text, tables, written } = describe();
        let entry =
            Entry { text: text.into(), count: 1, total_us: took_us, served_us, tables, written, last };
        shard.templates.insert(template, entry);
    }

    /// The number of templates, their bytes, and the approximate limit in bytes.
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

    /// How tables were used: by statements alone, and by blocks of several.
    pub(crate) fn usage(&self) -> Vec<TableUse> {
        let mut alone: BTreeMap<TemplateId, TableUse> = BTreeMap::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            alone.extend(shard.templates.iter().map(|(template, entry)| (*template, entry.usage())));
        }
        let mut all = Vec::new();
        for (templates, runs) in self.blocks.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let mut block = TableUse { runs, tables: Some(BTreeSet::new()), ..TableUse::default() };
            for template in templates {
                let Some(one) = alone.get_mut(template) else {
                    block.tables = None;
                    continue;
                };
                block.add(&one.take(runs));
            }
            all.push(block);
        }
        all.extend(alone.into_values().filter(|one| one.runs > 0));
        all
    }

    /// All templates, by total run time, the longest first.
    pub(crate) fn show(&self) -> Vec<Shown> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.templates.iter().map(|(template, entry)| Shown {
                template: *template,
                text: entry.text.to_string(),
                count: entry.count,
                total_us: entry.total_us,
                tables: entry.tables.clone(),
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
                || Described { text: format!("t{n}"), ..Described::default() },
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
