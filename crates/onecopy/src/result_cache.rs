//! Answers of reads, given again as long as nothing has written what they read. Beyond the papers.
//!
//! An entry is a *virtual replica*: it holds what one read reads, as of one version. It may answer exactly when a replica
//! of that version might serve the read: when the read needs no later version
//! ([`cluster::protocols::Protocol::answer_needs`]). So a write makes entries useless by the same step that makes replicas
//! too old for a read, and nothing is sent to the cache that could be forgotten.
//!
//! Example: `SELECT v FROM t WHERE k = 7` was answered by a replica that had version 40, and is kept as of 40. Version 41
//! writes the row with key 8: the entry still answers. Version 42 writes the row with key 7: from the moment at which 42 is
//! durable, the entry answers nobody, and the next read goes to a replica.
//!
//! Invariants: an answer is kept only if no version after its own had written what it read when its reply had ended, durable
//! or not: what the snapshot had beyond its version did not touch the answer. It is given only to sessions of its
//! [`audiences`], and only if no schema change came since the catalogue by which the statement was analysed.
//!
//! An entry that was found valid at some durable version is valid as long as that version is the durable one. So while
//! nobody writes, a hit takes no lock of the core.
//!
//! Non-goals: answers inside transactions, of several statements, with notices, or whose text asks the clock, chance or the
//! server ([`sql::Fleeting`]).

pub(crate) mod answer;
mod audiences;
pub(crate) mod counts;
pub(crate) mod request;
pub(crate) mod role_changes;
mod usefulness;

use std::sync::Arc;

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use answer::{Answer, is_same};
use audiences::Audiences;
pub(crate) use audiences::{Audience, Traits};
use counts::Counts;
use request::Request;
use role_changes::RoleChanges;
use usefulness::Usefulness;

/// Runs each hit at a replica as well, and compares, for tests. The value is `all`.
const AUDIT_VARIABLE: &str = "ONECOPY_TEST_CACHE_AUDIT";
/// The size of the cache in tests that audit it, if it is off otherwise.
const AUDITED_BYTES: u64 = 64 << 20;
/// The expected size of an entry, from which the cache derives its shape.
const ENTRY_BYTES: u64 = 512;
/// Memory of an entry beside its own bytes: the cache's own slot, and the headers of its parts.
const ENTRY_OVERHEAD_BYTES: usize = 200;

/// The kept answers of a node.
#[derive(Debug)]
pub(crate) struct ResultCache {
    /// None if the cache is off.
    answers: Option<Cache<Request, Arc<Answer>, Bytes>>,
    audiences: Audiences,
    usefulness: Usefulness,
    pub(crate) counts: Counts,
    audits: bool,
    /// Where statements are shipped.
    pub(crate) role_changes: Arc<RoleChanges>,
}

/// Weighs entries by their bytes.
#[derive(Clone, Debug)]
struct Bytes;

impl Weighter<Request, Arc<Answer>> for Bytes {
    fn weight(&self, request: &Request, answer: &Arc<Answer>) -> u64 {
        (request.bytes() + answer.bytes() + ENTRY_OVERHEAD_BYTES) as u64
    }
}

impl ResultCache {
    /// A cache of this size; off if it is 0. The environment of tests may switch it on.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let audits = std::env::var(AUDIT_VARIABLE).is_ok_and(|which| which == "all");
        Self::of(if audits && bytes_max == 0 { AUDITED_BYTES } else { bytes_max }, audits)
    }

    fn of(bytes_max: u64, audits: bool) -> Self {
        let entries = usize::try_from(bytes_max / ENTRY_BYTES).unwrap_or(usize::MAX).max(1);
        Self {
            answers: (bytes_max > 0).then(|| Cache::with_weighter(entries, bytes_max, Bytes)),
            audiences: Audiences::default(),
            usefulness: Usefulness::default(),
            counts: Counts::default(),
            audits,
            role_changes: Arc::default(),
        }
    }

    /// Whether answers are kept.
    pub(crate) fn is_on(&self) -> bool {
        self.answers.is_some()
    }

    /// Whether each hit is run at a replica, too.
    pub(crate) fn audits(&self) -> bool {
        self.audits
    }

    /// The number of the sessions with these traits.
    pub(crate) fn audience(&self, traits: Traits) -> Audience {
        self.audiences.number(traits)
    }

    /// Grows when every session needs a new number.
    pub(crate) fn era(&self) -> u64 {
        self.audiences.era()
    }

    /// The answer that was kept for a request, which may not be valid any more.
    pub(crate) fn find(&self, request: &Request) -> Option<Arc<Answer>> {
        self.answers.as_ref()?.get(request)
    }

    /// The answer was given.
    pub(crate) fn note_given(&self, answer: &Answer) {
        self.usefulness.note_given(answer.template);
        counts::count(&self.counts.hits);
    }

    /// The answer was found, and is not valid any more.
    pub(crate) fn discard(&self, request: &Request, answer: &Answer) {
        self.usefulness.note_stale(answer.template);
        counts::count(&self.counts.stale);
        if let Some(answers) = &self.answers {
            answers.remove(request);
        }
    }

    /// Compares a kept answer, which is still the answer, with a replica's.
    pub(crate) fn compare(&self, request: &Request, kept: &Answer, executed: &[u8]) {
        counts::count(&self.counts.audited);
        if !is_same(&kept.body, executed) {
            counts::count(&self.counts.differences);
            let (given, executed) = (String::from_utf8_lossy(&kept.body), String::from_utf8_lossy(executed));
            let basis = &kept.basis;
            tracing::error!(?basis, ?request, ?given, ?executed, "a kept answer differs from a replica's");
        }
    }

    /// Whether an answer to a statement of this template is worth keeping.
    pub(crate) fn is_worth_keeping(&self, template: u64) -> bool {
        self.usefulness.is_worth_keeping(template)
    }

    /// Keeps an answer.
    pub(crate) fn keep(&self, request: Request, answer: Answer) {
        if let Some(answers) = &self.answers {
            counts::count(&self.counts.kept);
            answers.insert(request, Arc::new(answer));
        }
    }

    /// Forgets all answers: a replica may have given wrong ones, or the servers may answer otherwise from now on.
    pub(crate) fn forget(&self) {
        if let Some(answers) = &self.answers {
            answers.clear();
            // An answer that a session keeps just now is of an audience that nobody belongs to any more.
            self.audiences.forget();
        }
    }

    /// The number of answers, their bytes, and the limit in bytes.
    pub(crate) fn in_memory(&self) -> (usize, u64, u64) {
        self.answers
            .as_ref()
            .map_or((0, 0, 0), |answers| (answers.len(), answers.weight(), answers.capacity()))
    }
}

#[cfg(test)]
mod tests;
