//! The queue of sessions that wait for a shared connection, and which one is next. It is generic over its grants.
//!
//! Sessions are served in the order in which they came, with two exceptions:
//!
//! - A connection is best used again in the thread that used it last ([`crate::pool`]). So a session of that thread is
//!   preferred, unless another one has waited for clearly longer.
//! - A session that has a transaction open at another replica comes first, and may exceed the size of the pool by a few
//!   connections. Otherwise all connections could belong to sessions that wait for a lock of that very transaction. Such
//!   a session needs the connection for one statement that waits for no transaction, so the connection comes back.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::request::{Thread, Want};

/// A session of another thread is served first if it has waited for so much longer.
const PREFERENCE_MAX: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Waiting<T> {
    want: Want,
    thread: Thread,
    since: Instant,
    sender: oneshot::Sender<T>,
}

/// Sessions that want a second connection, followed by those that want a first one.
#[derive(Debug)]
pub(super) struct WaitQueue<T>(VecDeque<Waiting<T>>);

impl<T> Default for WaitQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> WaitQueue<T> {
    /// Adds a session.
    pub(super) fn enter(&mut self, want: Want, thread: Thread) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        if self.0.len() == self.0.capacity() {
            self.0.retain(|other| !other.sender.is_closed());
        }
        let waiting = Waiting { want, thread, since: Instant::now(), sender };
        match want {
            Want::First => self.0.push_back(waiting),
            Want::Second => self.0.insert(self.0.partition_point(|other| other.want == want), waiting),
        }
        receiver
    }

    /// Removes the next session, for a connection that was used in this thread, or in none. Without room only sessions that
    /// want a second connection are served.
    pub(super) fn next(&mut self, thread: Option<Thread>, has_room: bool) -> Option<oneshot::Sender<T>> {
        while self.0.front().is_some_and(|first| first.sender.is_closed()) {
            self.0.pop_front();
        }
        let index = match self.0.front()?.want {
            Want::Second => 0,
            Want::First if !has_room => return None,
            Want::First => {
                let waiting = self.0.iter().map(|waiting| (waiting.thread, waiting.since));
                thread.map_or(Some(0), |thread| next_index(waiting, thread))?
            }
        };
        self.0.remove(index).map(|waiting| waiting.sender)
    }
}

/// The index of the next session.
fn next_index(mut waiting: impl Iterator<Item = (Thread, Instant)>, thread: Thread) -> Option<usize> {
    let (first, since) = waiting.next()?;
    if first == thread {
        return Some(0);
    }
    let mut soon = waiting.take_while(|(_, later)| later.saturating_duration_since(since) <= PREFERENCE_MAX);
    Some(soon.position(|(other, _)| other == thread).map_or(0, |index| index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_stays_in_its_thread_unless_others_wait_longer() {
        let start = Instant::now();
        let queue = |waits: &[(usize, u64)]| -> Vec<_> {
            waits.iter().map(|(thread, us)| (Thread(*thread), start + Duration::from_micros(*us))).collect()
        };
        let next_of = |waits: &[(usize, u64)], thread| next_index(queue(waits).into_iter(), Thread(thread));
        assert_eq!(next_of(&[], 0), None);
        assert_eq!(next_of(&[(0, 0), (1, 1), (0, 2)], 0), Some(0));
        assert_eq!(next_of(&[(0, 0), (0, 1), (1, 2), (1, 3)], 1), Some(2));
        assert_eq!(next_of(&[(0, 0), (0, 1), (1, 20_001)], 1), Some(0), "one has waited clearly longer");
        assert_eq!(next_of(&[(0, 0), (0, 1)], 1), Some(0), "no session of that thread waits");
    }

    #[test]
    fn a_session_with_an_open_transaction_comes_first_and_needs_no_room() {
        let mut queue = WaitQueue::<()>::default();
        let mut receivers: Vec<_> = [Want::First, Want::Second, Want::First, Want::Second]
            .map(|want| queue.enter(want, Thread(0)))
            .into_iter()
            .map(Some)
            .collect();
        let mut serve = |has_room| {
            let sender = queue.next(None, has_room)?;
            drop(sender);
            let served = |receiver: &mut Option<oneshot::Receiver<()>>| {
                let received = receiver.as_mut().map(oneshot::Receiver::try_recv);
                matches!(received, Some(Err(oneshot::error::TryRecvError::Closed)))
            };
            let index = receivers.iter_mut().position(served)?;
            receivers[index] = None;
            Some(index)
        };
        assert_eq!([serve(false), serve(false), serve(false)], [Some(1), Some(3), None]);
        assert_eq!([serve(true), serve(true), serve(true)], [Some(0), Some(2), None]);
    }
}
