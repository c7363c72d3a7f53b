//! Ctrl-C and SIGTERM as a flag that everything looks at while it waits.
//!
//! A signal must not end this process at once, because it would leave servers behind. So it only sets the flag. Code
//! that waits returns a fault, and started programs are stopped on the way out as in any other fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

use crate::fault::Fault;

/// How often the flag is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Whether we are to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over both signals.
    pub fn listen() -> Result<Self, Fault> {
        let interrupt = Self::default();
        let runtime =
            Builder::new_current_thread().enable_all().build().map_err(Fault::system("wait for signals"))?;
        let handlers = {
            let _inside = runtime.enter();
            signal(SignalKind::interrupt()).and_then(|i| Ok((i, signal(SignalKind::terminate())?)))
        };
        let (mut interrupted, mut terminated) = handlers.map_err(Fault::system("handle signals"))?;
        let flag = Arc::clone(&interrupt.0);
        thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
            });
            flag.store(true, Ordering::Relaxed);
        });
        Ok(interrupt)
    }

    /// A fault when we are to end.
    pub fn check(&self) -> Result<(), Fault> {
        if self.0.load(Ordering::Relaxed) { Err(Fault::Interrupted) } else { Ok(()) }
    }

    /// Does nothing for a while.
    pub fn pause(&self, length: Duration) -> Result<(), Fault> {
        let end = Instant::now() + length;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_when_we_are_to_end() {
        let interrupt = Interrupt::default();
        assert!(interrupt.pause(Duration::from_millis(1)).is_ok());
        interrupt.0.store(true, Ordering::Relaxed);
        let begin = Instant::now();
        assert!(matches!(interrupt.pause(Duration::from_hours(1)), Err(Fault::Interrupted)));
        assert!(begin.elapsed() < Duration::from_mins(1));
    }
}
