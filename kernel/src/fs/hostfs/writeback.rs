//! What was changed through mappings, on its way to the host: by a thread every few seconds, by who changes too much, and by
//! `msync`, `fsync` and the last close. And which files' pages are kept, and given up.

use super::super::used::Cold;
use super::failures::Seen;
use super::known;
use super::node::HostNode;
use super::pages::Choice;
use super::{ALL, Hostfs};
use crate::drivers::volume::{self, Opcode, Request};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use logic::errno::Errno;
use machine::arch::clock::{self, Nanos};
use machine::memory::{self, stats};
use machine::sched;
use machine::sync::{Mutex, SpinLock, WaitQueue};

/// How long a page may stay dirty.
const INTERVAL: Nanos = Nanos::from_secs(5);
/// Of all memory, the part that may be dirty.
const LIMIT_PART: u64 = 20;
/// Files that were open lately, whose pages stay.
const LATELY: usize = 256;
/// Pages that are dropped for one allocation that found nothing.
const RELIEF: usize = 512;

/// Files with dirty pages, or that may get some.
static DIRTY: SpinLock<Vec<Arc<HostNode>>> = SpinLock::new(Vec::new());
/// Held by who writes all: another one who wants that waits until it is done.
static WRITING: Mutex<()> = Mutex::new(());
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
        let _ = write_all(false);
        known::give_back();
    }
}

/// Lists a file that is to be written, or closed on the host, soon. False: there is no memory.
pub(super) fn note(node: &HostNode) -> bool {
    let Some(node) = node.this.upgrade() else {
        return true;
    };
    let mut dirty = DIRTY.lock();
    // Relaxed: it changes with the lock held.
    if node.listed.load(Ordering::Relaxed) {
        drop(dirty);
        return true;
    }
    if dirty.try_reserve(1).is_err() {
        drop(dirty);
        return false;
    }
    node.listed.store(true, Ordering::Relaxed);
    dirty.push(node);
    true
}

/// Has the host have all that is dirty now, and with `stable` its disk. A file is listed until it was written.
fn write_all(stable: bool) -> Result<(), Errno> {
    let _writing = WRITING.lock();
    let mut result = Ok(());
    let (mut at, len) = (0, DIRTY.lock().len());
    for _ in 0..len {
        let Some(node) = DIRTY.lock().get(at).cloned() else {
            break;
        };
        let before = node.failures.count();
        node.write_back();
        if stable {
            let synced = volume::done(&Request::new(Opcode::Sync, node.handle));
            if let Err(error) = synced {
                node.failures.note(error);
            }
        }
        if node.failures.count() != before {
            result = Err(node.failures.last());
        }
        node.close_unused(0);
        let gone = {
            let mut dirty = DIRTY.lock();
            // Who may change it relies on its being listed.
            if node.is_dirty() || node.views.may_change() || at >= dirty.len() {
                at += 1;
                None
            } else {
                node.listed.store(false, Ordering::Relaxed);
                // Nobody else takes any out.
                Some(dirty.remove(at))
            }
        };
        drop(gone);
    }
    result
}

impl HostNode {
    /// Writes the file and has it be stable; tells what failed since this one was told last.
    pub(super) fn sync(&self, seen: &Seen) -> Result<(), Errno> {
        self.write_back();
        let synced = volume::done(&Request::new(Opcode::Sync, self.handle));
        self.failures.check(seen)?;
        synced
    }

    /// Closes the file on the host, so that it can be executed there, if nobody but `own` who are going may write it.
    pub(super) fn close_unused(&self, own: u32) {
        let _moving = self.moving.lock();
        // Acquire: pairs with the AcqRel of the count.
        if self.opens.load(Ordering::Acquire) <= own
            && !self.is_dirty()
            && !self.views.may_change()
            && self.pinned.swap(false, Ordering::Relaxed)
        {
            let _ = volume::done(&Request::new(Opcode::Close, self.handle));
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
        let _ = write_all(false);
    }
}

/// Has the host have all that was changed through mappings, and be stable: `sync`. Who has a file learns of errors by `fsync`
/// all the same.
///
/// # Errors
/// What failed just now.
pub fn sync_all() -> Result<(), Errno> {
    write_all(true)
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

/// Calls `visit` with each known file while it returns true. No spin lock is held.
fn each_node(mut visit: impl FnMut(&HostNode) -> bool) {
    // Volumes are made before there are programs, and stay.
    for number in 0.. {
        let fs: Arc<Hostfs> = match ALL.lock().get(number) {
            Some(fs) => fs.clone(),
            None => break,
        };
        let mut handle = 0;
        while let Some((next, node)) = fs.next_node(handle) {
            handle = next;
            if node.is_some_and(|node| !visit(&node)) {
                return;
            }
        }
    }
}

/// Drops up to `most` unused pages that the host has too. Returns their number.
fn drop_some(most: usize) -> usize {
    let mut dropped = 0;
    each_node(|node| {
        dropped += node.drop_range(0..u64::MAX, Choice::Unused, most - dropped);
        dropped < most
    });
    dropped
}

impl Cold for HostNode {
    fn age(&self) -> u32 {
        self.used.age()
    }

    fn unmap(&self) {
        if self.has_pages() {
            self.views.ask_again();
        }
    }

    fn drop_unused(&self) -> usize {
        self.drop_range(0..u64::MAX, Choice::Unused, usize::MAX)
    }
}

/// Calls `visit` with each known file; the sum of what it returns. No spin lock is held.
pub(in super::super) fn each_cold(visit: &mut dyn FnMut(&dyn Cold) -> usize) -> usize {
    let mut sum = 0;
    each_node(|node| {
        sum += visit(node);
        sched::cond_resched();
        true
    });
    sum
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
