//! What the cluster tells one session: a bounded queue and a wake.
//!
//! A session has at most one transaction and one wait at a time, so its queue holds a handful of effects; the bound is
//! an invariant of the core, not back-pressure.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use cluster::event::Effect;
use tokio::sync::Notify;

/// More notes than this for one session mean that the core is broken.
const NOTES_MAX: usize = 64;

/// Something for a session.
#[derive(Debug)]
pub(crate) enum Note {
    /// From the cluster.
    Effect(Effect),
    /// A client asked to cancel what the session is doing.
    Cancel,
    /// The session is to end.
    End(End),
    /// A replica is drained: connections to it that are not in use are to be closed.
    Drained,
}

/// When and why a session is to end; a later one overrules an earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// The node is stopping: as soon as no transaction is open.
    AfterTransaction,
    /// The node is stopping: as soon as nothing is half done.
    Now,
    /// Somebody ends this session: as soon as nothing is half done.
    Killed,
}

/// A session's queue.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    notes: Mutex<VecDeque<Note>>,
    wake: Notify,
}

impl Mailbox {
    /// Puts a note in.
    pub(crate) fn push(&self, note: Note) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(notes.len() < NOTES_MAX, "a session has a handful of notes at most");
        notes.push_back(note);
        drop(notes);
        self.wake.notify_one();
    }

    /// Says that a client asked to cancel; once is enough.
    pub(crate) fn cancel(&self) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = notes.iter().any(|note| matches!(note, Note::Cancel));
        drop(notes);
        if !is_there {
            self.push(Note::Cancel);
        }
    }

    /// Says that the session is to end; once is enough.
    pub(crate) fn end(&self, end: End) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = notes.iter().any(|note| matches!(note, Note::End(there) if *there == end));
        drop(notes);
        if !is_there {
            self.push(Note::End(end));
        }
    }

    /// Says that a replica is drained; once is enough.
    pub(crate) fn drained(&self) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = notes.iter().any(|note| matches!(note, Note::Drained));
        drop(notes);
        if !is_there {
            self.push(Note::Drained);
        }
    }

    /// Drops cancel requests that came too late for what they were meant for.
    pub(crate) fn forget_cancel(&self) {
        self.notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|note| !matches!(note, Note::Cancel));
    }

    /// Takes a note without waiting.
    pub(crate) fn try_next(&self) -> Option<Note> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Waits for a note. Cancel-safe.
    pub(crate) async fn next(&self) -> Note {
        loop {
            if let Some(note) = self.try_next() {
                return note;
            }
            self.wake.notified().await;
        }
    }

    /// Drops what is there: after the session told the cluster that its transaction or wait is over.
    pub(crate) fn clear(&self) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).retain(|note| matches!(note, Note::End(_)));
    }
}
