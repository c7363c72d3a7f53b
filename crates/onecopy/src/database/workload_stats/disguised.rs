//! Statements that have written although they looked like reads.
//!
//! The server has stopped such a statement. If rows were already sent, Onecopy could not retry it transparently. Later
//! statements of its kind start where they may write.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sql::TemplateId;

/// The most statements that are remembered. A statement gets here only through a function that does not do what its
/// definition says, so there are few or none.
const KNOWN_MAX: usize = 256;

/// All such statements.
#[derive(Debug, Default)]
pub(super) struct Disguised {
    /// Whether there are any. Nearly always there are none.
    is_any: AtomicBool,
    /// Each with the generation of the catalogue by which it looked like a read.
    known: Mutex<VecDeque<(TemplateId, u64)>>,
}

impl Disguised {
    pub(super) fn note(&self, template: TemplateId, generation: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(one, _)| *one != template);
        if known.len() >= KNOWN_MAX {
            known.pop_front();
        }
        known.push_back((template, generation));
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Whether the statement is known to write, and the schema has not changed since.
    pub(super) fn has(&self, template: TemplateId, generation: u64) -> bool {
        self.is_any.load(Ordering::Relaxed)
            && self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&(template, generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_known_until_the_schema_changes_and_not_too_many() {
        let disguised = Disguised::default();
        assert!(!disguised.has(TemplateId(0), 1));
        for n in 0..=KNOWN_MAX as u64 {
            disguised.note(TemplateId(n), 1);
        }
        assert!(!disguised.has(TemplateId(0), 1) && disguised.has(TemplateId(1), 1));
        assert!(!disguised.has(TemplateId(1), 2), "it may be what it seems by now");
        disguised.note(TemplateId(1), 2);
        disguised.note(TemplateId(300), 2);
        assert!(disguised.has(TemplateId(1), 2) && !disguised.has(TemplateId(2), 1));
    }
}
