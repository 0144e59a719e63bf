//! What was changed through mappings, on its way to the host: by a thread every few seconds, by who changes too much, and by
//! `msync`, `fsync` and the last close. And which files' pages are kept, and given up.

use super::known;
use super::node::HostNode;
use super::pages::Choice;
use super::{ALL, Hostfs};
use crate::drivers::volume::{self, Ask, Request};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::memory::{self, stats};
use machine::sched;
use machine::sync::{SpinLock, WaitQueue};

/// How long a page may stay dirty.
const INTERVAL: Nanos = Nanos::from_secs(5);
/// Of all memory, the part that may be dirty.
const LIMIT_PART: u64 = 20;
/// Files that were open lately, whose pages stay.
const LATELY: usize = 256;
/// Pages that are dropped for one allocation that found nothing.
const RELIEF: usize = 512;

/// Files with dirty pages.
static DIRTY: SpinLock<Vec<Arc<HostNode>>> = SpinLock::new(Vec::new());
static LAST: SpinLock<[Option<Arc<HostNode>>; LATELY]> = SpinLock::new([const { None }; LATELY]);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static WORKER: WaitQueue = WaitQueue::new();

/// Starts the thread; when there are volumes.
pub fn start_thread() {
    sched::spawn_kernel("khostfs", run);
}

fn run() {
    loop {
        let deadline = clock::now().saturating_add(INTERVAL);
        WORKER.wait_uninterruptible_deadline(|| false, deadline);
        write_all();
        known::give_back();
    }
}

/// Notes a file that has dirty pages.
pub(super) fn note(node: &HostNode) {
    let Some(node) = node.this.upgrade() else {
        return;
    };
    let mut dirty = DIRTY.lock();
    let known = dirty.iter().any(|other| Arc::ptr_eq(other, &node));
    if !known && dirty.try_reserve(1).is_ok() {
        dirty.push(node);
    }
}

/// Has the host have all that is dirty now.
fn write_all() {
    let dirty = core::mem::take(&mut *DIRTY.lock());
    for node in dirty {
        node.write_back();
        // Acquire: as at the last close.
        if node.opens.load(Ordering::Acquire) == 0 {
            let _ = volume::done(&Request::new(Ask::Close, node.handle));
        }
        if node.is_dirty() {
            note(&node);
        }
    }
}

/// Called before a page becomes dirty, without a spin lock: writes where there are too many.
pub(super) fn throttle(node: &HostNode) {
    let limit = memory::allocator().managed_frames() / LIMIT_PART;
    if stats::unwritten().0 <= limit {
        return;
    }
    node.write_back();
    if stats::unwritten().0 > limit {
        write_all();
    }
}

/// Has the host have all that was changed through mappings, and be stable: `msync`, `sync`.
///
/// # Errors
/// What the host said of one that could not be written.
pub fn sync_all() -> Result<(), Errno> {
    let dirty: Vec<_> = DIRTY.lock().iter().cloned().collect();
    write_all();
    let mut result = Ok(());
    for node in dirty {
        let synced = volume::done(&Request::new(Ask::Sync, node.handle));
        let failed = node.failed.lock().take();
        result = result.and(failed.map_or(synced, Err));
    }
    result
}

/// Keeps the pages of a file that is opened.
pub(super) fn use_lately(node: &Arc<HostNode>) {
    // Relaxed: a place to put it.
    let at = NEXT.fetch_add(1, Ordering::Relaxed) % LATELY;
    let old = {
        let mut last = LAST.lock();
        if last.iter().flatten().any(|other| Arc::ptr_eq(other, node)) {
            return;
        }
        last[at].replace(node.clone())
    };
    drop(old);
}

/// Keeps a file no more.
pub(super) fn use_no_more(node: &HostNode) {
    let mut last = LAST.lock();
    let own = last.iter_mut().find(|place| {
        place
            .as_ref()
            .is_some_and(|other| core::ptr::eq(&**other, node))
    });
    let old = own.and_then(Option::take);
    drop(last);
    drop(old);
}

/// Drops up to `most` pages that the host has and nobody uses; how many.
fn drop_some(most: usize) -> usize {
    let mut dropped = 0;
    // Volumes are made before there are programs, and stay.
    for number in 0.. {
        let fs: Arc<Hostfs> = match ALL.lock().get(number) {
            Some(fs) => fs.clone(),
            None => break,
        };
        let mut handle = 0;
        while dropped < most
            && let Some((next, node)) = fs.next_node(handle)
        {
            handle = next;
            if let Some(node) = node {
                dropped += node.drop_range(0..u64::MAX, Choice::Unused, most - dropped);
            }
        }
    }
    dropped
}

/// For an allocation that found nothing. True when it may help to try again. No spin lock is held.
pub fn relieve() -> bool {
    drop_some(RELIEF) > 0
}

/// Drops all pages that the host has and nobody uses, and files that nobody has open.
pub fn drop_clean() {
    drop_some(usize::MAX);
    for at in 0..LATELY {
        let old = LAST.lock()[at].take();
        drop(old);
    }
}
