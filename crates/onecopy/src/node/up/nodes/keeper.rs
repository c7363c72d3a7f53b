//! Keeps processes running: one task for each, which starts it again when it has ended.
//!
//! The pause before a start doubles with each failure in a row. A process that has run for a minute has not failed. The same reason is
//! printed once in a row.
//!
//! While `onecopy up` starts, an ending is told to it instead ([`NodesError::Ended`]), because a process that ends at once
//! will most likely do so again.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::Duration;

use pgserver::{Ending, Server};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::child::Child;
use super::error::NodesError;
use crate::node::signals::Signals;
use crate::terminal::Progress;

/// The first pause before a process is started again. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A process that has run for so long has not failed to start.
const STEADY: Duration = Duration::from_mins(1);
/// Endings that can wait while all is started.
const ENDINGS_MAX: usize = 64;

/// What the processes of a group have to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Run,
    /// To stop in good order.
    Stop,
    /// To wait for nothing.
    Hurry,
}

/// A process that can be kept running.
pub(super) trait Kept: Send + 'static {
    fn name(&self) -> String;
    fn log(&self) -> PathBuf;
    fn exited(&mut self) -> impl Future<Output = Ending> + Send;
    fn start(&mut self) -> impl Future<Output = Result<(), NodesError>> + Send;
    /// Stops it. A new order says to hurry.
    fn stop(&mut self, orders: &mut watch::Receiver<Order>) -> impl Future<Output = ()> + Send;
}

impl Kept for Server {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn log(&self) -> PathBuf {
        self.log_path().to_owned()
    }

    async fn exited(&mut self) -> Ending {
        Self::exited(self).await
    }

    async fn start(&mut self) -> Result<(), NodesError> {
        Self::start(self).await.map_err(|error| NodesError::Server(Box::new(error)))
    }

    async fn stop(&mut self, _: &mut watch::Receiver<Order>) {
        Self::stop(self).await;
    }
}

impl Kept for Child {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn log(&self) -> PathBuf {
        Self::log(self)
    }

    async fn exited(&mut self) -> Ending {
        Self::exited(self).await
    }

    async fn start(&mut self) -> Result<(), NodesError> {
        self.spawn()
    }

    async fn stop(&mut self, orders: &mut watch::Receiver<Order>) {
        self.ask_to_stop();
        if *orders.borrow_and_update() == Order::Stop {
            tokio::select! {
                () = self.stopped() => return,
                _ = orders.changed() => {}
            }
        }
        self.ask_to_stop();
        self.stopped().await;
    }
}

/// Processes that are stopped together.
pub(super) struct Group {
    keepers: JoinSet<()>,
    orders: watch::Sender<Order>,
    endings: mpsc::Sender<NodesError>,
    told: Option<mpsc::Receiver<NodesError>>,
    progress: Progress,
}

impl Group {
    pub(super) fn new(progress: &Progress) -> Self {
        let (endings, told) = mpsc::channel(ENDINGS_MAX);
        let orders = watch::channel(Order::Run).0;
        Self { keepers: JoinSet::new(), orders, endings, told: Some(told), progress: progress.clone() }
    }

    /// Keeps a process running from now on. It may have failed to start.
    pub(super) fn keep<K: Kept>(&mut self, kept: K, is_running: bool) {
        let keeper = Keeper {
            kept,
            is_running,
            since: Instant::now(),
            failures: u32::from(!is_running),
            reason: String::new(),
            is_quiet: false,
            endings: self.endings.clone(),
            progress: self.progress.clone(),
        };
        self.keepers.spawn(keeper.run(self.orders.subscribe()));
    }

    /// The endings until [`Group::has_started`].
    pub(super) fn endings(&mut self) -> Option<&mut mpsc::Receiver<NodesError>> {
        self.told.as_mut()
    }

    /// From now on endings are printed.
    pub(super) fn has_started(&mut self) {
        self.told = None;
    }

    /// Stops all at the same time. A signal makes them hurry.
    pub(super) async fn stop(&mut self, signals: &mut Signals) {
        self.told = None;
        self.orders.send_replace(Order::Stop);
        loop {
            tokio::select! {
                ended = self.keepers.join_next() => if ended.is_none() { return },
                () = signals.stop() => {
                    self.orders.send_replace(Order::Hurry);
                }
            }
        }
    }
}

struct Keeper<K> {
    kept: K,
    is_running: bool,
    since: Instant,
    /// Failures in a row.
    failures: u32,
    /// The last one.
    reason: String,
    /// The last failure was like the one before.
    is_quiet: bool,
    endings: mpsc::Sender<NodesError>,
    progress: Progress,
}

impl<K: Kept> Keeper<K> {
    async fn run(mut self, mut orders: watch::Receiver<Order>) {
        while *orders.borrow_and_update() == Order::Run {
            tokio::select! {
                () = self.step() => {}
                _ = orders.changed() => {}
            }
        }
        self.kept.stop(&mut orders).await;
    }

    /// Returns when the process has ended, or after an attempt to start it.
    async fn step(&mut self) {
        if self.is_running {
            let ending = self.kept.exited().await;
            self.is_running = false;
            if self.since.elapsed() >= STEADY {
                (self.failures, self.reason) = (0, String::new());
            }
            self.has_ended(ending);
            return;
        }
        sleep(pause(self.failures)).await;
        match self.kept.start().await {
            Ok(()) => {
                (self.is_running, self.since) = (true, Instant::now());
                if !self.is_quiet {
                    self.progress.say(format_args!("{} was started again", self.kept.name()));
                }
            }
            Err(error) => self.failed(error.to_string()),
        }
    }

    fn has_ended(&mut self, ending: Ending) {
        let (name, log) = (self.kept.name(), self.kept.log());
        let reason = match ending.status {
            // Its log does not tell who killed it.
            Some(status) if status.signal().is_some() => {
                format!("{name} ended: {status}; its log is {}", log.display())
            }
            _ => format!("{name} ended: {ending}\nThe whole log is {}", log.display()),
        };
        if !self.endings.is_closed() {
            self.failures += 1;
            // If the queue is full, the first endings are told already.
            let _ = self.endings.try_send(NodesError::Ended { name, log, ending });
            return;
        }
        self.failed(reason);
    }

    fn failed(&mut self, reason: String) {
        self.failures += 1;
        self.is_quiet = reason == self.reason;
        if !self.is_quiet {
            self.progress.say(&reason);
        }
        self.reason = reason;
    }
}

/// The pause before the next start, after so many failures in a row.
fn pause(failures: u32) -> Duration {
    let doubled = PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_grows_and_is_bounded() {
        let pauses: Vec<u128> = [0, 1, 2, 3, 8, 9, 100].map(|failures| pause(failures).as_millis()).into();
        assert_eq!(pauses, [200, 200, 400, 800, 25_600, 30_000, 30_000]);
    }
}
