//! Several suites at once, told in the order in which they were given.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

/// Runs something for each of several things, and hands on what comes of each, in their order, as soon as all before it
/// are done. It ends early when the consumer wants no more.
pub(super) fn run<T: Sync, R: Send>(
    things: &[T],
    jobs: Option<NonZeroUsize>,
    one: impl Fn(&T) -> R + Sync,
    mut tell: impl FnMut(R) -> bool,
) {
    let usual = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = jobs.map_or_else(usual, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        // Workers that run ahead wait, so that little work is wasted when the consumer stops.
        let (send, receive) = sync_channel(jobs);
        for _ in 0..jobs.min(things.len()) {
            let (send, next, one) = (send.clone(), &next, &one);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(thing) = things.get(at) else { return };
                    if send.send((at, one(thing))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut waiting = BTreeMap::new();
        let mut told = 0;
        for (at, result) in receive {
            waiting.insert(at, result);
            while let Some(result) = waiting.remove(&told) {
                told += 1;
                if !tell(result) {
                    // Those that are under way come to their end, and no more begin: nothing receives them.
                    return;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_however_long_each_takes() {
        let things: Vec<u64> = (0..40).collect();
        let mut told = Vec::new();
        let slow = |n: &u64| {
            thread::sleep(std::time::Duration::from_millis((40 - n) % 7));
            *n
        };
        run(&things, NonZeroUsize::new(8), slow, |n| {
            told.push(n);
            true
        });
        assert_eq!(told, things);
    }

    #[test]
    fn nothing_more_begins_when_nobody_listens() {
        let things: Vec<u64> = (0..1000).collect();
        let begun = AtomicUsize::new(0);
        let mut told = 0;
        run(
            &things,
            NonZeroUsize::MIN.into(),
            |_| begun.fetch_add(1, Ordering::Relaxed),
            |_| {
                told += 1;
                told < 3
            },
        );
        assert_eq!(told, 3);
        // One under way and one that waits to be reported.
        assert!(begun.load(Ordering::Relaxed) <= 5);
    }
}
