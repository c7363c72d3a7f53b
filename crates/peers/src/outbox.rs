//! The messages that wait to be sent on one link, and the order to end it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::events::{DownReason, LinkId};
use crate::limits::Limits;

/// Frames are joined up to this size and written at once.
const BATCH_BYTES: usize = 64 << 10;

/// Why a message was not sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotSent {
    /// That link is not the present one of this node.
    Gone,
    /// The queue was full. The link breaks.
    Full,
    /// The message is longer than [`crate::FRAME_BYTES_MAX`]. The link is as before.
    TooLong,
    /// The message cannot be encoded. The link is as before.
    Unencodable(String),
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the link is gone"),
            Self::Full => f.write_str("the queue of the link is full: the peer does not read"),
            Self::TooLong => write!(f, "the message has more than {} bytes", crate::FRAME_BYTES_MAX),
            Self::Unencodable(reason) => write!(f, "the message cannot be encoded: {reason}"),
        }
    }
}

impl std::error::Error for NotSent {}

/// Frames that are written together.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    messages: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    messages: usize,
    bytes: usize,
    ended: Option<DownReason>,
    is_closing: bool,
}

/// The queue of one link.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) link: LinkId,
    messages_max: usize,
    bytes_max: usize,
    waiting: Mutex<Waiting>,
    filled: Notify,
    ended: Notify,
}

impl Outbox {
    pub(crate) fn new(link: LinkId, limits: &Limits) -> Self {
        Self {
            link,
            messages_max: limits.queue_messages,
            bytes_max: limits.queue_bytes,
            waiting: Mutex::default(),
            filled: Notify::new(),
            ended: Notify::new(),
        }
    }

    /// Queues a frame. If there is no room, the link ends.
    pub(crate) fn push(&self, frame: Vec<u8>) -> Result<(), NotSent> {
        let mut waiting = self.lock();
        if waiting.ended.is_some() || waiting.is_closing {
            return Err(NotSent::Gone);
        }
        let is_full = waiting.messages >= self.messages_max || waiting.bytes + frame.len() > self.bytes_max;
        if is_full && waiting.messages > 0 {
            drop(waiting);
            self.end(DownReason::QueueFull);
            return Err(NotSent::Full);
        }
        waiting.messages += 1;
        waiting.bytes += frame.len();
        match waiting.batches.back_mut() {
            Some(last) if last.bytes.len() + frame.len() <= BATCH_BYTES => {
                last.bytes.extend_from_slice(&frame);
                last.messages += 1;
            }
            _ => waiting.batches.push_back(Batch { bytes: frame, messages: 1 }),
        }
        drop(waiting);
        self.filled.notify_one();
        Ok(())
    }

    /// The next batch; `None` once all is written after [`Outbox::close`].
    pub(crate) async fn next(&self) -> Option<Batch> {
        loop {
            {
                let mut waiting = self.lock();
                if let Some(batch) = waiting.batches.pop_front() {
                    return Some(batch);
                }
                if waiting.is_closing {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Whether a batch waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().batches.is_empty()
    }

    /// A batch was written: its room is free again.
    pub(crate) fn written(&self, batch: &Batch) {
        let mut waiting = self.lock();
        waiting.messages -= batch.messages;
        waiting.bytes -= batch.bytes.len();
    }

    /// No more is taken; what waits is still written.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.filled.notify_one();
    }

    /// Ends the link; the first reason counts. What waits is dropped.
    pub(crate) fn end(&self, reason: DownReason) {
        let mut waiting = self.lock();
        waiting.ended.get_or_insert(reason);
        waiting.batches.clear();
        drop(waiting);
        self.ended.notify_one();
    }

    /// Waits for the end.
    pub(crate) async fn ended(&self) -> DownReason {
        loop {
            if let Some(reason) = self.lock().ended.clone() {
                return reason;
            }
            self.ended.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
