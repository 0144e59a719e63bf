//! Part `waiters`: threads that wait on futexes.

use super::call::raise_limit;
use super::threads::{Threads, Word, until};
use super::{Figures, Part, time};
use crate::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The part `waiters` of the experiment `scale`: its numbers of objects and its function.
pub(super) const PART: Part = Part {
    name: "waiters",
    counts: "waiters",
    usual: [100, 6_400],
    most: 20_000,
    run,
};

/// State that the waiters of one kind share.
#[derive(Default)]
struct Waiters {
    ends: AtomicBool,
    /// Number of times that waiters have begun to wait.
    here: AtomicU32,
}

fn run(number: u64) -> Result<Figures, Failure> {
    raise_limit(libc::RLIMIT_NPROC, number + 1_000)?;
    let apart = with_waiters(number, true)?;
    let together = with_waiters(number, false)?;
    Ok(vec![
        ("futex_wake_none_ns", apart.0),
        ("futex_wake_and_wait_ns", apart.1),
        ("futex_wake_one_of_all_ns", together.1),
    ])
}

/// Returns two times in nanoseconds: to wake a word without waiters, and to wake one thread that
/// then waits again. If `apart` is `true` each thread has a word of its own, otherwise all share
/// one.
fn with_waiters(number: u64, apart: bool) -> Result<(f64, f64), Failure> {
    let count = usize::try_from(number).expect("it is at most 20,000");
    let words: Arc<Vec<Word>> = Arc::new((0..count).map(|_| Word::new()).collect());
    let waiters = Arc::new(Waiters::default());
    let unused = Word::new();
    let mut threads = Threads::none();
    for index in 0..count {
        let (words, waiters) = (Arc::clone(&words), Arc::clone(&waiters));
        threads.start(move || {
            let word = &words[if apart { index } else { 0 }];
            while !waiters.ends.load(Ordering::Acquire) {
                waiters.here.fetch_add(1, Ordering::Release);
                word.wait()?;
            }
            Ok(())
        })?;
    }
    until(&waiters.here, number);
    let wake_none = time(|_| unused.wake(1).map(drop))?;
    let wake_one = time(|index| {
        let here = waiters.here.load(Ordering::Acquire);
        let word = &words[if apart { index * 31 % count } else { 0 }];
        // On another CPU the thread may not have begun to wait yet.
        while word.wake(1)? == 0 {
            std::thread::yield_now();
        }
        until(&waiters.here, u64::from(here) + 1);
        Ok(())
    })?;
    waiters.ends.store(true, Ordering::Release);
    for word in words.iter() {
        word.open()?;
    }
    threads.join()?;
    Ok((wake_none, wake_one))
}
