//! The time of the core, which has no clock of its own, and the wake-up for which it asked last.
//!
//! The core collects refreshes into batches: it asks to be woken up when the pause of a batch is over. A later wish
//! replaces an earlier one.

use std::time::{Duration, Instant};

use cluster::time::Time;
use tokio::sync::watch;

/// Counts microseconds since a moment at or before the start of the node.
pub(super) struct Clock {
    start: Instant,
    wish: watch::Sender<Option<Time>>,
}

impl Clock {
    pub(super) fn since(start: Instant) -> Self {
        Self { start, wish: watch::channel(None).0 }
    }

    /// The time of a moment; that of the start if it was before.
    pub(super) fn at(&self, moment: Instant) -> Time {
        let since = moment.saturating_duration_since(self.start);
        Time { us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX) }
    }

    pub(super) fn now(&self) -> Time {
        self.at(Instant::now())
    }

    /// The core wants to be woken up at this time, and at no other.
    pub(super) fn wake_at(&self, at: Time) {
        self.wish.send_replace(Some(at));
    }

    /// Waits for the time of the last wish, and ends that wish. Cancel-safe.
    pub(super) async fn due(&self) {
        let mut wishes = self.wish.subscribe();
        loop {
            let Some(at) = *wishes.borrow_and_update() else {
                // The sender is ours, so it is there.
                let _ = wishes.changed().await;
                continue;
            };
            tokio::select! {
                () = tokio::time::sleep_until((self.start + Duration::from_micros(at.us)).into()) => {
                    self.wish.send_if_modified(|wish| wish.take_if(|wish| *wish == at).is_some());
                    return;
                }
                _ = wishes.changed() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wish_is_due_once_and_a_later_one_replaces_it() {
        let clock = Clock::since(Instant::now());
        clock.wake_at(Time { us: 60_000_000 });
        clock.wake_at(Time { us: 2_000 });
        clock.due().await;
        assert!(clock.now().us >= 2_000);
        let again = tokio::time::timeout(Duration::from_millis(20), clock.due()).await;
        assert!(again.is_err(), "nothing was asked for since");
    }
}
