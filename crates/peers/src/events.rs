//! What a node hears of its peers, in a queue that is bounded by number and by bytes.

use std::fmt;
use std::sync::Arc;

use cluster::ids::{NodeId, Nonce};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::limits::Limits;

/// A connection: it grows with each one, and no two of the process share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LinkId(pub u64);

/// What happens on a link.
#[derive(Debug)]
pub enum PeerEvent<M> {
    /// The link is there: messages can be sent.
    Up {
        /// The peer.
        node: NodeId,
        /// The link, greater than all before.
        link: LinkId,
        /// The run of the peer, so that a restart can be told from a reconnection.
        run: Nonce,
    },
    /// A message arrived.
    Message {
        /// Its sender.
        node: NodeId,
        /// The link that it came by.
        link: LinkId,
        /// What was sent.
        message: M,
    },
    /// The link is gone. No message of it follows.
    Down {
        /// The peer.
        node: NodeId,
        /// The link.
        link: LinkId,
        /// Why it ended.
        reason: DownReason,
    },
}

/// Why a link ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DownReason {
    /// The peer has closed the connection.
    Closed,
    /// The connection failed.
    Failed(String),
    /// The peer has connected anew.
    Replaced,
    /// More messages waited than the queue may hold: the peer does not read.
    QueueFull,
    /// The peer sent something that is no message of ours.
    BadFrame(String),
    /// [`crate::Peers::break_link`].
    Broken,
}

impl fmt::Display for DownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer closed the connection"),
            Self::Failed(reason) => write!(f, "the connection failed: {reason}"),
            Self::Replaced => f.write_str("the peer connected anew"),
            Self::QueueFull => f.write_str("too many messages waited: the peer does not read"),
            Self::BadFrame(reason) => write!(f, "the peer sent no valid frame: {reason}"),
            Self::Broken => f.write_str("this node gave the link up"),
        }
    }
}

type Queued<M> = (PeerEvent<M>, Option<OwnedSemaphorePermit>);

/// The receiving end of all links. While it is not read, nothing is read from any peer.
#[derive(Debug)]
pub struct PeerEvents<M>(mpsc::Receiver<Queued<M>>);

impl<M> PeerEvents<M> {
    /// The next event; `None` once the links are stopped.
    pub async fn recv(&mut self) -> Option<PeerEvent<M>> {
        self.0.recv().await.map(|(event, _)| event)
    }

    /// The next event, if one is there.
    pub fn try_recv(&mut self) -> Option<PeerEvent<M>> {
        self.0.try_recv().ok().map(|(event, _)| event)
    }
}

/// The sending end.
pub(crate) struct Reports<M> {
    queue: mpsc::Sender<Queued<M>>,
    bytes: Arc<Semaphore>,
    bytes_max: usize,
}

impl<M> Clone for Reports<M> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bytes: Arc::clone(&self.bytes), bytes_max: self.bytes_max }
    }
}

/// Nothing takes events any more.
#[derive(Debug)]
pub(crate) struct NoConsumer;

impl<M> Reports<M> {
    pub(crate) fn new(limits: &Limits) -> (Self, PeerEvents<M>) {
        let (queue, events) = mpsc::channel(limits.events);
        let bytes = Arc::new(Semaphore::new(limits.event_bytes));
        (Self { queue, bytes, bytes_max: limits.event_bytes }, PeerEvents(events))
    }

    /// Waits until there is room. A message holds as many bytes as its frame had until it is taken.
    pub(crate) async fn send(&self, event: PeerEvent<M>, frame_bytes: usize) -> Result<(), NoConsumer> {
        let permit = if frame_bytes == 0 {
            None
        } else {
            let wanted = u32::try_from(frame_bytes.min(self.bytes_max)).unwrap_or(u32::MAX);
            Some(Arc::clone(&self.bytes).acquire_many_owned(wanted).await.map_err(|_| NoConsumer)?)
        };
        self.queue.send((event, permit)).await.map_err(|_| NoConsumer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_message_waits_until_the_bytes_before_it_are_taken() {
        let limits = Limits { events: 16, event_bytes: 1_000, ..Limits::default() };
        let (reports, mut events) = Reports::<u8>::new(&limits);
        let message = |message| PeerEvent::Message { node: NodeId(0), link: LinkId(1), message };
        reports.send(message(1), 600).await.unwrap();
        let mut second = std::pin::pin!(reports.send(message(2), 600));
        tokio::select! {
            biased;
            _ = &mut second => panic!("there is no room for its bytes"),
            () = std::future::ready(()) => {}
        }
        assert!(matches!(events.recv().await, Some(PeerEvent::Message { message: 1, .. })));
        second.await.unwrap();
        assert!(matches!(events.recv().await, Some(PeerEvent::Message { message: 2, .. })));
        // One that is longer than all of the room takes all of it.
        reports.send(message(3), 5_000).await.unwrap();
        assert!(matches!(events.try_recv(), Some(PeerEvent::Message { message: 3, .. })));
    }
}
