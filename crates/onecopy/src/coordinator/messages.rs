//! The messages between the agents of replicas under protocol `preventive`.
//!
//! All agents live in this node, so a message arrives as soon as it is sent: [`Messages::send`] returns it, and the core takes it
//! after the effects of the present event. A test that wants late messages, and messages in another order than their stamps, sets
//! `ONECOPY_TEST_MESSAGE_US`, the mean of an exponential delay. Then a task brings them ([`Messages::next`]).
//!
//! Invariant: messages of one agent to another arrive in the order in which they were sent.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::event::Event;
use cluster::ids::ReplicaId;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The mean delay of a message in microseconds, for tests and experiments.
const DELAY_VARIABLE: &str = "ONECOPY_TEST_MESSAGE_US";

/// A delay is at most this multiple of the mean.
const DELAY_MAX: f64 = 20.0;

#[derive(Debug)]
pub(crate) struct Messages {
    /// The mean delay; `None` if messages arrive at once.
    mean: Option<Duration>,
    under_way: Mutex<UnderWay>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct UnderWay {
    /// By the time of arrival and the number of the message.
    all: BTreeMap<(Instant, u64), Event>,
    /// When the last message from one agent to another arrives.
    last: BTreeMap<(ReplicaId, ReplicaId), Instant>,
    sent: u64,
}

impl Messages {
    pub(super) fn new() -> Self {
        let asked = std::env::var(DELAY_VARIABLE).ok().and_then(|text| text.parse().ok());
        let mean = asked.filter(|us| *us > 0).map(Duration::from_micros);
        Self { mean, under_way: Mutex::default(), wake: Notify::new() }
    }

    /// Sends a message. Returns it if it arrives at once.
    pub(super) fn send(&self, message: Event) -> Option<Event> {
        let (Some(mean), Event::Arrived { from, to, .. }) = (self.mean, &message) else {
            return Some(message);
        };
        let pair = (*from, *to);
        let mut under_way = self.under_way();
        let mut at = Instant::now() + delay(mean);
        if let Some(last) = under_way.last.get(&pair) {
            at = at.max(*last);
        }
        under_way.last.insert(pair, at);
        under_way.sent += 1;
        let number = under_way.sent;
        under_way.all.insert((at, number), message);
        drop(under_way);
        self.wake.notify_one();
        None
    }

    /// Waits for the next message that was delayed. Cancel-safe.
    pub(super) async fn next(&self) -> Event {
        loop {
            let first = self.under_way().all.first_key_value().map(|((at, _), _)| *at);
            match first {
                Some(at) if at <= Instant::now() => {
                    if let Some((_, message)) = self.under_way().all.pop_first() {
                        return message;
                    }
                }
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.wake.notified() => {}
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    fn under_way(&self) -> MutexGuard<'_, UnderWay> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exponential delay.
fn delay(mean: Duration) -> Duration {
    let drawn = getrandom::u32().map_or(0.5, |drawn| (f64::from(drawn) + 1.0) / (f64::from(u32::MAX) + 1.0));
    mean.mul_f64((-drawn.ln()).clamp(0.0, DELAY_MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::claims::Claims;
    use cluster::event::{Message, Role, Stamp};
    use cluster::ids::SessionId;

    use super::*;

    fn message(from: u16, to: u16, n: u64) -> Event {
        let stamp = Stamp { us: n, origin: ReplicaId(from), n };
        let message = Message::Submitted {
            stamp,
            session: SessionId(n),
            claims: Arc::new(Claims::default()),
            role: Role::Waits,
        };
        Event::Arrived { from: ReplicaId(from), to: ReplicaId(to), message }
    }

    #[tokio::test]
    async fn messages_between_two_agents_keep_their_order() {
        let messages = Messages {
            mean: Some(Duration::from_micros(300)),
            under_way: Mutex::default(),
            wake: Notify::new(),
        };
        for n in 0..200 {
            assert!(messages.send(message(u16::from(n % 2 == 0), 2, n)).is_none(), "it is under way");
        }
        let mut last = BTreeMap::new();
        let mut is_mixed = false;
        for at in 0..200 {
            let Event::Arrived { from, message: Message::Submitted { stamp, .. }, .. } =
                messages.next().await
            else {
                panic!("only messages are under way");
            };
            assert!(last.insert(from, stamp.n).is_none_or(|before| before < stamp.n));
            is_mixed |= stamp.n != at;
        }
        assert!(is_mixed, "those of two senders do not");
        let at_once = Messages { mean: None, under_way: Mutex::default(), wake: Notify::new() };
        assert!(at_once.send(message(0, 1, 1)).is_some());
    }
}
