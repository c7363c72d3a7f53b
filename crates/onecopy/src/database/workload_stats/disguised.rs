//! Statements that have written although they seemed to read only.
//!
//! The server has stopped them, wherever they were. Of one the client may have had rows by then, so that it could not be run
//! again unseen; but those that come after it run where they may write, from the beginning.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sql::TemplateId;

/// Most that are remembered. It takes a function that is not what its schema says, so there are none, or a few.
const KNOWN_MAX: usize = 256;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Disguised {
    /// There are some: nearly always there are none.
    is_any: AtomicBool,
    /// With the generation of the catalogue that let them seem so.
    known: Mutex<VecDeque<(TemplateId, u64)>>,
}

impl Disguised {
    /// One more.
    pub(super) fn note(&self, template: TemplateId, generation: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(one, _)| *one != template);
        if known.len() >= KNOWN_MAX {
            known.pop_front();
        }
        known.push_back((template, generation));
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Whether it is one, and the schema has not changed since.
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
