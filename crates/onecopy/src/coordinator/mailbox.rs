//! The notes from the cluster to one session: a bounded queue and a wake-up. For example, `Effect::Acknowledge` lets a
//! session answer its client.
//!
//! A session has at most one transaction and one wait at a time, so its queue holds a handful of effects; the bound is
//! an invariant of the core, not back-pressure.
//!
//! A session learns in two ways that it has to end, or to run its transaction again. A note tells it while it waits for the
//! cluster. A [`Call`] tells it while it waits for its client or for a server.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::event::Effect;
use cluster::ids::SessionId;
use tokio::sync::Notify;

use super::performances::PerformanceQueue;

/// More notes than this for one session mean that the core is broken.
const NOTES_MAX: usize = 64;

/// A note for a session.
#[derive(Debug)]
pub(crate) enum Note {
    /// From the cluster.
    Effect(Effect),
    /// A client asked to cancel the session's statement.
    Cancel,
    /// The session is to end.
    End(End),
    /// A replica is drained, or another one is the anchor. The session closes its idle connections; its state on the
    /// other connections may be lost.
    Drained,
}

/// When and why a session is to end; a later one overrules an earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum End {
    /// Another process takes the place of this one: as soon as no transaction is open, and the session goes on there if it can.
    Succession = 1,
    /// The node is stopping: as soon as no transaction is open.
    AfterTransaction,
    /// The node is stopping: as soon as no work is half done.
    Now,
    /// An operator ends this session: as soon as no work is half done.
    Killed,
}

/// The most urgent end that a session was called to, and whether its transaction was recalled.
#[derive(Debug, Default)]
pub(crate) struct Call {
    end: AtomicU8,
    is_recalled: AtomicBool,
    wake: Notify,
}

impl Call {
    fn make(&self, end: End) {
        self.end.fetch_max(end as u8, Ordering::SeqCst);
        self.wake.notify_waiters();
    }

    /// The core wants the session's transaction to be rolled back and to run again ([`Effect::RunAgain`]).
    fn recall(&self) {
        self.is_recalled.store(true, Ordering::SeqCst);
        self.wake.notify_waiters();
    }

    /// Whether the core has recalled the session's transaction, and the session has not followed yet.
    pub(crate) fn is_recalled(&self) -> bool {
        self.is_recalled.load(Ordering::SeqCst)
    }

    /// The session follows the recall, or its transaction is over.
    pub(crate) fn forget_recall(&self) {
        self.is_recalled.store(false, Ordering::SeqCst);
    }

    /// Waits until the core recalls the session's transaction. Cancel-safe.
    pub(crate) async fn recalled(&self) {
        loop {
            let mut woken = pin!(self.wake.notified());
            // Registered before the check, so no recall is missed.
            woken.as_mut().enable();
            if self.is_recalled() {
                return;
            }
            woken.await;
        }
    }

    /// Whether the session was called to this end, or to a more urgent one.
    pub(crate) fn is_made(&self, end: End) -> bool {
        self.end.load(Ordering::SeqCst) >= end as u8
    }

    /// Waits until the session was called to this end. Cancel-safe.
    pub(crate) async fn made(&self, end: End) {
        loop {
            let mut woken = pin!(self.wake.notified());
            // Registered before the check, so no call is missed.
            woken.as_mut().enable();
            if self.is_made(end) {
                return;
            }
            woken.await;
        }
    }
}

/// A session's queue.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    notes: Mutex<VecDeque<Note>>,
    wake: Notify,
    /// Shared with the waits for the client.
    pub(crate) call: Arc<Call>,
    /// Executions of the session's transaction at other replicas.
    pub(super) performances: Arc<PerformanceQueue>,
}

impl Mailbox {
    /// The mailbox of a session. Its transaction is performed elsewhere through this queue.
    pub(super) fn of(performances: Arc<PerformanceQueue>) -> Self {
        Self { performances, ..Self::default() }
    }

    /// Puts a note in.
    pub(crate) fn push(&self, note: Note) {
        if let Note::Effect(Effect::RunAgain { .. }) = &note {
            self.call.recall();
        }
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
        self.call.make(end);
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = notes.iter().any(|note| matches!(note, Note::End(there) if *there == end));
        drop(notes);
        if !is_there {
            self.push(Note::End(end));
        }
    }

    /// Says that a replica is drained, or another one is the anchor; once is enough.
    pub(crate) fn drained(&self) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = notes.iter().any(|note| matches!(note, Note::Drained));
        drop(notes);
        if !is_there {
            self.push(Note::Drained);
        }
    }

    /// Drops cancel requests that came too late for their statement.
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

    /// Takes the answer to the session's last event.
    pub(crate) fn take_answer(&self, own: SessionId) -> Option<Effect> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_answer = |note: &Note| matches!(note, Note::Effect(effect) if effect.answers(own));
        let at = notes.iter().position(is_answer)?;
        match notes.remove(at) {
            Some(Note::Effect(effect)) => Some(effect),
            _ => None,
        }
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

    /// The most urgent end that the session was called to.
    pub(crate) fn called(&self) -> Option<End> {
        [End::Killed, End::Now, End::AfterTransaction, End::Succession]
            .into_iter()
            .find(|end| self.call.is_made(*end))
    }

    /// Drops all notes but calls to end: the session has told the cluster that its transaction or wait is over.
    pub(crate) fn clear(&self) {
        self.call.forget_recall();
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).retain(|note| matches!(note, Note::End(_)));
    }
}
