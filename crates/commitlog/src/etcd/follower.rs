//! A follower's copy: a thread reads what the leader appends, and tells how far this node has it on its disk.
//!
//! A caller that hears of new batches by another way gives a hint; without hints the thread looks every so often.
//!
//! ```text
//! let follower = Follower::start(etcd, LogCopy::open(dir, cluster)?, "b")?;
//! follower.hint();                 // version 42 was logged
//! let copy = follower.stop();      // to lead: EtcdLog::open(etcd, claim, copy, ..)
//! ```
//!
//! Invariant: a follower writes nothing to etcd but its own report.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cluster::ids::Version;

use super::copy::LogCopy;
use super::engine::complete;
use super::trimmer::put_report;
use super::window::{EtcdKeys, Progress};
use crate::error::LogError;

/// How often a follower without hints looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Between two reports when there is something to report.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Between two reports when there is not; a node that reports nothing counts as down.
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// A copy that follows the leader.
pub struct Follower {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    etcd: EtcdKeys,
    node: String,
    copy: LogCopy,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    is_hinted: bool,
    is_ended: bool,
    ending: Option<Ending>,
}

/// Why a follower follows no more.
#[derive(Debug)]
pub enum Ending {
    /// The leader has trimmed what this node misses: the copy must be opened and started anew, which sets its files aside.
    Behind {
        /// Where etcd begins now.
        base: Version,
    },
    /// What etcd holds, or the disk, does not allow to go on.
    Failed(LogError),
}

impl Follower {
    /// Completes the copy with what is there, and follows from then on. A copy that is behind is begun anew.
    pub fn start(etcd: EtcdKeys, copy: LogCopy, node: &str) -> Result<Self, LogError> {
        let copy = match etcd.head(copy.cluster)?.base {
            Some(_) => complete(&etcd, copy)?,
            None => copy,
        };
        let dir = copy.dir.clone();
        let shared = Arc::new(Shared {
            etcd,
            node: node.to_owned(),
            copy,
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        let following = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("log-follower".into())
            .spawn(move || following.run())
            .map_err(|source| LogError::io("start a thread for the log in", &dir, source))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// There is something new.
    pub fn hint(&self) {
        self.shared.state().is_hinted = true;
        self.shared.wake.notify_all();
    }

    /// The copy, for readers.
    pub fn copy(&self) -> &LogCopy {
        &self.shared.copy
    }

    /// Why it follows no more, once.
    pub fn ending(&self) -> Option<Ending> {
        self.shared.state().ending.take()
    }

    /// Ends the thread, and gives the copy back to be led with.
    pub fn stop(mut self) -> Option<LogCopy> {
        self.end();
        let shared = Arc::clone(&self.shared);
        drop(self);
        Arc::into_inner(shared).map(|shared| shared.copy)
    }

    fn end(&mut self) {
        self.shared.state().is_ended = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows the log panicked");
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("copy", &self.shared.copy).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let (mut reported, mut reported_at) = (Version::ZERO, None::<Instant>);
        while self.sleep() {
            match self.read() {
                Ok(Progress::Added) => self.state().is_hinted = true,
                Ok(Progress::Complete) => {}
                Ok(Progress::Behind { base }) => return self.end(Ending::Behind { base }),
                Err(error) if error.is_of_the_network() => {
                    tracing::debug!("the log is not followed: {error}");
                }
                Err(_) if self.state().is_ended => return,
                Err(error) => return self.end(Ending::Failed(error)),
            }
            let synced = self.copy.synced();
            let every = if synced > reported { REPORT_EVERY } else { ALIVE_EVERY };
            if reported_at.is_none_or(|at| at.elapsed() >= every) {
                match put_report(&self.etcd, &self.node, synced) {
                    Ok(()) => (reported, reported_at) = (synced, Some(Instant::now())),
                    Err(error) => tracing::debug!("the copy is not reported: {error}"),
                }
            }
        }
    }

    fn read(&self) -> Result<Progress, LogError> {
        let page = self.etcd.page(self.copy.last(), false)?;
        if page.base.is_none() {
            return Ok(Progress::Complete);
        }
        self.etcd.add(&self.copy, &page, &|| !self.state().is_ended)
    }

    fn end(&self, ending: Ending) {
        self.state().ending = Some(ending);
    }

    /// Waits for a hint, or a while; false when it is over.
    fn sleep(&self) -> bool {
        let deadline = Instant::now() + LOOK_EVERY;
        let mut state = self.state();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if state.is_ended || state.is_hinted || left.is_zero() {
                state.is_hinted = false;
                return !state.is_ended;
            }
            let (next, _) = self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = next;
        }
    }
}
