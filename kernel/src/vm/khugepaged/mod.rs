//! The thread `khugepaged`. It decides each second on huge pages that are on trial, and joins pages
//! to huge pages from time to time. It sleeps while no space has memory for either.

mod join;
pub(crate) mod knobs;

use super::AddressSpace;
use super::family::Member;
use super::trial::Haste;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use join::Joiner;
use machine::arch::USER_END;
use machine::arch::clock::{self, Nanos};
use machine::sched;
use machine::sync::{SpinLock, WaitQueue};

/// The time between two checks of huge pages on trial.
const INTERVAL: Nanos = Nanos(1_000_000_000);

/// The spaces that have areas for huge pages. A space adds itself; it is removed when it ends, or
/// has no such area any more.
static SPACES: SpinLock<Vec<Member>> = SpinLock::new(Vec::new());
static QUEUE: WaitQueue = WaitQueue::new();
/// Whether there is, or will be, a huge page on trial that was not there at the last check.
static TRIED: AtomicBool = AtomicBool::new(false);

/// Adds `space` to the list of spaces that `khugepaged` visits. Returns `true` if the list has it
/// now. Returns `false` if memory is short, or if the space's family has no number. In that case no
/// page of the space may be put on trial.
pub(super) fn enlist(space: &AddressSpace) -> bool {
    if space.is_enlisted() {
        return true;
    }
    let Some(member) = space.member() else {
        return false;
    };
    let first = {
        let mut spaces = SPACES.lock();
        if spaces.try_reserve(1).is_err() {
            return false;
        }
        if !space.is_enlisted() {
            spaces.push(member);
        }
        // Relaxed: read under the space's lock, which is taken after this.
        space.enlisted.store(true, Ordering::Relaxed);
        spaces.len() == 1
    };
    if first {
        QUEUE.wake_one();
    }
    true
}

/// Adds `space` to the list as [`enlist`] does, because a huge page of it is about to be put on
/// trial. Wakes `khugepaged`, which decides the trial later. Returns whether the list has the space
/// now.
pub(super) fn enlist_for_trial(space: &AddressSpace) -> bool {
    if !enlist(space) {
        return false;
    }
    if !TRIED.swap(true, Ordering::Relaxed) {
        QUEUE.wake_one();
    }
    true
}

/// Removes the space `member` from the list.
fn forget(member: Member) {
    let mut spaces = SPACES.lock();
    if let Some(index) = spaces.iter().position(|&listed| listed == member) {
        spaces.swap_remove(index);
    }
}

/// Starts `khugepaged`. Called once, at boot.
pub(crate) fn start() {
    sched::spawn_kernel("khugepaged", run);
}

fn run() {
    let mut joiner = Joiner::new();
    let mut weigh: Option<Nanos> = None;
    loop {
        let no_spaces = SPACES.lock().is_empty();
        let called = || {
            TRIED.load(Ordering::Relaxed) && weigh.is_none()
                || knobs::are_set()
                || no_spaces && !SPACES.lock().is_empty()
        };
        if no_spaces {
            QUEUE.wait_uninterruptible(called);
            joiner.begin();
        } else {
            let next = weigh.into_iter().chain([joiner.due()]).min();
            QUEUE.wait_uninterruptible_deadline(called, next.unwrap_or(Nanos(0)));
        }
        let now = clock::now();
        match weigh {
            None if TRIED.load(Ordering::Relaxed) => weigh = Some(now.saturating_add(INTERVAL)),
            Some(due) if due <= now => {
                // A huge page put on trial at this moment is seen at the next look.
                let tried = TRIED.swap(false, Ordering::Relaxed);
                let some = weigh_each();
                weigh = (tried || some).then(|| clock::now().saturating_add(INTERVAL));
            }
            _ => {}
        }
        joiner.poll();
    }
}

/// Iterates over the listed spaces. Spaces that come or go during the iteration may be left out.
fn spaces() -> impl Iterator<Item = Arc<AddressSpace>> {
    let mut index = 0;
    core::iter::from_fn(move || {
        loop {
            let member = SPACES.lock().get(index).copied()?;
            index += 1;
            if let Some(space) = member.space() {
                return Some(space);
            }
        }
    })
}

/// Decides on the trials that have lasted long enough. Returns whether any are left.
fn weigh_each() -> bool {
    let mut some = false;
    for space in spaces() {
        space.weigh_trials(0..USER_END, Haste::None);
        some |= space.has_trials();
        sched::cond_resched();
    }
    some
}

/// Decides the trials of all listed spaces at once, after a failed allocation. Returns whether a
/// page was freed. May block.
pub(crate) fn weigh_all() -> bool {
    let mut freed = 0;
    for space in spaces() {
        freed += space.weigh_trials(0..USER_END, Haste::Now);
    }
    freed != 0
}

impl AddressSpace {
    /// Returns whether `khugepaged` visits this space. Called with the lock held, before a page is
    /// put on trial.
    pub(super) fn is_enlisted(&self) -> bool {
        // Relaxed: cleared under the lock.
        self.enlisted.load(Ordering::Relaxed)
    }

    /// Removes the space, which is being dropped, from the list.
    pub(super) fn unlist(&self) {
        if self.is_enlisted()
            && let Some(member) = self.member()
        {
            forget(member);
        }
    }

    fn has_trials(&self) -> bool {
        self.state.lock().tables.trials.count() != 0
    }
}
