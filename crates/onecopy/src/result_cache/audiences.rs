//! The sessions that may be given the same answers: those for which a server would answer the same.
//!
//! Example: row security shows the rows of the tenant that `app.tenant` names. Sessions of one role with other values of
//! `app.tenant` are two audiences, and so are two roles. A session changes its audience with each SET.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

/// Past so many audiences their numbers are forgotten. Sessions keep those that they have; later ones get new numbers.
const AUDIENCES_MAX: usize = 10_000;

/// The number of an audience. No number is given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Audience(pub(super) u64);

/// Everything of a session on which the answer of a server may depend, in one string of bytes.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Traits(Vec<u8>);

impl Traits {
    /// Adds one thing. Its place in the order says what it is, so every session adds the same things in the same order.
    pub(crate) fn add(&mut self, one: &[u8]) {
        self.0.extend_from_slice(&(one.len() as u64).to_le_bytes());
        self.0.extend_from_slice(one);
    }

    /// Adds several things of one kind.
    pub(crate) fn add_all<'a>(&mut self, all: impl Iterator<Item = &'a [u8]>) {
        all.for_each(|one| self.add(one));
        // Nothing is as long as this, so it ends the list.
        self.0.extend_from_slice(&u64::MAX.to_le_bytes());
    }
}

/// The audiences that have numbers.
#[derive(Debug, Default)]
pub(super) struct Audiences {
    numbers: Mutex<FxHashMap<Traits, Audience>>,
    last: AtomicU64,
    /// Grows when numbers are forgotten.
    era: AtomicU64,
}

impl Audiences {
    /// The number of the sessions with these traits.
    pub(super) fn number(&self, traits: Traits) -> Audience {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        if numbers.len() >= AUDIENCES_MAX {
            numbers.clear();
        }
        let fresh = || Audience(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        *numbers.entry(traits).or_insert_with(fresh)
    }

    /// Takes every session's number away: what was kept for it is given to nobody.
    pub(super) fn forget(&self) {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.clear();
        self.era.fetch_add(1, Ordering::Release);
    }

    /// A session with a number of an earlier era needs a new one.
    pub(super) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }
}
