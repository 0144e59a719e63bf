//! `khugepaged`: weighs what is on trial each second, and sleeps while nothing is.

use super::{AddressSpace, Haste};
use crate::vm::family::{Family, Owner};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use machine::arch::USER_END;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::{SpinLock, WaitQueue};

/// Between two looks.
const INTERVAL: Nanos = Nanos(1_000_000_000);

/// The tags of spaces that may have huge pages on trial. A space takes itself in, `khugepaged` takes it out.
static SPACES: SpinLock<Vec<u64>> = SpinLock::new(Vec::new());
static QUEUE: WaitQueue = WaitQueue::new();

/// Has a space be looked at from here on; false: that cannot be had, and nothing is to be put on trial.
pub(in crate::vm) fn enlist(space: &AddressSpace) -> bool {
    if space.tries_huge_pages() {
        return true;
    }
    if space.tag() == 0 {
        return false;
    }
    let mut spaces = SPACES.lock();
    if !spaces.contains(&space.tag()) {
        if spaces.try_reserve(1).is_err() {
            return false;
        }
        spaces.push(space.tag());
    }
    // Relaxed: read under the space's lock, which is taken after this.
    space.tries_huge_pages.store(true, Ordering::Relaxed);
    drop(spaces);
    QUEUE.wake_one();
    true
}

/// Starts the thread.
pub(crate) fn start() {
    sched::spawn_kernel("khugepaged", || {
        loop {
            QUEUE.wait_uninterruptible(|| !SPACES.lock().is_empty());
            sched::sleep_until(clock::now().saturating_add(INTERVAL));
            look();
        }
    });
}

/// The space with a tag, if it is there still.
fn space_of(tag: u64) -> Option<Arc<AddressSpace>> {
    let word = Owner(tag);
    let mut found = None;
    Family::of(word)?.ask(word, |space| {
        if space.tag() == tag {
            found = Some(space.clone());
        }
        // It is the first that is asked.
        true
    });
    found
}

/// Weighs all, and forgets spaces that have nothing on trial any more.
fn look() {
    let mut index = 0;
    loop {
        let Some(tag) = SPACES.lock().get(index).copied() else {
            return;
        };
        let space = space_of(tag);
        if let Some(space) = &space {
            space.weigh_trials(0..USER_END, Haste::None);
        }
        if space.is_none_or(|space| space.has_no_trials()) {
            // Only this thread takes any out, so it is in its place still.
            SPACES.lock().swap_remove(index);
        } else {
            index += 1;
        }
        sched::cond_resched();
    }
}

/// Weighs all at once, for who finds no memory; whether anything came of it. May block.
pub(crate) fn weigh_all() -> bool {
    let mut freed = 0;
    for index in 0.. {
        let Some(tag) = SPACES.lock().get(index).copied() else {
            break;
        };
        if let Some(space) = space_of(tag) {
            freed += space.weigh_trials(0..USER_END, Haste::Now);
        }
    }
    freed != 0
}

impl AddressSpace {
    /// Whether nothing is on trial: then nothing is put on trial either before it has taken itself in again.
    fn has_no_trials(&self) -> bool {
        let state = self.state.lock();
        let none = state.tables.trials.count() == 0;
        if none {
            self.tries_huge_pages.store(false, Ordering::Relaxed);
        }
        none
    }
}
