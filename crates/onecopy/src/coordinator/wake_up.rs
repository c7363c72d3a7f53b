//! Wakes the core up at the time for which it asked last: the core has no clock of its own, and collects refreshes into batches.

use std::time::Duration;

use cluster::event::Event;

use super::Coordinator;

impl Coordinator {
    /// Wakes the core up whenever it asked for it, for as long as the node runs.
    pub(crate) async fn wake_up_in_time(&self) {
        let mut wishes = self.wake_ups.subscribe();
        loop {
            let wish = *wishes.borrow_and_update();
            let Some(at) = wish else {
                if wishes.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let due = tokio::time::sleep_until((self.start + Duration::from_micros(at.us)).into());
            tokio::select! {
                () = due => {
                    self.wake_ups.send_if_modified(|wish| wish.take_if(|wish| *wish == at).is_some());
                    self.handle(Event::WakeUp);
                }
                _ = wishes.changed() => {}
            }
        }
    }
}
