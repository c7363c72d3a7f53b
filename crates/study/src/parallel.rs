//! Runs independent pieces of work on all cores, with a progress bar.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::{ProgressBar, ProgressStyle};

/// Runs all of `work` and returns the results in its order. Larger pieces should come first.
pub(crate) fn all<T: Sync, R: Send>(work: &[T], what: &'static str, one: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let bar = ProgressBar::new(work.len() as u64).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} ({elapsed}, {eta} left)") {
        bar.set_style(style);
    }
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(work.len()));
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(piece) = work.get(index) else { return };
                    let result = one(piece);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                    bar.inc(1);
                }
            });
        }
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_piece_is_done_once_and_results_are_in_order() {
        let work: Vec<u64> = (0..500).collect();
        let doubled: Vec<u64> = work.iter().map(|n| n * 2).collect();
        assert_eq!(super::all(&work, "test", |n| n * 2), doubled);
    }
}
